// The benchmark's kernels for GPUs.
#include "table.hpp"

extern "C" const void* rockmill_bench_cuda() {
  static const rockmill::cuda_target::bench::Table table = rockmill::cuda_target::bench::make();
  return &table;
}
