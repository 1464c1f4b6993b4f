//! The keys that kernels have put or deleted: `kernels/ring/changed.hpp`.

use rockmill_core::Result;

use crate::driver::ffi::ChangedKeys;
use crate::resident::{DeviceTable, Part};

/// Hashes that a set has room for, a power of two. Behind them lies its state.
const SLOTS: u64 = 1 << 20;

/// A set of hashes of keys in device memory.
#[derive(Debug)]
pub struct ChangedSet {
    memory: Part,
    seed: u64,
}

impl ChangedSet {
    /// A set with nothing in it, of what a table may take. `seed` is that of its hash.
    ///
    /// # Errors
    /// Device if there is no room for it.
    pub fn new(table: &DeviceTable, seed: u64) -> Result<Self> {
        let memory = table.empty_part(Self::bytes())?;
        Ok(Self { memory, seed })
    }

    /// Device memory of a set in bytes.
    pub fn bytes() -> u64 {
        (SLOTS + 1) * size_of::<u64>() as u64
    }

    /// The set as kernels see it.
    pub(crate) fn as_kernels_see_it(&self) -> ChangedKeys {
        let slots: *mut u64 = self.memory.as_ptr().cast();
        ChangedKeys {
            slots,
            mask: SLOTS - 1,
            state: slots.wrapping_add(SLOTS as usize),
            seed: self.seed,
        }
    }
}
