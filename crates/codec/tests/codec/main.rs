//! The codecs on the host: against the libraries, with damaged input, and their identities.

mod both_ways;
mod data;
mod identity;
mod lanes;
mod library;
mod zstd;
mod zstd_blocks;
mod zstd_frames;

use rockmill_codec::Codec;

/// The compressed block, of any size.
fn compress(codec: Codec, block: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(codec.compress(block, &mut out, usize::MAX));
    out
}
