//! Where survivors are cut into files and blocks, which the device decides.

use std::ptr::{null, null_mut};

use rockmill_core::{Cutting, Plan, Result};
use rockmill_format::index::IndexShortening;

use crate::device::Device;
use crate::ffi::{self, IndexLayout, KeyBytes, Layout, LayoutArgs};
use crate::limits::{Spans, filter_rules, may_lack_prefix};
use crate::stages::{Survivors, clear_errors, key_memory};
use crate::workspace::Workspace;

/// Files of one slice at most; all of them are open at once.
pub const MOST_FILES: usize = 256;

/// The number of files stands behind room for the files' starts, to be read with them.
pub const NUM_FILES_AT: usize = MOST_FILES + 1;

/// Cuts files and blocks.
pub fn lay_out(
    device: &Device,
    ws: &mut Workspace,
    plan: &Plan,
    survivors: &Survivors,
) -> Result<LayoutArgs> {
    let n = survivors.len;
    let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    clear_errors(ws)?;
    let filter = filter_rules(plan.table.filter);
    let cutting = upload_cutting(ws, &plan.cutting)?;
    let file_starts = ws.file_starts.room(NUM_FILES_AT + 1)?;
    ws.file_starts.fill(0, NUM_FILES_AT + 1, 0, &ws.stream)?;
    let (table, index) = (&plan.table, &plan.table.index);
    // `keep` and `places` are of the size that these need, and no longer in use.
    let args = LayoutArgs {
        arena: ws.arena.as_ptr(),
        survivors: survivors.keys,
        n: n as u64,
        key_bytes: key_bytes(ws, survivors.wide),
        values: ws.values.as_ptr(),
        hashes: ws.hashes.as_ptr(),
        layout: Layout {
            block_size: table.block_size.max(1),
            restart_interval: narrow(table.restart_interval),
            delta_keys: u32::from(table.delta_keys),
            common_prefix: u32::from(table.common_prefix),
            checksum: table.checksum as u32,
        },
        index: IndexLayout {
            format_version: index.format_version,
            restart_interval: narrow(index.restart_interval),
            shortening: shortening(index.shortening),
            common_prefix: u32::from(index.common_prefix),
        },
        cutting,
        filter,
        shared: ws.shared.room(n + 1)?,
        sizes: ws.sizes.room(n + 1)?,
        prefix: ws.prefix.room(n + 1)?,
        begins: ws.keep.room(n + 1)?,
        before: ws.places.room(n + 1)?,
        block_starts: ws.block_starts.room(n + 1)?,
        key_sums: match survivors.wide {
            true => ws.survivor_key_sums.room(n + 1)?,
            false => null_mut(),
        },
        last_with_prefix: match may_lack_prefix(&filter) {
            true => ws.last_with_prefix.room(n)?,
            false => null_mut(),
        },
        grandparent_places: ws.grandparent_places.as_ptr(),
        prefix_lens: null_mut(),
        block_sizes: null_mut(),
        block_offsets: null_mut(),
        index_sizes: null_mut(),
        index_sums: null_mut(),
        blocks: null_mut(),
        num_blocks: 0,
        file_starts,
        num_files: file_starts.wrapping_add(NUM_FILES_AT),
        file_blocks: ws.file_blocks.room(MOST_FILES + 1)?,
        file_offsets: ws.file_offsets.room(MOST_FILES + 1)?,
        indexes: null_mut(),
        places: null(),
        edges: null_mut(),
        most_files: MOST_FILES as u32,
        unused: 0,
        errors: ws.errors.as_ptr().cast(),
    };
    for counts in [&ws.sizes, &ws.keep] {
        counts.fill(n, 1, 0, &ws.stream)?;
    }
    // SAFETY: all buffers have room for n + 1 items, and survivors name decoded entries.
    let code = unsafe { (device.table().cut)(&ws.exec(), &raw const args) };
    device.check(code, "cut files and blocks")?;
    Ok(args)
}

/// `types.hpp:Shortening`.
fn shortening(mode: IndexShortening) -> u32 {
    match mode {
        IndexShortening::None => 0,
        IndexShortening::Separators => 1,
        IndexShortening::SeparatorsAndSuccessor => 2,
    }
}

/// The bytes of the entries' keys.
fn key_bytes(ws: &Workspace, wide: bool) -> KeyBytes {
    let at = ws.key_at.as_ptr().cast_const();
    KeyBytes {
        bytes: key_memory(ws),
        at: if wide { at } else { null() },
    }
}

/// Where files end, with the grandparents on the device.
fn upload_cutting(ws: &mut Workspace, cutting: &Cutting) -> Result<ffi::Cutting> {
    let spans = match cutting.single_file {
        true => Spans::default(),
        false => Spans::grandparents(&cutting.grandparents),
    };
    let (stored, uncompressed) = cutting.compression_ratio;
    ws.grandparent_places.room(2 * spans.len())?;
    Ok(ffi::Cutting {
        file_size: uncompressed_file_size(cutting),
        num_grandparents: spans.len() as u64,
        grandparents: spans.upload(&mut ws.grandparents, &mut ws.grandparent_bytes, &ws.stream)?,
        target_file_size: cutting.target_file_size,
        max_compaction_bytes: cutting.max_compaction_bytes,
        stored,
        uncompressed,
        level_style: u32::from(cutting.level_style),
        unused: 0,
    })
}

/// The uncompressed size at which a file ends: the smallest whose stored size reaches the target.
fn uncompressed_file_size(cutting: &Cutting) -> u64 {
    if cutting.single_file {
        return u64::MAX;
    }
    let (mut from, mut to) = (0, u64::MAX);
    while from < to {
        let middle = from + (to - from) / 2;
        if cutting.stored_size(middle) >= cutting.max_output_file_size {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}
