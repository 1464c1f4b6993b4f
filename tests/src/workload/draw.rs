//! Keys and values of a case.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

use super::{Extras, SINGLE_DELETE_PREFIX};

/// Sizes of the keys and values of a case.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The longest key in bytes.
    longest_key: usize,
    /// The longest value in bytes.
    longest_value: usize,
    /// Number of values in a thousand that are up to that long.
    long_values: u32,
}

impl Sizes {
    /// Returns the sizes of a case.
    pub fn of(extras: Extras) -> Self {
        if extras.large {
            Self::LARGE
        } else {
            Self::USUAL
        }
    }

    /// Sizes of most cases.
    pub const USUAL: Self = Self {
        longest_key: 2 << 10,
        longest_value: 1 << 20,
        long_values: 1,
    };
    /// Sizes of some cases, which take longer.
    const LARGE: Self = Self {
        longest_key: 100_000,
        longest_value: 8 << 20,
        long_values: 4,
    };
}

/// A value as a recipe, so that a case with many large values uses little memory.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    seed: u64,
    length: usize,
    compressible: bool,
}

impl Value {
    /// Returns the value's bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        let mut rng = StdRng::seed_from_u64(self.seed);
        rng.fill_bytes(&mut bytes);
        if self.compressible {
            for byte in &mut bytes {
                *byte = b'a' + *byte % 3;
            }
        }
        bytes
    }

    pub(super) fn random(rng: &mut StdRng, sizes: Sizes) -> Self {
        let length = match rng.random_range(0..1000) {
            roll if roll < sizes.long_values => rng.random_range(32 << 10..=sizes.longest_value),
            0..100 => 0,
            100..800 => rng.random_range(1..64),
            800..980 => rng.random_range(64..1024),
            _ => rng.random_range(1024..32 << 10),
        };
        Self {
            seed: rng.next_u64(),
            length,
            compressible: rng.random_bool(0.6),
        }
    }
}

/// Draws a key of a kind that is an edge case for encoders: empty, sharing a long prefix, made of 0x00 and 0xff, a
/// prefix of others, long.
pub(crate) fn random_key(rng: &mut StdRng, sizes: Sizes, number: usize) -> Vec<u8> {
    let mut key = match rng.random_range(0..20) {
        0 => Vec::new(),
        1..9 => format!("key{number:06}").into_bytes(),
        9..12 => [vec![b'p'; rng.random_range(1..100)], vec![number as u8]].concat(),
        12..15 => (0..rng.random_range(1..6))
            .map(|_| *[0x00, 0xff].choose(rng).expect("not empty"))
            .collect(),
        15..18 => (0..rng.random_range(1..20)).map(|_| rng.random()).collect(),
        18 => vec![b'k'; rng.random_range(1..9)],
        _ => (0..rng.random_range(1..=sizes.longest_key - SINGLE_DELETE_PREFIX.len()))
            .map(|_| rng.random())
            .collect(),
    };
    if key.starts_with(SINGLE_DELETE_PREFIX) {
        key[0] = b'S';
    }
    key
}
