//! Copies data back, and checks that they arrive unchanged.

use rockmill_core::{Result, placed_hash};

use crate::driver::altered;
use crate::driver::ffi::ScanTotals;
use crate::memory::DeviceBuffer;
use crate::read::ReadState;

const WORD_BYTES: usize = size_of::<u64>();

/// Copies bytes back, while the device sums its words and the host those that arrive.
pub struct Returned {
    totals: DeviceBuffer<ScanTotals>,
    words: u64,
    sum: u64,
}

impl Returned {
    /// Nothing yet.
    ///
    /// # Errors
    /// Device.
    pub fn new(read: &ReadState) -> Result<Self> {
        let mut totals = DeviceBuffer::new(&read.ws.arena);
        totals.upload(&[ScanTotals::default()], &read.ws.stream)?;
        Ok(Self {
            totals,
            words: 0,
            sum: 0,
        })
    }

    /// Copies back parts of a buffer, each with its first byte and its number of bytes.
    ///
    /// # Errors
    /// Device.
    pub fn parts(
        &mut self,
        read: &ReadState,
        buffer: &DeviceBuffer<u8>,
        parts: &[(u64, usize)],
    ) -> Result<Vec<Vec<u8>>> {
        let mut at = self.words;
        for &(first, len) in parts {
            let view = buffer.view(first as usize..first as usize + len);
            self.sum_on_device(read, at, view.as_ptr(), len)?;
            at += len.div_ceil(WORD_BYTES) as u64;
        }
        let parts = buffer.download_parts(parts, &read.ws.stream)?;
        parts.iter().for_each(|bytes| self.sum_here(bytes));
        Ok(parts)
    }

    /// Copies back the first `len` words.
    ///
    /// # Errors
    /// Device.
    pub fn words(
        &mut self,
        read: &ReadState,
        buffer: &DeviceBuffer<u64>,
        len: usize,
    ) -> Result<Vec<u64>> {
        let view = buffer.view(0..len);
        self.sum_on_device(read, self.words, view.as_ptr().cast(), len * WORD_BYTES)?;
        let words = buffer.download(0, len, &read.ws.stream)?;
        words.iter().for_each(|word| self.sum_word(*word));
        Ok(words)
    }

    /// Copies back a count.
    ///
    /// # Errors
    /// Device.
    pub fn count<T: Copy + Default + Into<u64>>(
        &mut self,
        read: &ReadState,
        buffer: &DeviceBuffer<T>,
        at: usize,
    ) -> Result<u64> {
        let view = buffer.view(at..at + 1);
        self.sum_on_device(read, self.words, view.as_ptr().cast(), size_of::<T>())?;
        let count = buffer.download(at, 1, &read.ws.stream)?[0].into();
        self.sum_here(&count.to_le_bytes());
        Ok(count)
    }

    /// Takes values into account that were copied back from the start of a buffer.
    ///
    /// # Errors
    /// Device.
    pub fn values<T: Copy + Into<u64>>(
        &mut self,
        read: &ReadState,
        buffer: &DeviceBuffer<T>,
        values: &[T],
    ) -> Result<()> {
        let view = buffer.view(0..values.len());
        self.sum_on_device(read, self.words, view.as_ptr().cast(), size_of_val(values))?;
        let bytes = |value: &T| Into::<u64>::into(*value).to_le_bytes();
        let bytes = values
            .iter()
            .flat_map(|value| bytes(value).into_iter().take(size_of::<T>()));
        self.sum_here(&bytes.collect::<Vec<_>>());
        Ok(())
    }

    /// `at` is the number of words in front of these.
    fn sum_on_device(&self, read: &ReadState, at: u64, from: *const u8, len: usize) -> Result<()> {
        let (stages, totals) = (read.ws.stages(), self.totals.as_ptr());
        // SAFETY: the view guarantees `len` bytes.
        unsafe { stages.scan_hash(from, len as u64, at, totals) }
    }

    fn sum_here(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        let mut last = [0; WORD_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(last);
        for word in words.iter().copied().chain(last) {
            self.sum_word(u64::from_le_bytes(word));
        }
    }

    fn sum_word(&mut self, word: u64) {
        self.sum = self.sum.wrapping_add(placed_hash(word, self.words));
        self.words += 1;
    }

    /// Checks that all data so far have arrived unchanged.
    ///
    /// # Errors
    /// Verification if they have not; Device.
    pub fn check(&self, read: &ReadState) -> Result<()> {
        let found = self.totals.download(0, 1, &read.ws.stream)?[0];
        match found.hash == self.sum {
            true => Ok(()),
            false => Err(altered("a batch changed on its way back")),
        }
    }
}
