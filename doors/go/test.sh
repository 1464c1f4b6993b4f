#!/usr/bin/env bash
# Tests the module for Go with the RocksDB of a stock RocksJava, which exports the C API:
#   doors/go/test.sh FOLDER [BUILT]     FOLDER is for what is built
set -euo pipefail
folder=$(realpath -m "${1:?usage: doors/go/test.sh FOLDER [BUILT]}")
cd "$(dirname "$0")/../.."
. doors/java/fetch.sh
# The version that grocksdb 1.11 is written for.
version=11.1.2
doors/attach/build.sh "$folder" ${2:+"$2"}
headers=$(headers "rust-librocksdb-sys-0.47.0+$version" "$version")
mkdir -p "$folder/rocksdb/include"
ln -sfn "$headers/rocksdb" "$folder/rocksdb/include/rocksdb"
unzip -q -o -p "$(rocksjava "$version")" librocksdbjni-linux64.so >"$folder/lib/librocksdb.so"
cd doors/go
CGO_CFLAGS="-I$folder/include -I$folder/rocksdb/include" CGO_LDFLAGS="-L$folder/lib -Wl,-rpath,$folder/lib" \
    go test -count=1 -tags grocksdb_clean_link ./...
