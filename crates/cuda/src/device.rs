//! The device. With `memory` and `stream` this is the second and third storey over [`crate::ffi`]: calls whose
//! error codes are looked at, and types that own what they hold.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use rockmill_core::{Error, ErrorKind, Result};

use crate::ffi::{self, DeviceInfo, KernelTable, RECORD_BYTES};
use crate::stream::Stream;

/// Where kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// CUDA device number `n`.
    Cuda(u32),
    /// The calling thread: the same stages, one item after another. For tests.
    Host,
}

/// A device whose kernels can be called. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    table: &'static KernelTable,
    number: c_int,
    name: Arc<str>,
    /// Bytes of the device's memory; 0 on the host.
    memory_bytes: u64,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The device that tests run on: the one that `ROCKMILL_TEST_DEVICE` names, or the host.
#[cfg(test)]
pub fn test_target() -> Target {
    let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
    match named.strip_prefix("cuda:") {
        Some(number) => Target::Cuda(number.parse().expect("cuda:N")),
        None => Target::Host,
    }
}

/// A sentence about why there is no device.
fn unusable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Device, what)
}

#[cfg(has_cuda)]
fn cuda_table() -> Result<*const KernelTable> {
    // SAFETY: the function takes nothing and returns the address of a static.
    Ok(unsafe { ffi::rockmill_cuda_kernels() })
}

#[cfg(not(has_cuda))]
fn cuda_table() -> Result<*const KernelTable> {
    Err(unusable(
        "this build has no GPU backend: no CUDA compiler was found when it was built",
    ))
}

impl Device {
    /// Opens a device; on a GPU this makes its context, which takes some tenths of a second.
    ///
    /// # Errors
    /// Device, with a sentence that says what is missing.
    pub fn open(target: Target) -> Result<Self> {
        let (table, number) = match target {
            Target::Cuda(number) => (cuda_table()?, number),
            // SAFETY: the function takes nothing and returns the address of a static.
            Target::Host => (unsafe { ffi::rockmill_host_kernels() }, 0),
        };
        // SAFETY: both functions return the address of a table that lives as long as the program.
        let table = unsafe { &*table };
        assert_eq!(
            table.table_bytes as usize,
            size_of::<KernelTable>(),
            "kernels/table.hpp and ffi.rs differ"
        );
        assert_eq!(
            table.record_bytes, RECORD_BYTES,
            "types.hpp and ffi.rs differ"
        );
        let number = c_int::try_from(number).map_err(|_| unusable("no such device"))?;
        let mut device = Self {
            table,
            number,
            name: Arc::from(""),
            memory_bytes: 0,
        };
        let mut count = 0;
        // SAFETY: `count` is a place for an int.
        let code = unsafe { (table.device_count)(&raw mut count) };
        device.check(code, "look for GPUs").map_err(|e| {
            let hint = "is there an NVIDIA driver, and is it new enough for CUDA 13?";
            unusable(format!("{}; {hint}", e.what))
        })?;
        if number >= count {
            let what = format!("there is no GPU number {number}: the machine has {count}");
            return Err(unusable(what));
        }
        let mut info = DeviceInfo {
            name: [0; 128],
            memory_bytes: 0,
            compute_major: 0,
            compute_minor: 0,
        };
        // SAFETY: `info` is a place for the record.
        let code = unsafe { (table.device_info)(number, &raw mut info) };
        device.check(code, "ask the GPU for its properties")?;
        // SAFETY: the table ends the name with a zero.
        let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
        device.name = Arc::from(name.to_string_lossy());
        device.memory_bytes = info.memory_bytes;
        device.probe()?;
        Ok(device)
    }

    /// What the device calls itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the device's memory; 0 on the host.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Makes this device the calling thread's until the guard is dropped: the thread may be the user's,
    /// who has a device of his own. To be called on every thread before other calls.
    ///
    /// # Errors
    /// Device.
    pub fn make_current(&self) -> Result<Current<'_>> {
        let mut before = 0;
        // SAFETY: `before` is a place for an int.
        let code = unsafe { (self.table.get_device)(&raw mut before) };
        self.check(code, "ask which GPU is in use")?;
        // SAFETY: takes a number alone.
        let code = unsafe { (self.table.set_device)(self.number) };
        self.check(code, "use the GPU")?;
        Ok(Current {
            device: self,
            before,
        })
    }

    /// Runs a kernel that does nothing: a build has code for some kinds of GPU only.
    fn probe(&self) -> Result<()> {
        let _current = self.make_current()?;
        let stream = Stream::new(self)?;
        // SAFETY: the kernel touches nothing.
        let code = unsafe { (self.table.probe)(&stream.exec(ptr::null_mut(), 0)) };
        self.check(code, &format!("run this build's kernels on {}", self.name))?;
        stream.synchronize()
    }

    pub(crate) fn table(&self) -> &'static KernelTable {
        self.table
    }

    /// Turns an error code into an error.
    pub(crate) fn check(&self, code: c_int, doing: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the table returns a string that lives as long as the program.
        let text = unsafe { CStr::from_ptr((self.table.error_text)(code)) };
        let text = text.to_string_lossy();
        Err(unusable(format!("cannot {doing}: {text} (error {code})")))
    }
}

/// While it lives, a device is the calling thread's.
#[derive(Debug)]
pub struct Current<'a> {
    device: &'a Device,
    before: c_int,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        // SAFETY: takes a number alone; it was the thread's device before.
        unsafe { (self.device.table.set_device)(self.before) };
    }
}
