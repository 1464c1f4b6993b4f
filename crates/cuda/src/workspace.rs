//! What a slice in flight holds on the device.

use std::sync::Arc;

use rockmill_core::Result;

use crate::buffer::{Arena, DeviceBuffer, space};
use crate::device::Device;
use crate::extent::Extent;
use crate::ffi::{
    BlockRef, Exec, FileIndex, FilePlace, FileTotals, FoundFile, InputTotals, Key, KeySpan,
    OutBlock, RetainTotals, ValueRef,
};
use crate::layout::MOST_FILES;
use crate::pool::Lent;
use crate::stream::Stream;

/// Bytes that stages ask for beyond what is foreseen of buffers with few values.
const SLACK_BYTES: u64 = 64 << 10;

/// Declares the buffers, each with how many values a slice of extent `x` puts there at most.
macro_rules! workspace {
    (|$x:ident| $($name:ident: $value:ty = $len:expr;)+) => {
        /// Buffers of the stages; see `kernels/table.hpp` for what each holds.
        #[derive(Debug)]
        pub struct Workspace {
            /// Given back, with nothing in it, before the memory is.
            pub stream: Lent<Stream>,
            pub scratch: DeviceBuffer<u8>,
            pub scratch_bytes: u64,
            $(pub $name: DeviceBuffer<$value>,)+
        }

        impl Workspace {
            /// Empty buffers in `arena`.
            pub fn new(stream: Lent<Stream>, arena: &Arc<Arena>) -> Result<Self> {
                let mut workspace = Self {
                    stream,
                    scratch: DeviceBuffer::new(arena),
                    scratch_bytes: 0,
                    $($name: DeviceBuffer::new(arena),)+
                };
                workspace.errors.room(1)?;
                Ok(workspace)
            }
        }

        impl Extent {
            /// Device memory that the slice takes at most, bytes.
            pub fn device_bytes(&self, device: &Device) -> u64 {
                let $x = self;
                let buffers = [
                    space::<u8>($x.scratch_bytes(device)),
                    $(space::<$value>($len),)+
                ];
                buffers.into_iter().fold(SLACK_BYTES, u64::saturating_add)
            }
        }
    };
}

workspace! { |x|
    // The first error, and the longest user key.
    errors: [u64; 2] = 1;
    arena: u8 = x.arena_bytes;
    // Blocks that are read, and, where those are more, blocks that are read again.
    blocks: BlockRef = x.in_blocks + x.out_blocks;
    counts: u32 = x.in_blocks + x.out_blocks + 1;
    starts: u32 = x.in_blocks + x.out_blocks + 1;
    key_sums: u64 = x.in_blocks + x.out_blocks + 1;
    key_starts: u64 = x.in_blocks + x.out_blocks + 1;
    keys: Key = x.entries;
    other_keys: Key = x.entries;
    values: ValueRef = x.entries;
    hashes: u64 = x.entries;
    key_bytes: u8 = x.wide_key_bytes;
    key_at: u64 = x.wide_entries;
    bound_bytes: u8 = x.bound_bytes;
    run_starts: u32 = x.runs + 1;
    trimmed: u32 = 2 * x.runs;
    snapshots: u64 = x.snapshots;
    beneath: KeySpan = x.beneath;
    beneath_bytes: u8 = x.beneath_bytes;
    level_ends: u32 = x.levels;
    heads: u32 = x.entries;
    has_older: u8 = x.entries;
    keep: u32 = x.entries;
    places: u32 = x.entries;
    input_totals: InputTotals = 1;
    totals: RetainTotals = 1;
    shared: u32 = x.entries;
    sizes: u32 = x.entries;
    prefix: u64 = x.entries;
    survivor_key_sums: u64 = x.wide_entries;
    last_with_prefix: u32 = x.prefixed_entries;
    grandparents: KeySpan = x.grandparents;
    grandparent_bytes: u8 = x.grandparent_bytes;
    grandparent_places: u64 = 2 * x.grandparents;
    block_starts: u32 = x.entries;
    prefix_lens: u32 = x.out_blocks;
    block_sizes: u32 = x.out_blocks;
    block_offsets: u64 = x.out_blocks;
    index_sizes: u32 = x.out_blocks;
    index_sums: u64 = x.out_blocks;
    edges: u8 = x.edge_bytes;
    out_blocks: OutBlock = x.out_blocks;
    file_starts: u32 = MOST_FILES as u64 + 2;
    file_blocks: u32 = MOST_FILES as u64 + 1;
    file_offsets: u64 = MOST_FILES as u64 + 1;
    file_totals: FileTotals = x.files;
    indexes: FileIndex = x.files;
    file_places: FilePlace = x.files;
    found: FoundFile = x.files;
    images: u8 = x.image_bytes;
    bases: u32 = x.files;
    // One after another, each larger than those before.
    filter_lines: u32 = x.filter_bytes / 4;
    // Filters and indexes.
    parts: OutBlock = 2 * x.files;
}

impl Workspace {
    /// Makes scratch memory for stages over `entries`.
    pub fn make_scratch(&mut self, device: &Device, entries: usize) -> Result<()> {
        // SAFETY: takes a number alone.
        let bytes = unsafe { (device.table().scratch_bytes)(entries as u64) };
        self.scratch.room(bytes as usize)?;
        self.scratch_bytes = self.scratch_bytes.max(bytes);
        Ok(())
    }

    /// What stages are called with.
    pub fn exec(&self) -> Exec {
        self.stream
            .exec(self.scratch.as_ptr().cast(), self.scratch_bytes)
    }
}
