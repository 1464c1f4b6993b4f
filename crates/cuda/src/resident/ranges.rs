//! Ranges of keys in device memory.

use std::sync::Arc;

use rockmill_core::{KeyRange, Result};

use super::budget::{Budget, Part};
use crate::driver::ffi::KeyRanges;
use crate::driver::{Device, Stream};

/// Disjoint ranges of keys that ascend.
#[derive(Debug, Clone)]
pub struct Ranges {
    /// Ends of all bounds, followed by their bytes.
    memory: Arc<Part>,
    num_bounds: usize,
}

impl Ranges {
    /// Copies ranges to the device.
    ///
    /// # Errors
    /// Device.
    pub fn new(
        ranges: &[KeyRange],
        budget: &Arc<Budget>,
        device: &Device,
        stream: &Stream,
    ) -> Result<Self> {
        let (ends, bytes) = bounds(ranges);
        let bytes_at = size_of_val(&ends[..]);
        // Words are read whole.
        let len = (bytes_at + bytes.len()).next_multiple_of(size_of::<u64>());
        let _current = device.make_current()?;
        let memory = budget.take(device, len as u64)?;
        // SAFETY: the memory is as long as the data written there, and lives until the stream has been waited for.
        unsafe {
            stream.upload(memory.as_ptr(), ends.as_ptr().cast(), bytes_at)?;
            let to = memory.as_ptr().wrapping_add(bytes_at);
            stream.upload(to, bytes.as_ptr(), bytes.len())?;
        }
        stream.synchronize()?;
        Ok(Self {
            memory: Arc::new(memory),
            num_bounds: ends.len(),
        })
    }

    /// Their device memory in bytes.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// The ranges in the kernels' form.
    pub fn kernel_form(&self) -> KeyRanges {
        let ends = self.memory.as_ptr();
        KeyRanges {
            ends: ends.cast_const().cast(),
            bytes: ends.wrapping_add(self.num_bounds * size_of::<u64>()),
            num_bounds: self.num_bounds as u64,
        }
    }
}

/// Ends of the ranges' bounds among their bytes, and the bytes. An even bound begins a range.
fn bounds(ranges: &[KeyRange]) -> (Vec<u64>, Vec<u8>) {
    let (mut ends, mut bytes) = (Vec::new(), Vec::new());
    for range in ranges {
        let begin = range.begin.as_deref().unwrap_or_default();
        for bound in [Some(begin), range.end.as_deref()].into_iter().flatten() {
            bytes.extend_from_slice(bound);
            ends.push(bytes.len() as u64);
        }
    }
    (ends, bytes)
}
