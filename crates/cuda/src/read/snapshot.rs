//! The entries that a snapshot sees.

use rockmill_core::{Error, Fragments, KeyRange, NeedsMerge, Result, SnapshotRules, Tombstones};
use rockmill_format::key::{ValueType, tag_type};

use super::errors::{FirstError, download_checked};
use super::fragments::{OnDevice, room_for_cover, upload};
use super::state::{Merged, ReadState, Side};
use crate::driver::altered;
use crate::driver::ffi::{self, ERROR_UNDECIDED, RetainTotals, SnapshotArgs};

/// Finds the entries of `merged` that the snapshot sees, and returns their side: the same one if it sees all of them.
///
/// # Errors
/// Declined for an entry that does not determine the value alone, if that is an error; Device.
pub(super) fn see(
    read: &mut ReadState,
    rules: &SnapshotRules<'_>,
    range: &KeyRange,
    merged: &Merged,
) -> Result<(RetainTotals, Side)> {
    let n = merged.len;
    if n == 0 {
        return Ok((RetainTotals::default(), merged.side));
    }
    let none = Fragments::default();
    let OnDevice {
        fragments,
        sequences,
        len: num_fragments,
    } = upload(read, rules.deleted.unwrap_or(&none), range)?;
    let (fragment_places, cover) = room_for_cover(read, num_fragments, n)?;
    let args = SnapshotArgs {
        keys: read.buffers.keys_on(merged.side).as_ptr(),
        n: n as u64,
        key_bytes: merged.key_bytes,
        hashes: read.buffers.hashes.as_ptr(),
        rules: ffi::SnapshotRules {
            sequence: rules.sequence,
            keep_tombstones: u32::from(rules.tombstones == Tombstones::Keep),
            mark_needs_merge: u32::from(rules.needs_merge == NeedsMerge::Mark),
            fragments,
            sequences,
            num_fragments: num_fragments as u64,
        },
        fragment_places,
        cover,
        keep: read.buffers.keep.room(n)?,
        places: read.buffers.places.room(n)?,
        selected_rows: read.buffers.keys_on(merged.side.other()).as_ptr(),
        totals: read.buffers.totals.room(1)?,
        errors: read.ws.errors.as_ptr().cast(),
    };
    read.buffers.totals.fill(0, 1, 0, &read.ws.stream)?;
    // SAFETY: all buffers have room for n entries; keys name entries whose hashes were decoded.
    unsafe { read.ws.stages().select_visible(&args) }?;
    let (totals, error) = download_checked(&read.ws, &read.buffers.totals, 1)?;
    match error {
        Some(FirstError { at, code }) if code == ERROR_UNDECIDED => {
            Err(needs_merge(read, merged, at)?)
        }
        _ if totals[0].kept == n as u64 => Ok((totals[0], merged.side)),
        _ => {
            // SAFETY: as above.
            unsafe { read.ws.stages().gather_visible(&args) }?;
            Ok((totals[0], merged.side.other()))
        }
    }
}

/// The error of the entry at a position of the merged ones.
fn needs_merge(read: &ReadState, merged: &Merged, at: usize) -> Result<Error> {
    let keys = read.buffers.keys_on(merged.side);
    let key = keys.download(at, 1, &read.ws.stream)?[0];
    let kind = ValueType::from_code(tag_type(key.tag));
    Ok(kind.map_or_else(
        || altered("a type that was not decoded"),
        Error::declined_type,
    ))
}
