//! Reads records of a log file that still grows: a MANIFEST, or a write-ahead log `NNNNNN.log`.
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
//! A MANIFEST has types 1 to 4, and types that RocksDB skips.
//!
//! The reader drops without an error exactly what RocksDB's reader drops without a report. After that, RocksDB's
//! recovery continues with the next block:
//!
//! | what stands in place of a record | what is dropped |
//! |---|---|
//! | a type from 128 on that is not known | it, and the parts of a record before it |
//! | type 132 | the rest of the log |
//! | a header of zeros | the rest of the block |
//! | bytes with a sound checksum that cannot be decompressed | the rest of the block |
//!
//! Source: `db/log_format.h`, `db/log_reader.cc:ReadRecord` and `ReadPhysicalRecord`.

use std::collections::BTreeMap;

use crate::coding::le32;
use crate::error::{Error, ErrorKind, Result};

mod decompression;
use decompression::Decompression;

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
pub(crate) const TIMESTAMP_SIZE: u8 = 10;
pub(crate) const RECYCLABLE_TIMESTAMP_SIZE: u8 = 11;
/// Unknown types from here on are skipped (`log::kRecordTypeSafeIgnoreMask`).
pub(crate) const IGNORABLE: u8 = 1 << 7;
pub(crate) const PREDECESSOR: u8 = 130;
pub(crate) const RECYCLABLE_PREDECESSOR: u8 = 131;

/// RocksDB 11.12 mistakes records of these types for its own results with the same numbers (`db/log_reader.h:kEof` to
/// `kBadRecordChecksum`): the end of the file,
pub(crate) const END_OF_FILE: u8 = 132;
/// a bad record, which it reports only inside of a record,
pub(crate) const BAD_RECORD: u8 = 133;
/// a record of an older log,
pub(crate) const OLD_RECORD: u8 = 135;
/// and others that it reports, from a bad header to a bad checksum.
pub(crate) const BAD_HEADER: u8 = 134;
pub(crate) const BAD_CHECKSUM: u8 = 137;

/// Minimum length of a log's record about the previous log (`db/dbformat.h:PredecessorWALInfo`).
const PREDECESSOR_LEN: usize = 3 * 8;

/// Length of an entry with the size of a column family's timestamps (`util/udt_util.h:kSizePerColumnFamily`).
const TIMESTAMP_SIZE_LEN: usize = 4 + 2;

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

/// Takes the bytes of a log in pieces of any size and returns its whole records.
///
/// An incomplete record waits for more bytes. Memory is bounded by the bytes that were fed and are not part of a
/// returned record yet.
#[derive(Debug, Default)]
pub struct LogReader {
    /// Bytes fed and not yet parsed are `buffer[parsed..]`.
    buffer: Vec<u8>,
    parsed: usize,
    /// Offset in the file of `buffer[parsed]`.
    at: u64,
    /// The start and the bytes of a record whose last fragment is still to come.
    open: Option<(u64, Vec<u8>)>,
    failed: Option<Error>,
    /// Low bits of the number of a write-ahead log; `None` for a MANIFEST.
    number: Option<u32>,
    /// Whether a fragment had the log's number: the bytes behind the log's end are then from an older log.
    recycled: bool,
    /// Decompresses the fragments, if the log is compressed.
    decompression: Option<Decompression>,
    /// Sizes of timestamps by the id of the column family.
    timestamp_sizes: BTreeMap<u32, u16>,
    /// Whether a record was returned.
    any: bool,
    /// Offset in the file up to which everything is dropped.
    drops_until: u64,
    /// Whether a recycled log's end was reached.
    ended: bool,
    /// Offset in the file up to which no record is cut off.
    sound_end: u64,
    /// Offset in the file behind the last record about the log itself.
    control_end: u64,
    /// Offset in the file behind the fragment that was read last, damaged ones too.
    fragment_end: u64,
    /// Number of zeros at `buffer[parsed..]`, if a MANIFEST has zeros in place of a record and nothing behind them.
    zeros: usize,
    /// Whether a header of zeros stood in place of a record.
    dropped_zeros: bool,
}

struct Fragment {
    kind: u8,
    payload: Vec<u8>,
}

/// The bytes at the position of a fragment.
enum Found {
    /// A sound fragment.
    Fragment(Fragment),
    /// An error that RocksDB does not report. It drops the rest of the block, and the record to which a part of the
    /// block belongs.
    Dropped,
    /// The rest of the block is too short for the header.
    Padding,
}

impl LogReader {
    /// A reader at the start of a MANIFEST.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader of a MANIFEST that continues behind a record, which ends at this offset.
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

    /// Offset behind the last sound record if other bytes follow: the start of a record, or, in a recycled log, the
    /// rest of an older log. A crash leaves them. Call it after all bytes were fed.
    pub fn torn_at(&self) -> Option<u64> {
        (self.bytes_fed() > self.sound_end).then_some(self.sound_end)
    }

    /// Offset behind the last record about the log itself, such as its compression; 0 if there is none so far.
    pub fn control_end(&self) -> u64 {
        self.control_end
    }

    /// Whether a recycled log ended: no later bytes belong to it.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the bytes that were fed may become others. RocksDB may write the next log over a recycled one
    /// (`recycle_log_file_num`), and records over zeros that it has preallocated. It only appends to other logs.
    ///
    /// RocksDB recycles no log of a process that had the option off
    /// (`db_impl_files.cc:MinLogNumberToRecycle`), so that records without the log's number stay.
    pub fn may_change(&self) -> bool {
        self.recycled || self.dropped_zeros || self.failed.is_some()
    }

    /// Offset in the file behind the fragment because of which [`LogReader::next_record`] failed. If only zeros follow,
    /// a crash in the log's last write may be the cause.
    pub fn failed_until(&self) -> u64 {
        self.fragment_end
    }

    /// Whether only zeros follow the records of a MANIFEST. They may be preallocated, and edits may replace them later;
    /// another reader has to read those. Call it when there is no next record.
    pub fn ends_in_zeros(&self) -> bool {
        self.zeros > 0
    }

    /// Sizes of timestamps at the ends of user keys, by the ids of the column families that have any in this log, so
    /// far.
    pub fn timestamp_sizes(&self) -> &BTreeMap<u32, u16> {
        &self.timestamp_sizes
    }

    /// The next whole record; `None` if more bytes are needed, and at the end of a recycled log.
    ///
    /// # Errors
    /// Corruption if RocksDB's reader reports one: a checksum does not match, or fragments are impossible. Unsupported
    /// for types of fragments that are unknown or not allowed in a MANIFEST. The offset is the one in the file, and
    /// later calls return the same error.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.ended {
            return Ok(None);
        }
        match self.assemble() {
            // The rest of an older log can look like anything.
            Err(error) if self.recycled && error.kind == ErrorKind::Corruption => {
                self.ended = true;
                Ok(None)
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
            Ok(record) => Ok(record),
        }
    }

    fn assemble(&mut self) -> Result<Option<Record>> {
        loop {
            let is_ready = self.skip_rest_of_block();
            if self.open.is_none() {
                self.sound_end = self.at;
            }
            let start = self.at;
            let found = if is_ready { self.fragment()? } else { None };
            let fragment = match found {
                None => return Ok(None),
                Some(Found::Fragment(fragment)) => fragment,
                Some(Found::Dropped) if self.open.is_some() => {
                    return Err(Error::corruption(start, "log record without its last part"));
                }
                Some(Found::Dropped | Found::Padding) => {
                    let block = BLOCK_LEN as u64;
                    self.drops_until = (start / block + 1) * block;
                    continue;
                }
            };
            if let Some(record) = self.take(start, fragment)? {
                self.any = true;
                if let Some(decompression) = &mut self.decompression {
                    decompression.begin_record();
                }
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(None);
            }
        }
    }

    /// Takes a fragment that begins at `start`. Returns the record that it completes.
    fn take(&mut self, start: u64, fragment: Fragment) -> Result<Option<Record>> {
        let Fragment { kind, payload } = fragment;
        let corruption = |what: &'static str| Err(Error::corruption(start, what));
        // Old writers could leave an empty first fragment at the end of a block and start again in the next one;
        // nothing is lost.
        let interrupted = self.open.as_ref().is_some_and(|(_, part)| !part.is_empty());
        match kind {
            FULL | FIRST | TIMESTAMP_SIZE | RECYCLABLE_TIMESTAMP_SIZE if interrupted => {
                return corruption("log record without its last part");
            }
            FULL => {
                self.open = None;
                return Ok(Some(self.record(start, payload)));
            }
            FIRST => self.open = Some((start, payload)),
            MIDDLE | LAST => {
                let Some((offset, mut bytes)) = self.open.take() else {
                    return corruption("log record without its first part");
                };
                bytes.extend_from_slice(&payload);
                if kind == LAST {
                    return Ok(Some(self.record(offset, bytes)));
                }
                self.open = Some((offset, bytes));
            }
            SET_COMPRESSION if self.any || self.decompression.is_some() => {
                return corruption("the log's compression is not told by its first record");
            }
            SET_COMPRESSION => {
                self.begin_control();
                self.decompression = Some(Decompression::new(&payload).map_err(|e| e.at(start))?);
            }
            TIMESTAMP_SIZE | RECYCLABLE_TIMESTAMP_SIZE => {
                self.begin_control();
                self.take_timestamp_sizes(&payload)
                    .map_err(|e| e.at(start))?;
            }
            PREDECESSOR | RECYCLABLE_PREDECESSOR => {
                self.begin_control();
                if payload.len() < PREDECESSOR_LEN {
                    return corruption("malformed record about the log before");
                }
            }
            END_OF_FILE | BAD_RECORD if self.open.is_some() => {
                return corruption("log record without its last part");
            }
            END_OF_FILE => {
                self.ended = true;
                // RocksDB misses nothing.
                self.sound_end = u64::MAX;
            }
            OLD_RECORD => self.ended = true,
            BAD_HEADER..=BAD_CHECKSUM => {
                let what = format!("log record of type {kind}");
                return Err(Error::corruption(start, what));
            }
            IGNORABLE.. => self.open = None,
            _ => {
                let what = format!("log record of type {kind}");
                return Err(Error::unsupported(start, what));
            }
        }
        Ok(None)
    }

    /// Notes a record about the log itself, and drops the parts of another one. RocksDB still treats the next part as one
    /// of that record.
    fn begin_control(&mut self) {
        self.control_end = self.at;
        if let Some((_, parts)) = &mut self.open {
            parts.clear();
        }
    }

    fn take_timestamp_sizes(&mut self, payload: &[u8]) -> Result<()> {
        let malformed = || Error::corruption(0, "malformed sizes of timestamps");
        if !payload.len().is_multiple_of(TIMESTAMP_SIZE_LEN) {
            return Err(malformed());
        }
        for entry in payload.chunks_exact(TIMESTAMP_SIZE_LEN) {
            let (family, size) = (le32(entry), u16::from_le_bytes([entry[4], entry[5]]));
            if size == 0 || self.timestamp_sizes.insert(family, size).is_some() {
                return Err(malformed());
            }
        }
        Ok(())
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
        if len > 0 {
            self.zeros = 0;
        }
        self.parsed += len;
        self.at += len as u64;
    }

    /// Skips the dropped rest of a block, and padding. Returns whether a header can follow; false if more bytes are
    /// needed first.
    fn skip_rest_of_block(&mut self) -> bool {
        let fed = self.buffer.len() - self.parsed;
        let dropped = self.drops_until.saturating_sub(self.at);
        self.advance(fed.min(dropped as usize));
        let (left, fed) = (self.block_left(), self.buffer.len() - self.parsed);
        if left < HEADER_LEN && fed >= left {
            self.advance(left);
        }
        self.at >= self.drops_until && self.block_left() >= HEADER_LEN
    }

    /// The fragment or error at the current position; `None` if it is incomplete, or from an older log.
    fn fragment(&mut self) -> Result<Option<Found>> {
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
            // RocksDB 11.12 does not stop here: it reads the same header again and again.
            let what = "recycled log record in a log that is not recycled";
            return Err(Error::corruption(self.at, what));
        }
        self.recycled |= has_number;
        if self.block_left() < header {
            return Ok((rest.len() >= self.block_left()).then_some(Found::Padding));
        }
        if header + len > self.block_left() {
            let what = format!("log record of {len} bytes runs past its block");
            return Err(Error::corruption(self.at, what));
        }
        if kind == 0 && len == 0 {
            let may_wait = self.number.is_none() && self.open.is_none();
            if may_wait && rest[self.zeros..].iter().all(|&byte| byte == 0) {
                self.zeros = rest.len();
                return Ok(None);
            }
            self.dropped_zeros = true;
            return Ok(Some(Found::Dropped));
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
        let is_of_a_manifest = matches!(kind, FULL..=LAST | IGNORABLE..)
            && !matches!(kind, RECYCLABLE_PREDECESSOR..=BAD_CHECKSUM);
        if self.number.is_none() && !is_of_a_manifest {
            let what = format!("log record of type {kind} in a MANIFEST");
            return Err(Error::unsupported(self.at, what));
        }
        let payload = &body[1 + header - HEADER_LEN..];
        let payload = match &mut self.decompression {
            Some(decompression) if !is_never_compressed(kind) => decompression.run(payload),
            _ => Some(payload.to_vec()),
        };
        self.advance(header + len);
        let kind = match kind {
            RECYCLABLE_FULL..=RECYCLABLE_LAST => kind - RECYCLABLE_FULL + FULL,
            _ => kind,
        };
        let fragment = payload.map(|payload| Found::Fragment(Fragment { kind, payload }));
        Ok(Some(fragment.unwrap_or(Found::Dropped)))
    }
}

/// Bytes at the beginning of a log that [`has_record`] looks at.
pub const FIRST_HEADER_LEN: usize = RECYCLABLE_HEADER_LEN;

/// Whether the log of this number begins with a record, given its first bytes; `None` if they do not tell: a reader passes over
/// zeros and headers without a record.
pub fn has_record(header: &[u8], number: u64) -> Option<bool> {
    let kind = *header.get(HEADER_LEN - 1)?;
    match kind {
        FULL..=LAST => Some(true),
        RECYCLABLE_FULL..=RECYCLABLE_LAST => {
            let own = header.get(HEADER_LEN..RECYCLABLE_HEADER_LEN)?;
            Some(own == (number as u32).to_le_bytes())
        }
        _ => None,
    }
}

/// Whether headers of fragments of the type have the log's number.
fn is_recyclable(kind: u8) -> bool {
    matches!(
        kind,
        RECYCLABLE_FULL..=RECYCLABLE_LAST | RECYCLABLE_TIMESTAMP_SIZE | RECYCLABLE_PREDECESSOR
    )
}

/// Whether fragments of the type stay uncompressed in a compressed log; RocksDB decompresses those of unknown types.
fn is_never_compressed(kind: u8) -> bool {
    matches!(
        kind,
        SET_COMPRESSION..=RECYCLABLE_TIMESTAMP_SIZE | PREDECESSOR | RECYCLABLE_PREDECESSOR
    )
}

/// Added to a rotated CRC before it is stored (`util/crc32c.h:kMaskDelta`).
pub(crate) const MASK_DELTA: u32 = 0xa282_ead8;

/// Bits by which a CRC is rotated to the right before it is stored.
pub(crate) const MASK_ROTATION: u32 = 15;

/// The CRC behind a masked one (`util/crc32c.h:Unmask`).
fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(MASK_ROTATION)
}
