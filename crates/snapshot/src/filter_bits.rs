//! Infers a filter policy's bits per key if the OPTIONS file does not have them.
//!
//! Every language binding creates policies through RocksDB's C API. The OPTIONS file names such a policy `bloomfilter`,
//! without its bits. The number then shows only in the filter sizes of existing files:
//!
//! * A FastLocalBloom filter of `n` keys has `ceil(n * millibits / 8000)` bytes, rounded up to 64.
//! * A legacy filter has `n * whole bits`, rounded up to an odd number of lines.
//! * For Ribbon see `ribbon_bits`.
//!
//! If the format_version or the policy of a database changed, one policy has made several kinds of filters. So samples
//! of all kinds are combined.

use rockmill_core::{FilterPart, InputTable};
use rockmill_format::filter::{FilterKind, FilterReader, LegacyLayout, METADATA_LEN, legacy};

use crate::ribbon_bits;

/// FastLocalBloom filters grow in cache lines.
const LINE_BYTES: u64 = 64;

/// 8 bits per byte, 1000 thousandths per bit.
const MILLIBITS_PER_BYTE: u64 = 8000;

/// Range of a policy's bits per key, in thousandths.
const LOWEST: u64 = 1000;
const HIGHEST: u64 = 100_000;

/// In practice, policies have whole numbers of bits. RocksDB's documentation recommends 10.
const WHOLE: u64 = 1000;
const USUAL: u64 = 10_000;

/// Fractions to try if no whole number fits, coarsest first.
const FRACTIONS: [u64; 4] = [500, 100, 10, 1];

/// Bits per key inferred from the inputs' filters, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inferred {
    /// Only this number fits, among whole numbers of bits or the roundest fractions.
    Certain(u32),
    /// Several whole numbers fit, and this one is used. Only small filters are ambiguous.
    Likely(u32),
    /// No number fits, or no input has a filter to infer from.
    Unknown,
}

/// Kinds of filters whose size gives the bits per key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleKind {
    /// FastLocalBloom.
    FastLocalBloom,
    /// The Bloom filter of format_version below 5.
    Legacy(LegacyLayout),
    /// Ribbon.
    Ribbon {
        /// Number of blocks of 128 slots.
        blocks: u64,
    },
}

/// Size of a filter and its number of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSample {
    /// Kind of the filter.
    pub kind: SampleKind,
    /// Size of the filter's bits in bytes.
    pub bits_bytes: u64,
    /// Number of keys that were added.
    pub keys: u64,
    /// Number of partitions, whose sizes are summed up.
    pub partitions: u64,
}

/// Returns the sample of an input, if it has a Bloom or Ribbon filter with a known number of keys.
pub fn sample(table: &InputTable, parts: &[FilterPart]) -> Option<FilterSample> {
    let kinds = parts.iter().map(|part| {
        let reader = FilterReader::parse(&part.payload).ok()?;
        Some(match reader.kind() {
            FilterKind::Bloom => SampleKind::FastLocalBloom,
            FilterKind::Ribbon => SampleKind::Ribbon {
                blocks: ribbon_bits::blocks(&part.payload)?,
            },
            _ => SampleKind::Legacy(reader.legacy_layout()?),
        })
    });
    let kinds = kinds.collect::<Option<Vec<_>>>()?;
    let kind = *kinds.first()?;
    // The keys of each partition are not known, and only the sizes of this kind add up.
    let adds_up = |kind| kind == SampleKind::FastLocalBloom;
    if kinds.len() > 1 && !kinds.into_iter().all(adds_up) {
        return None;
    }
    let keys = table.meta.properties.num_filter_entries;
    let bits_bytes = parts.iter().map(|part| {
        let len = part.payload.len() as u64;
        len.checked_sub(METADATA_LEN as u64)
    });
    let bits_bytes = bits_bytes.sum::<Option<u64>>()?;
    (keys > 0).then_some(FilterSample {
        kind,
        bits_bytes,
        keys,
        partitions: parts.len() as u64,
    })
}

/// Returns the bits per key that fit all samples.
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

/// Returns the smallest and largest number of thousandths of a bit that give every sample its size.
fn interval(samples: &[FilterSample]) -> Option<(u64, u64)> {
    if samples.is_empty() {
        return None;
    }
    let (mut low, mut high) = (LOWEST, HIGHEST);
    for sample in samples {
        let (least, most) = match sample.kind {
            SampleKind::FastLocalBloom => fast_local_interval(sample)?,
            SampleKind::Legacy(layout) => legacy_interval(sample, layout)?,
            SampleKind::Ribbon { blocks } => {
                ribbon_bits::interval(blocks, sample.bits_bytes / ribbon_bits::SEGMENT_BYTES)?
            }
        };
        (low, high) = (low.max(least), high.min(most));
    }
    (low <= high).then_some((low, high))
}

/// Solves `bits_bytes - 64 < ceil(keys * m / 8000) <= bits_bytes`, which holds for each partition, so that the sums hold
/// with 64 for each.
fn fast_local_interval(sample: &FilterSample) -> Option<(u64, u64)> {
    let most = sample.bits_bytes.checked_mul(MILLIBITS_PER_BYTE)?;
    let lines = LINE_BYTES.checked_mul(sample.partitions)?;
    let least = sample
        .bits_bytes
        .checked_sub(lines)?
        .checked_mul(MILLIBITS_PER_BYTE)?;
    Some((least / sample.keys + 1, most / sample.keys))
}

/// Returns the thousandths that round to the whole numbers of bits with the sample's size and probes. Size and probes
/// grow monotonically with the bits, so these numbers form one interval.
fn legacy_interval(sample: &FilterSample, layout: LegacyLayout) -> Option<(u64, u64)> {
    const MAX_BITS: u32 = (HIGHEST / WHOLE) as u32;
    const HALF: u64 = WHOLE / 2;
    let fits = |&bits: &u32| {
        legacy::bits_len(sample.keys, bits, layout.line_len) == sample.bits_bytes
            && legacy::num_probes(bits) == u32::from(layout.num_probes)
    };
    let fewest = u64::from((1..=MAX_BITS).find(fits)?);
    let most = u64::from((1..=MAX_BITS).rfind(fits)?);
    Some((fewest * WHOLE - HALF, most * WHOLE + HALF - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rockmill_format::filter::bloom;

    fn sample(keys: u64, millibits: u32) -> FilterSample {
        FilterSample {
            kind: SampleKind::FastLocalBloom,
            bits_bytes: bloom::bits_len(keys, millibits),
            keys,
            partitions: 1,
        }
    }

    fn legacy_sample(keys: u64, millibits: u32, line_len: usize) -> FilterSample {
        let bits = legacy::whole_bits_per_key(millibits);
        FilterSample {
            kind: SampleKind::Legacy(LegacyLayout {
                line_len,
                num_probes: legacy::num_probes(bits) as u8,
            }),
            bits_bytes: legacy::bits_len(keys, bits, line_len),
            keys,
            partitions: 1,
        }
    }

    /// Makes a sample of the same kind with the same number of keys.
    fn sample_like(given: &FilterSample, millibits: u32) -> FilterSample {
        match given.kind {
            SampleKind::FastLocalBloom => sample(given.keys, millibits),
            SampleKind::Legacy(layout) => legacy_sample(given.keys, millibits, layout.line_len),
            SampleKind::Ribbon { .. } => unreachable!("ribbon_bits has tests of its own"),
        }
    }

    /// Kinds of filters: `None` is FastLocalBloom, else the legacy filter's line length.
    fn kinds() -> impl Strategy<Value = Option<usize>> {
        prop::sample::select(vec![None, Some(64), Some(128)])
    }

    fn sample_of(kind: Option<usize>, keys: u64, millibits: u32) -> FilterSample {
        kind.map_or_else(
            || sample(keys, millibits),
            |line_len| legacy_sample(keys, millibits, line_len),
        )
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

        // Lengths grow in steps of two lines, which are at most 2048 bits here.
        #[test]
        fn whole_numbers_of_bits_are_found_in_legacy_filters_of_some_thousand_keys(
            keys in 2049u64..1_000_000,
            bits in 1u32..=100,
            line_len in prop::sample::select(vec![64usize, 128]),
        ) {
            let found = infer(&[legacy_sample(keys, bits * 1000, line_len)]);
            prop_assert_eq!(found, Inferred::Certain(bits * 1000));
        }

        #[test]
        fn what_is_found_gives_the_same_sizes(
            filters in prop::collection::vec((kinds(), 1u64..100_000), 1..5),
            millibits in 1000u32..=100_000,
        ) {
            let samples: Vec<_> = filters
                .iter()
                .map(|&(kind, keys)| sample_of(kind, keys, millibits))
                .collect();
            let (Inferred::Certain(found) | Inferred::Likely(found)) = infer(&samples) else {
                return Err(TestCaseError::fail("one number fits"));
            };
            for given in &samples {
                prop_assert_eq!(sample_like(given, found), *given);
            }
        }

        #[test]
        fn one_kind_narrows_what_the_other_leaves_open(
            small in 1u64..100,
            large in 3000u64..100_000,
            bits in 1u32..=100,
            legacy_is_large: bool,
        ) {
            let millibits = bits * 1000;
            let (fast, legacy) = if legacy_is_large { (small, large) } else { (large, small) };
            let samples = [sample(fast, millibits), legacy_sample(legacy, millibits, 64)];
            prop_assert_eq!(infer(&samples), Inferred::Certain(millibits));
        }

        #[test]
        fn inference_is_total(
            bits_bytes: u64,
            keys in 1u64..,
            line_log2 in 0u32..32,
            num_probes in 1u8..=127,
            partitions in 1u64..,
        ) {
            let kind = SampleKind::Legacy(LegacyLayout { line_len: 1 << line_log2, num_probes });
            let _ = infer(&[FilterSample { kind, bits_bytes, keys, partitions: 1 }]);
            let kind = SampleKind::FastLocalBloom;
            let _ = infer(&[FilterSample { kind, bits_bytes, keys, partitions }]);
        }

        // Partitions have 4 KiB by default.
        #[test]
        fn whole_numbers_of_bits_are_found_in_partitions_of_four_kib(
            keys in 100_000u64..1_000_000,
            bits in 2u32..=50,
            last in 1u64..40,
        ) {
            let millibits = bits * 1000;
            let in_each = bloom::hashes_in(4096, millibits);
            let whole = keys / in_each;
            let all = sample(in_each, millibits).bits_bytes * whole + sample(last, millibits).bits_bytes;
            let of_partitions = FilterSample {
                kind: SampleKind::FastLocalBloom,
                bits_bytes: all,
                keys: whole * in_each + last,
                partitions: whole + 1,
            };
            prop_assert_eq!(infer(&[of_partitions]), Inferred::Certain(millibits));
        }
    }

    #[test]
    fn tiny_filters_are_taken_for_the_usual_ten_bits() {
        assert_eq!(infer(&[sample(20, 10_000)]), Inferred::Likely(10_000));
        let legacy = legacy_sample(20, 10_000, 64);
        assert_eq!(infer(&[legacy]), Inferred::Likely(10_000));
    }

    #[test]
    fn the_probes_of_a_tiny_legacy_filter_tell_its_bits() {
        // One line holds any of these filters, but only 11 bits have 7 probes; 12 and 13 have 8.
        assert_eq!(
            infer(&[legacy_sample(1, 11_000, 64)]),
            Inferred::Certain(11_000)
        );
        assert_eq!(
            infer(&[legacy_sample(1, 12_000, 64)]),
            Inferred::Likely(13_000)
        );
    }

    #[test]
    fn filters_of_different_policies_fit_nothing() {
        let samples = [sample(5000, 10_000), sample(5000, 16_000)];
        assert_eq!(infer(&samples), Inferred::Unknown);
        let samples = [sample(5000, 10_000), legacy_sample(5000, 16_000, 64)];
        assert_eq!(infer(&samples), Inferred::Unknown);
        assert_eq!(infer(&[]), Inferred::Unknown);
    }
}
