//! Memory of the device, and host memory that the device can reach.

use std::ffi::c_int;
use std::fmt;
use std::ptr;

use rockmill_core::{DeclineReason, Error, ErrorKind, Result};

use super::device::Device;
use super::shares::{MemoryUser, Reservation};

/// `cudaErrorMemoryAllocation`: others have the memory, and the device is not to blame.
pub(super) const OUT_OF_MEMORY: c_int = 2;

/// Memory of the device, got from it and given back to it.
pub struct DeviceMemory {
    device: Device,
    memory: *mut u8,
    len: u64,
    user: MemoryUser,
}

// SAFETY: only this value owns the memory, and the device may be used from any thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: shared references give only its address.
unsafe impl Sync for DeviceMemory {}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl DeviceMemory {
    /// Allocates `len` uninitialised bytes.
    ///
    /// # Errors
    /// Device if the device has too little memory.
    pub fn new(device: &Device, user: MemoryUser, len: u64) -> Result<Self> {
        Self::of(device, user, None, len)
    }

    /// Allocates `len` bytes, from a reservation if there is one.
    ///
    /// # Errors
    /// Device if there is too little memory.
    pub(crate) fn of(
        device: &Device,
        user: MemoryUser,
        reservation: Option<&Reservation>,
        len: u64,
    ) -> Result<Self> {
        let allocate = || {
            let mut memory = ptr::null_mut();
            device.count_allocation();
            // SAFETY: `memory` points to memory for a pointer.
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

    /// Allocates `len` bytes for a view, from a reservation if there is one. If the device has too little memory, tasks give
    /// back what they do not use, and so does the cache of files.
    ///
    /// # Errors
    /// Device if there is still too little memory.
    pub(crate) fn for_view(
        device: &Device,
        reservation: Option<&Reservation>,
        len: u64,
    ) -> Result<Self> {
        let get = || Self::of(device, MemoryUser::Views, reservation, len);
        get().or_else(|_| {
            device.shares().take_idle(len);
            get()
        })
    }

    /// Address of the bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
    }

    /// Number of bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "memory is allocated to be used"
    )]
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

/// Host memory that the device can copy to and from by itself. A child process does not inherit that of a GPU.
#[derive(Debug)]
pub struct PinnedBuffer {
    device: Device,
    memory: *mut u8,
    len: usize,
}

// SAFETY: only the buffer owns the memory.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// Pins `len` bytes, which takes a third of a second a gigabyte.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let mut memory = ptr::null_mut();
        device.count_allocation();
        // SAFETY: `memory` points to memory for a pointer.
        let code = unsafe { (device.table().allocate_pinned)(&raw mut memory, len as u64) };
        device.check(code, &format!("pin {len} bytes of host memory"))?;
        // On the host, the pages are the allocator's. It hands them out again, and a child process would lack them.
        if device.memory_bytes() > 0 {
            // SAFETY: the range was just allocated; the driver aligns it to pages. A fork must not copy pages that the
            // device writes to; if the system refuses, only that protection is missing.
            let _ = unsafe { rustix::mm::madvise(memory, len, rustix::mm::Advice::LinuxDontFork) };
        }
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

    /// Number of bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "memory is allocated to be used"
    )]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl AsMut<[u8]> for PinnedBuffer {
    /// The bytes. No copy may be in progress.
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is `len` initialised bytes, lives as long as `self`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the memory came from `allocate_pinned` and is freed once.
        unsafe { (self.device.table().release_pinned)(self.memory.cast()) };
    }
}
