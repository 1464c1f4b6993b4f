//! Device memory of tables that exist at the same time.

use std::sync::{Arc, Weak};

use rockmill_core::{Error, ErrorKind, Lock, Result};

use super::table::DeviceTable;
use crate::driver::{Device, DeviceMemory, MemoryUser, Reservation};

/// Memory is allocated in multiples of `UNIT` bytes, as the device does.
const UNIT: u64 = 256;

/// The memory that tables may take together.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    /// Unused memory, at most half of the memory taken. It is kept, because freeing it waits for all kernels that run
    /// on the device.
    spare: Vec<DeviceMemory>,
    /// Reservation of the running load.
    reservation: Weak<Reservation>,
}

/// Memory that counts as taken until it is dropped. Kernels that use it must have ended then.
#[derive(Debug)]
pub struct Part {
    /// Set until this is dropped.
    memory: Option<DeviceMemory>,
    bytes: u64,
    /// Counted bytes, which may be more than requested.
    counted: u64,
    budget: Arc<Budget>,
}

impl Budget {
    /// A budget of which nothing is taken.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            state: Lock::default(),
        }
    }

    /// Remaining bytes.
    pub fn left(&self) -> u64 {
        self.most.saturating_sub(self.state.lock().taken)
    }

    /// Takes memory of a reservation while that lives.
    pub fn use_reservation(&self, reservation: &Arc<Reservation>) {
        self.state.lock().reservation = Arc::downgrade(reservation);
    }

    /// At least `bytes` bytes of uninitialised memory, and at least a word.
    ///
    /// # Errors
    /// Device if less is left, or the device does not have it.
    pub fn take(self: &Arc<Self>, device: &Device, bytes: u64) -> Result<Part> {
        let mut state = self.state.lock();
        let needed = state.taken.saturating_add(bytes);
        let len = bytes
            .checked_add(DeviceTable::READ_BEHIND)
            .and_then(|len| len.checked_next_multiple_of(UNIT));
        let Some(len) = len.filter(|_| needed <= self.most) else {
            let what = format!(
                "the table needs {needed} bytes of device memory or more, and may take {}: give it more memory; versions \
                 that are held count as well, and so does the old one during a refresh",
                self.most
            );
            return Err(Error::new(ErrorKind::Device, what));
        };
        let _current = device.make_current()?;
        let reservation = state.reservation.upgrade();
        let reservation = reservation.as_deref();
        let memory = match state.take_spare(len, self.most - needed) {
            Some(memory) => memory,
            None => {
                state.shrink((self.most - needed).min(needed / 2));
                let got = DeviceMemory::of(device, MemoryUser::Views, reservation, len);
                got.or_else(|_| {
                    state.shrink(0);
                    DeviceMemory::for_view(device, reservation, len)
                })?
            }
        };
        let counted = bytes + (memory.len() - len);
        state.taken += counted;
        Ok(Part {
            memory: Some(memory),
            bytes,
            counted,
            budget: Arc::clone(self),
        })
    }
}

impl State {
    /// The smallest spare memory with at least `len` bytes, and at most `more` and as many more.
    fn take_spare(&mut self, len: u64, more: u64) -> Option<DeviceMemory> {
        let fits = |(_, spare): &(usize, &DeviceMemory)| {
            (spare.len().checked_sub(len)).is_some_and(|surplus| surplus <= more.min(len))
        };
        let spare = self.spare.iter().enumerate().filter(fits);
        let (at, _) = spare.min_by_key(|(_, spare)| spare.len())?;
        Some(self.spare.remove(at))
    }

    /// Frees spare memory, the oldest first, until it has at most `most` bytes.
    fn shrink(&mut self, most: u64) {
        while self.spare.iter().map(DeviceMemory::len).sum::<u64>() > most {
            self.spare.remove(0);
        }
    }
}

impl Part {
    /// Address of the memory.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
            .as_ref()
            .map_or(std::ptr::null_mut(), DeviceMemory::as_ptr)
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.taken -= self.counted;
        state.spare.extend(self.memory.take());
    }
}
