//! Device memory of tables that are there at the same time.

use std::sync::{Arc, Mutex, PoisonError};

use rockmill_core::{Error, ErrorKind, Result};

use crate::driver::{Device, DeviceMemory};

/// How much memory tables may take together.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    taken: Mutex<u64>,
}

/// Memory that counts as taken until it is dropped.
#[derive(Debug)]
pub struct Part {
    memory: DeviceMemory,
    bytes: u64,
    budget: Arc<Budget>,
}

impl Budget {
    /// Nothing is taken yet.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            taken: Mutex::default(),
        }
    }

    /// Memory for so many bytes, and for a word at least.
    ///
    /// # Errors
    /// Device if it is more than what is left, or the device does not have it.
    pub fn take(self: &Arc<Self>, device: &Device, bytes: u64) -> Result<Part> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = taken.saturating_add(bytes);
        if needed > self.most {
            let what = format!(
                "the table needs {needed} bytes of device memory or more, and may take {}: give it more memory; versions \
                 that are held count as well, and so does the old one during a refresh",
                self.most
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
        let _current = device.make_current()?;
        let memory = DeviceMemory::new(device, bytes.max(size_of::<u64>() as u64))?;
        *taken = needed;
        Ok(Part {
            memory,
            bytes,
            budget: Arc::clone(self),
        })
    }
}

impl Part {
    /// Where it is.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let taken = self.budget.taken.lock();
        *taken.unwrap_or_else(PoisonError::into_inner) -= self.bytes;
    }
}
