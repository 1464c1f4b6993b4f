//! A warp or a part of one has the results of a single thread: groups of 2 to 32 lanes, emulated (`lanes.cpp`).

use proptest::prelude::*;
use rockmill_codec::Codec;

use crate::data::{Kind, block};
use crate::{compress, library};

// Declares the code that is compiled for these tests.
unsafe extern "C" {
    fn rockmill_codec_lanes(
        width: u32,
        is_reversed: bool,
        codec: u32,
        decodes: bool,
        src: *const u8,
        n: u32,
        dst: *mut u8,
        m: u32,
    ) -> u32;
    fn rockmill_table_lanes(
        width: u32,
        is_reversed: bool,
        seed: u64,
        n: u32,
        hash_mask: u64,
    ) -> u32;
    fn rockmill_codec_zstd_lanes(
        is_reversed: bool,
        src: *const u8,
        n: u32,
        dst: *mut u8,
        m: u32,
    ) -> u32;
}

/// Whether a warp accepts the ZSTD frame.
pub fn zstd_decompress(is_reversed: bool, frame: &[u8], out: &mut [u8]) -> bool {
    let (n, m) = (frame.len() as u32, out.len() as u32);
    // SAFETY: the frame has `n` bytes, and the output `m`.
    unsafe { rockmill_codec_zstd_lanes(is_reversed, frame.as_ptr(), n, out.as_mut_ptr(), m) == 0 }
}

#[derive(Debug, Clone, Copy)]
struct Lanes {
    width: u32,
    /// Whether higher lanes run first.
    is_reversed: bool,
}

impl Lanes {
    fn run(self, codec: Codec, decodes: bool, src: &[u8], dst: &mut [u8]) -> u32 {
        let codec = match codec {
            Codec::Lz4 => 0,
            Codec::Snappy => 1,
            Codec::Zstd => 2,
        };
        let (n, m) = (src.len() as u32, dst.len() as u32);
        let (src, dst) = (src.as_ptr(), dst.as_mut_ptr());
        // SAFETY: source and target have the stated lengths.
        unsafe {
            let (width, is_reversed) = (self.width, self.is_reversed);
            rockmill_codec_lanes(width, is_reversed, codec, decodes, src, n, dst, m)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rockmill_testkit::machine::few_cases(400)))]

    #[test]
    fn groups_of_all_widths_place_keys_in_tables_and_find_them(
        width in prop::sample::select(vec![2, 4, 8, 16, 32]),
        is_reversed in any::<bool>(),
        seed in any::<u64>(),
        n in 1u32..50,
        // All bits of hashes, or so few that many hashes are equal.
        hash_mask in prop::sample::select(vec![u64::MAX, 7 << 61 | 1, 0]),
    ) {
        // SAFETY: takes numbers alone.
        let trouble = unsafe { rockmill_table_lanes(width, is_reversed, seed, n, hash_mask) };
        prop_assert_eq!(trouble, 0);
    }

    #[test]
    fn groups_of_all_widths_do_the_same(
        kind in prop::sample::select(Kind::ALL.to_vec()),
        seed in any::<u64>(),
        len in (0_u32..=14).prop_flat_map(|bits| 0_usize..=1 << bits),
        codec in prop::sample::select(vec![Codec::Lz4, Codec::Snappy, Codec::Zstd]),
        width in prop::sample::select(vec![2, 8, 32]),
        is_reversed in any::<bool>(),
        flip in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let lanes = Lanes { width, is_reversed };
        let block = block(kind, seed, len);
        let expected = compress(codec, &block);
        let mut made = vec![0; expected.len()];
        prop_assert_eq!(lanes.run(codec, false, &block, &mut made) as usize, expected.len());
        prop_assert!(made == expected);
        prop_assert_eq!(lanes.run(codec, false, &block, &mut made[1..]), 0);

        let mut payload = library::compress(codec, library::USUAL, &block);
        if let Some(at) = flip {
            *at.get_mut(&mut payload) ^= 1 << (seed % 8);
        }
        let (mut out, mut expected) = (vec![0; len], vec![0; len]);
        let is_sound = codec.decompress(&payload, &mut expected).is_ok();
        prop_assert_eq!(lanes.run(codec, true, &payload, &mut out) == 0, is_sound);
        prop_assert!(!is_sound || out == expected);
    }
}
