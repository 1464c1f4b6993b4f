#!/usr/bin/env bash
# Packs the command and the C and C++ doors, which make build has built, with the licences of what is inside each:
#   scripts/release.sh FOLDER [BUILT]     makes FOLDER/rockmill-VERSION-TRIPLE.tar.gz and FOLDER/SHA256SUMS; BUILT as
#                                         for scripts/install.sh
# The time of all files is that of the last commit, or SOURCE_DATE_EPOCH, so that equal builds make equal tarballs.
# Whoever unpacks it has a prefix: pkg-config and CMake find it wherever it lies.
set -euo pipefail
folder=$(realpath -m "${1:?usage: scripts/release.sh FOLDER [BUILT]}")
built=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
triple=$(rustc -vV | sed -n 's/^host: //p')
name="rockmill-$version-$triple"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/install.sh "$work/$name" ${built:+"$built"}
# What a build or an editor left there is no part of the examples.
examples=$(git ls-files examples/c examples/cpp examples/gpukv)
[ -n "$examples" ] || { echo "release: git tracks no examples here; pack from a checkout" >&2; exit 3; }
xargs -d '\n' cp --parents -t "$work/$name" <<<"$examples"
git ls-files README.md LICENSE docs monitoring | xargs -d '\n' cp --parents -t "$work/$name"

# NVIDIA's runtime and templates are inside where the build has a GPU backend.
nvidia=()
sections=$(readelf -SW "$work/$name/lib/librockmill.so") || {
    echo "release: readelf cannot tell whether NVIDIA's code is inside; install binutils" >&2
    exit 3
}
if [[ $sections == *nv_fatbin* ]]; then
    cache="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill"
    for text in "$cache"/nvcc-*/nvidia_cuda_{runtime,cccl}-*.dist-info/licenses/License.txt \
        "${CUDA_HOME:-/usr/local/cuda}/EULA.txt"; do
        [ ! -f "$text" ] || nvidia+=("$text")
    done
    [ ${#nvidia[@]} -gt 0 ] || { echo "release: NVIDIA's licence is nowhere" >&2; exit 1; }
fi
cargo metadata --locked --format-version 1 --filter-platform "$triple" >"$work/metadata"
licences() {
    python3 scripts/licences.py "$@" "${nvidia[@]}" <"$work/metadata" >"$work/$name/THIRD-PARTY-$1.txt"
}
licences librockmill rockmill-capi
[ ! -f "$work/$name/bin/rockmill" ] || licences rockmill rockmill-cli

mkdir -p "$folder"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
tar -C "$work" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+rX,go-w --sort=name --mtime="@$epoch" -cf - "$name" |
    gzip -n >"$folder/$name.tar.gz"
(cd "$folder" && sha256sum "$name.tar.gz" >SHA256SUMS)
echo "$folder/$name.tar.gz"
