//! The Bloom filter of format_version below 5 (`util/bloom_impl.h:LegacyLocalityBloomImpl<false>`,
//! `filter_policy.cc:LegacyBloomBitsBuilder`).
//!
//! All probes of a 32-bit hash fall into one line, which is a cache line of the machine that wrote
//! the filter. Here lines have 64 bytes, as RocksDB's on x86-64; readers take any power of two:
//!
//! ```text
//! line  = hash % number of lines
//! bit_i = (hash + i * (hash rotated right by 17)) % bits of a line
//! ```

use super::{LegacyLayout, METADATA_LEN};
use crate::coding::le32;

/// Seed of the 32-bit hash (`util/hash.h:BloomHash`).
const HASH_SEED: u32 = 0xbc9f_1d34;
const HASH_MULTIPLIER: u32 = 0xc6a4_a793;

/// Bits by which the hash is rotated for the step from one probe to the next.
const STEP_ROTATION: u32 = 17;

/// Bytes of a written line.
pub const LINE_LEN: usize = 64;

/// Maximum number of bits; rounding to lines goes a little beyond.
const MAX_BITS: u64 = 0xffff_0000;

/// RocksDB converts the number of hashes to an `int`. A larger number becomes negative, and then a huge unsigned
/// number, which gives [`MAX_BITS`].
const MAX_COUNTED_HASHES: u64 = i32::MAX as u64;

const MILLIBITS_PER_BIT: u32 = 1000;
const MAX_BITS_PER_KEY: u32 = 100;

/// Probes for a hundred bits per key: ln 2, rounded down to save probes.
const PROBES_PER_HUNDRED_BITS: u32 = 69;
const MAX_PROBES: u32 = 30;

/// Whole bits per key for this many thousandths: rounded to the nearest, 1 to 100
/// (`BloomLikeFilterPolicy::BloomLikeFilterPolicy`, `whole_bits_per_key_`).
#[must_use]
pub fn whole_bits_per_key(millibits_per_key: u32) -> u32 {
    let rounded = millibits_per_key.saturating_add(MILLIBITS_PER_BIT / 2) / MILLIBITS_PER_BIT;
    rounded.clamp(1, MAX_BITS_PER_KEY)
}

/// Number of probes (`LegacyNoLocalityBloomImpl::ChooseNumProbes`): 1 to 30.
#[must_use]
pub fn num_probes(bits_per_key: u32) -> u32 {
    const HUNDRED: u32 = 100;
    (bits_per_key.saturating_mul(PROBES_PER_HUNDRED_BITS) / HUNDRED).clamp(1, MAX_PROBES)
}

/// Bytes of bits for `num_hashes`, without the metadata; 0 for no hashes. They are an odd number of lines of `line_len`
/// bytes, so that all bits of a hash influence the line (`LegacyBloomBitsBuilder::CalculateSpace`,
/// `GetTotalBitsForLocality`).
#[must_use]
pub fn bits_len(num_hashes: u64, bits_per_key: u32, line_len: usize) -> u64 {
    if num_hashes == 0 {
        return 0;
    }
    let bits = if num_hashes > MAX_COUNTED_HASHES {
        MAX_BITS
    } else {
        (num_hashes * u64::from(bits_per_key)).min(MAX_BITS)
    };
    let line_len = line_len.max(1) as u64;
    (bits.div_ceil(line_len.saturating_mul(8)) | 1).saturating_mul(line_len)
}

/// Number of hashes for which a filter of this many bytes suffices, metadata included
/// (`LegacyBloomBitsBuilder::ApproximateNumEntries`).
#[must_use]
pub fn hashes_in(bytes: u64, bits_per_key: u32) -> u64 {
    let bits = bytes.saturating_mul(8).min(MAX_BITS);
    let most = bits / u64::from(bits_per_key.max(1)) + 1;
    let len = |hashes| bits_len(hashes, bits_per_key, LINE_LEN) + METADATA_LEN as u64;
    let found = (1..=most).rev().find(|&hashes| len(hashes) <= bytes);
    found.unwrap_or(0)
}

/// Builds the payload of a filter over these [`bloom_hash`]es, metadata included; bit for bit what RocksDB writes if a
/// cache line has 64 bytes (`LegacyBloomBitsBuilder::Finish`).
///
/// Without hashes, the result is five bytes of metadata, which mean "always false" to readers.
#[must_use]
pub fn build(hashes: impl ExactSizeIterator<Item = u32>, bits_per_key: u32) -> Vec<u8> {
    let (len, probes) = shape(hashes.len() as u64, bits_per_key);
    let metadata = metadata(len, probes);
    let len = len as usize;
    let mut payload = vec![0; len + METADATA_LEN];
    let lines = payload[..len].as_chunks_mut::<LINE_LEN>().0;
    let num_lines = lines.len() as u32;
    for hash in hashes {
        let line = &mut lines[(hash % num_lines) as usize];
        for bit in probe_bits(hash, probes, LINE_LEN) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
    payload[len..].copy_from_slice(&metadata);
    payload
}

/// Bytes of bits, as [`bits_len`], and number of probes of the filter that [`build`] makes of `num_hashes` hashes.
#[must_use]
pub fn shape(num_hashes: u64, bits_per_key: u32) -> (u64, u32) {
    let len = bits_len(num_hashes, bits_per_key, LINE_LEN);
    (len, num_probes(bits_per_key))
}

/// The metadata behind `len` bytes of bits.
#[must_use]
pub fn metadata(len: u64, num_probes: u32) -> [u8; METADATA_LEN] {
    let mut metadata = [num_probes as u8; METADATA_LEN];
    let num_lines = (len / LINE_LEN as u64) as u32;
    metadata[1..].copy_from_slice(&num_lines.to_le_bytes());
    metadata
}

/// The bits within a line of `line_len` bytes, a power of two.
#[inline]
fn probe_bits(hash: u32, probes: u32, line_len: usize) -> impl Iterator<Item = usize> {
    let step = hash.rotate_right(STEP_ROTATION);
    (0..probes).map(move |i| hash.wrapping_add(i.wrapping_mul(step)) as usize % (8 * line_len))
}

/// `num_lines` lines, whose length is a power of two.
#[derive(Debug, Clone)]
pub(super) struct LegacyBloom<'a> {
    bits: &'a [u8],
    line_len: usize,
    num_probes: u8,
}

impl<'a> LegacyBloom<'a> {
    /// `None` if `bits` cannot be divided into `num_lines` lines whose length is a power of two.
    pub(super) fn new(bits: &'a [u8], num_lines: u32, num_probes: u8) -> Option<Self> {
        let num_lines = num_lines as usize;
        if num_lines == 0 || bits.is_empty() || !bits.len().is_multiple_of(num_lines) {
            return None;
        }
        let line_len = bits.len() / num_lines;
        line_len.is_power_of_two().then_some(Self {
            bits,
            line_len,
            num_probes,
        })
    }

    pub(super) fn layout(&self) -> LegacyLayout {
        LegacyLayout {
            line_len: self.line_len,
            num_probes: self.num_probes,
        }
    }

    pub(super) fn may_match(&self, hash: u32) -> bool {
        let num_lines = self.bits.len() / self.line_len;
        let start = hash as usize % num_lines * self.line_len;
        let line = &self.bits[start..start + self.line_len];
        probe_bits(hash, u32::from(self.num_probes), self.line_len)
            .all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// The hash of a key or prefix (`util/hash.h:BloomHash`): a variant of `MurmurHash1` that treats the last one to three
/// bytes as signed (`util/hash.cc:Hash`).
#[must_use]
pub fn bloom_hash(key: &[u8]) -> u32 {
    seeded_hash(key, HASH_SEED)
}

/// `util/hash.cc:Hash`, which RocksDB uses with several seeds.
pub(crate) fn seeded_hash(key: &[u8], seed: u32) -> u32 {
    let (words, tail) = key.as_chunks::<4>();
    let mut hash = seed ^ (key.len() as u32).wrapping_mul(HASH_MULTIPLIER);
    for word in words {
        hash = hash.wrapping_add(le32(word)).wrapping_mul(HASH_MULTIPLIER);
        hash ^= hash >> 16;
    }
    if tail.is_empty() {
        return hash;
    }
    for (i, &byte) in tail.iter().enumerate() {
        let signed = i32::from(byte as i8) as u32;
        hash = hash.wrapping_add(signed << (8 * i));
    }
    hash = hash.wrapping_mul(HASH_MULTIPLIER);
    hash ^ (hash >> 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_above_127_hash_as_in_rocksdb() {
        // Bytes 0xf0, 0xe9, 0xe2, ...: length, `BloomHash`.
        let data: Vec<u8> = (0..31u8).map(|i| 0xf0u8.wrapping_sub(7 * i)).collect();
        for (len, hash) in [
            (0, 0xbc9f_1d34),
            (1, 0x79c0_a5cc),
            (2, 0xb7ca_3091),
            (3, 0x9267_8e55),
            (4, 0xfb0d_51b5),
            (7, 0x82fe_4f22),
            (8, 0xd0c1_d4a9),
            (15, 0x0c31_791c),
            (31, 0xcb08_b21b),
        ] {
            assert_eq!(bloom_hash(&data[..len]), hash, "length {len}");
        }
    }
}
