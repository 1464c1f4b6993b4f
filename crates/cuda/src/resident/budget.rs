//! Device memory of tables that are there at the same time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rockmill_core::{Error, ErrorKind, Result};

use super::table::DeviceTable;
use crate::driver::{Device, DeviceMemory};

/// Memory is got in multiples of so many bytes, as the device gives it.
const UNIT: u64 = 256;

/// How much memory tables may take together.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    /// Memory that nobody uses. It is kept, since to give it back waits for all kernels that run on the device.
    spare: Vec<DeviceMemory>,
}

/// Memory that counts as taken until it is dropped. Kernels that use it have to be done then.
#[derive(Debug)]
pub struct Part {
    /// There until this is dropped.
    memory: Option<DeviceMemory>,
    bytes: u64,
    budget: Arc<Budget>,
}

impl Budget {
    /// Nothing is taken yet.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            state: Mutex::default(),
        }
    }

    /// Memory for so many bytes, and for a word at least; what they are is not said.
    ///
    /// # Errors
    /// Device if it is more than what is left, or the device does not have it.
    pub fn take(self: &Arc<Self>, device: &Device, bytes: u64) -> Result<Part> {
        let mut state = self.state();
        let needed = state.taken.saturating_add(bytes);
        if needed > self.most {
            let what = format!(
                "the table needs {needed} bytes of device memory or more, and may take {}: give it more memory; versions \
                 that are held count as well, and so does the old one during a refresh",
                self.most
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
        let len = bytes
            .saturating_add(DeviceTable::READ_BEHIND)
            .next_multiple_of(UNIT);
        let _current = device.make_current()?;
        let memory = match state.spare.iter().position(|spare| spare.len() == len) {
            Some(at) => state.spare.swap_remove(at),
            None => {
                state.shrink(self.most - needed);
                DeviceMemory::new(device, len).or_else(|_| {
                    state.shrink(0);
                    DeviceMemory::new(device, len)
                })?
            }
        };
        state.taken = needed;
        Ok(Part {
            memory: Some(memory),
            bytes,
            budget: Arc::clone(self),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives spare memory back until it has at most so many bytes.
    fn shrink(&mut self, most: u64) {
        while self.spare.iter().map(DeviceMemory::len).sum::<u64>() > most {
            self.spare.pop();
        }
    }
}

impl Part {
    /// Where it is.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
            .as_ref()
            .map_or(std::ptr::null_mut(), DeviceMemory::as_ptr)
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.taken -= self.bytes;
        state.spare.extend(self.memory.take());
    }
}
