// Random gets, puts and deletes of many tiles, each checked against the tile's own puts: tiles of a GPU if nvcc
// compiles this, threads of the host if g++ does. In some rounds RocksDB is slow, refuses and fails; in others the view
// is closed meanwhile. Prints a line for each round.
//
//   stress DEVICE FOLDER SECONDS SEED [TILES]      TILES on a GPU at most
#include "kv.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#if defined(__CUDACC__)
#include <cooperative_groups.h>
#define BOTH __host__ __device__
#else
#define BOTH
#endif

// Neither RocksDB nor the library is compiled for ThreadSanitizer, which checks the kernels' side of the hand-over.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
extern "C" const char* __tsan_default_suppressions() { return "race:rocksdb\n"; }

using status = rockmill::status;

constexpr uint32_t WIDTHS[] = {1, 8, 32};
constexpr uint32_t KEYS = 6, MAX_KEY = 48, MAX_TICKETS = 4;

// Parameters that all tiles share.
struct Plan {
  uint64_t seed;
  uint32_t tiles, steps, max_value;
  // Whether RocksDB may fail or be late, and whether the view is closed.
  bool has_faults, is_closed;
  // For each tile: the current number of each key's value, and the line of this file at which a check failed.
  uint32_t* versions;
  uint32_t* failed;
  uint32_t* statuses;
  // Whether the tile has finished.
  uint32_t* done;
  // Memory of each tile.
  uint8_t* room;
};

// States of a key: without a value, or with an unknown one after a failure.
constexpr uint32_t NONE = 0, UNKNOWN = ~0u;

BOTH constexpr uint64_t room_of(uint32_t max_value) { return MAX_KEY + 2 * (uint64_t(max_value) + 16); }

BOTH inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t h = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

// Some keys begin with 'r', in the range of a tombstone. Those that are put later are read with it at each refresh.
BOTH inline uint32_t key_len(uint64_t seed, uint32_t tile, uint32_t key) { return 9 + mix(seed ^ tile, key) % 30; }

BOTH inline uint8_t key_byte(uint64_t seed, uint32_t tile, uint32_t key, uint32_t at) {
  if (at == 0) return key == 0 ? 'r' : 'k';
  if (at < 5) return uint8_t(tile >> (8 * (at - 1)));
  if (at == 5) return uint8_t(key);
  return uint8_t(mix(seed ^ tile, key + 1000 * at));
}

BOTH inline uint32_t value_len(const Plan& plan, uint32_t tile, uint32_t key, uint32_t version) {
  const uint64_t hash = mix(mix(plan.seed ^ tile, key), version);
  return uint32_t((hash >> 8) % ((hash & 7) == 0 ? plan.max_value + 1 : 81));
}

BOTH inline uint8_t value_byte(const Plan& plan, uint32_t tile, uint32_t key, uint32_t version, uint32_t at) {
  return uint8_t(mix(mix(plan.seed + tile, key), version + uint64_t(at / 8) * 0x10001) >> (at % 8 * 8));
}

// Returns with the number of the line.
#define EXPECT(is_true, what)                                 \
  if (!g.all(is_true)) {                                      \
    if (g.rank() == 0) {                                      \
      plan.failed[number] = __LINE__;                         \
      plan.statuses[number] = uint32_t(what);                 \
    }                                                         \
    return;                                                   \
  }

// The work of a tile. All of its lanes call this.
template <class Tile>
BOTH void work(rockmill::kv kv, const Tile& tile, const Plan& plan, uint32_t number) {
  using rockmill::ROCKMILL_TARGET::group_of;
  const auto g = group_of(tile);
  uint8_t* const key_bytes = plan.room + room_of(plan.max_value) * number;
  uint8_t* const value = key_bytes + MAX_KEY;
  uint8_t* const buffer = value + plan.max_value + 16;
  uint32_t* const versions = plan.versions + uint64_t(number) * KEYS;
  rockmill::ticket tickets[MAX_TICKETS];
  uint32_t num_tickets = 0, next_version = 2;
  uint64_t state = mix(plan.seed, number);
  for (uint32_t step = 0; step < plan.steps; ++step) {
    state = mix(state, step);
    const uint32_t key = state % KEYS, len = key_len(plan.seed, number, key), drawn = (state >> 8) % 8;
    const bool is_write = drawn < 4;
    // A get may not wait for a request slot while there are tickets, and it may be answered before writes of another request slot.
    if (!is_write || num_tickets == MAX_TICKETS || (state >> 16) % 4 == 0) {
      while (num_tickets > 0) {
        const auto written = kv.wait(tile, tickets[--num_tickets]);
        if (plan.is_closed && written.status == status::aborted) return;
        EXPECT(written.status == status::written, written.status);
      }
    }
    for (uint32_t i = g.rank(); i < len; i += g.width) key_bytes[i] = key_byte(plan.seed, number, key, i);
    g.sync();
    const uint32_t before = versions[key];
    g.sync();
    if (is_write) {
      const uint32_t version = drawn == 0 ? NONE : next_version++;
      const uint32_t value_bytes = version == NONE ? 0 : value_len(plan, number, key, version);
      for (uint32_t i = g.rank(); i < value_bytes; i += g.width) value[i] = value_byte(plan, number, key, version, i);
      g.sync();
      const auto post = [&] {
        return version == NONE ? kv.del(tile, key_bytes, len) : kv.put(tile, key_bytes, len, value, value_bytes);
      };
      auto ticket = post();
      while (num_tickets > 0 && ticket.status == status::busy) {
        const auto written = kv.wait(tile, tickets[--num_tickets]);
        if (plan.is_closed && written.status == status::aborted) return;
        EXPECT(written.status == status::written, written.status);
        ticket = post();
      }
      uint32_t after = version;
      if (plan.has_faults) {
        const auto written = kv.wait(tile, ticket).status;
        if (written == status::busy) after = before;
        else if (written == status::timed_out || written == status::io_error) after = UNKNOWN;
        else EXPECT(written == status::written, written);
      } else {
        if (plan.is_closed && ticket.status == status::aborted) return;
        EXPECT(ticket.status == status::found, ticket.status);
        tickets[num_tickets++] = ticket;
      }
      // A request without an answer in time may be executed after later ones.
      if (g.rank() == 0 && before != UNKNOWN) versions[key] = after;
      g.sync();
      continue;
    }
    const uint32_t capacity = (state >> 24) % 4 == 0 ? uint32_t(state >> 32) % 40 : plan.max_value;
    rockmill::result got;
    if (drawn == 4) {
      got = kv.wait(tile, kv.get_latest(tile, key_bytes, len, buffer, capacity));
    } else {
      got = kv.get(tile, key_bytes, len, buffer, capacity);
    }
    g.sync();
    if (plan.is_closed && got.status == status::aborted) return;
    if (plan.has_faults && (got.status == status::timed_out || got.status == status::io_error)) continue;
    if (before == UNKNOWN) continue;
    if (before == NONE) {
      EXPECT(got.status == status::not_found, got.status);
      continue;
    }
    const uint32_t expected = value_len(plan, number, key, before);
    EXPECT(got.len == expected && got.status == (expected <= capacity ? status::found : status::too_small), got.status);
    const auto found = kv.find(tile, key_bytes, len);
    EXPECT(found.status == status::ask || (found.status == status::found && found.len == expected), found.status);
    bool is_same = true;
    for (uint32_t i = g.rank(); i < expected; i += g.width) {
      const uint8_t byte = value_byte(plan, number, key, before, i);
      is_same &= got.status != status::found || buffer[i] == byte;
      is_same &= found.status != status::found || found.data[i] == byte;
    }
    EXPECT(is_same, got.status);
  }
  while (num_tickets > 0) {
    const auto written = kv.wait(tile, tickets[--num_tickets]);
    if (plan.is_closed && written.status == status::aborted) return;
    EXPECT(written.status == status::written, written.status);
  }
  if (g.rank() == 0) plan.done[number] = 1;
}

// Gets all keys of a tile whose values are known, from a version that may have them all.
template <class Tile>
BOTH void check_all(rockmill::kv kv, const Tile& tile, const Plan& plan, uint32_t number) {
  const auto g = rockmill::ROCKMILL_TARGET::group_of(tile);
  uint8_t* const key_bytes = plan.room + room_of(plan.max_value) * number;
  uint8_t* const buffer = key_bytes + MAX_KEY;
  for (uint32_t key = 0; key < KEYS; ++key) {
    const uint32_t version = plan.versions[uint64_t(number) * KEYS + key];
    if (version == UNKNOWN) continue;
    const uint32_t len = key_len(plan.seed, number, key);
    g.sync();
    for (uint32_t i = g.rank(); i < len; i += g.width) key_bytes[i] = key_byte(plan.seed, number, key, i);
    g.sync();
    const auto found = kv.find(tile, key_bytes, len);
    const bool is_there = found.status == (version == NONE ? status::not_found : status::found);
    EXPECT(is_there, found.status);
    const auto got = kv.get(tile, key_bytes, len, buffer, plan.max_value);
    g.sync();
    if (plan.has_faults && got.status == status::timed_out) continue;
    EXPECT(got.status == (version == NONE ? status::not_found : status::found), got.status);
    bool is_same = version == NONE || got.len == value_len(plan, number, key, version);
    for (uint32_t i = g.rank(); is_same && version != NONE && i < got.len; i += g.width)
      is_same &= buffer[i] == value_byte(plan, number, key, version, i);
    EXPECT(is_same, got.status);
  }
  if (g.rank() == 0) plan.done[number] = 2;
}

// Takes as many tickets as there are request slots, so all of them must be free again.
BOTH inline void take_all(rockmill::kv kv, rockmill::ticket* tickets, uint32_t request_slots, uint8_t* buffer, uint32_t* taken) {
  const rockmill::thread alone;
  const uint64_t start = rockmill::ROCKMILL_TARGET::clock_ns();
  uint32_t n = 0;
  // Answers to abandoned requests arrive once RocksDB has answered.
  while (n < request_slots && rockmill::ROCKMILL_TARGET::clock_ns() - start < 20'000'000'000) {
    tickets[n] = kv.get_latest(alone, buffer, 3, buffer, 0);
    if (tickets[n].status == status::found) ++n;
  }
  for (uint32_t i = 0; i < n; ++i) kv.wait(alone, tickets[i]);
  *taken = n;
}

// RocksDB in rounds with faults: it is late, refuses writes and fails.
struct Faulty {
  rm_store inner;
  std::atomic<bool> has_faults;
  std::atomic<uint64_t> calls{0};

  uint64_t draw() {
    if (!has_faults) return 15;
    const uint64_t drawn = mix(++calls, 77);
    if (drawn % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn >> 8 & 2047));
    return drawn >> 32 & 15;
  }
  static void get(void* state, const rm_bytes* keys, size_t n, rm_tell_value tell, void* context) {
    Faulty& self = *static_cast<Faulty*>(state);
    if (self.draw() == 0) {
      for (size_t i = 0; i < n; ++i) tell(context, i, RM_KV_IO_ERROR, nullptr, 0);
      return;
    }
    self.inner.get(self.inner.state, keys, n, tell, context);
  }
  static int write(void* state, const rm_write* writes, size_t n) {
    Faulty& self = *static_cast<Faulty*>(state);
    const uint64_t drawn = self.draw();
    if (drawn < 2) return drawn == 0 ? RM_KV_BUSY : RM_KV_IO_ERROR;
    return self.inner.write(self.inner.state, writes, n);
  }
};

#if defined(__CUDACC__)
namespace cg = cooperative_groups;

void check_cuda(cudaError_t code, const char* call) {
  check(code == cudaSuccess, std::string(call) + ": " + cudaGetErrorString(code));
}

#define CHECK_CUDA(call) check_cuda(call, #call)

template <int W>
__global__ void run_tiles(rockmill::kv kv, Plan plan) {
  const uint32_t number = (blockIdx.x * blockDim.x + threadIdx.x) / W;
  const auto tile = cg::tiled_partition<W>(cg::this_thread_block());
  if (number < plan.tiles) work(kv, tile, plan, number);
}

__global__ void run_check_all(rockmill::kv kv, Plan plan) {
  const uint32_t number = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
  const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  if (number < plan.tiles) check_all(kv, tile, plan, number);
}

__global__ void run_take_all(rockmill::kv kv, rockmill::ticket* tickets, uint32_t request_slots, uint8_t* buffer,
                             uint32_t* taken) {
  take_all(kv, tickets, request_slots, buffer, taken);
}

// Loaded lazily, each at its first call.
template <int N>
__global__ void other(uint32_t* word) {
  *word += N;
}

// Does what the rest of a program may do while kernels wait: allocates and frees memory, creates streams and graphs,
// loads code.
void disturb(const std::atomic<bool>& is_done) {
  using Kernel = void (*)(uint32_t*);
  const Kernel kernels[] = {other<1>, other<2>, other<3>, other<4>, other<5>, other<6>, other<7>, other<8>};
  static std::atomic<uint32_t> next{0};
  while (!is_done) {
    uint32_t* word = nullptr;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaMalloc(&word, 4 << 20));
    CHECK_CUDA(cudaMemset(word, 0, sizeof *word));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    kernels[next++ % 8]<<<1, 1, 0, stream>>>(word);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(word));
  }
}
#endif

// Memory that tiles use, of the device or of the host.
struct Memory {
  bool is_on_host;
  std::vector<void*> all;

  template <class T>
  T* make(uint64_t n) {
    void* at = nullptr;
#if defined(__CUDACC__)
    if (!is_on_host) CHECK_CUDA(cudaMallocHost(&at, n * sizeof(T)));
#endif
    if (is_on_host) at = std::malloc(n * sizeof(T));
    std::memset(at, 0, n * sizeof(T));
    all.push_back(at);
    return static_cast<T*>(at);
  }
  ~Memory() {
    for (void* at : all) {
#if defined(__CUDACC__)
      if (!is_on_host) cudaFreeHost(at);
#endif
      if (is_on_host) std::free(at);
    }
  }
};

void refresh(rm_view* view) {
  char* error = nullptr;
  rm_view_refresh(view, &error);
  check(error);
}

void run_on_host(const rockmill::kv& kv, const Plan& plan) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < plan.tiles; ++i) {
    threads.emplace_back([&, i] { work(kv, rockmill::thread{}, plan, i); });
  }
  for (std::thread& thread : threads) thread.join();
}

void run_on_device(const rockmill::kv& kv, const Plan& plan, uint32_t width) {
#if defined(__CUDACC__)
  constexpr uint32_t THREADS = 128;
  const uint32_t blocks = uint32_t((uint64_t(plan.tiles) * width + THREADS - 1) / THREADS);
  if (width == 1) run_tiles<1><<<blocks, THREADS>>>(kv, plan);
  if (width == 8) run_tiles<8><<<blocks, THREADS>>>(kv, plan);
  if (width == 32) run_tiles<32><<<blocks, THREADS>>>(kv, plan);
  CHECK_CUDA(cudaGetLastError());
#else
  check(plan.tiles == width, "this program was not compiled by nvcc");
  (void)kv;
#endif
}

// Not the device, because that is not allowed while a stream captures.
void synchronize(bool is_on_host) {
#if defined(__CUDACC__)
  if (!is_on_host) CHECK_CUDA(cudaStreamSynchronize(nullptr));
#endif
  (void)is_on_host;
}

std::string key_of(const Plan& plan, uint32_t tile, uint32_t key) {
  std::string bytes(key_len(plan.seed, tile, key), 0);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(key_byte(plan.seed, tile, key, uint32_t(i)));
  return bytes;
}

std::string value_of(const Plan& plan, uint32_t tile, uint32_t key, uint32_t version) {
  std::string bytes(value_len(plan, tile, key, version), 0);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(value_byte(plan, tile, key, version, uint32_t(i)));
  return bytes;
}

// Half of the keys; those with 'r' are deleted again.
void load(const Database& database, const Plan& plan) {
  char* error = nullptr;
  rocksdb_writebatch_t* batch = rocksdb_writebatch_create();
  for (uint32_t tile = 0; tile < plan.tiles; ++tile) {
    for (uint32_t key = 0; key < KEYS / 2; ++key) {
      const std::string bytes = key_of(plan, tile, key), value = value_of(plan, tile, key, 1);
      rocksdb_writebatch_put(batch, bytes.data(), bytes.size(), value.data(), value.size());
      plan.versions[tile * KEYS + key] = key == 0 ? NONE : 1;
    }
    if (rocksdb_writebatch_count(batch) < 10'000 && tile + 1 < plan.tiles) continue;
    rocksdb_write(database.db, database.write, batch, &error);
    check(error);
    rocksdb_writebatch_clear(batch);
  }
  rocksdb_writebatch_destroy(batch);
  rocksdb_delete_range_cf(database.db, database.write, database.family, "r", 1, "s", 1, &error);
  check(error);
}

void check_database(const Database& database, const Plan& plan) {
  for (uint32_t tile = 0; tile < plan.tiles; ++tile) {
    for (uint32_t key = 0; key < KEYS; ++key) {
      const uint32_t version = plan.versions[tile * KEYS + key];
      if (version == UNKNOWN) continue;
      const std::string bytes = key_of(plan, tile, key);
      char* error = nullptr;
      size_t len = 0;
      char* value = rocksdb_get(database.db, database.read, bytes.data(), bytes.size(), &len, &error);
      check(error);
      const std::string what = "tile " + std::to_string(tile) + ", key " + std::to_string(key) + ": RocksDB has another value";
      check((value == nullptr) == (version == NONE), what);
      if (value != nullptr) check(std::string(value, len) == value_of(plan, tile, key, version), what);
      rocksdb_free(value);
    }
  }
}

// Each tile must have finished this part, unless the view was closed meanwhile.
void check_tiles(const Plan& plan, uint32_t done) {
  for (uint32_t tile = 0; tile < plan.tiles; ++tile) {
    check(plan.failed[tile] == 0, "tile " + std::to_string(tile) + " failed in line " + std::to_string(plan.failed[tile]) +
                                      " with status " + std::to_string(plan.statuses[tile]));
    check(plan.is_closed || plan.done[tile] == done, "a tile did not run");
  }
}

void run_round(const char* device, const std::string& path, std::mt19937_64& random, uint32_t max_tiles, int round) {
  const auto draw = [&](uint64_t n) { return uint32_t(random() % n); };
  const bool is_on_host = std::strcmp(device, "cpu") == 0;
  Memory memory{is_on_host, {}};
  Plan plan{};
  plan.seed = random();
  const uint32_t kind = draw(4), width = is_on_host ? 1 : WIDTHS[draw(3)];
  plan.has_faults = kind == 0;
  plan.is_closed = kind == 1;
  plan.tiles = is_on_host ? 2 + draw(30) : 1 + draw(max_tiles);
  plan.steps = is_on_host ? 400 : plan.has_faults ? 6 : 16;
  plan.max_value = draw(2) == 0 ? 200 : 3000;
  plan.versions = memory.make<uint32_t>(uint64_t(plan.tiles) * KEYS);
  plan.failed = memory.make<uint32_t>(plan.tiles);
  plan.statuses = memory.make<uint32_t>(plan.tiles);
  plan.done = memory.make<uint32_t>(plan.tiles);
  plan.room = memory.make<uint8_t>(room_of(plan.max_value) * plan.tiles);
  Database database(path);
  load(database, plan);
  const rm_store inner = rm_store_of_rocksdb(&database.of);
  Faulty faulty{inner, plan.has_faults};
  rm_store store = inner;
  store.state = &faulty;
  store.get = Faulty::get;
  store.write = Faulty::write;
  rm_view_options options{};
  options.struct_size = sizeof options;
  options.path = path.c_str();
  options.device = device;
  options.store = &store;
  options.memory_bytes = uint64_t(1) << 30;
  options.threads = 1 + draw(4);
  options.request_slots = 16u << draw(9);
  options.request_slot_bytes = 64u << draw(7);
  // With faults, some answers are late.
  options.timeout_ms = plan.has_faults && draw(2) == 0 ? 1 : 120'000;
  if (options.timeout_ms == 1 && !is_on_host) options.timeout_ms = 20;
  std::printf("round %d: %u tiles of %u, %u request slots of %u bytes, %u threads%s%s ", round, plan.tiles, width,
              options.request_slots, options.request_slot_bytes, options.threads, plan.has_faults ? ", faults" : "",
              plan.is_closed ? ", closed" : "");
  std::fflush(stdout);
  rm_view* view = open_view(options);
  const auto start = std::chrono::steady_clock::now();
  std::thread closer;
  std::atomic<bool> is_done{false};
#if defined(__CUDACC__)
  std::thread disturber;
  if (!is_on_host && draw(2) == 0) disturber = std::thread(disturb, std::cref(is_done));
#endif
  {
    rockmill::hold hold(view);
    if (!is_on_host) run_on_device(hold.kv(), plan, width);
    if (plan.is_closed) {
      const auto pause = std::chrono::milliseconds(draw(30));
      closer = std::thread([view, pause] {
        std::this_thread::sleep_for(pause);
        close_view(view);
      });
    }
    std::thread refresher;
    if (!plan.is_closed && draw(2) == 0) {
      refresher = std::thread([&] {
        while (!is_done) refresh(view);
      });
    }
    if (is_on_host) run_on_host(hold.kv(), plan);
    if (!plan.is_closed) {
      auto* tickets = memory.make<rockmill::ticket>(options.request_slots);
      auto* taken = memory.make<uint32_t>(1);
      if (is_on_host) take_all(hold.kv(), tickets, options.request_slots, plan.room, taken);
#if defined(__CUDACC__)
      else run_take_all<<<1, 1>>>(hold.kv(), tickets, options.request_slots, plan.room, taken);
#endif
      synchronize(is_on_host);
      check(*taken == options.request_slots, "only " + std::to_string(*taken) + " request slots came back");
    }
    synchronize(is_on_host);
    is_done = true;
    if (refresher.joinable()) refresher.join();
  }
#if defined(__CUDACC__)
  if (disturber.joinable()) disturber.join();
#endif
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  check_tiles(plan, 1);
  if (plan.is_closed) {
    closer.join();
  } else {
    faulty.has_faults = false;
    // The view has no hold once the stream is done, so the table has all puts.
    synchronize(is_on_host);
    refresh(view);
    {
      rockmill::hold hold(view);
      if (is_on_host) {
        for (uint32_t tile = 0; tile < plan.tiles; ++tile) check_all(hold.kv(), rockmill::thread{}, plan, tile);
      }
#if defined(__CUDACC__)
      else run_check_all<<<(plan.tiles + 15) / 16, 128>>>(hold.kv(), plan);
#endif
    }
    synchronize(is_on_host);
    check_tiles(plan, 2);
    char* stats = rm_view_stats_json(view, nullptr);
    check(stats != nullptr, "no stats");
    rm_free(stats);
    check_database(database, plan);
    close_view(view);
  }
  std::printf("%.2f s\n", took.count());
}

int main(int argc, char** argv) {
  check(argc == 5 || argc == 6, "usage: stress DEVICE FOLDER SECONDS SEED [TILES]");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[3]));
  std::mt19937_64 random(std::strtoull(argv[4], nullptr, 10));
  const uint32_t max_tiles = argc == 6 ? std::atoi(argv[5]) : 24'000;
  for (int round = 0; round < 4 || std::chrono::steady_clock::now() < end; ++round) {
    const std::string path = std::string(argv[2]) + "/" + std::to_string(round);
    run_round(argv[1], path, random, max_tiles, round);
    rocksdb_options_t* options = rocksdb_options_create();
    char* error = nullptr;
    rocksdb_destroy_db(options, path.c_str(), &error);
    check(error);
    rocksdb_options_destroy(options);
  }
  std::printf("done\n");
}
