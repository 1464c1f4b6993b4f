//! A device and its properties.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::{Error, ErrorKind, Result};

use super::faults;
use super::ffi::{self, DeviceInfo, KernelTable};
use super::shares::MemoryShares;

/// Where kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// CUDA device number `n`.
    Cuda(u32),
    /// The calling thread: the same stages, with sequential loops. For tests, and for tables in host memory.
    Host,
    /// The same, with planned failures of calls ([`faults`]). For tests.
    Faulty,
}

/// Properties of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceProperties {
    /// Name of the device.
    pub name: String,
    /// PCI address of the device, as `0000:01:00.0`; empty on the host.
    pub pci_bus_id: String,
    /// Bytes of its memory; 0 on the host.
    pub memory_bytes: u64,
    /// Major and minor compute capability; 0 on the host.
    pub compute_capability: (u32, u32),
    /// Multiprocessors; 0 on the host.
    pub multiprocessors: u32,
}

/// A device with its table of kernels. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    table: &'static KernelTable,
    number: c_int,
    properties: Arc<DeviceProperties>,
    /// Number of allocations, pinned host memory included.
    allocations: Arc<AtomicU64>,
    shares: Arc<MemoryShares>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.properties.name)
            .finish_non_exhaustive()
    }
}

thread_local! {
    static ANSWERS_KERNELS: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread panic if it uses a device: CUDA may wait for a kernel that waits for this thread.
pub fn answer_kernels() {
    ANSWERS_KERNELS.set(true);
}

/// The target of tests: the one that `ROCKMILL_TEST_DEVICE` names, or the host.
#[cfg(test)]
pub fn test_target() -> Target {
    let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
    match named.strip_prefix("cuda:") {
        Some(number) => Target::Cuda(number.parse().expect("cuda:N")),
        None => Target::Host,
    }
}

/// An error with a sentence about why there is no device.
pub(super) fn unusable(what: impl Into<String>) -> Error {
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
        "this build has no GPU backend: it was built without a CUDA compiler or without the feature cuda",
    ))
}

/// Factor of the major number in CUDA's versions.
const CUDA_MAJOR: c_int = 1000;

/// A sentence if the driver is too old for this build.
fn driver_trouble(driver: c_int, build: c_int) -> Option<String> {
    let needed = build / CUDA_MAJOR;
    let shown = |version: c_int| format!("{}.{}", version / CUDA_MAJOR, version % CUDA_MAJOR / 10);
    match driver {
        0 if build > 0 => Some(format!(
            "no NVIDIA driver was found; install one that supports CUDA {needed}"
        )),
        _ if driver / CUDA_MAJOR < needed => Some(format!(
            "the NVIDIA driver supports CUDA {} at most, and this build needs {needed}: update the driver",
            shown(driver)
        )),
        _ => None,
    }
}

impl Device {
    /// All GPUs, usable or not.
    ///
    /// # Errors
    /// Device, with a sentence about why there are none.
    pub fn all_gpus() -> Result<Vec<Self>> {
        let target = Target::Cuda(0);
        let count = Self::unknown(target, 0)?.count()?;
        (0..count.unsigned_abs())
            .map(|number| Self::find(target, number))
            .collect()
    }

    /// A device whose properties have not been read.
    fn unknown(target: Target, number: u32) -> Result<Self> {
        let table = match target {
            Target::Cuda(_) => cuda_table()?,
            // SAFETY: the function takes nothing and returns the address of a static.
            Target::Host => unsafe { ffi::rockmill_host_kernels() },
            // SAFETY: the hooks live as long as the program, as does what the function returns.
            Target::Faulty => unsafe { ffi::rockmill_faulty_kernels(&raw const faults::HOOKS) },
        };
        // SAFETY: all three return the address of a table that lives as long as the program.
        let table = unsafe { &*table };
        assert_eq!(
            table.table_bytes as usize,
            size_of::<KernelTable>(),
            "the kernels were compiled from another table.hpp"
        );
        Ok(Self {
            table,
            number: c_int::try_from(number).map_err(|_| unusable("no such device"))?,
            properties: Arc::default(),
            allocations: Arc::default(),
            shares: Arc::default(),
        })
    }

    /// A device that exists, with its properties.
    pub(super) fn find(target: Target, number: u32) -> Result<Self> {
        let device = Self::unknown(target, number)?;
        let count = device.count()?;
        if device.number >= count {
            let what = format!("there is no GPU number {number}: the machine has {count}");
            return Err(unusable(what));
        }
        let mut info = DeviceInfo {
            name: [0; 128],
            pci_bus_id: [0; 16],
            memory_bytes: 0,
            compute_major: 0,
            compute_minor: 0,
            multiprocessors: 0,
            unused: 0,
        };
        // SAFETY: `info` points to memory for the record.
        let code = unsafe { (device.table.device_info)(device.number, &raw mut info) };
        device.check(code, "ask the GPU for its properties")?;
        let text = |text: &[c_char]| {
            let bytes = text.iter().map(|&c| c.to_ne_bytes()[0]);
            let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let properties = DeviceProperties {
            name: text(&info.name),
            pci_bus_id: text(&info.pci_bus_id),
            memory_bytes: info.memory_bytes,
            compute_capability: (
                info.compute_major.unsigned_abs(),
                info.compute_minor.unsigned_abs(),
            ),
            multiprocessors: info.multiprocessors.unsigned_abs(),
        };
        Ok(Self {
            properties: Arc::new(properties),
            ..device
        })
    }

    /// Number of devices.
    fn count(&self) -> Result<c_int> {
        let (mut driver, mut build, mut count) = (0, 0, 0);
        // SAFETY: `driver` and `build` point to memory for an int.
        let code = unsafe { (self.table.versions)(&raw mut driver, &raw mut build) };
        self.check(code, "ask for the driver's version")?;
        if let Some(what) = driver_trouble(driver, build) {
            return Err(unusable(what));
        }
        // SAFETY: `count` points to memory for an int.
        let code = unsafe { (self.table.device_count)(&raw mut count) };
        self.check(code, "look for GPUs")?;
        Ok(count)
    }

    /// Device number `n` of its kind.
    pub fn number(&self) -> u32 {
        self.number.unsigned_abs()
    }

    /// The device's properties.
    pub fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    /// Bytes of the device's memory; 0 on the host.
    pub fn memory_bytes(&self) -> u64 {
        self.properties.memory_bytes
    }

    /// Its memory by users.
    pub fn shares(&self) -> &Arc<MemoryShares> {
        &self.shares
    }

    /// Free bytes of the device's memory; 0 on the host.
    ///
    /// # Errors
    /// Device.
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(self.known_free_bytes()?.unwrap_or(0))
    }

    /// Free bytes of the device's memory; `None` for a device that does not report its size, such as the host.
    ///
    /// # Errors
    /// Device.
    pub fn known_free_bytes(&self) -> Result<Option<u64>> {
        let _current = self.make_current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both point to memory for a number.
        let code = unsafe { (self.table.memory_info)(&raw mut free, &raw mut total) };
        self.check(code, "ask for the GPU's free memory")?;
        Ok((total > 0).then_some(free))
    }

    /// Number of allocations of device or pinned host memory. It stops growing once tasks find their memory among what
    /// earlier tasks have released.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    pub(crate) fn count_allocation(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes this device the calling thread's until the guard is dropped. The thread may be the user's, with another
    /// device. Call it on every thread before other calls.
    ///
    /// # Errors
    /// Device.
    pub fn make_current(&self) -> Result<Current<'_>> {
        assert!(
            !ANSWERS_KERNELS.get(),
            "a thread that answers kernels may not call CUDA, which may wait for a kernel"
        );
        let mut before = 0;
        // SAFETY: `before` points to memory for an int.
        let code = unsafe { (self.table.get_device)(&raw mut before) };
        self.check(code, "ask which GPU is in use")?;
        // SAFETY: takes only a number.
        let code = unsafe { (self.table.set_device)(self.number) };
        self.check(code, "use the GPU")?;
        Ok(Current {
            device: self,
            before,
        })
    }

    /// Whether the caller's stream is being captured into a graph.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// The stream is one of the device.
    pub(crate) unsafe fn captures(&self, stream: *mut c_void) -> Result<bool> {
        let mut captures = 0;
        // SAFETY: the caller guarantees a valid stream, and `captures` points to memory for a number.
        let code = unsafe { (self.table.stream_captures)(stream, &raw mut captures) };
        self.check(code, "ask whether a stream is captured")?;
        Ok(captures != 0)
    }

    /// Whether the address is of device, pinned or managed memory that this device can access. Unknown on the host. May
    /// be called while a stream is captured into a graph.
    ///
    /// # Errors
    /// Device.
    pub(crate) fn reaches(&self, memory: *const u8) -> Result<bool> {
        let mut reaches = 0;
        // SAFETY: nothing is read there, and `reaches` points to memory for a number.
        let code = unsafe { (self.table.reaches)(memory.cast(), &raw mut reaches) };
        self.check(code, "ask where memory lies")?;
        Ok(reaches != 0)
    }

    /// Marks bytes that belong to no buffer. Only a sanitizer of the host's kernels uses this.
    pub(crate) fn forbid(&self, memory: *const u8, bytes: u64) {
        // SAFETY: nothing is read or written.
        unsafe { (self.table.forbid)(memory.cast(), bytes) };
    }

    /// Marks bytes that belong to a buffer.
    pub(crate) fn allow(&self, memory: *const u8, bytes: u64) {
        // SAFETY: nothing is read or written.
        unsafe { (self.table.allow)(memory.cast(), bytes) };
    }

    /// Whether both are the same device, so that one can access the other's memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.table, other.table) && self.number == other.number
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

/// Makes a device the calling thread's while it lives.
#[derive(Debug)]
pub struct Current<'a> {
    device: &'a Device,
    before: c_int,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        // SAFETY: takes only a number, which was the thread's device before.
        unsafe { (self.device.table.set_device)(self.before) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_missing_or_too_old_is_named() {
        let trouble = |driver| driver_trouble(driver, 13_000).expect("it does not do");
        assert!(trouble(0).contains("no NVIDIA driver"));
        assert!(trouble(12_080).contains("CUDA 12.8 at most, and this build needs 13"));
        assert_eq!(driver_trouble(13_000, 13_010), None);
        assert_eq!(driver_trouble(14_000, 13_000), None);
        assert_eq!(driver_trouble(0, 0), None);
    }

    #[test]
    fn a_thread_that_answers_kernels_cannot_use_a_device() {
        let device = Device::open(test_target()).expect("it is there");
        let thread = std::thread::spawn(move || {
            answer_kernels();
            drop(device.make_current());
        });
        thread.join().expect_err("it panics");
    }

    #[test]
    fn a_device_says_what_it_is() {
        let device = Device::open(test_target()).expect("it is there");
        assert!(!device.properties().name.is_empty());
        assert!(device.free_bytes().expect("it tells") <= device.properties().memory_bytes);
        let none = Device::find(test_target(), 4711).expect_err("there are fewer");
        assert!(none.what.contains("no GPU number 4711"), "{none}");
    }
}
