//! Block checksums: the five checksum types and the context modifier of format_version 6 and later
//! (`table/format.cc:ComputeBuiltinChecksumWithLastByte`, `table/format.h:ChecksumModifierForContext`).

use std::hash::Hasher;

use rockmill_codec::xxh3::xxh3;
use twox_hash::{XxHash32, XxHash64};

/// Checksum function of a file's blocks; the value is in the footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ChecksumType {
    /// Nothing is checked.
    None = 0,
    /// Masked CRC-32C.
    Crc32c = 1,
    /// XXH32, seed 0.
    XxHash = 2,
    /// Low half of XXH64, seed 0.
    XxHash64 = 3,
    /// Low half of XXH3-64, with the last byte mixed in separately.
    Xxh3 = 4,
}

/// Added to a rotated CRC so that a CRC of data that holds CRCs stays useful (`util/crc32c.h:Mask`).
const CRC_MASK_DELTA: u32 = 0xa282_ead8;

/// Multiplier of the last byte in XXH3 block checksums (`table/format.cc`).
const LAST_BYTE_PRIME: u32 = 0x6b90_83d9;

impl ChecksumType {
    /// The type with the footer's code.
    pub fn from_code(code: u8) -> Option<Self> {
        [
            Self::None,
            Self::Crc32c,
            Self::XxHash,
            Self::XxHash64,
            Self::Xxh3,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == code)
    }

    /// The type that an OPTIONS file names, for example `kXXH3`.
    pub fn from_option(name: &str) -> Option<Self> {
        Some(match name {
            "kNoChecksum" => Self::None,
            "kCRC32c" => Self::Crc32c,
            "kxxHash" => Self::XxHash,
            "kxxHash64" => Self::XxHash64,
            "kXXH3" => Self::Xxh3,
            _ => return None,
        })
    }

    /// Checksum of `data` followed by `last_byte`, before a context is added.
    pub fn compute(self, data: &[u8], last_byte: u8) -> u32 {
        match self {
            Self::None => 0,
            Self::Crc32c => mask_crc(crc32c::crc32c_append(crc32c::crc32c(data), &[last_byte])),
            Self::XxHash => {
                let mut hash = XxHash32::with_seed(0);
                hash.write(data);
                hash.write(&[last_byte]);
                hash.finish_32()
            }
            Self::XxHash64 => {
                let mut hash = XxHash64::with_seed(0);
                hash.write(data);
                hash.write(&[last_byte]);
                hash.finish() as u32
            }
            Self::Xxh3 => {
                // With the last byte, the data is never empty, so the empty case (0) cannot arise.
                xxh3(data) as u32 ^ u32::from(last_byte).wrapping_mul(LAST_BYTE_PRIME)
            }
        }
    }
}

/// The stored form of a CRC-32C.
pub fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(CRC_MASK_DELTA)
}

/// The number that is added to a checksum, so that a block at another offset or in another file fails the check. `base`
/// is the footer's `base_context_checksum`, 0 before format_version 6.
pub fn context_modifier(base: u32, offset: u64) -> u32 {
    if base == 0 {
        0
    } else {
        base ^ (offset as u32).wrapping_add((offset >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_option_names_are_rocksdbs() {
        for (code, name) in ["kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64", "kXXH3"]
            .into_iter()
            .enumerate()
        {
            let kind = ChecksumType::from_code(code as u8).expect("five codes");
            assert_eq!(ChecksumType::from_option(name), Some(kind));
        }
        assert_eq!(ChecksumType::from_code(5), None);
    }

    #[test]
    fn crc_of_the_standard_check_string_is_masked() {
        // CRC-32C("123456789") = 0xe3069283, RFC 3720.
        assert_eq!(
            ChecksumType::Crc32c.compute(b"12345678", b'9'),
            mask_crc(0xe306_9283)
        );
    }

    #[test]
    fn the_modifier_is_zero_only_without_a_base() {
        assert_eq!(context_modifier(0, 1 << 40), 0);
        assert_eq!(context_modifier(7, (1 << 32) + 2), 7 ^ 3);
    }
}
