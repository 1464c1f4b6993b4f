//! Filters compared with those of RocksDB 11.12's `filter_policy.cc` and `full_filter_block.cc` over the same keys.

use super::*;
use crate::error::ErrorKind;
use crate::prefix::PrefixExtractor;
use crate::xxph3::hash64;
use proptest::prelude::*;

/// Keys `100000..200000` are in no filter. The number of them that a filter accepts is a fingerprint of all its bits.
const ABSENT: std::ops::Range<usize> = 100_000..200_000;

pub(super) fn key(i: usize) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn options(millibits_per_key: u32) -> FilterOptions {
    FilterOptions {
        optimize_filters_for_memory: true,
        ..FilterOptions::whole_keys(millibits_per_key)
    }
}

pub(super) fn millibits(bits: &str) -> u32 {
    let policy = FilterPolicy::parse(&format!("bloomfilter:{bits}:false"));
    policy.unwrap().unwrap().millibits_per_key
}

fn false_positives(reader: &FilterReader<'_>) -> usize {
    ABSENT.filter(|&i| reader.may_contain(&key(i))).count()
}

pub(super) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .trim()
        .chars()
        .map(|c| c.to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

#[test]
fn bloom_payloads_are_rocksdbs_bit_for_bit() {
    // Keys (each added twice), bits per key, optimize_filters_for_memory; payload length, probes, XXPH3 of the payload.
    for (keys, bits, optimize, len, probes, hash) in [
        (1, "10", true, 69, 24, 0x0976_dae1_b9ef_5bcd),
        (4, "10", true, 69, 24, 0xe5ca_af35_bc99_2b3f),
        (97, "10", true, 133, 7, 0x2551_545b_25a8_6acd),
        (97, "10", false, 133, 6, 0xdae7_6efd_a4f1_c9b1),
        (2999, "10", true, 3781, 7, 0x8bf1_7b23_0471_f82c),
        (2999, "10", false, 3781, 6, 0x12c6_cba0_b04e_f95a),
        (500, "15.5", false, 1029, 9, 0x1856_9b88_7b5c_f469),
        (500, "0.7", false, 69, 1, 0x9e87_c54f_d379_701d),
        (500, "1", true, 69, 1, 0x9e87_c54f_d379_701d),
        (300, "99", false, 3781, 24, 0x8004_8f19_561e_543e),
        (300, "200", true, 3781, 24, 0x8004_8f19_561e_543e),
        (1000, "30", false, 3781, 13, 0x2dd1_93c6_0024_29df),
        (1000, "50", false, 6277, 23, 0x00dd_e308_0c18_45fc),
        (1000, "50.001", false, 6277, 24, 0x2256_5d15_af9b_439a),
        (1000, "2.08", false, 325, 1, 0x4484_41fd_5c7a_b097),
        (1000, "2.081", false, 325, 2, 0x7567_6565_838b_154b),
        (20000, "23.456", true, 58693, 12, 0x3cf8_8c94_71af_57e7),
    ] {
        let mut builder = FilterBuilder::new(FilterOptions {
            optimize_filters_for_memory: optimize,
            ..options(millibits(bits))
        });
        for i in 0..keys {
            builder.add(&key(i));
            builder.add(&key(i));
        }
        assert_eq!(builder.num_added(), keys as u64);
        let payload = builder.finish().unwrap();
        assert_eq!(
            (payload.len(), payload[payload.len() - 3]),
            (len, probes),
            "{keys} {bits}"
        );
        assert_eq!(
            hash64(&payload),
            hash,
            "{keys} keys, {bits} bits, optimize {optimize}"
        );
    }
}

#[test]
fn prefixes_and_keys_are_deduplicated_as_in_rocksdb() {
    // whole_key_filtering, prefix length; hashes, payload length, XXPH3 of the payload.
    for (whole, len, added, payload_len, hash) in [
        (false, 0, 1, 69, 0x44a8_08a9_3d05_aceb),
        (false, 7, 30, 69, 0x4628_462a_be0b_e31b),
        (false, 8, 300, 389, 0xcebf_6b0f_d3d8_9824),
        (false, 9, 3000, 3781, 0x820e_36de_a5af_f62b),
        (false, 10, 600, 773, 0x9af6_d3b2_bb7d_ec23),
        (true, 0, 4601, 5765, 0xa45f_5cd3_d768_e4f7),
        (true, 7, 4630, 5829, 0xd44e_7b00_4e61_31c3),
        (true, 8, 3900, 4933, 0x53ec_1cef_fb44_84f5),
        (true, 9, 4600, 5765, 0xcb93_6a61_bfad_7f4f),
        (true, 10, 4600, 5765, 0xcb93_6a61_bfad_7f4f),
    ] {
        let mut builder = FilterBuilder::new(FilterOptions {
            whole_key_filtering: whole,
            prefix_extractor: Some(PrefixExtractor::Fixed(len)),
            ..options(10_000)
        });
        for i in 0..3000 {
            let key = key(i);
            if i % 3 == 0 {
                builder.add(&key[..8]);
            }
            builder.add(&key);
            if i % 5 == 0 {
                builder.add(&[&key[..], b"x"].concat());
            }
        }
        assert_eq!(
            builder.num_added(),
            added,
            "whole keys {whole}, prefix {len}"
        );
        let payload = builder.finish().unwrap();
        assert_eq!(
            (payload.len(), hash64(&payload)),
            (payload_len, hash),
            "{whole} {len}"
        );
    }
}

#[test]
fn four_keys_give_the_filter_of_a_real_file() {
    let mut builder = FilterBuilder::new(options(10_000));
    for user_key in [
        "user00000000",
        "user00000007",
        "user00000014",
        "user00000021",
    ] {
        builder.add(user_key.as_bytes());
    }
    let payload = builder.finish().unwrap();
    assert_eq!(payload.len(), 64 + METADATA_LEN);
    assert_eq!(payload[64..], [0xff, 0x00, 0x18, 0x00, 0x00]);
    assert_eq!(hash64(&payload), 0x4d8d_b342_61f6_e4c8);
}

#[test]
fn nothing_added_means_no_filter() {
    assert_eq!(FilterBuilder::new(options(10_000)).finish(), None);
    let mut no_bits = FilterBuilder::new(options(0));
    no_bits.add(b"key");
    assert_eq!(no_bits.finish(), None);
    let mut out_of_domain = FilterBuilder::new(FilterOptions {
        whole_key_filtering: false,
        prefix_extractor: Some(PrefixExtractor::Fixed(4)),
        ..options(10_000)
    });
    out_of_domain.add(b"key");
    assert_eq!(
        (out_of_domain.num_added(), out_of_domain.finish()),
        (0, None)
    );
}

#[test]
fn lengths_are_capped_below_four_gib() {
    const CAP: u64 = 0xffff_ffc0;
    assert_eq!(bloom::bits_len(0, 10_000), 0);
    assert_eq!(bloom::bits_len(1, 1000), 64);
    assert_eq!(bloom::bits_len(512, 1000), 64);
    assert_eq!(bloom::bits_len(513, 1000), 128);
    assert_eq!(bloom::bits_len(3_435_973_785, 10_000), CAP);
    assert_eq!(bloom::bits_len(u64::MAX, 100_000), CAP);
}

#[test]
fn probes_follow_the_table_at_its_edges() {
    for (millibits, probes) in [
        (0, 1),
        (2080, 1),
        (2081, 2),
        (10_000, 6),
        (10_070, 6),
        (10_071, 7),
        (14_001, 8),
        (25_501, 12),
        (25_502, 11),
        (28_000, 12),
        (28_001, 13),
        (50_000, 23),
        (50_001, 24),
        (512_000, 24),
    ] {
        assert_eq!(bloom::num_probes(millibits), probes, "{millibits}");
    }
}

#[test]
fn a_ribbon_filter_answers_as_in_rocksdb() {
    let payload = unhex(include_str!("ribbon_400_keys.hex"));
    let reader = FilterReader::parse(&payload).unwrap();
    assert_eq!(reader.kind(), FilterKind::Ribbon);
    assert!((0..400).all(|i| reader.may_contain(&key(i))));
    assert_eq!(false_positives(&reader), 792);
}

#[test]
fn a_legacy_filter_answers_as_in_rocksdb() {
    let payload = unhex(include_str!("legacy_60_keys.hex"));
    let reader = FilterReader::parse(&payload).unwrap();
    assert_eq!(reader.kind(), FilterKind::Legacy);
    assert_eq!(
        reader.legacy_layout(),
        Some(LegacyLayout {
            line_len: 64,
            num_probes: payload[payload.len() - METADATA_LEN],
        })
    );
    assert!((0..60).all(|i| reader.may_contain(&key(i))));
    assert_eq!(false_positives(&reader), 77);
}

#[test]
fn the_metadata_decide_what_a_filter_is() {
    let with =
        |bits: usize, metadata: [u8; METADATA_LEN]| [vec![0; bits], metadata.to_vec()].concat();
    for (payload, kind) in [
        (vec![], FilterKind::AlwaysFalse),
        (vec![0xff, 0, 6, 0, 0], FilterKind::AlwaysFalse),
        (vec![0; 6], FilterKind::AlwaysTrue),
        (with(64, [0xff, 0, 6, 0, 0]), FilterKind::Bloom),
        (with(64, [0xff, 0, 30, 0, 0]), FilterKind::Bloom),
        (with(64, [0xff, 0, 31, 0, 0]), FilterKind::AlwaysTrue),
        (with(64, [0xff, 0, 0, 0, 0]), FilterKind::AlwaysTrue),
        (with(64, [0xff, 0, 0x26, 0, 0]), FilterKind::AlwaysTrue),
        (with(64, [0xff, 1, 6, 0, 0]), FilterKind::AlwaysTrue),
        (with(64, [0xff, 0, 6, 1, 0]), FilterKind::AlwaysTrue),
        (with(64, [0xfe, 0, 2, 0, 0]), FilterKind::Ribbon),
        (with(64, [0xfe, 0, 1, 0, 0]), FilterKind::AlwaysTrue),
        (with(64, [0xfd, 0, 0, 0, 0]), FilterKind::AlwaysTrue),
        (with(64, [6, 1, 0, 0, 0]), FilterKind::Legacy),
        (with(96, [6, 3, 0, 0, 0]), FilterKind::Legacy),
        (with(96, [6, 2, 0, 0, 0]), FilterKind::AlwaysTrue),
        (with(96, [6, 0, 0, 0, 0]), FilterKind::AlwaysTrue),
    ] {
        let reader = FilterReader::parse(&payload).unwrap();
        assert_eq!(reader.kind(), kind, "{payload:?}");
        match kind {
            FilterKind::AlwaysTrue => assert!(reader.may_contain(b"key")),
            _ => assert!(!reader.may_contain(b"key"), "{payload:?} has no bits"),
        }
    }
    let short = with(63, [0xff, 0, 6, 0, 0]);
    assert_eq!(
        FilterReader::parse(&short).unwrap_err().kind,
        ErrorKind::Corruption
    );
}

prop_compose! {
    fn any_options()(
        millibits_per_key in 1000u32..=100_000,
        whole_key_filtering: bool,
        prefix in prop::option::of(0usize..6),
        capped: bool,
        legacy: bool,
        optimize_filters_for_memory: bool,
    ) -> FilterOptions {
        let extractor = if capped { PrefixExtractor::Capped } else { PrefixExtractor::Fixed };
        FilterOptions {
            format: if legacy { FilterFormat::Legacy } else { FilterFormat::FastLocalBloom },
            millibits_per_key,
            whole_key_filtering,
            prefix_extractor: prefix.map(extractor),
            optimize_filters_for_memory,
            hashes_per_partition: None,
        }
    }
}

proptest! {
    #[test]
    fn hashes_are_the_same_where_all_but_the_last_are_forgotten(
        keys in prop::collection::vec((prop::collection::vec(0u8..3, 0..8), any::<bool>()), 0..100),
        options in any_options(),
    ) {
        let (mut whole, mut parts) = (FilterBuilder::new(options), FilterBuilder::new(options));
        let (mut hashes, mut kept) = (Vec::new(), 0);
        for (key, forgets) in &keys {
            whole.add(key);
            parts.add(key);
            if *forgets {
                hashes.extend_from_slice(&parts.hashes()[kept..]);
                kept = parts.forget();
            }
        }
        hashes.extend_from_slice(&parts.hashes()[kept..]);
        prop_assert_eq!(&hashes[..], whole.hashes());
    }

    #[test]
    fn a_filter_never_misses_what_was_added(
        keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..12), 1..200),
        options in any_options(),
    ) {
        let mut builder = FilterBuilder::new(options);
        keys.iter().for_each(|key| builder.add(key));
        let payload = builder.finish().unwrap_or_default();
        let reader = FilterReader::parse(&payload)?;
        for key in &keys {
            prop_assert!(!options.whole_key_filtering || reader.may_contain(key));
            let prefix = options.prefix_extractor.and_then(|extractor| extractor.transform(key));
            prop_assert!(prefix.is_none_or(|prefix| reader.may_contain(prefix)));
        }
    }

    #[test]
    fn reading_is_total(
        bits in prop::collection::vec(any::<u8>(), 0..700),
        marker in prop_oneof![Just(0xffu8), Just(0xfe), any::<u8>()],
        rest in prop_oneof![
            Just([0, 7, 0, 0]),
            (any::<u8>(), 0u8..60).prop_map(|(a, b)| [a, b, 0, 0]),
            any::<[u8; 4]>(),
        ],
        key: Vec<u8>,
    ) {
        let payload = [&bits[..], &[marker], &rest].concat();
        if let Ok(reader) = FilterReader::parse(&payload) {
            let _ = reader.may_contain(&key);
        }
    }
}
