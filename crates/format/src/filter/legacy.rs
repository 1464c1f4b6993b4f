//! The Bloom filter of format_version below 5, for asking only
//! (`util/bloom_impl.h:LegacyLocalityBloomImpl<false>`).

use crate::coding::le32;

/// Seed of the 32-bit hash (`util/hash.h:BloomHash`).
const HASH_SEED: u32 = 0xbc9f_1d34;
const HASH_MULTIPLIER: u32 = 0xc6a4_a793;

/// `num_lines` lines, whose length is a power of two.
#[derive(Debug, Clone)]
pub(super) struct LegacyBloom<'a> {
    bits: &'a [u8],
    line_len: usize,
    num_probes: u8,
}

impl<'a> LegacyBloom<'a> {
    /// `None` if `bits` cannot be cut into so many lines of a power of two bytes.
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

    pub(super) fn may_match(&self, key: &[u8]) -> bool {
        let mut hash = bloom_hash(key);
        let num_lines = self.bits.len() / self.line_len;
        let start = hash as usize % num_lines * self.line_len;
        let line = &self.bits[start..start + self.line_len];
        let delta = hash.rotate_right(17);
        for _ in 0..self.num_probes {
            let bit = hash as usize % (8 * self.line_len);
            if line[bit / 8] & (1 << (bit % 8)) == 0 {
                return false;
            }
            hash = hash.wrapping_add(delta);
        }
        true
    }
}

/// A variant of `MurmurHash1` whose last one to three bytes are taken as signed
/// (`util/hash.cc:Hash`).
fn bloom_hash(key: &[u8]) -> u32 {
    let (words, tail) = key.as_chunks::<4>();
    let mut hash = HASH_SEED ^ (key.len() as u32).wrapping_mul(HASH_MULTIPLIER);
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
