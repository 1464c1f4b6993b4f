//! Legacy filters compared with those of RocksDB 11.12 over the same keys.

use super::legacy::{LINE_LEN, bits_len, num_probes, whole_bits_per_key};
use super::tests::{key, millibits, unhex};
use super::*;
use crate::prefix::PrefixExtractor;
use crate::xxph3::hash64;

/// The keys of a vector. Some are shorter than the others, and outside of a prefix's domain or equal to the prefix.
/// Some occur twice, and some have the same prefix as the previous key.
fn fill(builder: &mut FilterBuilder, n: usize) {
    for i in 1..=n {
        let key = key(i);
        if i % 3 == 0 {
            builder.add(&key[..8]);
        }
        builder.add(&key);
        builder.add(&key);
        if i % 5 == 0 {
            builder.add(&[&key[..], b"x"].concat());
        }
    }
}

#[test]
fn legacy_payloads_are_rocksdbs_bit_for_bit() {
    let lines = include_str!("legacy_vectors.txt").lines();
    let vectors: Vec<_> = lines.filter(|line| !line.starts_with('#')).collect();
    assert_eq!(vectors.len(), 67);
    for vector in vectors {
        let fields: Vec<_> = vector.split(' ').collect();
        let mut builder = FilterBuilder::new(FilterOptions {
            format: FilterFormat::of(PolicyKind::Bloom, 4),
            millibits_per_key: millibits(fields[1]),
            whole_key_filtering: fields[2] == "1",
            prefix_extractor: fields[3].parse().ok().map(PrefixExtractor::Fixed),
            optimize_filters_for_memory: true,
            hashes_per_partition: None,
        });
        fill(&mut builder, fields[0].parse().unwrap());
        assert_eq!(builder.num_added(), fields[4].parse().unwrap(), "{vector}");
        let payload = builder.finish().unwrap();
        assert_eq!(payload.len(), fields[5].parse().unwrap(), "{vector}");
        if let Some(hex) = fields.get(7) {
            assert_eq!(payload, unhex(hex), "{vector}");
        }
        assert_eq!(format!("{:016x}", hash64(&payload)), fields[6], "{vector}");
        let reader = FilterReader::parse(&payload).unwrap();
        assert_eq!(reader.kind(), FilterKind::Legacy, "{vector}");
    }
}

#[test]
fn the_policy_and_the_version_choose_the_format() {
    let ribbon = PolicyKind::Ribbon {
        bloom_before_level: 2,
    };
    for (policy, version, format) in [
        (PolicyKind::Bloom, 2, FilterFormat::Legacy),
        (PolicyKind::Bloom, 4, FilterFormat::Legacy),
        (PolicyKind::Bloom, 5, FilterFormat::FastLocalBloom),
        (PolicyKind::Bloom, 8, FilterFormat::FastLocalBloom),
        (ribbon, 2, FilterFormat::FastLocalBloom),
        (ribbon, 7, FilterFormat::FastLocalBloom),
    ] {
        assert_eq!(
            FilterFormat::of(policy, version),
            format,
            "{policy:?} {version}"
        );
    }
}

#[test]
fn lengths_are_an_odd_number_of_lines_and_capped() {
    /// `0xffff_0000` bits, up to the next odd number of lines.
    const CAP: u64 = 0x1fff_e040;
    for (hashes, bits, len) in [
        (0, 10, 0),
        (1, 1, 64),
        (512, 1, 64),
        (513, 1, 192),
        (1536, 1, 192),
        (1537, 1, 320),
        // Above the cap, as a number of bits and as an `int`.
        (0xffff_0000 / 10 + 1, 10, CAP),
        (0x7fff_ffff, 1, 0x1000_0040),
        (0x8000_0000, 1, CAP),
        (u64::MAX, 100, CAP),
    ] {
        assert_eq!(bits_len(hashes, bits, LINE_LEN), len, "{hashes} {bits}");
    }
    assert_eq!(bits_len(1025, 1, 128), 3 * 128);
}

#[test]
fn bits_are_rounded_and_probes_are_bounded() {
    for (millibits, bits) in [
        (1000, 1),
        (1499, 1),
        (1500, 2),
        (10_499, 10),
        (99_500, 100),
        (100_000, 100),
        (u32::MAX, 100),
    ] {
        assert_eq!(whole_bits_per_key(millibits), bits, "{millibits}");
    }
    for (bits, probes) in [
        (1, 1),
        (2, 1),
        (3, 2),
        (10, 6),
        (16, 11),
        (43, 29),
        (44, 30),
        (100, 30),
    ] {
        assert_eq!(num_probes(bits), probes, "{bits}");
    }
}
