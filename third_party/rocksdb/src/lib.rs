//! Empty: only the native library that the dependency builds is of use; see `scripts/rocksdb.sh`.
