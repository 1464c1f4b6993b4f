//! Records out of a log file that still grows: a MANIFEST, or a write-ahead log `NNNNNN.log`.
//!
//! ```text
//! file     := block*                        blocks of 32 KiB
//! block    := fragment* padding             padding: less than a header
//! fragment := u32 masked CRC32C of all that follows, u16 length of the payload, u8 type,
//!             [u32 low bits of the log's number], payload
//! type     := 1 whole record | 2 first | 3 middle | 4 last part of a record
//!           | 5 to 8 the same with the log's number, in a file that was a log before
//!           | 9 compression of all records behind it
//!           | 10, 11 sizes of user-defined timestamps | 130, 131 about the log before
//! ```
//!
//! A MANIFEST has types 1 to 4 only.
//!
//! Source: `db/log_format.h`, `db/log_reader.cc:ReadPhysicalRecord`.

use std::io::Read;

use crate::coding::le32;
use crate::compression::{COMPRESSION_SIZE_LIMIT, CompressionType};
use crate::error::{Error, ErrorKind, Result};

#[cfg(test)]
pub(crate) mod test_encoder;
#[cfg(test)]
mod tests;

/// Length of a block (`log::kBlockSize`).
pub(crate) const BLOCK_LEN: usize = 32 * 1024;

/// Length of a fragment's header (`log::kHeaderSize`).
pub(crate) const HEADER_LEN: usize = 4 + 2 + 1;

/// Length of a header with the log's number (`log::kRecyclableHeaderSize`).
pub(crate) const RECYCLABLE_HEADER_LEN: usize = HEADER_LEN + 4;

pub(crate) const FULL: u8 = 1;
pub(crate) const FIRST: u8 = 2;
pub(crate) const MIDDLE: u8 = 3;
pub(crate) const LAST: u8 = 4;
pub(crate) const RECYCLABLE_FULL: u8 = 5;
pub(crate) const RECYCLABLE_LAST: u8 = 8;
pub(crate) const SET_COMPRESSION: u8 = 9;
pub(crate) const RECYCLABLE_TIMESTAMP_SIZE: u8 = 11;
/// Types from here on are skipped where they are not known (`log::kRecordTypeSafeIgnoreMask`).
pub(crate) const IGNORABLE: u8 = 1 << 7;
pub(crate) const RECYCLABLE_PREDECESSOR: u8 = 131;

/// The compression that logs can have.
const ZSTD: u32 = CompressionType::Zstd as u32;

/// One whole record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Offset in the file of the record's first fragment.
    pub offset: u64,
    /// Offset in the file behind the record's last fragment.
    pub end: u64,
    /// The payload of all fragments.
    pub payload: Vec<u8>,
}

/// Takes the bytes of a log in pieces of any size and gives its whole records.
///
/// A record that is not complete yet waits for more bytes. Memory is bounded by the bytes fed that
/// are not yet part of a record given back.
#[derive(Debug, Clone, Default)]
pub struct LogReader {
    /// Bytes fed and not yet parsed are `buffer[parsed..]`.
    buffer: Vec<u8>,
    parsed: usize,
    /// Offset in the file of `buffer[parsed]`.
    at: u64,
    /// The start and the bytes of a record whose last fragment is still to come.
    open: Option<(u64, Vec<u8>)>,
    failed: Option<Error>,
    /// Low bits of the number of a write-ahead log; `None` of a MANIFEST.
    number: Option<u32>,
    /// Whether a fragment had the log's number: what follows the log's end is from a log before.
    recycled: bool,
    /// Whether records are compressed.
    compressed: bool,
    /// Whether a record was given back.
    any: bool,
    /// Whether a recycled log's end was reached.
    ended: bool,
    /// Offset in the file up to which nothing is cut off.
    sound_end: u64,
    /// Offset in the file behind the fragment that was read last, damaged ones too.
    fragment_end: u64,
}

struct Fragment {
    kind: u8,
    payload: Vec<u8>,
}

impl LogReader {
    /// A reader at the start of a MANIFEST.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader of a MANIFEST that goes on behind a record, which ends at this offset.
    pub fn behind(end: u64) -> Self {
        Self {
            at: end,
            sound_end: end,
            ..Self::default()
        }
    }

    /// A reader at the start of the write-ahead log of that number.
    pub fn write_ahead_log(number: u64) -> Self {
        Self {
            number: Some(number as u32),
            ..Self::default()
        }
    }

    /// Number of bytes fed so far: the offset at which to read the file next.
    pub fn bytes_fed(&self) -> u64 {
        self.at + (self.buffer.len() - self.parsed) as u64
    }

    /// Takes the bytes that follow those fed before.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.parsed);
        self.parsed = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Offset behind the last sound record if something else follows there: the start of a record, or, in a
    /// recycled log, what a log before left. A crash leaves that. To be asked when all bytes were fed.
    pub fn torn_at(&self) -> Option<u64> {
        (self.bytes_fed() > self.sound_end).then_some(self.sound_end)
    }

    /// Whether a recycled log ended: nothing that follows belongs to it.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Offset in the file behind the fragment because of which [`LogReader::next_record`] failed. If nothing but
    /// zeros follow, a crash in the log's last write can have left that.
    pub fn failed_until(&self) -> u64 {
        self.fragment_end
    }

    /// The next whole record; `None` if more bytes are needed, and behind the end of a recycled log.
    ///
    /// # Errors
    /// Corruption if a checksum does not match or fragments are impossible; Unsupported for types
    /// of fragments that are not known or do not belong into a MANIFEST, and for zeros in one that were allocated in
    /// advance. The offset is that in the file, and the error stays.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.ended {
            return Ok(None);
        }
        match self.assemble() {
            // What a log before left looks like anything.
            Err(error) if self.recycled && error.kind == ErrorKind::Corruption => {
                self.ended = true;
                Ok(None)
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
            Ok(record) => {
                self.any |= record.is_some();
                Ok(record)
            }
        }
    }

    fn assemble(&mut self) -> Result<Option<Record>> {
        loop {
            let start = self.skip_padding();
            if self.open.is_none() {
                self.sound_end = self.at;
            }
            let Some(start) = start else {
                return Ok(None);
            };
            let Some(fragment) = self.fragment()? else {
                return Ok(None);
            };
            let open = self.open.take();
            // Old writers could leave an empty first fragment at the end of a block and start
            // over in the next one (log_reader.cc:ReadRecord); nothing is lost with it.
            let interrupted = open.as_ref().is_some_and(|(_, bytes)| !bytes.is_empty());
            match (fragment.kind, open) {
                (MIDDLE, Some((offset, mut bytes))) => {
                    bytes.extend_from_slice(&fragment.payload);
                    self.open = Some((offset, bytes));
                }
                (LAST, Some((offset, mut bytes))) => {
                    bytes.extend_from_slice(&fragment.payload);
                    return self.record(offset, bytes).map(Some);
                }
                (MIDDLE | LAST, None) => {
                    return Err(Error::corruption(
                        start,
                        "log record without its first part",
                    ));
                }
                _ if interrupted => {
                    return Err(Error::corruption(start, "log record without its last part"));
                }
                (FULL, _) => return self.record(start, fragment.payload).map(Some),
                (FIRST, _) => self.open = Some((start, fragment.payload)),
                (SET_COMPRESSION, _) if fragment.payload == ZSTD.to_le_bytes() => {
                    self.compressed = true;
                }
                (SET_COMPRESSION, _) => {
                    return Err(Error::unsupported(
                        start,
                        "log compressed otherwise than by zstd",
                    ));
                }
                // It is about other logs, or about timestamps, which bytewise comparators do not have.
                _ => {}
            }
        }
    }

    fn record(&self, offset: u64, payload: Vec<u8>) -> Result<Record> {
        let payload = if self.compressed {
            decompress(&payload).map_err(|e| e.at(offset))?
        } else {
            payload
        };
        Ok(Record {
            offset,
            end: self.at,
            payload,
        })
    }

    fn block_left(&self) -> usize {
        BLOCK_LEN - (self.at % BLOCK_LEN as u64) as usize
    }

    fn advance(&mut self, len: usize) {
        self.parsed += len;
        self.at += len as u64;
    }

    /// The offset of the next header; `None` if the padding before it is not complete.
    fn skip_padding(&mut self) -> Option<u64> {
        let left = self.block_left();
        let header = if self.recycled {
            RECYCLABLE_HEADER_LEN
        } else {
            HEADER_LEN
        };
        if left < header {
            if self.buffer.len() - self.parsed < left {
                return None;
            }
            self.advance(left);
        }
        Some(self.at)
    }

    /// The next fragment, verified; `None` if it is not complete, or from a log before.
    fn fragment(&mut self) -> Result<Option<Fragment>> {
        let rest = &self.buffer[self.parsed..];
        let Some(&[a, b, c, d, low, high, kind]) = rest.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_le_bytes([low, high]));
        let has_number = self.number.is_some() && is_recyclable(kind);
        let header = if has_number {
            RECYCLABLE_HEADER_LEN
        } else {
            HEADER_LEN
        };
        self.fragment_end = self.at + (header + len) as u64;
        if has_number && self.any && !self.recycled {
            let what = "recycled log record in a log that is not recycled";
            return Err(Error::corruption(self.at, what));
        }
        self.recycled |= has_number;
        if header + len > self.block_left() {
            let what = format!("log record of {len} bytes runs past its block");
            return Err(Error::corruption(self.at, what));
        }
        if kind == 0 && len == 0 {
            let what = "zeros in place of a log record";
            return Err(match self.number {
                None => Error::unsupported(self.at, what),
                Some(_) => Error::corruption(self.at, what),
            });
        }
        let Some(body) = rest.get(HEADER_LEN - 1..header + len) else {
            return Ok(None);
        };
        if has_number && Some(le32(&body[1..])) != self.number {
            self.ended = true;
            return Ok(None);
        }
        let stored = unmask(le32(&[a, b, c, d]));
        if crc32c::crc32c(body) != stored {
            return Err(Error::corruption(self.at, "log record fails its checksum"));
        }
        let is_known = match self.number {
            None => matches!(kind, FULL..=LAST),
            Some(_) => matches!(kind, FULL..=RECYCLABLE_TIMESTAMP_SIZE | IGNORABLE..),
        };
        if !is_known {
            let what = format!("log record of type {kind}");
            return Err(Error::unsupported(self.at, what));
        }
        let payload = body[1 + header - HEADER_LEN..].to_vec();
        self.advance(header + len);
        let kind = match kind {
            RECYCLABLE_FULL..=RECYCLABLE_LAST => kind - RECYCLABLE_FULL + FULL,
            _ => kind,
        };
        Ok(Some(Fragment { kind, payload }))
    }
}

/// Whether the log's number stands in the headers of fragments of the type.
fn is_recyclable(kind: u8) -> bool {
    matches!(
        kind,
        RECYCLABLE_FULL..=RECYCLABLE_LAST | RECYCLABLE_TIMESTAMP_SIZE | RECYCLABLE_PREDECESSOR
    )
}

/// The record in a zstd frame, which has no size of its own (`util/compression.cc:ZSTDStreamingCompress`).
fn decompress(frame: &[u8]) -> Result<Vec<u8>> {
    let mut record = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(frame);
    decoder
        .and_then(|decoder| {
            decoder
                .take(COMPRESSION_SIZE_LIMIT as u64)
                .read_to_end(&mut record)
        })
        .map_err(|e| Error::corruption(0, format!("malformed zstd record: {e}")))?;
    Ok(record)
}

/// Added to a rotated CRC before it is stored (`util/crc32c.h:kMaskDelta`).
pub(crate) const MASK_DELTA: u32 = 0xa282_ead8;

/// Bits by which a CRC is rotated to the right before it is stored.
pub(crate) const MASK_ROTATION: u32 = 15;

/// The CRC behind a masked one (`util/crc32c.h:Unmask`).
fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(MASK_ROTATION)
}
