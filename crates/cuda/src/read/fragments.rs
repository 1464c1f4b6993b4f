//! Fragments of range tombstones on the device.

use std::ptr::null_mut;

use rockmill_core::{Fragments, KeyRange, Result};

use super::keys::FragmentKeys;
use super::state::ReadState;
use crate::driver::ffi::Fragment;

/// Fragments and their sequence numbers. The pointers are null if there are none.
pub(super) struct OnDevice {
    pub(super) fragments: *const Fragment,
    pub(super) sequences: *const u64,
    pub(super) len: usize,
}

/// Copies the fragments in a range to the device.
pub(super) fn upload(
    read: &mut ReadState,
    fragments: &Fragments,
    range: &KeyRange,
) -> Result<OnDevice> {
    let keys = FragmentKeys::in_range(fragments, range);
    let buffers = &mut read.buffers;
    let (fragments, sequences) = keys.upload(
        &mut buffers.fragments,
        &mut buffers.fragment_bytes,
        &mut buffers.sequences,
        &read.ws.stream,
    )?;
    Ok(OnDevice {
        fragments,
        sequences,
        len: keys.len(),
    })
}

/// Room for the positions of fragments among `n` keys, and for the fragment of each key, which is 0 at first. Null pointers
/// without fragments.
pub(super) fn room_for_cover(
    read: &mut ReadState,
    num_fragments: usize,
    n: usize,
) -> Result<(*mut u64, *mut u32)> {
    if num_fragments == 0 {
        return Ok((null_mut(), null_mut()));
    }
    let places = read.buffers.fragment_places.room(num_fragments)?;
    let cover = read.buffers.cover.room(n)?;
    read.buffers.cover.fill(0, n, 0, &read.ws.stream)?;
    Ok((places, cover))
}
