//! State of a task on its device while it reads, and as long as its rows are used.

use std::ptr;

use rockmill_core::Result;

use super::keys::KEY_PADDING;
use super::size::ReadSize;
use crate::driver::ffi::{
    BlockRef, Fragment, InputTotals, Key, KeyBytes, KeySpan, RetainTotals, ValueRef,
};
use crate::driver::{Device, Marks};
use crate::memory::{DeviceBuffer, Workspace, buffers};

buffers! {
    /// Buffers for reading. Entries stay here as long as their rows are used.
    ReadBuffers of ReadSize, |x|
    /// Blocks in the form from which entries are read.
    arena: u8 = x.arena_bytes.saturating_add(x.made_in_arena_bytes());
    /// The other arena of a task with compressed blocks: at first the target of decompression; then the compressed
    /// blocks.
    other_arena: u8 = x.raw_arena_bytes();
    raw_sizes: u64 = x.compressed_blocks() + 1;
    raw_offsets: u64 = x.compressed_blocks() + 1;
    blocks: BlockRef = x.blocks;
    counts: u32 = x.blocks + 1;
    starts: u32 = x.blocks + 1;
    key_sums: u64 = x.blocks + 1;
    key_starts: u64 = x.blocks + 1;
    keys: Key = x.entries;
    other_keys: Key = x.entries;
    values: ValueRef = x.entries;
    hashes: u64 = x.entries;
    key_bytes: u8 = x.wide_key_bytes();
    key_at: u64 = x.wide_entries();
    bound_bytes: u8 = x.bound_bytes;
    run_starts: u32 = x.runs + 1;
    trimmed: u32 = 3 * x.runs;
    snapshots: u64 = x.snapshots;
    deeper: KeySpan = x.deeper;
    deeper_bytes: u8 = x.deeper_bytes;
    level_ends: u32 = x.levels;
    fragments: Fragment = x.fragments;
    fragment_bytes: u8 = x.fragment_bytes;
    sequences: u64 = x.fragment_sequences;
    fragment_places: u64 = x.fragments;
    cover: u32 = x.covered_entries;
    delimiter: u8 = x.delimiter_bytes;
    made: u32 = x.merged_entries;
    made_offsets: u64 = x.merged_entries;
    heads: u32 = x.compacted_entries;
    has_older: u8 = x.compacted_entries;
    keep: u32 = x.entries;
    places: u32 = x.entries;
    input_totals: InputTotals = 1;
    totals: RetainTotals = 1;
}

/// One of the two buffers of keys: stages read entries from one and write them to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Keys,
    OtherKeys,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Keys => Self::OtherKeys,
            Self::OtherKeys => Self::Keys,
        }
    }
}

impl ReadBuffers {
    /// The buffer of keys on a side.
    pub fn keys_on(&self, side: Side) -> &DeviceBuffer<Key> {
        match side {
            Side::Keys => &self.keys,
            Side::OtherKeys => &self.other_keys,
        }
    }
}

/// Entries in one order.
pub(super) struct Merged {
    pub(super) side: Side,
    pub(super) key_bytes: KeyBytes,
    pub(super) len: usize,
}

/// State of a task on its device.
#[derive(Debug)]
pub struct ReadState {
    pub device: Device,
    pub ws: Workspace,
    pub buffers: ReadBuffers,
    pub marks: Marks,
    /// End of the blocks in the arena.
    pub arena_end: u64,
    /// Estimated bytes of merged values. The arena has room for them, so that it does not move.
    pub made_bytes: usize,
    /// Fragments of range tombstones on the device.
    pub num_fragments: usize,
}

impl ReadState {
    /// Ends a stage that moved `bytes` through device memory.
    ///
    /// # Errors
    /// Device.
    pub fn mark(&mut self, stage: &'static str, bytes: u64) -> Result<()> {
        self.marks.end(&self.ws.stream, stage, bytes)
    }

    /// Address of the bytes of keys.
    pub fn key_memory(&self) -> *mut u8 {
        self.buffers.key_bytes.as_ptr().wrapping_add(KEY_PADDING)
    }

    /// Addresses of the bytes of the entries' keys, if they have some.
    pub fn key_bytes(&self, wide: bool) -> KeyBytes {
        let at = self.buffers.key_at.as_ptr().cast_const();
        KeyBytes {
            bytes: self.key_memory(),
            at: if wide { at } else { ptr::null() },
        }
    }
}
