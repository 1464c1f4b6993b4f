//! `open_table` and `RunReader` on hostile files: for any bytes, they end with entries in order or with an error that
//! names the file, and never panic.

use rockmill_testkit::cases as common;

use common::raw::{block_of, file_of_blocks};
use common::{Entry, FILE_NAME, PUT, config, open, plan};
use proptest::prelude::*;
use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, KeyRange, Plan};
use rockmill_cpu::decode::{Accepted, RunReader};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::coding::put_varint;
use rockmill_format::compression::{CompressionSettings, CompressionType};
use rockmill_format::footer::FOOTER_SIZE;
use rockmill_format::key::{ValueType, join, pack_tag};

/// More than any file here can have.
const MAX_ENTRIES: u64 = 10_000_000;

/// Reads a file of arbitrary bytes to its end.
fn survive(bytes: Vec<u8>) -> Result<Vec<Entry>, Error> {
    let table = open(bytes)?;
    let (range, cancel) = (KeyRange::default(), CancelToken::new());
    let mut run = RunReader::open(&table, &range, Accepted::Compacted, 200, &cancel)?;
    let mut entries: Vec<Entry> = Vec::new();
    while let Some(head) = run.head() {
        let entry = common::entry_of(&head);
        let kind = ValueType::from_code(entry.kind());
        assert!(kind.is_some_and(ValueType::compacts_alone));
        if let Some(before) = entries.last() {
            assert!(before.order() < entry.order(), "{before:?} {entry:?}");
        }
        entries.push(entry);
        run.advance()?;
        assert!(run.totals().entries <= MAX_ENTRIES);
    }
    assert_eq!(run.totals().entries, entries.len() as u64);
    assert_eq!(run.totals().hash, common::hash_sum(&entries));
    Ok(entries)
}

fn check(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    if let Err(error) = survive(bytes) {
        prop_assert_eq!(error.file.as_deref(), Some(FILE_NAME), "{}", &error);
        prop_assert!(error.offset.is_some(), "{error}");
        let kind = error.kind;
        let fits = matches!(kind, ErrorKind::Corruption | ErrorKind::Declined(_));
        prop_assert!(fits, "{error}");
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Damage {
    Byte(prop::sample::Index, u8),
    Bit(prop::sample::Index, u8),
    Number(prop::sample::Index, u64),
    Copy(prop::sample::Index, prop::sample::Index, usize),
    /// To the word at the end of a data block.
    BlockFooter(prop::sample::Index, u32),
}

fn damages() -> impl Strategy<Value = Damage> {
    use prop::sample::{Index, select};
    let numbers = vec![
        0,
        0x7f,
        0x80,
        0xffff,
        u64::from(u32::MAX),
        1 << 32,
        u64::MAX,
    ];
    let words = vec![
        1u32 << 28,
        1 << 29,
        1 << 30,
        1 << 31,
        9 << 28,
        1,
        2,
        3,
        0xff,
        0xfff_ffff,
    ];
    prop_oneof![
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        3 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Damage::Bit(at, bit)),
        2 => (any::<Index>(), select(numbers)).prop_map(|(at, n)| Damage::Number(at, n)),
        1 => (any::<Index>(), any::<Index>(), 1usize..60)
            .prop_map(|(from, to, len)| Damage::Copy(from, to, len)),
        2 => (any::<Index>(), select(words)).prop_map(|(at, word)| Damage::BlockFooter(at, word)),
    ]
}

/// Damages `bytes`, but not the part behind `end`. `blocks` are the ends of the data blocks' payloads.
fn apply(bytes: &mut [u8], end: usize, blocks: &[usize], damage: &Damage) {
    match damage {
        Damage::Byte(at, byte) => bytes[at.index(end)] = *byte,
        Damage::Bit(at, bit) => bytes[at.index(end)] ^= 1 << bit,
        Damage::Number(at, number) => {
            let mut varint = Vec::new();
            put_varint(&mut varint, *number);
            let at = at.index(end);
            let len = varint.len().min(end - at);
            bytes[at..at + len].copy_from_slice(&varint[..len]);
        }
        Damage::Copy(from, to, len) => {
            let (from, to) = (from.index(end), to.index(end));
            let len = (*len).min(end - from.max(to));
            bytes.copy_within(from..from + len, to);
        }
        Damage::BlockFooter(at, word) => {
            let at = at.get(blocks) - 4;
            for (byte, flipped) in bytes[at..at + 4].iter_mut().zip(word.to_le_bytes()) {
                *byte ^= flipped;
            }
        }
    }
}

fn unguarded_plans() -> impl Strategy<Value = Plan> {
    let kinds = prop_oneof![
        4 => Just(CompressionType::None),
        1 => prop::sample::select(CompressionType::ALL.to_vec()),
    ];
    let sizes = (
        1usize..5,
        1usize..4,
        prop::sample::select(vec![1u64, 100, 4096]),
    );
    (2u32..=8, kinds, sizes, any::<bool>()).prop_map(|(version, kind, sizes, common_prefix)| {
        let mut plan = plan();
        let table = &mut plan.output.table;
        table.checksum = ChecksumType::None;
        table.format_version = version;
        table.index.format_version = version;
        table.common_prefix = common_prefix && version >= 8;
        table.index.common_prefix = table.common_prefix;
        (
            table.restart_interval,
            table.index.restart_interval,
            table.block_size,
        ) = sizes;
        table.compression = CompressionSettings {
            kind,
            ..CompressionSettings::none()
        };
        plan
    })
}

/// Entries so small that damage hits their structure.
fn small_entries() -> impl Strategy<Value = Vec<Entry>> {
    let key = proptest::collection::vec(prop::sample::select(vec![0u8, b'a', 255]), 0..8);
    let entry = (key, 0u64..300, common::kinds(), 0usize..30);
    proptest::collection::vec(entry, 1..40).prop_map(|all| {
        let mut entries: Vec<_> = all
            .into_iter()
            .map(|(key, seq, kind, len)| Entry::new(&key, seq, kind, &vec![b'v'; len]))
            .collect();
        entries.sort_by_key(Entry::order);
        entries.dedup_by_key(|entry| entry.order());
        entries
    })
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn damaged_files_without_checksums_are_survived(
        plan in unguarded_plans(),
        entries in small_entries(),
        damages in proptest::collection::vec(damages(), 1..6),
        spare_footer in any::<bool>(),
        cut in prop_oneof![30 => Just(0usize), 1 => 1usize..300],
    ) {
        let mut bytes = common::one_file(&plan, &entries);
        let table = open(bytes.clone())?;
        let ends: Vec<_> = table
            .meta
            .index
            .iter()
            .map(|entry| (entry.handle.offset + entry.handle.size) as usize)
            .collect();
        // From format_version 6 on the footer has a checksum even if blocks have none.
        let spare = spare_footer || plan.output.table.format_version >= 6;
        let end = bytes.len() - if spare { FOOTER_SIZE } else { 0 };
        for damage in &damages {
            apply(&mut bytes, end, &ends, damage);
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        check(bytes)?;
    }

    #[test]
    fn blocks_of_any_bytes_are_survived(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..4),
        restarts in proptest::collection::vec(0u32..90, 0..3),
        flags in prop::sample::select(vec![0u32, 1 << 28, 1 << 29, 1 << 30, 1 << 31, 9 << 28]),
        kind in prop_oneof![4 => Just(0u8), 1 => 0u8..9],
        interval in prop::sample::select(vec![0u64, 1, 2, u64::MAX]),
    ) {
        let block = |payload: &Vec<u8>| {
            let mut block = payload.clone();
            for restart in &restarts {
                block.extend_from_slice(&restart.to_le_bytes());
            }
            if flags != 0 {
                block.extend_from_slice(&5u32.to_le_bytes());
            }
            let word = restarts.len() as u32 | flags;
            block.extend_from_slice(&word.to_le_bytes());
            block
        };
        let blocks: Vec<_> = payloads
            .iter()
            .enumerate()
            .map(|(i, payload)| (vec![i as u8], block(payload), kind))
            .collect();
        check(file_of_blocks(&blocks, interval))?;
    }

    #[test]
    fn entries_that_lie_about_sharing_are_survived(
        entries in proptest::collection::vec(
            (
                prop_oneof![3 => 0u32..20, 1 => any::<u32>()],
                proptest::collection::vec(prop::sample::select(vec![0u8, 1, 7, 255]), 0..14),
                proptest::collection::vec(any::<u8>(), 0..4),
            ),
            0..12,
        ),
        interval in 1usize..5,
        cut in 0usize..12,
    ) {
        let (first, second) = entries.split_at(cut.min(entries.len()));
        let blocks = [
            (b"a".to_vec(), block_of(first, interval), 0),
            (b"b".to_vec(), block_of(second, interval), 0),
        ];
        check(file_of_blocks(&blocks, interval as u64))?;
    }
}

/// An entry that shares nothing with the previous one.
fn full(key: &[u8], seq: u64, kind: u8, value: &[u8]) -> (u32, Vec<u8>, Vec<u8>) {
    (0, join(key, pack_tag(seq, kind)), value.to_vec())
}

fn one_block(entries: &[(u32, Vec<u8>, Vec<u8>)]) -> Result<Vec<Entry>, Error> {
    survive(file_of_blocks(
        &[(b"z".to_vec(), block_of(entries, 1), 0)],
        1,
    ))
}

#[test]
fn entries_of_other_types_are_declined() {
    for (kind, reason) in [
        (0x02, DeclineReason::MergeOperands),
        (0x0f, DeclineReason::RangeTombstones),
        (0x11, DeclineReason::BlobFiles),
        (0x14, DeclineReason::UserTimestamps),
    ] {
        let error = one_block(&[full(b"a", 9, PUT, b""), full(b"b", 9, kind, b"")])
            .expect_err("not handled");
        assert_eq!(error.kind, ErrorKind::Declined(reason));
        assert_eq!(
            (error.file.as_deref(), error.offset),
            (Some(FILE_NAME), Some(0))
        );
    }
}

#[test]
fn entries_that_cannot_be_are_corruption() {
    let good = full(b"b", 9, PUT, b"");
    let unknown = full(b"c", 9, 0x03, b"");
    let short = (0, b"1234567".to_vec(), Vec::new());
    let smaller = full(b"a", 9, PUT, b"");
    let newer = full(b"b", 10, PUT, b"");
    for bad in [unknown, short, smaller, newer, good.clone()] {
        let error = one_block(&[good.clone(), bad]).expect_err("corrupt");
        assert_eq!(error.kind, ErrorKind::Corruption, "{error}");
        assert_eq!(error.offset, Some(0));
    }
}

#[test]
fn order_holds_across_blocks() {
    let block = |key: &[u8]| block_of(&[full(key, 9, PUT, b"v")], 1);
    let blocks = [
        (b"x".to_vec(), block(b"b"), 0),
        (b"y".to_vec(), block(b"a"), 0),
    ];
    let error = survive(file_of_blocks(&blocks, 1)).expect_err("out of order");
    let second_at = block(b"b").len() as u64 + 5;
    assert_eq!(
        (error.kind, error.offset),
        (ErrorKind::Corruption, Some(second_at))
    );
}

#[test]
fn separated_keys_and_values_are_read() {
    let entries: Vec<_> = (0..7u8)
        .map(|i| Entry::new(&[b'k', i], 5, PUT, &vec![i; usize::from(i)]))
        .collect();
    const INTERVAL: usize = 3;
    let (mut block, mut restarts, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (i, entry) in entries.iter().enumerate() {
        let key = entry.internal_key();
        let shared = if i % INTERVAL == 0 { 0 } else { 1 };
        if shared == 0 {
            restarts.push(block.len() as u32);
        }
        for number in [shared, key.len() - shared, entry.value.len()] {
            put_varint(&mut block, number as u64);
        }
        if shared == 0 {
            put_varint(&mut block, values.len() as u64);
        }
        block.extend_from_slice(&key[shared..]);
        values.extend_from_slice(&entry.value);
    }
    let values_at = block.len() as u32;
    block.extend_from_slice(&values);
    for word in restarts
        .iter()
        .chain(&[values_at, restarts.len() as u32 | 1 << 28])
    {
        block.extend_from_slice(&word.to_le_bytes());
    }
    let file = file_of_blocks(&[(b"z".to_vec(), block, 0)], INTERVAL as u64);
    assert_eq!(survive(file).expect("reads"), entries);
}

#[test]
fn a_file_without_blocks_is_an_empty_run() {
    assert_eq!(survive(file_of_blocks(&[], 16)).expect("reads"), []);
    let empty = block_of(&[], 1);
    assert_eq!(
        survive(file_of_blocks(&[(b"a".to_vec(), empty, 0)], 16)).expect("reads"),
        []
    );
}

/// A megabyte of block whose restored keys take half a gigabyte.
#[test]
fn keys_that_share_too_much_are_refused() {
    const KEY_LEN: usize = 1 << 20;
    const ENTRIES: u32 = 512;
    let mut entries = vec![full(&vec![b'a'; KEY_LEN], 9, PUT, b"")];
    entries.extend((0..ENTRIES).map(|i| {
        (
            KEY_LEN as u32,
            join(&i.to_be_bytes(), pack_tag(9, PUT)),
            Vec::new(),
        )
    }));
    let block = block_of(&entries, entries.len());
    let table = open(file_of_blocks(&[(b"b".to_vec(), block, 0)], 16)).expect("opens");
    let (range, cancel) = (KeyRange::default(), CancelToken::new());
    let error =
        RunReader::open(&table, &range, Accepted::Compacted, 0, &cancel).expect_err("too large");
    assert_eq!(error.file.as_deref(), Some(FILE_NAME));
}
