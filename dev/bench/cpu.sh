#!/usr/bin/env bash
# RocksDB against Rockmill on the CPU: one thread, then as many as there are, on DIR, JSON into OUT.
#
#   dev/bench/cpu.sh OUT [DIR [ROCKMILL_BENCH]]      some ten minutes; /dev/shm is the default for DIR
#
# Workloads are 16 B/256 B and 8 B/32 B without compression, and 16 B/256 B with LZ4 and ZSTD; four versions
# a key and one; eight input files and forty; to the bottommost level and, with a tenth of Deletes, above older
# entries. The page cache is warm, since the input was just written.
set -euo pipefail

out=$1
dir=${2:-/dev/shm}
rockmill_bench=${3:-${CARGO_TARGET_DIR:-target/make}/release/rockmill-bench}
cores=$(nproc)
all=(--workload 16x256:none:4M --workload 8x32:none:8M --workload 16x256:lz4:1M --workload 16x256:zstd:1M)
mkdir -p "$out"

bench() {
    local name=$1
    shift
    echo "== $name"
    "$rockmill_bench" compaction --dir "$dir" --json "$@" >"$out/$name.json"
}

for runs in 8 40; do
    for versions in 4 1; do
        bench "one-thread-$versions-versions-$runs-runs" "${all[@]}" \
            --versions "$versions" --runs "$runs" --threads 1 --repeat 3
        bench "one-thread-$versions-versions-$runs-runs-not-bottommost" "${all[@]}" \
            --versions "$versions" --runs "$runs" --not-bottommost --delete-every 10 --threads 1 --repeat 3
    done
done
threads=1
while [ "$threads" -lt "$cores" ]; do
    bench "threads-$threads" --workload 16x256:none:8M --workload 8x32:none:16M \
        --threads "$threads" --repeat 3 --no-compare
    threads=$((2 * threads))
done
bench "threads-$cores" --workload 16x256:none:8M --workload 8x32:none:16M \
    --threads "$cores" --repeat 3 --profile
