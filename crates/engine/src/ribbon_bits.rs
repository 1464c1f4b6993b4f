//! Which numbers of bits a key explain the size of a Ribbon filter.
//!
//! A Ribbon policy of so many "Bloom-equivalent" bits a key aims at the false positive rate of such a
//! Bloom filter (`filter_policy.cc:BloomLikeFilterPolicy`). The rate is met by a mix of blocks with `c`
//! and `c + 1` columns, of 16 bytes each (`ribbon_impl.h:InternalGetBytesForFpRate`), so the mean number of
//! columns tells the rate, and the rate the bits.

use rockmill_format::filter::bloom::num_probes;

/// Slots of a block, and bytes of a column in it.
const BLOCK_SLOTS: f64 = 128.0;

/// Bits of a Bloom filter's cache line.
const LINE_BITS: f64 = 512.0;

/// Numbers of bits that a policy may have.
const BITS_PER_KEY: std::ops::RangeInclusive<u32> = 1..=100;

/// The whole numbers of bits a key for which a filter of `blocks` blocks has `segments` columns in all.
pub fn whole_bits(blocks: u64, segments: u64) -> impl Iterator<Item = u32> {
    BITS_PER_KEY.filter(move |&bits| {
        let most = num_segments(bits, blocks, 0.0);
        let least = num_segments(bits, blocks, 1.0);
        (least..=most).contains(&segments)
    })
}

/// Columns of all blocks. `rounding`, from 0 to 1, is drawn from the first key's hash, and moves the border
/// between the two kinds of blocks by at most one.
fn num_segments(bits: u32, blocks: u64, rounding: f64) -> u64 {
    let rate = false_positive_rate(f64::from(bits));
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
fn false_positive_rate(bits: f64) -> f64 {
    const MILLI: f64 = 1000.0;
    let probes = f64::from(num_probes((bits * MILLI) as u64));
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
    fn a_filter_that_rocksdb_made_is_explained_by_its_policys_bits_alone() {
        // 597 keys under `ribbonfilter:10`: 560 bytes behind 5 blocks.
        let found: Vec<_> = whole_bits(5, 560 / 16).collect();
        assert!(found.contains(&10), "{found:?}");
    }

    #[test]
    fn large_filters_leave_no_doubt() {
        for bits in 2..=30 {
            for rounding in [0.0, 0.5, 1.0] {
                let segments = num_segments(bits, 1000, rounding);
                assert_eq!(whole_bits(1000, segments).collect::<Vec<_>>(), [bits]);
            }
        }
    }
}
