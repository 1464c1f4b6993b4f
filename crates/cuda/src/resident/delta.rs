//! A table derived from another one by the writes since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::{KeyRange, ResidentTable, Result};

use super::budget::Part;
use super::table::DeviceTable;

/// A copy of a table that receives rows: they replace the records of their keys, and tombstones remove keys. A row
/// equal to the record of its key takes no memory.
///
/// The keys of all rows that it receives must be different, like those of a [`DeviceTable`].
#[derive(Debug)]
pub struct Delta {
    pub(super) base: Arc<DeviceTable>,
    pub(super) table: Arc<DeviceTable>,
    /// A bit for each slot of the base, set if a row has its key.
    pub(super) seen: Arc<Part>,
}

/// Counts the keys of rows that the base of a delta has, and that no row of the delta has had so far.
#[derive(Debug)]
pub struct Unseen {
    pub(super) base: Arc<DeviceTable>,
    pub(super) seen: Arc<Part>,
    keys: AtomicU64,
}

impl ResidentTable for Delta {}
impl ResidentTable for Unseen {}

impl Delta {
    /// A copy of the slots of a table. RocksDB must be asked for keys in the ranges `outside`. Records are not copied:
    /// both tables share them.
    ///
    /// # Errors
    /// Device if the two tables exceed the memory limit, or the device has too little memory.
    pub fn new(base: &Arc<DeviceTable>, outside: &[KeyRange]) -> Result<Self> {
        let slots = base.slots.len() / size_of::<u64>() as u64;
        let words = slots.div_ceil(u64::from(u64::BITS));
        Ok(Self {
            seen: Arc::new(base.empty_part(words * size_of::<u64>() as u64)?),
            table: Arc::new(base.copied(outside)?),
            base: Arc::clone(base),
        })
    }

    /// Removes the keys of some ranges that no row has had. The ranges are disjoint and ascend.
    ///
    /// # Errors
    /// Device.
    pub fn erase_missing(&self, ranges: &[KeyRange]) -> Result<()> {
        self.base.erase_missing(&self.seen, ranges, &self.table)
    }

    /// The table with the rows so far.
    pub fn table(&self) -> &Arc<DeviceTable> {
        &self.table
    }

    /// The table, once it has all rows. If a quarter of the records' bytes is dead, memory is released as far as
    /// possible.
    ///
    /// # Errors
    /// Device.
    pub fn finish(&self) -> Result<Arc<DeviceTable>> {
        self.table.write_dead_chunks_anew()?;
        Ok(Arc::clone(&self.table))
    }

    /// Counts keys that the base has, and that no row has had.
    pub fn unseen(&self) -> Unseen {
        Unseen {
            base: Arc::clone(&self.base),
            seen: Arc::clone(&self.seen),
            keys: AtomicU64::new(0),
        }
    }
}

impl Unseen {
    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }
}
