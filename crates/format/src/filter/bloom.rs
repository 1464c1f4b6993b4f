//! FastLocalBloom, the Bloom filter of format_version 5 and later
//! (`util/bloom_impl.h:FastLocalBloomImpl`).
//!
//! All probes of a hash fall into one line of 64 bytes. The low half of the hash picks the line,
//! the high half drives the probes:
//!
//! ```text
//! line  = low * number of lines >> 32
//! bit_i = top 9 bits of high * 0x9e3779b9^i
//! ```

use super::METADATA_LEN;

/// First byte of the metadata: a Bloom filter of this family.
pub(super) const MARKER: u8 = 0xff;

/// Bytes of a line; a CPU's cache line.
pub const LINE_LEN: usize = 64;
const LINE_BITS_LOG2: u32 = 9;

/// Maximum bytes of bits, so that the payload's length still fits 32 bits.
const MAX_BITS_LEN: u64 = 0xffff_ffc0;

/// Spreads the probes of a hash (2^32 by the golden ratio).
const PROBE_MULTIPLIER: u32 = 0x9e37_79b9;

const MILLIBITS_PER_BYTE: u64 = 8000;
const MIN_MILLIBITS_PER_KEY: u32 = 1000;
const MAX_MILLIBITS_PER_KEY: u32 = 100_000;

/// `(m, p)`: up to `m` thousandths of a bit per key, `p` probes are best.
const PROBES: [(u64, u32); 12] = [
    (2080, 1),
    (3580, 2),
    (5100, 3),
    (6640, 4),
    (8300, 5),
    (10_070, 6),
    (11_720, 7),
    (14_001, 8),
    (16_050, 9),
    (18_300, 10),
    (22_001, 11),
    (25_501, 12),
];
/// Above this many thousandths of a bit per key, [`MAX_PROBES`].
const LINEAR_PROBES_UNTIL: u64 = 50_000;
const MAX_PROBES: u32 = 24;
/// Probes at 10 bits per key, for which the loops over probes are unrolled.
const USUAL_PROBES: u32 = 6;

/// Number of probes for the given thousandths of a bit per key (`ChooseNumProbes`).
#[must_use]
pub fn num_probes(millibits_per_key: u64) -> u32 {
    if let Some(&(_, probes)) = PROBES.iter().find(|&&(upto, _)| millibits_per_key <= upto) {
        return probes;
    }
    if millibits_per_key > LINEAR_PROBES_UNTIL {
        MAX_PROBES
    } else {
        ((millibits_per_key - 1) / 2000 - 1) as u32
    }
}

/// Bytes of bits for `num_hashes`, without the metadata: a multiple of 64, at most `0xffff_ffc0`
/// (`filter_policy.cc:FastLocalBloomBitsBuilder::CalculateSpace`).
#[must_use]
pub fn bits_len(num_hashes: u64, millibits_per_key: u32) -> u64 {
    let millibits = u128::from(num_hashes) * u128::from(millibits_per_key);
    let bytes = millibits
        .div_ceil(u128::from(MILLIBITS_PER_BYTE))
        .min(u128::from(MAX_BITS_LEN));
    (bytes as u64).next_multiple_of(LINE_LEN as u64)
}

/// Number of hashes for which a filter of this many bytes suffices, metadata included
/// (`FastLocalBloomBitsBuilder::ApproximateNumEntries`).
#[must_use]
pub fn hashes_in(bytes: u64, millibits_per_key: u32) -> u64 {
    let lines = bytes.saturating_sub(METADATA_LEN as u64).min(MAX_BITS_LEN) / LINE_LEN as u64;
    lines * LINE_LEN as u64 * MILLIBITS_PER_BYTE / u64::from(millibits_per_key.max(1))
}

/// Builds the payload of a filter over these hashes (XXPH3, seed 0), metadata included; bit for bit
/// what RocksDB writes when built without `ROCKSDB_MALLOC_USABLE_SIZE`.
///
/// `millibits_per_key` is clamped to 1000..=100,000. With `optimize_filters_for_memory` the number of probes follows
/// the actual bits per hash, without it the configured ones.
///
/// An empty slice gives five bytes of metadata, which mean "always false" to readers.
#[must_use]
pub fn build(hashes: &[u64], millibits_per_key: u32, optimize_filters_for_memory: bool) -> Vec<u8> {
    let num_hashes = hashes.len() as u64;
    let (len, probes) = shape(num_hashes, millibits_per_key, optimize_filters_for_memory);
    let len = len as usize;
    let mut payload = vec![0; len + METADATA_LEN];
    let lines = payload[..len].as_chunks_mut::<LINE_LEN>().0;
    match probes {
        USUAL_PROBES => set_bits(lines, hashes, USUAL_PROBES),
        _ => set_bits(lines, hashes, probes),
    }
    payload[len..].copy_from_slice(&metadata(probes));
    payload
}

#[inline(always)]
fn set_bits(lines: &mut [[u8; LINE_LEN]], hashes: &[u64], probes: u32) {
    for &hash in hashes {
        let line = &mut lines[line_of(hash, lines.len())];
        for bit in probe_bits(hash, probes) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
}

/// Bytes of bits, as [`bits_len`], and number of probes of the filter that [`build`] makes of `num_hashes` hashes.
#[must_use]
pub fn shape(
    num_hashes: u64,
    millibits_per_key: u32,
    optimize_filters_for_memory: bool,
) -> (u64, u32) {
    let millibits = millibits_per_key.clamp(MIN_MILLIBITS_PER_KEY, MAX_MILLIBITS_PER_KEY);
    let len = bits_len(num_hashes, millibits);
    let probes = if optimize_filters_for_memory {
        num_probes(len * MILLIBITS_PER_BYTE / num_hashes.max(1))
    } else {
        num_probes(u64::from(millibits))
    };
    (len, probes)
}

/// The metadata behind the bits.
#[must_use]
pub fn metadata(num_probes: u32) -> [u8; METADATA_LEN] {
    [MARKER, 0, num_probes as u8, 0, 0]
}

/// Whether the line of `hash` has all its bits; `lines` is not empty.
#[inline]
pub(super) fn may_match(lines: &[[u8; LINE_LEN]], probes: u32, hash: u64) -> bool {
    let line = &lines[line_of(hash, lines.len())];
    match probes {
        USUAL_PROBES => has_bits(line, hash, USUAL_PROBES),
        _ => has_bits(line, hash, probes),
    }
}

/// Checks every bit, because callers expect all of them to be set.
#[inline(always)]
fn has_bits(line: &[u8; LINE_LEN], hash: u64, probes: u32) -> bool {
    probe_bits(hash, probes).fold(true, |all, bit| all & (line[bit / 8] >> (bit % 8) & 1 == 1))
}

#[inline]
fn line_of(hash: u64, num_lines: usize) -> usize {
    let low = u64::from(hash as u32);
    // Below 2^26 lines, so that the product fits.
    ((low * num_lines as u64) >> 32) as usize
}

#[inline(always)]
fn probe_bits(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let mut state = (hash >> 32) as u32;
    (0..probes).map(move |_| {
        let bit = (state >> (u32::BITS - LINE_BITS_LOG2)) as usize;
        state = state.wrapping_mul(PROBE_MULTIPLIER);
        bit
    })
}
