//! ZSTD frames of libzstd, sound and damaged, for one thread and for a warp.

use std::io::Write;

use ::zstd::bulk::Compressor;
use ::zstd::stream::Encoder;
use ::zstd::zstd_safe::CParameter;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use rockmill_codec::{ZstdError, zstd_decompress};

use crate::both_ways::{GUARD, config};
use crate::data::{Kind, block};
use crate::lanes;

/// Settings with which libzstd writes a frame.
#[derive(Debug, Clone)]
struct Settings {
    level: i32,
    has_size: bool,
    has_checksum: bool,
    /// Sometimes smaller than the content, so that blocks are smaller as well.
    window_log: Option<u32>,
    /// Ends of pieces of the content that become separate blocks.
    flushes: Vec<prop::sample::Index>,
}

fn settings() -> impl Strategy<Value = Settings> {
    let level = prop::sample::select(vec![-5, 1, 3, 6, 12, 19, 22]);
    let window_log = prop::option::weighted(0.25, 10_u32..18);
    let flushes = prop_oneof![
        3 => Just(vec![]),
        1 => prop::collection::vec(any::<prop::sample::Index>(), 1..8),
    ];
    (level, any::<bool>(), any::<bool>(), window_log, flushes).prop_map(
        |(level, has_size, has_checksum, window_log, flushes)| Settings {
            level,
            has_size,
            has_checksum,
            window_log,
            flushes,
        },
    )
}

/// Blocks of sizes of every order of magnitude; the highest levels are slow for large ones.
fn cases(most_bits: u32) -> impl Strategy<Value = (Settings, Kind, u64, usize)> {
    (
        settings(),
        prop::sample::select(Kind::ALL.to_vec()),
        any::<u64>(),
    )
        .prop_flat_map(move |(settings, kind, seed)| {
            let is_slow = settings.level >= 19 && seed % 16 != 0;
            let most_bits = if is_slow {
                most_bits.min(14)
            } else {
                most_bits
            };
            let len = (0..=most_bits).prop_flat_map(|bits| 0_usize..=1 << bits);
            len.prop_map(move |len| (settings.clone(), kind, seed, len))
        })
}

fn compress(settings: &Settings, content: &[u8]) -> Vec<u8> {
    let parameters = [
        Some(CParameter::ContentSizeFlag(settings.has_size)),
        Some(CParameter::ChecksumFlag(settings.has_checksum)),
        settings.window_log.map(CParameter::WindowLog),
    ];
    let parameters = parameters.into_iter().flatten();
    if settings.flushes.is_empty() {
        let mut compressor = Compressor::new(settings.level).expect("it has memory");
        for parameter in parameters {
            compressor
                .set_parameter(parameter)
                .expect("libzstd knows it");
        }
        return compressor.compress(content).expect("there is enough room");
    }
    let mut encoder = Encoder::new(Vec::new(), settings.level).expect("it has memory");
    for parameter in parameters {
        encoder.set_parameter(parameter).expect("libzstd knows it");
    }
    // Without it, high levels allocate memory for any size.
    let size = Some(content.len() as u64);
    encoder
        .set_pledged_src_size(size)
        .expect("nothing is written yet");
    let mut ends: Vec<_> = settings
        .flushes
        .iter()
        .map(|at| at.index(content.len() + 1))
        .collect();
    ends.sort_unstable();
    let mut from = 0;
    for end in ends {
        encoder
            .write_all(&content[from..end])
            .expect("there is enough room");
        encoder.flush().expect("there is enough room");
        from = end;
    }
    encoder
        .write_all(&content[from..])
        .expect("there is enough room");
    encoder.finish().expect("all is written")
}

/// Decompresses into memory of exactly the right size with guards around it, at any address.
pub fn decompress(frame: &[u8], len: usize) -> Result<Vec<u8>, ZstdError> {
    let shift = frame.len() % 8;
    let mut memory = [&GUARD[..], &vec![0; shift + len], &GUARD].concat();
    let start = GUARD.len() + shift;
    // In an allocation of its own size, so that a sanitizer finds reads behind it.
    let frame: Box<[u8]> = frame.into();
    let result = zstd_decompress(&frame, &mut memory[start..start + len]);
    assert!(memory.starts_with(&GUARD) && memory.ends_with(&GUARD));
    assert!(memory[GUARD.len()..start].iter().all(|&byte| byte == 0));
    result.map(|()| memory[start..start + len].to_vec())
}

/// The content that libzstd finds in a frame, if it has exactly `len` bytes.
pub fn by_library(frame: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len];
    let size = ::zstd::bulk::decompress_to_buffer(frame, &mut out).ok()?;
    (size == len).then_some(out)
}

#[derive(Debug, Clone)]
enum Damage {
    Flips(Vec<(prop::sample::Index, u8)>),
    /// The same among the first bytes, which describe the tables.
    EarlyFlips(Vec<(prop::sample::Index, u8)>),
    Truncation(prop::sample::Index),
    WrongSize(usize),
    /// Random bytes behind some sound ones.
    Random(prop::sample::Index, Vec<u8>),
    Appended(Vec<u8>),
}

fn damages() -> impl Strategy<Value = Damage> {
    let flips = || prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..5);
    let random = || prop::collection::vec(any::<u8>(), 1..400);
    prop_oneof![
        3 => flips().prop_map(Damage::Flips),
        3 => flips().prop_map(Damage::EarlyFlips),
        1 => any::<prop::sample::Index>().prop_map(Damage::Truncation),
        1 => prop_oneof![0_usize..100, 0_usize..300_000].prop_map(Damage::WrongSize),
        2 => (any::<prop::sample::Index>(), random()).prop_map(|(at, bytes)| Damage::Random(at, bytes)),
        1 => random().prop_map(Damage::Appended),
    ]
}

/// Applies the damage to a frame and the size that it should give.
fn damage(frame: &mut Vec<u8>, len: &mut usize, damage: Damage) {
    const EARLY: usize = 160;
    let early = frame.len().min(EARLY);
    let flip = |bytes: &mut [u8], flips: Vec<(prop::sample::Index, u8)>| {
        for (at, bit) in flips {
            *at.get_mut(bytes) ^= 1 << bit;
        }
    };
    match damage {
        Damage::Flips(flips) => flip(frame, flips),
        Damage::EarlyFlips(flips) => flip(&mut frame[..early], flips),
        Damage::Truncation(at) => frame.truncate(at.index(frame.len())),
        Damage::WrongSize(other) => *len = other,
        Damage::Random(at, bytes) => {
            frame.truncate(at.index(early));
            frame.extend(bytes);
        }
        Damage::Appended(bytes) => frame.extend(bytes),
    }
}

/// An accepted frame decompresses to what libzstd makes of it.
pub fn check_verdict(frame: &[u8], len: usize) -> TestCaseResult {
    if let Ok(out) = decompress(frame, len) {
        prop_assert_eq!(Some(out), by_library(frame, len));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn we_read_the_librarys_zstd((settings, kind, seed, len) in cases(18)) {
        let content = block(kind, seed, len);
        let frame = compress(&settings, &content);
        prop_assert!(decompress(&frame, len).is_ok_and(|out| out == content));
    }

    #[test]
    fn damaged_zstd_is_refused_or_the_librarys(
        (settings, kind, seed, len) in cases(16), how in prop::collection::vec(damages(), 1..3)
    ) {
        let mut len = len;
        let mut frame = compress(&settings, &block(kind, seed, len));
        for how in how {
            if !frame.is_empty() {
                damage(&mut frame, &mut len, how);
            }
        }
        check_verdict(&frame, len)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rockmill_testkit::machine::few_cases(400)))]

    #[test]
    fn a_warp_reads_the_same_zstd(
        (settings, kind, seed, len) in cases(15),
        is_reversed in any::<bool>(),
        how in prop::option::of(damages()),
    ) {
        let mut len = len;
        let mut frame = compress(&settings, &block(kind, seed, len));
        if let Some(how) = how {
            damage(&mut frame, &mut len, how);
        }
        let expected = decompress(&frame, len).ok();
        let mut out = vec![0; len];
        let is_sound = lanes::zstd_decompress(is_reversed, &frame, &mut out);
        prop_assert_eq!(is_sound.then_some(out), expected);
    }
}

/// Input that is not exactly one frame, or needs a dictionary.
#[test]
fn other_frames_are_refused() {
    let content = block(Kind::Json, 1, 10_000);
    let settings = Settings {
        level: 3,
        has_size: true,
        has_checksum: false,
        window_log: None,
        flushes: Vec::new(),
    };
    let frame = compress(&settings, &content);
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2];
    for several in [
        [&skippable[..], &frame],
        [&frame, &skippable],
        [&frame, &compress(&settings, &[])],
    ] {
        let several = several.concat();
        assert_eq!(by_library(&several, content.len()).as_ref(), Some(&content));
        assert_eq!(
            decompress(&several, content.len()),
            Err(ZstdError::Malformed)
        );
    }

    // The header of a frame with the content's size alone, and one byte for the dictionary's number.
    let mut numbered = frame;
    numbered[4] |= 1;
    numbered.insert(5, 7);
    assert_eq!(
        decompress(&numbered, content.len()),
        Err(ZstdError::Dictionary)
    );
    // A dictionary of bytes like the content's has no number.
    let mut compressor =
        Compressor::with_dictionary(3, &block(Kind::Json, 2, 4000)).expect("it has memory");
    let unnumbered = compressor.compress(&content).expect("there is enough room");
    assert_eq!(
        decompress(&unnumbered, content.len()),
        Err(ZstdError::Malformed)
    );
}
