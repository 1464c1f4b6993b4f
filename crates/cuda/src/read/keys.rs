//! User keys that belong to no entry, to be copied to the device: bounds, and the ends of files elsewhere in the tree.

use rockmill_core::{DeeperLevels, Grandparent, Result, key_prefix};

use crate::driver::Stream;
use crate::driver::ffi::{self, KeySpan, UserKey};
use crate::memory::DeviceBuffer;

/// Bytes that kernels may read in front of and behind keys (`types.hpp:ARENA_PADDING`): words are read whole.
pub const KEY_PADDING: usize = ffi::ARENA_PADDING as usize;

/// User keys up to this length are stored in their records (`types.hpp:WORD_KEY_BYTES`).
pub const WORD_KEY_BYTES: u64 = ffi::WORD_KEY_BYTES as u64;

/// User keys that are copied to the device together, with their bytes.
#[derive(Debug, Default)]
pub struct UserKeys {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl UserKeys {
    /// Adds a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Key `i`; the bytes of all keys are at `memory` on the device.
    pub fn at(&self, i: usize, memory: *const u8) -> UserKey {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        let key = &self.bytes[start..self.ends[i]];
        let prefix = key_prefix(key);
        UserKey {
            hi: (prefix >> 64) as u64,
            lo: prefix as u64,
            bytes: memory.wrapping_add(start),
            len: key.len() as u32,
            present: 1,
        }
    }

    /// Copies the bytes of all keys to the device.
    ///
    /// # Errors
    /// Device.
    pub fn upload(&self, memory: &mut DeviceBuffer<u8>, stream: &Stream) -> Result<*const u8> {
        let padded = [&[0; KEY_PADDING], &self.bytes[..], &[0; KEY_PADDING]].concat();
        Ok(memory.upload(&padded, stream)?.wrapping_add(KEY_PADDING))
    }

    /// The bounds of a range.
    ///
    /// # Errors
    /// Device.
    pub fn bounds(
        bounds: [Option<&[u8]>; 2],
        memory: &mut DeviceBuffer<u8>,
        stream: &Stream,
    ) -> Result<[UserKey; 2]> {
        let mut keys = Self::default();
        bounds
            .iter()
            .for_each(|key| keys.push(key.unwrap_or_default()));
        let at = keys.upload(memory, stream)?;
        Ok([0, 1].map(|i| UserKey {
            present: u32::from(bounds[i].is_some()),
            ..keys.at(i, at)
        }))
    }
}

/// Files of other levels, to be copied to the device.
#[derive(Debug, Default)]
pub struct Spans {
    keys: UserKeys,
    sizes: Vec<u64>,
}

impl Spans {
    fn push(&mut self, first: &[u8], last: &[u8], size: u64) {
        self.keys.push(first);
        self.keys.push(last);
        self.sizes.push(size);
    }

    /// Files at whose ends output files are split.
    pub fn grandparents(files: &[Grandparent]) -> Self {
        let mut spans = Self::default();
        for file in files {
            spans.push(&file.smallest, &file.largest, file.size);
        }
        spans
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Copies all to the device.
    ///
    /// # Errors
    /// Device.
    pub fn upload(
        &self,
        spans: &mut DeviceBuffer<KeySpan>,
        bytes: &mut DeviceBuffer<u8>,
        stream: &Stream,
    ) -> Result<*const KeySpan> {
        let at = self.keys.upload(bytes, stream)?;
        let span = |(i, &file_size): (usize, &u64)| KeySpan {
            first: self.keys.at(2 * i, at),
            last: self.keys.at(2 * i + 1, at),
            file_size,
        };
        let all: Vec<_> = self.sizes.iter().enumerate().map(span).collect();
        Ok(spans.upload(&all, stream)?)
    }
}

/// Files of deeper levels: spans, the end of each level among them, and whether these levels may contain any key.
#[derive(Debug, Default)]
pub struct DeeperFiles {
    pub spans: Spans,
    pub level_ends: Vec<u32>,
    pub unknown: bool,
}

/// Collects them.
pub fn deeper(ranges: &DeeperLevels) -> DeeperFiles {
    let mut deeper = DeeperFiles::default();
    match ranges {
        DeeperLevels::Nothing => {}
        DeeperLevels::Unknown => deeper.unknown = true,
        DeeperLevels::Files(levels) => {
            for files in levels {
                for (first, last) in files {
                    deeper.spans.push(first, last, 0);
                }
                deeper.level_ends.push(deeper.spans.len() as u32);
            }
        }
    }
    deeper
}
