//! Maximum sizes of a task's output as SST files.

use rockmill_core::OutputPlan;
use rockmill_format::compression::CompressionType;
use rockmill_format::handle::BLOCK_TRAILER_SIZE;

use super::filter::{filter_rules, may_lack_prefix};
use super::images::{IMAGE_ALIGNMENT, PADDING};
use super::layout::MAX_FILES;
use crate::driver::ffi;
use crate::read::{KEY_OVERHEAD, ReadSize, UNEVEN, share};

/// Counts of the output, to estimate its memory on the device.
#[derive(Debug, Default, Clone, Copy)]
pub struct SstSize {
    /// Rows, and those with keys too long for their records.
    pub rows: u64,
    pub wide_rows: u64,
    /// Rows, if filters are of prefixes that some keys may lack; else 0.
    pub prefixed_rows: u64,
    /// Rows, if tombstones among them are counted; else 0.
    pub counted_rows: u64,
    /// Collectors that use these counts.
    pub collectors: u64,
    /// Files whose keys decide where output files end.
    pub grandparents: u64,
    pub grandparent_bytes: u64,
    /// Bytes of the key from which on no file ends because of its size.
    pub tail_bytes: u64,
    /// Output files.
    pub files: u64,
    /// Bytes of the internal keys at their ends.
    pub edge_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Data blocks, if they have hash indexes; else 0.
    pub hashed_blocks: u64,
    /// Bytes of all filters.
    pub filter_bytes: u64,
    /// Bytes of all files.
    pub image_bytes: u64,
    /// If data blocks are compressed, their number and uncompressed bytes; else 0.
    pub compressed_blocks: u64,
    pub raw_bytes: u64,
    /// Bytes of [`CompressScratch`].
    pub compress_scratch_bytes: u64,
}

/// Bytes of an entry beside a whole key and its size in the input: a restart and longer lengths.
const ENTRY_OVERHEAD: u64 = 8;

/// Bytes of a block beside its entries: the trailer, a restart and their count.
const BLOCK_OVERHEAD: u64 = BLOCK_TRAILER_SIZE as u64 + 8;

/// Bytes of an index entry beside the separator: lengths, a handle, a restart.
const INDEX_ENTRY_OVERHEAD: u64 = 32;

/// Padding around each of a file's parts.
const FILE_OVERHEAD: u64 = 2 * IMAGE_ALIGNMENT;

impl SstSize {
    /// Estimate for writing all input, on a device with `processors` multiprocessors.
    pub fn estimate(read: &ReadSize, plan: &OutputPlan, processors: u32) -> Self {
        let (entries, key_bytes) = (read.entries, read.key_bytes);
        let grandparents = &plan.splitting.grandparents;
        let grandparent_bytes: u64 = (grandparents.iter())
            .map(|file| (file.smallest.len() + file.largest.len()) as u64)
            .sum();
        let tail_bytes = (plan.splitting.tails.values().map(Vec::len).max()).unwrap_or(0) as u64;
        let data = read
            .block_bytes()
            .saturating_add(read.delimiters_bytes())
            .saturating_add(key_bytes)
            .saturating_add(entries.saturating_mul(ENTRY_OVERHEAD));
        let files = match plan.splitting.partition_bytes {
            None => data / plan.splitting.max_output_file_size.max(1) + 2,
            Some(_) => MAX_FILES as u64,
        };
        let files = files.min(MAX_FILES as u64);
        let blocks = (data / plan.table.block_size.max(1) + files).min(entries);
        let filter_bytes = filter_bytes(plan, entries, files);
        let index_bytes = share(key_bytes, blocks, entries)
            .saturating_add(blocks.saturating_mul(INDEX_ENTRY_OVERHEAD));
        let block_bytes = data
            .saturating_add(blocks.saturating_mul(BLOCK_OVERHEAD))
            .saturating_add(hash_index_bytes(plan, entries, blocks));
        let collectors = plan.compact_on_deletion.len() as u64;
        let compresses = plan.table.compression.kind != CompressionType::None;
        // Nothing may shrink.
        let image_bytes = block_bytes
            .saturating_add(filter_bytes)
            .saturating_add(index_bytes)
            .saturating_add(files * FILE_OVERHEAD);
        Self {
            rows: entries,
            wide_rows: read.wide_entries(),
            prefixed_rows: match may_lack_prefix(&filter_rules(plan.table.filter)) {
                true => entries,
                false => 0,
            },
            counted_rows: if collectors > 0 { entries } else { 0 },
            collectors,
            grandparents: grandparents.len() as u64,
            grandparent_bytes: grandparent_bytes + KEY_OVERHEAD,
            tail_bytes: tail_bytes + KEY_OVERHEAD,
            files,
            edge_bytes: share(key_bytes, 2 * files, entries),
            blocks,
            hashed_blocks: match plan.table.keys_per_bucket {
                None => 0,
                Some(_) => blocks,
            },
            filter_bytes,
            image_bytes,
            compressed_blocks: if compresses { blocks } else { 0 },
            compress_scratch_bytes: CompressScratch::new(plan, block_bytes, blocks, processors)
                .bytes,
            raw_bytes: match compresses {
                true => block_bytes.saturating_add(2 * PADDING),
                false => 0,
            },
        }
    }
}

/// Scratch memory of compression (`compress.hpp:CompressScratch`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CompressScratch {
    /// Total bytes; 0 if none are needed.
    pub bytes: u64,
    /// Groups with scratch memory each; 0 if each block has its own.
    pub groups: u64,
    /// Bytes of a group.
    pub group_bytes: u64,
    /// Largest block for which that suffices.
    pub usual_block: u64,
}

impl CompressScratch {
    /// Scratch memory for compressing `blocks` blocks of `bytes` bytes on a device with `processors` multiprocessors, 0
    /// on the host.
    pub fn new(plan: &OutputPlan, bytes: u64, blocks: u64, processors: u32) -> Self {
        /// Groups that a multiprocessor runs at once.
        const GROUPS_PER_PROCESSOR: u64 = (ffi::WARPS_WITH_SHARED * ffi::BLOCKS_WITH_SHARED) as u64;
        /// Longer blocks are encoded in parts of this size.
        const MAX_PART: u64 = ffi::ZSTD_MAX_BLOCK as u64;
        /// Minimum number of groups, for blocks of any size.
        const LEAST_GROUPS: u64 = 2;
        const BYTES_PER_BLOCK: u64 = 32;
        const COUNTER_BYTES: u64 = 8;
        let compression = &plan.table.compression;
        if compression.kind != CompressionType::Zstd || compression.is_by_library() {
            return Self::default();
        }
        // `zstd_encode.hpp:zstd_scratch_bytes`.
        let of_block = |bytes: u64| 2 * bytes.min(MAX_PART).next_multiple_of(4) + 8;
        let mean = plan.table.block_size.max(bytes / blocks.max(1));
        let usual_block = mean.saturating_add(mean / 2).min(u64::from(u32::MAX));
        let groups = u64::from(processors.max(1)) * GROUPS_PER_PROCESSOR;
        let group_bytes =
            of_block(usual_block).max(of_block(MAX_PART) * LEAST_GROUPS / groups + 8) / 8 * 8;
        let of_all_blocks =
            (bytes.saturating_mul(2)).saturating_add(blocks.saturating_mul(BYTES_PER_BLOCK));
        if of_all_blocks <= groups * group_bytes {
            return Self {
                bytes: of_all_blocks,
                ..Self::default()
            };
        }
        Self {
            bytes: groups * group_bytes + COUNTER_BYTES,
            groups,
            group_bytes,
            usual_block,
        }
    }
}

/// Bytes of the hash indexes of data blocks: their buckets, the number of buckets, and the bucket that makes it odd.
fn hash_index_bytes(plan: &OutputPlan, entries: u64, blocks: u64) -> u64 {
    const MAX_BLOCK_BYTES: u64 = 1 << 16;
    const OVERHEAD: u64 = 4;
    let buckets = plan.table.keys_per_bucket.map_or(0, |keys| {
        (entries as f64 * rockmill_format::block::buckets_per_key(keys)) as u64
    });
    match buckets {
        0 => 0,
        buckets => buckets.min(blocks * MAX_BLOCK_BYTES) + blocks * OVERHEAD,
    }
}

/// Bytes of filters over `entries` keys, rounded up for each file to whole lines and to the sizes that allocators
/// prefer.
fn filter_bytes(plan: &OutputPlan, entries: u64, files: u64) -> u64 {
    const MILLIBITS_PER_BYTE: u64 = 8000;
    const FILE_BYTES: u64 = 256;
    let millibits = plan.table.filter.map_or(0, |f| f.millibits_per_key);
    if millibits == 0 {
        return 0;
    }
    let bits = share(entries, u64::from(millibits), MILLIBITS_PER_BYTE);
    share(bits, UNEVEN.0, UNEVEN.1).saturating_add(files * FILE_BYTES)
}
