//! Fragments of range tombstones on the device.

use std::ptr::{null, null_mut};

use rockmill_core::{Fragments, KeyRange, Result};

use super::keys::UserKeys;
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
    let mut on_device = OnDevice {
        fragments: null(),
        sequences: null(),
        len: 0,
    };
    let (mut keys, mut sequences, mut ends) = (UserKeys::default(), Vec::new(), vec![0]);
    for one in fragments.in_range(range) {
        keys.push(one.begin);
        keys.push(one.end);
        sequences.extend_from_slice(one.sequences);
        ends.push(sequences.len() as u64);
        on_device.len += 1;
    }
    if on_device.len > 0 {
        let (buffers, stream) = (&mut read.buffers, &read.ws.stream);
        let at = keys.upload(&mut buffers.fragment_bytes, stream)?;
        let fragment = |(i, ends): (usize, &[u64])| Fragment {
            begin: keys.at(2 * i, at),
            end: keys.at(2 * i + 1, at),
            first: ends[0],
            last: ends[1],
        };
        let all: Vec<_> = ends.windows(2).enumerate().map(fragment).collect();
        on_device.sequences = buffers.sequences.upload(&sequences, stream)?;
        on_device.fragments = buffers.fragments.upload(&all, stream)?;
    }
    Ok(on_device)
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
