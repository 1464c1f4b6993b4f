#!/usr/bin/env bash
# Installs the C and C++ doors, which `cargo build --release -p rockmill-capi` has built:
#   scripts/install.sh PREFIX [FOLDER]     libraries, headers, rockmill.pc, the CMake package and documents; FOLDER holds
#                                          librockmill_capi.so, librockmill_capi.a and the command, which may be missing
# $DESTDIR is written before PREFIX, as packagers expect it.
set -euo pipefail
umask 022
prefix=$(realpath -m "${1:?usage: scripts/install.sh PREFIX [FOLDER]}")
built=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/.."
built=${built:-${CARGO_TARGET_DIR:-target}/release}
root="${DESTDIR-}$prefix"

value() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$2" | head -n 1; }
version=$(value version Cargo.toml)
abi=$(sed -n 's/^#define RM_ABI_VERSION //p' include/rockmill.h)
[ -f "$built/librockmill_capi.so" ] && [ -f "$built/librockmill_capi.a" ] || {
    echo "install: $built has no librockmill_capi; run make build first" >&2
    exit 3
}

mkdir -p "$root/lib/pkgconfig" "$root/lib/cmake/rockmill" "$root/include/rockmill"
install -m 644 include/rockmill.h "$root/include/"
install -m 644 include/rockmill/* "$root/include/rockmill/"
# What gpukv.cuh includes: the code of kernels that the library is compiled from as well.
for header in common/{atomic,bytes,group,hash,types}.hpp view/{probe,record,slots}.hpp ring/{changed,kv,ring}.hpp; do
    install -D -m 644 "kernels/$header" "$root/include/rockmill/$header"
done

install -m 755 -s "$built/librockmill_capi.so" "$root/lib/librockmill.so.$version"
ln -sf "librockmill.so.$version" "$root/lib/librockmill.so.$abi"
ln -sf "librockmill.so.$abi" "$root/lib/librockmill.so"
# For programs in any language whose RocksDB has its C API.
doors/attach/compile.sh "$root/lib"

if [ -f "$built/rockmill" ]; then
    install -D -m 755 -s "$built/rockmill" "$root/bin/rockmill"
    "$root/bin/rockmill" generate "$root/share"
fi
find README.md CHANGELOG.md LICENSE docs monitoring -type f -exec install -D -m 644 {} "$root/share/doc/rockmill/{}" \;

# One object whose only global symbols are ours: the codecs inside then do not meet those of the program's RocksDB.
# --force-group-allocation, since the linker would drop a C++ template that the program has as well.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
functions=$(grep -o '\brm_[a-z_]*(' include/rockmill.h | tr -d '(' | sort -u)
# shellcheck disable=SC2086 # one word for each function
ld -r --gc-sections --force-group-allocation -o "$work/all.o" $(printf -- '-u %s ' $functions) \
    "$built/librockmill_capi.a"
# Rust's library brings bitcode, which the plug-in of an older LLVM cannot read.
objcopy --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd --wildcard --keep-global-symbol='rm_*' \
    "$work/all.o" "$work/rockmill.o"
ar rcs "$work/librockmill.a" "$work/rockmill.o"
install -m 644 "$work/librockmill.a" "$root/lib/"

fill() { sed "s|@VERSION@|$version|" "doors/capi/install/$1.in" >"$root/$2/$1"; }
fill rockmill.pc lib/pkgconfig
fill rockmill-config.cmake lib/cmake/rockmill
fill rockmill-config-version.cmake lib/cmake/rockmill
