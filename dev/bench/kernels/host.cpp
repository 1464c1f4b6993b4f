// The benchmark's kernels for the host.
#include "table.hpp"

extern "C" const void* rockmill_bench_host() {
  static const rockmill::host_target::bench::Table table = rockmill::host_target::bench::make();
  return &table;
}
