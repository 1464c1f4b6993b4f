// A kernel reads items of a RocksDB database and puts a score for each of them. The arguments are the folder of a new
// database and the device: cuda:0, or cpu, with threads of the host in place of the kernel.
#include <cooperative_groups.h>
#include <rockmill/gpukv.cuh>
#include <rockmill/gpukv_rocksdb_c.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace cg = cooperative_groups;

constexpr unsigned kItems = 20000, kKeyBytes = 16, kLanes = 8;

struct Item {
  float clicks, views;
};

// "item/" or "score" and the number of the item.
__host__ __device__ void write_key(char* key, char first, unsigned item) {
  const char* name = first == 'i' ? "item/" : "score";
  for (unsigned i = 0; i < 5; ++i) key[i] = name[i];
  for (unsigned i = kKeyBytes - 1; i >= 5; --i, item /= 10) key[i] = char('0' + item % 10);
}

// All lanes of a tile call this for the same item. Each has its own copy of the bytes of keys and values; a buffer of
// get would have to be in memory that all lanes can access.
template <class Tile>
__host__ __device__ bool rank_item(rockmill::kv& kv, const Tile& tile, unsigned item) {
  char key[kKeyBytes];
  write_key(key, 'i', item);
  const rockmill::value found = kv.find(tile, key, kKeyBytes);
  if (found.status != rockmill::status::found || found.len != sizeof(Item)) return false;
  const Item* counts = reinterpret_cast<const Item*>(found.data);
  const float score = counts->clicks / counts->views;
  write_key(key, 's', item);
  const rockmill::ticket put = kv.put(tile, key, kKeyBytes, &score, sizeof score);
  return kv.wait(tile, put).status == rockmill::status::written;
}

__global__ void rank(rockmill::kv kv, unsigned* ranked) {
  const auto tile = cg::tiled_partition<kLanes>(cg::this_thread_block());
  const unsigned tiles = gridDim.x * blockDim.x / kLanes;
  for (unsigned item = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes; item < kItems; item += tiles) {
    const bool is_ranked = rank_item(kv, tile, item);
    if (is_ranked && tile.thread_rank() == 0) atomicAdd(ranked, 1u);
  }
}


void check(bool is_true, const char* what) {
  if (is_true) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

void check(char* error) { check(error == nullptr, error); }

void check(cudaError_t code) { check(code == cudaSuccess, cudaGetErrorString(code)); }

unsigned rank_on_host(rockmill::kv kv) {
  unsigned ranked = 0;
  for (unsigned item = 0; item < kItems; ++item) ranked += rank_item(kv, rockmill::thread{}, item);
  return ranked;
}

unsigned rank_on_device(rm_view* view) {
  unsigned* ranked = nullptr;
  check(cudaMallocHost(&ranked, sizeof *ranked));
  *ranked = 0;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  {
    rockmill::hold hold(view, stream);
    rank<<<264, 256, 0, stream>>>(hold.kv(), ranked);
    check(cudaGetLastError());
  }
  check(cudaStreamSynchronize(stream));
  check(cudaStreamDestroy(stream));
  const unsigned result = *ranked;
  check(cudaFreeHost(ranked));
  return result;
}

int main(int count, char** arguments) {
  check(count == 3, "usage: rank FOLDER cuda:0|cpu");
  const std::string path = arguments[1], device = arguments[2];
  char* error = nullptr;
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_t* db = rocksdb_open(options, path.c_str(), &error);
  check(error);
  rocksdb_readoptions_t* read_options = rocksdb_readoptions_create();
  rocksdb_writeoptions_t* write_options = rocksdb_writeoptions_create();
  char key[kKeyBytes];
  for (unsigned item = 0; item < kItems; ++item) {
    const Item counts{float(item % 100), 100};
    write_key(key, 'i', item);
    rocksdb_put(db, write_options, key, kKeyBytes, reinterpret_cast<const char*>(&counts), sizeof counts, &error);
    check(error);
  }

  rm_rocksdb_store of{db, rocksdb_get_default_column_family_handle(db), read_options, write_options};
  const rm_store store = rm_store_of_rocksdb(&of);
  rm_view_options view_options{};
  view_options.struct_size = sizeof view_options;
  view_options.path = path.c_str();
  view_options.device = device.c_str();
  view_options.store = &store;
  rm_view* view = rm_view_open(&view_options, &error);
  check(error);
  unsigned ranked = 0;
  if (device == "cpu") {
    rockmill::hold hold(view);
    ranked = rank_on_host(hold.kv());
  } else {
    ranked = rank_on_device(view);
  }
  rm_view_close(view, &error);
  check(error);

  unsigned right = 0;
  for (unsigned item = 0; item < kItems; ++item) {
    size_t len = 0;
    write_key(key, 's', item);
    char* score = rocksdb_get(db, read_options, key, kKeyBytes, &len, &error);
    check(error);
    right += score != nullptr && len == sizeof(float) && *reinterpret_cast<const float*>(score) == float(item % 100) / 100;
    rocksdb_free(score);
  }
  std::printf("%u items were ranked, %u scores are in RocksDB\n", ranked, right);
  rocksdb_column_family_handle_destroy(of.family);
  rocksdb_writeoptions_destroy(write_options);
  rocksdb_readoptions_destroy(read_options);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  return right == kItems ? 0 : 1;
}
