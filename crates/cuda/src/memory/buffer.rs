//! Values of a task in the device's memory.

use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use rockmill_core::{Error, Lock, Result};

use super::device_arena::{Allocation, DeviceArena};
use super::regions::ALIGNMENT;
use super::view::{DeviceSlice, DeviceSliceMut};
use crate::driver::{CopyKind, Download, MemoryUser, Stream};

/// Device memory of one task. Its buffers take one place after another; all of it is released at once.
#[derive(Debug)]
pub struct TaskArena {
    device_arena: Arc<DeviceArena>,
    user: MemoryUser,
    taken: Lock<TaskAllocations>,
}

#[derive(Debug)]
struct TaskAllocations {
    /// The estimated memory, and allocations beyond it.
    allocations: Vec<Allocation>,
    /// Bytes in use of the last allocation.
    used: u64,
}

impl TaskArena {
    /// An arena of a task of `user` in the memory of `allocation`, and in further memory of the device's arena if that does not
    /// suffice.
    pub fn new(
        device_arena: &Arc<DeviceArena>,
        user: MemoryUser,
        allocation: Allocation,
    ) -> Arc<Self> {
        Arc::new(Self {
            device_arena: Arc::clone(device_arena),
            user,
            taken: Lock::new(TaskAllocations {
                allocations: vec![allocation],
                used: 0,
            }),
        })
    }

    /// Takes `bytes`.
    fn take(&self, bytes: u64) -> Result<*mut u8> {
        let mut taken = self.taken.lock();
        let left = taken.allocations.last().map_or(0, Allocation::len) - taken.used;
        if bytes > left {
            let more = self.device_arena.take_now(self.user, bytes)?;
            taken.allocations.push(more);
            taken.used = 0;
        }
        let used = taken.used as usize;
        taken.used += bytes;
        let allocation = taken.allocations.last().map(Allocation::as_ptr);
        allocation
            .map(|start| start.wrapping_add(used))
            .ok_or_else(|| Error::internal("an arena without memory"))
    }
}

/// Bytes that a buffer of `len` values takes of an arena: one value more, so that a count behind the last value does
/// not move it.
pub const fn space<T>(len: u64) -> u64 {
    let bytes = len.saturating_add(1).saturating_mul(size_of::<T>() as u64);
    bytes.saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
}

/// Device memory for values of `T`, which grows on request and lasts as long as the arena.
pub struct DeviceBuffer<T> {
    arena: Arc<TaskArena>,
    memory: *mut T,
    capacity: usize,
}

// SAFETY: only the buffer owns the memory, and the device may be used from any thread.
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
    pub fn new(arena: &Arc<TaskArena>) -> Self {
        Self {
            arena: Arc::clone(arena),
            memory: ptr::null_mut(),
            capacity: 0,
        }
    }

    /// Makes room for `len` values and returns its address. If the buffer has to grow, its contents are lost, but
    /// queued work may still use them.
    ///
    /// # Errors
    /// Device if the device has too little memory.
    pub fn room(&mut self, len: usize) -> Result<*mut T> {
        if len > self.capacity {
            let bytes = space::<T>(len as u64);
            self.memory = self.arena.take(bytes)?.cast();
            self.capacity = bytes as usize / size_of::<T>();
        }
        let bytes = len * size_of::<T>();
        let device = self.arena.device_arena.device();
        device.allow(self.memory.cast(), bytes as u64);
        Ok(self.memory)
    }

    /// Makes room for `len` values behind the first `used` ones, which are kept.
    ///
    /// # Errors
    /// Device if the device has too little memory.
    pub fn grow(&mut self, used: usize, len: usize, stream: &Stream) -> Result<*mut T> {
        let before = self.memory;
        let memory = self.room(used.saturating_add(len))?;
        if memory != before && used > 0 {
            // SAFETY: the arena keeps the buffer's earlier memory, and both ends have room for `used` values.
            unsafe {
                let bytes = used * size_of::<T>();
                stream.copy(CopyKind::Inside, memory.cast(), before.cast(), bytes)?;
            }
        }
        Ok(memory)
    }

    /// Makes room for `len` values, and returns a view of them.
    ///
    /// # Errors
    /// Device if the device has too little memory.
    pub fn room_view(&mut self, len: usize) -> Result<DeviceSliceMut<'_, T>> {
        let memory = self.room(len)?;
        // SAFETY: there is room for `len` values, and the buffer is borrowed exclusively.
        Ok(unsafe { DeviceSliceMut::new(memory, len) })
    }

    /// Values of a range.
    ///
    /// # Panics
    /// If the buffer has less room.
    pub fn view(&self, range: Range<usize>) -> DeviceSlice<'_, T> {
        let memory = self.range(range.start, range.len());
        // SAFETY: the range lies in the buffer, which is borrowed as long.
        unsafe { DeviceSlice::new(memory, range.len()) }
    }

    /// Address of the values.
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
    /// If the buffer has too little room.
    pub fn write(&self, first: usize, values: &[T], stream: &Stream) -> Result<()> {
        let to = self.range(first, values.len());
        // SAFETY: the range lies in the buffer. Work that was queued before may still use it, since streams keep the
        // order.
        unsafe { stream.upload(to.cast(), values.as_ptr().cast(), size_of_val(values)) }
    }

    /// Sets every byte of `len` values from `first` on.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If the buffer has too little room.
    pub fn fill(&self, first: usize, len: usize, byte: u8, stream: &Stream) -> Result<()> {
        let to = self.range(first, len);
        // SAFETY: as in `write`.
        unsafe { stream.fill(to.cast(), byte, len * size_of::<T>()) }
    }

    /// Copies `len` values from `first` on back and waits for them.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If the buffer has too little room.
    pub fn download(&self, first: usize, len: usize, stream: &Stream) -> Result<Vec<T>>
    where
        T: Default,
    {
        let mut values = vec![T::default(); len];
        let copy = self.copy_back(first, &mut values);
        // SAFETY: both ends have `len` values; the records are plain, so any bytes from kernels are valid values.
        unsafe { stream.download(&mut [copy])? };
        Ok(values)
    }

    /// The same, with the first value of another buffer.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If a buffer has too little room.
    pub fn download_with<U>(
        &self,
        first: usize,
        len: usize,
        other: &DeviceBuffer<U>,
        stream: &Stream,
    ) -> Result<(Vec<T>, U)>
    where
        T: Default,
        U: Copy + Default,
    {
        let (mut values, mut one) = (vec![T::default(); len], [U::default()]);
        let copies = &mut [
            self.copy_back(first, &mut values),
            other.copy_back(0, &mut one),
        ];
        // SAFETY: as in `download`.
        unsafe { stream.download(copies)? };
        Ok((values, one[0]))
    }

    /// A copy of values from `first` on to the host.
    ///
    /// # Panics
    /// If the buffer has too little room.
    pub fn copy_back(&self, first: usize, values: &mut [T]) -> Download {
        Download {
            from: self.range(first, values.len()).cast(),
            to: values.as_mut_ptr().cast(),
            len: size_of_val(values),
        }
    }

    /// Address of `len` values from `first` on.
    fn range(&self, first: usize, len: usize) -> *mut T {
        assert!(first <= self.capacity && len <= self.capacity - first);
        self.memory.wrapping_add(first)
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::{CancelToken, DeclineReason, ErrorKind};

    use super::*;
    use crate::driver::{Device, STAGING_BYTES, test_target};

    fn arena(bytes: u64, max_bytes: u64) -> (Stream, Arc<TaskArena>) {
        let device = Device::open(test_target()).expect("the device opens");
        let device_arena = DeviceArena::new(&device, Some(max_bytes)).expect("a budget");
        let allocation = device_arena.take(bytes, &CancelToken::new());
        let stream = Stream::with_staging(&device).expect("a stream");
        (
            stream,
            TaskArena::new(&device_arena, MemoryUser::Tasks, allocation.expect("room")),
        )
    }

    #[test]
    fn what_goes_up_comes_back_however_long_it_is() {
        let (stream, arena) = arena(1 << 20, 64 << 20);
        for len in [0, 1, 1000, STAGING_BYTES / 4, STAGING_BYTES / 4 * 3 + 5] {
            let values: Vec<u32> = (0..len as u32).collect();
            let mut buffer = DeviceBuffer::new(&arena);
            buffer.upload(&values, &stream).expect("room");
            let found = buffer.download(0, len, &stream).expect("copies");
            assert!(found == values, "{len}");
            let mut other = DeviceBuffer::new(&arena);
            other.upload(&[len], &stream).expect("room");
            let both = buffer.download_with(0, len, &other, &stream);
            assert!(both.expect("copies") == (values, len), "{len}");
        }
    }

    #[test]
    fn small_uploads_do_not_overwrite_one_another() {
        const TIMES: usize = 3;
        let (stream, arena) = arena(16 << 20, 64 << 20);
        let len = STAGING_BYTES / size_of::<u64>() / TIMES * 2;
        let buffers: Vec<_> = (0..TIMES as u64)
            .map(|i| {
                let mut buffer = DeviceBuffer::new(&arena);
                buffer.upload(&vec![i; len], &stream).expect("room");
                buffer
            })
            .collect();
        for (i, buffer) in (0..).zip(&buffers) {
            let found = buffer.download(0, len, &stream).expect("copies");
            assert!(found == vec![i; len], "{i}");
        }
    }

    #[test]
    fn what_was_not_foreseen_is_got_if_there_is_some_and_refused_if_not() {
        let (stream, arena) = arena(4 << 10, 16 << 10);
        let mut buffers: Vec<_> = (0..4).map(|_| DeviceBuffer::<u8>::new(&arena)).collect();
        for buffer in &mut buffers[..3] {
            buffer.upload(&[7; 3 << 10], &stream).expect("room");
        }
        let error = buffers[3].room(8 << 10).expect_err("there is no more");
        assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
        for buffer in &buffers[..3] {
            let found = buffer.download(0, 3 << 10, &stream).expect("copies");
            assert_eq!(found, [7; 3 << 10]);
        }
    }
}
