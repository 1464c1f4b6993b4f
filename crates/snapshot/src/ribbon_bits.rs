//! Bits per key that explain the size of a Ribbon filter.
//!
//! A Ribbon policy takes "Bloom-equivalent" bits per key and aims at the false positive rate of a Bloom filter with
//! these bits (`filter_policy.cc:BloomLikeFilterPolicy`). It meets the rate with a mix of blocks with `c` and `c + 1`
//! columns, of 16 bytes each (`ribbon_impl.h:InternalGetBytesForFpRate`). So the mean number of columns gives the rate,
//! and the rate gives the bits.

use rockmill_format::filter::bloom::num_probes;

/// Slots of a block.
const BLOCK_SLOTS: f64 = 128.0;

/// Bytes of one column of a block.
pub const SEGMENT_BYTES: u64 = 16;

/// Bits of a Bloom filter's cache line.
const LINE_BITS: f64 = 512.0;

/// Thousandths of a bit per key to try: all values of a policy with up to two decimals.
const MILLIBITS: std::ops::RangeInclusive<u32> = 1000..=100_000;
const STEP: usize = 10;

/// Reads the number of blocks from a Ribbon filter's trailer: `fe`, the seed, and 24 bits.
pub fn blocks(filter: &[u8]) -> Option<u64> {
    let &[_, _, low, middle, high] = filter.last_chunk()?;
    Some(u64::from(u32::from_le_bytes([low, middle, high, 0])))
}

/// Returns the fewest and the most thousandths of a bit per key with which a filter of `blocks` blocks has `segments`
/// columns in total.
pub fn interval(blocks: u64, segments: u64) -> Option<(u64, u64)> {
    let mut fitting = MILLIBITS.step_by(STEP).filter(|&millibits| {
        let most = num_segments(millibits, blocks, 0.0);
        let least = num_segments(millibits, blocks, 1.0);
        (least..=most).contains(&segments)
    });
    let fewest = fitting.next()?;
    let most = fitting.last().unwrap_or(fewest);
    Some((u64::from(fewest), u64::from(most)))
}

/// Returns the number of columns in all blocks. `rounding`, from 0 to 1, is derived from the first key's hash and moves
/// the border between the two kinds of blocks by at most one.
fn num_segments(millibits: u32, blocks: u64, rounding: f64) -> u64 {
    let rate = false_positive_rate(millibits);
    let one_in = 1.0 / rate;
    let lower_columns = one_in.log2().floor();
    let lower_rate = (-lower_columns).exp2();
    let upper_rate = lower_rate / 2.0;
    let lower_portion = (rate - upper_rate) / (lower_rate - upper_rate);
    let starts = blocks as f64 * BLOCK_SLOTS - BLOCK_SLOTS + 1.0;
    let lower_blocks = ((lower_portion * starts + rounding) / BLOCK_SLOTS).floor();
    let columns = blocks as f64 * (lower_columns + 1.0) - lower_blocks;
    columns.max(0.0) as u64
}

/// False positive rate of a cache-local Bloom filter (`util/bloom_impl.h:CacheLocalFpRate`).
fn false_positive_rate(millibits: u32) -> f64 {
    const MILLI: f64 = 1000.0;
    let bits = f64::from(millibits) / MILLI;
    let probes = f64::from(num_probes(u64::from(millibits)));
    let standard = |bits: f64| (1.0 - (-probes / bits).exp()).powf(probes);
    let keys = LINE_BITS / bits;
    let deviation = keys.sqrt();
    let crowded = standard(LINE_BITS / (keys + deviation));
    let uncrowded = standard(LINE_BITS / (keys - deviation));
    f64::midpoint(crowded, uncrowded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_rocksdb_made_is_explained_by_its_policys_bits() {
        // 597 keys under `ribbonfilter:10`: 560 bytes in 5 blocks.
        let (fewest, most) = interval(5, 560 / SEGMENT_BYTES).expect("a policy fits");
        assert!((fewest..=most).contains(&10_000), "{fewest} to {most}");
    }

    #[test]
    fn large_filters_leave_little_doubt() {
        for bits in 2..=30 {
            for rounding in [0.0, 0.5, 1.0] {
                let segments = num_segments(bits * 1000, 1000, rounding);
                let (fewest, most) = interval(1000, segments).expect("a policy fits");
                let bits = u64::from(bits) * 1000;
                assert!(
                    fewest <= bits && bits <= most && most - fewest < 1000,
                    "{fewest} to {most}"
                );
            }
        }
    }
}
