/* Gets, puts and deletes in GPU kernels on a view of a RocksDB database.
 *
 *   __global__ void rank(rockmill::kv kv, ...) {
 *     auto tile = cooperative_groups::tiled_partition<8>(cooperative_groups::this_thread_block());
 *     auto found = kv.find(tile, key, key_len);                     // the value in place
 *     auto got = kv.get(tile, key, key_len, buffer, capacity);      // the value copied
 *     auto ticket = kv.put(tile, key, key_len, value, value_len);   // also del and get_latest
 *     auto written = kv.wait(tile, ticket);
 *   }
 *   {
 *     rockmill::hold hold(view, stream);                            // view: rm_view_open of rockmill.h
 *     rank<<<blocks, threads, 0, stream>>>(hold.kv(), ...);
 *   }                                                               // ends in stream order, waits for nothing
 *
 * All lanes of a tile call together, with the same arguments; a tile has 1 to 32 lanes, all active. Pointers are to
 * memory that the kernel can access. Compile for sm_80 or newer with C++17: nvcc, clang, or NVRTC, which compiles only
 * the part for kernels. With g++, rockmill::thread replaces a tile, on a view with device "cpu". */
#ifndef ROCKMILL_GPUKV_CUH
#define ROCKMILL_GPUKV_CUH

#include "ring/kv.hpp"

#if !defined(__CUDACC_RTC__)
#include <stdexcept>
#include <string>

#include "../rockmill.h"
#endif

namespace rockmill {

/* Status of a value, of a result, or of a ticket before it is waited for. */
struct status {
  using code = ROCKMILL_TARGET::KeyStatus;
  static constexpr code not_found = ROCKMILL_TARGET::KEY_NOT_FOUND;
  static constexpr code found = ROCKMILL_TARGET::KEY_FOUND;
  /* find: RocksDB must be asked, as get does. get: there is no host to ask for the value. */
  static constexpr code ask = ROCKMILL_TARGET::KEY_NEEDS_HOST;
  static constexpr code too_small = ROCKMILL_TARGET::KEY_TOO_SMALL;
  static constexpr code written = ROCKMILL_TARGET::KEY_WRITTEN;
  /* Nothing was done: wait for a ticket first, or RocksDB stalls writes. */
  static constexpr code busy = ROCKMILL_TARGET::KEY_BUSY;
  static constexpr code read_only = ROCKMILL_TARGET::KEY_READ_ONLY;
  /* A write may have happened, or may happen later. */
  static constexpr code aborted = ROCKMILL_TARGET::KEY_ABORTED;
  static constexpr code timed_out = ROCKMILL_TARGET::KEY_TIMED_OUT;
  static constexpr code io_error = ROCKMILL_TARGET::KEY_IO_ERROR;
  static constexpr code corrupt = ROCKMILL_TARGET::KEY_CORRUPT;
};

/* status, len, data: valid as long as the hold. */
using value = ROCKMILL_TARGET::FoundValue;
/* status, len: of the value, also if there is too little room for it. */
using result = ROCKMILL_TARGET::RingResult;
/* A pending request. */
using ticket = ROCKMILL_TARGET::KvTicket;
/* A tile of one thread, also of the host. */
using thread = ROCKMILL_TARGET::SingleThread;

namespace ROCKMILL_TARGET {

ROCKMILL_HD SingleThread group_of(const SingleThread& alone) { return alone; }

#if defined(__CUDACC__)
/* Number of lanes of a tile of cooperative groups. For a constant, clang calls no function of the device. */
template <class T>
struct TileWidth;
template <template <unsigned, class> class Tile, unsigned W, class Parent>
struct TileWidth<Tile<W, Parent>> {
  static constexpr u32 value = W;
};

/* A tile of cooperative groups, in the form of the library's groups. */
template <class T>
struct CallerTile {
  static constexpr u32 width = TileWidth<T>::value;
  static_assert(width <= 32, "a tile has at most 32 lanes");
  const T& tile;

  __device__ u32 rank() const { return tile.thread_rank(); }
  __device__ void sync() const { tile.sync(); }
  __device__ u32 ballot(bool value) const { return tile.ballot(value); }
  __device__ bool any(bool value) const { return tile.any(value); }
  __device__ bool all(bool value) const { return tile.all(value); }
  template <class V>
  __device__ V shuffle(V value, u32 from) const {
    return tile.shfl(value, from);
  }
};

template <class T>
__device__ CallerTile<T> group_of(const T& tile) {
  return {tile};
}
#endif

}  // namespace ROCKMILL_TARGET

/* The parameter of a kernel, passed by value. */
class kv : public ROCKMILL_TARGET::Kv {
  using bytes = const ROCKMILL_TARGET::u8*;
  using u32 = ROCKMILL_TARGET::u32;

 public:
  /* The value in place. A value that is not in the view's memory has status::ask. */
  template <class Tile>
  ROCKMILL_HD value find(const Tile& tile, const void* key, u32 key_len) const {
    return find_in(ROCKMILL_TARGET::group_of(tile), static_cast<bytes>(key), key_len);
  }

  /* Copies the value of the held version. For keys that this view has put or deleted since, it copies the current
   * value. For keys for which find has status::ask, rm_store.get gives the current value. */
  template <class Tile>
  ROCKMILL_HD result get(const Tile& tile, const void* key, u32 key_len, void* buffer, u32 capacity) const {
    return get_in(ROCKMILL_TARGET::group_of(tile), static_cast<bytes>(key), key_len,
                  static_cast<ROCKMILL_TARGET::u8*>(buffer), capacity);
  }

  /* The current value in RocksDB. It is in the buffer once it was waited for. */
  template <class Tile>
  ROCKMILL_HD ticket get_latest(const Tile& tile, const void* key, u32 key_len, void* buffer, u32 capacity) {
    return get_latest_in(ROCKMILL_TARGET::group_of(tile), static_cast<bytes>(key), key_len,
                         static_cast<ROCKMILL_TARGET::u8*>(buffer), capacity);
  }

  /* Key and value may change once this returns. */
  template <class Tile>
  ROCKMILL_HD ticket put(const Tile& tile, const void* key, u32 key_len, const void* value, u32 value_len) {
    return put_in(ROCKMILL_TARGET::group_of(tile), static_cast<bytes>(key), key_len, static_cast<bytes>(value),
                  value_len);
  }

  template <class Tile>
  ROCKMILL_HD ticket del(const Tile& tile, const void* key, u32 key_len) {
    return del_in(ROCKMILL_TARGET::group_of(tile), static_cast<bytes>(key), key_len);
  }

  /* Each ticket is waited for once, by the tile that has it. */
  template <class Tile>
  ROCKMILL_HD result wait(const Tile& tile, const ticket& of) {
    return wait_in(ROCKMILL_TARGET::group_of(tile), of);
  }
};

static_assert(sizeof(kv) == sizeof(ROCKMILL_TARGET::KvRecord), "the host passes a record where kernels take this");

#if !defined(__CUDACC_RTC__)
/* Holds the current version of a view for kernels of a stream. */
class hold {
 public:
  /* Throws std::runtime_error if the view is closed, or if header and library have different versions. */
  explicit hold(rm_view* view, void* stream = nullptr) : view_(view) {
    ROCKMILL_TARGET::KvRecord record{};
    char* error = nullptr;
    if (rm_view_hold(view, stream, &record, sizeof record, ROCKMILL_TARGET::KV_ABI, &number_, &error) != RM_SUCCESS) {
      const std::string what = error == nullptr ? "the view cannot be held" : error;
      rm_free(error);
      throw std::runtime_error(what);
    }
    static_cast<ROCKMILL_TARGET::KvRecord&>(kv_) = record;
  }
  ~hold() { rm_view_release(view_, number_, nullptr); }
  hold(const hold&) = delete;
  hold& operator=(const hold&) = delete;

  /* For kernels that are queued before this hold ends. */
  const rockmill::kv& kv() const { return kv_; }

 private:
  rm_view* view_;
  uint64_t number_ = 0;
  rockmill::kv kv_;
};
#endif

}  // namespace rockmill

#endif
