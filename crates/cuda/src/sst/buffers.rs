//! The buffers of the stages that write files; `kernels/table.hpp` documents each.

use super::layout::{MAX_CUTS, MAX_FILES};
use super::size::SstSize;
use crate::driver::ffi::{
    BlockRef, FileCut, FileIndex, FileOffsets, FileTotals, FoundFile, KeySpan, OutBlock,
};
use crate::memory::buffers;

buffers! {
    /// Buffers for writing SST files.
    SstBuffers of SstSize, |x|
    shared: u32 = x.rows;
    sizes: u32 = x.rows;
    prefix: u64 = x.rows;
    key_sums: u64 = x.wide_rows;
    last_with_prefix: u32 = x.prefixed_rows;
    deletion_sums: u32 = x.counted_rows;
    most_deletions: u64 = x.files * x.collectors;
    cuts: FileCut = MAX_CUTS as u64 + 1;
    grandparents: KeySpan = x.grandparents;
    grandparent_bytes: u8 = x.grandparent_bytes;
    grandparent_places: u64 = 2 * x.grandparents;
    tail_bytes: u8 = x.tail_bytes;
    block_starts: u32 = x.rows;
    prefix_lens: u32 = x.blocks;
    hash_buckets: u32 = x.hashed_blocks;
    raw_sizes: u32 = x.blocks;
    block_sizes: u32 = x.blocks;
    block_offsets: u64 = x.blocks;
    raw_offsets: u64 = x.compressed_blocks + 1;
    stored_sizes: u32 = x.compressed_blocks;
    codecs: u32 = x.compressed_blocks;
    raw_sums: u32 = x.compressed_blocks;
    raw: u8 = x.raw_bytes;
    packed: u8 = x.raw_bytes;
    compress_scratch: u8 = x.compress_scratch_bytes;
    index_sizes: u32 = x.blocks;
    index_sums: u64 = x.blocks;
    edges: u8 = x.edge_bytes;
    blocks: OutBlock = x.blocks;
    file_starts: u32 = MAX_FILES as u64 + 2;
    file_blocks: u32 = MAX_FILES as u64 + 1;
    file_offsets: u64 = MAX_FILES as u64 + 1;
    file_totals: FileTotals = x.files;
    indexes: FileIndex = x.files;
    file_places: FileOffsets = x.files;
    found: FoundFile = x.files;
    images: u8 = x.image_bytes;
    bases: u32 = x.files;
    /// Filters' lines, one file's after another's, each larger than those before.
    filter_lines: u32 = x.filter_bytes / 4;
    /// Filters and indexes.
    parts: OutBlock = 2 * x.files;
    // Blocks of the images, to be decoded again.
    again: BlockRef = x.blocks;
    again_counts: u32 = x.blocks + 1;
    again_starts: u32 = x.blocks + 1;
    again_key_sums: u64 = x.blocks + 1;
    again_key_starts: u64 = x.blocks + 1;
}
