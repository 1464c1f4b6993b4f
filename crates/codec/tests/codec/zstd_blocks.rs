//! Blocks that take parts of ZSTD's encoder to their limits.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rockmill_codec::Codec;

use crate::{compress, lanes, library};

/// Checks that the library and a warp restore the block; returns its compressed size relative to the library's.
fn ratio(block: &[u8]) -> f64 {
    let frame = compress(Codec::Zstd, block);
    assert!(library::decompress(Codec::Zstd, &frame, block.len()).as_deref() == Some(block));
    let mut out = vec![0; block.len()];
    assert!(lanes::zstd_decompress(false, &frame, &mut out));
    assert!(out == block);
    frame.len() as f64 / library::compress(Codec::Zstd, library::USUAL, block).len() as f64
}

/// Counts of literals that double from one to the next: without a limit, codes are longer than the format allows.
#[test]
fn literals_of_long_codes() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut block: Vec<u8> = (0..100_000).map(|_| rng.random_range(0..64)).collect();
    for rare in 0..11 {
        block.resize(block.len() + (1 << rare), 64 + rare);
    }
    block.shuffle(&mut rng);
    let ratio = ratio(&block);
    assert!(ratio < 1.01, "{ratio}");
}

/// Around the numbers at which the form of a block changes, with weights that are written one by one and with others.
#[test]
fn every_number_of_literals() {
    let mut rng = SmallRng::seed_from_u64(2);
    let edges = [1_u32, 24, 32, 256, 1024, 4096, 16_384];
    for len in edges.into_iter().flat_map(|edge| edge - 1..edge + 2) {
        for symbols in [2, 3, 64, 120, 200] {
            let block: Vec<u8> = (0..len)
                .map(|_| (f64::powi(rng.random(), 2) * f64::from(symbols)) as u8)
                .collect();
            let most = if len < 300 { 1.2 } else { 1.05 };
            let ratio = ratio(&block);
            assert!(ratio < most, "{len} of {symbols}: {ratio}");
        }
    }
}

/// Offsets of a block that is stored as it is are not repeated by the next one.
#[test]
fn a_block_that_does_not_shrink_before_one_that_does() {
    const BLOCK: usize = 128 << 10;
    const OFFSET: usize = 1000;
    let mut rng = SmallRng::seed_from_u64(3);
    let mut block: Vec<u8> = (0..BLOCK + OFFSET).map(|_| rng.random()).collect();
    block.copy_within(5000..5006, 5000 + OFFSET);
    while block.len() < 2 * BLOCK {
        block.push(block[block.len() - OFFSET]);
    }
    assert!(ratio(&block) < 1.01);
}
