//! Values in columns, and integers in their stored form.

use super::{ColumnType, IntegerRange, Number, NumberFormat, Prefix, Register};

/// A value that borrows its bytes. Values of one kind are in the order of [`super::Instruction::Compare`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell<'a> {
    /// None.
    Null,
    /// True or false.
    Boolean(bool),
    /// An integer.
    Integer(i128),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// The results of a program for several rows.
pub trait Cells {
    /// The value at a register for a row.
    fn cell(&self, register: Register, row: usize) -> Cell<'_>;

    /// The integers at a register by row, and which of them are null, if none exceeds 64 bits.
    fn integers(&self, register: Register) -> Option<(&[i64], Option<&[bool]>)>;
}

impl IntegerRange {
    /// The value of an integer within its range.
    #[inline]
    pub fn wrap(self, integer: i128) -> i128 {
        match self {
            Self::WrapSigned { bytes } => sign_extend(integer, bytes),
            Self::WrapUnsigned { bytes } => integer & ones(bits(bytes)),
            Self::Exact => integer,
        }
    }
}

impl Number {
    /// The number at the start of some bytes, if there are enough.
    #[inline]
    pub fn read(self, bytes: &[u8]) -> Option<i128> {
        // One case for each type: shifts of 128 bits by an unknown number take longer than all the rest.
        macro_rules! read {
            ($signed:ty, $unsigned:ty) => {{
                let stored = *bytes.first_chunk()?;
                let raw = match self.is_big_endian {
                    true => <$signed>::from_be_bytes(stored),
                    false => <$signed>::from_le_bytes(stored),
                };
                match self.format {
                    NumberFormat::Unsigned => raw as $unsigned as i128,
                    NumberFormat::Signed => i128::from(raw),
                    NumberFormat::SignedInverted => i128::from(raw ^ <$signed>::MIN),
                    NumberFormat::Float if raw < 0 => i128::from(raw ^ <$signed>::MAX),
                    NumberFormat::Float => i128::from(raw),
                }
            }};
        }
        Some(match self.bytes {
            1 => read!(i8, u8),
            2 => read!(i16, u16),
            4 => read!(i32, u32),
            8 => read!(i64, u64),
            16 => read!(i128, u128),
            _ => return self.read_odd(bytes),
        })
    }

    /// Like [`Number::read`], for an integer of 3, 5, 6 or 7 bytes.
    fn read_odd(self, bytes: &[u8]) -> Option<i128> {
        let stored = bytes.get(..usize::from(self.bytes))?;
        let add = |number, byte: &u8| number << 8 | i128::from(*byte);
        let raw = match self.is_big_endian {
            true => stored.iter().fold(0, add),
            false => stored.iter().rev().fold(0, add),
        };
        Some(match self.format {
            NumberFormat::Unsigned => raw,
            NumberFormat::SignedInverted => {
                sign_extend(raw ^ 1 << (bits(self.bytes) - 1), self.bytes)
            }
            NumberFormat::Signed | NumberFormat::Float => sign_extend(raw, self.bytes),
        })
    }
}

impl Prefix {
    /// The length at the start of some bytes, and the number of bytes that it takes itself; `None` if there is none.
    #[inline]
    pub fn read(self, bytes: &[u8]) -> Option<(u64, usize)> {
        const MAX_BYTES: usize = 10;
        match self {
            Self::Number(number) => {
                let length = u64::try_from(number.read(bytes)?).ok()?;
                Some((length, usize::from(number.bytes)))
            }
            Self::Varint => {
                let first = *bytes.first()?;
                if first < 0x80 {
                    return Some((u64::from(first), 1));
                }
                let mut length = 0u128;
                for (position, byte) in bytes.iter().take(MAX_BYTES).enumerate() {
                    length |= u128::from(byte & 0x7f) << (7 * position);
                    if byte & 0x80 == 0 {
                        return Some((u64::try_from(length).ok()?, position + 1));
                    }
                }
                None
            }
        }
    }
}

impl ColumnType {
    /// The integer whose lowest bytes a column stores.
    #[inline]
    pub(super) fn stored(self, integer: i128) -> i128 {
        match self {
            Self::Float { bytes } => {
                let bits = sign_extend(integer, bytes);
                match bits < 0 {
                    true => bits ^ ones(8 * u32::from(bytes) - 1),
                    false => bits,
                }
            }
            Self::Boolean | Self::Integer { .. } | Self::Bytes => integer,
        }
    }
}

fn bits(bytes: u8) -> u32 {
    8 * u32::from(bytes.clamp(1, 16))
}

/// An integer whose lowest `bits` bits are set; at least one.
fn ones(bits: u32) -> i128 {
    (u128::MAX >> (u128::BITS - bits)) as i128
}

/// The integer of the lowest bytes of one, as two's complement.
#[inline]
pub(super) fn sign_extend(integer: i128, bytes: u8) -> i128 {
    let above = i128::BITS - bits(bytes);
    integer << above >> above
}
