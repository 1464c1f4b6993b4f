//! Both directions against liblz4 and the snap crate, on sound input of all sizes and on damaged input.

use std::mem::MaybeUninit;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use rockmill_codec::{Codec, Malformed};
use rockmill_testkit::machine::few_cases;

use crate::compress;
use crate::data::{Kind, block};
use crate::library::{self, Effort, breaks_a_rule};

/// Bytes around a target that must stay unchanged.
pub const GUARD: [u8; 16] = *b"nothing goes in!";

pub fn config() -> ProptestConfig {
    // The snap crate is slow without optimization.
    let usual = if cfg!(debug_assertions) { 500 } else { 10_000 };
    ProptestConfig {
        cases: few_cases(usual),
        ..ProptestConfig::default()
    }
}

/// Kind, seed and size of a block; sizes of every order of magnitude.
fn blocks() -> impl Strategy<Value = (Kind, u64, usize)> {
    let sizes = (0_u32..=18).prop_flat_map(|bits| 0_usize..=1 << bits);
    let kinds = prop::sample::select(Kind::ALL.to_vec());
    (kinds, any::<u64>(), sizes)
}

fn efforts() -> impl Strategy<Value = Effort> {
    prop_oneof![
        prop::sample::select(vec![1, 2, 8, 64, 1000]).prop_map(Effort::Fast),
        prop::sample::select(vec![2, 4, 9, 12]).prop_map(Effort::High),
    ]
}

/// Decompresses into memory of exactly the right size with guards around it.
fn decompress(codec: Codec, payload: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    let mut memory = [&GUARD[..], &vec![0; len], &GUARD].concat();
    // In an allocation of its own size, so that a sanitizer finds reads behind it.
    let payload: Box<[u8]> = payload.into();
    let result = codec.decompress(&payload, &mut memory[GUARD.len()..][..len]);
    let (before, rest) = memory.split_at(GUARD.len());
    let (out, behind) = rest.split_at(len);
    assert_eq!((before, behind), (&GUARD[..], &GUARD[..]));
    result.map(|()| out.to_vec())
}

fn check_ours(codec: Codec, (kind, seed, len): (Kind, u64, usize)) -> TestCaseResult {
    let block = block(kind, seed, len).into_boxed_slice();
    let made = compress(codec, &block);
    prop_assert!(library::decompress(codec, &made, len).is_some_and(|out| *out == *block));
    prop_assert!(decompress(codec, &made, len).is_ok_and(|out| *out == *block));

    // Appends to other bytes, with exactly enough capacity.
    let mut out = GUARD.to_vec();
    prop_assert!(codec.compress(&block, &mut out, made.len()));
    prop_assert!(out == [&GUARD[..], &made].concat());

    // Too small capacities: one byte less, or any.
    for room in [made.len() - 1, seed as usize % made.len()] {
        let mut out = vec![0xa5; made.len() + GUARD.len()];
        out.clear();
        prop_assert!(!codec.compress(&block, &mut out, room));
        prop_assert!(out.is_empty());
        // SAFETY: all of the vector was written to before it was cleared.
        let is_untouched = |byte: &MaybeUninit<u8>| unsafe { byte.assume_init() } == 0xa5;
        prop_assert!(out.spare_capacity_mut()[room..].iter().all(is_untouched));
    }
    Ok(())
}

fn check_theirs(
    codec: Codec,
    effort: Effort,
    (kind, seed, len): (Kind, u64, usize),
) -> TestCaseResult {
    let block = block(kind, seed, len);
    let made = library::compress(codec, effort, &block);
    prop_assert!(decompress(codec, &made, len).is_ok_and(|out| out == block));
    Ok(())
}

#[derive(Debug, Clone)]
enum Damage {
    Flips(Vec<(prop::sample::Index, u8)>),
    Truncation(prop::sample::Index),
    WrongSize(usize),
    /// A different payload, behind Snappy's size.
    Random(Vec<u8>),
    /// A payload of sequences, with a size that they have or nearly have.
    Sequences(Vec<Sequence>, isize),
}

/// Literals and a match.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    literals: u8,
    offset: u16,
    length: u8,
}

impl Sequence {
    fn put(self, codec: Codec, payload: &mut Vec<u8>, has_match: bool) {
        let literals = &[b'a'; u8::MAX as usize][..usize::from(self.literals)];
        let offset = self.offset.to_le_bytes();
        if codec == Codec::Snappy {
            if let Some(less_one) = self.literals.checked_sub(1) {
                payload.extend([60 << 2, less_one]);
                payload.extend(literals);
            }
            if has_match {
                payload.extend([(self.length % 64) << 2 | 2, offset[0], offset[1]]);
            }
            return;
        }
        let length = self.length.saturating_sub(4);
        payload.push(self.literals.min(15) << 4 | length.min(15));
        payload.extend(self.literals.checked_sub(15));
        payload.extend(literals);
        if has_match {
            payload.extend(offset);
            payload.extend(length.checked_sub(15));
        }
    }

    fn len(self, codec: Codec, has_match: bool) -> usize {
        let length = if codec == Codec::Snappy {
            self.length % 64 + 1
        } else {
            self.length.max(4)
        };
        usize::from(self.literals) + if has_match { usize::from(length) } else { 0 }
    }
}

/// A payload of sequences, the last one without its match. The stated size is `more` bytes above the true one.
fn put_all(codec: Codec, sequences: &[Sequence], more: isize) -> (Vec<u8>, usize) {
    let last = sequences.len() - 1;
    let lens = sequences.iter().enumerate();
    let whole: usize = lens
        .map(|(i, sequence)| sequence.len(codec, i < last))
        .sum();
    let len = whole.saturating_add_signed(more);
    let mut payload = snappy_size(codec, len);
    for (i, sequence) in sequences.iter().enumerate() {
        sequence.put(codec, &mut payload, i < last);
    }
    (payload, len)
}

fn sequences() -> impl Strategy<Value = Sequence> {
    let literals = prop_oneof![0_u8..20, 0_u8..=254];
    let offset = prop_oneof![0_u16..4, 0_u16..40, any::<u16>()];
    let length = prop_oneof![4_u8..20, 4_u8..=254];
    (literals, offset, length).prop_map(|(literals, offset, length)| Sequence {
        literals,
        offset,
        length,
    })
}

fn damages() -> impl Strategy<Value = Damage> {
    let flips = prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..5);
    // Few literals, so that the bytes behind them matter too.
    let bytes = prop_oneof![0_u8..16, any::<u8>()];
    prop_oneof![
        flips.prop_map(Damage::Flips),
        any::<prop::sample::Index>().prop_map(Damage::Truncation),
        prop_oneof![0_usize..100, 0_usize..100_000].prop_map(Damage::WrongSize),
        prop::collection::vec(bytes, 0..400).prop_map(Damage::Random),
        (
            prop::collection::vec(sequences(), 1..4),
            prop_oneof![Just(0), -2_isize..3]
        )
            .prop_map(|(sequences, more)| Damage::Sequences(sequences, more)),
    ]
}

/// The prefix of a Snappy payload of a small block; empty for LZ4.
fn snappy_size(codec: Codec, len: usize) -> Vec<u8> {
    if codec == Codec::Snappy {
        vec![len as u8 | 0x80, (len >> 7) as u8]
    } else {
        Vec::new()
    }
}

/// Compares with the library's verdict and bytes, except for LZ4's rules that liblz4 does not always enforce.
fn check_damaged(
    codec: Codec,
    effort: Effort,
    (kind, seed, len): (Kind, u64, usize),
    damage: Damage,
) -> TestCaseResult {
    let mut payload = library::compress(codec, effort, &block(kind, seed, len));
    let mut len = len;
    match damage {
        Damage::Flips(flips) => {
            for (at, bit) in flips {
                *at.get_mut(&mut payload) ^= 1 << bit;
            }
        }
        Damage::Truncation(at) => payload.truncate(at.index(payload.len())),
        Damage::WrongSize(other) => len = other,
        Damage::Random(bytes) => {
            len %= 1 << 12;
            payload = [snappy_size(codec, len), bytes].concat();
        }
        Damage::Sequences(sequences, more) => (payload, len) = put_all(codec, &sequences, more),
    }
    let ours = decompress(codec, &payload, len).ok();
    let theirs = library::decompress(codec, &payload, len);
    if ours.is_none() && theirs.is_some() && codec == Codec::Lz4 {
        prop_assert!(breaks_a_rule(&payload, len));
    } else {
        prop_assert!(ours == theirs);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_library_reads_our_lz4(block in blocks()) {
        check_ours(Codec::Lz4, block)?;
    }

    #[test]
    fn the_library_reads_our_snappy(block in blocks()) {
        check_ours(Codec::Snappy, block)?;
    }

    #[test]
    fn the_library_reads_our_zstd(block in blocks()) {
        check_ours(Codec::Zstd, block)?;
    }

    #[test]
    fn we_read_the_librarys_lz4(block in blocks(), effort in efforts()) {
        check_theirs(Codec::Lz4, effort, block)?;
    }

    #[test]
    fn we_read_the_librarys_snappy(block in blocks()) {
        check_theirs(Codec::Snappy, library::USUAL, block)?;
    }

    #[test]
    fn damaged_lz4_is_judged_as_the_library_does(
        block in blocks(), effort in efforts(), damage in damages()
    ) {
        check_damaged(Codec::Lz4, effort, block, damage)?;
    }

    #[test]
    fn damaged_snappy_is_judged_as_the_library_does(block in blocks(), damage in damages()) {
        check_damaged(Codec::Snappy, library::USUAL, block, damage)?;
    }
}

/// Within 3 % of the library for typical contents of databases.
#[test]
fn blocks_are_about_as_small_as_the_librarys() {
    for codec in [Codec::Lz4, Codec::Snappy, Codec::Zstd] {
        let more = if codec == Codec::Zstd {
            &Kind::RANDOM_KEYS[..]
        } else {
            &[]
        };
        for &kind in Kind::USUAL.iter().chain(more) {
            for len in [4 << 10, 16 << 10, 32 << 10] {
                let blocks = (0..(4 << 20) / len as u64).map(|seed| block(kind, seed, len));
                let (ours, theirs) = blocks.fold((0, 0), |(ours, theirs), block| {
                    let theirs_now = library::compress(codec, library::USUAL, &block).len();
                    (ours + compress(codec, &block).len(), theirs + theirs_now)
                });
                let ratio = ours as f64 / theirs as f64;
                println!("{codec:?} {kind:?} {len}: {ratio:.4}");
                assert!(ratio < 1.03, "{codec:?} {kind:?} {len}: {ratio}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_in_32_bits_is_refused() {
    // Snappy's size, a literal's length of 2^32, a copy from 2^32 - 1 bytes back.
    let payloads: [&[u8]; 4] = [
        &[0x81, 0x80, 0x80, 0x80, 0x10, 0, b'a'],
        &[0x81, 0x80, 0x80, 0x80, 0x80, 0, 0, b'a'],
        &[1, 63 << 2, 0xff, 0xff, 0xff, 0xff, 0, b'a'],
        &[5, 0, b'a', 3 << 2 | 3, 0xff, 0xff, 0xff, 0xff],
    ];
    for payload in payloads {
        for len in [0, 1, 5] {
            assert_eq!(decompress(Codec::Snappy, payload, len), Err(Malformed));
        }
    }
    // A length of 14 and 2^32, of literals and of a match.
    let long = [vec![255; u32::MAX as usize / 255], vec![0]].concat();
    let literals = [&[0xf0], &*long, &[b'a'; 14]].concat();
    assert_eq!(decompress(Codec::Lz4, &literals, 14), Err(Malformed));
    let matched = [&[0x1f, b'a', 1, 0], &*long, &[0x50], &[b'a'; 5]].concat();
    assert_eq!(decompress(Codec::Lz4, &matched, 1 + 18 + 5), Err(Malformed));
}

/// With an offset below 8, liblz4 always checks how far from the end a match begins and ends.
#[test]
fn every_end_of_a_block_is_judged_as_the_library_does() {
    for codec in [Codec::Lz4, Codec::Snappy] {
        for (length, literals) in (4..20).flat_map(|a| (0..20).map(move |b| (a, b))) {
            let [first, last] = [(1, length), (literals, 0)].map(|(literals, length)| Sequence {
                literals,
                offset: 1,
                length,
            });
            let (payload, len) = put_all(codec, &[first, last], 0);
            let ours = decompress(codec, &payload, len).ok();
            let theirs = library::decompress(codec, &payload, len);
            assert_eq!(ours, theirs, "{codec:?} {length} {literals}");
        }
    }
}

#[test]
fn what_only_liblz4_takes_is_refused() {
    let sequence = |literals, offset, length| Sequence {
        literals,
        offset,
        length,
    };
    let zero_offset = [sequence(34, 0, 4), sequence(30, 0, 0)].to_vec();
    let late_match = [sequence(34, 1, 4), sequence(14, 8, 15), sequence(3, 0, 0)].to_vec();
    for sequences in [zero_offset, late_match] {
        let (payload, len) = put_all(Codec::Lz4, &sequences, 0);
        assert!(library::decompress(Codec::Lz4, &payload, len).is_some());
        assert_eq!(decompress(Codec::Lz4, &payload, len), Err(Malformed));
    }
}
