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

use std::path::Path;

use rockmill_engine::model::Scratch;
use rust_rocksdb::{DB, Options};

use crate::outcome::Failure;
pub use measure::{Measured, process_cpu};

/// All cores.
pub fn usual_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Lets `work` use a folder for databases, which then goes away, in `parent` or where the system has its temporary files.
/// What a command left there that was killed goes before.
///
/// # Errors
/// Environment if there can be no folder; those of `work`.
pub fn in_scratch<T>(
    parent: Option<&Path>,
    work: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let scratch = Scratch::new(&parent).map_err(|error| {
        Failure::Environment(format!("{error}; name another folder with --dir"))
    })?;
    work(scratch.path()).map_err(|failure| advise_room(failure, &parent))
}

/// What to do about a failure for want of room in `parent`, behind it.
pub fn advise_room(failure: Failure, parent: &Path) -> Failure {
    match failure {
        Failure::Environment(what) if what.contains("No space left on device") => {
            let parent = parent.display();
            let advice = format!("make room in {parent} or name another with --dir");
            Failure::Environment(format!("{what}; {advice}"))
        }
        other => other,
    }
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
