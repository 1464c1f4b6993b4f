//! Scans over consistent snapshots of RocksDB databases.
//!
//! ```text
//!   Database --snapshot--> Snapshot: the files and unflushed entries of each column family at one sequence number
//!   FamilySnapshot --pieces--> Piece ..   disjoint ranges of keys, cut at the borders of index blocks
//!   ScanEngine::run(Piece, ScanPlan) --> PieceOutput: batches in Arrow's layout
//! ```
//!
//! A piece is one task of the executor. If tables alone do not determine what a reader finds, RocksDB's iterators read
//! the piece instead. Nothing is written, and nothing here is asynchronous.

#![forbid(unsafe_code)]

mod checkpoint;
mod deleted;
mod directory;
mod engine;
mod family;
mod history;
mod iterators;
mod load;
mod logged;
mod memory_table;
mod opened;
mod options;
mod piece;
mod ranges;
mod remote;
mod snapshot;
mod store;
mod table;
mod task;
mod version;
mod waiting_rows;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_format::names;

pub use rockmill_snapshot::{LogFolder, LogSource};

pub use checkpoint::Checkpoint;
pub use directory::Directory;
pub use engine::{PieceResult, ScanEngine, ScanSettings};
pub use family::{FamilySnapshot, FileInfo};
pub use history::{Since, WrittenSince};
pub use iterators::{IteratorRead, Iterators, RowFn};
pub use load::{Load, LoadShare};
pub use piece::{Piece, PieceOutput, PieceReport, ReadPath, ScanTotals};
pub use remote::{Described, Pinned, Remote};
pub use rockmill_core::{MergeOperator, MergeOperators, StatedOperator};
pub use snapshot::Snapshot;
pub use store::{Store, ValueFn, Write, Written};
pub use version::Version;
pub use waiting_rows::RowsRoom;

/// Parts from which crates such as `rockmill-live` make snapshots.
pub mod source {
    pub use crate::memory_table::MemoryTable;
    pub use crate::options::ReadOptions;
    pub use crate::snapshot::Family;
}

/// A database that gives snapshots.
pub trait Database: Debug + Send + Sync {
    /// Its directory.
    fn path(&self) -> &Path;

    /// Whether this process has its files. If not, other processes scan them.
    fn has_files(&self) -> bool {
        true
    }

    /// Names of its column families.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`].
    fn families(&self) -> Result<Vec<String>>;

    /// Takes a snapshot of the current state of all column families.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`].
    fn snapshot(&self, engine: &Arc<ScanEngine>) -> Result<Arc<Snapshot>>;

    /// Takes a snapshot of some column families. Other column families may stay closed: only the files of these are opened.
    ///
    /// # Errors
    /// The errors of [`Database::snapshot`].
    fn snapshot_of(&self, engine: &Arc<ScanEngine>, families: &[&str]) -> Result<Arc<Snapshot>> {
        let _ = families;
        self.snapshot(engine)
    }

    /// States a merge operator for the snapshots that are taken from now on.
    ///
    /// # Errors
    /// Invalid if another operator was stated for the same column families, or if this process has the database open.
    fn state_merge_operator(&self, stated: &StatedOperator) -> Result<()> {
        let _ = stated;
        let what = "the database is read with the merge operators of the program that has it open";
        Err(Error::new(ErrorKind::Invalid, what))
    }

    /// A column family's newest values, if this process has the database open.
    fn store(&self, family: &str) -> Option<Arc<dyn Store>> {
        let _ = family;
        None
    }
}

/// The name of a column family for messages. A directory gives its text, and a database that this process has open the name
/// itself.
fn quoted(family: &str) -> String {
    format!("\"{}\"", names::escape(&names::unescape(family)))
}
