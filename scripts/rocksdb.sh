#!/usr/bin/env bash
# Builds RocksDB's static library into a folder outside of cargo's, unless it is there:
#   scripts/rocksdb.sh FOLDER [TARGET [VERSION]]     makes FOLDER/lib/librocksdb.a and FOLDER/include
# and has cargo link it in the target folder TARGET. VERSION is that of another crate rust-librocksdb-sys, whose name ends
# with the RocksDB version that it contains.
#
# Cargo would compile RocksDB, some eleven minutes of C++ on two cores, anew whenever the features of
# any crate that its build script shares with others change: between two selections of packages, and
# with many a new dependency. With ROCKSDB_LIB_DIR, ROCKSDB_INCLUDE_DIR and ROCKSDB_STATIC set, as the
# Makefile does, the -sys crate links this library instead. Plain cargo works without.
set -euo pipefail
folder=$(realpath -m "${1:?usage: scripts/rocksdb.sh FOLDER [TARGET [VERSION]]}")
cd "$(dirname "$0")/.."
target=${2:-target}
# Where cargo has compiled RocksDB itself, it has the linker find that first, which lacks Snappy without the
# settings it was made with. Cargo makes it again when it is built without ours.
rm -f "$target"/release/build/rust-librocksdb-sys-*/out/librocksdb.a

[ ! -f "$folder/lib/librocksdb.a" ] || exit 0

echo "compiling RocksDB once, into $folder" >&2
mkdir -p "$folder"
work=$(mktemp -d "$folder/build.XXXXXX")
progress=
trap 'kill $progress 2>/dev/null || true; rm -rf "$work"' EXIT
crate=third_party/rocksdb/Cargo.toml
locked=--locked
if [ -n "${3:-}" ]; then
    cp -r third_party/rocksdb "$work/crate"
    rm "$work/crate/Cargo.lock"
    sed -i "s/^\(rust-librocksdb-sys = { version = \)\"=[^\"]*\"/\1\"=$3\"/" "$work/crate/Cargo.toml"
    crate=$work/crate/Cargo.toml
    locked=
fi

# The library must come from the sources, whatever the environment says of others.
unset ROCKSDB_LIB_DIR ROCKSDB_INCLUDE_DIR ROCKSDB_STATIC
manifest=$(cargo metadata $locked --format-version 1 --manifest-path "$crate" |
    grep -o '"manifest_path":"[^"]*rust-librocksdb-sys[^"]*"' | head -n 1 | cut -d '"' -f 4)
total=$(wc -l <"$(dirname "$manifest")/rocksdb_lib_sources.txt")

# Cargo says nothing while a build script runs, and this one runs for a quarter of an hour on two cores.
tell_progress() {
    local compiled pause=5 end='\n'
    [ ! -t 2 ] || { pause=1 end='\r'; }
    while sleep "$pause"; do
        compiled=$(find "$work/target" -path '*/rust-librocksdb-sys-*' -name '*.o' 2>/dev/null | wc -l)
        [ "$compiled" -eq 0 ] || printf "RocksDB: %d of %d files are compiled, %d s$end" "$compiled" "$total" "$SECONDS" >&2
    done
}
tell_progress &
progress=$!
cargo build $locked --release --manifest-path "$crate" --target-dir "$work/target" \
    --message-format=json-render-diagnostics >"$work/messages"
kill "$progress"
wait "$progress" 2>/dev/null || true
out=$(sed -n '/"reason":"build-script-executed"/{/rust-librocksdb-sys/s/.*"out_dir":"\([^"]*\)".*/\1/p;}' "$work/messages")

# One library that holds Snappy too, which the -sys crate does not link beside a given RocksDB, and
# not its own C extensions, which it compiles in any case.
mkdir -p "$work/ready/lib"
ln -s "$out/librocksdb.a" "$work/rocksdb.a"
ln -s "$out/libsnappy.a" "$work/snappy.a"
# The script's language has no quotes, so names in it have no spaces.
(
    cd "$work"
    ar -M <<MRI
create ready/lib/librocksdb.a
addlib rocksdb.a
addlib snappy.a
save
end
MRI
)
{ ar t "$work/ready/lib/librocksdb.a" | grep c_api_extensions || true; } |
    xargs -r ar d "$work/ready/lib/librocksdb.a"
ranlib "$work/ready/lib/librocksdb.a"
cp -r "$(dirname "$manifest")/rocksdb/include" "$work/ready/include"

# The library comes last: where it is, all is.
rm -rf "$folder/include" "$folder/lib"
mv "$work/ready/include" "$folder/include"
mv "$work/ready/lib" "$folder/lib"
