//! Random keys, values and entries.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use rockmill_format::key;

use super::tables::{DELETE, Entry, PUT, SINGLE_DELETE, noise};

/// A proptest configuration whose failures are stored beside the test and tried again first; `ROCKMILL_CASES` or
/// `PROPTEST_CASES` overrides the number of cases and `PROPTEST_RNG_SEED` the seed.
pub fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    };
    let is_said = |variable| std::env::var_os(variable).is_some();
    if is_said("ROCKMILL_CASES") || !is_said("PROPTEST_CASES") {
        config.cases = crate::machine::few_cases(cases);
    }
    config
}

/// User keys up to 2 KiB: edge bytes, long shared prefixes, anything.
pub fn keys() -> impl Strategy<Value = Vec<u8>> {
    const LONGEST: usize = 2048;
    let edge = prop::sample::select(vec![0u8, 1, 0x7f, 0xfe, 0xff]);
    let long_prefix = (
        prop::sample::select(vec![1usize, 7, 8, 15, 16, 17, 120, 1000, LONGEST - 4]),
        proptest::collection::vec(edge.clone(), 0..4),
    );
    prop_oneof![
        4 => proptest::collection::vec(edge, 0..6),
        3 => long_prefix.prop_map(|(len, suffix)| {
            let mut key = vec![b'p'; len];
            key.extend(suffix);
            key
        }),
        2 => proptest::collection::vec(any::<u8>(), 0..24),
    ]
}

/// Values of 0 bytes to 64 KiB, some compressible.
pub fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        4 => (any::<u8>(), 0usize..700).prop_map(|(byte, len)| vec![byte; len]),
        2 => (any::<u64>(), 0usize..3000).prop_map(|(seed, len)| noise(seed, len)),
        1 => (any::<u8>(), 0usize..=65536).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// Kinds of entries that compactions handle.
pub fn kinds() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(PUT), 1 => Just(DELETE), 1 => Just(SINGLE_DELETE)]
}

/// Sorted entries of up to `max_keys` user keys, most with one version, some with many.
pub fn entries(max_keys: usize) -> impl Strategy<Value = Vec<Entry>> {
    let seq = prop_oneof![
        6 => 0u64..1000,
        1 => Just(key::MAX_SEQUENCE),
        1 => 0..=key::MAX_SEQUENCE,
    ];
    let version = || (seq.clone(), kinds(), values());
    let versions = prop_oneof![
        6 => proptest::collection::vec(version(), 1..2),
        2 => proptest::collection::vec(version(), 1..4),
        1 => proptest::collection::vec(version(), 1..24),
    ];
    proptest::collection::btree_map(keys(), versions, 1..max_keys).prop_map(|groups| {
        let mut out = Vec::new();
        for (key, mut versions) in groups {
            versions.sort_by_key(|&(seq, ..)| std::cmp::Reverse(seq));
            versions.dedup_by_key(|&mut (seq, ..)| seq);
            for (seq, kind, value) in versions {
                out.push(Entry::new(&key, seq, kind, &value));
            }
        }
        out
    })
}
