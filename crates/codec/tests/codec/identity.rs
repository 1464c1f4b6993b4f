//! The bytes that `lz4/rockmill-1` and `snappy/rockmill-1` stand for. Jobs are stored with these names and repeated
//! elsewhere, so code that changes a byte here is `rockmill-2` and stands beside version 1.

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
    // The far end of a repetition, the size, then the hashes of what the block becomes.
    let golden: [(u64, usize, u64, u64); 12] = [
        (40, 0, 0xc44b_dff4_074e_ecdb, 0xc44b_dff4_074e_ecdb),
        (40, 1, 0xd93f_d677_b26c_9950, 0xb7c3_54a8_6dd8_9467),
        (40, 12, 0x0c30_2990_b216_c777, 0x12da_8660_28e6_b7e0),
        (40, 13, 0x866d_7150_fa21_ea1f, 0x3eb1_ddf2_3993_da7a),
        (40, 100, 0x30b8_1990_519d_99ac, 0x72f5_b2ac_3eb2_8792),
        (4_000, 4_096, 0x74a1_2cfd_b18a_272b, 0x1db9_4b4b_6aa2_99fc),
        (4_000, 16_384, 0x0365_fb34_952b_3eca, 0xf8db_2ee2_56b3_51d7),
        (4_000, 65_536, 0xfdfc_ce85_ab5c_40d7, 0xa001_fb03_474d_a840),
        (70_000, 65_537, 0x5f9a_0f84_88e1_febd, 0x24c5_6d3f_5383_14c1),
        (
            70_000,
            262_144,
            0xe947_d16a_49be_0de3,
            0xf5af_ff36_f952_c68d,
        ),
        (40, 1_000_000, 0xf5b4_6789_d7ea_8158, 0x9d5f_56de_824f_cc21),
        (
            70_000,
            1_000_000,
            0x2eb3_62a9_5e9e_d320,
            0xa267_fa4f_3a89_6b41,
        ),
    ];
    let found = golden.map(|(far, len, ..)| {
        let block = block(far, len);
        let [lz4, snappy] =
            [Codec::Lz4, Codec::Snappy].map(|codec| XxHash3_64::oneshot(&compress(codec, &block)));
        (far, len, lz4, snappy)
    });
    assert_eq!(found, golden);
}
