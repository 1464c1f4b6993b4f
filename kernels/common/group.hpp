// Threads that work on one thing together. Code that takes a Group runs on a warp of the device
// and, with width 1, on the host: `for (i = g.rank(); i < n; i += g.width)` covers all of n on both.
#pragma once

#include "types.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The one thread of the host, or one thread of the device on its own.
struct Alone {
  static constexpr u32 width = 1;
  ROCKMILL_HD u32 rank() const { return 0; }
  ROCKMILL_HD void sync() const {}
  ROCKMILL_HD u32 sum(u32 value) const { return value; }
  // Sum over the lower ranks.
  ROCKMILL_HD u32 sum_below(u32) const { return 0; }
  ROCKMILL_HD u64 sum64(u64 value) const { return value; }
  ROCKMILL_HD u64 sum64_below(u64) const { return 0; }
  ROCKMILL_HD u32 reduce_xor(u32 value) const { return value; }
};

#if defined(__CUDACC__)
// All 32 lanes of a warp, which enter together.
struct Warp {
  static constexpr u32 width = 32;
  static constexpr u32 all = 0xffffffff;
  __device__ __forceinline__ u32 rank() const { return threadIdx.x % width; }
  __device__ __forceinline__ void sync() const { __syncwarp(all); }
  __device__ __forceinline__ u32 sum(u32 value) const { return __reduce_add_sync(all, value); }
  __device__ __forceinline__ u32 sum_below(u32 value) const { return prefix_sum(value) - value; }
  __device__ __forceinline__ u64 sum64(u64 value) const {
    return __shfl_sync(all, prefix_sum(value), width - 1);
  }
  __device__ __forceinline__ u64 sum64_below(u64 value) const { return prefix_sum(value) - value; }
  __device__ __forceinline__ u32 reduce_xor(u32 value) const { return __reduce_xor_sync(all, value); }
  // Sum up to and with this rank.
  template <class T>
  __device__ __forceinline__ T prefix_sum(T value) const {
    for (u32 step = 1; step < width; step *= 2) {
      const T below = __shfl_up_sync(all, value, step);
      if (rank() >= step) value += below;
    }
    return value;
  }
  __device__ __forceinline__ u64 shuffle_xor(u64 value, u32 mask) const {
    return __shfl_xor_sync(all, value, mask);
  }
};
#endif

}  // namespace rockmill::ROCKMILL_TARGET
