//! The device on which ways are measured: its memory, and the benchmark's kernels. Each call waits until the device is
//! done, so memory lives as long as a kernel uses it.

mod calls;

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_cuda::{CopyKind, Device, DeviceMemory, MemoryUser, PinnedBuffer, Stream};
use rockmill_view::{Hold, KvRecord, Target};

pub use calls::{Batch, Lists, Requests, Values, Walk};

use super::kernels::{Exec, Table, rockmill_bench_host};

/// Maximum bytes that are copied from the device at a time.
const RETURNED_BYTES: usize = 4 << 20;

/// A device, and a stream of it.
pub struct Gpu {
    device: Device,
    stream: Stream,
    table: &'static Table,
    exec: Exec,
    /// A word in which kernels count, and pinned memory for copies back.
    count: DeviceMemory,
    returned: PinnedBuffer,
}

/// Values in memory of the device.
pub struct Memory<T> {
    memory: DeviceMemory,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Copy> Memory<T> {
    /// A part of the values.
    pub fn part(&self, range: Range<usize>) -> Part<'_, T> {
        assert!(range.start <= range.end && range.end <= self.len);
        let first: *mut T = self.memory.as_ptr().cast();
        Part {
            values: first.wrapping_add(range.start),
            len: range.len(),
            memory: PhantomData,
        }
    }

    /// All values.
    pub fn all(&self) -> Part<'_, T> {
        self.part(0..self.len)
    }
}

/// Values that the device can reach.
#[derive(Clone, Copy)]
pub struct Part<'a, T> {
    values: *mut T,
    len: usize,
    memory: PhantomData<&'a T>,
}

/// Bytes in pinned memory, which the device can read by itself.
pub struct Pinned(PinnedBuffer);

impl Pinned {
    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.0.as_mut()
    }

    /// The bytes at the address that the device uses.
    pub fn all(&self) -> Part<'_, u8> {
        Part {
            values: self.0.as_ptr(),
            len: self.0.len(),
            memory: PhantomData,
        }
    }
}

/// The table in which kernels look keys up.
pub enum Resident {
    /// A view.
    Held(Box<Hold>),
    /// A table that was made on the device, with the memory of its slots and records.
    Made {
        table: Box<KvRecord>,
        _memory: [Memory<u64>; 2],
    },
}

impl Resident {
    fn record(&self) -> KvRecord {
        match self {
            Self::Held(hold) => hold.kv(),
            Self::Made { table, .. } => **table,
        }
    }
}

#[cfg(has_cuda)]
fn gpu_table() -> Result<*const Table> {
    // SAFETY: the function takes nothing and returns the address of a static.
    Ok(unsafe { super::kernels::rockmill_bench_cuda() }.cast())
}

#[cfg(not(has_cuda))]
fn gpu_table() -> Result<*const Table> {
    let what =
        "this build has no GPU backend: it was built without a CUDA compiler or without the feature cuda".to_owned();
    Err(Error::new(ErrorKind::Device, what))
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// Device.
    pub fn open(target: Target) -> Result<Self> {
        let device = Device::open(target)?;
        let table = match target {
            Target::Cuda(_) => gpu_table()?,
            // SAFETY: the function takes nothing and returns the address of a static.
            _ => unsafe { rockmill_bench_host() }.cast(),
        };
        let current = device.make_current()?;
        let stream = Stream::with_staging(&device)?;
        let count = DeviceMemory::new(&device, MemoryUser::Views, size_of::<u64>() as u64)?;
        let returned = PinnedBuffer::new(&device, RETURNED_BYTES)?;
        // The benchmark's kernels run on the current device as long as this lives.
        std::mem::forget(current);
        let exec = Exec {
            stream: stream.as_ptr(),
            scratch: ptr::null_mut(),
            scratch_bytes: 0,
            processors: device.properties().multiprocessors,
            unused: 0,
        };
        Ok(Self {
            device,
            stream,
            // SAFETY: both functions return a static table.
            table: unsafe { &*table },
            exec,
            count,
            returned,
        })
    }

    /// Bytes that were copied to the device and back since the last call.
    pub fn copied_bytes(&self) -> u64 {
        self.stream.take_traffic().iter().sum()
    }

    /// Zeroed memory for `len` values.
    ///
    /// # Errors
    /// Device.
    pub fn memory<T: Copy>(&self, len: usize) -> Result<Memory<T>> {
        let words = (len * size_of::<T>()).div_ceil(size_of::<u64>()).max(1);
        let memory = DeviceMemory::new(
            &self.device,
            MemoryUser::Views,
            (words * size_of::<u64>()) as u64,
        )?;
        // SAFETY: the memory has `words` words.
        let code = unsafe { (self.table.zero)(&self.exec, memory.as_ptr().cast(), words as u64) };
        self.done(code)?;
        Ok(Memory {
            memory,
            len,
            values: PhantomData,
        })
    }

    /// Zeroed pinned memory.
    ///
    /// # Errors
    /// Device.
    pub fn pinned(&self, len: usize) -> Result<Pinned> {
        PinnedBuffer::new(&self.device, len.max(1)).map(Pinned)
    }

    /// Values in memory of the device.
    ///
    /// # Errors
    /// Device.
    pub fn with<T: Copy>(&self, values: &[T]) -> Result<Memory<T>> {
        let memory = self.memory(values.len())?;
        self.write(memory.all(), values)?;
        Ok(memory)
    }

    /// Copies values to the device.
    ///
    /// # Errors
    /// Device.
    pub fn write<T: Copy>(&self, to: Part<'_, T>, values: &[T]) -> Result<()> {
        assert!(values.len() <= to.len);
        // SAFETY: there is room for the values, and the stream is waited for.
        unsafe {
            let from = values.as_ptr().cast();
            (self.stream).upload(to.values.cast(), from, size_of_val(values))?;
        }
        self.done(0)
    }

    /// Copies pinned bytes to the device.
    ///
    /// # Errors
    /// Device.
    pub fn write_pinned<T: Copy>(
        &self,
        to: Part<'_, T>,
        from: &Pinned,
        bytes: Range<usize>,
    ) -> Result<()> {
        assert!(bytes.end <= from.0.len() && bytes.len() <= to.len * size_of::<T>());
        let start = from.0.as_ptr().wrapping_add(bytes.start);
        let to = to.values.cast();
        // SAFETY: source and target have `bytes.len()` bytes, and the stream is waited for.
        unsafe { (self.stream).copy(CopyKind::ToDevice, to, start, bytes.len())? };
        self.done(0)
    }

    /// Values from the device.
    ///
    /// # Errors
    /// Device.
    pub fn read<T: Copy + Default>(&self, from: Part<'_, T>) -> Result<Vec<T>> {
        let mut values = vec![T::default(); from.len];
        let (mut at, bytes) = (0, size_of_val(&values[..]));
        let to: *mut u8 = values.as_mut_ptr().cast();
        while at < bytes {
            let len = (bytes - at).min(self.returned.len());
            self.copy_back(from.values.cast::<u8>().wrapping_add(at), len)?;
            self.done(0)?;
            // SAFETY: source and target have `len` bytes, and the copy before was waited for.
            unsafe { ptr::copy_nonoverlapping(self.returned.as_ptr(), to.wrapping_add(at), len) };
            at += len;
        }
        Ok(values)
    }

    /// Queues a copy of bytes of the device to pinned memory.
    fn copy_back(&self, from: *const u8, len: usize) -> Result<()> {
        assert!(len <= self.returned.len());
        let to = self.returned.as_ptr();
        // SAFETY: source and target have `len` bytes, and the stream is waited for.
        unsafe { (self.stream).copy(CopyKind::FromDevice, to, from.cast_mut(), len) }
    }

    /// Waits for what was queued, and returns its error.
    fn done(&self, code: i32) -> Result<()> {
        let code = match code {
            // SAFETY: it takes the stream, which lives.
            0 => unsafe { (self.table.wait)(&self.exec) },
            code => code,
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the text lives as long as the program.
        let text = unsafe { CStr::from_ptr((self.table.error_text)(code)) };
        let what = format!(
            "a kernel of the benchmark failed: {}",
            text.to_string_lossy()
        );
        Err(Error::new(ErrorKind::Device, what))
    }

    /// Runs a kernel that counts, and waits only once.
    fn counted(&self, kernel: impl FnOnce(*mut u64) -> i32) -> Result<u64> {
        let count: *mut u64 = self.count.as_ptr().cast();
        // SAFETY: the memory is a word.
        let code = match unsafe { (self.table.zero)(&self.exec, count, 1) } {
            0 => kernel(count),
            code => code,
        };
        self.copy_back(count.cast(), size_of::<u64>())?;
        self.done(code)?;
        // SAFETY: the word was copied there.
        Ok(unsafe { self.returned.as_ptr().cast::<u64>().read() })
    }
}
