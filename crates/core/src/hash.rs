//! Hashes of entries, alone and in sequence. They balance each stage's accounts.

use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_inline, rapidhash_v3_micro_inline};
use rockmill_format::handle::BlockHandle;

/// Hash of an index: the user key of each block's separator, and where the block is.
pub fn index_hash<'a>(blocks: impl Iterator<Item = (&'a [u8], BlockHandle)>) -> u64 {
    let mut hash = ContentHash::default();
    for (separator, handle) in blocks {
        let size = handle.size.to_le_bytes();
        hash.push(entry_hash(kv_hash(separator, &size), handle.offset));
    }
    hash.hash
}

/// Hash of a key and its value without the tag.
#[inline]
pub fn kv_hash(user_key: &[u8], value: &[u8]) -> u64 {
    const KEY_TURN: u32 = 29;
    content_hash(user_key)
        .rotate_left(KEY_TURN)
        .wrapping_add(content_hash(value))
}

/// Rapidhash V3 micro with seed 0. For keys and values of up to some hundred bytes it is the fastest known hash on one
/// thread, on a CPU as on a GPU. Its last step is left out, because [`entry_hash`] spreads the bits as well. That step
/// would also distinguish lengths below four bytes, so the length is added instead.
#[inline]
fn content_hash(bytes: &[u8]) -> u64 {
    /// Up to this length, all variants of V3 compute the same, and the plain variant inlines this part.
    const SHORT_BYTES: usize = 16;
    let hash = if bytes.len() <= SHORT_BYTES {
        rapidhash_v3_inline::<false, false, false>(bytes, &DEFAULT_RAPID_SECRETS)
    } else {
        rapidhash_v3_micro_inline::<false, false>(bytes, &DEFAULT_RAPID_SECRETS)
    };
    hash.wrapping_add(bytes.len() as u64)
}

/// Hash of an entry.
#[inline]
pub fn entry_hash(kv_hash: u64, tag: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (kv_hash ^ tag.wrapping_mul(ODD)).wrapping_mul(ODD);
    mixed ^ (mixed >> 32)
}

/// An [`entry_hash`] at a position of a sequence, from 0.
#[inline]
pub fn placed_hash(entry_hash: u64, position: u64) -> u64 {
    const STEP: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const ODD: u64 = 0xd6e8_feb8_6659_fd93;
    let mixed = (entry_hash ^ position.wrapping_mul(STEP)).wrapping_mul(ODD);
    (mixed ^ (mixed >> 32)).wrapping_mul(ODD)
}

/// Hash of a sequence of entries, which depends on their order. It is the sum of all [`entry_hash`]es, each mixed with
/// its position, so that thousands of threads can add entries at once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ContentHash {
    hash: u64,
    entries: u64,
}

impl ContentHash {
    /// The hash of `entries` entries, from a device's sum of their [`placed_hash`]es.
    pub fn from_sum(sum: u64, entries: u64) -> Self {
        Self { hash: sum, entries }
    }

    /// Adds the next entry by its [`entry_hash`].
    #[inline]
    pub fn push(&mut self, entry_hash: u64) {
        let placed = placed_hash(entry_hash, self.entries);
        self.hash = self.hash.wrapping_add(placed);
        self.entries += 1;
    }

    /// Number of entries added.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The hash of these entries. Records of jobs keep it.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_hashes_notice_order_count_and_each_part() {
        let a = entry_hash(kv_hash(b"a", b"1"), 9);
        let b = entry_hash(kv_hash(b"b", b"2"), 9);
        let of = |entries: &[u64]| {
            let mut hash = ContentHash::default();
            entries.iter().for_each(|&e| hash.push(e));
            hash
        };
        assert_eq!(of(&[a, b]), of(&[a, b]));
        assert_ne!(of(&[a, b]), of(&[b, a]));
        assert_ne!(of(&[a]), of(&[a, a]));
        let placed = placed_hash(a, 0).wrapping_add(placed_hash(b, 1));
        assert_eq!(of(&[a, b]), ContentHash::from_sum(placed, 2));
        assert_ne!(a, entry_hash(kv_hash(b"a", b"1"), 8));
        assert_ne!(kv_hash(b"ab", b"c"), kv_hash(b"a", b"bc"));
    }

    #[test]
    fn content_hashes_of_like_bytes_differ_at_every_length() {
        for byte in [0, 1, b'a', u8::MAX] {
            let bytes = [byte; 300];
            let hashes = |of: fn(&[u8]) -> u64| {
                let all = (0..=bytes.len()).map(|len| of(&bytes[..len]));
                all.collect::<std::collections::BTreeSet<_>>().len()
            };
            let keys = hashes(|bytes| entry_hash(kv_hash(bytes, b""), 9));
            let values = hashes(|bytes| entry_hash(kv_hash(b"", bytes), 9));
            assert_eq!((keys, values), (bytes.len() + 1, bytes.len() + 1), "{byte}");
        }
    }

    #[test]
    fn content_hashes_notice_every_flipped_bit() {
        let bytes: Vec<u8> = (0..300_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for len in [
            1, 2, 3, 4, 7, 8, 9, 16, 17, 32, 33, 80, 81, 100, 161, 256, 300,
        ] {
            let mut bytes = bytes[..len].to_vec();
            let hash = content_hash(&bytes);
            for bit in 0..8 * len {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(content_hash(&bytes), hash, "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
