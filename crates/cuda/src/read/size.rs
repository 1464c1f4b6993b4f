//! Maximum sizes of a task's input, estimated from indexes and properties before it is read.

use std::ops::Range;

use rockmill_core::{
    CompactionRules, DeeperLevels, Fragments, InputTable, KeyRange, Merging, Request, Visibility,
};
use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::key::TAG_SIZE;
use rockmill_format::properties::{TableProperties, is_uncompressed};

use super::groups::{Grouping, blocks_used, stored_bytes};
use super::host_blocks::{HOST_OVERHEAD, PARTS_OF_TABLE, is_for_host};
use super::input::{ARENA_START, PADDING, arena_end};
use super::keys::{KEY_PADDING, WORD_KEY_BYTES};
use crate::driver::ffi::{self, Fragment};

/// Counts of the input, to estimate its memory on the device.
#[derive(Debug, Default, Clone, Copy)]
pub struct ReadSize {
    /// Stored bytes of blocks, with gaps between them.
    pub stored_bytes: u64,
    /// The same in the arena.
    pub arena_bytes: u64,
    /// Decompressed bytes of all blocks, if some may be compressed; else 0.
    pub raw_bytes: u64,
    /// Host memory for blocks that the host decompresses ([`super::host_blocks`]), and for range tombstones.
    pub host_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Runs with these blocks.
    pub runs: u64,
    /// Entries.
    pub entries: u64,
    /// Merge operands among the entries.
    operands: u64,
    /// Entries, if a compaction decides which of them are rows; else 0.
    pub compacted_entries: u64,
    /// Bytes of their internal keys.
    pub key_bytes: u64,
    /// Whether some key may be too long for its record.
    pub wide: bool,
    /// Bytes of the range's bounds.
    pub bound_bytes: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Files of deeper levels, and the number of these levels.
    pub deeper: u64,
    pub levels: u64,
    pub deeper_bytes: u64,
    /// Fragments of range tombstones, the bytes of their ends, and their sequence numbers.
    pub fragments: u64,
    pub fragment_bytes: u64,
    pub fragment_sequences: u64,
    /// Entries that range tombstones may delete: all, if there are range tombstones.
    pub covered_entries: u64,
    /// Entries, if there are merge operands; else 0.
    pub merged_entries: u64,
    /// Bytes of the merged values with padding, and of a delimiter.
    pub made_bytes: u64,
    pub delimiter_bytes: u64,
}

/// Entries are not spread evenly over a file. If a range is a part of one, the estimate grows by this factor, and by
/// this number.
pub const UNEVEN: (u64, u64) = (5, 4);
const FEW_ENTRIES: u64 = 256;

/// Maximum bytes between one decompressed block and the next (`decompress.hpp:RAW_ALIGNMENT`).
const RAW_OVERHEAD: u64 = ffi::RAW_ALIGNMENT;

/// Padding in front of and behind keys together.
pub const KEY_OVERHEAD: u64 = 2 * KEY_PADDING as u64;

/// `value * part / whole`, rounded up.
pub fn share(value: u64, part: u64, whole: u64) -> u64 {
    let share = (u128::from(value) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl ReadSize {
    /// The estimate for a request that uses groups, if there is a grouping. A task with more entries gets more memory if
    /// some is free.
    pub fn estimate(request: &Request<'_>, grouping: Option<Grouping>) -> Self {
        let mut size = Self {
            arena_bytes: ARENA_START,
            ..Self::default()
        };
        for table in request.tables {
            let blocks = blocks_used(table, request.range, grouping);
            size.add(table, blocks);
        }
        let bounds = [&request.range.begin, &request.range.end];
        let bounds = bounds.into_iter().flatten().map(|key| key.len() as u64);
        size.bound_bytes = bounds.sum::<u64>() + KEY_OVERHEAD;
        match request.visibility {
            Visibility::Compaction(rules) => size.add_rules(rules, request.range),
            Visibility::Snapshot(rules) => {
                if let Some(deleted) = rules.deleted {
                    size.add_fragments(deleted, request.range);
                }
            }
        }
        if !request.tables.iter().any(may_be_compressed) {
            size.raw_bytes = 0;
        }
        if let Visibility::Compaction(rules) = request.visibility
            && let Some(merging) = &rules.merging
        {
            size.merged_entries = size.entries;
            size.delimiter_bytes = merging.delimiter_len() as u64;
            if size.operands > 0 {
                let most = most_made_bytes(merging, size.operands, size.block_bytes());
                size.made_bytes = most.saturating_add(2 * PADDING);
            }
        }
        size
    }

    /// Adds the input from a table.
    fn add(&mut self, table: &InputTable, blocks: Range<usize>) {
        const TRAILER_BYTES: u64 = BLOCK_TRAILER_SIZE as u64;
        if blocks.is_empty() {
            return;
        }
        let stored = stored_bytes(table, &blocks);
        let blocks = blocks.len() as u64;
        let properties = &table.meta.properties;
        let data = stored.saturating_sub(blocks * TRAILER_BYTES);
        let of_table = |value| share(value, data, properties.data_size);
        let most = share(of_table(properties.num_entries), UNEVEN.0, UNEVEN.1);
        let entries = most.saturating_add(FEW_ENTRIES).min(properties.num_entries);
        let keys = share(entries, properties.raw_key_size, properties.num_entries);
        self.stored_bytes = self.stored_bytes.saturating_add(stored);
        // Compression is no more even than entries are.
        let raw =
            share(of_table(raw_size(properties)), UNEVEN.0, UNEVEN.1).min(raw_size(properties));
        self.raw_bytes = (self.raw_bytes)
            .saturating_add(raw.max(data))
            .saturating_add(blocks * RAW_OVERHEAD);
        if is_for_host(table) {
            let bytes = raw.saturating_add(blocks * TRAILER_BYTES);
            self.host_bytes = (self.host_bytes)
                .saturating_add(bytes)
                .saturating_add(HOST_OVERHEAD);
            let paddings = PARTS_OF_TABLE * arena_end(0, 0);
            self.arena_bytes = arena_end(self.arena_bytes, bytes.saturating_add(paddings));
        } else {
            self.arena_bytes = arena_end(self.arena_bytes, stored);
        }
        self.blocks += blocks;
        self.runs += 1;
        self.wide |= may_be_wide(properties);
        let operands = share(
            entries,
            properties.num_merge_operands,
            properties.num_entries,
        );
        if operands > 0 {
            let operands = share(operands, UNEVEN.0, UNEVEN.1).saturating_add(FEW_ENTRIES);
            self.operands = self.operands.saturating_add(operands.min(entries));
        }
        self.entries = self.entries.saturating_add(entries);
        self.key_bytes = self.key_bytes.saturating_add(keys);
    }

    /// Adds the rules that decide which entries survive.
    fn add_rules(&mut self, rules: &CompactionRules, range: &KeyRange) {
        let deeper = match &rules.deeper {
            DeeperLevels::Files(levels) => &levels[..],
            DeeperLevels::Nothing | DeeperLevels::Unknown => &[],
        };
        let files = || deeper.iter().flatten();
        let bytes = files().map(|(first, last)| (first.len() + last.len()) as u64);
        self.compacted_entries = self.entries;
        self.snapshots = rules.snapshots.len() as u64;
        self.deeper = files().count() as u64;
        self.levels = deeper.len() as u64;
        self.deeper_bytes = bytes.sum::<u64>() + KEY_OVERHEAD;
        self.add_fragments(&rules.tombstones, range);
    }

    /// Adds fragments of range tombstones.
    fn add_fragments(&mut self, fragments: &Fragments, range: &KeyRange) {
        let sizes = fragments.sizes_in(range);
        self.fragments = sizes.fragments;
        self.fragment_bytes = sizes.key_bytes;
        self.fragment_sequences = sizes.sequences;
        if self.fragments > 0 {
            self.fragment_bytes += KEY_OVERHEAD;
            self.covered_entries = self.entries;
            // Copies for the device.
            let records = self.fragments * size_of::<Fragment>() as u64;
            let numbers = self.fragment_sequences * size_of::<u64>() as u64;
            self.host_bytes = (self.host_bytes)
                .saturating_add(records + numbers)
                .saturating_add(2 * self.fragment_bytes);
        }
    }

    /// Bytes of the delimiters that may stand between operands.
    pub fn delimiters_bytes(&self) -> u64 {
        self.operands.saturating_mul(self.delimiter_bytes)
    }

    /// Bytes of all blocks in the form from which entries are read.
    pub fn block_bytes(&self) -> u64 {
        self.raw_bytes.max(self.stored_bytes)
    }

    /// Blocks, if some may be compressed; else 0.
    pub fn compressed_blocks(&self) -> u64 {
        if self.raw_bytes > 0 { self.blocks } else { 0 }
    }

    /// Bytes of decompressed blocks with padding, if some may be compressed; else 0.
    pub fn raw_arena_bytes(&self) -> u64 {
        match self.raw_bytes {
            0 => 0,
            bytes => bytes
                .saturating_add(2 * ARENA_START)
                .saturating_add(self.made_bytes),
        }
    }

    /// Estimated bytes of merged values, if no block may be compressed; else 0.
    pub fn made_in_arena_bytes(&self) -> u64 {
        if self.raw_bytes > 0 {
            0
        } else {
            self.made_bytes
        }
    }

    /// Entries, if some key may be too long for its record; else 0.
    pub fn wide_entries(&self) -> u64 {
        if self.wide { self.entries } else { 0 }
    }

    /// Bytes of their internal keys, with padding.
    pub fn wide_key_bytes(&self) -> u64 {
        match self.wide {
            true => self.key_bytes.saturating_add(KEY_OVERHEAD),
            false => 0,
        }
    }
}

/// Maximum bytes of the values merged from `operands` operands in blocks of `block_bytes` bytes.
fn most_made_bytes(merging: &Merging, operands: u64, block_bytes: u64) -> u64 {
    match merging {
        // These are values of entries.
        Merging::Put | Merging::Max => 0,
        // Only the CPU backend calls them.
        Merging::Custom(_) => 0,
        Merging::UInt64Add => operands.saturating_mul(size_of::<u64>() as u64),
        Merging::BytesXor => block_bytes,
        Merging::Append { delimiter, .. } => {
            block_bytes.saturating_add(operands.saturating_mul(delimiter.len() as u64))
        }
    }
}

/// Whether some data blocks of a table may be compressed, because they do not take just their own bytes and trailers.
/// Files of RocksDB before 11.12 do not contain the number of uncompressed bytes.
pub fn may_be_compressed(table: &InputTable) -> bool {
    const TRAILER_BYTES: u64 = BLOCK_TRAILER_SIZE as u64;
    let properties = &table.meta.properties;
    if properties.uncompressed_data_size == 0 {
        return !is_uncompressed(&properties.compression_name);
    }
    let trailers = properties.num_data_blocks.saturating_mul(TRAILER_BYTES);
    properties.uncompressed_data_size.checked_add(trailers) != Some(properties.data_size)
}

/// Bytes of a table's data blocks before compression, or more if the table does not contain it.
fn raw_size(properties: &TableProperties) -> u64 {
    /// Lengths and restarts.
    const ENTRY_OVERHEAD: u64 = 12;
    match properties.uncompressed_data_size {
        0 => (properties.raw_bytes())
            .saturating_add(properties.num_entries.saturating_mul(ENTRY_OVERHEAD)),
        size => size,
    }
}

/// Whether some user keys in a request's range may be too long for their records.
pub fn is_wide(request: &Request<'_>) -> bool {
    let mut tables = request.tables.iter();
    tables.any(|table| table.overlaps(request.range) && may_be_wide(&table.meta.properties))
}

/// Whether some user keys of a file may be too long for their records. Usually all keys have the same length and fit.
fn may_be_wide(properties: &TableProperties) -> bool {
    const MAX_BYTES: u64 = WORD_KEY_BYTES + TAG_SIZE as u64;
    let fitting = properties.num_entries.saturating_mul(MAX_BYTES);
    let of_one_length = properties
        .raw_key_size
        .is_multiple_of(properties.num_entries.max(1));
    properties.raw_key_size > fitting || !of_one_length
}
