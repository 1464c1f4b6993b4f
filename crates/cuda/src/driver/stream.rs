//! Streams, whose work the device does in order, and events at points of a stream.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::{Error, Result};

use super::device::Device;
use super::ffi::Stages;
use super::memory::PinnedBuffer;

/// Pinned memory through which a task's counts and lists go to the device and back.
pub const STAGING_BYTES: usize = 4 << 20;

/// A queue of work that the device does in order.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: *mut c_void,
    /// Bytes to the device and back.
    traffic: [AtomicU64; 2],
    /// Waiting for an event frees the processor for others; waiting for the stream itself would not.
    end: Event,
    /// Events of [`Stream::mark`]. The driver makes and destroys events one at a time, so they stay.
    marks: RefCell<Vec<Event>>,
    staging: Option<RefCell<Staging>>,
}

/// The ends of a copy that are the device's memory; the others are the host's.
#[derive(Debug, Clone, Copy)]
pub enum CopyKind {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    FromDevice,
    /// From the device to the device.
    Inside,
}

/// Bytes to copy back.
#[derive(Debug)]
pub struct Download {
    /// Memory of the device.
    pub from: *const u8,
    /// Memory of the host.
    pub to: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

/// Pinned staging memory. Copies from and to other memory would wait for the stream, and busily.
#[derive(Debug)]
struct Staging {
    memory: PinnedBuffer,
    /// Bytes from the start that queued copies may use.
    used: usize,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// An empty stream.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device) -> Result<Self> {
        // Created first, so that nothing leaks if it fails.
        let end = Event::new(device)?;
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` points to memory for a pointer.
        let code = unsafe { (device.table().stream_create)(&raw mut handle) };
        device.check(code, "make a stream")?;
        Ok(Self {
            device: device.clone(),
            handle,
            traffic: Default::default(),
            end,
            marks: RefCell::default(),
            staging: None,
        })
    }

    /// A stream for [`Stream::upload`] and [`Stream::download`].
    ///
    /// # Errors
    /// Device.
    pub fn with_staging(device: &Device) -> Result<Self> {
        let mut stream = Self::new(device)?;
        let memory = PinnedBuffer::new(device, STAGING_BYTES)?;
        stream.staging = Some(RefCell::new(Staging { memory, used: 0 }));
        Ok(stream)
    }

    /// The stream, for kernels of the caller.
    pub fn as_ptr(&self) -> *mut c_void {
        self.handle
    }

    /// Waits until all work in the stream is done.
    ///
    /// # Errors
    /// Device, also for a failure of work that was queued before.
    pub fn synchronize(&self) -> Result<()> {
        self.end.record(self)?;
        self.end.synchronize()
    }

    /// Records the stream's current end as mark `number`.
    ///
    /// # Errors
    /// Device.
    pub fn mark(&self, number: usize) -> Result<()> {
        let mut marks = self.marks.borrow_mut();
        while marks.len() <= number {
            marks.push(Event::new(&self.device)?);
        }
        marks[number].record(self)
    }

    /// Seconds from mark `number` to the next one. The stream has passed both.
    ///
    /// # Errors
    /// Device.
    pub fn seconds_behind(&self, number: usize) -> Result<f64> {
        let marks = self.marks.borrow();
        match marks.get(number..number + 2) {
            Some([mark, next]) => next.seconds_since(mark),
            _ => Err(Error::internal("a mark of a stream that was not recorded")),
        }
    }

    /// Bytes copied to the device and back since the last call.
    pub fn take_traffic(&self) -> [u64; 2] {
        self.traffic
            .each_ref()
            .map(|bytes| bytes.swap(0, Ordering::Relaxed))
    }

    fn staging(&self) -> Result<&RefCell<Staging>> {
        let missing = || Error::internal("a stream without memory for small copies");
        self.staging.as_ref().ok_or_else(missing)
    }

    /// Queues a copy of `len` bytes to the device. `from` may change once this returns.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// `to` is `len` bytes of the device's memory, which live until the stream has reached this point; `from` is as
    /// many of the host's.
    pub unsafe fn upload(&self, to: *mut u8, from: *const u8, len: usize) -> Result<()> {
        let mut staging = self.staging()?.borrow_mut();
        let mut done = 0;
        while done < len {
            if staging.used == STAGING_BYTES {
                self.synchronize()?;
                staging.used = 0;
            }
            let part = (len - done).min(STAGING_BYTES - staging.used);
            let place = staging.memory.as_ptr().wrapping_add(staging.used);
            // SAFETY: the part lies within both ends and within memory that no copy uses; no other code writes there
            // until the stream has been waited for.
            unsafe {
                ptr::copy_nonoverlapping(from.wrapping_add(done), place, part);
                self.copy(CopyKind::ToDevice, to.wrapping_add(done), place, part)?;
            }
            staging.used += part;
            done += part;
        }
        Ok(())
    }

    /// Copies bytes back and waits for them, and for all work that was queued before. It waits once if they are not
    /// more than `STAGING_BYTES`.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// Every `from` is `len` bytes of the device's memory, its `to` as many of the host's.
    pub unsafe fn download(&self, mut copies: &mut [Download]) -> Result<()> {
        let mut staging = self.staging()?.borrow_mut();
        while !copies.is_empty() {
            // Queued copies come before these.
            let (mut used, mut parts) = (0, Vec::new());
            while let Some(copy) = copies.first_mut() {
                let part = copy.len.min(STAGING_BYTES - used);
                let place = staging.memory.as_ptr().wrapping_add(used);
                if part > 0 {
                    // SAFETY: the part lies within the device's end and within memory that no other part uses.
                    unsafe { self.copy(CopyKind::FromDevice, place, copy.from, part)? };
                    parts.push((place, copy.to, part));
                }
                used += part;
                copy.from = copy.from.wrapping_add(part);
                copy.to = copy.to.wrapping_add(part);
                copy.len -= part;
                if copy.len > 0 {
                    break;
                }
                copies = &mut copies[1..];
            }
            self.synchronize()?;
            staging.used = 0;
            for (place, to, len) in parts {
                // SAFETY: the part lies within the host's end, and its copy has been waited for.
                unsafe { ptr::copy_nonoverlapping(place, to, len) };
            }
        }
        Ok(())
    }

    /// Queues a copy of `len` bytes.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// Source and target are `len` bytes of memory, of the device or the host as `kind` says. They live, and no other
    /// code changes them, until the stream has reached this point.
    pub unsafe fn copy(
        &self,
        kind: CopyKind,
        to: *mut u8,
        from: *const u8,
        len: usize,
    ) -> Result<()> {
        let table = self.device.table();
        let (copy, doing, traffic) = match kind {
            CopyKind::ToDevice => (table.copy_to_device, "copy to the GPU", Some(0)),
            CopyKind::FromDevice => (table.copy_from_device, "copy from the GPU", Some(1)),
            CopyKind::Inside => (table.copy_inside, "copy within the GPU", None),
        };
        // SAFETY: the caller guarantees it.
        let code = unsafe { copy(to.cast(), from.cast(), len as u64, self.handle) };
        self.device.check(code, doing)?;
        if let Some(way) = traffic {
            self.traffic[way].fetch_add(len as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Queues setting `len` bytes to `byte`.
    ///
    /// # Safety
    /// `to` is `len` bytes of the device's memory, which live until the stream has reached this point.
    pub(crate) unsafe fn fill(&self, to: *mut c_void, byte: u8, len: usize) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code =
            unsafe { (self.device.table().fill)(to, c_int::from(byte), len as u64, self.handle) };
        self.device.check(code, "clear memory on the GPU")
    }

    /// The stages, on this stream.
    pub(crate) fn stages(&self, scratch: *mut c_void, scratch_bytes: u64) -> Stages<'_> {
        Stages::new(&self.device, self.handle, scratch, scratch_bytes)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once. Queued work continues; freeing memory waits for it.
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
        // SAFETY: `handle` points to memory for a pointer.
        let code = unsafe { (device.table().event_create)(&raw mut handle) };
        device.check(code, "make an event")?;
        Ok(Self {
            device: device.clone(),
            handle,
        })
    }

    /// Records the stream's current end.
    ///
    /// # Errors
    /// Device.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both handles are valid.
        let code = unsafe { (self.device.table().event_record)(self.handle, stream.handle) };
        self.device.check(code, "record an event")
    }

    /// Records the current end of a stream of the caller, which is not being captured into a graph.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// The stream is one of the device.
    pub unsafe fn record_behind(&self, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller guarantees a valid stream, and the event is valid.
        let code = unsafe { (self.device.table().event_record)(self.handle, stream) };
        self.device.check(code, "record an event")
    }

    /// Whether the device has reached this point. Does not wait.
    ///
    /// # Errors
    /// Device.
    pub fn is_done(&self) -> Result<bool> {
        let mut is_done = 0;
        // SAFETY: the handle is valid, and `is_done` points to memory for a number.
        let code = unsafe { (self.device.table().event_query)(self.handle, &raw mut is_done) };
        self.device
            .check(code, "ask for the progress of a stream")?;
        Ok(is_done != 0)
    }

    /// Waits until the device has reached this point, without using a processor.
    ///
    /// # Errors
    /// Device.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is valid.
        let code = unsafe { (self.device.table().event_synchronize)(self.handle) };
        self.device.check(code, "finish work on the GPU")
    }

    /// Seconds from `earlier` to this event; both have been reached.
    ///
    /// # Errors
    /// Device.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        let mut ms = 0.0;
        // SAFETY: both handles are valid; `ms` points to memory for a float.
        let code = unsafe {
            (self.device.table().event_elapsed_ms)(&raw mut ms, earlier.handle, self.handle)
        };
        self.device.check(code, "time work on the GPU")?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { (self.device.table().event_destroy)(self.handle) };
    }
}
