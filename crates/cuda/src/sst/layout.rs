//! Divides the surviving entries into files and blocks, on the device.

use std::ptr::{null, null_mut};

use rockmill_core::{Error, KeyRange, OutputPlan, OutputSplitting, Result};
use rockmill_format::block::buckets_per_key;
use rockmill_format::index::IndexShortening;

use super::buffers::SstBuffers;
use super::filter::{filter_rules, may_lack_prefix};
use crate::driver::ffi::{self, IndexLayout, Layout, LayoutArgs, NO_PARTITIONS};
use crate::read::{ReadState, SelectedRows, Spans, UserKeys, clear_errors};
use crate::support;

/// Maximum files of one task; all of them are open at once.
pub const MAX_FILES: usize = 256;

/// Maximum places of one task at which a file ends. There is no file between two of them if
/// neither an entry nor a range tombstone is left there.
pub const MAX_CUTS: usize = 16 * MAX_FILES;

/// The number of files lies behind the room for the files' starts, so that one copy reads both.
pub const NUM_FILES_AT: usize = MAX_FILES + 1;

/// Splits files and blocks of a task with the keys of `range`. Files may also end at the begin of one of `num_fragments`
/// range tombstones on the device.
pub fn lay_out(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    plan: &OutputPlan,
    range: &KeyRange,
    selected_rows: &SelectedRows,
    num_fragments: usize,
) -> Result<LayoutArgs> {
    let n = selected_rows.len;
    let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    clear_errors(&mut read.ws)?;
    let filter = filter_rules(plan.table.filter);
    let splitting = upload_splitting(read, sst, &plan.splitting, range)?;
    let file_starts = sst.file_starts.room(NUM_FILES_AT + 1)?;
    sst.file_starts
        .fill(0, NUM_FILES_AT + 1, 0, &read.ws.stream)?;
    let (table, index) = (&plan.table, &plan.table.index);
    // `keep` and `places` have the size that these need, and are free.
    let args = LayoutArgs {
        arena: read.buffers.arena.as_ptr(),
        selected_rows: read.buffers.keys_on(selected_rows.side).as_ptr(),
        n: n as u64,
        key_bytes: read.key_bytes(selected_rows.wide),
        values: read.buffers.values.as_ptr(),
        hashes: read.buffers.hashes.as_ptr(),
        layout: Layout {
            block_size: table.block_size.max(1),
            restart_interval: narrow(table.restart_interval),
            delta_keys: u32::from(table.delta_keys),
            common_prefix: u32::from(table.common_prefix),
            checksum: table.checksum as u32,
            buckets_per_entry: table.keys_per_bucket.map_or(-1.0, buckets_per_key),
        },
        index: IndexLayout {
            format_version: index.format_version,
            restart_interval: narrow(index.restart_interval),
            shortening: shortening(index.shortening),
            common_prefix: u32::from(index.common_prefix),
        },
        splitting,
        filter,
        compression: support::compression(&table.compression)
            .ok_or_else(|| Error::internal("a compression that was not checked"))?,
        shared: sst.shared.room(n + 1)?,
        sizes: sst.sizes.room(n + 1)?,
        prefix: sst.prefix.room(n + 1)?,
        begins: read.buffers.keep.room(n + 1)?,
        before: read.buffers.places.room(n + 1)?,
        block_starts: sst.block_starts.room(n + 1)?,
        key_sums: match selected_rows.wide {
            true => sst.key_sums.room(n + 1)?,
            false => null_mut(),
        },
        last_with_prefix: match may_lack_prefix(&filter) {
            true => sst.last_with_prefix.room(n)?,
            false => null_mut(),
        },
        deletion_sums: match plan.compact_on_deletion.is_empty() {
            true => null_mut(),
            false => sst.deletion_sums.room(n + 1)?,
        },
        fragments: read.buffers.fragments.as_ptr(),
        num_fragments: num_fragments as u64,
        fragment_places: read.buffers.fragment_places.room(num_fragments)?,
        cuts: sst.cuts.room(MAX_CUTS + 1)?,
        grandparent_places: sst.grandparent_places.as_ptr(),
        prefix_lens: null_mut(),
        hash_buckets: null_mut(),
        raw_sizes: null_mut(),
        block_sizes: null_mut(),
        block_offsets: null_mut(),
        raw_offsets: null_mut(),
        stored_sizes: null_mut(),
        codecs: null_mut(),
        raw_sums: null_mut(),
        raw: null_mut(),
        packed: null_mut(),
        compress_scratch: null_mut(),
        compress_groups: 0,
        compress_group_bytes: 0,
        compress_usual: 0,
        index_sizes: null_mut(),
        index_sums: null_mut(),
        blocks: null_mut(),
        num_blocks: 0,
        file_starts,
        num_files: file_starts.wrapping_add(NUM_FILES_AT),
        file_blocks: sst.file_blocks.room(MAX_FILES + 1)?,
        file_offsets: sst.file_offsets.room(MAX_FILES + 1)?,
        indexes: null_mut(),
        places: null(),
        edges: null_mut(),
        max_files: MAX_FILES as u32,
        max_cuts: MAX_CUTS as u32,
        errors: read.ws.errors.as_ptr().cast(),
    };
    for counts in [&sst.sizes, &read.buffers.keep] {
        counts.fill(n, 1, 0, &read.ws.stream)?;
    }
    // SAFETY: all buffers have room for n + 1 items, and surviving entries name decoded entries.
    unsafe { read.ws.stages().split(&args) }?;
    Ok(args)
}

/// `types.hpp:Shortening`.
fn shortening(mode: IndexShortening) -> u32 {
    match mode {
        IndexShortening::None => ffi::SHORTEN_NOTHING,
        IndexShortening::Separators => ffi::SHORTEN_SEPARATORS,
        IndexShortening::SeparatorsAndSuccessor => ffi::SHORTEN_SUCCESSOR,
    }
}

/// The rules for the ends of files in `range`, with the keys of these rules on the device.
fn upload_splitting(
    read: &ReadState,
    sst: &mut SstBuffers,
    splitting: &OutputSplitting,
    range: &KeyRange,
) -> Result<ffi::Splitting> {
    let spans = match splitting.single_file {
        true => Spans::default(),
        false => Spans::grandparents(&splitting.grandparents),
    };
    let tail = [splitting.tail_of(range), None];
    let [tail, _] = UserKeys::bounds(tail, &mut sst.tail_bytes, &read.ws.stream)?;
    let (stored, uncompressed) = splitting.compression_ratio;
    sst.grandparent_places.room(2 * spans.len())?;
    Ok(ffi::Splitting {
        file_size: uncompressed_file_size(splitting),
        tail,
        num_grandparents: spans.len() as u64,
        grandparents: spans.upload(
            &mut sst.grandparents,
            &mut sst.grandparent_bytes,
            &read.ws.stream,
        )?,
        target_file_size: splitting.target_file_size,
        max_compaction_bytes: splitting.max_compaction_bytes,
        stored,
        uncompressed,
        partition_bytes: match splitting.partition_bytes {
            Some(bytes) if !splitting.single_file => bytes as u64,
            _ => NO_PARTITIONS,
        },
        level_style: u32::from(splitting.level_style),
        unused: 0,
    })
}

/// The uncompressed size at which a file ends: the smallest whose stored size reaches the target.
pub fn uncompressed_file_size(splitting: &OutputSplitting) -> u64 {
    if splitting.single_file {
        return u64::MAX;
    }
    let (mut from, mut to) = (0, u64::MAX);
    while from < to {
        let middle = from + (to - from) / 2;
        if splitting.stored_size(middle) >= splitting.max_output_file_size {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}
