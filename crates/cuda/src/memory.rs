//! Memory of the device, and host memory that the device can reach.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use rockmill_core::Result;

use crate::device::Device;
use crate::stream::Stream;

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
            let code = unsafe { (self.device.table().allocate)(&raw mut memory, bytes) };
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
            unsafe { (self.device.table().release)(self.memory.cast()) };
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
        unsafe { (self.device.table().release_pinned)(self.memory.cast()) };
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
        let code = unsafe { (device.table().register_host)(memory, len as u64) };
        device.check(code, "register mapped pages")?;
        Ok(Self { device, memory })
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // SAFETY: registered once, unregistered once.
        unsafe { (self.device.table().unregister_host)(self.memory) };
    }
}
