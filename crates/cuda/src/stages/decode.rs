//! Entries of all blocks in the arena: checksums, counts, keys and values, order.

use std::ptr;

use rockmill_core::{Error, ErrorKind, InputTable, Result};

use super::errors::{FirstError, clear_errors, error_in, first_error, longest_key};
use crate::device::Device;
use crate::ffi::{DecodeArgs, Key, KeyBytes, ValueRef};
use crate::input::Input;
use crate::limits::{KEY_PADDING, refused};
use crate::timing::Marks;
use crate::workspace::Workspace;

/// Error codes of `types.hpp`.
const ERROR_CHECKSUM: u64 = 1;
const ERROR_COMPRESSED: u64 = 2;
const ERROR_KEY_LENGTH: u64 = 5;
const ERROR_VALUE_TYPE: u64 = 6;
const ERROR_ORDER: u64 = 7;

/// User keys up to this length stand in their records (`types.hpp:WORD_KEY_BYTES`).
pub const WORD_KEY_BYTES: u64 = 16;

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

/// Where the bytes of keys begin.
pub fn key_memory(ws: &Workspace) -> *mut u8 {
    ws.key_bytes.as_ptr().wrapping_add(KEY_PADDING)
}

/// Room for the bytes of the internal keys of `entries`, cleared, and for where each begins.
fn room_for_keys(ws: &mut Workspace, bytes: usize, entries: usize) -> Result<(*mut u8, *mut u64)> {
    let padded = bytes.saturating_add(2 * KEY_PADDING);
    ws.key_bytes.room(padded)?;
    // Words are read whole while lanes beside are still writing.
    ws.key_bytes.fill(0, padded, 0, &ws.stream)?;
    Ok((key_memory(ws), ws.key_at.room(entries)?))
}

/// What decoding leaves.
pub(super) struct Decoded {
    pub(super) args: DecodeArgs,
    /// Start of each run among the entries, and the end of the last.
    pub(super) run_starts: Vec<u32>,
}

impl Decoded {
    pub(super) fn key_bytes(&self) -> KeyBytes {
        KeyBytes {
            bytes: self.args.key_bytes,
            at: self.args.key_at,
        }
    }
}

pub(super) fn decode(
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
    let entry_bytes = size_of::<Key>() + size_of::<ValueRef>();
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
