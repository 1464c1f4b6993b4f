// Copies within the memory of the kernels.
#pragma once

#include "exec.hpp"

namespace rockmill::ROCKMILL_TARGET {

inline int copy_inside(const Exec& exec, void* to, const void* from, u64 bytes) {
#if defined(__CUDACC__)
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(exec));
#else
  (void)exec;
  std::memmove(to, from, bytes);
  return 0;
#endif
}

}  // namespace rockmill::ROCKMILL_TARGET
