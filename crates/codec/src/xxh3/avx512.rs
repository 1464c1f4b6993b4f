//! The algorithm for long input (`xxhash.h:XXH3_hashLong_64b`), with its eight lanes in one register.
//!
//! ```text
//!   input    | block of 1024 B: 16 stripes of 64 B | scramble | block | scramble | ... | stripes | last 64 B |
//!   secret     one of 64 B from 0, 8, 16, ... for each stripe of a block
//! ```

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_mullo_epi64,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_srli_epi64, _mm512_storeu_si512,
    _mm512_xor_si512,
};

use super::constants::{
    PRIME32_1, PRIME32_2, PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME64_5, SECRET,
    SECRET_LEN,
};

/// Shorter input has other algorithms.
const LEAST_BYTES: usize = 241;

const STRIPE_BYTES: usize = 64;
const BLOCK_STRIPES: usize = 16;

/// Distance between the parts of the secret for consecutive stripes.
const SECRET_STEP: usize = 8;

type Stripe = [u8; STRIPE_BYTES];

const PRIME_MX1: u64 = 0x1656_6791_9e37_79f9;

/// Values of the lanes before the first stripe.
const LANES: [u64; 8] = [
    PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
];

/// XXH3 of input that is long enough for this algorithm, on a processor that has the instructions.
#[inline]
pub fn xxh3_long(bytes: &[u8]) -> Option<u64> {
    let has_all = || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
    // SAFETY: the processor has the features that the function is compiled for.
    (bytes.len() >= LEAST_BYTES && has_all()).then(|| unsafe { long(bytes) })
}

/// XXH3 of at least [`LEAST_BYTES`].
#[target_feature(enable = "avx512f,avx512dq")]
fn long(bytes: &[u8]) -> u64 {
    const SCRAMBLE_AT: usize = SECRET_LEN - STRIPE_BYTES;
    const LAST_AT: usize = SCRAMBLE_AT - 7;
    let secrets: [__m512i; BLOCK_STRIPES] =
        std::array::from_fn(|stripe| load(secret_at(stripe * SECRET_STEP)));
    let scramble_with = load(secret_at(SCRAMBLE_AT));
    let prime = _mm512_set1_epi64(PRIME32_1 as i64);

    // The last 64 bytes are a stripe of their own, which may overlap the previous one and does not end a block.
    let (stripes, _) = bytes[..bytes.len() - 1].as_chunks::<STRIPE_BYTES>();
    let (blocks, rest) = stripes.as_chunks::<BLOCK_STRIPES>();
    let mut lanes = load_words(&LANES);
    for block in blocks {
        for (stripe, secret) in block.iter().zip(secrets) {
            lanes = take_in(lanes, load(stripe), secret);
        }
        let folded = _mm512_xor_si512(lanes, _mm512_srli_epi64::<47>(lanes));
        lanes = _mm512_mullo_epi64(_mm512_xor_si512(folded, scramble_with), prime);
    }
    for (stripe, secret) in rest.iter().zip(secrets) {
        lanes = take_in(lanes, load(stripe), secret);
    }
    let last = bytes.last_chunk().expect("it is longer than a stripe");
    lanes = take_in(lanes, load(last), load(secret_at(LAST_AT)));
    merge(&store_words(lanes), bytes.len() as u64)
}

/// Adds a stripe of input. Each lane gets the product of the halves of its word xor secret, and its neighbour's word.
#[target_feature(enable = "avx512f")]
#[inline]
fn take_in(lanes: __m512i, stripe: __m512i, secret: __m512i) -> __m512i {
    const SWAP_WORDS: i32 = 0b01_00_11_10;
    let keyed = _mm512_xor_si512(stripe, secret);
    let product = _mm512_mul_epu32(keyed, _mm512_srli_epi64::<32>(keyed));
    let neighbours = _mm512_shuffle_epi32::<SWAP_WORDS>(stripe);
    _mm512_add_epi64(lanes, _mm512_add_epi64(product, neighbours))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(bytes: &Stripe) -> __m512i {
    // SAFETY: there are 64 bytes, of any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_words(words: &[u64; 8]) -> __m512i {
    // SAFETY: there are 64 bytes, of any alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_words(register: __m512i) -> [u64; 8] {
    let mut words = [0; 8];
    // SAFETY: there is room for 64 bytes, of any alignment.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), register) };
    words
}

#[inline]
fn secret_at(at: usize) -> &'static Stripe {
    SECRET[at..].first_chunk().expect("the secret goes on")
}

/// One hash of the lanes after `len` bytes.
#[inline]
fn merge(lanes: &[u64; 8], len: u64) -> u64 {
    const MERGE_AT: usize = 11;
    let (secrets, _) = SECRET[MERGE_AT..].as_chunks::<8>();
    let (lanes, _) = lanes.as_chunks::<2>();
    let (secrets, _) = secrets.as_chunks::<2>();
    let mut hash = len.wrapping_mul(PRIME64_1);
    for (lanes, secrets) in lanes.iter().zip(secrets) {
        let [low, high] = [0, 1].map(|i| lanes[i] ^ u64::from_le_bytes(secrets[i]));
        let product = u128::from(low) * u128::from(high);
        hash = hash.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(PRIME_MX1);
    hash ^ (hash >> 32)
}
