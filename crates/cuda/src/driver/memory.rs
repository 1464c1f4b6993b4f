//! Memory of the device, and host memory that the device can reach.

use std::ffi::c_int;
use std::fmt;
use std::ptr;

use rockmill_core::{DeclineReason, Error, ErrorKind, Result};

use super::device::Device;
use super::shares::{MemoryUser, Reservation};

/// `cudaErrorMemoryAllocation`: others have the memory, and the device is not to blame.
const OUT_OF_MEMORY: c_int = 2;

/// Memory of the device, got from it and given back to it.
pub struct DeviceMemory {
    device: Device,
    memory: *mut u8,
    len: u64,
    user: MemoryUser,
}

// SAFETY: the memory belongs to this alone, and the device may be used from any thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: all that can be had of it is where it is.
unsafe impl Sync for DeviceMemory {}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl DeviceMemory {
    /// Gets `len` bytes; what they are is not said.
    ///
    /// # Errors
    /// Device if there is not so much memory.
    pub fn new(device: &Device, user: MemoryUser, len: u64) -> Result<Self> {
        Self::of(device, user, None, len)
    }

    /// Gets `len` bytes, of a reservation if there is one.
    ///
    /// # Errors
    /// Device if there is not so much memory.
    pub(crate) fn of(
        device: &Device,
        user: MemoryUser,
        reservation: Option<&Reservation>,
        len: u64,
    ) -> Result<Self> {
        let allocate = || {
            let mut memory = ptr::null_mut();
            device.count_allocation();
            // SAFETY: `memory` is a place for a pointer.
            let code = unsafe { (device.table().allocate)(&raw mut memory, len) };
            let got = device.check(code, &format!("get {len} bytes of device memory"));
            got.map_err(|error| match (code, user) {
                (OUT_OF_MEMORY, MemoryUser::Tasks) => Error {
                    kind: ErrorKind::Declined(DeclineReason::MemoryBudget),
                    ..error
                },
                _ => error,
            })?;
            Ok(Self {
                device: device.clone(),
                memory: memory.cast(),
                len,
                user,
            })
        };
        (device.shares()).allocate(device, user, reservation, len, allocate)
    }

    /// Address of the bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
    }

    /// How many they are.
    #[allow(clippy::len_without_is_empty, reason = "memory is got to be used")]
    pub fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.device.shares().releasing(self.len);
        // SAFETY: the memory came from `allocate` and is given back once. A failure here is one of work
        // before; it shows again at the next call.
        unsafe { (self.device.table().release)(self.memory.cast()) };
        self.device.shares().returned(self.user, self.len);
    }
}

/// Host memory that the device copies to and from by itself. A child process does not inherit it.
#[derive(Debug)]
pub struct PinnedBuffer {
    device: Device,
    memory: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to the buffer alone.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// Pins `len` bytes, which takes a third of a second a gigabyte.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let mut memory = ptr::null_mut();
        device.count_allocation();
        // SAFETY: `memory` is a place for a pointer.
        let code = unsafe { (device.table().allocate_pinned)(&raw mut memory, len as u64) };
        device.check(code, &format!("pin {len} bytes of host memory"))?;
        // SAFETY: the range was just allocated; the driver aligns it to pages. A fork must not copy
        // pages that the device writes to; where the system refuses, nothing is lost but that.
        let _ = unsafe { rustix::mm::madvise(memory, len, rustix::mm::Advice::LinuxDontFork) };
        // SAFETY: the range is `len` bytes long; zeroing makes it readable as a slice.
        unsafe { ptr::write_bytes(memory.cast::<u8>(), 0, len) };
        Ok(Self {
            device: device.clone(),
            memory: memory.cast(),
            len,
        })
    }

    /// Address of the bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
    }

    /// How many they are.
    #[allow(clippy::len_without_is_empty, reason = "memory is got to be used")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl AsMut<[u8]> for PinnedBuffer {
    /// The bytes. No copy may be on its way.
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is `len` initialised bytes, lives as long as `self`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the memory came from `allocate_pinned` and is given back once.
        unsafe { (self.device.table().release_pinned)(self.memory.cast()) };
    }
}
