//! The place of a block, and the five bytes behind every block.
//!
//! ```text
//!   offset                     offset + size
//!   | payload (size bytes)     | type u8 | checksum u32 |
//! ```

use crate::checksum::{ChecksumType, context_modifier};
use crate::coding::{Cursor, le32, put_varint};
use crate::compression::{CompressionType, Decompressor};
use crate::error::{Error, ErrorKind, Result};
use crate::properties::compression_type_name;

/// Bytes behind a block's payload: compression type and checksum.
pub const BLOCK_TRAILER_SIZE: usize = 5;

/// Place of a block in its file, without its trailer (`table/format.h:BlockHandle`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct BlockHandle {
    /// Offset of the first payload byte.
    pub offset: u64,
    /// Payload bytes.
    pub size: u64,
}

impl BlockHandle {
    /// Reads two varints.
    ///
    /// # Errors
    /// Corruption if they are malformed or if the block would end past the largest file offset.
    pub fn decode(cursor: &mut Cursor<'_>) -> Result<Self> {
        let at = cursor.offset();
        let handle = Self {
            offset: cursor.varint64()?,
            size: cursor.varint64()?,
        };
        if handle.checked_end().is_none() {
            return Err(Error::corruption(at, "block handle out of range"));
        }
        Ok(handle)
    }

    /// Appends two varints.
    pub fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.size);
    }

    /// Offset behind the trailer, if it fits into 64 bits.
    pub fn checked_end(self) -> Option<u64> {
        self.offset
            .checked_add(self.size)?
            .checked_add(BLOCK_TRAILER_SIZE as u64)
    }

    /// Bytes of payload and trailer.
    ///
    /// # Errors
    /// Corruption if the block does not end before `limit`.
    pub fn stored_len(self, limit: u64) -> Result<usize> {
        match self.checked_end() {
            Some(end) if end <= limit => usize::try_from(self.size)
                .map(|size| size + BLOCK_TRAILER_SIZE)
                .map_err(|_| Error::corruption(self.offset, "block larger than memory")),
            _ => Err(Error::corruption(
                self.offset,
                format!("block of {} bytes reaches past offset {limit}", self.size),
            )),
        }
    }
}

/// Parameters of the checksums of one file's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockGuard {
    /// Checksum function.
    pub checksum: ChecksumType,
    /// The footer's base context checksum, 0 before format_version 6.
    pub base_context_checksum: u32,
    /// Whether the format_version is 0 or 1, in which zlib and LZ4 store blocks differently.
    pub is_legacy: bool,
}

impl BlockGuard {
    /// The stored checksum of a block at `offset`.
    pub fn checksum(&self, payload: &[u8], kind: u8, offset: u64) -> u32 {
        self.checksum
            .compute(payload, kind)
            .wrapping_add(context_modifier(self.base_context_checksum, offset))
    }

    /// Verifies the checksum, and splits stored bytes into payload and compression type.
    ///
    /// `stored` is payload and trailer; `offset` is the block's offset in the file, which errors name.
    ///
    /// # Errors
    /// Corruption on a checksum mismatch or missing trailer; Unsupported on an unknown type.
    pub fn open<'a>(&self, stored: &'a [u8], offset: u64) -> Result<(&'a [u8], CompressionType)> {
        let Some(size) = stored.len().checked_sub(BLOCK_TRAILER_SIZE) else {
            return Err(Error::corruption(offset, "block shorter than its trailer"));
        };
        let (payload, trailer) = stored.split_at(size);
        let found = le32(&trailer[1..]);
        let expected = self.checksum(payload, trailer[0], offset);
        if self.checksum != ChecksumType::None && found != expected {
            return Err(Error::corruption(
                offset,
                format!(
                    "block checksum mismatch: stored {found:#010x}, computed {expected:#010x}, \
                     block of {size} bytes"
                ),
            ));
        }
        let kind = CompressionType::from_code(trailer[0]).ok_or_else(|| Error {
            kind: ErrorKind::UnsupportedCompression,
            ..Error::unsupported(
                offset,
                format!("compression {}", compression_type_name(trailer[0])),
            )
        })?;
        Ok((payload, kind))
    }

    /// The decompressor for the blocks that [`BlockGuard::open`] returns. `dictionary` is empty if they have none.
    pub fn decompressor(&self, dictionary: Vec<u8>) -> Decompressor {
        Decompressor::new(dictionary).of_legacy_file(self.is_legacy)
    }

    /// The trailer of a block that begins at `offset` in the file.
    pub fn trailer(
        &self,
        payload: &[u8],
        kind: CompressionType,
        offset: u64,
    ) -> [u8; BLOCK_TRAILER_SIZE] {
        let checksum = self.checksum(payload, kind as u8, offset);
        let mut trailer = [kind as u8; BLOCK_TRAILER_SIZE];
        trailer[1..].copy_from_slice(&checksum.to_le_bytes());
        trailer
    }

    /// Appends the trailer of a block that begins at `offset` in the file.
    pub fn put_trailer(
        &self,
        payload: &[u8],
        kind: CompressionType,
        offset: u64,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&self.trailer(payload, kind, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::varint_len;
    use crate::compression::{CompressionSettings, Compressor};
    use proptest::prelude::*;

    const GUARD: BlockGuard = BlockGuard {
        checksum: ChecksumType::Xxh3,
        base_context_checksum: 0x1234_5678,
        is_legacy: false,
    };

    #[test]
    fn old_versions_have_other_sizes_of_zlib_and_lz4() {
        let legacy = BlockGuard {
            is_legacy: true,
            ..GUARD
        };
        let block = b"compaction ".repeat(900);
        for kind in CompressionType::ALL {
            let settings = CompressionSettings {
                kind,
                ..CompressionSettings::none()
            };
            let mut compressor = Compressor::new(&settings).expect("settings");
            let (newer, used) = compressor.compress(&block).expect("compresses");
            assert_eq!(used, kind);
            let size_len = varint_len(block.len() as u64);
            let size = block.len() as u32;
            let stored = match kind {
                CompressionType::Zlib => newer[size_len..].to_vec(),
                CompressionType::Lz4 | CompressionType::Lz4hc => {
                    [&size.to_le_bytes(), &[0; 4], &newer[size_len..]].concat()
                }
                _ => newer.to_vec(),
            };
            let read = |payload: &[u8]| {
                let mut out = Vec::new();
                let done = legacy
                    .decompressor(Vec::new())
                    .decompress(kind, payload, &mut out);
                done.map(|()| out).map_err(|error| error.kind)
            };
            assert_eq!(read(&stored), Ok(block.clone()), "{kind:?}");
            if stored == newer {
                continue;
            }
            let unsupported = Err(ErrorKind::UnsupportedCompression);
            for end in 0..stored.len() {
                assert_eq!(read(&stored[..end]), unsupported, "{kind:?} of {end} bytes");
            }
            assert_eq!(read(newer), unsupported, "{kind:?} of a later version");
        }
    }

    #[test]
    fn zstd_of_leveldb_is_not_read() {
        let legacy = BlockGuard {
            is_legacy: true,
            ..GUARD
        };
        let frame = zstd::bulk::compress(&[7; 900], 1).expect("compresses");
        let mut out = Vec::new();
        let read = legacy.decompressor(Vec::new());
        let read = { read }.decompress(CompressionType::Zlib, &frame, &mut out);
        let error = read.expect_err("it is no deflate stream");
        assert_eq!(error.kind, ErrorKind::UnsupportedCompression);
        assert!(error.what.contains("ZSTD"), "{error}");
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            offset in 0u64..1 << 40,
            flip: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let mut stored = payload.clone();
            GUARD.put_trailer(&payload, CompressionType::None, offset, &mut stored);
            prop_assert_eq!(
                GUARD.open(&stored, offset)?,
                (&payload[..], CompressionType::None)
            );
            prop_assert!(GUARD.open(&stored, offset + 1).is_err());
            let at = flip.index(stored.len());
            stored[at] ^= 1 << bit;
            prop_assert!(GUARD.open(&stored, offset).is_err());
        }

        #[test]
        fn handles_round_trip(offset in 0u64..1 << 60, size in 0u64..1 << 60) {
            let handle = BlockHandle { offset, size };
            let mut out = Vec::new();
            handle.encode(&mut out);
            prop_assert_eq!(BlockHandle::decode(&mut Cursor::new(&out))?, handle);
        }
    }
}
