//! Decode, merge, retain: from an arena of blocks to survivors, all of it on the device.

mod decode;
mod errors;
mod retain;

use std::ptr;

use rockmill_core::{InputTable, Plan, Result, Slice};

use crate::device::Device;
use crate::ffi::{DecodeArgs, InputTotals, Key, RetainTotals};
use crate::input::Input;
use crate::limits::UserKeys;
use crate::timing::Marks;
use crate::workspace::Workspace;
use decode::{Decoded, decode};
pub use decode::{WORD_KEY_BYTES, key_memory};
pub use errors::{FirstError, clear_errors, download_checked, longest_key};
use retain::{Merged, retain};

/// Survivors on the device.
#[derive(Debug)]
pub struct Survivors {
    /// In `keys` or `other_keys` of the workspace.
    pub keys: *mut Key,
    /// The other one, free for use.
    pub spare_keys: *mut Key,
    /// Number of survivors.
    pub len: usize,
    /// Sums over all entries as they were decoded.
    pub input: InputTotals,
    /// Sums over all entries once merged.
    pub totals: RetainTotals,
    /// Entries of the slice by run.
    pub entries_by_run: Vec<u64>,
    /// Whether some user key is too long for its record, so that all keys have bytes.
    pub wide: bool,
}

/// Decodes, merges and retains what `input` has put into the arena.
///
/// # Errors
/// Corruption, naming file and block; Device.
pub fn survivors(
    device: &Device,
    ws: &mut Workspace,
    plan: &Plan,
    slice: &Slice,
    inputs: &[InputTable],
    input: &Input<'_>,
    marks: &mut Marks,
) -> Result<Survivors> {
    let decoded = decode(device, ws, inputs, input, marks)?;
    let (trimmed, entries_by_run) = trim(device, ws, slice, &decoded)?;
    let input_totals = sum_input(device, ws, &decoded.args, &trimmed)?;
    let table = device.table();
    let (a, b) = (ws.keys.as_ptr(), ws.other_keys.as_ptr());
    let key_bytes = decoded.key_bytes();
    let mut merged = ptr::null_mut();
    // SAFETY: `trimmed` holds two ends for each run, all within the `n` keys that both buffers hold.
    let code = unsafe {
        (table.merge_runs)(
            &ws.exec(),
            &raw const key_bytes,
            a,
            b,
            trimmed.as_ptr(),
            entries_by_run.len() as u32,
            &raw mut merged,
        )
    };
    device.check(code, "merge")?;
    let n = entries_by_run.iter().sum::<u64>() as usize;
    let spare_keys = if merged == a { b } else { a };
    let rounds = entries_by_run.len().next_power_of_two().ilog2().max(1);
    let merged_bytes = u64::from(rounds) * 2 * (n * size_of::<Key>()) as u64;
    marks.end(device, &ws.stream, "merge", merged_bytes)?;
    let one_by_one = input_totals.single_deletes > 0 || plan.rules.snapshots.first() == Some(&0);
    let merged_keys = Merged {
        keys: merged,
        key_bytes,
        len: n,
        one_by_one,
    };
    let totals = retain(device, ws, plan, &merged_keys, spare_keys)?;
    marks.end(
        device,
        &ws.stream,
        "retain",
        (n * 3 * size_of::<Key>()) as u64,
    )?;
    Ok(Survivors {
        keys: spare_keys,
        spare_keys: merged,
        len: totals.kept as usize,
        input: input_totals,
        totals,
        entries_by_run,
        wide: !decoded.args.key_at.is_null(),
    })
}

/// The entries of each run that lie in the slice: two ends a run, and how many that are.
fn trim(
    device: &Device,
    ws: &mut Workspace,
    slice: &Slice,
    decoded: &Decoded,
) -> Result<(Vec<u32>, Vec<u64>)> {
    let num_runs = decoded.run_starts.len() - 1;
    let range = [&slice.range.begin, &slice.range.end].map(Option::as_deref);
    let [begin, end] = UserKeys::bounds(range, &mut ws.bound_bytes, &ws.stream)?;
    let run_starts = ws.run_starts.upload(&decoded.run_starts, &ws.stream)?;
    let trimmed = ws.trimmed.room(2 * num_runs)?;
    // SAFETY: `run_starts` holds the runs' ends, `trimmed` has room for two ends each.
    let code = unsafe {
        (device.table().trim_runs)(
            &ws.exec(),
            &raw const decoded.args,
            run_starts,
            num_runs as u32,
            &raw const begin,
            &raw const end,
            trimmed,
        )
    };
    device.check(code, "find the slice's keys")?;
    let trimmed = ws.trimmed.download(0, 2 * num_runs, &ws.stream)?;
    // A range whose end lies before its begin holds nothing.
    let entries = trimmed
        .chunks_exact(2)
        .map(|ends| u64::from(ends[1].saturating_sub(ends[0])))
        .collect();
    Ok((trimmed, entries))
}

/// Sums over the entries in the order of the runs, to be compared with what is left after merging.
fn sum_input(
    device: &Device,
    ws: &mut Workspace,
    args: &DecodeArgs,
    trimmed: &[u32],
) -> Result<InputTotals> {
    let totals = ws
        .input_totals
        .upload(&[InputTotals::default()], &ws.stream)?;
    for run in trimmed.chunks_exact(2) {
        let (first, end) = (u64::from(run[0]), u64::from(run[1]));
        // SAFETY: the run lies within the entries that were decoded.
        let code = unsafe { (device.table().sum_input)(&ws.exec(), args, first, end, totals) };
        device.check(code, "sum the input")?;
    }
    Ok(ws.input_totals.download(0, 1, &ws.stream)?[0])
}
