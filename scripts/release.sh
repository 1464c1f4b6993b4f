#!/usr/bin/env bash
# Builds and packs the command and the C and C++ doors, with the licences of what is inside each:
#   scripts/release.sh FOLDER [BUILT]     makes FOLDER/rockmill-VERSION-TRIPLE.tar.gz, a Debian package where dpkg-deb is
#                                         installed, and FOLDER/SHA256SUMS. BUILT is as for scripts/install.sh; without
#                                         it, cargo builds in the profile for files that are shipped: the command with
#                                         FEATURES, such as rockmill-cli/distributed, if that is set.
# The time of all files is that of the last commit, or SOURCE_DATE_EPOCH, so that equal builds make equal files.
# The unpacked tarball is a prefix: pkg-config and CMake find it wherever it lies.
set -euo pipefail
folder=$(realpath -m "${1:?usage: scripts/release.sh FOLDER [BUILT]}")
built=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
triple=$(rustc -vV | sed -n 's/^host: //p')
name="rockmill-$version-$triple"
# The oldest glibc that everything runs with; docs/guide/install.md says which systems have it.
readonly GLIBC=2.34
# In MB. The profile release makes a command of 168 MB and this one makes 114 MB, 26 of them kernels for GPUs.
readonly MAX_COMMAND=120

if [ -z "$built" ]; then
    # Messages of panics name source files, and must not name this machine's folders.
    home=${CARGO_HOME:-$HOME/.cargo}
    printf -v CARGO_ENCODED_RUSTFLAGS '%s\x1f%s' "--remap-path-prefix=$PWD=/rockmill" "--remap-path-prefix=$home=/cargo"
    maps=$(printf -- '-ffile-prefix-map=%q ' "$PWD=/rockmill" "$home=/cargo")
    export CARGO_ENCODED_RUSTFLAGS CC_SHELL_ESCAPED_FLAGS=1 CFLAGS="$maps${CFLAGS-}" CXXFLAGS="$maps${CXXFLAGS-}"
    # C code is compiled again where the time changes, and doors/python/wheel.sh has the same.
    SOURCE_DATE_EPOCH=315532800 cargo build --locked --profile shipped -p rockmill-cli -p rockmill-capi ${FEATURES:+--features "$FEATURES"}
    built=${CARGO_TARGET_DIR:-target}/shipped
    size=$(($(stat -c %s "$built/rockmill") / 1000000))
    [ "$size" -le $MAX_COMMAND ] || {
        echo "release: the command has $size MB, and may have $MAX_COMMAND" >&2
        exit 1
    }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix="$work/$name"
scripts/install.sh "$prefix" "$built"

# Symbols of newer systems would keep the files from older ones.
for file in "$prefix/bin/rockmill" "$prefix/lib/librockmill.so"; do
    [ -f "$file" ] || continue
    symbols=$(objdump -T "$file") || {
        echo "release: objdump cannot tell which systems $file runs on; install binutils" >&2
        exit 3
    }
    newest=$(grep -o 'GLIBC_[0-9.]*' <<<"$symbols" | sed 's/GLIBC_//' | sort -V | tail -n 1)
    [ "$(printf '%s\n' "$GLIBC" "$newest" | sort -V | tail -n 1)" = "$GLIBC" ] || {
        echo "release: $(basename "$file") needs glibc $newest, and may need $GLIBC:" >&2
        grep "GLIBC_$newest" <<<"$symbols" >&2
        exit 1
    }
done

# What a build or an editor left there is no part of the examples.
folders=(examples/c examples/cpp examples/gpukv)
[[ ${FEATURES:-} != *distributed* ]] || folders+=(examples/many-machines)
examples=$(git ls-files "${folders[@]}")
[ -n "$examples" ] || { echo "release: git tracks no examples here; pack from a checkout" >&2; exit 3; }
xargs -d '\n' cp --parents -t "$prefix" <<<"$examples"
for document in README.md CHANGELOG.md LICENSE docs monitoring; do
    ln -s "share/doc/rockmill/$document" "$prefix/$document"
done

licences() { scripts/licences.sh "$@" "$prefix/lib/librockmill.so" >"$prefix/THIRD-PARTY-$1.txt"; }
licences librockmill rockmill-capi
[ ! -f "$prefix/bin/rockmill" ] || licences rockmill rockmill-cli

mkdir -p "$folder"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH=$epoch
(cd "$prefix" && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >"$work/sums")
mv "$work/sums" "$prefix/SHA256SUMS"
tar -C "$work" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+rX,go-w --sort=name --mtime="@$epoch" -cf - "$name" |
    gzip -n >"$folder/$name.tar.gz"
packed=("$name.tar.gz")

# The same files below /usr. RocksDB's and DataFusion's code is inside; only the C library is the system's.
package() {
    local root="$work/deb" doc="$work/deb/usr/share/doc/rockmill" architecture
    architecture=$(dpkg --print-architecture)
    mkdir -p "$root/DEBIAN" "$root/usr"
    cp -r "$prefix"/{include,lib,share} "$root/usr/"
    if [ -d "$prefix/bin" ]; then
        cp -r "$prefix/bin" "$root/usr/"
        # Debian has its own folder for zsh, and compressed pages.
        mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
        gzip -9n "$root"/usr/share/man/man1/*
    fi
    cp -r "$prefix"/examples "$prefix"/THIRD-PARTY-*.txt "$doc/"
    rm "$doc/LICENSE"
    gzip -9n <"$doc/CHANGELOG.md" >"$doc/changelog.gz"
    {
        echo "Rockmill, copyright the authors of Rockmill."
        echo "Licence: Apache-2.0, in /usr/share/common-licenses/Apache-2.0. THIRD-PARTY-*.txt beside this file have the"
        echo "licences of the code by others."
    } >"$doc/copyright"
    # As Debian wants its libraries.
    chmod 644 "$root"/usr/lib/librockmill.so.*.*
    echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
    echo "librockmill $(sed -n 's/^#define RM_ABI_VERSION //p' include/rockmill.h) rockmill (>= $version)" >"$root/DEBIAN/shlibs"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: rockmill
Version: $version
Architecture: $architecture
Maintainer: The authors of Rockmill <rockmill@users.noreply.github.com>
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Depends: libc6 (>= $GLIBC), libgcc-s1
Section: database
Priority: optional
Description: compaction and SQL for RocksDB, on the CPU and on GPUs
 Rockmill compacts for stock RocksDB through its plug-in for compaction
 services, checks and queries its files, and looks up keys on a GPU.
CONTROL
    find "$root" -exec touch -hd "@$epoch" {} +
    dpkg-deb --root-owner-group -b "$root" "$folder/rockmill_${version}_$architecture.deb" >&2
    packed+=("rockmill_${version}_$architecture.deb")
}
if command -v dpkg-deb >/dev/null; then
    package
else
    echo "release: no Debian package is made, since dpkg-deb is not installed" >&2
fi
(cd "$folder" && sha256sum "${packed[@]}" >SHA256SUMS)
printf '%s\n' "${packed[@]/#/$folder/}"
