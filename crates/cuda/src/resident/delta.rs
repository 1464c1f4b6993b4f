//! A table that is made of another one by what was written since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::{ResidentTable, Result};

use super::table::DeviceTable;

/// A copy of a table that takes rows: they replace the records of their keys, and tombstones take keys out.
///
/// The keys of all rows that it takes have to be different, as those of a [`DeviceTable`].
#[derive(Debug)]
pub struct Delta {
    pub(super) base: Arc<DeviceTable>,
    pub(super) table: Arc<DeviceTable>,
}

/// Counts the keys of rows whose records are the same in a table and in the one that it was made of.
#[derive(Debug)]
pub struct Unchanged {
    pub(super) base: Arc<DeviceTable>,
    pub(super) table: Arc<DeviceTable>,
    keys: AtomicU64,
}

impl ResidentTable for Delta {}
impl ResidentTable for Unchanged {}

impl Delta {
    /// A copy of the slots of a table. Records are not copied: both tables have them.
    ///
    /// # Errors
    /// Device if both tables may not take so much memory, or the device does not have it.
    pub fn new(base: &Arc<DeviceTable>) -> Result<Self> {
        Ok(Self {
            table: Arc::new(base.copied()?),
            base: Arc::clone(base),
        })
    }

    /// The table, as far as rows were put into it.
    pub fn table(&self) -> &Arc<DeviceTable> {
        &self.table
    }

    /// Counts keys whose records are still those of the base.
    pub fn unchanged(&self) -> Unchanged {
        Unchanged {
            base: Arc::clone(&self.base),
            table: Arc::clone(&self.table),
            keys: AtomicU64::new(0),
        }
    }
}

impl Unchanged {
    /// How many they are.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }
}
