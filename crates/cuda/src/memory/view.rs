//! Views of device memory: where values lie and how many, for as long as the buffer is borrowed. Host code never looks
//! behind them, so that views may go to any thread.

use std::marker::PhantomData;
use std::ops::Range;

/// Values that others may read as well.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    memory: *const T,
    len: usize,
    buffer: PhantomData<&'a T>,
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

// SAFETY: a view is an address that only the device looks behind, and calls to it may come from any thread.
unsafe impl<T> Send for DeviceSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T> Sync for DeviceSlice<'_, T> {}

impl<T> DeviceSlice<'_, T> {
    /// The values at an address.
    ///
    /// # Safety
    /// `len` values lie there, in memory of the device that lives as long as the view.
    pub unsafe fn new(memory: *const T, len: usize) -> Self {
        Self {
            memory,
            len,
            buffer: PhantomData,
        }
    }

    /// Where they begin.
    pub fn as_ptr(&self) -> *const T {
        self.memory
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Some of them.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len);
        Self {
            memory: self.memory.wrapping_add(range.start),
            len: range.len(),
            buffer: PhantomData,
        }
    }
}

/// Values that no other code uses.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    memory: *mut T,
    len: usize,
    buffer: PhantomData<&'a mut T>,
}

// SAFETY: as for `DeviceSlice`.
unsafe impl<T> Send for DeviceSliceMut<'_, T> {}

impl<T> DeviceSliceMut<'_, T> {
    /// The values at an address.
    ///
    /// # Safety
    /// `len` values lie there, in memory of the device that lives as long as the view and has no other.
    pub unsafe fn new(memory: *mut T, len: usize) -> Self {
        Self {
            memory,
            len,
            buffer: PhantomData,
        }
    }

    /// Where they begin.
    pub fn as_ptr(&self) -> *mut T {
        self.memory
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Takes the first `len` values off.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn take(&mut self, len: usize) -> Self {
        assert!(len <= self.len);
        let taken = Self {
            memory: self.memory,
            len,
            buffer: PhantomData,
        };
        self.memory = self.memory.wrapping_add(len);
        self.len -= len;
        taken
    }
}
