//! The keys that kernels have put or deleted: `kernels/ring/changed.hpp`.

use rockmill_core::Result;

use crate::driver::ffi::ChangedKeys;
use crate::resident::{DeviceTable, Part};

/// Maximum number of hashes of a set, a power of two. Its state lies behind them.
const SLOTS: u64 = 1 << 20;

/// A set of hashes of keys in device memory.
#[derive(Debug)]
pub struct ChangedSet {
    memory: Part,
    seed: u64,
}

impl ChangedSet {
    /// An empty set, in the memory limit of a table. `seed` is the seed of its hash.
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

    /// The set in the kernels' form.
    pub(crate) fn kernel_form(&self) -> ChangedKeys {
        let slots: *mut u64 = self.memory.as_ptr().cast();
        ChangedKeys {
            slots,
            mask: SLOTS - 1,
            state: slots.wrapping_add(SLOTS as usize),
            seed: self.seed,
        }
    }
}
