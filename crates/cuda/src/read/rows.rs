//! Decode, merge, visibility: from an arena of blocks to rows, all on the device.

use std::ptr;

use rockmill_core::{KeyRange, Request, Result, Visibility};

use super::decode::{Decoded, compacted_types, decode};
use super::input::Input;
use super::keys::UserKeys;
use super::retain::retain;
use super::snapshot::see;
use super::state::{Merged, ReadState, Side};
use crate::cache::FileCache;
use crate::driver::ffi::{DecodeArgs, InputTotals, Key, RetainTotals};

/// Surviving entries on the device.
#[derive(Debug)]
pub struct SelectedRows {
    /// The side with the entries; the other one is free.
    pub side: Side,
    /// Number of selected rows.
    pub len: usize,
    /// Sums over all entries as they were decoded.
    pub input: InputTotals,
    /// Sums over all entries once merged.
    pub totals: RetainTotals,
    /// Entries in the range by run.
    pub entries_by_run: Vec<u64>,
    /// Whether some user key is too long for its record; then all keys have bytes.
    pub wide: bool,
    /// Possible types of entries, one bit each.
    pub types: u32,
}

/// Decodes and merges the blocks that `input` has copied into the arena, and decides which entries are rows. Its new groups
/// are kept in `cache`.
///
/// # Errors
/// Corruption, naming file and block; Device.
pub fn select_rows(
    read: &mut ReadState,
    request: &Request<'_>,
    input: &Input<'_>,
    cache: Option<&FileCache>,
) -> Result<SelectedRows> {
    let decoded = decode(read, request, input, cache)?;
    let Trimmed {
        joined,
        entries_by_run,
    } = trim(read, request.range, &decoded)?;
    let input_totals = sum_input(read, &decoded.args, &joined)?;
    let (a, b) = (read.buffers.keys.as_ptr(), read.buffers.other_keys.as_ptr());
    let key_bytes = decoded.key_bytes();
    let mut merged = ptr::null_mut();
    // SAFETY: `joined` has two ends for each run, all within the `n` keys of both buffers.
    unsafe {
        read.ws.stages().merge_runs(
            &key_bytes,
            a,
            b,
            joined.as_ptr(),
            joined.len() as u32 / 2,
            &mut merged,
        )
    }?;
    let n = entries_by_run.iter().sum::<u64>() as usize;
    let side = if merged == a {
        Side::Keys
    } else {
        Side::OtherKeys
    };
    let rounds = (joined.len() / 2).next_power_of_two().ilog2().max(1);
    let merged_bytes = u64::from(rounds) * 2 * (n * size_of::<Key>()) as u64;
    read.mark("merge", merged_bytes)?;
    let merged_keys = Merged {
        side,
        key_bytes,
        len: n,
    };
    let (totals, side) = match request.visibility {
        Visibility::Compaction(rules) => {
            let one_by_one = input_totals.single_deletes > 0;
            let operands = input_totals.operands;
            let totals = retain(
                read,
                rules,
                request.range,
                &merged_keys,
                operands,
                one_by_one,
            )?;
            (totals, side.other())
        }
        Visibility::Snapshot(rules) => see(read, &rules, request.range, &merged_keys)?,
    };
    let stage = match request.visibility {
        Visibility::Compaction(_) => "retain",
        Visibility::Snapshot(_) => "see snapshot",
    };
    read.mark(stage, (n * 3 * size_of::<Key>()) as u64)?;
    Ok(SelectedRows {
        side,
        len: (totals.kept + totals.made) as usize,
        input: input_totals,
        totals,
        entries_by_run,
        wide: !decoded.args.key_at.is_null(),
        types: compacted_types(request.visibility),
    })
}

/// The entries in a range.
struct Trimmed {
    /// Two ends for each run. Runs of which one continues the other, as files of a level do, are one.
    joined: Vec<u32>,
    /// Number of entries of each run.
    entries_by_run: Vec<u64>,
}

fn trim(read: &mut ReadState, range: &KeyRange, decoded: &Decoded) -> Result<Trimmed> {
    let num_runs = decoded.run_starts.len() - 1;
    let range = [&range.begin, &range.end].map(Option::as_deref);
    let [begin, end] = UserKeys::bounds(range, &mut read.buffers.bound_bytes, &read.ws.stream)?;
    let run_starts = read
        .buffers
        .run_starts
        .upload(&decoded.run_starts, &read.ws.stream)?;
    let trimmed = read.buffers.trimmed.room(3 * num_runs)?;
    // SAFETY: `run_starts` has the runs' ends, `trimmed` has room for three numbers each.
    unsafe {
        read.ws.stages().trim_runs(
            &decoded.args,
            run_starts,
            num_runs as u32,
            &begin,
            &end,
            trimmed,
        )
    }?;
    let trimmed = read
        .buffers
        .trimmed
        .download(0, 3 * num_runs, &read.ws.stream)?;
    let (ends, follows) = trimmed.split_at(2 * num_runs);
    let (mut joined, mut entries_by_run) = (Vec::new(), Vec::new());
    for (ends, &follows) in ends.chunks_exact(2).zip(follows) {
        // A range whose end lies before its begin is empty.
        entries_by_run.push(u64::from(ends[1].saturating_sub(ends[0])));
        match joined.last_mut() {
            Some(last) if follows == 1 && *last == ends[0] => *last = ends[1],
            _ => joined.extend_from_slice(ends),
        }
    }
    Ok(Trimmed {
        joined,
        entries_by_run,
    })
}

/// Sums over the entries in the order of the runs, to be compared with the result of merging.
fn sum_input(read: &mut ReadState, args: &DecodeArgs, trimmed: &[u32]) -> Result<InputTotals> {
    let totals = (read.buffers.input_totals).upload(&[InputTotals::default()], &read.ws.stream)?;
    for run in trimmed.chunks_exact(2) {
        let (first, end) = (u64::from(run[0]), u64::from(run[1]));
        // SAFETY: the run lies within the decoded entries.
        unsafe { read.ws.stages().sum_input(args, first, end, totals) }?;
    }
    Ok(read.buffers.input_totals.download(0, 1, &read.ws.stream)?[0])
}
