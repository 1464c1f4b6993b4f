//! Encodes keys and aggregates of groups for the kernels.

use rockmill_core::scan::{Aggregate, Aggregation, ColumnType, GROUP_BYTES, Register, ValueKind};

use super::super::layout::stored_code;
use super::{Encoder, integer_bytes};
use crate::driver::ffi::{self, ScanArgument, ScanGroupKey};

/// Words of a sum.
pub const SUM_WORDS: usize = ffi::SCAN_SUM_WORDS as usize;

/// `groups.hpp:GroupKey`: bytes of a row's keys.
const KEY_BYTES: u32 = ffi::SCAN_KEY_WORDS * ffi::SCAN_KEY_WORD_BYTES;

/// Maximum number of groups on the device, and maximum words of each: 8 MiB in a table that is half full.
const MOST_GROUPS: u64 = 4096;
const MOST_WORDS: u32 = 128;

// The host does not pass on these groups early: it takes up to 9 bytes for a key that takes 2 on the device.
const _: () = assert!(MOST_GROUPS as usize * KEY_BYTES as usize * 9 / 2 <= GROUP_BYTES);

/// Encoded keys and aggregates of groups.
#[derive(Debug)]
pub struct EncodedGroups {
    pub keys: Vec<ScanGroupKey>,
    pub arguments: Vec<ScanArgument>,
    /// Register of each argument.
    pub registers: Vec<(Register, ValueKind)>,
    /// `types.hpp:ScanGroups`.
    pub num_words: u32,
    /// Maximum number of groups on the device.
    pub most: u64,
}

impl Encoder<'_> {
    /// Encodes keys and aggregates of groups; `None` if they are too large.
    pub(super) fn groups(&self, aggregation: &Aggregation) -> Option<EncodedGroups> {
        let mut groups = EncodedGroups {
            keys: Vec::new(),
            arguments: Vec::new(),
            registers: Vec::new(),
            num_words: 1,
            most: MOST_GROUPS.min(aggregation.max_groups.into()),
        };
        let mut key_bytes = 0;
        for key in &aggregation.keys {
            let (stored, bytes) = stored_code(key.stored);
            // Whether it is not null, and the integer or the number of bytes.
            let is_bytes = key.stored == ColumnType::Bytes;
            key_bytes += 1 + if is_bytes { 1 } else { bytes };
            groups.keys.push(ScanGroupKey {
                operand: self.operand(key.register)?,
                stored,
                bytes,
                unused: 0,
            });
        }
        for aggregate in &aggregation.aggregates {
            let (register, needed) = match *aggregate {
                Aggregate::Count(None) => continue,
                Aggregate::Count(Some(of)) => (of, 0),
                Aggregate::Sum { of, .. } => (of, ffi::NEEDED_SUM),
                Aggregate::Min(column) => (column.register, ffi::NEEDED_LEAST),
                Aggregate::Max(column) => (column.register, ffi::NEEDED_GREATEST),
            };
            let kind = self.kinds[usize::from(register)];
            let is_extreme = needed & (ffi::NEEDED_LEAST | ffi::NEEDED_GREATEST) != 0;
            if is_extreme && kind == ValueKind::Bytes {
                return None;
            }
            let of = |found: &(Register, ValueKind)| found.0 == register;
            let at = groups.registers.iter().position(of).unwrap_or_else(|| {
                groups.registers.push((register, kind));
                groups.arguments.push(ScanArgument::default());
                groups.arguments.len() - 1
            });
            let instruction = &self.plan.instructions[usize::from(register)];
            let is_wide = kind == ValueKind::Integer && integer_bytes(instruction) > 8;
            let argument = &mut groups.arguments[at];
            argument.operand = self.operand(register)?;
            argument.needed |= needed;
            if is_extreme && is_wide {
                argument.needed |= ffi::NEEDED_WIDE;
            }
        }
        for argument in &mut groups.arguments {
            argument.at = groups.num_words;
            groups.num_words += argument.num_words();
        }
        (key_bytes <= KEY_BYTES && groups.num_words <= MOST_WORDS).then_some(groups)
    }
}

impl EncodedGroups {
    /// Whether a minimum or maximum may exceed 64 bits.
    pub fn has_wide(&self) -> bool {
        self.arguments.iter().any(ScanArgument::is_wide)
    }

    /// Maximum number of groups of `rows` rows.
    pub fn most_of(&self, rows: u64) -> u64 {
        self.most.min(rows)
    }

    /// Slots of a table that is at most half full with groups of `rows` rows.
    pub fn num_slots(&self, rows: u64) -> u64 {
        (2 * self.most_of(rows)).next_power_of_two()
    }
}

impl ScanArgument {
    /// Offset of the maximum's words from the first word.
    pub fn greatest_at(&self) -> usize {
        let least = self.needed & ffi::NEEDED_LEAST != 0;
        self.least_at() + usize::from(least) * self.extreme_words()
    }

    /// Offset of the minimum's words.
    pub fn least_at(&self) -> usize {
        1 + usize::from(self.needed & ffi::NEEDED_SUM != 0) * SUM_WORDS
    }

    fn extreme_words(&self) -> usize {
        1 + usize::from(self.is_wide())
    }

    /// Whether its minimum or maximum may exceed 64 bits.
    pub fn is_wide(&self) -> bool {
        self.needed & ffi::NEEDED_WIDE != 0
    }

    fn num_words(&self) -> u32 {
        let greatest = self.needed & ffi::NEEDED_GREATEST != 0;
        (self.greatest_at() + usize::from(greatest) * self.extreme_words()) as u32
    }
}
