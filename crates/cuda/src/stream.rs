//! What the device does one after another, and points in it.

use std::ffi::{c_int, c_void};
use std::ptr;

use rockmill_core::Result;

use crate::device::Device;
use crate::ffi::Exec;

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
        let code = unsafe { (device.table().stream_create)(&raw mut handle) };
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
        let code = unsafe { (self.device.table().copy_inside)(to, from, len as u64, self.handle) };
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
        let code =
            unsafe { (self.device.table().copy_to_device)(to, from, len as u64, self.handle) };
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
            unsafe { (self.device.table().copy_from_device)(to, from, len as u64, self.handle) };
        self.device.check(code, "copy from the GPU")
    }

    /// Queues setting `len` bytes to `byte`.
    ///
    /// # Safety
    /// `to` is `len` bytes of the device's memory, which live until the stream has come so far.
    pub(crate) unsafe fn fill(&self, to: *mut c_void, byte: u8, len: usize) -> Result<()> {
        // SAFETY: the caller says so.
        let code =
            unsafe { (self.device.table().fill)(to, c_int::from(byte), len as u64, self.handle) };
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
        unsafe { (self.device.table().stream_destroy)(self.handle) };
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
        let code = unsafe { (device.table().event_create)(&raw mut handle) };
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
        let code = unsafe { (self.device.table().event_record)(self.handle, stream.handle) };
        self.device.check(code, "record an event")
    }

    /// Waits until the device has come here, without using a processor.
    ///
    /// # Errors
    /// Device.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle lives.
        let code = unsafe { (self.device.table().event_synchronize)(self.handle) };
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
            (self.device.table().event_elapsed_ms)(&raw mut ms, earlier.handle, self.handle)
        };
        self.device.check(code, "time work on the GPU")?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { (self.device.table().event_destroy)(self.handle) };
    }
}
