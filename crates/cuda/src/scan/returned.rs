//! Copies data back, and checks that they arrive unchanged.

use rockmill_core::{Result, placed_hash};

use crate::driver::ffi::{HashPart, ScanTotals};
use crate::driver::{Download, altered};
use crate::memory::{DeviceBuffer, DeviceSlice};
use crate::read::{FirstError, ReadState, error_in};

const WORD_BYTES: usize = size_of::<u64>();

/// Values of a buffer of a task, to be copied back.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    from: *const u8,
    len: usize,
}

impl<T> From<DeviceSlice<'_, T>> for Part {
    fn from(of: DeviceSlice<'_, T>) -> Self {
        Self {
            from: of.as_ptr().cast(),
            len: of.len() * size_of::<T>(),
        }
    }
}

/// Words of a part.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u64::from_le_bytes(word)).collect()
}

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

    /// Copies parts of the task's buffers back. It waits once if they have no more bytes than
    /// [`STAGING_BYTES`](crate::driver::STAGING_BYTES). Returns their bytes, and the first error that kernels have recorded.
    ///
    /// # Errors
    /// Verification if the bytes have changed on their way; Device.
    pub fn fetch(
        &mut self,
        read: &ReadState,
        parts: &[Part],
    ) -> Result<(Vec<Vec<u8>>, Option<FirstError>)> {
        self.sum_on_device(read, parts)?;
        let mut all: Vec<_> = parts.iter().map(|part| vec![0; part.len]).collect();
        let (mut totals, mut errors) = ([ScanTotals::default()], [[0; 2]]);
        let copies = parts.iter().zip(&mut all).map(|(part, bytes)| Download {
            from: part.from,
            to: bytes.as_mut_ptr(),
            len: part.len,
        });
        let mut copies: Vec<_> = copies.collect();
        copies.push(self.totals.copy_back(0, &mut totals));
        copies.push(read.ws.errors.copy_back(0, &mut errors));
        // SAFETY: both ends of each copy have its bytes: views guarantee those of the device.
        unsafe { read.ws.stream.download(&mut copies)? };
        all.iter().for_each(|bytes| self.sum_here(bytes));
        self.compare(totals[0])?;
        Ok((all, error_in(errors[0][0])))
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
        self.sum_on_device(read, &[view.into()])?;
        let bytes = |value: &T| Into::<u64>::into(*value).to_le_bytes();
        let bytes = values
            .iter()
            .flat_map(|value| bytes(value).into_iter().take(size_of::<T>()));
        self.sum_here(&bytes.collect::<Vec<_>>());
        Ok(())
    }

    fn sum_on_device(&self, read: &ReadState, parts: &[Part]) -> Result<()> {
        let mut position = self.words;
        let mut part = |part: &Part| {
            let first = position;
            position += part.len.div_ceil(WORD_BYTES) as u64;
            HashPart {
                bytes: part.from,
                len: part.len as u64,
                position: first,
                total: 0,
            }
        };
        let parts: Vec<_> = parts.iter().map(&mut part).collect();
        let (stages, totals) = (read.ws.stages(), self.totals.as_ptr());
        // SAFETY: views guarantee the bytes of the parts.
        unsafe { stages.scan_hash(parts.as_ptr(), parts.len() as u64, totals) }
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
        self.compare(found)
    }

    fn compare(&self, found: ScanTotals) -> Result<()> {
        match found.hash == self.sum {
            true => Ok(()),
            false => Err(altered("a batch changed on its way back")),
        }
    }
}
