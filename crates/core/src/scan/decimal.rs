//! Decimals as MySQL packs them.

use serde::{Deserialize, Serialize};

/// How a decimal is stored: as MySQL does. The digits before the point, and then those behind it, are cut into groups of
/// 9. The first group before the point and the last one behind it may have fewer. A group is a big-endian integer: of 4
/// bytes for 9, 8 or 7 digits, of 3 for 6 or 5, of 2 for 4 or 3, else of 1. The first bit is inverted, and all bits are
/// if the number is negative: so these bytes sort as the numbers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PackedDecimal {
    /// Number of digits: 1 to 38.
    pub precision: u8,
    /// Digits behind the point.
    pub scale: u8,
}

impl PackedDecimal {
    const GROUP_DIGITS: u8 = 9;

    /// Whether numbers have so many digits.
    pub(super) fn is_known(self) -> bool {
        matches!(self.precision, 1..=38) && self.scale <= self.precision
    }

    /// Digits of each group.
    fn groups(self) -> impl Iterator<Item = u8> {
        let (before, behind) = (self.precision - self.scale, self.scale);
        let nines = |digits: u8| std::iter::repeat_n(Self::GROUP_DIGITS, usize::from(digits / 9));
        let first = Some(before % Self::GROUP_DIGITS).filter(|digits| *digits > 0);
        let last = Some(behind % Self::GROUP_DIGITS).filter(|digits| *digits > 0);
        (first.into_iter().chain(nines(before))).chain(nines(behind).chain(last))
    }

    /// Bytes that it takes.
    pub fn bytes(self) -> u32 {
        self.groups().map(|digits| group_bytes(digits) as u32).sum()
    }

    /// The number without its point that lies at the beginning of some bytes, if they are one.
    pub fn read(self, bytes: &[u8]) -> Option<i128> {
        let is_negative = bytes.first()? & 0x80 == 0;
        let mask = if is_negative { u8::MAX } else { 0 };
        let (mut rest, mut number, mut inverted) = (bytes, 0i128, 0x80);
        for digits in self.groups() {
            let (group, after) = rest.split_at_checked(group_bytes(digits))?;
            let group = group.iter().fold(0, |number, byte| {
                let byte = byte ^ mask ^ std::mem::take(&mut inverted);
                number << 8 | u32::from(byte)
            });
            let limit = 10u32.pow(u32::from(digits));
            if group >= limit {
                return None;
            }
            number = number * i128::from(limit) + i128::from(group);
            rest = after;
        }
        Some(if is_negative { -number } else { number })
    }
}

/// Bytes of a group.
fn group_bytes(digits: u8) -> usize {
    usize::from(digits.div_ceil(2)).min(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(precision: u8, scale: u8, bytes: &[u8]) -> Option<i128> {
        let decimal = PackedDecimal { precision, scale };
        assert!(decimal.is_known() && decimal.bytes() as usize == bytes.len());
        decimal.read(bytes)
    }

    #[test]
    fn decimals_are_read_as_mysql_packs_them() {
        // MySQL's own example of decimal(14, 4): 1234567890.1234 and its negative.
        let mut stored = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        assert_eq!(read(14, 4, &stored), Some(12_345_678_901_234));
        stored.iter_mut().for_each(|byte| *byte = !*byte);
        assert_eq!(read(14, 4, &stored), Some(-12_345_678_901_234));
        assert_eq!(read(2, 2, &[0x80 | 99]), Some(99));
        assert_eq!(read(1, 0, &[0x80]), Some(0));
        let nines: Vec<u8> = [0x80 | 99]
            .into_iter()
            .chain(999_999_999u32.to_be_bytes().repeat(4))
            .collect();
        assert_eq!(read(38, 18, &nines), Some(10i128.pow(38) - 1));
    }

    #[test]
    fn bytes_that_are_no_digits_are_no_decimal() {
        assert_eq!(read(2, 2, &[0x80 | 100]), None);
        let decimal = PackedDecimal {
            precision: 9,
            scale: 0,
        };
        assert_eq!(decimal.read(&[0x80, 0, 0]), None);
        assert_eq!(decimal.read(&[]), None);
    }
}
