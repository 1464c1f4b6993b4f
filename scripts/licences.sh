#!/usr/bin/env bash
# Prints the licences of the code by others inside of a shipped file:
#   scripts/licences.sh SHIPPED CRATE LIBRARY [FILE..]
# If LIBRARY has a GPU backend, NVIDIA's runtime and templates are inside. scripts/licences.py describes the others.
set -euo pipefail
shipped=$1 crate=$2 library=$(realpath -m "$3")
files=()
for file in "${@:4}"; do files+=("$(realpath "$file")"); done
cd "$(dirname "$0")/.."
sections=$(readelf -SW "$library") || {
    echo "licences: readelf cannot tell whether NVIDIA's code is inside of $library; install binutils" >&2
    exit 3
}
if [[ $sections == *nv_fatbin* ]]; then
    cache="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill"
    nvidia=()
    for text in "$cache"/nvcc-*/nvidia_cuda_{runtime,cccl}-*.dist-info/licenses/License.txt \
        "${CUDA_HOME:-/usr/local/cuda}/EULA.txt"; do
        [ ! -f "$text" ] || nvidia+=("$text")
    done
    [ ${#nvidia[@]} -gt 0 ] || { echo "licences: NVIDIA's licence is nowhere" >&2; exit 1; }
    files+=("${nvidia[@]}")
fi
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo metadata --locked --format-version 1 --filter-platform "$triple" |
    python3 scripts/licences.py "$shipped" "$crate" "${files[@]}"
