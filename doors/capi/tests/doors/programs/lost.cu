// A kernel traps while others of its grid wait for answers: its hold ends, calls of the view fail with a sentence, the
// view is closed, and the database continues. Needs a GPU.
//
//   lost DEVICE FOLDER
#include "kv.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

// Limit for the whole program. A program that hangs is killed.
constexpr unsigned MOST_SECONDS = 120;

constexpr unsigned TILES = 64;

// A store that answers and writes when the test allows it.
struct Slow {
  rm_store inner;
  std::atomic<bool> may_answer{false};
  std::atomic<unsigned> calls{0};

  void wait() {
    ++calls;
    while (!may_answer) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  static void get(void* state, const rm_bytes* keys, size_t n, rm_tell_value tell, void* context) {
    Slow& self = *static_cast<Slow*>(state);
    self.wait();
    self.inner.get(self.inner.state, keys, n, tell, context);
  }
  static int write(void* state, const rm_write* writes, size_t n) {
    Slow& self = *static_cast<Slow*>(state);
    self.wait();
    return self.inner.write(self.inner.state, writes, n);
  }
};

// Half of the threads get and half put. One traps when the host reports that requests are in progress.
__global__ void request(rockmill::kv kv, const volatile unsigned* may_trap, char* buffers) {
  const rockmill::thread alone;
  const unsigned number = blockIdx.x;
  if (number == 0) {
    while (*may_trap == 0) __nanosleep(1000);
    __trap();
  }
  char* const buffer = buffers + 16 * number;
  const auto ticket = number % 2 == 0 ? kv.get_latest(alone, "key", 3, buffer, 16) : kv.put(alone, "key", 3, "new", 3);
  kv.wait(alone, ticket);
}

void check_cuda(cudaError_t code) { check(code == cudaSuccess, cudaGetErrorString(code)); }

void check_failed(rm_status status, char* error, const char* call) {
  check(status == RM_FAILURE && error != nullptr, std::string(call) + " works on a device that is lost");
  std::printf("%s: %s\n", call, error);
  rm_free(error);
}

void trap(rm_view* view, const Slow& slow) {
  unsigned* may_trap = nullptr;
  char* buffers = nullptr;
  check_cuda(cudaMallocHost(&may_trap, sizeof *may_trap));
  check_cuda(cudaMallocHost(&buffers, 16 * TILES));
  *may_trap = 0;
  cudaStream_t stream;
  check_cuda(cudaStreamCreate(&stream));
  // It is still held when the device is lost.
  rockmill::hold held(view, stream);
  {
    rockmill::hold hold(view, stream);
    request<<<TILES, 1, 0, stream>>>(hold.kv(), may_trap, buffers);
    check_cuda(cudaGetLastError());
  }
  while (slow.calls == 0) std::this_thread::yield();
  *static_cast<volatile unsigned*>(may_trap) = 1;
  check(cudaStreamSynchronize(stream) != cudaSuccess, "the kernel has not trapped");
  rm_lookup lookup{};
  lookup.struct_size = sizeof lookup;
  lookup.keys = buffers;
  lookup.key_size = 3;
  lookup.num_keys = 1;
  lookup.statuses = reinterpret_cast<uint8_t*>(buffers);
  char* error = nullptr;
  const rm_status looked_up = rm_view_lookup(view, &lookup, stream, &error);
  check_failed(looked_up, error, "rm_view_lookup");
  error = nullptr;
  const rm_status refreshed = rm_view_refresh(view, &error);
  check_failed(refreshed, error, "rm_view_refresh");
}

int main(int argc, char** argv) {
  check(argc == 3, "usage: lost DEVICE FOLDER");
  alarm(MOST_SECONDS);
  const Database database(argv[2]);
  char* error = nullptr;
  rocksdb_put(database.db, database.write, "key", 3, "old", 3, &error);
  check(error);
  Slow slow{};
  slow.inner = rm_store_of_rocksdb(const_cast<rm_rocksdb_store*>(&database.of));
  rm_store store = slow.inner;
  store.state = &slow;
  store.get = Slow::get;
  store.write = Slow::write;
  rm_view_options options{};
  options.struct_size = sizeof options;
  options.path = argv[2];
  options.device = argv[1];
  options.store = &store;
  options.memory_bytes = uint64_t(1) << 30;
  options.timeout_ms = 600'000;
  rm_view* view = open_view(options);
  trap(view, slow);
  slow.may_answer = true;
  close_view(view);
  std::printf("closed\n");
  rocksdb_put(database.db, database.write, "key", 3, "newest", 6, &error);
  check(error);
  size_t len = 0;
  char* value = rocksdb_get(database.db, database.read, "key", 3, &len, &error);
  check(error);
  check(value != nullptr && std::string(value, len) == "newest", "the database has lost a put");
  rocksdb_free(value);
  std::printf("done\n");
}
