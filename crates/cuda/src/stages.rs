//! Decode, merge, retain: from an arena of blocks to survivors, all of it on the device.

use rockmill_core::{Error, ErrorKind, InputTable, Plan, Result, Slice};

use crate::device::Device;
use crate::ffi::{DecodeArgs, InputTotals, Key, RetainArgs, RetainRules, RetainTotals};
use crate::input::Input;
use crate::limits::{self, refused};
use crate::timing::Marks;
use crate::workspace::Workspace;

/// `types.hpp:NO_ERROR`.
const NO_ERROR: u64 = u64::MAX;

/// Error codes of `types.hpp`.
const ERROR_CHECKSUM: u64 = 1;
const ERROR_COMPRESSED: u64 = 2;
const ERROR_KEY_LENGTH: u64 = 5;
const ERROR_VALUE_TYPE: u64 = 6;
const ERROR_ORDER: u64 = 7;

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
    /// Length of all user keys.
    pub key_bytes: u32,
}

/// What a block's error code means. The CPU backend looks again, so that what only might be damage is
/// refused here.
fn error_of(code: u64, block: usize, input: &Input<'_>, inputs: &[InputTable]) -> Error {
    let (file, offset) = input.place(inputs, block);
    let error = match code {
        ERROR_CHECKSUM => Error::new(ErrorKind::Corruption, "block checksum mismatch"),
        ERROR_ORDER => Error::new(ErrorKind::Corruption, "keys out of order"),
        ERROR_COMPRESSED => refused("compressed blocks"),
        ERROR_KEY_LENGTH => refused("keys of several lengths, or damaged ones"),
        ERROR_VALUE_TYPE => refused("entries that are neither Put nor Delete"),
        _ => refused("blocks of another layout, or damaged ones"),
    };
    Error {
        offset: Some(offset),
        ..error.in_file(file)
    }
}

/// Clears the error word.
pub fn clear_errors(ws: &Workspace) -> Result<()> {
    ws.errors.fill(0, 1, 0xff, &ws.stream)
}

/// The first of the errors that kernels have met.
#[derive(Debug, Clone, Copy)]
pub struct FirstError {
    /// Block, or entry for an error of order.
    pub at: usize,
    /// `types.hpp:ErrorCode`.
    pub code: u64,
}

/// Reads the error word, having waited for the stages before.
pub fn first_error(ws: &Workspace) -> Result<Option<FirstError>> {
    let word = ws.errors.download(0, 1, &ws.stream)?[0];
    Ok((word != NO_ERROR).then_some(FirstError {
        at: (word >> 8) as usize,
        code: word & 0xff,
    }))
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
    let key_bytes = limits::key_bytes(plan, inputs)?;
    let decoded = decode(device, ws, inputs, input, key_bytes, marks)?;
    let (trimmed, entries_by_run) = trim(device, ws, slice, &decoded)?;
    let input_totals = sum_input(device, ws, &decoded.args, &trimmed)?;
    let table = device.table();
    let (a, b) = (ws.keys.as_ptr(), ws.other_keys.as_ptr());
    let mut merged = std::ptr::null_mut();
    // SAFETY: `trimmed` holds two ends for each run, all within the `n` keys that both buffers hold.
    let code = unsafe {
        (table.merge_runs)(
            &ws.exec(),
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
    let totals = retain(device, ws, plan, key_bytes, (merged, spare_keys), n)?;
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
        key_bytes,
    })
}

/// What decoding leaves.
struct Decoded {
    args: DecodeArgs,
    /// Start of each run among the entries, and the end of the last.
    run_starts: Vec<u32>,
}

fn decode(
    device: &Device,
    ws: &mut Workspace,
    inputs: &[InputTable],
    input: &Input<'_>,
    key_bytes: u32,
    marks: &mut Marks,
) -> Result<Decoded> {
    let table = device.table();
    let num_blocks = input.blocks.len();
    clear_errors(ws)?;
    // Words at the ends of a range are read whole.
    for gap in &input.gaps {
        let len = (gap.end - gap.start) as usize;
        ws.arena.fill(gap.start as usize, len, 0, &ws.stream)?;
    }
    ws.make_scratch(device, num_blocks + 1)?;
    let mut args = DecodeArgs {
        arena: ws.arena.as_ptr(),
        blocks: ws.blocks.upload(&input.blocks, &ws.stream)?,
        num_blocks: num_blocks as u64,
        key_bytes,
        unused: 0,
        counts: ws.counts.room(num_blocks + 1)?,
        starts: ws.starts.room(num_blocks + 1)?,
        keys: std::ptr::null_mut(),
        values: std::ptr::null_mut(),
        hashes: std::ptr::null_mut(),
        errors: ws.errors.as_ptr(),
    };
    // The count behind the last block's.
    ws.counts.fill(num_blocks, 1, 0, &ws.stream)?;
    // SAFETY: the arena holds all blocks with padding around them, and counts and starts have room for
    // one more than there are blocks.
    let code = unsafe { (table.check_blocks)(&ws.exec(), &raw const args) };
    device.check(code, "verify checksums")?;
    marks.end(device, &ws.stream, "verify checksums", input.bytes)?;
    // SAFETY: as above.
    let code = unsafe { (table.count_entries)(&ws.exec(), &raw const args) };
    device.check(code, "count entries")?;
    let starts = ws.starts.download(0, num_blocks + 1, &ws.stream)?;
    if let Some(FirstError { at, code }) = first_error(ws)? {
        return Err(error_of(code, at, input, inputs));
    }
    let n = starts[num_blocks] as usize;
    // A count that went round 2^32 shows in the order of starts: no block has so many entries alone.
    if starts.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(refused("so many entries in one slice"));
    }
    marks.end(device, &ws.stream, "count entries", input.bytes)?;
    ws.make_scratch(device, n + 1)?;
    ws.other_keys.room(n)?;
    args.keys = ws.keys.room(n)?;
    args.values = ws.values.room(n)?;
    args.hashes = ws.hashes.room(n)?;
    // SAFETY: keys, values and hashes have room for as many entries as were counted.
    let code = unsafe { (table.decode_entries)(&ws.exec(), &raw const args) };
    device.check(code, "decode")?;
    let entry_bytes = size_of::<Key>() + size_of::<crate::ffi::ValueRef>();
    let decoded_bytes = input.bytes + (n * entry_bytes) as u64;
    marks.end(device, &ws.stream, "decode", decoded_bytes)?;
    // SAFETY: as above.
    let code = unsafe { (table.hash_entries)(&ws.exec(), &raw const args, n as u64) };
    device.check(code, "hash entries")?;
    marks.end(device, &ws.stream, "hash entries", decoded_bytes)?;
    let ends = input.runs.iter().map(|&(_, end)| starts[end]);
    let run_starts: Vec<u32> = std::iter::once(0).chain(ends).collect();
    for run in run_starts.windows(2) {
        let (first, end) = (u64::from(run[0]), u64::from(run[1]));
        // SAFETY: the run lies within the entries.
        let code = unsafe { (table.check_order)(&ws.exec(), &raw const args, first, end) };
        device.check(code, "check the order of keys")?;
    }
    if let Some(FirstError { at, code }) = first_error(ws)? {
        let block = match code {
            ERROR_ORDER => starts.partition_point(|&start| start as usize <= at) - 1,
            _ => at,
        };
        return Err(error_of(code, block.min(num_blocks - 1), input, inputs));
    }
    marks.end(
        device,
        &ws.stream,
        "check order",
        (n * size_of::<Key>()) as u64,
    )?;
    Ok(Decoded { args, run_starts })
}

/// The entries of each run that lie in the slice: two ends a run, and how many that are.
fn trim(
    device: &Device,
    ws: &mut Workspace,
    slice: &Slice,
    decoded: &Decoded,
) -> Result<(Vec<u32>, Vec<u64>)> {
    let num_runs = decoded.run_starts.len() - 1;
    let (begin, end) = limits::bounds(&slice.range)?;
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

fn retain(
    device: &Device,
    ws: &mut Workspace,
    plan: &Plan,
    key_bytes: u32,
    (keys, survivors): (*mut Key, *mut Key),
    n: usize,
) -> Result<RetainTotals> {
    let rules = &plan.rules;
    let beneath = limits::beneath(&rules.beneath, key_bytes)?;
    let num_levels = beneath.level_ends.len() as u32;
    if n == 0 {
        return Ok(RetainTotals::default());
    }
    let args = RetainArgs {
        keys,
        n: n as u64,
        hashes: ws.hashes.as_ptr(),
        rules: RetainRules {
            snapshots: ws.snapshots.upload(&rules.snapshots, &ws.stream)?,
            num_snapshots: rules.snapshots.len() as u64,
            earliest: rules.earliest(),
            beneath: ws.beneath.upload(&beneath.spans, &ws.stream)?,
            level_ends: ws.level_ends.upload(&beneath.level_ends, &ws.stream)?,
            num_levels,
            bottommost: u32::from(rules.bottommost),
            beneath_unknown: u32::from(beneath.unknown),
            unused: 0,
        },
        heads: ws.heads.room(n)?,
        has_older: ws.has_older.room(n)?,
        keep: ws.keep.room(n)?,
        places: ws.places.room(n)?,
        survivors,
        totals: ws.totals.room(1)?,
    };
    ws.has_older.fill(0, n, 0, &ws.stream)?;
    ws.totals.fill(0, 1, 0, &ws.stream)?;
    // SAFETY: all buffers have room for n entries; keys name entries whose values and hashes were decoded.
    let code = unsafe { (device.table().retain)(&ws.exec(), &raw const args) };
    device.check(code, "retain")?;
    Ok(ws.totals.download(0, 1, &ws.stream)?[0])
}
