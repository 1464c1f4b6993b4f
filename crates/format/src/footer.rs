//! The last 53 bytes of a file (`table/format.cc:Footer::DecodeFrom`, `FooterBuilder::Build`).
//!
//! ```text
//!  0  checksum type u8
//!  1  format_version 2..5: metaindex handle, index handle (varints), zero padded to 40 bytes
//!     format_version 6..8: 3e 00 7a 00 | footer checksum u32 | base context checksum u32
//!                          | metaindex size u32 | 16 reserved bytes | 8 bytes that must be zero
//! 41  format_version u32
//! 45  magic u64
//! ```
//!
//! From format_version 8 on, the metaindex size has 16 bits and the upper half of its word is the
//! gap between metaindex and footer.
//!
//! LevelDB, and RocksDB before 4.6, end a file with 48 bytes. That is format_version 0, with CRC-32C:
//!
//! ```text
//!  0  metaindex handle, index handle (varints), zero padded to 40 bytes
//! 40  another magic u64
//! ```

use crate::checksum::{ChecksumType, context_modifier};
use crate::coding::{Cursor, le32, le64};
use crate::error::{Error, ErrorKind, Result};
use crate::handle::{BLOCK_TRAILER_SIZE, BlockGuard, BlockHandle};

/// Bytes of the footer.
pub const FOOTER_SIZE: usize = 53;

/// Magic number of block-based tables.
pub const BLOCK_BASED_MAGIC: u64 = 0x88e2_41b7_85f4_cff7;

/// Magic number of LevelDB's tables, and of RocksDB's before 4.6 (`table/format.cc:Footer::DecodeFrom`).
const LEGACY_MAGIC: u64 = 0xdb47_7524_8b80_fb57;

/// Magic numbers of tables of other formats, and their names (`table/plain`, `table/cuckoo`, Pebble's `sstable`).
const OTHER_FORMATS: [(u64, &str); 4] = [
    (0x8242_2296_63bf_9564, "PlainTable"),
    (0x4f34_18eb_7a8f_13b8, "PlainTable"),
    (0x9267_89d0_c5f1_7873, "CuckooTable"),
    (
        u64::from_le_bytes(*b"\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"),
        "Pebble",
    ),
];

/// Format versions that are read and written. Versions 0 and 1 are only read.
pub const FORMAT_VERSIONS: std::ops::RangeInclusive<u32> = 2..=8;

/// Last version in which some compression types do not store the uncompressed size in the usual way.
const LAST_LEGACY_VERSION: u32 = 1;

/// First version with context checksums and a checksum of the footer itself.
const FIRST_CONTEXT_VERSION: u32 = 6;

/// First version in which the metaindex need not touch the footer.
const FIRST_GAP_VERSION: u32 = 8;

const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];

/// Offsets of the footer's fields. The handles of format_version 0 begin where later versions have the checksum.
const LEGACY_HANDLES_AT: usize = 5;
const CHECKSUM_AT: usize = 5;
const RESERVED_AT: usize = 33;
const VERSION_AT: usize = 41;
const MAGIC_AT: usize = 45;

/// Contents of the footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// format_version of the file.
    pub format_version: u32,
    /// Checksums of its blocks.
    pub guard: BlockGuard,
    /// The metaindex block.
    pub metaindex: BlockHandle,
    /// The index block; from format_version 6 on, the metaindex names it instead.
    pub index: Option<BlockHandle>,
}

/// Whether blocks of a version carry context checksums.
pub fn uses_context_checksum(format_version: u32) -> bool {
    format_version >= FIRST_CONTEXT_VERSION
}

impl Footer {
    /// Bytes of the footer at the end of the file.
    pub fn encoded_len(&self) -> u64 {
        let unused = match self.format_version {
            0 => LEGACY_HANDLES_AT,
            _ => 0,
        };
        (FOOTER_SIZE - unused) as u64
    }

    /// Reads a footer from the last [`FOOTER_SIZE`] bytes of a file of `file_size` bytes.
    ///
    /// # Errors
    /// Corruption if it is damaged or the file is not an SST; Unsupported for unknown versions.
    pub fn decode(footer: &[u8], file_size: u64) -> Result<Self> {
        let Some(offset) = file_size.checked_sub(FOOTER_SIZE as u64) else {
            return Err(Error::corruption(0, "file too short to be an SST"));
        };
        Self::decode_at(footer, offset).map_err(|e| e.at(offset))
    }

    fn decode_at(footer: &[u8], offset: u64) -> Result<Self> {
        if footer.len() != FOOTER_SIZE {
            return Err(Error::corruption(0, "footer cut off"));
        }
        let magic = le64(&footer[MAGIC_AT..]);
        if magic == LEGACY_MAGIC {
            let handles = Cursor::new(&footer[LEGACY_HANDLES_AT..MAGIC_AT]);
            return Self::with_handles(0, ChecksumType::Crc32c, handles)
                .map_err(|e| e.at(LEGACY_HANDLES_AT as u64));
        }
        if let Some((_, name)) = OTHER_FORMATS.iter().find(|(known, _)| *known == magic) {
            return Err(Error {
                kind: ErrorKind::OtherTable,
                ..Error::unsupported(MAGIC_AT, format!("a table of the format {name}"))
            });
        }
        if magic != BLOCK_BASED_MAGIC {
            return Err(Error::corruption(
                MAGIC_AT,
                format!("not a block-based table: magic number {magic:#018x}"),
            ));
        }
        let format_version = le32(&footer[VERSION_AT..]);
        if format_version != LAST_LEGACY_VERSION && !FORMAT_VERSIONS.contains(&format_version) {
            return Err(Error::unsupported(
                VERSION_AT,
                format!("format_version {format_version}"),
            ));
        }
        let checksum = ChecksumType::from_code(footer[0])
            .ok_or_else(|| Error::unsupported(0, format!("checksum type {}", footer[0])))?;
        if uses_context_checksum(format_version) {
            return Self::decode_context(footer, offset, format_version, checksum);
        }
        let mut handles = Cursor::new(&footer[..VERSION_AT]);
        handles.u8()?;
        Self::with_handles(format_version, checksum, handles)
    }

    fn with_handles(
        format_version: u32,
        checksum: ChecksumType,
        mut handles: Cursor<'_>,
    ) -> Result<Self> {
        Ok(Self {
            format_version,
            guard: BlockGuard {
                checksum,
                base_context_checksum: 0,
                is_legacy: format_version <= LAST_LEGACY_VERSION,
            },
            metaindex: BlockHandle::decode(&mut handles)?,
            index: Some(BlockHandle::decode(&mut handles)?),
        })
    }

    fn decode_context(
        footer: &[u8],
        offset: u64,
        format_version: u32,
        checksum: ChecksumType,
    ) -> Result<Self> {
        let mut cursor = Cursor::new(footer);
        cursor.u8()?;
        if cursor.take(EXTENDED_MAGIC.len())? != EXTENDED_MAGIC {
            return Err(Error::corruption(1, "bad extended magic number"));
        }
        let stored = cursor.u32()?;
        let base_context_checksum = cursor.u32()?;
        if base_context_checksum == 0 {
            return Err(Error::corruption(
                cursor.offset(),
                "base context checksum is 0",
            ));
        }
        let mut cleared = [0; FOOTER_SIZE];
        cleared.copy_from_slice(footer);
        cleared[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        let computed = checksum
            .compute(&cleared[..FOOTER_SIZE - 1], cleared[FOOTER_SIZE - 1])
            .wrapping_add(context_modifier(base_context_checksum, offset));
        if stored != computed {
            return Err(Error::corruption(CHECKSUM_AT, "footer checksum mismatch"));
        }
        if le64(&footer[RESERVED_AT..]) != 0 {
            return Err(Error::unsupported(
                RESERVED_AT,
                "reserved footer bits are set",
            ));
        }
        let word = cursor.u32()?;
        let (size, gap) = if format_version >= FIRST_GAP_VERSION {
            (word & 0xffff, word >> 16)
        } else {
            (word, 0)
        };
        let metaindex = offset
            .checked_sub(u64::from(size) + u64::from(gap) + BLOCK_TRAILER_SIZE as u64)
            .map(|start| BlockHandle {
                offset: start,
                size: u64::from(size),
            })
            .ok_or_else(|| Error::corruption(cursor.offset(), "metaindex larger than the file"))?;
        Ok(Self {
            format_version,
            guard: BlockGuard {
                checksum,
                base_context_checksum,
                is_legacy: false,
            },
            metaindex,
            index: None,
        })
    }

    /// The footer's bytes when it begins at `offset`. The metaindex must end, trailer included,
    /// exactly there.
    ///
    /// # Panics
    /// If the metaindex does not end at `offset`, is too large for its field, or if `index` is missing before
    /// format_version 6: these are errors of the writer, not of an input.
    pub fn encode(&self, offset: u64) -> [u8; FOOTER_SIZE] {
        assert_eq!(self.metaindex.checked_end(), Some(offset));
        let mut out = [0; FOOTER_SIZE];
        out[0] = self.guard.checksum as u8;
        out[VERSION_AT..MAGIC_AT].copy_from_slice(&self.format_version.to_le_bytes());
        out[MAGIC_AT..].copy_from_slice(&BLOCK_BASED_MAGIC.to_le_bytes());
        if uses_context_checksum(self.format_version) {
            let size = u32::try_from(self.metaindex.size).expect("metaindex below 4 GiB");
            assert!(self.format_version < FIRST_GAP_VERSION || size <= 0xffff);
            let base = self.guard.base_context_checksum;
            out[1..CHECKSUM_AT].copy_from_slice(&EXTENDED_MAGIC);
            out[9..13].copy_from_slice(&base.to_le_bytes());
            out[13..17].copy_from_slice(&size.to_le_bytes());
            let checksum = self
                .guard
                .checksum
                .compute(&out[..FOOTER_SIZE - 1], out[FOOTER_SIZE - 1])
                .wrapping_add(context_modifier(base, offset));
            out[CHECKSUM_AT..9].copy_from_slice(&checksum.to_le_bytes());
        } else {
            let mut handles = Vec::with_capacity(VERSION_AT);
            self.metaindex.encode(&mut handles);
            self.index
                .expect("the footer names the index before format_version 6")
                .encode(&mut handles);
            out[1..=handles.len()].copy_from_slice(&handles);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn footer(format_version: u32, checksum: u8, start: u64) -> Footer {
        let context = uses_context_checksum(format_version);
        Footer {
            format_version,
            guard: BlockGuard {
                checksum: ChecksumType::from_code(checksum).expect("five types"),
                base_context_checksum: if context { 0xdead_beef } else { 0 },
                is_legacy: false,
            },
            metaindex: BlockHandle {
                offset: start,
                size: 100,
            },
            index: (!context).then_some(BlockHandle { offset: 3, size: 9 }),
        }
    }

    proptest! {
        #[test]
        fn footers_round_trip(version in 2u32..=8, checksum in 0u8..5, start in 0u64..1 << 50) {
            let footer = footer(version, checksum, start);
            let offset = start + 105;
            let bytes = footer.encode(offset);
            prop_assert_eq!(Footer::decode(&bytes, offset + FOOTER_SIZE as u64)?, footer);
        }

        #[test]
        fn decoding_is_total(bytes: [u8; FOOTER_SIZE - 8], size: u64) {
            for magic in [BLOCK_BASED_MAGIC, LEGACY_MAGIC] {
                let mut footer = bytes.to_vec();
                footer.extend_from_slice(&magic.to_le_bytes());
                let _ = Footer::decode(&footer, size);
            }
        }

        #[test]
        fn the_footer_of_leveldb_has_two_handles(offsets: [u32; 2], sizes: [u32; 2], before: [u8; 5]) {
            let [metaindex, index] = [0, 1].map(|at| BlockHandle {
                offset: offsets[at].into(),
                size: sizes[at].into(),
            });
            let mut footer = before.to_vec();
            metaindex.encode(&mut footer);
            index.encode(&mut footer);
            footer.resize(MAGIC_AT, 0);
            footer.extend_from_slice(&LEGACY_MAGIC.to_le_bytes());
            let found = Footer::decode(&footer, 1 << 40)?;
            prop_assert_eq!((found.metaindex, found.index), (metaindex, Some(index)));
            prop_assert_eq!((found.format_version, found.guard.checksum), (0, ChecksumType::Crc32c));
        }

        #[test]
        fn tables_of_other_formats_are_named(at in 0..OTHER_FORMATS.len()) {
            let (magic, name) = OTHER_FORMATS[at];
            let mut footer = vec![0; FOOTER_SIZE];
            footer[MAGIC_AT..].copy_from_slice(&magic.to_le_bytes());
            let error = Footer::decode(&footer, 1 << 40).expect_err("another format");
            prop_assert_eq!(error.kind, ErrorKind::OtherTable);
            prop_assert!(error.what.ends_with(name), "{}", error);
        }

        #[test]
        fn a_flipped_bit_under_the_checksum_is_noticed(
            // A flipped version may name one without a footer checksum.
            at in prop_oneof![0..VERSION_AT, MAGIC_AT..FOOTER_SIZE],
            bit in 0u8..8,
        ) {
            let mut bytes = footer(7, 4, 1000).encode(1105);
            bytes[at] ^= 1 << bit;
            prop_assert!(Footer::decode(&bytes, 1105 + FOOTER_SIZE as u64).is_err());
        }
    }
}
