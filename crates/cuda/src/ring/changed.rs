//! The keys that kernels have put or deleted: `kernels/ring/changed.hpp`.

use rockmill_core::Result;

use crate::driver::ffi::ChangedKeys;
use crate::driver::{Device, DeviceMemory, Stream};

/// Hashes that a set has room for, a power of two. Behind them lies its state.
const SLOTS: u64 = 1 << 20;

/// A set of hashes of keys in device memory.
#[derive(Debug)]
pub struct ChangedSet {
    memory: DeviceMemory,
    seed: u64,
}

impl ChangedSet {
    /// A set with nothing in it. `seed` is that of its hash.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device, seed: u64) -> Result<Self> {
        let _current = device.make_current()?;
        let len = Self::bytes();
        let memory = DeviceMemory::new(device, len)?;
        let stream = Stream::new(device)?;
        // SAFETY: the memory is as long, and the stream is waited for.
        unsafe { stream.fill(memory.as_ptr().cast(), 0, len as usize)? };
        stream.synchronize()?;
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
