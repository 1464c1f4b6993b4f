#!/usr/bin/env bash
# Builds what is to be run on a GPU into a folder that needs neither cargo nor network:
#   scripts/gpu-bundle.sh FOLDER      then, on a machine with a GPU: FOLDER/run.sh
#
# In it are the commands, the device tests with the recorded jobs, those of XXH3 and the program
# that kills itself (tests/src/crash), stripped, and bench/gpu/run.sh. The machine needs the C and C++ libraries of this
# one, or newer. ROCKMILL_CUDA_ARCH=90 makes it smaller.
set -euo pipefail
folder=$(realpath -m "${1:?usage: scripts/gpu-bundle.sh FOLDER}")
cd "$(dirname "$0")/.."

messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
build() { cargo "$@" --locked --message-format=json-render-diagnostics >>"$messages"; }
build build --release -p rockmill-cli -p rockmill-bench
build test --release --no-run -p rockmill-compaction --test gpu_tests
build test --release --no-run -p rockmill-cuda --lib
build test --release --no-run -p rockmill-xxh3 --test xxh3
build build --release -p rockmill-tests --bin crash
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
# It is the largest of all, and only one section needs it.
gzip -9 "$folder/bin/crash"
cp bench/gpu/run.sh "$folder/run.sh"
git describe --always --dirty >"$folder/commit" 2>/dev/null || echo unknown >"$folder/commit"
du -sh "$folder" | cut -f 1
