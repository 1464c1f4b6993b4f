//! Entries that are not in SST files yet: those in the write-ahead logs of a column family's memtables.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, ReadAt, Result};
use rockmill_format as format;
use rockmill_format::key::{self, ValueType, pack_tag};
use rockmill_format::log::LogReader;
use rockmill_format::manifest::Tree;
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::write_batch::{BatchEntry, BatchRecord, Prepared, WriteBatch};
use rockmill_storage::{InputFileReader, Storage, base_name};

use crate::log_folder::log_number;

/// Sizes between which the pieces lie in which memory for entries is taken, but for a larger entry.
const CHUNK_BYTES: RangeInclusive<usize> = 4 << 10..=1 << 20;

/// Bytes read from a log at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The entries of one column family that are not flushed, as its memtables hold them.
#[derive(Debug, Default)]
pub struct MemTable {
    /// Internal keys and values, one behind the other.
    chunks: Vec<Vec<u8>>,
    /// Where each entry lies.
    places: Vec<Place>,
    range_tombstones: Vec<RangeTombstone>,
    /// Bytes of memory that all of it takes.
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    chunk: u32,
    at: u32,
    user_key_len: u32,
    value_len: u32,
}

impl MemTable {
    /// Returns internal keys and values: as they were written, or ascending after [`MemTable::sort`].
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|place| self.entry(place))
    }

    /// Returns the range tombstones, in the order in which they were written.
    pub fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.range_tombstones
    }

    /// Sorts the entries: user keys ascend bytewise, the newest entry of each comes first. It takes little time if few
    /// entries were added since the last time.
    pub fn sort(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.sort_by(|a, b| key::compare(self.parts(a), self.parts(b)));
        self.places = places;
    }

    fn entry(&self, place: &Place) -> (&[u8], &[u8]) {
        let bytes = &self.chunks[place.chunk as usize][place.at as usize..];
        let (key, rest) = bytes.split_at(place.user_key_len as usize + key::TAG_SIZE);
        (key, &rest[..place.value_len as usize])
    }

    /// User key and tag.
    fn parts(&self, place: &Place) -> (&[u8], u64) {
        key::split(self.entry(place).0).unwrap_or_default()
    }

    fn add(&mut self, entry: &BatchEntry<'_>) {
        /// Sorting needs half as much again.
        const PLACE_BYTES: usize = size_of::<Place>() * 3 / 2;
        let &BatchEntry { key, value, .. } = entry;
        if entry.kind == ValueType::RangeDeletion {
            self.range_tombstones.push(RangeTombstone {
                begin: key.to_vec(),
                end: value.to_vec(),
                sequence: entry.sequence,
            });
            self.bytes += size_of::<RangeTombstone>() + key.len() + value.len();
            return;
        }
        let needed = key.len() + key::TAG_SIZE + value.len();
        let room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len();
        if self.chunks.last().is_none_or(|chunk| room(chunk) < needed) {
            // Many column families have few entries.
            let usual = self.bytes.clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
            let chunk = Vec::with_capacity(needed.max(usual));
            self.bytes += chunk.capacity();
            self.chunks.push(chunk);
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        // All of it fits 32 bits: in a chunk larger than the usual ones an entry begins at 0, and lengths in a batch
        // have no more.
        self.places.push(Place {
            chunk: last as u32,
            at: chunk.len() as u32,
            user_key_len: key.len() as u32,
            value_len: value.len() as u32,
        });
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(&pack_tag(entry.sequence, entry.kind as u8).to_le_bytes());
        chunk.extend_from_slice(value);
        self.bytes += PLACE_BYTES;
    }
}

/// What is not flushed, by column family. It grows with the batches that are added.
#[derive(Debug)]
pub struct Unflushed {
    /// Memtables by the column family's id; a column family without entries has none.
    pub families: BTreeMap<u32, MemTable>,
    /// Largest sequence number that the batches have taken, other column families' too; 0 before the first batch.
    pub last_sequence: u64,
    /// Column families with merge operands, by id.
    pub operands: BTreeSet<u32>,
    /// The logs that [`Unflushed::read`] has read, in order.
    pub logs: Vec<LogFile>,
    /// Why [`Unflushed::read`] has left out all entries, if they do not fit into the memory. Everything else is known.
    pub left_out: Option<Error>,
    /// Whether entries that do not fit into the memory are left out.
    may_leave_out: bool,
    /// Transactions that are prepared and not committed, by their names.
    prepared: BTreeMap<Vec<u8>, PreparedBatch>,
    /// Whether all are there that were prepared before the first batch and have unflushed entries.
    has_all_prepared: bool,
    /// Sequence number behind that of the last entry.
    next_sequence: Option<u64>,
    bytes: usize,
    max_bytes: usize,
}

/// A log that was read. Another process may append to it.
#[derive(Debug)]
pub struct LogFile {
    /// Number of the log.
    pub number: u64,
    /// The open file.
    pub file: InputFileReader,
    /// Offset behind the last record that was read.
    pub end: u64,
}

impl LogFile {
    /// Whether `copy`, which has the first `end` bytes, has the same records. RocksDB may write the next log over a log that
    /// it does not need any more (`recycle_log_file_num`).
    ///
    /// # Errors
    /// Those of reading `copy`; Cancelled.
    pub fn is_copied(&self, copy: &InputFileReader, cancel: &CancelToken) -> Result<bool> {
        match read_log(copy, self.number, cancel, |_, _| Ok(())) {
            Ok(read) => Ok(read.end == self.end),
            Err(error) if matches!(error.kind, ErrorKind::Storage | ErrorKind::Cancelled) => {
                Err(error)
            }
            Err(_) => Ok(false),
        }
    }
}

/// The entries of a transaction that is prepared.
#[derive(Debug)]
struct PreparedBatch {
    records: Vec<u8>,
    count: u32,
}

impl Unflushed {
    /// Returns one without entries. It may grow to `max_bytes` of memory.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            families: BTreeMap::new(),
            last_sequence: 0,
            operands: BTreeSet::new(),
            logs: Vec::new(),
            left_out: None,
            may_leave_out: false,
            prepared: BTreeMap::new(),
            has_all_prepared: false,
            next_sequence: None,
            bytes: 0,
            max_bytes,
        }
    }

    /// Number of transactions that are prepared and not committed.
    pub fn prepared_transactions(&self) -> usize {
        self.prepared.len()
    }

    /// Reads the logs of a database up to where RocksDB's recovery would, and sorts the entries.
    ///
    /// What a crash left of the last write is no part of them, and neither is a write that another process is at
    /// (`kPointInTimeRecovery`). `log_dir` is that of [`crate::log_folder::LogFolder`]. `wanted` chooses column
    /// families; it must leave out those with another order than the bytewise one and those with
    /// `inplace_update_support`, whose entries RocksDB changes when it inserts them. If the entries take more than
    /// `max_bytes` of memory, all of them are left out.
    ///
    /// # Errors
    /// Corruption if a log is damaged, or torn and followed by one that does not go on from there; Declined as
    /// [`Unflushed::add_batch`], also if prepared transactions take more than `max_bytes`; Storage; Cancelled.
    pub fn read(
        storage: &dyn Storage,
        log_dir: &Path,
        tree: &Tree,
        wanted: impl Fn(u32) -> bool,
        max_bytes: usize,
        cancel: &CancelToken,
    ) -> Result<Self> {
        let mut unflushed = Self {
            has_all_prepared: true,
            may_leave_out: true,
            ..Self::new(max_bytes)
        };
        let families = &tree.column_families;
        let chosen = families.iter().filter(|(id, _)| wanted(**id));
        let first_logs: BTreeMap<u32, u64> = chosen
            .map(|(&id, family)| (id, family.log_number))
            .collect();
        let first = families.values().map(|family| family.log_number).min();
        // Older logs are kept for the transactions that were prepared in them.
        let first = match tree.min_log_number_to_keep {
            0 => first.unwrap_or(0),
            kept => kept,
        };
        // The number of the log that is torn, and the error if no later log goes on from there.
        let mut torn: Option<(u64, Error)> = None;
        for (number, name) in log_files(storage, log_dir, first)? {
            let file = InputFileReader::open(storage, &log_dir.join(name))?;
            let takes = |id: u32, _| first_logs.get(&id).is_some_and(|&first| first <= number);
            let read = read_log(&file, number, cancel, |offset, batch| {
                let in_record = |error: Error| Error {
                    offset: Some(offset),
                    ..error.in_file(file.name())
                };
                let batch = WriteBatch::parse(batch).map_err(|e| in_record(in_batch(e)))?;
                // A database that was opened with a torn log goes on from there in the next one.
                if let Some((_, error)) = torn.take()
                    && unflushed.next_sequence != Some(batch.first_sequence())
                {
                    return Err(error);
                }
                unflushed.add(batch, takes).map_err(in_record)
            })?;
            let end = read.end;
            // RocksDB takes them off the keys of a column family that has none any more.
            if read.timestamp_sizes.keys().any(|&id| takes(id, 0)) {
                let what =
                    "keys in the log end with timestamps, which the column family has no more";
                let error = Error::declined(DeclineReason::UserTimestamps, what);
                return Err(error.in_file(file.name()));
            }
            // A recycled log ends with records of an older log.
            let lost_in = if read.is_recycled { u64::MAX } else { number };
            torn = read.torn.map(|error| (lost_in, error)).or(torn);
            unflushed.logs.push(LogFile { number, file, end });
        }
        // RocksDB refuses such a database: the column family's files may hold what was written behind the loss.
        let is_flushed_behind = |torn| {
            let mut families = tree.column_families.values();
            families.any(|family| family.log_number > torn && !family.levels.is_empty())
        };
        if let Some((number, error)) = torn
            && is_flushed_behind(number)
        {
            return Err(error);
        }
        for family in unflushed.families.values_mut() {
            family.sort();
        }
        Ok(unflushed)
    }

    /// Adds the entries of a write batch that `takes` chooses by the column family's id and the sequence number. Those of a
    /// transaction that is prepared are added when it is committed.
    ///
    /// # Errors
    /// Corruption if the batch is malformed; Declined if it was written before its transaction is committed, if it
    /// commits a transaction that was prepared in no batch before, and beyond `max_bytes`. Nothing must be added further
    /// then.
    pub fn add_batch(&mut self, batch: &[u8], takes: impl Fn(u32, u64) -> bool) -> Result<()> {
        self.add(WriteBatch::parse(batch).map_err(in_batch)?, takes)
    }

    fn add(&mut self, mut batch: WriteBatch<'_>, takes: impl Fn(u32, u64) -> bool) -> Result<()> {
        if self.next_sequence > Some(batch.first_sequence()) {
            let what = "write batches share sequence numbers, as those of two-phase commits do";
            return Err(Error::declined(DeclineReason::Allow2pc, what));
        }
        while let Some(record) = batch.next_record().map_err(in_batch)? {
            match record {
                BatchRecord::Entry(entry) => self.add_entry(&entry, &takes)?,
                BatchRecord::Prepared(prepared) => self.prepare(&prepared)?,
                BatchRecord::Rollback(name) => {
                    self.forget(name);
                }
                BatchRecord::Commit(name) => match self.forget(name) {
                    Some(known) => self.commit(name, &known, &mut batch, &takes)?,
                    // RocksDB removes a log when all that its transactions wrote is flushed.
                    None if self.has_all_prepared => {}
                    None => {
                        let what = "a transaction was prepared before the first batch that is read";
                        return Err(Error::declined(DeclineReason::Allow2pc, what));
                    }
                },
            }
        }
        self.next_sequence = Some(batch.next_sequence());
        self.last_sequence = self.last_sequence.max(batch.last_sequence());
        Ok(())
    }

    fn add_entry(
        &mut self,
        entry: &BatchEntry<'_>,
        takes: &impl Fn(u32, u64) -> bool,
    ) -> Result<()> {
        if !takes(entry.column_family, entry.sequence) {
            return Ok(());
        }
        if entry.kind == ValueType::RangeDeletion && entry.key > entry.value {
            let what = "a range deletion ends before it begins";
            return Err(Error::new(ErrorKind::Corruption, what));
        }
        if entry.kind == ValueType::Merge {
            self.operands.insert(entry.column_family);
        }
        if self.left_out.is_some() {
            return Ok(());
        }
        let family = self.families.entry(entry.column_family).or_default();
        let before = family.bytes;
        family.add(entry);
        self.bytes += family.bytes - before;
        self.check_memory()
    }

    fn prepare(&mut self, prepared: &Prepared<'_>) -> Result<()> {
        self.forget(prepared.name);
        let batch = PreparedBatch {
            records: prepared.records.to_vec(),
            count: prepared.count,
        };
        self.bytes += prepared.name.len() + batch.bytes();
        self.prepared.insert(prepared.name.to_vec(), batch);
        self.check_memory()
    }

    /// Forgets that a transaction is prepared.
    fn forget(&mut self, name: &[u8]) -> Option<PreparedBatch> {
        let known = self.prepared.remove(name)?;
        self.bytes -= name.len() + known.bytes();
        Some(known)
    }

    fn commit(
        &mut self,
        name: &[u8],
        known: &PreparedBatch,
        batch: &mut WriteBatch<'_>,
        takes: &impl Fn(u32, u64) -> bool,
    ) -> Result<()> {
        let prepared = Prepared {
            name,
            records: &known.records,
            count: known.count,
        };
        let committed = WriteBatch::of_prepared(&prepared, batch.next_sequence());
        let mut committed = committed.map_err(in_batch)?;
        while let Some(record) = committed.next_record().map_err(in_batch)? {
            if let BatchRecord::Entry(entry) = record {
                self.add_entry(&entry, takes)?;
            }
        }
        batch.go_on_behind(&committed);
        Ok(())
    }

    fn check_memory(&mut self) -> Result<()> {
        if self.bytes <= self.max_bytes {
            return Ok(());
        }
        let what = format!(
            "what is not flushed takes more than {} bytes of memory; flush the database",
            self.max_bytes
        );
        let error = Error::declined(DeclineReason::MemoryBudget, what);
        if !self.may_leave_out || self.left_out.is_some() {
            return Err(error);
        }
        let families = std::mem::take(&mut self.families);
        self.bytes -= families.values().map(|family| family.bytes).sum::<usize>();
        self.left_out = Some(error);
        self.check_memory()
    }
}

impl PreparedBatch {
    /// Bytes of memory.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.records.len()
    }
}

/// Returns the numbers and names of the logs from number `first` on, in order.
fn log_files(storage: &dyn Storage, dir: &Path, first: u64) -> Result<BTreeMap<u64, String>> {
    let names = storage
        .list(dir)
        .map_err(|e| Error::storage(&base_name(dir), "list it", &e))?;
    let numbered = names
        .into_iter()
        .filter_map(|name| Some((log_number(&name)?, name)));
    Ok(numbered.filter(|(number, _)| *number >= first).collect())
}

/// The end of a log that was read.
struct LogEnd {
    /// Offset behind its last record.
    end: u64,
    /// What is wrong with its end, if it is not the last log.
    torn: Option<Error>,
    /// Whether that is what a log before left.
    is_recycled: bool,
    /// Sizes of timestamps by the column family's id.
    timestamp_sizes: BTreeMap<u32, u16>,
}

/// Calls `each` with the offset and the bytes of every record of a log.
fn read_log(
    file: &InputFileReader,
    number: u64,
    cancel: &CancelToken,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<LogEnd> {
    let mut reader = LogReader::write_ahead_log(number);
    let mut end = 0;
    let mut piece = Vec::new();
    'file: while reader.bytes_fed() < file.len() && !reader.has_ended() {
        read_piece(file, reader.bytes_fed(), cancel, &mut piece)?;
        reader.push(&piece);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    each(record.offset, &record.payload)?;
                    end = record.end;
                }
                Ok(None) => break,
                Err(error)
                    if error.kind == format::ErrorKind::Corruption
                        && only_zeros(file, reader.failed_until(), cancel)? =>
                {
                    break 'file;
                }
                Err(error) => return Err(Error::format(file.name(), error)),
            }
        }
    }
    let torn = |offset| {
        let what = "the log is torn, and the next one does not go on from there";
        Error::corruption(file.name(), offset, what)
    };
    Ok(LogEnd {
        end,
        torn: reader.torn_at().map(torn),
        is_recycled: reader.has_ended(),
        timestamp_sizes: reader.timestamp_sizes().clone(),
    })
}

/// Whether a file has nothing but zeros from `at` on, as after a crash of the system.
fn only_zeros(file: &InputFileReader, mut at: u64, cancel: &CancelToken) -> Result<bool> {
    let mut piece = Vec::new();
    while at < file.len() {
        read_piece(file, at, cancel, &mut piece)?;
        if piece.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

fn read_piece(
    file: &InputFileReader,
    at: u64,
    cancel: &CancelToken,
    piece: &mut Vec<u8>,
) -> Result<()> {
    cancel.check()?;
    piece.resize(PIECE_BYTES.min((file.len() - at) as usize), 0);
    file.read_exact_at(piece, at)
}

/// The error of a write batch, of which no file is known.
fn in_batch(error: format::Error) -> Error {
    let what = format!(
        "{} (at byte {} of the write batch)",
        error.what, error.offset
    );
    Error {
        file: None,
        offset: None,
        what,
        ..Error::format("", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rockmill_format::coding::put_length_prefixed;

    /// `kTypeValue`, of the default column family.
    const PUT: u8 = 1;
    /// `kTypeRangeDeletion`, of the default column family.
    const DELETE_RANGE: u8 = 0x0f;

    fn batch(sequence: u64, kind: u8, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let count = pairs.len() as u32;
        let mut out = [&sequence.to_le_bytes()[..], &count.to_le_bytes()].concat();
        for (key, value) in pairs {
            out.push(kind);
            put_length_prefixed(&mut out, key);
            put_length_prefixed(&mut out, value);
        }
        out
    }

    fn pairs() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
        let key = prop::collection::vec(0u8..3, 0..4);
        let value = prop_oneof![0usize..50, 3000usize..6000].prop_map(|len| vec![7; len]);
        prop::collection::vec((key, value), 1..40)
    }

    proptest! {
        #[test]
        fn entries_are_sorted_and_their_memory_is_counted(
            batches in prop::collection::vec(pairs(), 1..5),
            sort_between: bool,
            from in 0u64..100,
        ) {
            let mut unflushed = Unflushed::new(usize::MAX);
            let mut expected = Vec::new();
            let mut sequence = 1;
            for pairs in &batches {
                let bytes = batch(sequence, PUT, pairs);
                unflushed.add_batch(&bytes, |family, sequence| family == 0 && sequence >= from).unwrap();
                for (key, value) in pairs {
                    if sequence >= from {
                        expected.push((key.clone(), !pack_tag(sequence, PUT), value.clone()));
                    }
                    sequence += 1;
                }
                if sort_between && let Some(family) = unflushed.families.get_mut(&0) {
                    family.sort();
                }
            }
            prop_assert_eq!(unflushed.last_sequence, sequence - 1);
            expected.sort();
            let mut family = unflushed.families.remove(&0).unwrap_or_default();
            family.sort();
            let found: Vec<_> = family.entries().map(|(key, value)| {
                let (key, tag) = key::split(key).unwrap();
                (key.to_vec(), !tag, value.to_vec())
            }).collect();
            prop_assert_eq!(&found, &expected);
            let taken: usize = family.chunks.iter().map(Vec::capacity).sum();
            prop_assert!(unflushed.bytes >= taken + found.len() * size_of::<Place>());
        }

        #[test]
        fn adding_any_bytes_is_total(bytes: Vec<u8>, kind: u8, pairs in pairs()) {
            for bytes in [bytes, batch(3, kind, &pairs)] {
                let _ = Unflushed::new(5000).add_batch(&bytes, |_, _| true);
            }
        }
    }

    #[test]
    fn ranges_and_sequence_numbers_must_ascend() {
        let range = |begin: &[u8], end: &[u8]| [(begin.to_vec(), end.to_vec())];
        let mut unflushed = Unflushed::new(usize::MAX);
        let mut add = |sequence, begin: &[u8], end: &[u8]| {
            let bytes = batch(sequence, DELETE_RANGE, &range(begin, end));
            unflushed.add_batch(&bytes, |_, _| true).map_err(|e| e.kind)
        };
        assert_eq!(add(5, b"a", b"b"), Ok(()));
        assert_eq!(add(6, b"b", b"a"), Err(ErrorKind::Corruption));
        let shared = Err(ErrorKind::Declined(DeclineReason::Allow2pc));
        assert_eq!(add(5, b"a", b"b"), shared);
        assert_eq!(add(9, b"a", b"b"), Ok(()));
        let numbers = unflushed.families[&0]
            .range_tombstones()
            .iter()
            .map(|t| t.sequence);
        assert_eq!(numbers.collect::<Vec<_>>(), [5, 9]);
    }
}
