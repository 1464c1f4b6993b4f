#!/usr/bin/env bash
# The measurements behind docs/design/gpu-spike.md: bench/gpu-spike.sh OUT [ROCKMILL]
#
# OUT is a folder for the JSON, ROCKMILL the release build of the command. Databases go to MEMORY_DIR
# (some 40 GB, /dev/shm) and DISK_DIR (some 10 GB, ext4). Takes about eight minutes on 16 cores.
set -euo pipefail

out=$1
rockmill=${2:-target/release/rockmill}
memory=${MEMORY_DIR:-/dev/shm}
disk=${DISK_DIR:-/tmp}
mkdir -p "$out"
compaction() { "$rockmill" bench compaction --repeat 3 --memory-mib 16384 --json "$@"; }

# Systems side by side, results compared entry by entry.
compaction --workload 16x256:none:40M --threads 16 --device cpu,cuda --dir "$memory" >"$out/tmpfs-16x256.json"
compaction --workload 8x32:none:48M --threads 16 --device cpu,cuda --dir "$memory" >"$out/tmpfs-8x32.json"
compaction --workload 16x256:none:8M --threads 16 --device cpu,cuda --dir "$disk" >"$out/ext4-16x256.json"
# Slices of 64 MB, 256 MB and 1 GB of input are two files of 32, 128 and 512 MiB.
for workload in 16x256:none:40M 8x32:none:48M; do
    compaction --workload "$workload" --rocksdb no --device cuda --threads 1,2,8 \
        --target-file-mib 32,128,512 --dir "$memory" >"$out/slices-${workload%%:*}.json"
done
compaction --workload 16x256:none:40M --rocksdb no --device cuda --threads 2,16 --gpu-input mapped \
    --dir "$memory" >"$out/mapped-16x256.json"
# Input alone.
"$rockmill" bench input --dir "$memory" --threads 1,4,8,16 --map-mib 8,32,128,512 --json >"$out/input-tmpfs.json"
"$rockmill" bench input --dir "$disk" --threads 1,4,8,16 --map-mib 32,512 --cold --json >"$out/input-ext4.json"
