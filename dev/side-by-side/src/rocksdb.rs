//! Opens databases, and converts RocksDB's errors to a command's.

use std::path::Path;

use rockmill_terminal::outcome::Failure;
use rust_rocksdb::{DB, Options};

/// Converts an error of RocksDB: Data if it reports corruption, otherwise Environment.
pub fn failed(doing: &str, error: &rust_rocksdb::Error) -> Failure {
    let text = format!("RocksDB cannot {doing}: {error}");
    match error.kind() {
        rust_rocksdb::ErrorKind::Corruption => Failure::Data(text),
        _ => Failure::Environment(text),
    }
}

/// Opens an existing database.
///
/// # Errors
/// The errors of [`failed`].
pub fn open(path: &Path, options: &Options) -> Result<DB, Failure> {
    DB::open(options, path).map_err(|e| failed("open a database", &e))
}
