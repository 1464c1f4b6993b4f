//! What the stages on the device leave to other backends, and plans in the device's words.

use rockmill_core::{
    Error, ErrorKind, Grandparent, InputTable, Plan, RangesBeneath, Result, key_prefix,
};
use rockmill_format::compression::Compressor;
use rockmill_format::filter::{FilterFormat, FilterOptions};
use rockmill_format::prefix::PrefixExtractor;

use crate::buffer::DeviceBuffer;
use crate::ffi::{FilterRules, KeySpan, UserKey};
use crate::stream::Stream;

/// An error that says that another backend must do the job.
pub fn refused(what: impl Into<String>) -> Error {
    Error::new(
        ErrorKind::Device,
        format!("the GPU backend does not do this yet: {}", what.into()),
    )
}

/// Looks whether the stages can do `plan` over `inputs`.
///
/// # Errors
/// Device, saying what they cannot do.
pub fn check(plan: &Plan, inputs: &[InputTable]) -> Result<()> {
    let table = &plan.table;
    let stored = Compressor::new(&table.compression).is_ok_and(|c| c.is_stored());
    let compressed_input = |input: &InputTable| {
        let properties = &input.meta.properties;
        // Before trailers.
        properties.uncompressed_data_size > properties.data_size
    };
    let refusals = [
        (!stored, "compression"),
        (inputs.iter().any(compressed_input), "compressed inputs"),
        (
            plan.cutting.size_is_upper_bound,
            "target_file_size_is_upper_bound",
        ),
    ];
    match refusals.iter().find(|(is, _)| *is) {
        Some((_, what)) => Err(refused(*what)),
        None => Ok(()),
    }
}

/// `types.hpp:FilterFormat` and `PrefixKind`.
const FAST_LOCAL: u32 = 1;
const LEGACY: u32 = 2;
const FIXED: u32 = 1;
const CAPPED: u32 = 2;

/// What goes into filters.
pub fn filter_rules(filter: Option<FilterOptions>) -> FilterRules {
    let Some(filter) = filter.filter(|filter| filter.millibits_per_key > 0) else {
        return FilterRules::default();
    };
    let (prefix_kind, prefix_len) = match filter.prefix_extractor {
        None => (0, 0),
        Some(PrefixExtractor::Fixed(len)) => (FIXED, len),
        Some(PrefixExtractor::Capped(len)) => (CAPPED, len),
    };
    FilterRules {
        format: match filter.format {
            FilterFormat::FastLocalBloom => FAST_LOCAL,
            FilterFormat::Legacy => LEGACY,
        },
        whole_keys: u32::from(filter.whole_key_filtering),
        prefix_kind,
        unused: 0,
        prefix_len: prefix_len as u64,
    }
}

/// Whether some keys may have no prefix.
pub fn may_lack_prefix(rules: &FilterRules) -> bool {
    rules.prefix_kind == FIXED
}

/// Bytes that kernels may read in front of and behind keys (`types.hpp:ARENA_PADDING`): words are read whole.
pub const KEY_PADDING: usize = 64;

/// User keys that go to the device together, with their bytes.
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

    /// Key `i`, whose bytes are all at `memory` on the device.
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

/// Files of other levels, on their way to the device.
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

    /// Files whose ends decide where files are cut.
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

/// Files beneath the output: spans, the end of each level among them, and whether anything may lie there.
#[derive(Debug, Default)]
pub struct Beneath {
    pub spans: Spans,
    pub level_ends: Vec<u32>,
    pub unknown: bool,
}

/// What lies beneath.
pub fn beneath(ranges: &RangesBeneath) -> Beneath {
    let mut beneath = Beneath::default();
    match ranges {
        RangesBeneath::Nothing => {}
        RangesBeneath::Unknown => beneath.unknown = true,
        RangesBeneath::Files(levels) => {
            for files in levels {
                for (first, last) in files {
                    beneath.spans.push(first, last, 0);
                }
                beneath.level_ends.push(beneath.spans.len() as u32);
            }
        }
    }
    beneath
}
