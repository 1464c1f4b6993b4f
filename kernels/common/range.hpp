// Names a part of the work in NVIDIA's profilers (NVTX), where the toolkit has the header for it. A range lasts while
// the host queues the work; Nsight Systems shows it over the kernels too.
#pragma once

#include "types.hpp"

#if defined(__CUDACC__) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ROCKMILL_NVTX 1
#endif

namespace rockmill::ROCKMILL_TARGET {

struct Range {
#if defined(ROCKMILL_NVTX)
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
#else
  explicit Range(const char*) {}
#endif
};

}  // namespace rockmill::ROCKMILL_TARGET
