//! Decode, merge, retain: from an arena of blocks to survivors, all of it on the device.

use std::ptr;

use rockmill_core::{DeclineReason, Error, ErrorKind, InputTable, Plan, Result, Slice};

use crate::buffer::DeviceBuffer;
use crate::device::Device;
use crate::ffi::{DecodeArgs, InputTotals, Key, KeyBytes, RetainArgs, RetainRules, RetainTotals};
use crate::input::Input;
use crate::limits::{self, KEY_PADDING, UserKeys, refused};
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
const ERROR_SINGLE_DELETE: u64 = 10;

/// User keys up to this length stand in their records (`types.hpp:WORD_KEY_BYTES`).
pub const WORD_KEY_BYTES: u64 = 16;

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

/// What a block's error code means. The CPU backend looks again, so that what only might be damage is
/// refused here.
fn error_of(code: u64, block: usize, input: &Input<'_>, inputs: &[InputTable]) -> Error {
    let (file, offset) = input.place(inputs, block);
    let error = match code {
        ERROR_CHECKSUM => Error::new(ErrorKind::Corruption, "block checksum mismatch"),
        ERROR_ORDER => Error::new(ErrorKind::Corruption, "keys out of order"),
        ERROR_COMPRESSED => refused("compressed blocks"),
        ERROR_KEY_LENGTH => refused("keys so long, or damaged ones"),
        ERROR_VALUE_TYPE => refused("entries that are neither Put nor a kind of Delete"),
        _ => refused("blocks of another layout, or damaged ones"),
    };
    Error {
        offset: Some(offset),
        ..error.in_file(file)
    }
}

/// Where the longest user key is noted.
pub fn longest_key(ws: &Workspace) -> *mut u64 {
    ws.errors.as_ptr().cast::<u64>().wrapping_add(1)
}

/// Where the bytes of keys begin.
pub fn key_memory(ws: &Workspace) -> *mut u8 {
    ws.key_bytes.as_ptr().wrapping_add(KEY_PADDING)
}

/// Clears the error word and the length of the longest key.
pub fn clear_errors(ws: &mut Workspace) -> Result<()> {
    ws.errors.upload(&[[NO_ERROR, 0]], &ws.stream).map(drop)
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
    let [word, _] = ws.errors.download(0, 1, &ws.stream)?[0];
    Ok(error_in(word))
}

/// Reads `len` values from the start of a buffer, and the error word with them.
pub fn download_checked<T: Copy + Default>(
    ws: &Workspace,
    buffer: &DeviceBuffer<T>,
    len: usize,
) -> Result<(Vec<T>, Option<FirstError>)> {
    let (values, [word, _]) = buffer.download_with(0, len, &ws.errors, &ws.stream)?;
    Ok((values, error_in(word)))
}

fn error_in(word: u64) -> Option<FirstError> {
    (word != NO_ERROR).then_some(FirstError {
        at: (word >> 8) as usize,
        code: word & 0xff,
    })
}

/// Room for the bytes of the internal keys of `entries`, cleared, and for where each begins.
fn room_for_keys(ws: &mut Workspace, bytes: usize, entries: usize) -> Result<(*mut u8, *mut u64)> {
    let padded = bytes.saturating_add(2 * KEY_PADDING);
    ws.key_bytes.room(padded)?;
    // Words are read whole while lanes beside are still writing.
    ws.key_bytes.fill(0, padded, 0, &ws.stream)?;
    Ok((key_memory(ws), ws.key_at.room(entries)?))
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

/// What decoding leaves.
struct Decoded {
    args: DecodeArgs,
    /// Start of each run among the entries, and the end of the last.
    run_starts: Vec<u32>,
}

impl Decoded {
    fn key_bytes(&self) -> KeyBytes {
        KeyBytes {
            bytes: self.args.key_bytes,
            at: self.args.key_at,
        }
    }
}

fn decode(
    device: &Device,
    ws: &mut Workspace,
    inputs: &[InputTable],
    input: &Input<'_>,
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
        counts: ws.counts.room(num_blocks + 1)?,
        starts: ws.starts.room(num_blocks + 1)?,
        key_sums: ws.key_sums.room(num_blocks + 1)?,
        key_starts: ws.key_starts.room(num_blocks + 1)?,
        longest: longest_key(ws),
        keys: ptr::null_mut(),
        values: ptr::null_mut(),
        hashes: ptr::null_mut(),
        key_bytes: ptr::null_mut(),
        key_at: ptr::null_mut(),
        errors: ws.errors.as_ptr().cast(),
    };
    // What stands behind the last block's.
    ws.counts.fill(num_blocks, 1, 0, &ws.stream)?;
    ws.key_sums.fill(num_blocks, 1, 0, &ws.stream)?;
    // SAFETY: the arena holds all blocks with padding around them, and counts and starts have room for
    // one more than there are blocks.
    let code = unsafe { (table.check_blocks)(&ws.exec(), &raw const args) };
    device.check(code, "verify checksums")?;
    marks.end(device, &ws.stream, "verify checksums", input.bytes)?;
    // SAFETY: as above.
    let code = unsafe { (table.count_entries)(&ws.exec(), &raw const args) };
    device.check(code, "count entries")?;
    let (starts, [word, longest]) =
        (ws.starts).download_with(0, num_blocks + 1, &ws.errors, &ws.stream)?;
    if let Some(FirstError { at, code }) = error_in(word) {
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
    if longest > WORD_KEY_BYTES {
        let bytes = ws.key_starts.download(num_blocks, 1, &ws.stream)?[0] as usize;
        (args.key_bytes, args.key_at) = room_for_keys(ws, bytes, n)?;
    }
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

/// Entries in one order.
struct Merged {
    keys: *mut Key,
    key_bytes: KeyBytes,
    len: usize,
    /// Whether user keys are to be gone through one by one.
    one_by_one: bool,
}

fn retain(
    device: &Device,
    ws: &mut Workspace,
    plan: &Plan,
    merged: &Merged,
    survivors: *mut Key,
) -> Result<RetainTotals> {
    let (rules, n) = (&plan.rules, merged.len);
    let beneath = limits::beneath(&rules.beneath);
    if n == 0 {
        return Ok(RetainTotals::default());
    }
    let spans = beneath
        .spans
        .upload(&mut ws.beneath, &mut ws.beneath_bytes, &ws.stream)?;
    let args = RetainArgs {
        keys: merged.keys,
        n: n as u64,
        key_bytes: merged.key_bytes,
        values: ws.values.as_ptr(),
        hashes: ws.hashes.as_ptr(),
        rules: RetainRules {
            snapshots: ws.snapshots.upload(&rules.snapshots, &ws.stream)?,
            num_snapshots: rules.snapshots.len() as u64,
            earliest: rules.earliest(),
            beneath: spans,
            level_ends: ws.level_ends.upload(&beneath.level_ends, &ws.stream)?,
            num_levels: beneath.level_ends.len() as u32,
            bottommost: u32::from(rules.bottommost),
            beneath_unknown: u32::from(beneath.unknown),
            enforce_single_delete: u32::from(rules.enforce_single_del_contracts),
        },
        heads: ws.heads.room(n)?,
        has_older: ws.has_older.room(n)?,
        keep: ws.keep.room(n)?,
        places: ws.places.room(n)?,
        survivors,
        totals: ws.totals.room(1)?,
        errors: ws.errors.as_ptr().cast(),
        one_by_one: u32::from(merged.one_by_one),
        unused: 0,
    };
    ws.has_older.fill(0, n, 0, &ws.stream)?;
    ws.totals.fill(0, 1, 0, &ws.stream)?;
    // SAFETY: all buffers have room for n entries; keys name entries whose values and hashes were decoded.
    let code = unsafe { (device.table().retain)(&ws.exec(), &raw const args) };
    device.check(code, "retain")?;
    let totals = ws.totals.download(0, 1, &ws.stream)?[0];
    match merged.one_by_one.then(|| first_error(ws)).transpose()? {
        Some(Some(FirstError { code, .. })) if code == ERROR_SINGLE_DELETE => Err(Error::declined(
            DeclineReason::SingleDeleteContract,
            "a SingleDelete and a Delete of the same key",
        )),
        _ => Ok(totals),
    }
}
