// Threads that work on one item together. Code with a Group runs on a warp of the device or a part of one and, with
// width 1, on the host: `for (i = g.rank(); i < n; i += g.width)` covers all of n on both.
#pragma once

#include "types.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The one thread of the host, or a single thread of the device.
struct SingleThread {
  static constexpr u32 width = 1;
  ROCKMILL_HD u32 rank() const { return 0; }
  ROCKMILL_HD void sync() const {}
  ROCKMILL_HD u32 sum(u32 value) const { return value; }
  // Sum over the lower ranks.
  ROCKMILL_HD u32 sum_below(u32) const { return 0; }
  ROCKMILL_HD u64 sum64(u64 value) const { return value; }
  ROCKMILL_HD u64 sum64_below(u64) const { return 0; }
  ROCKMILL_HD u32 reduce_xor(u32 value) const { return value; }
  ROCKMILL_HD u32 max(u32 value) const { return value; }
  // One bit per rank.
  ROCKMILL_HD u32 ballot(bool value) const { return value; }
  ROCKMILL_HD bool any(bool value) const { return value; }
  ROCKMILL_HD bool all(bool value) const { return value; }
  // One bit per rank that has the same value.
  ROCKMILL_HD u32 peers(u32) const { return 1; }
  // The value of rank `from`, which is the same for all ranks.
  template <class T>
  ROCKMILL_HD T shuffle(T value, u32) const {
    return value;
  }
};

#if defined(__CUDACC__)
// All 32 lanes of a warp, which call together.
struct Warp {
  static constexpr u32 width = 32;
  static constexpr u32 mask = 0xffffffff;
  __device__ __forceinline__ u32 rank() const { return threadIdx.x % width; }
  __device__ __forceinline__ void sync() const { __syncwarp(mask); }
  __device__ __forceinline__ u32 sum(u32 value) const { return __reduce_add_sync(mask, value); }
  __device__ __forceinline__ u32 sum_below(u32 value) const { return prefix_sum(value) - value; }
  __device__ __forceinline__ u64 sum64(u64 value) const {
    return __shfl_sync(mask, prefix_sum(value), width - 1);
  }
  __device__ __forceinline__ u64 sum64_below(u64 value) const { return prefix_sum(value) - value; }
  __device__ __forceinline__ u32 reduce_xor(u32 value) const { return __reduce_xor_sync(mask, value); }
  __device__ __forceinline__ u32 max(u32 value) const { return __reduce_max_sync(mask, value); }
  // Sum up to and with this rank.
  template <class T>
  __device__ __forceinline__ T prefix_sum(T value) const {
    for (u32 step = 1; step < width; step *= 2) {
      const T below = __shfl_up_sync(mask, value, step);
      if (rank() >= step) value += below;
    }
    return value;
  }
  __device__ __forceinline__ u64 shuffle_xor(u64 value, u32 lanes) const {
    return __shfl_xor_sync(mask, value, lanes);
  }
  __device__ __forceinline__ u32 ballot(bool value) const { return __ballot_sync(mask, value); }
  __device__ __forceinline__ bool any(bool value) const { return __any_sync(mask, value); }
  __device__ __forceinline__ bool all(bool value) const { return __all_sync(mask, value); }
  __device__ __forceinline__ u32 peers(u32 value) const { return __match_any_sync(mask, value); }
  template <class T>
  __device__ __forceinline__ T shuffle(T value, u32 from) const {
    return __shfl_sync(mask, value, from);
  }
};

// W adjacent lanes of a warp, which call together. The tiles of a warp are independent.
template <u32 W>
struct Tile {
  static_assert(W >= 2 && W <= 16 && (W & (W - 1)) == 0);
  static constexpr u32 width = W;
  __device__ __forceinline__ u32 rank() const { return threadIdx.x % W; }
  __device__ __forceinline__ void sync() const { __syncwarp(mask()); }
  __device__ __forceinline__ u32 ballot(bool value) const {
    return (__ballot_sync(mask(), value) >> first_lane()) & LANES;
  }
  __device__ __forceinline__ bool any(bool value) const { return __any_sync(mask(), value); }
  __device__ __forceinline__ bool all(bool value) const { return __all_sync(mask(), value); }
  __device__ __forceinline__ u32 peers(u32 value) const {
    return (__match_any_sync(mask(), value) >> first_lane()) & LANES;
  }
  template <class T>
  __device__ __forceinline__ T shuffle(T value, u32 from) const {
    return __shfl_sync(mask(), value, from, W);
  }

 private:
  static constexpr u32 LANES = (1u << W) - 1;
  __device__ __forceinline__ u32 first_lane() const { return threadIdx.x % Warp::width / W * W; }
  __device__ __forceinline__ u32 mask() const { return LANES << first_lane(); }
};
#endif

}  // namespace rockmill::ROCKMILL_TARGET
