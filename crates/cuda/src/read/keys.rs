//! User keys that belong to no entry, to be copied to the device: bounds, and the ends of files elsewhere in the tree.

use std::ptr::null;

use rockmill_core::{DeeperLevels, Fragments, Grandparent, KeyRange, Result, key_prefix};

use crate::driver::Stream;
use crate::driver::ffi::{self, Fragment, KeySpan, UserKey};
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
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Key `i`; the bytes of all keys are at `memory` on the device.
    fn at(&self, i: usize, memory: *const u8) -> UserKey {
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

    fn upload(&self, memory: &mut DeviceBuffer<u8>, stream: &Stream) -> Result<*const u8> {
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

/// Fragments of range tombstones, to be copied to the device.
#[derive(Debug, Default)]
pub struct FragmentKeys {
    keys: UserKeys,
    sequences: Vec<u64>,
    /// Ends of the sequence numbers of each fragment.
    ends: Vec<usize>,
}

impl FragmentKeys {
    /// Those that have keys of a range, clipped to it.
    pub fn in_range(fragments: &Fragments, range: &KeyRange) -> Self {
        let mut all = Self::default();
        for (begin, end, sequences) in fragments.in_range(range) {
            all.keys.push(begin);
            all.keys.push(end);
            all.sequences.extend_from_slice(sequences);
            all.ends.push(all.sequences.len());
        }
        all
    }

    /// Number of fragments.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Copies all to the device. Returns null pointers if there are none.
    ///
    /// # Errors
    /// Device.
    pub fn upload(
        &self,
        fragments: &mut DeviceBuffer<Fragment>,
        bytes: &mut DeviceBuffer<u8>,
        sequences: &mut DeviceBuffer<u64>,
        stream: &Stream,
    ) -> Result<(*const Fragment, *const u64)> {
        if self.len() == 0 {
            return Ok((null(), null()));
        }
        let at = self.keys.upload(bytes, stream)?;
        let mut first = 0;
        let fragment = |(i, &end): (usize, &usize)| Fragment {
            begin: self.keys.at(2 * i, at),
            end: self.keys.at(2 * i + 1, at),
            first: std::mem::replace(&mut first, end as u64),
            last: end as u64,
        };
        let all: Vec<_> = self.ends.iter().enumerate().map(fragment).collect();
        let numbers = sequences.upload(&self.sequences, stream)?;
        Ok((fragments.upload(&all, stream)?, numbers))
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
