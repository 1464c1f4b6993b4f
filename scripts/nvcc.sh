#!/usr/bin/env bash
# Makes sure that a CUDA compiler is at hand: a toolkit that is installed and new enough, or NVIDIA's wheels
# from the Python package index, pinned, in the user's cache folder. If there can be none, exit code 1 and the
# reason as the last line. build/device/nvcc.rs runs this where it finds no compiler.
set -euo pipefail

VERSION=13.0
WHEELS=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
        nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96)
# The newest architecture that a release is built for (build/device/mod.rs).
NEWEST=compute_120
cache="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/rockmill"
home="$cache/nvcc-$VERSION"

is_new_enough() { "$1" --list-gpu-arch 2>/dev/null | grep -qx "$NEWEST"; }
[ -z "${NVCC:-}" ] || exit 0
for nvcc in "${CUDA_HOME:-/nowhere}/bin/nvcc" "${CUDA_PATH:-/nowhere}/bin/nvcc" /usr/local/cuda/bin/nvcc \
    "$(command -v nvcc || echo /nowhere)"; do
    ! is_new_enough "$nvcc" || exit 0
done

without() { echo "$1" >&2; exit 1; }
# A build that found no compiler has left an empty folder in the link's place, which cargo watches.
link() {
    rmdir "$cache/nvcc" 2>/dev/null || true
    ln -sfn "nvcc-$VERSION/nvidia/cu13" "$cache/nvcc"
}
if is_new_enough "$home/nvidia/cu13/bin/nvcc"; then
    link
    exit 0
fi
command -v python3 >/dev/null || without "no CUDA toolkit and no python3 to fetch one with"
[ "$(uname -m)" = x86_64 ] || without "no CUDA toolkit for $(uname -m)"
echo "rockmill: fetching the CUDA $VERSION compiler (some 150 MB) into $cache" >&2
mkdir -p "$cache"
fresh="$(mktemp -d "$cache/nvcc-new.XXXXXX")"
trap 'rm -rf "$fresh"' EXIT
pip() { python3 -m pip --disable-pip-version-check "$@"; }
if ! pip --version >/dev/null 2>&1; then
    python3 -m venv "$fresh/venv" 2>/dev/null || without "python3 has neither pip nor venv"
    pip() { "$fresh/venv/bin/pip" --disable-pip-version-check "$@"; }
fi
# Its bars are for terminals.
quiet=--quiet
[ ! -t 2 ] || quiet=
pip install $quiet --no-deps --retries 1 --timeout 15 --root-user-action ignore \
    --target "$fresh/wheels" "${WHEELS[@]}" >&2 || without "the CUDA compiler could not be fetched"
is_new_enough "$fresh/wheels/nvidia/cu13/bin/nvcc" || without "the CUDA wheels are not as expected"
rm -rf "$home"
# Another run may have been faster.
mv -T "$fresh/wheels" "$home" 2>/dev/null || is_new_enough "$home/nvidia/cu13/bin/nvcc"
link
