//! One input of a task: reads ahead, verifies, decompresses and decodes block by block.

use std::ops::Range;

use rockmill_core::{
    BlockStream, CancelToken, CheckedOrder, DeclineReason, Error, InputTable, KeyFault, KeyRange,
    KeyRestorer, Progress, RestoredKey, Result, entry_hash, kv_hash, prefix_mask,
};
use rockmill_format::block::{Block, ValueForm};
use rockmill_format::handle::BlockHandle;
use rockmill_format::key::{self, KeyOrder, ValueType};

/// Current entry of a run.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// [`rockmill_core::key_prefix`] of the key.
    pub prefix: u128,
    /// User key.
    pub user_key: &'a [u8],
    /// Sequence and type.
    pub tag: u64,
    /// Value.
    pub value: &'a [u8],
    /// [`kv_hash`] of the decoded key and value; 0 for a run without these hashes.
    pub kv_hash: u64,
}

/// Totals of the entries that a run has read so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RunTotals {
    /// Entries within the task's range.
    pub entries: u64,
    /// Tombstones among these entries.
    pub tombstones: u64,
    /// Bytes of their internal keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Bytes read from the file.
    pub bytes_read: u64,
    /// Sum of their [`entry_hash`].
    pub hash: u64,
}

/// The types of entries that a run accepts; others are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Types that a compaction can handle by the tag alone ([`ValueType::compacts_alone`]).
    Compacted,
    /// Those of `Compacted`, and merge operands.
    Merged,
    /// Entries of every type.
    All,
}

impl Accepted {
    fn takes(self, kind: ValueType) -> bool {
        match self {
            Self::Compacted => kind.compacts_alone(),
            Self::Merged => kind.compacts_alone() || kind == ValueType::Merge,
            Self::All => true,
        }
    }
}

/// Maximum bytes of user keys in a decoded block. Entries that share a long key could have far longer keys than a block
/// stores.
const MAX_BLOCK_KEY_BYTES: usize = 256 << 20;

/// An entry of the current block.
#[derive(Debug, Clone, Copy)]
struct Row {
    key: RestoredKey,
    kv_hash: u64,
    /// Start of the value in the block.
    value_start: u32,
    value_len: u32,
}

/// A sorted run: the entries of one input inside a task.
///
/// A merge switches to another of many runs with every entry. So the fields that describe a run's head come first, on
/// two cache lines if keys are short, and little of each run must be in the first-level cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RunReader<'a> {
    /// Entries of the loaded block that lie in range.
    rows: Vec<Row>,
    at: usize,
    stream: BlockStream<'a>,
    keys: KeyRestorer,
    /// Blocks that are not decoded yet.
    blocks: Range<usize>,
    table: &'a InputTable,
    range: &'a KeyRange,
    accepted: Accepted,
    /// The order, if a comparator has to agree on the keys outside the range.
    checked_order: Option<&'a CheckedOrder>,
    is_hashed: bool,
    cancel: &'a CancelToken,
    progress: Option<&'a Progress>,
    totals: RunTotals,
}

impl<'a> RunReader<'a> {
    /// A run at its first entry.
    ///
    /// # Errors
    /// The errors of [`RunReader::advance`].
    pub fn open(
        table: &'a InputTable,
        range: &'a KeyRange,
        accepted: Accepted,
        read_ahead_bytes: usize,
        cancel: &'a CancelToken,
    ) -> Result<Self> {
        Self::open_checked(table, range, accepted, read_ahead_bytes, cancel, None)
    }

    /// Like [`RunReader::open`]. If there is an order to check, its comparator must have the same entries in the range.
    ///
    /// # Errors
    /// The errors of [`RunReader::advance`].
    pub fn open_checked(
        table: &'a InputTable,
        range: &'a KeyRange,
        accepted: Accepted,
        read_ahead_bytes: usize,
        cancel: &'a CancelToken,
        checked_order: Option<&'a CheckedOrder>,
    ) -> Result<Self> {
        let mut run = Self::new(table, range, accepted, read_ahead_bytes, cancel);
        run.checked_order = checked_order;
        run.fill()?;
        Ok(run)
    }

    /// Like [`RunReader::open`], for all types, without hashes of keys and values, which take up to a fifth of the time
    /// of a scan. Sums of [`entry_hash`] then cover only tags.
    ///
    /// # Errors
    /// The errors of [`RunReader::advance`].
    pub fn open_unhashed(
        table: &'a InputTable,
        range: &'a KeyRange,
        read_ahead_bytes: usize,
        cancel: &'a CancelToken,
    ) -> Result<Self> {
        let mut run = Self::new(table, range, Accepted::All, read_ahead_bytes, cancel);
        run.is_hashed = false;
        run.fill()?;
        Ok(run)
    }

    /// All entries of some blocks, of all types and without hashes.
    ///
    /// # Errors
    /// The errors of [`RunReader::advance`].
    pub fn open_blocks(
        table: &'a InputTable,
        blocks: Range<usize>,
        read_ahead_bytes: usize,
        cancel: &'a CancelToken,
    ) -> Result<Self> {
        static ALL: KeyRange = KeyRange {
            begin: None,
            end: None,
        };
        let mut run = Self::new(table, &ALL, Accepted::All, read_ahead_bytes, cancel);
        run.is_hashed = false;
        run.blocks = blocks;
        run.fill()?;
        Ok(run)
    }

    fn new(
        table: &'a InputTable,
        range: &'a KeyRange,
        accepted: Accepted,
        read_ahead_bytes: usize,
        cancel: &'a CancelToken,
    ) -> Self {
        Self {
            table,
            range,
            accepted,
            checked_order: None,
            is_hashed: true,
            cancel,
            blocks: table.blocks_in_range(range),
            stream: BlockStream::new(table, read_ahead_bytes),
            progress: None,
            keys: KeyRestorer::new(table.order()),
            rows: Vec::new(),
            at: 0,
            totals: RunTotals::default(),
        }
    }

    /// The same run, which reports all that it reads to `progress`.
    #[must_use]
    pub fn reporting(self, progress: Option<&'a Progress>) -> Self {
        let run = Self { progress, ..self };
        run.report(0);
        run
    }

    /// Reports the bytes read since `read_before`.
    fn report(&self, read_before: u64) {
        let read = self.stream.bytes_read() - read_before;
        if let Some(progress) = self.progress.filter(|_| read > 0) {
            progress.advance(read);
        }
    }

    /// The current entry; `None` behind the last. Callers use one or two of its fields.
    #[inline(always)]
    pub fn head(&self) -> Option<Head<'_>> {
        let row = self.rows.get(self.at)?;
        let value = &self.stream.payload()[row.value_start as usize..];
        Some(Head {
            prefix: row.key.prefix(),
            user_key: self.keys.user_key(&row.key),
            tag: row.key.tag,
            value: &value[..row.value_len as usize],
            kv_hash: row.kv_hash,
        })
    }

    /// Key of the current entry.
    #[inline]
    pub fn key(&self) -> Option<&RestoredKey> {
        self.rows.get(self.at).map(|row| &row.key)
    }

    /// User key of the current entry.
    #[inline]
    pub fn user_key(&self) -> Option<&[u8]> {
        self.key().map(|key| self.keys.user_key(key))
    }

    /// Order of the keys.
    #[inline]
    pub fn order(&self) -> KeyOrder {
        self.table.order()
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// Corruption or Storage if the next block is damaged or cannot be read, Declined for an entry of a type that is
    /// not handled, Cancelled.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        self.at += 1;
        if self.at < self.rows.len() {
            Ok(())
        } else {
            self.fill()
        }
    }

    /// Totals of the entries read so far.
    pub fn totals(&self) -> RunTotals {
        RunTotals {
            bytes_read: self.stream.bytes_read(),
            ..self.totals
        }
    }

    /// Decodes blocks until one has entries in range, or all are decoded.
    fn fill(&mut self) -> Result<()> {
        self.at = 0;
        self.rows.clear();
        self.keys.forget();
        while self.rows.is_empty() && !self.blocks.is_empty() {
            self.cancel.check()?;
            let read_before = self.stream.bytes_read();
            let handle = self.stream.load(self.blocks.clone())?;
            self.report(read_before);
            self.blocks.start += 1;
            self.decode(handle)?;
        }
        Ok(())
    }

    /// Turns the loaded block into rows, without entries outside the range.
    fn decode(&mut self, handle: BlockHandle) -> Result<()> {
        let name = self.table.file.name();
        let fail = |e: rockmill_format::Error| Error::format(name, e.at(handle.offset));
        let here = |error: Error| Error {
            offset: Some(handle.offset),
            ..error.in_file(name)
        };
        let interval = self.table.meta.properties.data_block_restart_interval;
        let block = Block::parse(self.stream.payload()).map_err(fail)?;
        let interval = u32::try_from(interval).unwrap_or(u32::MAX);
        let mut entries = block.entries(ValueForm::Sized, interval).map_err(fail)?;
        let mut key_bytes = 0;
        let order = self.table.order();
        let ((begin, end), mask) = (self.range.prefixes(order), prefix_mask(order));
        let global_sequence = self.table.global_sequence();
        loop {
            let entry = match entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(()),
                Err(e) => return Err(fail(e)),
            };
            let corrupt = |what: &str| {
                let what = format!("{what}, entry at {}", entry.offset);
                Error::corruption(name, handle.offset, what)
            };
            let mut key = self.keys.restore(&entry).map_err(|fault| match fault {
                KeyFault::OutOfOrder => self.table.out_of_order(corrupt(fault.what())),
                KeyFault::TooShort => corrupt(fault.what()),
            })?;
            let stored = key::tag_sequence(key.tag);
            if let Some(sequence) = global_sequence {
                key.tag = key::pack_tag(sequence, key::tag_type(key.tag));
            }
            let (user_key, tag) = (self.keys.user_key(&key), key.tag);
            // For nearly all keys, the prefix alone shows that they are inside.
            if key.prefix() ^ mask <= begin && self.range.is_behind(order, user_key) {
                if let (Some(checked), Some(begin)) = (self.checked_order, &self.range.begin) {
                    checked.require(user_key, begin)?;
                }
                self.keys.forget();
                continue;
            }
            if key.prefix() ^ mask >= end && self.range.is_before(order, user_key) {
                if let (Some(checked), Some(end)) = (self.checked_order, &self.range.end) {
                    checked.require_not_behind(end, user_key)?;
                }
                self.blocks.start = self.blocks.end;
                return Ok(());
            }
            if global_sequence.is_some() && stored != 0 {
                return Err(corrupt("a sequence number beside that of the whole table"));
            }
            // Most are.
            if key::tag_type(tag) != ValueType::Value as u8 {
                let kind = ValueType::from_code(key::tag_type(tag))
                    .ok_or_else(|| corrupt("unknown value type"))?;
                if !self.accepted.takes(kind) {
                    return Err(here(Error::declined_type(kind)));
                }
                self.totals.tombstones += u64::from(kind.is_tombstone());
            }
            key_bytes += user_key.len();
            if key_bytes > MAX_BLOCK_KEY_BYTES {
                return Err(here(Error::declined(
                    DeclineReason::MemoryBudget,
                    "the restored keys of a block are too large",
                )));
            }
            let hash = match self.is_hashed {
                true => kv_hash(user_key, entry.value),
                false => 0,
            };
            self.totals.entries += 1;
            self.totals.key_bytes += (user_key.len() + key::TAG_SIZE) as u64;
            self.totals.value_bytes += entry.value.len() as u64;
            self.totals.hash = self.totals.hash.wrapping_add(entry_hash(hash, tag));
            self.rows.push(Row {
                key,
                kv_hash: hash,
                value_start: entry.value_offset as u32,
                value_len: entry.value.len() as u32,
            });
        }
    }
}
