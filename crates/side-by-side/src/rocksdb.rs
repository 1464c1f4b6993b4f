//! Opening databases, and RocksDB's errors as those of a command.

use std::path::Path;

use rockmill_terminal::outcome::Failure;
use rust_rocksdb::{DB, Options};

/// RocksDB's errors are those of the machine, unless they speak of corruption.
pub fn failed(doing: &str, error: &rust_rocksdb::Error) -> Failure {
    let text = format!("RocksDB cannot {doing}: {error}");
    match error.kind() {
        rust_rocksdb::ErrorKind::Corruption => Failure::Data(text),
        _ => Failure::Environment(text),
    }
}

/// Opens a database that exists.
///
/// # Errors
/// Those of [`failed`].
pub fn open(path: &Path, options: &Options) -> Result<DB, Failure> {
    DB::open(options, path).map_err(|e| failed("open a database", &e))
}
