//! Encodes keys and aggregates of groups for the kernels.

use rockmill_core::scan::{Aggregate, Aggregation, ColumnType, GROUP_BYTES, Register, ValueKind};

use super::super::layout::stored_code;
use super::{Encoder, integer_bytes};
use crate::driver::ffi::{ScanArgument, ScanGroupKey};

/// `types.hpp:SCAN_SUM_WORDS`.
pub const SUM_WORDS: usize = 5;

/// `groups.hpp:GroupKey`: bytes of a row's keys.
const KEY_BYTES: u32 = 6 * 7;

/// Most groups that the device puts together, and most words of each: 8 MiB in a table that is half full.
const MOST_GROUPS: u64 = 4096;
const MOST_WORDS: u32 = 128;

// The host does not hand these groups over early. It takes up to 9 bytes for a key that takes 2 on the device.
const _: () = assert!(MOST_GROUPS as usize * KEY_BYTES as usize * 9 / 2 <= GROUP_BYTES);

/// `types.hpp:Needed`.
mod needed {
    pub const SUM: u32 = 1;
    pub const LEAST: u32 = 2;
    pub const GREATEST: u32 = 4;
    pub const WIDE: u32 = 8;
}

/// Encoded keys and aggregates of groups.
#[derive(Debug)]
pub struct EncodedGroups {
    pub keys: Vec<ScanGroupKey>,
    pub arguments: Vec<ScanArgument>,
    /// Register of each argument.
    pub registers: Vec<(Register, ValueKind)>,
    /// `types.hpp:ScanGroups`.
    pub num_words: u32,
    /// Most groups that the device puts together.
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
            // Whether it is there, and the integer or the number of bytes.
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
                Aggregate::Sum { of, .. } => (of, needed::SUM),
                Aggregate::Min(column) => (column.register, needed::LEAST),
                Aggregate::Max(column) => (column.register, needed::GREATEST),
            };
            let kind = self.kinds[usize::from(register)];
            let is_extreme = needed & (needed::LEAST | needed::GREATEST) != 0;
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
                argument.needed |= needed::WIDE;
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
    /// Whether a least or greatest value may exceed 64 bits.
    pub fn has_wide(&self) -> bool {
        self.arguments.iter().any(ScanArgument::is_wide)
    }

    /// Maximum number of groups of `rows` rows.
    pub fn most_of(&self, rows: u64) -> u64 {
        self.most.min(rows)
    }

    /// Slots of a table that groups of `rows` rows fill at most by half.
    pub fn num_slots(&self, rows: u64) -> u64 {
        (2 * self.most_of(rows)).next_power_of_two()
    }
}

impl ScanArgument {
    /// Words before those of its greatest value, counted from its first.
    pub fn greatest_at(&self) -> usize {
        let least = self.needed & needed::LEAST != 0;
        self.least_at() + usize::from(least) * self.extreme_words()
    }

    /// Words before those of its least value.
    pub fn least_at(&self) -> usize {
        1 + usize::from(self.needed & needed::SUM != 0) * SUM_WORDS
    }

    fn extreme_words(&self) -> usize {
        1 + usize::from(self.is_wide())
    }

    /// Whether its least or greatest value may exceed 64 bits.
    pub fn is_wide(&self) -> bool {
        self.needed & needed::WIDE != 0
    }

    fn num_words(&self) -> u32 {
        let greatest = self.needed & needed::GREATEST != 0;
        (self.greatest_at() + usize::from(greatest) * self.extreme_words()) as u32
    }
}
