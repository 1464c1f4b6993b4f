#!/usr/bin/env bash
# Checks that two releases of the last commit are equal files, and two wheels, built in two folders and with two homes. The
# toolchain, cargo's downloads and the RocksDB that make has built are shared. Some 10 GB of disk.
#   scripts/reproducible.sh [FOLDER]     FOLDER gets the first of the two, and of two that differ the second in FOLDER/other
set -euo pipefail
folder=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} PATH="$cargo_home/bin:$PATH"
unset CARGO_TARGET_DIR XDG_CACHE_HOME
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for place in one two/deeper; do
    mkdir -p "$work/$place/home/.cargo"
    for shared in registry git; do
        ln -s "$cargo_home/$shared" "$work/$place/home/.cargo/$shared"
    done
    git clone -q . "$work/$place/checkout"
    (
        export HOME="$work/$place/home" CARGO_HOME="$work/$place/home/.cargo" CARGO_TARGET_DIR="$work/$place/target"
        "$work/$place/checkout/scripts/release.sh" "$work/$place/out"
        "$work/$place/checkout/doors/python/wheel.sh" "$CARGO_TARGET_DIR" "$work/$place/out"
        cd "$work/$place/out"
        sha256sum rockmill* >SHA256SUMS
    )
    rm -rf "$work/$place/target"
done
one="$work/one/out" other="$work/two/deeper/out"
if [ -n "$folder" ]; then
    mkdir -p "$folder"
    cp -r "$one/." "$folder"
    cmp -s "$one/SHA256SUMS" "$other/SHA256SUMS" || cp -r "$other" "$folder/other"
fi
diff "$one/SHA256SUMS" "$other/SHA256SUMS"
cat "$one/SHA256SUMS"
