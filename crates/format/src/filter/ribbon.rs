//! The Ribbon filter "Standard128", for queries only (`util/ribbon_impl.h`, `util/ribbon_alg.h`).
//!
//! A key stands for one linear equation over GF(2): 128 coefficients, beginning at a start slot, times the solution
//! give the key's result row. The solution has one row per slot and one column per result bit. It is stored in blocks
//! of 128 slots, and each block in columns, which are segments of 16 bytes:
//!
//! ```text
//! block 0: column 0 | column 1 | ... ; block 1: column 0 | ...
//! ```
//!
//! The first `upper_start_block` blocks have one column fewer than the rest.

/// Slots of a block, and coefficients of a key.
const BLOCK_SLOTS: u64 = 128;
const SEGMENT_LEN: usize = 16;
/// Columns beyond the bits of a result row are not used.
const MAX_COLUMNS: usize = 32;
/// With one block there would be only one start slot, which the hashing does not support.
const MIN_BLOCKS: u32 = 2;

const REHASH_FACTOR: u64 = 0x6193_d459_236a_3a0d;
const COEFF_AND_RESULT_FACTOR: u64 = 0xc28f_8282_2b65_0bed;
const COEFF_XOR: u64 = 0xc367_844a_6e52_731d;
const SEED_FACTOR: u64 = 0xc782_19a2_3eea_dd03;
const SEED_MIX_MASK: u64 = 0xf0f0_f0f0_f0f0_f0f0;

#[derive(Debug, Clone)]
pub(super) struct Ribbon<'a> {
    segments: &'a [[u8; SEGMENT_LEN]],
    raw_seed: u32,
    num_starts: u64,
    upper_columns: usize,
    upper_start_block: usize,
}

impl<'a> Ribbon<'a> {
    /// `None` if there are too few blocks for a Ribbon filter.
    pub(super) fn new(solution: &'a [u8], num_blocks: u32, seed: u8) -> Option<Self> {
        if num_blocks < MIN_BLOCKS {
            return None;
        }
        let segments = solution.as_chunks().0;
        let blocks = num_blocks as usize;
        let columns = segments.len().div_ceil(blocks);
        let (upper_columns, upper_start_block) = if columns > MAX_COLUMNS {
            (MAX_COLUMNS, 0)
        } else {
            (columns, columns * blocks - segments.len())
        };
        Some(Self {
            segments,
            raw_seed: raw_seed(seed),
            num_starts: u64::from(num_blocks - 1) * BLOCK_SLOTS + 1,
            upper_columns,
            upper_start_block,
        })
    }

    /// Whether the solution gives the result row of this hash (XXPH3, seed 0).
    pub(super) fn may_match(&self, key_hash: u64) -> bool {
        let hash = (key_hash ^ u64::from(self.raw_seed)).wrapping_mul(REHASH_FACTOR);
        let start_slot = ((u128::from(hash) * u128::from(self.num_starts)) >> 64) as u64;
        let mixed = hash.wrapping_mul(COEFF_AND_RESULT_FACTOR);
        let expected = mixed.swap_bytes() as u32;
        let coefficients = u128::from(mixed) << 64 | u128::from(mixed ^ COEFF_XOR) | 1;

        let block = (start_slot / BLOCK_SLOTS) as usize;
        let columns = self.upper_columns - usize::from(block < self.upper_start_block);
        let first = block * self.upper_columns - block.min(self.upper_start_block);
        let shift = (start_slot % BLOCK_SLOTS) as u32;
        (0..columns).all(|column| {
            let mut product = self.segment(first + column) & (coefficients << shift);
            if shift > 0 {
                let next = self.segment(first + columns + column);
                product ^= next & (coefficients >> (BLOCK_SLOTS as u32 - shift));
            }
            product.count_ones() & 1 == expected >> column & 1
        })
    }

    fn segment(&self, index: usize) -> u128 {
        u128::from_le_bytes(self.segments[index])
    }
}

/// The seed that is mixed into hashes, computed from the stored ordinal seed (`StandardHasher::SetOrdinalSeed`).
fn raw_seed(ordinal: u8) -> u32 {
    let product = u64::from(ordinal).wrapping_mul(SEED_FACTOR);
    (product ^ (product & SEED_MIX_MASK) >> 4) as u32
}
