//! Merge operands of a compaction: the merged values are measured, and get a place behind the blocks in the arena.

use std::ptr::{null, null_mut};

use rockmill_core::{Error, Merging, Result};

use super::errors::{FirstError, error_in, first_error};
use super::input::PADDING;
use super::state::ReadState;
use crate::driver::ffi::{
    ERROR_MERGED_BYTES, MERGE_ADD, MERGE_APPEND, MERGE_MAX, MERGE_PUT, MERGE_XOR, MergeRules,
    RetainArgs,
};
use crate::driver::{altered, refused};

/// Limit of a stripe's operands and their base, and the overhead of each beside its value and a delimiter. The CPU
/// backend declines stripes that exceed it (`crates/cpu/src/read/operands.rs`).
const MAX_MERGED_BYTES: u64 = 8 << 20;
const OPERAND_BYTES: u64 = 72;

/// The rules of a compaction without operands.
pub const NO_MERGING: MergeRules = MergeRules {
    function: 0,
    partial: 0,
    delimiter: null(),
    delimiter_len: 0,
    max_bytes: 0,
    operand_bytes: 0,
};

/// Decides about `n` entries, of which some are operands, and makes the merged values.
///
/// # Errors
/// Device, also for stripes that the CPU declines.
pub fn make_values(
    read: &mut ReadState,
    args: &mut RetainArgs,
    merging: &Merging,
    n: usize,
) -> Result<()> {
    args.merging = rules(read, merging)?;
    args.made = read.buffers.made.room(n)?;
    args.made_offsets = read.buffers.made_offsets.room(n + 1)?;
    // SAFETY: all buffers have room for n entries, offsets for one more.
    unsafe { read.ws.stages().measure_made(args) }?;
    let (total, [word, _]) =
        (read.buffers.made_offsets).download_with(n, 1, &read.ws.errors, &read.ws.stream)?;
    match error_in(word) {
        None => {}
        Some(FirstError { code, .. }) if code == ERROR_MERGED_BYTES => {
            return Err(refused(
                "merge operands of a key that take more than 8 MiB, or a key with more than 262,144 entries",
            ));
        }
        Some(_) => return Err(refused("merge operands above other entries than values")),
    }
    // Words at the ends of a value are read whole.
    let used = read.arena_end as usize;
    let room = (total[0] + PADDING) as usize;
    args.arena = (read.buffers.arena).grow(used, room, &read.ws.stream)?;
    args.made_at = read.arena_end;
    let end = used + total[0] as usize;
    (read.buffers.arena).fill(end, PADDING as usize, 0, &read.ws.stream)?;
    // SAFETY: as above; the values have the places that were measured.
    unsafe { read.ws.stages().make_values(args) }
}

/// Checks the merged values, after the stage that compares them with their operands.
///
/// # Errors
/// Verification; Device.
pub fn check_made(read: &ReadState) -> Result<()> {
    match first_error(&read.ws)? {
        None => Ok(()),
        Some(_) => Err(altered("a merged value is not that of its operands")),
    }
}

fn rules(read: &mut ReadState, merging: &Merging) -> Result<MergeRules> {
    let (function, partial) = match merging {
        Merging::UInt64Add => (MERGE_ADD, true),
        Merging::Put => (MERGE_PUT, true),
        Merging::Max => (MERGE_MAX, true),
        Merging::BytesXor => (MERGE_XOR, true),
        Merging::Append { partial, .. } => (MERGE_APPEND, *partial),
        Merging::Custom(_) => return Err(Error::internal("an operator of the application")),
    };
    let delimiter = match merging {
        Merging::Append { delimiter, .. } => delimiter.as_slice(),
        _ => &[],
    };
    let at = match delimiter {
        [] => null_mut(),
        bytes => (read.buffers.delimiter).upload(bytes, &read.ws.stream)?,
    };
    Ok(MergeRules {
        function,
        partial: u32::from(partial),
        delimiter: at,
        delimiter_len: delimiter.len() as u64,
        max_bytes: MAX_MERGED_BYTES,
        operand_bytes: OPERAND_BYTES,
    })
}
