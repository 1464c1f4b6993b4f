#!/usr/bin/env bash
# Runs the tests of the GPU's kernels on the host, compiled with AddressSanitizer and UndefinedBehaviorSanitizer: the
# same cases as everywhere, PROPTEST_CASES of each property, and the recorded jobs. The kernels' buffers are known to
# the sanitizer one by one. Further arguments go to cargo test.
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
export ROCKMILL_KERNELS_SANITIZE=1 NVCC=none
# With a target named, build scripts and macros are built without them.
export RUSTFLAGS="-Clink-arg=-lasan -Clink-arg=-lubsan ${RUSTFLAGS-}"
export ASAN_OPTIONS=${ASAN_OPTIONS-detect_leaks=0:allocator_may_return_null=1}
# The sanitizer's library must come before all others, and rustc has its own order.
runner=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER
export "$runner=env LD_PRELOAD=$(cc -print-file-name=libasan.so)"
run() { cargo test --locked --release --target "$host" "$@"; }
# Watched, ten thousand blocks of each kind would take minutes.
ROCKMILL_CASES=${ROCKMILL_CASES-1000} run -p rockmill-codec "$@"
run -p rockmill-cuda "$@"
run -p rockmill-compaction --test gpu_tests "$@"
