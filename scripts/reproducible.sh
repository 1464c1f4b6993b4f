#!/usr/bin/env bash
# Checks that two releases of the last commit are equal files, built in two folders and with two homes. The toolchain,
# cargo's downloads and the RocksDB that make has built are shared. Some 10 GB of disk.
set -euo pipefail
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
    )
    rm -rf "$work/$place/target"
done
diff "$work/one/out/SHA256SUMS" "$work/two/deeper/out/SHA256SUMS"
cat "$work/one/out/SHA256SUMS"
