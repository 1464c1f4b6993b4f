//! Records out of a log file that still grows.
//!
//! ```text
//! file     := block*                        blocks of 32 KiB
//! block    := fragment* padding             padding: less than 7 bytes
//! fragment := u32 masked CRC32C of type and payload, u16 length, u8 type, payload
//! type     := 1 whole record | 2 first | 3 middle | 4 last part of a record
//! ```
//!
//! Source: `db/log_format.h`, `db/log_reader.cc:ReadPhysicalRecord`.

use crate::coding::le32;
use crate::error::{Error, Result};

/// Length of a block (`log::kBlockSize`).
pub(super) const BLOCK_LEN: usize = 32 * 1024;

/// Length of a fragment's header (`log::kHeaderSize`).
pub(super) const HEADER_LEN: usize = 4 + 2 + 1;

pub(super) const FULL: u8 = 1;
pub(super) const FIRST: u8 = 2;
pub(super) const MIDDLE: u8 = 3;
pub(super) const LAST: u8 = 4;

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
}

struct Fragment {
    kind: u8,
    payload: Vec<u8>,
}

impl LogReader {
    /// A reader at the start of a file.
    pub fn new() -> Self {
        Self::default()
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

    /// The next whole record; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Corruption if a checksum does not match or fragments are impossible; Unsupported for types
    /// of fragments that MANIFESTs do not have (recycled logs, compressed logs) and for zeros that
    /// were allocated in advance. The offset is that in the file, and the error stays.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.assemble()
            .inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn assemble(&mut self) -> Result<Option<Record>> {
        loop {
            let Some(start) = self.skip_padding() else {
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
                (FULL | FIRST, _) if interrupted => {
                    return Err(Error::corruption(start, "log record without its last part"));
                }
                (FULL, _) => return Ok(Some(self.record(start, fragment.payload))),
                (FIRST, _) => self.open = Some((start, fragment.payload)),
                (MIDDLE, Some((offset, mut bytes))) => {
                    bytes.extend_from_slice(&fragment.payload);
                    self.open = Some((offset, bytes));
                }
                (_, Some((offset, mut bytes))) => {
                    bytes.extend_from_slice(&fragment.payload);
                    return Ok(Some(self.record(offset, bytes)));
                }
                (_, None) => {
                    return Err(Error::corruption(
                        start,
                        "log record without its first part",
                    ));
                }
            }
        }
    }

    fn record(&self, offset: u64, payload: Vec<u8>) -> Record {
        Record {
            offset,
            end: self.at,
            payload,
        }
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
        if left < HEADER_LEN {
            if self.buffer.len() - self.parsed < left {
                return None;
            }
            self.advance(left);
        }
        Some(self.at)
    }

    /// The next fragment, verified; `None` if it is not complete.
    fn fragment(&mut self) -> Result<Option<Fragment>> {
        let rest = &self.buffer[self.parsed..];
        let Some(&[a, b, c, d, low, high, kind]) = rest.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_le_bytes([low, high]));
        if HEADER_LEN + len > self.block_left() {
            let what = format!("log record of {len} bytes runs past its block");
            return Err(Error::corruption(self.at, what));
        }
        if kind == 0 && len == 0 {
            return Err(Error::unsupported(
                self.at,
                "zeros in place of a log record",
            ));
        }
        let Some(body) = rest.get(HEADER_LEN - 1..HEADER_LEN + len) else {
            return Ok(None);
        };
        if matches!(kind, FULL..=LAST) {
            let stored = unmask(le32(&[a, b, c, d]));
            if crc32c::crc32c(body) != stored {
                return Err(Error::corruption(self.at, "log record fails its checksum"));
            }
        } else {
            let what = format!("log record of type {kind}");
            return Err(Error::unsupported(self.at, what));
        }
        let payload = body[1..].to_vec();
        self.advance(HEADER_LEN + len);
        Ok(Some(Fragment { kind, payload }))
    }
}

/// Added to a rotated CRC before it is stored (`util/crc32c.h:kMaskDelta`).
pub(super) const MASK_DELTA: u32 = 0xa282_ead8;

/// Bits by which a CRC is rotated to the right before it is stored.
pub(super) const MASK_ROTATION: u32 = 15;

/// The CRC behind a masked one (`util/crc32c.h:Unmask`).
fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(MASK_ROTATION)
}
