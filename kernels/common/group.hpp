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
};

#if defined(__CUDACC__)
// All 32 lanes of a warp, which enter together.
struct Warp {
  static constexpr u32 width = 32;
  static constexpr u32 all = 0xffffffff;
  __device__ __forceinline__ u32 rank() const { return threadIdx.x % width; }
  __device__ __forceinline__ void sync() const { __syncwarp(all); }
  __device__ __forceinline__ u32 sum(u32 value) const { return __reduce_add_sync(all, value); }
  __device__ __forceinline__ u32 sum_below(u32 value) const {
    u32 total = value;
    for (u32 step = 1; step < width; step *= 2) {
      u32 below = __shfl_up_sync(all, total, step);
      if (rank() >= step) total += below;
    }
    return total - value;
  }
  __device__ __forceinline__ u64 shuffle_xor(u64 value, u32 mask) const {
    return __shfl_xor_sync(all, value, mask);
  }
};
#endif

}  // namespace rockmill::ROCKMILL_TARGET
