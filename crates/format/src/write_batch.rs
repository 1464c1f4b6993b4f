//! Write batches, the contents of a write-ahead log (`db/write_batch.cc`).
//!
//! ```text
//! batch  := u64 sequence number of its first entry, u32 number of entries, record*
//! record := u8 type [varint32 column family] [key] [value]
//! ```
//!
//! Keys and values have a varint32 length in front. Records of the default column family have types of their own.
//!
//! A prepared transaction of the policy `WRITE_COMMITTED` has its entries between two markers, the second of which has
//! its name. A later batch has a marker of its commit or rollback with that name.

use crate::coding::Cursor;
use crate::error::{Error, Result};
use crate::key::{MAX_SEQUENCE, ValueType};

/// Length of a batch's header (`WriteBatchInternal::kHeader`).
pub const HEADER_LEN: usize = 8 + 4;

/// Offset of the number of entries.
const COUNT_AT: usize = 8;

/// Bytes of the write time at the end of a timed put's value.
const WRITE_TIME_LEN: usize = 8;

/// Types of records beyond those of [`ValueType`] (`db/dbformat.h:ValueType`).
mod tag {
    pub const LOG_DATA: u8 = 0x03;
    pub const FAMILY_DELETION: u8 = 0x04;
    pub const FAMILY_VALUE: u8 = 0x05;
    pub const FAMILY_MERGE: u8 = 0x06;
    pub const FAMILY_SINGLE_DELETION: u8 = 0x08;
    pub const BEGIN_PREPARE: u8 = 0x09;
    pub const END_PREPARE: u8 = 0x0a;
    pub const COMMIT: u8 = 0x0b;
    pub const ROLLBACK: u8 = 0x0c;
    pub const NOOP: u8 = 0x0d;
    pub const FAMILY_RANGE_DELETION: u8 = 0x0e;
    pub const FAMILY_BLOB_INDEX: u8 = 0x10;
    pub const BEGIN_PERSISTED_PREPARE: u8 = 0x12;
    pub const BEGIN_UNPREPARE: u8 = 0x13;
    pub const COMMIT_WITH_TIMESTAMP: u8 = 0x15;
    pub const FAMILY_WIDE_COLUMN_ENTITY: u8 = 0x17;
    pub const FAMILY_VALUE_PREFERRED_SEQNO: u8 = 0x19;
}

/// One entry, as RocksDB inserts it into a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry<'a> {
    /// Offset of the record in the batch.
    pub offset: usize,
    /// Id of the column family, which may have been dropped since.
    pub column_family: u32,
    /// Sequence number.
    pub sequence: u64,
    /// Type of the entry.
    pub kind: ValueType,
    /// User key; for a range deletion, the first user key.
    pub key: &'a [u8],
    /// Value as a memtable holds it; for a range deletion, its exclusive end, a user key. Deletions have none.
    pub value: &'a [u8],
}

/// A record of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchRecord<'a> {
    /// An entry.
    Entry(BatchEntry<'a>),
    /// A transaction that is prepared.
    Prepared(Prepared<'a>),
    /// The transaction of this name is committed: its entries get the next sequence numbers.
    Commit(&'a [u8]),
    /// The transaction of this name is rolled back.
    Rollback(&'a [u8]),
}

/// Entries without effect and sequence numbers until their transaction is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared<'a> {
    /// Name of the transaction.
    pub name: &'a [u8],
    /// The entries' records.
    pub records: &'a [u8],
    /// Number of entries.
    pub count: u32,
}

/// Forward reader over a batch's records.
///
/// Each entry has its own sequence number. Databases whose transactions are written before they are committed
/// (`WRITE_PREPARED`, `WRITE_UNPREPARED`) are an exception. Keys have no user-defined timestamps.
#[derive(Debug, Clone)]
pub struct WriteBatch<'a> {
    first_sequence: u64,
    count: u32,
    cursor: Cursor<'a>,
    /// Entries so far, as the header counts them.
    found: u32,
    /// Number of sequence numbers that RocksDB used for the records so far.
    taken: u64,
    sequence: u64,
}

impl<'a> WriteBatch<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// Corruption if it is cut off or has an impossible sequence number.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(bytes);
        let (sequence, count) = (cursor.u64()?, cursor.u32()?);
        Self::new(sequence, count, cursor)
    }

    /// The entries of a committed transaction. The first one has this sequence number.
    ///
    /// # Errors
    /// Corruption if the sequence number is impossible.
    pub fn of_prepared(prepared: &Prepared<'a>, sequence: u64) -> Result<Self> {
        Self::new(sequence, prepared.count, Cursor::new(prepared.records))
    }

    fn new(sequence: u64, count: u32, cursor: Cursor<'a>) -> Result<Self> {
        let is_possible = sequence <= MAX_SEQUENCE && u64::from(count) <= MAX_SEQUENCE - sequence;
        if !is_possible {
            let what = format!("batch of {count} entries with sequence number {sequence}");
            return Err(Error::corruption(0, what));
        }
        Ok(Self {
            first_sequence: sequence,
            count,
            cursor,
            found: 0,
            taken: 0,
            sequence,
        })
    }

    /// Sequence number of the first entry.
    pub fn first_sequence(&self) -> u64 {
        self.first_sequence
    }

    /// Last sequence number that RocksDB used for the records so far, or the one before the batch if it used none.
    pub fn last_sequence(&self) -> u64 {
        (self.first_sequence + self.taken).saturating_sub(1)
    }

    /// Sequence number behind that of the last returned entry.
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Continues behind the entries of a transaction that this batch commits.
    pub fn continue_after(&mut self, committed: &WriteBatch<'_>) {
        self.sequence = committed.sequence;
        self.taken += committed.taken;
    }

    /// The next record, or `None` behind the last. Comments (`PutLogData`) and empty ranges are skipped.
    ///
    /// # Errors
    /// Corruption if a record is malformed or unknown, or the header has another number of entries. Unsupported for
    /// transactions that are written before they are committed. After an error, the reader must not be used any more.
    pub fn next_record(&mut self) -> Result<Option<BatchRecord<'a>>> {
        while !self.cursor.is_empty() {
            let at = self.cursor.offset();
            let marker = match self.cursor.u8()? {
                tag::BEGIN_PREPARE => BatchRecord::Prepared(self.prepared()?),
                tag::COMMIT => BatchRecord::Commit(self.cursor.length_prefixed()?),
                tag::ROLLBACK => BatchRecord::Rollback(self.cursor.length_prefixed()?),
                code => {
                    let Some(entry) = self.entry(at, code)? else {
                        continue;
                    };
                    BatchRecord::Entry(entry)
                }
            };
            return Ok(Some(marker));
        }
        if self.found < self.count {
            return Err(self.wrong_count("fewer"));
        }
        Ok(None)
    }

    /// The records up to the end of a prepared transaction.
    fn prepared(&mut self) -> Result<Prepared<'a>> {
        let (found, taken, sequence) = (self.found, self.taken, self.sequence);
        let (start, rest) = (self.cursor.offset(), self.cursor.rest());
        loop {
            let at = self.cursor.offset();
            let code = self.cursor.u8()?;
            if code == tag::END_PREPARE {
                (self.taken, self.sequence) = (taken, sequence);
                return Ok(Prepared {
                    name: self.cursor.length_prefixed()?,
                    records: &rest[..at - start],
                    count: self.found - found,
                });
            }
            self.entry(at, code)?;
        }
    }

    /// The entry of this type that begins before the cursor; `None` if RocksDB inserts none.
    fn entry(&mut self, offset: usize, code: u8) -> Result<Option<BatchEntry<'a>>> {
        let Some((kind, has_family)) = self.kind(offset, code)? else {
            return Ok(None);
        };
        let column_family = if has_family {
            self.cursor.varint32()?
        } else {
            0
        };
        let key = self.cursor.length_prefixed()?;
        let value = if kind.is_tombstone() {
            &[]
        } else {
            self.cursor.length_prefixed()?
        };
        if kind == ValueType::ValuePreferredSeqno && value.len() < WRITE_TIME_LEN {
            return Err(Error::corruption(offset, "timed put without its time"));
        }
        if self.found == self.count {
            return Err(self.wrong_count("more"));
        }
        self.found += 1;
        self.taken += 1;
        // RocksDB then inserts nothing, and continues with the same number. (Its recovery counts the entry if the
        // column family is flushed. That changes neither the order of entries nor the next batch.)
        if kind == ValueType::RangeDeletion && key == value {
            return Ok(None);
        }
        let sequence = self.sequence;
        self.sequence += 1;
        Ok(Some(BatchEntry {
            offset,
            column_family,
            sequence,
            kind,
            key,
            value,
        }))
    }

    /// Meaning of a type, and whether a column family is named; `None` for a record that is not an entry.
    fn kind(&mut self, at: usize, code: u8) -> Result<Option<(ValueType, bool)>> {
        let of_family = match code {
            tag::LOG_DATA => {
                self.cursor.length_prefixed()?;
                return Ok(None);
            }
            tag::NOOP => return Ok(None),
            tag::BEGIN_PERSISTED_PREPARE | tag::BEGIN_UNPREPARE | tag::COMMIT_WITH_TIMESTAMP => {
                return Err(Error::unsupported(at, "two-phase records"));
            }
            tag::BEGIN_PREPARE | tag::END_PREPARE | tag::COMMIT | tag::ROLLBACK => {
                let what = "a misplaced marker of a transaction";
                return Err(Error::corruption(at, what));
            }
            tag::FAMILY_DELETION => Some(ValueType::Deletion),
            tag::FAMILY_VALUE => Some(ValueType::Value),
            tag::FAMILY_MERGE => Some(ValueType::Merge),
            tag::FAMILY_SINGLE_DELETION => Some(ValueType::SingleDeletion),
            tag::FAMILY_RANGE_DELETION => Some(ValueType::RangeDeletion),
            tag::FAMILY_BLOB_INDEX => Some(ValueType::BlobIndex),
            tag::FAMILY_WIDE_COLUMN_ENTITY => Some(ValueType::WideColumnEntity),
            tag::FAMILY_VALUE_PREFERRED_SEQNO => Some(ValueType::ValuePreferredSeqno),
            _ => None,
        };
        if let Some(kind) = of_family {
            return Ok(Some((kind, true)));
        }
        match ValueType::from_code(code) {
            // RocksDB turns a deletion into this type when it inserts it.
            None | Some(ValueType::DeletionWithTimestamp) => {
                let what = format!("write batch record of type {code}");
                Err(Error::corruption(at, what))
            }
            Some(kind) => Ok(Some((kind, false))),
        }
    }

    fn wrong_count(&self, than: &str) -> Error {
        let what = format!(
            "write batch has {than} entries than the {} in its header",
            self.count
        );
        Error::corruption(COUNT_AT, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::{put_length_prefixed, put_varint};
    use crate::error::ErrorKind;
    use crate::log::LogReader;
    use proptest::prelude::*;

    /// All types of entries; those of the default column family, then of the others.
    const KINDS: [(ValueType, u8, u8); 8] = [
        (ValueType::Deletion, 0x00, 0x04),
        (ValueType::Value, 0x01, 0x05),
        (ValueType::Merge, 0x02, 0x06),
        (ValueType::SingleDeletion, 0x07, 0x08),
        (ValueType::RangeDeletion, 0x0f, 0x0e),
        (ValueType::BlobIndex, 0x11, 0x10),
        (ValueType::WideColumnEntity, 0x16, 0x17),
        (ValueType::ValuePreferredSeqno, 0x18, 0x19),
    ];

    type Owned = (u32, usize, Vec<u8>, Vec<u8>);

    fn put(out: &mut Vec<u8>, (family, kind, key, value): &Owned) {
        let (kind, default, of_family) = KINDS[*kind];
        if *family == 0 {
            out.push(default);
        } else {
            out.push(of_family);
            put_varint(out, u64::from(*family));
        }
        put_length_prefixed(out, key);
        if !kind.is_tombstone() {
            put_length_prefixed(out, value);
        }
    }

    fn batch(sequence: u64, count: u32) -> Vec<u8> {
        [&sequence.to_le_bytes()[..], &count.to_le_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<BatchEntry<'_>>, u64)> {
        let mut reader = WriteBatch::parse(bytes)?;
        let mut out = Vec::new();
        while let Some(record) = reader.next_record()? {
            out.extend(match record {
                BatchRecord::Entry(entry) => Some(entry),
                _ => None,
            });
        }
        Ok((out, reader.next_sequence()))
    }

    prop_compose! {
        fn any_entry()(
            family in prop_oneof![Just(0u32), any::<u32>()],
            kind in 0..KINDS.len(),
            key: Vec<u8>,
            value in prop::collection::vec(any::<u8>(), 8..200),
        ) -> Owned {
            (family, kind, key, value)
        }
    }

    proptest! {
        #[test]
        fn entries_round_trip_with_consecutive_sequence_numbers(
            sequence in 0..=MAX_SEQUENCE / 2,
            entries in prop::collection::vec(any_entry(), 0..20),
            noise in prop::collection::vec(0u8..4, 20),
        ) {
            let mut bytes = batch(sequence, entries.len() as u32);
            for (entry, noise) in entries.iter().zip(noise) {
                match noise {
                    0 => bytes.push(tag::NOOP),
                    1 => {
                        bytes.push(tag::LOG_DATA);
                        put_length_prefixed(&mut bytes, b"comment");
                    }
                    _ => {}
                }
                put(&mut bytes, entry);
            }
            let (found, next) = read(&bytes).unwrap();
            prop_assert_eq!(found.len(), entries.len());
            let mut expected = sequence;
            for (found, (family, kind, key, value)) in found.iter().zip(&entries) {
                let kind = KINDS[*kind].0;
                let value: &[u8] = if kind.is_tombstone() { &[] } else { value };
                prop_assert_eq!((found.column_family, found.sequence, found.kind), (*family, expected, kind));
                prop_assert_eq!((found.key, found.value), (&key[..], value));
                expected += 1;
            }
            prop_assert_eq!(next, expected);
            for cut in 0..bytes.len() {
                prop_assert!(read(&bytes[..cut]).is_err() || entries.is_empty() && cut >= HEADER_LEN);
            }
        }

        #[test]
        fn reading_any_bytes_is_total(bytes: Vec<u8>, records in prop::collection::vec(0u8..0x1c, 0..60)) {
            for bytes in [bytes, [batch(7, 3), records].concat()] {
                if let Err(error) = read(&bytes) {
                    prop_assert!(error.offset <= bytes.len() as u64);
                }
            }
        }
    }

    /// Four batches of two column families, written by RocksDB 11.12; the first one ends with an empty range.
    const REAL: &[u8] = include_bytes!("../tests/data/log-11.12.bin");

    #[test]
    fn a_real_log_gives_the_entries_that_were_written() {
        let mut log = LogReader::write_ahead_log(4);
        log.push(REAL);
        let mut found = Vec::new();
        let mut ends = Vec::new();
        while let Some(record) = log.next_record().unwrap() {
            let (entries, _) = read(&record.payload).unwrap();
            for entry in entries {
                let text = [entry.key, entry.value].map(|bytes| bytes.escape_ascii().to_string());
                found.push((
                    entry.column_family,
                    entry.sequence,
                    entry.kind,
                    text.join("="),
                ));
            }
            let mut batch = WriteBatch::parse(&record.payload).unwrap();
            while batch.next_record().unwrap().is_some() {}
            ends.push((batch.first_sequence(), batch.last_sequence()));
        }
        assert_eq!(log.torn_at(), None);
        assert_eq!(ends, [(1, 6), (7, 11), (12, 12), (13, 13)]);
        let expected = [
            (0, 1, ValueType::Value, "put=value"),
            (0, 2, ValueType::Deletion, "deleted="),
            (0, 3, ValueType::SingleDeletion, "deleted once="),
            (0, 4, ValueType::Merge, "merged=operand"),
            (0, 5, ValueType::RangeDeletion, "a=b"),
            (1, 7, ValueType::Value, "put=other value"),
            (1, 8, ValueType::Deletion, "deleted="),
            (1, 9, ValueType::SingleDeletion, "deleted once="),
            (1, 10, ValueType::Merge, "merged=other operand"),
            (1, 11, ValueType::RangeDeletion, "c=d"),
            (
                0,
                12,
                ValueType::WideColumnEntity,
                "entity=\\x01\\x02\\x00\\n\\x04name\\x05of columnsother",
            ),
            (
                0,
                13,
                ValueType::ValuePreferredSeqno,
                "timed=value\\x00\\xf1Se\\x00\\x00\\x00\\x00",
            ),
        ];
        let expected = expected
            .map(|(family, sequence, kind, text)| (family, sequence, kind, text.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn an_empty_range_is_counted_but_takes_no_sequence_number() {
        let mut bytes = batch(5, 3);
        for (kind, end) in [(4, b"k"), (4, b"l"), (1, b"v")] {
            put(&mut bytes, &(0, kind, b"k".to_vec(), end.to_vec()));
        }
        let (found, next) = read(&bytes).unwrap();
        let found: Vec<_> = found.iter().map(|e| (e.sequence, e.kind)).collect();
        assert_eq!(
            found,
            [(5, ValueType::RangeDeletion), (6, ValueType::Value)]
        );
        assert_eq!(next, 7);
    }

    #[test]
    fn the_header_counts_the_entries() {
        for (count, is_right) in [(0, false), (1, true), (2, false)] {
            let mut bytes = batch(1, count);
            put(&mut bytes, &(0, 0, b"k".to_vec(), Vec::new()));
            match read(&bytes) {
                Ok(_) => assert!(is_right),
                Err(error) => assert_eq!((error.offset, is_right), (COUNT_AT as u64, false)),
            }
        }
    }

    #[test]
    fn entries_of_prepared_transactions_take_sequence_numbers_when_they_are_committed() {
        let marker = |out: &mut Vec<u8>, code, name: &[u8]| {
            out.push(code);
            put_length_prefixed(out, name);
        };
        let entry = |key: &[u8]| (0, 1, key.to_vec(), b"v".to_vec());
        let mut bytes = batch(5, 4);
        put(&mut bytes, &entry(b"a"));
        bytes.push(tag::BEGIN_PREPARE);
        put(&mut bytes, &entry(b"b"));
        put(&mut bytes, &entry(b"c"));
        marker(&mut bytes, tag::END_PREPARE, b"name");
        marker(&mut bytes, tag::ROLLBACK, b"other");
        marker(&mut bytes, tag::COMMIT, b"name");
        put(&mut bytes, &entry(b"d"));
        let mut reader = WriteBatch::parse(&bytes).unwrap();
        let mut found = Vec::new();
        let mut prepared = None;
        while let Some(record) = reader.next_record().unwrap() {
            match record {
                BatchRecord::Entry(entry) => found.push((entry.key, entry.sequence)),
                BatchRecord::Prepared(all) => prepared = Some(all),
                BatchRecord::Rollback(name) => assert_eq!(name, b"other"),
                BatchRecord::Commit(name) => {
                    let prepared = prepared.take().unwrap();
                    assert_eq!((prepared.name, prepared.count), (name, 2));
                    let next = reader.next_sequence();
                    let mut committed = WriteBatch::of_prepared(&prepared, next).unwrap();
                    while let Some(record) = committed.next_record().unwrap() {
                        let BatchRecord::Entry(entry) = record else {
                            panic!("{record:?}");
                        };
                        found.push((entry.key, entry.sequence));
                    }
                    reader.continue_after(&committed);
                }
            }
        }
        assert_eq!(found, [(&b"a"[..], 5), (b"b", 6), (b"c", 7), (b"d", 8)]);
        assert_eq!((reader.next_sequence(), reader.last_sequence()), (9, 8));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn other_two_phase_records_are_unsupported_and_what_is_not_known_corruption() {
        for code in 0..=u8::MAX {
            let mut bytes = batch(1, 1);
            bytes.push(code);
            let is_entry = KINDS.iter().any(|&(_, a, b)| code == a || code == b);
            // Markers of transactions lack their ends or names here.
            if is_entry || matches!(code, tag::LOG_DATA | tag::NOOP | 0x09 | 0x0b | 0x0c) {
                continue;
            }
            let error = read(&bytes).unwrap_err();
            if [0x12, 0x13, 0x15].contains(&code) {
                assert_eq!(
                    (error.kind, &*error.what),
                    (ErrorKind::Unsupported, "two-phase records")
                );
            } else {
                assert_eq!(error.kind, ErrorKind::Corruption, "{code}");
            }
            assert_eq!(error.offset, HEADER_LEN as u64);
        }
        // Transactions are not nested.
        for code in [tag::BEGIN_PREPARE, tag::COMMIT, tag::ROLLBACK] {
            let bytes = [batch(1, 0), vec![tag::BEGIN_PREPARE, code, 0]].concat();
            assert_eq!(read(&bytes).unwrap_err().kind, ErrorKind::Corruption);
        }
    }

    #[test]
    fn impossible_sequence_numbers_are_corruption() {
        assert!(read(&batch(MAX_SEQUENCE + 1, 0)).is_err());
        assert!(read(&batch(MAX_SEQUENCE, 1)).is_err());
        assert!(read(&batch(MAX_SEQUENCE, 0)).is_ok());
        let mut bytes = batch(1, 1);
        put(&mut bytes, &(0, 7, b"k".to_vec(), b"short".to_vec()));
        assert!(read(&bytes).is_err());
    }
}
