//! Reading the logs of a database.

use std::collections::BTreeMap;
use std::path::Path;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, ReadAt, Result};
use rockmill_format as format;
use rockmill_format::log::LogReader;
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

impl Unflushed {
    /// Reads the logs of a database up to where RocksDB's recovery would, and sorts the entries.
    ///
    /// They exclude the remains of the last write after a crash, and a write that another process has not finished
    /// (`kPointInTimeRecovery`). `log_dir` is that of [`crate::log_folder::LogFolder`]. `wanted` chooses column
    /// families; it must exclude those with an order other than bytewise, and those with `inplace_update_support`,
    /// whose entries RocksDB changes when it inserts them. If the entries take more than `max_bytes` of memory, all of
    /// them are left out.
    ///
    /// # Errors
    /// Corruption if a log is damaged, or torn and followed by one that does not continue at the tear; Declined as
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
        // The number of the torn log, and the error if no later log continues there.
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
            // A recycled log ends with records of an older log.
            let lost_in = if read.is_recycled { u64::MAX } else { number };
            torn = read.torn.map(|error| (lost_in, error)).or(torn);
            unflushed.logs.push(LogFile { number, file, end });
        }
        // RocksDB refuses such a database: the column family's files may contain entries that were written after the
        // loss.
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
    /// The error at its end, if it is not the last log.
    torn: Option<Error>,
    /// Whether an older log left the rest.
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
        let what = "the log is torn, and the next one does not continue from there";
        Error::corruption(file.name(), offset, what)
    };
    Ok(LogEnd {
        end,
        torn: reader.torn_at().map(torn),
        is_recycled: reader.has_ended(),
        timestamp_sizes: reader.timestamp_sizes().clone(),
    })
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
}
