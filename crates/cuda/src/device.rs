//! The second and third storeys over [`crate::ffi`]: calls whose error codes are looked at, and types
//! that own what they hold.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use rockmill_core::{Error, ErrorKind, Result};

use crate::ffi::{self, DeviceInfo, Exec, KernelTable, RECORD_BYTES};

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
        device
            .check(code, "look for GPUs")
            .map_err(|e| unusable(format!("{}; is the NVIDIA driver installed?", e.what)))?;
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

/// Memory of the device for values of `T`, which grows when asked and never shrinks.
pub struct DeviceBuffer<T> {
    device: Device,
    memory: *mut T,
    capacity: usize,
}

// SAFETY: the memory belongs to the buffer alone, and the device may be used from any thread.
unsafe impl<T: Send> Send for DeviceBuffer<T> {}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<T: Copy> DeviceBuffer<T> {
    /// A buffer without memory.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            memory: ptr::null_mut(),
            capacity: 0,
        }
    }

    /// Makes room for `len` values; what was there before is lost if the memory has to grow. Returns
    /// where they go.
    ///
    /// # Errors
    /// Device if there is not so much memory.
    pub fn room(&mut self, len: usize) -> Result<*mut T> {
        if len > self.capacity {
            // A quarter more, so that slices that differ a little do not allocate again.
            let capacity = len.saturating_add(len / 4);
            let bytes = (capacity as u64).saturating_mul(size_of::<T>() as u64);
            self.free();
            let mut memory = ptr::null_mut();
            // SAFETY: `memory` is a place for a pointer.
            let code = unsafe { (self.device.table.allocate)(&raw mut memory, bytes) };
            let doing = format!("get {bytes} bytes of device memory");
            self.device.check(code, &doing)?;
            self.memory = memory.cast();
            self.capacity = capacity;
        }
        Ok(self.memory)
    }

    /// Where the values are.
    pub fn as_ptr(&self) -> *mut T {
        self.memory
    }

    /// Copies `values` to the front, making room.
    ///
    /// # Errors
    /// Device.
    pub fn upload(&mut self, values: &[T], stream: &Stream) -> Result<*mut T> {
        let to = self.room(values.len())?;
        self.write(0, values, stream)?;
        Ok(to)
    }

    /// Copies `values` to the place of value `first`.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If the buffer has no room for them.
    pub fn write(&self, first: usize, values: &[T], stream: &Stream) -> Result<()> {
        let to = self.range(first, values.len());
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies in the buffer; `values` are not pinned, so that their bytes are taken
        // before this returns.
        unsafe { stream.copy_to_device(to.cast(), values.as_ptr().cast(), size_of_val(values)) }
    }

    /// Sets every byte of `len` values from `first` on.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If the buffer has no room for so many.
    pub fn fill(&self, first: usize, len: usize, byte: u8, stream: &Stream) -> Result<()> {
        let to = self.range(first, len);
        // SAFETY: the range lies in the buffer, and what is queued before may still use it, since streams
        // keep the order.
        unsafe { stream.fill(to.cast(), byte, len * size_of::<T>()) }
    }

    /// Where `len` values from `first` on are.
    fn range(&self, first: usize, len: usize) -> *mut T {
        assert!(first <= self.capacity && len <= self.capacity - first);
        self.memory.wrapping_add(first)
    }

    /// Copies `len` values from `first` on back and waits for them.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If the buffer has no room for so many.
    pub fn download(&self, first: usize, len: usize, stream: &Stream) -> Result<Vec<T>>
    where
        T: Default,
    {
        let from = self.range(first, len);
        // A copy to memory that is not pinned waits busily for what was queued before.
        stream.synchronize()?;
        let mut values = vec![T::default(); len];
        // SAFETY: both ends hold `len` values, and this waits for the copy.
        unsafe {
            stream.copy_from_device(
                values.as_mut_ptr().cast(),
                from.cast(),
                size_of_val(&*values),
            )?;
        }
        stream.synchronize()?;
        Ok(values)
    }
}

impl<T> DeviceBuffer<T> {
    fn free(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: the memory came from `allocate` and is given back once. A failure here is one of
            // work before; it shows again at the next call.
            unsafe { (self.device.table.release)(self.memory.cast()) };
            self.memory = ptr::null_mut();
            self.capacity = 0;
        }
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        self.free();
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
        // SAFETY: `memory` is a place for a pointer.
        let code = unsafe { (device.table.allocate_pinned)(&raw mut memory, len as u64) };
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

    /// The bytes. No copy to them may be on its way.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is `len` initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.memory, self.len) }
    }

    /// The bytes. No copy may be on its way.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `bytes`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) }
    }

    /// Where the bytes are.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the memory came from `allocate_pinned` and is given back once.
        unsafe { (self.device.table.release_pinned)(self.memory.cast()) };
    }
}

/// Host memory of another owner, registered so that the device can copy from it by itself.
#[derive(Debug)]
pub struct Registration<'a> {
    device: &'a Device,
    memory: *mut c_void,
}

impl<'a> Registration<'a> {
    /// Registers whole pages for reading.
    ///
    /// # Errors
    /// Device: not every file system's pages can be registered.
    ///
    /// # Safety
    /// The range is mapped, and stays mapped until the registration is dropped.
    pub unsafe fn new(device: &'a Device, memory: *mut c_void, len: usize) -> Result<Self> {
        // SAFETY: the caller says that the range is mapped.
        let code = unsafe { (device.table.register_host)(memory, len as u64) };
        device.check(code, "register mapped pages")?;
        Ok(Self { device, memory })
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // SAFETY: registered once, unregistered once.
        unsafe { (self.device.table.unregister_host)(self.memory) };
    }
}

/// An order in which the device does things.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: *mut c_void,
    /// Waiting for an event leaves the processor to others; waiting for the stream itself would not.
    end: Event,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream with nothing in it.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a place for a pointer.
        let code = unsafe { (device.table.stream_create)(&raw mut handle) };
        device.check(code, "make a stream")?;
        Ok(Self {
            device: device.clone(),
            handle,
            end: Event::new(device)?,
        })
    }

    /// Waits until everything in the stream is done.
    ///
    /// # Errors
    /// Device, also if something that was queued before has failed.
    pub fn synchronize(&self) -> Result<()> {
        self.end.record(self)?;
        self.end.synchronize()
    }

    /// Queues a copy of `len` bytes within the device's memory.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// As [`Stream::copy_to_device`], but both ends are the device's.
    pub unsafe fn copy_inside(
        &self,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
    ) -> Result<()> {
        // SAFETY: the caller says so.
        let code = unsafe { (self.device.table.copy_inside)(to, from, len as u64, self.handle) };
        self.device.check(code, "copy within the GPU")
    }

    /// Queues a copy of `len` bytes.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// Both ends are `len` bytes of memory of which one is the device's; they live, and nobody else changes
    /// them, until the stream has come so far. From memory that is not pinned the bytes are taken before this
    /// returns.
    pub unsafe fn copy_to_device(
        &self,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
    ) -> Result<()> {
        // SAFETY: the caller says so.
        let code = unsafe { (self.device.table.copy_to_device)(to, from, len as u64, self.handle) };
        self.device.check(code, "copy to the GPU")
    }

    /// Queues a copy of `len` bytes back.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// As [`Stream::copy_to_device`].
    pub unsafe fn copy_from_device(
        &self,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
    ) -> Result<()> {
        // SAFETY: the caller says so.
        let code =
            unsafe { (self.device.table.copy_from_device)(to, from, len as u64, self.handle) };
        self.device.check(code, "copy from the GPU")
    }

    /// Queues setting `len` bytes to `byte`.
    ///
    /// # Safety
    /// `to` is `len` bytes of the device's memory, which live until the stream has come so far.
    unsafe fn fill(&self, to: *mut c_void, byte: u8, len: usize) -> Result<()> {
        // SAFETY: the caller says so.
        let code =
            unsafe { (self.device.table.fill)(to, c_int::from(byte), len as u64, self.handle) };
        self.device.check(code, "clear memory on the GPU")
    }

    /// What stages are called with.
    pub(crate) fn exec(&self, scratch: *mut c_void, scratch_bytes: u64) -> Exec {
        Exec {
            stream: self.handle,
            scratch,
            scratch_bytes,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once. Work that is still queued goes on; giving memory back waits
        // for it.
        unsafe { (self.device.table.stream_destroy)(self.handle) };
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: *mut c_void,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// An event that was not recorded.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a place for a pointer.
        let code = unsafe { (device.table.event_create)(&raw mut handle) };
        device.check(code, "make an event")?;
        Ok(Self {
            device: device.clone(),
            handle,
        })
    }

    /// Marks where the stream is now.
    ///
    /// # Errors
    /// Device.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both handles live.
        let code = unsafe { (self.device.table.event_record)(self.handle, stream.handle) };
        self.device.check(code, "record an event")
    }

    /// Waits until the device has come here, without using a processor.
    ///
    /// # Errors
    /// Device.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle lives.
        let code = unsafe { (self.device.table.event_synchronize)(self.handle) };
        self.device.check(code, "finish work on the GPU")
    }

    /// Seconds from `earlier` to here; both have been reached.
    ///
    /// # Errors
    /// Device.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        let mut ms = 0.0;
        // SAFETY: both handles live; `ms` is a place for a float.
        let code = unsafe {
            (self.device.table.event_elapsed_ms)(&raw mut ms, earlier.handle, self.handle)
        };
        self.device.check(code, "time work on the GPU")?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { (self.device.table.event_destroy)(self.handle) };
    }
}
