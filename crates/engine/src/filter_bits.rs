//! How many bits a key a filter policy has when the OPTIONS file does not say.
//!
//! A policy that was made through RocksDB's C API, which is how every binding makes it, is written to
//! the OPTIONS file as `bloomfilter` alone. The number then shows only in the sizes of the filters of
//! existing files: a filter of `n` keys is `ceil(n * millibits / 8000)` bytes rounded up to 64.

use rockmill_core::InputTable;
use rockmill_format::filter::{FilterKind, FilterReader, METADATA_LEN};

/// Filters grow in cache lines.
const LINE_BYTES: u64 = 64;

/// 8 bits a byte, 1000 thousandths a bit.
const MILLIBITS_PER_BYTE: u64 = 8000;

/// Policies are whole numbers of bits in practice; 10 is what RocksDB's documentation names.
const WHOLE: u64 = 1000;
const USUAL: u64 = 10_000;

/// Decimals to try, coarsest first, where no whole number fits.
const FRACTIONS: [u64; 4] = [500, 100, 10, 1];

/// What the inputs' filters say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inferred {
    /// Only this number fits, among whole numbers of bits or the roundest fraction.
    Certain(u32),
    /// Several whole numbers fit; this one is taken. The filters are small then.
    Likely(u32),
    /// Nothing fits, or no input has a filter to learn from.
    Unknown,
}

/// Size of a filter and the keys that went into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSample {
    /// Bytes of the filter's bits.
    pub bits_bytes: u64,
    /// Keys that were added.
    pub keys: u64,
}

/// The sample that an input gives, if it has a Bloom filter with a known number of keys.
pub fn sample(table: &InputTable, filter: &[u8]) -> Option<FilterSample> {
    let bloom = FilterReader::parse(filter).ok()?.kind() == FilterKind::Bloom;
    let keys = table.meta.properties.num_filter_entries;
    let bits_bytes = (filter.len() as u64).checked_sub(METADATA_LEN as u64)?;
    (bloom && keys > 0).then_some(FilterSample { bits_bytes, keys })
}

/// The number that fits all samples.
pub fn infer(samples: &[FilterSample]) -> Inferred {
    let Some((low, high)) = interval(samples) else {
        return Inferred::Unknown;
    };
    let whole_above = low.div_ceil(WHOLE) * WHOLE;
    let whole_below = high / WHOLE * WHOLE;
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    if whole_above == whole_below {
        return Inferred::Certain(narrow(whole_above));
    }
    if whole_above < whole_below {
        let usual = (whole_above..=whole_below).contains(&USUAL);
        return Inferred::Likely(narrow(if usual { USUAL } else { whole_below }));
    }
    let fraction = FRACTIONS.iter().find_map(|step| {
        let value = low.div_ceil(*step) * step;
        (value <= high).then_some(value)
    });
    fraction.map_or(Inferred::Unknown, |value| Inferred::Certain(narrow(value)))
}

/// Smallest and largest number of thousandths of a bit that give every sample its size.
fn interval(samples: &[FilterSample]) -> Option<(u64, u64)> {
    const LOWEST: u64 = 1000;
    const HIGHEST: u64 = 100_000;
    if samples.is_empty() {
        return None;
    }
    let (mut low, mut high) = (LOWEST, HIGHEST);
    for sample in samples {
        // bits_bytes - 64 < ceil(keys * m / 8000) <= bits_bytes
        let most = sample.bits_bytes.checked_mul(MILLIBITS_PER_BYTE)?;
        let least = sample.bits_bytes.checked_sub(LINE_BYTES)? * MILLIBITS_PER_BYTE;
        high = high.min(most / sample.keys);
        low = low.max(least / sample.keys + 1);
    }
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rockmill_format::filter::bloom::bits_len;

    fn sample(keys: u64, millibits: u32) -> FilterSample {
        FilterSample {
            bits_bytes: bits_len(keys, millibits),
            keys,
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_of_bits_are_found_in_filters_of_a_thousand_keys(
            keys in 1000u64..1_000_000,
            bits in 1u32..=100,
        ) {
            let found = infer(&[sample(keys, bits * 1000)]);
            prop_assert_eq!(found, Inferred::Certain(bits * 1000));
        }

        #[test]
        fn what_is_found_gives_the_same_sizes(
            keys in proptest::collection::vec(1u64..100_000, 1..5),
            millibits in 1000u32..=100_000,
        ) {
            let samples: Vec<_> = keys.iter().map(|&n| sample(n, millibits)).collect();
            let (Inferred::Certain(found) | Inferred::Likely(found)) = infer(&samples) else {
                return Err(TestCaseError::fail("one number fits"));
            };
            for (keys, given) in keys.iter().zip(&samples) {
                prop_assert_eq!(sample(*keys, found), *given);
            }
        }
    }

    #[test]
    fn tiny_filters_are_taken_for_the_usual_ten_bits() {
        assert_eq!(infer(&[sample(20, 10_000)]), Inferred::Likely(10_000));
    }

    #[test]
    fn filters_of_different_policies_fit_nothing() {
        let samples = [sample(5000, 10_000), sample(5000, 16_000)];
        assert_eq!(infer(&samples), Inferred::Unknown);
        assert_eq!(infer(&[]), Inferred::Unknown);
    }
}
