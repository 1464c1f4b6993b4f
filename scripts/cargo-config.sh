#!/usr/bin/env bash
# Lets plain cargo and editors link the RocksDB that scripts/rocksdb.sh has built, share make's target folder, and build
# the package for Python without a look at PATH:
#   scripts/cargo-config.sh ROCKSDB TARGET     writes .cargo/config.toml, unless another one is there
# Variables that are set in the environment outrank that file. Git ignores it.
set -euo pipefail
rocksdb=${1:?usage: scripts/cargo-config.sh ROCKSDB TARGET}
target=${2:?usage: scripts/cargo-config.sh ROCKSDB TARGET}
cd "$(dirname "$0")/.."
file=.cargo/config.toml
mark="# Written by scripts/cargo-config.sh; without this line it stays as it is."
[ ! -e $file ] || grep -qxF "$mark" $file || exit 0
mkdir -p .cargo
cat >$file.new <<TOML
$mark
[build]
target-dir = "$target"

[env]
ROCKSDB_LIB_DIR = "$rocksdb/lib"
ROCKSDB_INCLUDE_DIR = "$rocksdb/include"
ROCKSDB_STATIC = "1"
PYO3_NO_PYTHON = "1"
TOML
# An unchanged file keeps its time.
cmp -s $file.new $file && rm $file.new || mv $file.new $file
