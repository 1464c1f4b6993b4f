//! Filters of keys whose hashes collide.

use proptest::prelude::*;
use rockmill_core::KeyRange;
use rockmill_cpu::CpuBackend;
use rockmill_format::filter::{FilterFormat, FilterOptions, legacy};
use rockmill_format::prefix::PrefixExtractor;

use super::{compact, device, difference, essence};
use crate::common::{self, Entry, config, open};

/// The four bytes that take a legacy hash from `state` to `target`.
fn word_between(state: u32, target: u32) -> [u8; 4] {
    /// Inverse of the multiplier of `legacy::bloom_hash`, modulo 2^32.
    const INVERSE: u32 = 0xd819_8e9b;
    let product = target ^ target >> 16;
    product
        .wrapping_mul(INVERSE)
        .wrapping_sub(state)
        .to_le_bytes()
}

/// Keys for which everything that a legacy filter hashes, prefixes of four bytes and whole keys, has one of few hashes.
fn colliding_keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let hash = || prop::sample::select(vec![1u32, 2, 3, 0x8000_0000]);
    let key = (hash(), hash(), 0u8..4).prop_map(|(first, second, form)| {
        let start = |len: u32| 0xbc9f_1d34 ^ len.wrapping_mul(0xc6a4_a793);
        // The hash of the first word as a prefix starts from another value than as a part of the key.
        let mut key = word_between(start(4), first).to_vec();
        if form > 0 {
            let word = u32::from_le_bytes([key[0], key[1], key[2], key[3]]);
            let state = start(8).wrapping_add(word).wrapping_mul(0xc6a4_a793);
            key.extend(word_between(state ^ state >> 16, second));
            assert_eq!(legacy::bloom_hash(&key), second);
        }
        assert_eq!(legacy::bloom_hash(&key[..4]), first);
        key
    });
    proptest::collection::vec(key, 1..40)
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn hashes_that_collide_go_into_filters_as_on_the_cpu(
        keys in colliding_keys(),
        versions in 1u64..4,
        whole_key_filtering: bool,
        extractor in prop::sample::select(vec![
            PrefixExtractor::Capped(4),
            PrefixExtractor::Fixed(4),
            PrefixExtractor::Fixed(5),
        ]),
        file_size in prop::sample::select(vec![200u64, 100_000]),
    ) {
        let mut entries: Vec<_> = (1..=versions)
            .flat_map(|seq| keys.iter().map(move |key| Entry::new(key, seq, common::PUT, b"v")))
            .collect();
        entries.sort_by_key(Entry::order);
        entries.dedup_by_key(|entry| entry.internal_key());
        let inputs = [open(common::one_file(&common::plan(), &entries))?];
        let mut plan = common::plan();
        plan.output.splitting = common::splitting(file_size);
        plan.rules.snapshots = (1..versions).collect();
        plan.output.table.filter = Some(FilterOptions {
            format: FilterFormat::Legacy,
            millibits_per_key: 10_000,
            whole_key_filtering,
            prefix_extractor: Some(extractor),
            optimize_filters_for_memory: false,
            hashes_per_partition: None,
        });
        let range = KeyRange::default();
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range)?;
        let (found_report, found) = compact(device(), &inputs, &plan, &range)?;
        prop_assert_eq!(difference(&files, &found), None);
        prop_assert_eq!(essence(&report), essence(&found_report));
    }
}
