//! The same files compacted by RocksDB and by Rockmill: what `demo` and `bench` share.

pub mod compare;
pub mod contender;
pub mod database;
pub mod device;
pub mod energy;
pub mod fill;
pub mod floor;
pub mod measure;
pub mod plane;
pub mod process;
pub mod progress;
pub mod row;
pub mod stages;
pub mod worker;
pub mod workload;

use std::path::{Path, PathBuf};

use rust_rocksdb::{DB, Options};
use tempfile::TempDir;

use crate::outcome::Failure;
pub use measure::{Measured, process_cpu};

/// All cores.
pub fn usual_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// A folder for databases, which goes away when dropped, in `parent` or where the system has its
/// temporary files.
pub fn scratch(parent: Option<PathBuf>, prefix: &str) -> Result<TempDir, Failure> {
    let parent = parent.unwrap_or_else(std::env::temp_dir);
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(&parent)
        .map_err(|e| {
            Failure::Environment(format!(
                "cannot make a folder in {}: {e}; name another with --dir",
                parent.display()
            ))
        })
}

/// RocksDB's errors are those of the machine, unless they speak of corruption.
pub fn rocksdb_failed(doing: &str, error: &rust_rocksdb::Error) -> Failure {
    let text = format!("RocksDB cannot {doing}: {error}");
    match error.kind() {
        rust_rocksdb::ErrorKind::Corruption => Failure::Data(text),
        _ => Failure::Environment(text),
    }
}

/// Opens a database that exists.
fn open(path: &Path, options: &Options) -> Result<DB, Failure> {
    DB::open(options, path).map_err(|e| rocksdb_failed("open a database", &e))
}
