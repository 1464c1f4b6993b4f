//! Databases that another process has open.

use std::fmt;
use std::sync::Arc;

use rockmill_core::Result;
use rockmill_scan::{Store, ValueFn, Write, Written};

use crate::handle::{Handle, NamedFamily};

/// A column family of a database that another process writes to, through a secondary instance of RocksDB in this
/// process (`DB::open_cf_as_secondary`).
///
/// It catches up with the other process before each batch of gets, so a get finds all that was in the files and the log
/// before. Writes are refused with [`Written::ReadOnly`]. RocksDB needs `max_open_files = -1`, because the other
/// process deletes files that are read here.
pub struct SecondaryStore<D: Handle> {
    db: Arc<D>,
    family: NamedFamily,
}

impl<D: Handle> SecondaryStore<D> {
    /// A column family of a secondary instance.
    pub fn new(db: Arc<D>, family: &str) -> Self {
        Self {
            family: db.family(family),
            db,
        }
    }
}

impl<D: Handle> fmt::Debug for SecondaryStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecondaryStore")
            .field("path", &self.db.path())
            .field("family", &self.family.name)
            .finish_non_exhaustive()
    }
}

impl<D: Handle> Store for SecondaryStore<D> {
    fn get(&self, keys: &[&[u8]], value: ValueFn<'_>) {
        match self.db.catch_up() {
            Ok(()) => self.db.get(&self.family, keys, value),
            Err(error) => (0..keys.len()).for_each(|at| value(at, Err(error.clone()))),
        }
    }

    fn write(&self, _: &[Write<'_>]) -> Result<Written> {
        Ok(Written::ReadOnly)
    }
}
