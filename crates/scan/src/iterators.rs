//! RocksDB's own iterators, for rows that tables alone do not determine.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{CancelToken, KeyRange, Result};

use crate::checkpoint::Checkpoint;
use rockmill_core::MergeOperator;

/// Takes key and value of a row.
pub type RowFn<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Reads rows as RocksDB does.
pub trait Iterators: Debug + Send + Sync {
    /// Calls `row` with key and value of each row, in the order of the keys.
    ///
    /// # Errors
    /// Storage or Declined if RocksDB does not read them; the errors of `row`; Cancelled.
    fn read(&self, what: &IteratorRead<'_>, row: RowFn<'_>) -> Result<()>;

    /// The merge operator that is stated for a column family.
    fn merge_operator(&self, family: &str) -> Option<MergeOperator> {
        let _ = family;
        None
    }
}

/// The rows to read.
#[derive(Debug, Clone, Copy)]
pub struct IteratorRead<'a> {
    /// Directory of the database.
    pub path: &'a Path,
    /// Name of the column family.
    pub family: &'a str,
    /// Sequence number of the snapshot: the rows are those that a snapshot of RocksDB with this number sees.
    pub sequence: u64,
    /// Range of their keys.
    pub range: &'a KeyRange,
    /// The version, if the snapshot is one of a directory.
    pub checkpoint: Option<&'a Arc<Checkpoint>>,
    /// Checked every some rows.
    pub cancel: &'a CancelToken,
}
