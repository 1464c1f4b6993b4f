//! A table in memory of entries that are not in files yet.

use std::sync::Arc;

use rockmill_core::{
    CancelToken, Error, InputTable, KeyRange, Lock, OutputPlan, ReadAt, Result, SstFile, SstSink,
    entry_hash, kv_hash, open_table,
};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_exec::budget::Reservation;
use rockmill_format::key;
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_snapshot::unflushed::MemTable;

use crate::engine::ScanEngine;
use crate::ranges;

/// Unflushed entries of a column family.
#[derive(Debug)]
pub struct MemoryTable {
    /// The table of the entries that have a key, if there are any.
    pub(crate) table: Option<InputTable>,
    /// Range tombstones.
    pub(crate) tombstones: Vec<RangeTombstone>,
    /// Smallest sequence number of its entries and range tombstones.
    pub(crate) smallest_sequence: u64,
    /// Sum of the hashes of its entries and range tombstones.
    pub(crate) content: u64,
    /// The keys from the first to the last one that has an entry.
    keys: Option<KeyRange>,
    _reservation: Reservation,
}

impl MemoryTable {
    /// Makes a table of a memtable, which is sorted. Its memory counts as part of the engine's cache.
    ///
    /// # Errors
    /// Declined if there is no memory for it; Cancelled; Internal if it is not sorted.
    pub fn new(memtable: &MemTable, engine: &ScanEngine, cancel: &CancelToken) -> Result<Self> {
        let tables = &engine.tables;
        let entries = memtable
            .entries()
            .map(|(key, value)| key.len() + value.len());
        let _memtable = tables.keep(entries.sum::<usize>() as u64, cancel)?;
        let bytes = write(memtable, cancel)?;
        let tombstones = memtable.range_tombstones().to_vec();
        let table = match bytes.is_empty() {
            true => None,
            false => {
                let table = open_table(Box::new(MemoryFile(bytes)))?;
                Some(table.with_range_tombstones(tombstones.clone()))
            }
        };
        let of_table = table
            .as_ref()
            .map_or(0, |table| table.meta.file_size + table.index_memory_bytes());
        let of_tombstones = tombstones.iter().map(|t| t.begin.len() + t.end.len());
        let bytes = of_table + of_tombstones.sum::<usize>() as u64;
        Ok(Self {
            _reservation: tables.keep(bytes, cancel)?,
            keys: keys_of(memtable),
            smallest_sequence: smallest_sequence(memtable),
            content: content(memtable),
            table,
            tombstones,
        })
    }

    /// Ranges that contain all keys of its entries.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = KeyRange> {
        let deleted = self.tombstones.iter().map(|deletion| KeyRange {
            begin: Some(deletion.begin.clone()),
            end: Some(deletion.end.clone()),
        });
        deleted.chain(self.keys.clone())
    }
}

fn keys_of(memtable: &MemTable) -> Option<KeyRange> {
    let mut keys = memtable.entries().filter_map(|(key, _)| key::split(key));
    let (first, _) = keys.next()?;
    let last = keys.last().map_or(first, |(key, _)| key);
    Some(ranges::closed(first, last))
}

fn smallest_sequence(memtable: &MemTable) -> u64 {
    let keys = memtable.entries().filter_map(|(key, _)| key::split(key));
    let keys = keys.map(|(_, tag)| key::tag_sequence(tag));
    let tombstones = memtable.range_tombstones().iter().map(|one| one.sequence);
    keys.chain(tombstones).min().unwrap_or(u64::MAX)
}

fn content(memtable: &MemTable) -> u64 {
    let entries = memtable.entries().filter_map(|(key, value)| {
        let (user_key, tag) = key::split(key)?;
        Some(entry_hash(kv_hash(user_key, value), tag))
    });
    let tombstones = memtable.range_tombstones().iter();
    let tombstones = tombstones.map(|one| entry_hash(kv_hash(&one.begin, &one.end), one.sequence));
    entries.chain(tombstones).fold(0, u64::wrapping_add)
}

/// An uncompressed SST file of the entries; nothing if there are none.
fn write(memtable: &MemTable, cancel: &CancelToken) -> Result<Vec<u8>> {
    /// Entries between two checks for cancellation.
    const ENTRIES: usize = 4096;
    let plan = OutputPlan::default();
    let mut sink = MemorySink::default();
    let mut writer = SstWriter::new(&plan, &mut sink)?;
    let mut last: Option<&[u8]> = None;
    for (number, (internal_key, value)) in memtable.entries().enumerate() {
        if number % ENTRIES == 0 {
            cancel.check()?;
        }
        let (user_key, tag) = key::split(internal_key)
            .ok_or_else(|| Error::internal("an unflushed entry has no internal key"))?;
        let hash = kv_hash(user_key, value);
        writer.emit(user_key, tag, value, hash, last != Some(user_key))?;
        last = Some(user_key);
    }
    writer.finish()?;
    Ok(std::mem::take(&mut sink.bytes.lock()))
}

/// Takes one file in memory.
#[derive(Debug, Default)]
struct MemorySink {
    bytes: Arc<Lock<Vec<u8>>>,
}

impl SstSink for MemorySink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        Ok((
            1,
            Box::new(Self {
                bytes: Arc::clone(&self.bytes),
            }),
        ))
    }
}

impl SstFile for MemorySink {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.lock().extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A file in memory.
#[derive(Debug)]
struct MemoryFile(Vec<u8>);

impl ReadAt for MemoryFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = start
            .checked_add(buf.len())
            .and_then(|end| self.0.get(start..end));
        let bytes =
            bytes.ok_or_else(|| Error::corruption(self.name(), offset, "ends too early"))?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn name(&self) -> &str {
        "unflushed entries"
    }
}
