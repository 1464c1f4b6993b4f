//! Filters: queries of any payload, and no false negatives in built ones.

#![no_main]

use std::num::NonZeroU64;

use libfuzzer_sys::fuzz_target;
use rockmill_format::filter::{
    FilterBuilder, FilterFormat, FilterOptions, FilterPartition, FilterReader,
};
use rockmill_format::key;
use rockmill_format::prefix::PrefixExtractor;

/// Thousandths of a bit per key for one step of the first parameter.
const MILLIBITS_STEP: u32 = 400;

fuzz_target!(|input: &[u8]| {
    let Some((&[density, coding, in_partition], rest)) = input.split_first_chunk() else {
        return;
    };
    if let Ok(filter) = FilterReader::parse(rest) {
        for key in keys(rest) {
            let _ = filter.may_contain(key);
        }
    }
    let prefix_len = usize::from(coding >> 4 & 7);
    let options = FilterOptions {
        format: if coding & 0x80 == 0 {
            FilterFormat::FastLocalBloom
        } else {
            FilterFormat::Legacy
        },
        millibits_per_key: u32::from(density) * MILLIBITS_STEP,
        whole_key_filtering: coding & 1 != 0,
        prefix_extractor: match coding & 6 {
            0 => None,
            2 => Some(PrefixExtractor::Fixed(prefix_len)),
            _ => Some(PrefixExtractor::Capped(prefix_len)),
        },
        optimize_filters_for_memory: coding & 8 != 0,
        hashes_per_partition: NonZeroU64::new(in_partition.into()),
    };
    check_no_false_negative(options, rest);
});

/// Keys of 0 to 15 bytes, each behind its length.
fn keys(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&len, rest) = bytes.split_first()?;
        let (key, rest) = rest.split_at(rest.len().min(usize::from(len % 16)));
        bytes = rest;
        Some(key)
    })
}

/// A file has its keys in order.
fn check_no_false_negative(options: FilterOptions, bytes: &[u8]) {
    let mut keys: Vec<_> = keys(bytes).collect();
    keys.sort_unstable();
    let mut builder = FilterBuilder::new(options);
    keys.iter().for_each(|key| builder.add(key));
    let parts: Vec<(Option<FilterPartition>, _)> = match options.hashes_per_partition {
        Some(_) => {
            let parts = builder.finish_partitions().into_iter();
            parts.map(|(end, payload)| (Some(end), payload)).collect()
        }
        None => Vec::from_iter(builder.finish().map(|payload| (None, payload))),
    };
    if parts.is_empty() {
        return;
    }
    let parts: Vec<_> = parts
        .iter()
        .map(|(end, payload)| {
            let filter = FilterReader::parse(payload).expect("our own filter");
            (end.as_ref(), filter)
        })
        .collect();
    // `partitioned_filter_block.cc:GetFilterPartitionHandle`.
    let may_contain = |key: &[u8]| {
        let ends_before = |end: &FilterPartition| {
            let (last, _) = key::split(&end.last_key).expect("an internal key");
            last < key
        };
        let at = parts.partition_point(|(end, _)| end.is_some_and(ends_before));
        parts[at.min(parts.len() - 1)].1.may_contain(key)
    };
    for key in keys {
        assert!(!options.whole_key_filtering || may_contain(key));
        if let Some(prefix) = options.prefix_extractor.and_then(|e| e.transform(key)) {
            assert!(may_contain(prefix));
        }
    }
}
