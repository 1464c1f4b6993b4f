//! The databases.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use rockmill_side_by_side::dataset::{self, Dataset};
use rockmill_side_by_side::workload::Compression;
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::{ColumnFamilyDescriptor, DB, Error, IteratorMode, Options, ReadOptions};

/// State of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum State {
    /// In one level.
    Settled,
    /// As `settled`, and then a tenth of the rows was written again: into three files of level 0, and a fiftieth of the
    /// tenth into the memtable.
    Live,
}

impl State {
    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Live => "live",
        }
    }
}

/// Makes a database in the folder `path`, and opens it.
///
/// # Errors
/// Environment if the system refuses.
pub fn make(
    path: &Path,
    dataset: Dataset,
    scale: f64,
    compression: Compression,
    direct_reads: bool,
) -> Result<Arc<DB>, Failure> {
    dataset::load(path, dataset, scale, compression)?;
    let mut options = Options::default();
    options.set_disable_auto_compactions(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    // Logs would be allocated in the size of a write buffer.
    options.set_allow_fallocate(false);
    options.set_use_direct_reads(direct_reads);
    let families = dataset.names().into_iter();
    let families = families.map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    let db = DB::open_cf_descriptors(&options, path, families);
    Ok(Arc::new(db.map_err(|e| refused(path, &e))?))
}

/// Larger than all new writes, so that this module chooses when to flush.
const WRITE_BUFFER_BYTES: usize = 16 << 30;

fn refused(path: &Path, error: &Error) -> Failure {
    Failure::Environment(format!("{}: {error}", path.display()))
}

/// Makes a settled database live.
///
/// # Errors
/// Environment if the system refuses.
pub fn write_again(db: &DB, tables: &[&str]) -> Result<(), Failure> {
    let written = thread::scope(|scope| {
        let threads: Vec<_> = tables
            .iter()
            .map(|table| scope.spawn(|| write_table_again(db, table)))
            .collect();
        let each = threads
            .into_iter()
            .map(|thread| thread.join().expect("it returns errors"));
        each.collect::<Result<(), Error>>()
    });
    written.map_err(|e| refused(db.path(), &e))
}

fn write_table_again(db: &DB, table: &str) -> Result<(), Error> {
    const FILES: usize = 3;
    /// One row in `AGAIN` is written again, and one in `UNFLUSHED` of these is not flushed.
    const AGAIN: usize = 10;
    const UNFLUSHED: usize = 50;
    let family = db
        .cf_handle(table)
        .expect("it was opened with the database");
    let mut parts = vec![Vec::new(); FILES + 1];
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    let rows = db.iterator_cf_opt(&family, options, IteratorMode::Start);
    for (number, row) in rows.step_by(AGAIN).enumerate() {
        let part = match number % UNFLUSHED {
            0 => FILES,
            _ => number % FILES,
        };
        parts[part].push(row?);
    }
    for (number, part) in parts.into_iter().enumerate() {
        for (key, value) in part {
            db.put_cf(&family, key, value)?;
        }
        if number < FILES {
            db.flush_cf(&family)?;
        }
    }
    Ok(())
}
