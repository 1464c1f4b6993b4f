//! Rockmill's own codecs: any payload is read like by the library, and any block survives both directions.
//!
//! The first byte chooses the codec and the direction; for a payload the next two give the size of the block.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_codec::{Codec, zstd_decompress};

/// Guard bytes around a target, which must not change.
const GUARD: [u8; 16] = *b"nothing goes in!";

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else {
        return;
    };
    let codec = match choice & 5 {
        0 => Codec::Lz4,
        1 => Codec::Snappy,
        _ => Codec::Zstd,
    };
    if choice & 2 == 0 {
        check_round_trip(codec, rest);
    } else if let Some((&len, payload)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(len));
        if codec == Codec::Zstd {
            check_zstd(payload, len);
        } else {
            check_payload(codec, payload, len);
        }
    }
});

fn check_round_trip(codec: Codec, block: &[u8]) {
    let mut payload = Vec::new();
    assert!(codec.compress(block, &mut payload, usize::MAX));
    assert!(!codec.compress(block, &mut Vec::new(), payload.len() - 1));
    assert_eq!(
        decompress(codec, &payload, block.len()).as_deref(),
        Some(block)
    );
    assert_eq!(
        by_library(codec, &payload, block.len()).as_deref(),
        Some(block)
    );
}

fn check_payload(codec: Codec, payload: &[u8], len: usize) {
    let ours = decompress(codec, payload, len);
    let theirs = by_library(codec, payload, len);
    // liblz4 accepts some payloads that break the format's rules (rockmill_codec::Malformed).
    assert!(ours == theirs || codec == Codec::Lz4 && ours.is_none());
}

/// libzstd accepts some frames that no compressor writes.
fn check_zstd(frame: &[u8], len: usize) {
    if let Some(ours) = guarded(len, |out| zstd_decompress(frame, out).is_ok()) {
        let mut theirs = vec![0; len];
        let size = zstd::bulk::decompress_to_buffer(frame, &mut theirs);
        assert!(size.is_ok_and(|size| size == len) && ours == theirs);
    }
}

fn decompress(codec: Codec, payload: &[u8], len: usize) -> Option<Vec<u8>> {
    guarded(len, |out| codec.decompress(payload, out).is_ok())
}

/// Fills exactly enough memory, with guards around it.
fn guarded(len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Vec<u8>> {
    let mut memory = [&GUARD[..], &vec![0; len], &GUARD].concat();
    let is_filled = fill(&mut memory[GUARD.len()..][..len]);
    assert!(memory.starts_with(&GUARD) && memory.ends_with(&GUARD));
    is_filled.then(|| memory[GUARD.len()..][..len].to_vec())
}

fn by_library(codec: Codec, payload: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len];
    let size = match codec {
        Codec::Lz4 => {
            let size = i32::try_from(len).expect("two bytes said it");
            lz4::block::decompress_to_buffer(payload, Some(size), &mut out).ok()?
        }
        Codec::Snappy => snap::raw::Decoder::new()
            .decompress(payload, &mut out)
            .ok()?,
        Codec::Zstd => zstd::bulk::decompress_to_buffer(payload, &mut out).ok()?,
    };
    (size == len).then_some(out)
}
