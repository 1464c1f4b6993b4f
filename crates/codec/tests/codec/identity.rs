//! The bytes that `lz4/rockmill-1`, `snappy/rockmill-1` and `zstd/rockmill-1` stand for. Jobs are stored with these
//! names and repeated elsewhere. So code that changes a byte is a new version, `rockmill-2`, and version 1 stays.

use rockmill_codec::Codec;
use twox_hash::{XxHash3_64, XxHash64};

use crate::compress;

#[test]
fn a_small_block_has_these_bytes() {
    let block = [
        b"abcabcabcabcabcabc 0123456789abcdef, then 0123456789abcdef again, and ".as_slice(),
        &[b'z'; 300],
        b" at last",
    ];
    let made = |codec| compress(codec, &block.concat()).escape_ascii().to_string();
    assert_eq!(
        made(Codec::Lz4),
        r";abc\x03\x00\xfd\x08 0123456789abcdef, then\x17\x00\xdf again, and z\x01\x00\xff\x19\x80 at last"
    );
    assert_eq!(
        made(Codec::Snappy),
        concat!(
            r"\xfa\x02\x08abc:\x03\x00X 0123456789abcdef, thenB\x17\x000 again, and z",
            r"\xfe\x01\x00\xfe\x01\x00\xfe\x01\x00\xfe\x01\x00\xaa\x01\x00\x1c at last"
        )
    );
}

/// Noise, runs and repetitions from at most `far` bytes back.
fn block(far: u64, len: usize) -> Vec<u8> {
    let mut block = Vec::new();
    for i in 0_u64.. {
        if block.len() >= len {
            break;
        }
        let random = XxHash64::oneshot(far, &i.to_le_bytes());
        let piece = 1 + (random >> 8) as usize % 60;
        match random % 4 {
            0 => block
                .extend((0..piece as u64).map(|at| XxHash64::oneshot(random, &[at as u8]) as u8)),
            1 => block.extend(std::iter::repeat_n(
                (random >> 16) as u8,
                piece * piece / 20,
            )),
            _ => {
                let back = 1 + (random >> 32) % far;
                let from = block.len().saturating_sub(back as usize);
                block.extend_from_within(from..block.len().min(from + piece));
            }
        }
    }
    block.truncate(len);
    block
}

#[test]
fn larger_blocks_have_these_hashes() {
    // The far end of a repetition, the size, and the hashes of the three compressed blocks.
    let golden: [(u64, usize, [u64; 3]); 12] = [
        (
            40,
            0,
            [
                0xc44b_dff4_074e_ecdb,
                0xc44b_dff4_074e_ecdb,
                0xe6fb_29dd_a2e7_a873,
            ],
        ),
        (
            40,
            1,
            [
                0xd93f_d677_b26c_9950,
                0xb7c3_54a8_6dd8_9467,
                0x69d6_16f4_b497_6879,
            ],
        ),
        (
            40,
            12,
            [
                0x0c30_2990_b216_c777,
                0x12da_8660_28e6_b7e0,
                0xace2_53b4_9e60_9f2c,
            ],
        ),
        (
            40,
            13,
            [
                0x866d_7150_fa21_ea1f,
                0x3eb1_ddf2_3993_da7a,
                0x18f2_eba6_cebe_7333,
            ],
        ),
        (
            40,
            100,
            [
                0x30b8_1990_519d_99ac,
                0x72f5_b2ac_3eb2_8792,
                0xff2c_4b3a_1f0f_816d,
            ],
        ),
        (
            4_000,
            4_096,
            [
                0x511c_1de2_668b_cc83,
                0x92e6_81bf_841e_0173,
                0x4bed_b637_83c5_4156,
            ],
        ),
        (
            4_000,
            16_384,
            [
                0x74b6_248b_ab5c_edcf,
                0xb3fa_2a0c_162c_8472,
                0x7344_0608_d95f_8ebe,
            ],
        ),
        (
            4_000,
            65_536,
            [
                0xf4e3_c34f_25c5_59d0,
                0x8759_f45b_a3b8_41cd,
                0x35a5_e53e_6ccf_a4ae,
            ],
        ),
        (
            70_000,
            65_537,
            [
                0xbdb9_4b7f_b9e2_7bf4,
                0x279a_e142_f26f_fa81,
                0x0779_01bb_9ada_d4b2,
            ],
        ),
        (
            70_000,
            262_144,
            [
                0x6f60_9beb_7ab9_f5b4,
                0xc5f6_5b7b_8ae0_eef2,
                0x9a0f_ce66_e11b_910f,
            ],
        ),
        (
            40,
            1_000_000,
            [
                0x2b55_971d_50df_44df,
                0x3e1c_d5f9_a3b1_7a11,
                0x7fcb_dbe8_1e43_36fa,
            ],
        ),
        (
            70_000,
            1_000_000,
            [
                0xdd9b_a493_9ab5_86f1,
                0x33a5_19d6_6bf0_d533,
                0x8378_660b_593f_ad98,
            ],
        ),
    ];
    let found = golden.map(|(far, len, _)| {
        let block = block(far, len);
        let hash = |codec| XxHash3_64::oneshot(&compress(codec, &block));
        (far, len, [Codec::Lz4, Codec::Snappy, Codec::Zstd].map(hash))
    });
    assert_eq!(found, golden);
}
