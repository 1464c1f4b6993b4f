//! The entries that a compaction keeps.

use std::ptr::null_mut;

use rockmill_core::{CompactionRules, DeclineReason, Error, KeyRange, Result};

use super::errors::{FirstError, first_error};
use super::fragments::{OnDevice, room_for_cover, upload};
use super::keys::deeper;
use super::operands::{NO_MERGING, check_made, make_values};
use super::state::{Merged, ReadState};
use crate::driver::ffi::{ERROR_SINGLE_DELETE, RetainArgs, RetainRules, RetainTotals};
use crate::driver::refused;

/// Writes the entries of `merged` that a compaction keeps to its other side. `operands`: some of the entries are merge
/// operands. `one_by_one`: user keys are processed one after another.
pub(super) fn retain(
    read: &mut ReadState,
    rules: &CompactionRules,
    range: &KeyRange,
    merged: &Merged,
    operands: u64,
    one_by_one: bool,
) -> Result<RetainTotals> {
    let n = merged.len;
    let deeper = deeper(&rules.deeper);
    let OnDevice {
        fragments,
        sequences,
        len: num_fragments,
    } = upload(read, &rules.tombstones, range)?;
    read.num_fragments = num_fragments;
    if n == 0 {
        return Ok(RetainTotals::default());
    }
    let (fragment_places, cover) = room_for_cover(read, num_fragments, n)?;
    let spans = deeper.spans.upload(
        &mut read.buffers.deeper,
        &mut read.buffers.deeper_bytes,
        &read.ws.stream,
    )?;
    let mut args = RetainArgs {
        keys: read.buffers.keys_on(merged.side).as_ptr(),
        n: n as u64,
        key_bytes: merged.key_bytes,
        values: read.buffers.values.as_ptr(),
        hashes: read.buffers.hashes.as_ptr(),
        rules: RetainRules {
            snapshots: read
                .buffers
                .snapshots
                .upload(&rules.snapshots, &read.ws.stream)?,
            num_snapshots: rules.snapshots.len() as u64,
            earliest: rules.earliest(),
            deeper: spans,
            level_ends: read
                .buffers
                .level_ends
                .upload(&deeper.level_ends, &read.ws.stream)?,
            num_levels: deeper.level_ends.len() as u32,
            bottommost: u32::from(rules.bottommost),
            deeper_unknown: u32::from(deeper.unknown),
            enforce_single_delete: u32::from(rules.enforce_single_del_contracts),
            fragments,
            sequences,
            num_fragments: num_fragments as u64,
        },
        fragment_places,
        cover,
        heads: read.buffers.heads.room(n)?,
        has_older: read.buffers.has_older.room(n)?,
        keep: read.buffers.keep.room(n)?,
        places: read.buffers.places.room(n)?,
        selected_rows: read.buffers.keys_on(merged.side.other()).as_ptr(),
        totals: read.buffers.totals.room(1)?,
        errors: read.ws.errors.as_ptr().cast(),
        arena: null_mut(),
        merging: NO_MERGING,
        made: null_mut(),
        made_offsets: null_mut(),
        made_at: 0,
        one_by_one: u32::from(one_by_one),
        unused: 0,
    };
    read.buffers.has_older.fill(0, n, 0, &read.ws.stream)?;
    read.buffers.totals.fill(0, 1, 0, &read.ws.stream)?;
    if let Some(merging) = rules.merging.as_ref().filter(|_| operands > 0) {
        if one_by_one {
            return Err(refused("merge operands beside SingleDeletes"));
        }
        make_values(read, &mut args, merging, n)?;
    }
    // SAFETY: all buffers have room for n entries; keys name entries whose values and hashes were decoded.
    unsafe { read.ws.stages().retain(&args) }?;
    let totals = read.buffers.totals.download(0, 1, &read.ws.stream)?[0];
    if !args.made.is_null() {
        check_made(read)?;
    }
    match one_by_one.then(|| first_error(&read.ws)).transpose()? {
        Some(Some(FirstError { code, .. })) if code == ERROR_SINGLE_DELETE => Err(Error::declined(
            DeclineReason::SingleDeleteContract,
            "a SingleDelete and a Delete of the same key",
        )),
        _ => Ok(totals),
    }
}
