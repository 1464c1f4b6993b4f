//! All implementations compute the same function.

use proptest::prelude::*;
use rockmill_codec::xxh3::xxh3;
use rockmill_testkit::machine::skipped;
use twox_hash::XxHash3_64;

/// Without AVX-512, the tests below compare the library with itself. `ROCKMILL_TEST_AVX512` in the environment makes
/// that a failure.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_widest_form_is_what_is_tested_where_it_has_to_be() {
    let is_wide = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512dq");
    if !is_wide {
        skipped("no AVX-512 here: its form of XXH3 is not tested");
    }
    assert!(is_wide || std::env::var_os("ROCKMILL_TEST_AVX512").is_none());
}

/// Bytes in which all stripes differ.
fn bytes(len: usize) -> Vec<u8> {
    let word = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24).to_le_bytes();
    (0..len as u64).map(|i| word(i)[0]).collect()
}

#[test]
fn every_length_of_some_blocks_hashes_as_the_library_does() {
    let bytes = bytes(5_000);
    for len in 0..=bytes.len() {
        let bytes = &bytes[..len];
        assert_eq!(xxh3(bytes), XxHash3_64::oneshot(bytes), "{len} bytes");
    }
}

/// The expected hashes are those of `XXH3_64bits` of the reference implementation (`xxhsum -H3`).
#[test]
fn hashes_are_those_of_the_reference_implementation() {
    assert_eq!(xxh3(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(xxh3(&[b'a'; 4096]), 0x88a3_0670_e919_701e);
}

proptest! {
    #[test]
    fn any_bytes_at_any_address_hash_as_the_library_does(
        bytes in prop::collection::vec(any::<u8>(), 0..9_000), from in 0_usize..64
    ) {
        let bytes = &bytes[from.min(bytes.len())..];
        prop_assert_eq!(xxh3(bytes), XxHash3_64::oneshot(bytes));
    }
}
