//! Reading the logs of a database.

use std::collections::BTreeMap;
use std::path::Path;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, ReadAt, Result};
use rockmill_format as format;
use rockmill_format::log::{FIRST_HEADER_LEN, LogReader, Record, has_record};
use rockmill_format::manifest::Tree;
use rockmill_format::write_batch::WriteBatch;
use rockmill_storage::{InputFileReader, Storage, base_name};

use super::{Unflushed, in_batch};
use crate::log_folder::log_number;

/// Bytes read from a log at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A log that was read. Another process may append to it.
#[derive(Debug)]
pub struct LogFile {
    /// Number of the log.
    pub number: u64,
    /// The open file.
    pub file: InputFileReader,
    /// Offset behind the last record that was read, also one about the log itself: the MANIFEST may track that.
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

impl Unflushed {
    /// Opens the logs of a database and reads them, see [`Logs::open`] and [`Logs::read`].
    ///
    /// # Errors
    /// Those of both.
    pub fn read(
        storage: &dyn Storage,
        log_dir: &Path,
        tree: &Tree,
        wanted: impl Fn(u32) -> bool,
        max_bytes: usize,
        cancel: &CancelToken,
    ) -> Result<Self> {
        Logs::open(storage, log_dir, tree, cancel)?.read(tree, wanted, max_bytes, cancel)
    }
}

/// The open logs of a database. Another process may append to them, delete them, and write other logs over recycled ones.
#[derive(Debug)]
pub struct Logs(Vec<OpenLog>);

impl Logs {
    /// Opens the logs in `dir` that the MANIFEST does not call obsolete. They may be older than all unflushed entries: those
    /// that were prepared in a log have no effect until they are committed in a later one. `dir` is that of
    /// [`crate::log_folder::LogFolder`].
    ///
    /// The newest is opened first. RocksDB ends a log before it writes to the next one, which may be there before. So if a
    /// log has a record, those that are opened later are complete.
    ///
    /// # Errors
    /// Corruption if a log is shorter than the MANIFEST says; Storage, also if the MANIFEST tracks a log that is missing,
    /// or if another process has deleted a log.
    pub fn open(
        storage: &dyn Storage,
        dir: &Path,
        tree: &Tree,
        cancel: &CancelToken,
    ) -> Result<Self> {
        let first = tree.min_log_number_to_keep;
        let names = log_files(storage, dir, first)?;
        if let Some((number, _)) = tree
            .synced_logs
            .range(first..)
            .find(|(n, _)| !names.contains_key(n))
        {
            let what =
                "it is missing, but the MANIFEST tracks it (track_and_verify_wals_in_manifest)";
            let error = Error::new(ErrorKind::Storage, what);
            return Err(error.in_file(&format!("{number:06}.log")));
        }
        let mut logs = Vec::with_capacity(names.len());
        for (number, name) in names.into_iter().rev() {
            let file = InputFileReader::open(storage, &dir.join(name))?;
            let synced = tree.synced_logs.get(&number).copied().unwrap_or(0);
            if file.len() < synced {
                let what =
                    format!("the log ends, but the MANIFEST says that it has {synced} bytes");
                return Err(Error::corruption(file.name(), file.len(), what));
            }
            let is_begun = has_begun(&file, number, cancel);
            logs.push(OpenLog {
                number,
                file,
                is_begun,
            });
        }
        logs.reverse();
        Ok(Self(logs))
    }

    /// Reads the logs up to where RocksDB's recovery would, and sorts the entries. `tree` is the one with which they were
    /// opened.
    ///
    /// They exclude the remains of the last write after a crash, and a write that another process has not finished
    /// (`kPointInTimeRecovery`). `wanted` chooses column families; it must exclude those with an order other than bytewise,
    /// and those with `inplace_update_support`, whose entries RocksDB changes when it inserts them. If the entries take more
    /// than `max_bytes` of memory, all of them are left out.
    ///
    /// # Errors
    /// Corruption if a log is damaged, or torn and followed by one that does not continue at the tear; Declined as
    /// [`Unflushed::add_batch`], also if prepared transactions take more than `max_bytes`; Storage, also if another process
    /// has changed the logs, so that another attempt may succeed; Cancelled.
    pub fn read(
        self,
        tree: &Tree,
        wanted: impl Fn(u32) -> bool,
        max_bytes: usize,
        cancel: &CancelToken,
    ) -> Result<Unflushed> {
        let mut unflushed = Unflushed {
            has_all_prepared: true,
            may_leave_out: true,
            ..Unflushed::new(max_bytes)
        };
        let families = &tree.column_families;
        let chosen = families.iter().filter(|(id, _)| wanted(**id));
        let first_logs: BTreeMap<u32, u64> = chosen
            .map(|(&id, family)| (id, family.log_number))
            .collect();
        // The number of the torn log, and the error if no later log continues there.
        let mut torn: Option<(u64, Error)> = None;
        for log in self.0 {
            let OpenLog {
                number,
                file,
                is_begun,
            } = log;
            let takes = |id: u32, _| first_logs.get(&id).is_some_and(|&first| first <= number);
            let read = read_log(&file, number, cancel, |offset, batch| {
                let in_record = |error: Error| Error {
                    offset: Some(offset),
                    ..error.in_file(file.name())
                };
                if !is_begun {
                    return Err(in_record(is_overtaken()));
                }
                let batch = WriteBatch::parse(batch).map_err(|e| in_record(in_batch(e)))?;
                // A database that was opened with a torn log continues there in the next one.
                if let Some((_, error)) = torn.take()
                    && unflushed.next_sequence != Some(batch.first_sequence())
                {
                    return Err(error);
                }
                unflushed.add(batch, takes).map_err(in_record)
            })?;
            let end = read.end;
            // RocksDB removes them from the keys of a column family that does not use timestamps any more.
            if read.timestamp_sizes.keys().any(|&id| takes(id, 0)) {
                let what = "keys in the log end with timestamps, which the column family does not have any more";
                let error = Error::declined(DeclineReason::UserTimestamps, what);
                return Err(error.in_file(file.name()));
            }
            // The newest log may have no record, and the rest of an older one.
            torn = torn.or(read.torn.map(|error| (number, error)));
            unflushed.may_change |= read.may_change;
            unflushed.logs.push(LogFile { number, file, end });
        }
        if let Some((number, error)) = torn
            && may_miss_rows(tree, number)
        {
            return Err(error);
        }
        for family in unflushed.families.values_mut() {
            family.sort();
        }
        Ok(unflushed)
    }
}

/// Whether rows may be missing, given that the log of this number is torn and no later one continues there.
///
/// RocksDB refuses a database in which a column family has files with entries that may be newer than the loss. It does
/// so even if only prepared transactions were in the log.
fn may_miss_rows(tree: &Tree, torn: u64) -> bool {
    let families = || tree.column_families.values();
    families().any(|family| family.log_number > torn && !family.levels.is_empty())
        && families().any(|family| family.log_number <= torn)
}

/// A log to read.
#[derive(Debug)]
struct OpenLog {
    number: u64,
    file: InputFileReader,
    /// Whether it had a record when it was opened.
    is_begun: bool,
}

/// Whether a log has a record. Usually its first header tells, so that the logs are opened within a short time.
fn has_begun(file: &InputFileReader, number: u64, cancel: &CancelToken) -> bool {
    let mut header = [0; FIRST_HEADER_LEN];
    let len = file.len().min(header.len() as u64) as usize;
    let header = &mut header[..len];
    let told = file.read_exact_at(header, 0).ok();
    let told = told.and_then(|()| has_record(header, number));
    // A damaged record is a record.
    told.unwrap_or_else(|| !matches!(LogRecords::new(file, number).next(cancel), Ok(None)))
}

/// The error of a log with a record, if records may have come to older logs after those were opened.
fn is_overtaken() -> Error {
    let what = "another process has begun the log while older ones were read";
    Error::new(ErrorKind::Storage, what)
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
    /// Offset behind its last record, also one about the log itself.
    end: u64,
    /// The error at its end, if it is not the last log.
    torn: Option<Error>,
    /// Whether another read may find other records, see [`LogReader::may_change`].
    may_change: bool,
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
    let mut records = LogRecords::new(file, number);
    let mut end = 0;
    while let Some(record) = records.next(cancel)? {
        each(record.offset, &record.payload)?;
        end = record.end;
    }
    let torn = |offset| {
        let what = "the log is torn, and the next one does not continue from there";
        Error::corruption(file.name(), offset, what)
    };
    Ok(LogEnd {
        end: end.max(records.reader.control_end()),
        torn: records.reader.torn_at().map(torn),
        may_change: records.reader.may_change(),
        timestamp_sizes: records.reader.timestamp_sizes().clone(),
    })
}

/// The records of a log.
struct LogRecords<'a> {
    file: &'a InputFileReader,
    reader: LogReader,
    piece: Vec<u8>,
}

impl<'a> LogRecords<'a> {
    fn new(file: &'a InputFileReader, number: u64) -> Self {
        Self {
            file,
            reader: LogReader::write_ahead_log(number),
            piece: Vec::new(),
        }
    }

    /// The next record; `None` at the end.
    fn next(&mut self, cancel: &CancelToken) -> Result<Option<Record>> {
        loop {
            let fed = self.reader.bytes_fed();
            match self.reader.next_record() {
                Ok(None) if fed < self.file.len() && !self.reader.has_ended() => {
                    read_piece(self.file, fed, cancel, &mut self.piece)?;
                    self.reader.push(&self.piece);
                }
                Ok(record) => return Ok(record),
                Err(error)
                    if error.kind == format::ErrorKind::Corruption
                        && only_zeros(self.file, self.reader.failed_until(), cancel)? =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(Error::format(self.file.name(), error)),
            }
        }
    }
}

/// Whether a file has only zeros from `at` on, as after a crash of the system.
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
        .map_err(|error| match error.kind {
            // RocksDB cuts off the rest of an older log when it ends a log. Another attempt finds the new end.
            ErrorKind::Corruption => Error {
                kind: ErrorKind::Storage,
                ..error
            },
            _ => error,
        })
}
