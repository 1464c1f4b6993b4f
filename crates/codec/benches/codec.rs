//! Compares speed (MB/s) and sizes of the host's build with those of the libraries, for typical contents of databases.
//!
//! ```text
//! cargo bench -p rockmill-codec
//! ```
//!
//! One thread; the shortest of some rounds over the same blocks.

use std::hint::black_box;
use std::time::Instant;

use rockmill_codec::Codec;

#[path = "../tests/codec/data.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod data;
#[path = "../tests/codec/library.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod library;

use data::Kind;

const BYTES: usize = 8 << 20;
const ROUNDS: usize = 5;

/// MB/s of content.
fn pace(blocks: &[Vec<u8>], mut run: impl FnMut(usize)) -> f64 {
    let bytes: usize = blocks.iter().map(Vec::len).sum();
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        (0..blocks.len()).for_each(&mut run);
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / rounds.fold(f64::INFINITY, f64::min) / 1e6
}

fn compress(codec: Codec, block: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(codec.compress(block, &mut out, usize::MAX));
    out
}

fn main() {
    println!(
        "codec   kind        block  size of the library's  compress: ours  library  decompress: ours  library"
    );
    for codec in [Codec::Lz4, Codec::Snappy, Codec::Zstd] {
        for kind in Kind::USUAL {
            for len in [4 << 10, 16 << 10, 32 << 10] {
                let blocks: Vec<_> = (0..(BYTES / len) as u64)
                    .map(|seed| data::block(kind, seed, len))
                    .collect();
                let ours: Vec<_> = blocks.iter().map(|block| compress(codec, block)).collect();
                let theirs: Vec<_> = blocks
                    .iter()
                    .map(|block| library::compress(codec, library::USUAL, block))
                    .collect();
                let size = |made: &[Vec<u8>]| made.iter().map(Vec::len).sum::<usize>() as f64;
                let mut out = vec![0; len];
                let compress_ours = pace(&blocks, |i| {
                    black_box(compress(codec, &blocks[i]));
                });
                let compress_theirs = pace(&blocks, |i| {
                    black_box(library::compress(codec, library::USUAL, &blocks[i]));
                });
                let decompress_ours = pace(&blocks, |i| {
                    codec.decompress(&theirs[i], &mut out).expect("it is sound");
                });
                let decompress_theirs = pace(&blocks, |i| {
                    black_box(library::decompress(codec, &theirs[i], len));
                });
                println!(
                    "{:<7} {:<10} {len:>6} {:>22.4} {compress_ours:>15.0} {compress_theirs:>8.0} \
                     {decompress_ours:>17.0} {decompress_theirs:>8.0}",
                    format!("{codec:?}"),
                    format!("{kind:?}"),
                    size(&ours) / size(&theirs),
                );
            }
        }
    }
}
