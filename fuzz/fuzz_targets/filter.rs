//! Filters: queries of any payload, and no false negatives in built ones.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_format::filter::{FilterBuilder, FilterFormat, FilterOptions, FilterReader};
use rockmill_format::prefix::PrefixExtractor;

/// Thousandths of a bit per key for one step of the first parameter.
const MILLIBITS_STEP: u32 = 400;

fuzz_target!(|input: &[u8]| {
    let Some((&[density, coding], rest)) = input.split_first_chunk() else {
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
        hashes_per_partition: None,
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

fn check_no_false_negative(options: FilterOptions, bytes: &[u8]) {
    let mut builder = FilterBuilder::new(options);
    for key in keys(bytes) {
        builder.add(key);
    }
    let Some(payload) = builder.finish() else {
        return;
    };
    let filter = FilterReader::parse(&payload).expect("our own filter");
    for key in keys(bytes) {
        assert!(!options.whole_key_filtering || filter.may_contain(key));
        if let Some(prefix) = options.prefix_extractor.and_then(|e| e.transform(key)) {
            assert!(filter.may_contain(prefix));
        }
    }
}
