#!/usr/bin/env bash
# Builds what is to be run on a GPU into a folder that needs neither cargo nor network:
#   scripts/gpu-bundle.sh [--for PURPOSE] FOLDER      then, on a machine with a GPU: FOLDER/run.sh
#
#   compaction   the commands, the device tests, those of XXH3, and the program of the kill tests; the default
#   scan         rockmill-bench with its subcommand scan, and the device tests
#   view         rockmill-bench with its subcommand gpukv
#   sql          tests of SQL that scan on the GPU
#   share        the test in which compactions, SQL and views share the GPU
#
# The programs are stripped, and compressed until run.sh is first called. A bundle has at most 45 MiB, and
# ROCKMILL_CUDA_ARCH=90 makes it smaller. The machine needs the C and C++ libraries of this one, or newer.
set -euo pipefail
usage='usage: scripts/gpu-bundle.sh [--for PURPOSE] FOLDER'
max_mib=45

# What each purpose builds.
for_compaction() {
    # Without SQL, which needs no GPU to be tested and takes as much room as everything else.
    build build -p rockmill-cli --no-default-features --features cuda
    build build -p rockmill-bench --no-default-features --features cuda
    build build -p rockmill-tests --bin crash
    build test --no-run -p rockmill-compaction --test gpu_tests
    # Unit tests, some of which run on the device as well.
    build test --no-run -p rockmill-cuda --lib
    build test --no-run -p rockmill-codec --test xxh3
}

for_scan() {
    build build -p rockmill-cli --no-default-features --features cuda
    build build --workspace --bin rockmill-bench
    build test --no-run -p rockmill-compaction --test gpu_tests
}

for_view() {
    build build -p rockmill-cli --no-default-features --features cuda
    build build -p rockmill-bench --no-default-features --features cuda
}

for_sql() {
    build build -p rockmill-cli --no-default-features --features cuda
    build test --no-run --workspace --test answers
}

for_share() {
    build build -p rockmill-cli --no-default-features --features cuda
    build test --no-run --workspace --test one_card
}

purpose=compaction
if [ "${1-}" = --for ]; then
    purpose=${2:?$usage}
    shift 2
fi
folder=$(realpath -m "${1:?$usage}")
if ! declare -F "for_$purpose" >/dev/null; then
    known=$(declare -F | sed -n 's/^declare -f for_//p' | paste -sd ' ')
    echo "gpu-bundle: there is no bundle for $purpose; there is one for: $known" >&2
    exit 2
fi
cd "$(dirname "$0")/.."

messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
build() { cargo "$@" --release --locked --message-format=json-render-diagnostics >>"$messages"; }
"for_$purpose"
grep -q '"cfgs":\[[^]]*"has_cuda"' "$messages" || {
    echo "gpu-bundle: the build has no GPU backend; see the warning above" >&2
    exit 1
}

rm -rf "$folder"
mkdir -p "$folder/bin"
# Of what cargo says it has made, the executables, each under the name of its target.
sed -n 's/.*"target":{[^}]*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2/p' "$messages" |
    while read -r name path; do
        strip -o "$folder/bin/$name" "$path"
    done
xz -T0 "$folder"/bin/*
cp dev/bench/gpu/run.sh "$folder/run.sh"
git describe --always --dirty >"$folder/commit" 2>/dev/null || echo unknown >"$folder/commit"
mib=$(du -sm "$folder" | cut -f 1)
if [ "$mib" -gt $max_mib ]; then
    echo "gpu-bundle: $folder has $mib MiB, but a bundle may have at most $max_mib MiB" >&2
    exit 1
fi
echo "$mib MiB"
