//! Entries that are not in SST files yet: those in the write-ahead logs of a column family's memtables.

mod logs;
mod mem_table;

use std::collections::{BTreeMap, BTreeSet};

use rockmill_core::{DeclineReason, Error, ErrorKind, Result};
use rockmill_format as format;
use rockmill_format::key::ValueType;
use rockmill_format::write_batch::{BatchEntry, BatchRecord, Prepared, WriteBatch};

pub use logs::{LogFile, Logs};
pub use mem_table::MemTable;

/// Unflushed entries by column family. It grows with the batches that are added.
#[derive(Debug)]
pub struct Unflushed {
    /// Memtables by the column family's id; a column family without entries has none.
    pub families: BTreeMap<u32, MemTable>,
    /// Largest sequence number that the batches have used, also those of other column families; 0 before the first
    /// batch.
    pub last_sequence: u64,
    /// Column families with merge operands, by id.
    pub operands: BTreeSet<u32>,
    /// The logs that [`Logs::read`] has read, in order.
    pub logs: Vec<LogFile>,
    /// Reason why [`Logs::read`] has left out all entries, if they do not fit into the memory. Everything else is
    /// known.
    pub left_out: Option<Error>,
    /// Whether [`Logs::read`] might find other records if it read the logs again, because another process may write over
    /// them.
    pub may_change: bool,
    /// Whether entries that do not fit into the memory are left out.
    may_leave_out: bool,
    /// Transactions that are prepared and not committed, by their names.
    prepared: BTreeMap<Vec<u8>, PreparedBatch>,
    /// Whether the batch includes all transactions that were prepared before the first batch and have unflushed
    /// entries.
    has_all_prepared: bool,
    /// Sequence number behind that of the last entry.
    next_sequence: Option<u64>,
    bytes: usize,
    max_bytes: usize,
}

/// The entries of a prepared transaction.
#[derive(Debug)]
struct PreparedBatch {
    records: Vec<u8>,
    count: u32,
}

impl Unflushed {
    /// Creates one without entries. It may grow to `max_bytes` of memory.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            families: BTreeMap::new(),
            last_sequence: 0,
            operands: BTreeSet::new(),
            logs: Vec::new(),
            left_out: None,
            may_change: false,
            may_leave_out: false,
            prepared: BTreeMap::new(),
            has_all_prepared: false,
            next_sequence: None,
            bytes: 0,
            max_bytes,
        }
    }

    /// Smallest last sequence number that RocksDB may find when it replays the batches: it counts an empty range of the last
    /// batch only if the column family is flushed. 0 before the first batch.
    pub fn least_last_sequence(&self) -> u64 {
        self.next_sequence.map_or(0, |next| next.saturating_sub(1))
    }

    /// Number of transactions that are prepared and not committed.
    pub fn prepared_transactions(&self) -> usize {
        self.prepared.len()
    }

    /// Adds the entries of a write batch that `takes` chooses by the column family's id and the sequence number.
    /// Entries of a prepared transaction are added when it is committed.
    ///
    /// # Errors
    /// Corruption if the batch is malformed. Declined if it was written before its transaction is committed, if it
    /// commits a transaction that no earlier batch has prepared, and beyond `max_bytes`. After an error, nothing more
    /// may be added.
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
                    // RocksDB removes a log when everything that its transactions wrote is flushed.
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
        // A caller that keeps no entry may take those of families with other orders.
        let is_kept = self.max_bytes > 0;
        if is_kept && entry.kind == ValueType::RangeDeletion && entry.key > entry.value {
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
        batch.continue_after(&committed);
        Ok(())
    }

    fn check_memory(&mut self) -> Result<()> {
        if self.bytes <= self.max_bytes {
            return Ok(());
        }
        let what = format!(
            "unflushed entries take more than {} bytes of memory; flush the database",
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

/// The error of a write batch whose file is not known.
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
mod tests;
