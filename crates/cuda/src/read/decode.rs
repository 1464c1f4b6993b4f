//! Entries of all blocks in the arena: checksums, counts, keys and values, order.

use std::ops::Range;
use std::ptr;

use rockmill_core::{Error, ErrorKind, Request, Result, Visibility};
use rockmill_format::key::ValueType;

use super::errors::{FirstError, clear_errors, error_in, first_error, longest_key};
use super::groups::{Places, keep, place};
use super::input::{Input, PADDING};
use super::keys::{KEY_PADDING, WORD_KEY_BYTES};
use super::state::ReadState;
use crate::cache::FileCache;
use crate::driver::ffi::{
    DecodeArgs, DecompressArgs, ERROR_CHECKSUM, ERROR_COMPRESSED, ERROR_KEY_LENGTH, ERROR_ORDER,
    ERROR_SEQUENCE, ERROR_VALUE_TYPE, Key, KeyBytes, ValueRef,
};
use crate::driver::{altered, refused};
use crate::scan::Returned;

const TIMED_PUT: u8 = ValueType::ValuePreferredSeqno as u8;

/// Types of entries that a device compacts, and all types, one bit each. Timed puts may become Puts, which only the CPU
/// implements.
const COMPACTED_TYPES: u32 = types(true);
/// The type of merge operands, which are compacted if there is a merge function.
const OPERANDS: u32 = 1 << ValueType::Merge as u8;
const ALL_TYPES: u32 = types(false);

const fn types(compacted: bool) -> u32 {
    let (mut types, mut code) = (0, 0);
    while code < u32::BITS as u8 {
        if let Some(kind) = ValueType::from_code(code)
            && (!compacted || (kind.compacts_alone() && kind as u8 != TIMED_PUT))
        {
            types |= 1 << code;
        }
        code += 1;
    }
    types
}

/// Types of entries that a request accepts, one bit each.
pub fn compacted_types(visibility: Visibility<'_>) -> u32 {
    match visibility {
        Visibility::Compaction(rules) if rules.merging.is_some() => COMPACTED_TYPES | OPERANDS,
        Visibility::Compaction(_) | Visibility::Snapshot(_) => COMPACTED_TYPES,
    }
}

/// The error of a block's error code. The CPU backend checks again, so possible damage does not blame the file here.
fn error_of(code: u32, block: usize, input: &Input<'_>, request: &Request<'_>) -> Error {
    let (file, offset) = input.place(request.tables, block);
    let corrupt = |what| Error::new(ErrorKind::Corruption, what);
    let unread = |what| Error::new(ErrorKind::Device, what);
    let takes_all = matches!(request.visibility, Visibility::Snapshot(_));
    let error = match code {
        ERROR_CHECKSUM => corrupt("block checksum mismatch"),
        ERROR_ORDER => corrupt("keys out of order"),
        ERROR_COMPRESSED => {
            unread("the GPU cannot read blocks of this compression, or they are damaged")
        }
        ERROR_KEY_LENGTH => unread("the GPU cannot read keys of this length, or they are damaged"),
        ERROR_SEQUENCE => corrupt("a sequence number beside that of the whole table"),
        ERROR_VALUE_TYPE if takes_all => corrupt("unknown value type"),
        ERROR_VALUE_TYPE => refused("timed puts, merge operands or references to blobs"),
        _ => unread("the GPU cannot read blocks of this layout, or they are damaged"),
    };
    Error {
        offset: Some(offset),
        ..error.in_file(file)
    }
}

/// Room for the bytes of the internal keys of `entries`, cleared, and for their offsets.
fn room_for_keys(
    read: &mut ReadState,
    bytes: usize,
    entries: usize,
) -> Result<(*mut u8, *mut u64)> {
    let padded = bytes.saturating_add(2 * KEY_PADDING);
    read.buffers.key_bytes.room(padded)?;
    // Words are read whole while neighbouring lanes are still writing.
    read.buffers.key_bytes.fill(0, padded, 0, &read.ws.stream)?;
    Ok((read.key_memory(), read.buffers.key_at.room(entries)?))
}

/// The results of decoding.
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

/// Decodes the blocks that `input` has copied into the arena, and places the entries of its groups among theirs. New groups
/// are kept in `cache`.
///
/// # Errors
/// Corruption, naming file and block; Device.
pub(super) fn decode(
    read: &mut ReadState,
    request: &Request<'_>,
    input: &Input<'_>,
    cache: Option<&FileCache>,
) -> Result<Decoded> {
    let named = |FirstError { at, code }| error_of(code, at, input, request);
    let mut args = upload_blocks(read, request, input)?;
    let bytes = if input.is_compressed {
        decompress(read, &mut args, input.bytes)?.map_err(named)?
    } else {
        check_blocks(read, &args, input.bytes)?;
        input.bytes
    };
    read.arena_end = match input.is_compressed {
        true => bytes + 2 * PADDING,
        false => input.arena_bytes,
    };
    let counted = count(read, &args, bytes)?;
    let (starts, longest) = counted.map_err(named)?;
    // A count that exceeded 2^32 shows in the order of starts, because no single block has 2^32 entries.
    let places = Places::of(input, &starts);
    let places = places.ok_or_else(|| refused("this number of entries in one task"))?;
    let entries = places.blocks.last().map_or(0, |&n| n as usize);
    let has_groups = !input.used.is_empty() || !input.new_groups.is_empty();
    let is_wide = longest > WORD_KEY_BYTES || (input.has_wide_groups && has_groups);
    if is_wide && !input.has_wide_groups && !input.used.is_empty() {
        let what = "longer keys than the properties of tables say";
        return Err(Error::new(ErrorKind::Corruption, what));
    }
    if has_groups && !input.blocks.is_empty() {
        // A wrong number of entries would stay in the cache.
        let mut returned = Returned::new(read)?;
        returned.values(read, &read.buffers.starts, &starts)?;
        returned.check(read)?;
    }
    make_room(read, &mut args, entries, is_wide)?;
    if !input.used.is_empty() {
        (read.buffers.starts).write(0, &places.blocks, &read.ws.stream)?;
    }
    decode_entries(read, &args, &places.decoded(&starts), bytes)?;
    place(read, &input.used, &places.groups)?;
    check_order(read, &args, &places.runs)?;
    if let Some(FirstError { at, code }) = first_error(&read.ws)? {
        let block = match code {
            ERROR_ORDER => {
                (places.blocks.partition_point(|&start| start as usize <= at)).max(1) - 1
            }
            _ => at,
        };
        let mut decoded = places.decoded(&starts).into_iter();
        let is_cached = code == ERROR_ORDER && !decoded.any(|stretch| stretch.contains(&at));
        let last = input.blocks.len().checked_sub(1).filter(|_| !is_cached);
        let last = last.ok_or_else(|| altered("cached keys are out of order"))?;
        let at = block.min(last);
        return Err(named(FirstError { at, code }));
    }
    read.mark("check order", (entries * size_of::<Key>()) as u64)?;
    if let Some(cache) = cache
        && !input.new_groups.is_empty()
        && is_wide == input.has_wide_groups
    {
        // The task needs no cache, and a device that has failed fails again.
        let _ = keep(read, cache, input, &places, &starts);
        read.mark("keep columns", bytes)?;
    }
    Ok(Decoded {
        args,
        run_starts: places.runs,
    })
}

/// Copies the places of blocks to the device, and makes room for their counts.
fn upload_blocks(
    read: &mut ReadState,
    request: &Request<'_>,
    input: &Input<'_>,
) -> Result<DecodeArgs> {
    let num_blocks = input.blocks.len();
    clear_errors(&mut read.ws)?;
    read.ws.make_scratch(&read.device, num_blocks + 1)?;
    let errors = read.ws.errors.as_ptr().cast();
    let (longest, stream) = (longest_key(&read.ws), &read.ws.stream);
    let buffers = &mut read.buffers;
    // Words at the ends of a range are read whole.
    for gap in &input.gaps {
        let len = (gap.end - gap.start) as usize;
        buffers.arena.fill(gap.start as usize, len, 0, stream)?;
    }
    let args = DecodeArgs {
        arena: buffers.arena.as_ptr(),
        blocks: buffers.blocks.upload(&input.blocks, stream)?,
        num_blocks: num_blocks as u64,
        counts: buffers.counts.room(num_blocks + 1)?,
        starts: buffers.starts.room(num_blocks + 1)?,
        key_sums: buffers.key_sums.room(num_blocks + 1)?,
        key_starts: buffers.key_starts.room(num_blocks + 1)?,
        longest,
        keys: ptr::null_mut(),
        values: ptr::null_mut(),
        hashes: ptr::null_mut(),
        key_bytes: ptr::null_mut(),
        key_at: ptr::null_mut(),
        errors,
        types: match request.visibility {
            Visibility::Compaction(_) => compacted_types(request.visibility),
            Visibility::Snapshot(_) => ALL_TYPES,
        },
        unused: 0,
    };
    // The counter behind the last block's.
    buffers.counts.fill(num_blocks, 1, 0, stream)?;
    buffers.key_sums.fill(num_blocks, 1, 0, stream)?;
    Ok(args)
}

/// Verifies the blocks' checksums on the device.
fn check_blocks(read: &mut ReadState, args: &DecodeArgs, bytes: u64) -> Result<()> {
    // SAFETY: the arena has all blocks with padding around them.
    unsafe { read.ws.stages().check_blocks(args) }?;
    read.mark("verify checksums", bytes)
}

/// Verifies the blocks' checksums and decompresses them into the arena. Returns their total size.
fn decompress(
    read: &mut ReadState,
    args: &mut DecodeArgs,
    stored_bytes: u64,
) -> Result<std::result::Result<u64, FirstError>> {
    check_blocks(read, args, stored_bytes)?;
    let num_blocks = args.num_blocks as usize;
    let buffers = &mut read.buffers;
    let mut work = DecompressArgs {
        from: args.arena,
        blocks: args.blocks.cast_mut(),
        num_blocks: args.num_blocks,
        sizes: buffers.raw_sizes.room(num_blocks + 1)?,
        offsets: buffers.raw_offsets.room(num_blocks + 1)?,
        to: ptr::null_mut(),
        errors: args.errors,
    };
    buffers.raw_sizes.fill(num_blocks, 1, 0, &read.ws.stream)?;
    // SAFETY: the blocks lie in the arena with their trailers; sizes and offsets have room for one more than the number
    // of blocks.
    unsafe { read.ws.stages().measure_raw(&work) }?;
    let (total, [word, _]) =
        (buffers.raw_offsets).download_with(num_blocks, 1, &read.ws.errors, &read.ws.stream)?;
    if let Some(error) = error_in(word) {
        return Ok(Err(error));
    }
    let bytes = total[0] as usize;
    work.to = buffers
        .other_arena
        .room(bytes.saturating_add(2 * PADDING as usize + read.made_bytes))?;
    for gap in [0, PADDING as usize + bytes] {
        buffers
            .other_arena
            .fill(gap, PADDING as usize, 0, &read.ws.stream)?;
    }
    // SAFETY: there is room for all blocks of the measured sizes, with padding around them.
    unsafe { read.ws.stages().decompress(&work) }?;
    args.arena = work.to;
    std::mem::swap(&mut buffers.arena, &mut buffers.other_arena);
    read.mark("decompress", stored_bytes + bytes as u64)?;
    Ok(Ok(bytes as u64))
}

/// The first entry of each block, followed by the total, and the length of the longest user key.
type Counted = (Vec<u32>, u64);

/// Counts entries.
fn count(
    read: &mut ReadState,
    args: &DecodeArgs,
    bytes: u64,
) -> Result<std::result::Result<Counted, FirstError>> {
    // SAFETY: the arena has all blocks with padding around them, and counts and starts have room for one more than the
    // number of blocks.
    unsafe { read.ws.stages().count_entries(args) }?;
    let len = args.num_blocks as usize + 1;
    let starts = &read.buffers.starts;
    let (starts, [word, longest]) =
        starts.download_with(0, len, &read.ws.errors, &read.ws.stream)?;
    read.mark("count entries", bytes)?;
    Ok(match error_in(word) {
        Some(error) => Err(error),
        None => Ok((starts, longest)),
    })
}

/// Makes room for `entries`; in a wide task also for the bytes of decoded keys.
fn make_room(
    read: &mut ReadState,
    args: &mut DecodeArgs,
    entries: usize,
    is_wide: bool,
) -> Result<()> {
    read.ws.make_scratch(&read.device, entries + 1)?;
    let buffers = &mut read.buffers;
    buffers.other_keys.room(entries)?;
    args.keys = buffers.keys.room(entries)?;
    args.values = buffers.values.room(entries)?;
    args.hashes = buffers.hashes.room(entries)?;
    if is_wide {
        let last = args.num_blocks as usize;
        let bytes = buffers.key_starts.download(last, 1, &read.ws.stream)?[0];
        (args.key_bytes, args.key_at) = room_for_keys(read, bytes as usize, entries)?;
    }
    Ok(())
}

/// Decodes the counted entries, and hashes them. `stretches` are the places of these.
fn decode_entries(
    read: &mut ReadState,
    args: &DecodeArgs,
    stretches: &[Range<usize>],
    bytes: u64,
) -> Result<()> {
    let entries: usize = stretches.iter().map(Range::len).sum();
    // SAFETY: keys, values and hashes have room for the counted entries.
    unsafe { read.ws.stages().decode_entries(args) }?;
    let entry_bytes = size_of::<Key>() + size_of::<ValueRef>();
    let decoded_bytes = bytes + (entries * entry_bytes) as u64;
    read.mark("decode", decoded_bytes)?;
    for stretch in stretches {
        let args = DecodeArgs {
            keys: args.keys.wrapping_add(stretch.start),
            values: args.values.wrapping_add(stretch.start),
            hashes: args.hashes.wrapping_add(stretch.start),
            ..*args
        };
        // SAFETY: as above.
        unsafe { (read.ws.stages()).hash_entries(&args, stretch.len() as u64) }?;
    }
    read.mark("hash entries", decoded_bytes)
}

/// Checks the order of keys in each run on the device.
fn check_order(read: &ReadState, args: &DecodeArgs, run_starts: &[u32]) -> Result<()> {
    for run in run_starts.windows(2) {
        let (first, end) = (u64::from(run[0]), u64::from(run[1]));
        // SAFETY: the run lies within the entries.
        unsafe { read.ws.stages().check_order(args, first, end) }?;
    }
    Ok(())
}
