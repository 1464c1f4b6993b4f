//! A table that is made of another one by what was written since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::{KeyRange, ResidentTable, Result};

use super::budget::Part;
use super::table::DeviceTable;

/// A copy of a table that takes rows: they replace the records of their keys, and tombstones take keys out. A row that says
/// what the table says of its key takes no memory.
///
/// The keys of all rows that it takes have to be different, as those of a [`DeviceTable`].
#[derive(Debug)]
pub struct Delta {
    pub(super) base: Arc<DeviceTable>,
    pub(super) table: Arc<DeviceTable>,
    /// A bit for each slot of the base, which is set if a row has its key.
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
    /// A copy of the slots of a table, where RocksDB has to be asked for the keys of other ranges. Records are not copied:
    /// both tables have them.
    ///
    /// # Errors
    /// Device if both tables may not take so much memory, or the device does not have it.
    pub fn new(base: &Arc<DeviceTable>, outside: &[KeyRange]) -> Result<Self> {
        let slots = base.slots.len() / size_of::<u64>() as u64;
        let words = slots.div_ceil(u64::from(u64::BITS));
        Ok(Self {
            seen: Arc::new(base.empty_part(words * size_of::<u64>() as u64)?),
            table: Arc::new(base.copied(outside)?),
            base: Arc::clone(base),
        })
    }

    /// Takes the keys of some ranges out that no row has had. The ranges are disjoint and ascend.
    ///
    /// # Errors
    /// Device.
    pub fn take_unseen(&self, ranges: &[KeyRange]) -> Result<()> {
        self.base.take_unseen(&self.seen, ranges, &self.table)
    }

    /// The table, as far as rows were put into it.
    pub fn table(&self) -> &Arc<DeviceTable> {
        &self.table
    }

    /// The table, once it has all rows. If a quarter of the records' bytes is dead, memory is given back as far as it can
    /// be.
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
    /// How many they are.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }
}
