#!/usr/bin/env bash
# Makes sure that a CUDA compiler is at hand: a toolkit that is installed, or NVIDIA's wheels from the
# Python package index, pinned, in the user's cache folder. Without either the build goes on and has no
# GPU backend. NVCC=none asks for that.
set -euo pipefail

VERSION=13.0
WHEELS=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
        nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill"

[ -z "${NVCC:-}" ] || exit 0
for dir in "${CUDA_HOME:-/nowhere}" "${CUDA_PATH:-/nowhere}" /usr/local/cuda; do
    [ ! -x "$dir/bin/nvcc" ] || exit 0
done
! command -v nvcc >/dev/null || exit 0
[ ! -x "$cache/nvcc/bin/nvcc" ] || exit 0

without() { echo "rockmill: $1; building without the GPU backend" >&2; exit 0; }
command -v python3 >/dev/null || without "no CUDA toolkit and no python3 to fetch one with"
[ "$(uname -m)" = x86_64 ] || without "no CUDA toolkit for $(uname -m)"
echo "rockmill: fetching the CUDA $VERSION compiler (some 150 MB) into $cache"
mkdir -p "$cache"
fresh="$(mktemp -d "$cache/nvcc-$VERSION.XXXXXX")"
trap 'rm -rf "$fresh"' EXIT
pip() { python3 -m pip --disable-pip-version-check "$@"; }
if ! pip --version >/dev/null 2>&1; then
    python3 -m venv "$fresh/venv" 2>/dev/null || without "python3 has neither pip nor venv"
    pip() { "$fresh/venv/bin/pip" --disable-pip-version-check "$@"; }
fi
pip install --quiet --no-deps --target "$fresh/wheels" "${WHEELS[@]}" ||
    without "the CUDA compiler could not be fetched"
[ -x "$fresh/wheels/nvidia/cu13/bin/nvcc" ] || without "the CUDA wheels are not laid out as expected"
mv "$fresh/wheels" "$cache/nvcc-$VERSION" 2>/dev/null || true
ln -sfn "nvcc-$VERSION/nvidia/cu13" "$cache/nvcc"
