//! XXPH3, the hash of RocksDB's filters: a fork of the preview of XXH3 in xxHash 0.7.2.
//!
//! It shares the secret with the final XXH3 but gives other values for every input length (`util/xxph3.h`, entry points
//! `util/hash.cc:Hash64`), so an ordinary XXH3 library cannot replace it.
//!
//! Inputs of at most 240 bytes are mixed directly; longer ones are consumed in stripes of 64 bytes
//! by eight accumulators:
//!
//! ```text
//! | block: 16 stripes, scramble | ... | full stripes of the rest | the last 64 bytes, unless full |
//! ```

use rockmill_codec::xxh3::constants::{
    PRIME32_1, PRIME32_2, PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME64_5, SECRET,
    SECRET_LEN,
};

use crate::coding::{le32, le64};

const SECRET_WORDS: usize = SECRET_LEN / 8;

/// Bytes that one round of the long form consumes.
const STRIPE_LEN: usize = 64;
/// Accumulators of the long form.
const LANES: usize = STRIPE_LEN / 8;
/// Stripes between two scrambles: the secret advances by one word a stripe until its last eight
/// words.
const BLOCK_LEN: usize = STRIPE_LEN * (SECRET_WORDS - LANES);

/// Offset of the secret for the last, overlapping stripe.
const LAST_STRIPE_SECRET: usize = SECRET_LEN - STRIPE_LEN - 7;
/// Offset of the secret for the final merge.
const MERGE_SECRET: usize = 11;
/// Rounds of the 129..=240 form before its first avalanche.
const MIDSIZE_FIRST_ROUNDS: usize = 8;
/// Offset of the secret for the later rounds of the 129..=240 form.
const MIDSIZE_SECRET: usize = 3;
/// Offset of the secret for the last 16 bytes of the 129..=240 form.
const MIDSIZE_LAST_SECRET: usize = 119;

/// Hash with seed 0, as filters use it (`util/hash.h:GetSliceHash64`).
#[inline]
#[must_use]
pub fn hash64(data: &[u8]) -> u64 {
    hash64_seeded(data, 0)
}

/// Hash with a seed, with which the paranoid file check chains entries (`db/output_validator.cc`).
#[inline]
#[must_use]
pub fn hash64_seeded(data: &[u8], seed: u64) -> u64 {
    match data.len() {
        0 => fold(seed.wrapping_add(secret64(0)), PRIME64_2),
        1..=3 => hash_1_to_3(data, seed),
        4..=8 => hash_4_to_8(data, seed),
        9..=16 => hash_9_to_16(data, seed),
        17..=128 => hash_17_to_128(data, seed),
        129..=240 => hash_129_to_240(data, seed),
        _ => hash_long(data, seed),
    }
}

#[inline]
fn secret64(at: usize) -> u64 {
    le64(&SECRET[at..])
}

/// Low XOR high half of the 128-bit product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn avalanche(mut hash: u64) -> u64 {
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(PRIME64_3);
    hash ^ (hash >> 32)
}

/// Mixes the 16 bytes of `data` at `at` with the 16 secret bytes at `secret_at`.
#[inline]
fn mix16(data: &[u8], at: usize, secret_at: usize, seed: u64) -> u64 {
    fold(
        le64(&data[at..]) ^ secret64(secret_at).wrapping_add(seed),
        le64(&data[at + 8..]) ^ secret64(secret_at + 8).wrapping_sub(seed),
    )
}

#[inline]
fn hash_1_to_3(data: &[u8], seed: u64) -> u64 {
    let len = data.len();
    let combined = u32::from_le_bytes([data[0], data[len >> 1], data[len - 1], len as u8]);
    let key = u64::from(le32(&SECRET)).wrapping_add(seed);
    avalanche((u64::from(combined) ^ key).wrapping_mul(PRIME64_1))
}

#[inline]
fn hash_4_to_8(data: &[u8], seed: u64) -> u64 {
    let len = data.len();
    let low = u64::from(le32(data));
    let high = u64::from(le32(&data[len - 4..]));
    let keyed = (low | high << 32) ^ secret64(0).wrapping_add(seed);
    let mixed = (keyed ^ (keyed >> 51))
        .wrapping_mul(PRIME32_1)
        .wrapping_add(len as u64);
    avalanche((mixed ^ (mixed >> 47)).wrapping_mul(PRIME64_2))
}

#[inline]
fn hash_9_to_16(data: &[u8], seed: u64) -> u64 {
    let len = data.len();
    let low = le64(data) ^ secret64(0).wrapping_add(seed);
    let high = le64(&data[len - 8..]) ^ secret64(8).wrapping_sub(seed);
    avalanche(
        (len as u64)
            .wrapping_add(low)
            .wrapping_add(high)
            .wrapping_add(fold(low, high)),
    )
}

#[inline]
fn hash_17_to_128(data: &[u8], seed: u64) -> u64 {
    let len = data.len();
    let mut acc = (len as u64).wrapping_mul(PRIME64_1);
    // Pairs of 16 bytes from both ends towards the middle; they overlap unless the length is a
    // multiple of 32.
    for pair in 0..len.div_ceil(32) {
        let from_front = mix16(data, 16 * pair, 32 * pair, seed);
        let from_back = mix16(data, len - 16 * (pair + 1), 32 * pair + 16, seed);
        acc = acc.wrapping_add(from_front).wrapping_add(from_back);
    }
    avalanche(acc)
}

#[inline(never)]
fn hash_129_to_240(data: &[u8], seed: u64) -> u64 {
    let len = data.len();
    let mut acc = (len as u64).wrapping_mul(PRIME64_1);
    for round in 0..MIDSIZE_FIRST_ROUNDS {
        acc = acc.wrapping_add(mix16(data, 16 * round, 16 * round, seed));
    }
    acc = avalanche(acc);
    for round in MIDSIZE_FIRST_ROUNDS..len / 16 {
        let secret_at = 16 * (round - MIDSIZE_FIRST_ROUNDS) + MIDSIZE_SECRET;
        acc = acc.wrapping_add(mix16(data, 16 * round, secret_at, seed));
    }
    avalanche(acc.wrapping_add(mix16(data, len - 16, MIDSIZE_LAST_SECRET, seed)))
}

/// The secret of the long form: the seed is added to the first half of each 16 bytes, and subtracted from the second.
fn seeded_secret(seed: u64) -> [u8; SECRET_LEN] {
    let mut secret = SECRET;
    for (i, word) in secret.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let value = u64::from_le_bytes(*word);
        let shifted = if i % 2 == 0 {
            value.wrapping_add(seed)
        } else {
            value.wrapping_sub(seed)
        };
        *word = shifted.to_le_bytes();
    }
    secret
}

#[inline(never)]
fn hash_long(data: &[u8], seed: u64) -> u64 {
    let secret = seeded_secret(seed);
    let mut words = [0; SECRET_WORDS];
    for (word, bytes) in words.iter_mut().zip(secret.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut acc = [
        PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
    ];
    let (blocks, rest) = data.as_chunks::<BLOCK_LEN>();
    for block in blocks {
        accumulate_stripes(&mut acc, block, &words);
        scramble(&mut acc, &words);
    }
    accumulate_stripes(&mut acc, rest, &words);
    if !data.len().is_multiple_of(STRIPE_LEN) {
        let mut last_words = [0; LANES];
        for (lane, word) in last_words.iter_mut().enumerate() {
            *word = le64(&secret[LAST_STRIPE_SECRET + 8 * lane..]);
        }
        if let Some(stripe) = data.last_chunk() {
            accumulate(&mut acc, stripe, &last_words);
        }
    }
    merge(&acc, &secret, data.len() as u64)
}

/// Consumes the full stripes of at most one block.
#[inline]
fn accumulate_stripes(acc: &mut [u64; LANES], bytes: &[u8], words: &[u64; SECRET_WORDS]) {
    let stripes = bytes.as_chunks::<STRIPE_LEN>().0;
    for (stripe, secret) in stripes.iter().zip(words.windows(LANES)) {
        accumulate(acc, stripe, secret);
    }
}

/// In this preview of XXH3 the data is added to its own lane, not to the neighbour's.
#[inline]
fn accumulate(acc: &mut [u64; LANES], stripe: &[u8; STRIPE_LEN], secret: &[u64]) {
    let lanes = acc.iter_mut().zip(stripe.as_chunks::<8>().0).zip(secret);
    for ((acc, bytes), secret) in lanes {
        let value = u64::from_le_bytes(*bytes);
        let key = value ^ secret;
        let product = u64::from(key as u32).wrapping_mul(key >> 32);
        *acc = acc.wrapping_add(value).wrapping_add(product);
    }
}

#[inline]
fn scramble(acc: &mut [u64; LANES], words: &[u64; SECRET_WORDS]) {
    for (acc, secret) in acc.iter_mut().zip(&words[SECRET_WORDS - LANES..]) {
        *acc = (*acc ^ (*acc >> 47) ^ secret).wrapping_mul(PRIME32_1);
    }
}

fn merge(acc: &[u64; LANES], secret: &[u8; SECRET_LEN], len: u64) -> u64 {
    let mut result = len.wrapping_mul(PRIME64_1);
    for (pair, lanes) in acc.as_chunks::<2>().0.iter().enumerate() {
        let at = MERGE_SECRET + 16 * pair;
        result = result.wrapping_add(fold(
            lanes[0] ^ le64(&secret[at..]),
            lanes[1] ^ le64(&secret[at + 8..]),
        ));
    }
    avalanche(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes 0, 1, ... 255, 0, ...
    fn ramp(len: usize) -> Vec<u8> {
        (0..len).map(|i| i as u8).collect()
    }

    #[test]
    fn texts_hash_as_in_rocksdb() {
        for (text, hash) in [
            ("", 0x5342_c301_0fe1_dd04),
            ("a", 0x88d8_68bf_6076_81c7),
            ("abcd", 0x97a5_ba1d_02e8_378c),
            ("user00000014", 0x9b26_e00a_add3_48fe),
            ("key000020", 0x8075_dbbd_d721_f340),
        ] {
            assert_eq!(hash64(text.as_bytes()), hash, "{text:?}");
        }
    }

    /// Computed by RocksDB 11.12's `Hash64`: length, hash with seed 0, hash with the seed below.
    #[rustfmt::skip]
    const VECTORS: &[(usize, u64, u64)] = &[
        (0, 0x5342c3010fe1dd04, 0x31c8ba0f4b97f2ea),
        (1, 0x7198d737cfe7f386, 0x2c21f48da8a0681f),
        (3, 0xc0360a11b4791b98, 0xe50c6b9279b8d3e2),
        (4, 0xf28e842dedde83ae, 0x958c35722551ff18),
        (8, 0x223c9d9c7f17db6e, 0xaa305af5f84b0b4a),
        (9, 0x93557756b5dae4dd, 0x60c42c715442ccf0),
        (16, 0x4bfe2ff1655e8360, 0x707b9a2032dde692),
        (17, 0x6dff1ac96eef2848, 0xf7bbb025ecb2a762),
        (32, 0x05e0c55fd9add145, 0x0aca1e8ffa2aa0a4),
        (33, 0x836364faed762c18, 0x29bee234f16b491d),
        (64, 0x85a0b1306d97b7f5, 0x90e02d7acbc70a8d),
        (65, 0x761d1aecf631ff50, 0xde645fff46535a15),
        (96, 0xea1eec322790bfdb, 0x2aa2b5def8a713df),
        (97, 0xa178f7429a14e134, 0xa34ea63068f9af8d),
        (128, 0x7aa5db2c8097080b, 0x242c39a797ceecb4),
        (129, 0xa06d81743056cebc, 0xd551b72e9316d656),
        (143, 0xba49c015f1ee5b8b, 0xec52f83b55f6f494),
        (144, 0x9ae3190c27ffbe3b, 0x342e34351789e58d),
        (240, 0xd1253a6dec8c35fc, 0x0f07f01fc98f80c7),
        (241, 0xb78df6016a18c222, 0x2501407680d370e2),
        (256, 0x4ab6ef4d2088e650, 0xcd89c0a8ea6f1a8e),
        (320, 0x6aea39ea3e78cd3c, 0x8a8a86136dce9cda),
        (1023, 0x6ff7ce6a43955c74, 0xcfbc6ea0bc91dc3c),
        (1024, 0xa63b91fd35ca4f09, 0xc5c03d42382c8f01),
        (1025, 0x95936fd408f00c5e, 0xc8f2c2ff3cf2e369),
        (1088, 0x24d4bf310a290533, 0xc9c10320de8720aa),
        (2048, 0x3b0abe545fd1dc29, 0x6924228a5c05b1d9),
        (4095, 0xd5527421f011dc73, 0xb2ea39ac1cdcfde3),
    ];
    const SEED: u64 = 0x0123_4567_89ab_cdef;

    #[test]
    fn every_form_hashes_as_in_rocksdb() {
        for &(len, hash, seeded) in VECTORS {
            let data = ramp(len);
            assert_eq!(hash64(&data), hash, "length {len}");
            assert_eq!(hash64_seeded(&data, SEED), seeded, "length {len}, seeded");
        }
    }

    proptest! {
        #[test]
        fn every_byte_counts(
            mut data in prop::collection::vec(any::<u8>(), 1..2100),
            at: prop::sample::Index,
        ) {
            let before = hash64(&data);
            let at = at.index(data.len());
            data[at] ^= 1;
            prop_assert_ne!(hash64(&data), before);
        }
    }
}
