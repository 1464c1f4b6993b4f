//! The GPU backend writes the CPU backend's files and reports.

pub mod cases;
mod damage;
mod filters;

use std::sync::Arc;
use std::time::Instant;

use cases::{
    COMPRESSIONS, LEVELS, deeper_files, fragments, grandparents, mergings, plans, runs, tables,
    tombstones, with_operands,
};
use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, DeeperLevels, Error, ErrorKind, Fragments, Grandparent, InputTable,
    KeyRange, Merging, OutputSplitting, Plan, ReadReport, Support, TaskReport, Unsupported,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings};
use rockmill_format::block::{BlockBuilder, BlockLayout};
use rockmill_format::coding::put_varint;
use rockmill_format::compression::{CompressionType, DictionarySettings};
use rockmill_format::index::IndexPartitions;
use rockmill_format::key::KeyOrder;
use rockmill_format::prefix::{CustomPrefixes, Prefixes};
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::table::TableMeta;

use super::{device, target};
use crate::common::{self, Entry, MemOutput, config, open};

fn compact(
    backend: &impl Backend,
    inputs: &[InputTable],
    plan: &Plan,
    range: &KeyRange,
) -> Result<(TaskReport, Vec<MemOutput>), Error> {
    common::compact(backend, inputs, plan, range, &CancelToken::new())
}

/// A report without the fields that depend on the device.
fn essence(report: &TaskReport) -> String {
    let read = ReadReport {
        bytes: 0,
        cached_bytes: 0,
        ..report.read.clone()
    };
    format!("{read:#?} {:#?}", report.files())
}

/// The first place where two lists of files differ.
fn difference(meant: &[MemOutput], found: &[MemOutput]) -> Option<String> {
    if meant.len() != found.len() {
        return Some(format!("{} files, {} found", meant.len(), found.len()));
    }
    let (a, b) = meant.iter().zip(found).find(|(a, b)| a != b)?;
    let at = a.bytes.iter().zip(&b.bytes).position(|(x, y)| x != y);
    Some(format!(
        "file {} and {}: {} and {} bytes, from byte {at:?} on",
        a.number,
        b.number,
        a.bytes.len(),
        b.bytes.len()
    ))
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn files_and_reports_are_those_of_the_cpu_backend(
        runs in runs(),
        plan in plans(),
        input_plan in common::plans::table_plans(),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
        cut_bounds in any::<bool>(),
        switches in any::<[bool; 3]>(),
        tombstones in tombstones(),
        merging in proptest::option::weighted(0.4, mergings()),
        tail in any::<Option<prop::sample::Index>>(),
    ) {
        let mut plan = plan;
        let runs = match merging {
            Some(_) => {
                plan.rules.merging = merging;
                with_operands(&runs)
            }
            None => runs,
        };
        let inputs = tables(&runs, &input_plan);
        plan.rules.tombstones = fragments(&tombstones, &runs, &plan.rules.snapshots).into();
        let [with_deeper_files, with_grandparents, touching] = switches;
        if with_deeper_files && !plan.rules.bottommost {
            plan.rules.deeper = deeper_files(&runs);
        }
        if with_grandparents {
            plan.output.splitting.grandparents = grandparents(&runs, touching);
        }
        let all = runs.concat();
        let mut bounds = bounds.map(|at| at.map(|at| all[at.index(all.len())].key.clone()));
        if cut_bounds {
            // Index separators are also shorter than keys.
            bounds.iter_mut().flatten().for_each(|key| key.truncate(3));
        }
        bounds.sort();
        let [begin, end] = bounds;
        if let (Some(tail), Some(end)) = (tail, &end) {
            let tail = all[tail.index(all.len())].key.clone();
            plan.output.splitting.tails = [(end.clone(), tail)].into();
        }
        let range = KeyRange { begin, end };
        let found = compact(device(), &inputs, &plan, &range);
        let (report, files) = match compact(&CpuBackend, &inputs, &plan, &range) {
            Ok(done) => done,
            Err(error) => {
                prop_assert_eq!(error, found.expect_err("the CPU backend fails"));
                return Ok(());
            }
        };
        if files.len() > 200 && found.as_ref().is_err_and(|e| e.kind == ErrorKind::Unsupported) {
            // Some of its files would be empty.
            return Ok(());
        }
        let (found_report, found) = found?;
        prop_assert_eq!(difference(&files, &found), None);
        prop_assert_eq!(essence(&report), essence(&found_report));
        prop_assert!(found_report.is_verified() && found_report.read.is_balanced());
    }
}

/// Ranges of keys, stripes or files with only range tombstones, only operands of one key, or nothing.
#[test]
fn operands_and_range_tombstones_at_their_edges_are_the_same() {
    let put = |key: &[u8], seq, value: &[u8]| Entry::new(key, seq, common::PUT, value);
    let merge = |key: &[u8], seq, value: &[u8]| Entry::new(key, seq, common::MERGE, value);
    let delete = |key: &[u8], seq| Entry::new(key, seq, common::DELETE, b"");
    let long = common::noise(3, 1 << 20);
    let many: Vec<_> = (0..5000)
        .rev()
        .map(|n| merge(b"k", n + 1, &[n as u8; 8]))
        .collect();
    let runs = [
        vec![many],
        vec![vec![
            merge(b"a", 9, &long),
            merge(b"a", 8, b""),
            put(b"a", 7, &long),
        ]],
        vec![
            vec![merge(b"a", 9, b"x")],
            vec![delete(b"a", 8)],
            vec![put(b"a", 7, b"y")],
        ],
        vec![
            vec![merge(b"a", 9, b"x"), merge(b"a", 4, b"z")],
            vec![merge(b"b", 3, b"")],
        ],
        vec![vec![put(b"c", 3, b"x")]],
    ];
    let tombstone = |begin: &[u8], end: &[u8], sequence| RangeTombstone {
        begin: begin.to_vec(),
        end: end.to_vec(),
        sequence,
    };
    let tombstones = [
        vec![],
        vec![tombstone(b"a", b"b", 8)],
        vec![tombstone(b"", b"z", 6), tombstone(b"b", b"d", 20)],
    ];
    let append = |partial| Merging::Append {
        delimiter: b", ".to_vec(),
        partial,
    };
    let mergings = [
        Merging::UInt64Add,
        Merging::Put,
        Merging::Max,
        Merging::BytesXor,
        append(true),
        append(false),
    ];
    let ranges = [
        (None, None),
        (Some(b"b".to_vec()), None),
        (None, Some(b"a".to_vec())),
    ];
    let mut tasks = 0;
    for (runs, tombstones) in runs
        .iter()
        .flat_map(|r| tombstones.iter().map(move |t| (r, t)))
    {
        let inputs = tables(runs, &common::plan().output.table);
        for (merging, snapshots) in mergings
            .iter()
            .flat_map(|m| [vec![], vec![5], vec![7, 8]].map(|s| (m, s)))
        {
            for (bottommost, (begin, end)) in [false, true]
                .iter()
                .flat_map(|b| ranges.clone().map(|range| (*b, range)))
            {
                let mut plan = common::plan();
                plan.rules.tombstones =
                    Fragments::new(KeyOrder::Bytewise, tombstones, &snapshots).into();
                plan.rules.snapshots = snapshots.clone();
                plan.rules.merging = Some(merging.clone());
                plan.rules.bottommost = bottommost;
                if bottommost {
                    plan.rules.deeper = DeeperLevels::Nothing;
                }
                let range = KeyRange { begin, end };
                let (report, files) =
                    compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
                let (found_report, found) =
                    compact(device(), &inputs, &plan, &range).expect("compacts");
                assert_eq!(difference(&files, &found), None, "{runs:?} {plan:?}");
                assert_eq!(
                    essence(&report),
                    essence(&found_report),
                    "{runs:?} {plan:?}"
                );
                assert!(found_report.read.is_balanced());
                tasks += 1;
            }
        }
    }
    assert_eq!(tasks, 5 * 3 * 6 * 3 * 2 * 3);
}

/// The CPU declines more than 8 MiB of a key's operands; the device leaves such keys to the CPU.
#[test]
fn operands_of_more_bytes_than_a_key_may_have_are_left_to_the_cpu() {
    let value = common::noise(5, 3 << 20);
    let operands: Vec<_> = (0..3)
        .rev()
        .map(|n| Entry::new(b"k", n + 1, common::MERGE, &value))
        .collect();
    let inputs = tables(&[operands], &common::plan().output.table);
    let mut plan = common::plan();
    plan.rules.merging = Some(Merging::BytesXor);
    let range = KeyRange::default();
    let error = compact(&CpuBackend, &inputs, &plan, &range).expect_err("too many");
    assert!(matches!(error.kind, ErrorKind::Declined(_)), "{error}");
    let error = compact(device(), &inputs, &plan, &range).expect_err("too many");
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
}

/// Entries that are larger than any buffer of fixed size, alone and beside small ones; tasks without surviving entries.
#[test]
fn giant_entries_single_entries_and_nothing_at_all_work() {
    let giant_key = vec![b'k'; 1 << 20];
    let longer = [&giant_key[..], b"z"].concat();
    let giant_value = common::noise(7, 20 << 20);
    let put = |key: &[u8], seq, value: &[u8]| Entry::new(key, seq, common::PUT, value);
    let delete = |key: &[u8], seq| Entry::new(key, seq, common::DELETE, b"");
    let cases = [
        vec![vec![put(b"", 1, b"")]],
        vec![vec![put(&giant_key, 2, b"v"), put(&longer, 3, b"w")]],
        vec![
            vec![put(b"a", 1, &giant_value), put(&giant_key, 2, b"v")],
            vec![put(b"a", 5, b"small"), put(&longer, 6, &giant_value)],
        ],
        vec![vec![delete(b"a", 3)], vec![put(b"a", 2, b"gone")]],
    ];
    for (i, runs) in cases.iter().enumerate() {
        let inputs = tables(runs, &common::plan().output.table);
        let (mut plan, range) = (common::plan(), KeyRange::default());
        plan.rules.bottommost = true;
        plan.rules.deeper = DeeperLevels::Nothing;
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
        let (found_report, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
        assert_eq!(difference(&files, &found), None, "case {i}");
        assert_eq!(essence(&report), essence(&found_report), "case {i}");
    }
}

/// ZSTD's encoder then takes scratch memory for each group, and larger blocks are compressed separately.
#[test]
fn more_blocks_than_groups_and_some_much_larger_are_compressed() {
    const SMALL: u64 = 24_000;
    let entry = |i: u64| {
        let len = match i {
            5000 => 300_000,
            i if i % 600 == 7 => 30_000,
            _ => 120,
        };
        let mut value = common::noise(i, len);
        value[len / 2..].fill(b'v');
        Entry::new(&i.to_be_bytes(), i + 1, common::PUT, &value)
    };
    let run: Vec<_> = (0..SMALL).map(entry).collect();
    let inputs = [open(common::one_file(&common::plan(), &run)).expect("sound")];
    let mut plan = common::plan();
    plan.output.table.block_size = 256;
    let zstd = &mut plan.output.table.compression;
    zstd.kind = CompressionType::Zstd;
    *zstd = zstd.with_rockmill().expect("there is code for it");
    let range = KeyRange::default();
    let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
    let (found_report, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
    assert_eq!(difference(&files, &found), None);
    assert_eq!(essence(&report), essence(&found_report));
}

/// Threads of the host compress a few chunks at a time. One block is larger than a chunk.
#[test]
fn a_library_on_the_host_compresses_as_on_the_cpu_backend() {
    const CHUNK: usize = 64 << 10;
    let entry = |i: u64| {
        let len = match i {
            5000 => 3 * CHUNK,
            i if i % 600 == 7 => 30_000,
            _ => 120,
        };
        let mut value = common::noise(i, len);
        // Some blocks do not shrink.
        if i % 3000 > 100 {
            value[len / 2..].fill(b'v');
        }
        Entry::new(&i.to_be_bytes(), i + 1, common::PUT, &value)
    };
    let run: Vec<_> = (0..24_000).map(entry).collect();
    let inputs = [open(common::one_file(&common::plan(), &run)).expect("sound")];
    let settings = CudaSettings {
        chunk_bytes: CHUNK,
        ..CudaSettings::default()
    };
    let device = CudaBackend::new(target(), settings).expect("the device opens");
    let range = KeyRange::default();
    for (kind, level) in COMPRESSIONS.iter().flat_map(|k| LEVELS.map(|l| (*k, l))) {
        let mut plan = common::plan();
        plan.output.splitting = common::splitting(1 << 20);
        let compression = &mut plan.output.table.compression;
        (compression.kind, compression.level) = (kind, level);
        compression.zstd_checksum = level > 1;
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
        let (found_report, found) = compact(&device, &inputs, &plan, &range).expect("compacts");
        assert_eq!(difference(&files, &found), None, "{kind:?} {level}");
        assert_eq!(essence(&report), essence(&found_report), "{kind:?} {level}");
        let host = (found_report.stages.iter()).find(|stage| stage.stage == "compress on host");
        let bytes = host.map_or(0, |stage| stage.bytes);
        let is_compressed = kind != CompressionType::None;
        assert_eq!(bytes > 2 << 20, is_compressed, "{kind:?} {level}: {bytes}");
    }
}

/// Prints the seconds of a task, which takes a group for each block: docs/guide/gpu.md derives its limit from them.
#[test]
#[ignore = "it is slow; run it by hand, on a GPU with ROCKMILL_TEST_DEVICE"]
fn a_block_of_64_mib_is_read_and_written_with_each_codec() {
    let mut value = common::noise(7, 64 << 20);
    for chunk in value.chunks_mut(1 << 10) {
        chunk[512..].fill(b'v');
    }
    let entries = [
        Entry::new(b"a", 1, common::PUT, &value),
        Entry::new(b"b", 2, common::PUT, b"small"),
    ];
    for (kind, zstd_checksum) in [
        (CompressionType::Lz4, false),
        (CompressionType::Snappy, false),
        (CompressionType::Zstd, false),
        (CompressionType::Zstd, true),
    ] {
        let mut plan = common::plan();
        plan.output.table.compression.kind = kind;
        let mut by_library = plan.clone();
        by_library.output.table.compression.zstd_checksum = zstd_checksum;
        let inputs = [open(common::one_file(&by_library, &entries)).expect("sound")];
        let compression = &mut plan.output.table.compression;
        *compression = compression.with_rockmill().expect("there is code for it");
        let range = KeyRange::default();
        let (_, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
        let started = Instant::now();
        let (_, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
        println!(
            "{kind:?}, checksum {zstd_checksum}: {:.2} s",
            started.elapsed().as_secs_f64()
        );
        assert_eq!(difference(&files, &found), None, "{kind:?}");
        assert!(
            files[0].bytes.len() < 48 << 20,
            "{kind:?}: it was compressed"
        );
    }
}

/// A file whose blocks were compressed by ZSTD with a dictionary. It has no checksums.
fn file_with_dictionary(entries: &[Entry], dictionary: &[u8]) -> Vec<u8> {
    let mut zstd = zstd::bulk::Compressor::with_dictionary(3, dictionary).expect("a dictionary");
    let blocks: Vec<_> = (entries.chunks(50))
        .map(|part| {
            let mut block = BlockBuilder::new(BlockLayout::plain(16));
            for entry in part {
                block.add(&entry.internal_key(), &entry.value);
            }
            let (mut payload, raw) = (Vec::new(), block.finish());
            put_varint(&mut payload, raw.len() as u64);
            payload.extend(zstd.compress(raw).expect("it compresses"));
            let separator = part.last().expect("entries").key.clone();
            (separator, payload, CompressionType::Zstd as u8)
        })
        .collect();
    common::raw::file_of_blocks(&blocks, 16)
}

/// Opens such a file.
fn with_dictionary(file: Vec<u8>, dictionary: &[u8]) -> InputTable {
    let mut table = open(file).expect("only blocks are damaged");
    let mut meta = TableMeta::clone(&table.meta);
    meta.dictionary = dictionary.to_vec();
    table.meta = meta.into();
    table
}

/// The host decompresses zlib and blocks with a dictionary, the device the others; errors name damaged blocks.
#[test]
fn inputs_of_every_compression_are_read_together() {
    const RUNS: u64 = 4;
    let dictionary = b"the same words in every value, the same words in every value".repeat(20);
    let run = |run: u64| -> Vec<_> {
        let entry = |i: u64| {
            let value = [&i.to_le_bytes()[..], &dictionary[..100]].concat();
            Entry::new(&i.to_be_bytes(), RUNS * i + run + 1, common::PUT, &value)
        };
        (0..2000).step_by(1 + run as usize).map(entry).collect()
    };
    let file = |kind, entries: &[Entry]| {
        let mut plan = common::plan();
        plan.output.table.compression.kind = kind;
        common::one_file(&plan, entries)
    };
    let zlib = file(CompressionType::Zlib, &run(0));
    let inputs_with = |zlib: &[u8]| {
        [
            open(zlib.to_vec()).expect("only blocks are damaged"),
            open(file(CompressionType::Lz4, &run(1))).expect("sound"),
            with_dictionary(file_with_dictionary(&run(2), &dictionary), &dictionary),
            open(file(CompressionType::None, &run(3))).expect("sound"),
        ]
    };
    let key = |i: u64| Some(i.to_be_bytes().to_vec());
    let (plan, part) = (
        common::plan(),
        KeyRange {
            begin: key(300),
            end: key(1500),
        },
    );
    let inputs = inputs_with(&zlib);
    for range in [KeyRange::default(), part] {
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
        let (found_report, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
        assert_eq!(difference(&files, &found), None);
        assert_eq!(essence(&report), essence(&found_report));
    }
    let block = inputs[0].meta.index[1].handle;
    let mut damaged = zlib.clone();
    damaged[(block.offset + block.size / 2) as usize] ^= 1;
    let inputs = inputs_with(&damaged);
    let error = compact(device(), &inputs, &plan, &KeyRange::default()).expect_err("damaged");
    assert_eq!(error.kind, ErrorKind::Corruption);
    assert_eq!(error.file.as_deref(), Some(common::FILE_NAME));
    assert_eq!(error.offset, Some(block.offset));
}

/// Without a checksum, the decompressor finds the damage. It may also decompress a block to other entries.
#[test]
fn a_damaged_block_with_a_dictionary_is_named() {
    let dictionary = b"the same words in every value, the same words in every value".repeat(20);
    let entry = |i: u64| {
        let value = [&i.to_le_bytes()[..], &dictionary[..100]].concat();
        Entry::new(&i.to_be_bytes(), i + 1, common::PUT, &value)
    };
    let entries: Vec<_> = (0..500).map(entry).collect();
    let file = file_with_dictionary(&entries, &dictionary);
    let sound = with_dictionary(file.clone(), &dictionary);
    let block = sound.meta.index[3].handle;
    let (plan, range) = (common::plan(), KeyRange::default());
    let mut named = 0;
    for at in block.offset..block.offset + block.size {
        let mut damaged = file.clone();
        damaged[at as usize] ^= 1 << (at % 8);
        let inputs = [with_dictionary(damaged, &dictionary)];
        let found = compact(device(), &inputs, &plan, &range);
        match compact(&CpuBackend, &inputs, &plan, &range) {
            Ok((report, files)) => {
                // The device may refuse blocks that the CPU accepts, but not read them differently.
                if let Ok((found_report, found)) = found {
                    assert_eq!(difference(&files, &found), None, "byte {at}");
                    assert_eq!(essence(&report), essence(&found_report), "byte {at}");
                }
            }
            Err(_) => {
                let error = found.err();
                let error =
                    error.unwrap_or_else(|| panic!("byte {at}: the CPU backend refuses it"));
                let kinds = [
                    ErrorKind::Corruption,
                    ErrorKind::Device,
                    ErrorKind::Unsupported,
                ];
                assert!(kinds.contains(&error.kind), "byte {at}: {error}");
                assert_eq!(error.file.as_deref(), Some(common::FILE_NAME));
                assert_eq!(error.offset, Some(block.offset), "byte {at}: {error}");
                named += u64::from(error.kind == ErrorKind::Corruption);
            }
        }
    }
    assert!(named > block.size / 4, "{named} of {}", block.size);
}

/// RocksDB writes no such inputs; damaged or forged ones may have them.
#[test]
fn of_equal_keys_that_of_the_first_input_counts() {
    const RUNS: u8 = 5;
    const LONG: usize = 40;
    for key_bytes in [4, LONG] {
        let run = |run: u8| -> Vec<_> {
            let key = |n: u32| format!("{n:0key_bytes$}").into_bytes();
            let put = |n| Entry::new(&key(n), 7, common::PUT, &[run; 50]);
            (0..1000).map(put).collect()
        };
        let runs: Vec<_> = (0..RUNS).map(run).collect();
        let inputs = tables(&runs, &common::plan().output.table);
        let (plan, range) = (common::plan(), KeyRange::default());
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
        let (found_report, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
        assert_eq!(difference(&files, &found), None);
        assert_eq!(essence(&report), essence(&found_report));
    }
}

/// Bytes that a file would overlap, and its own, may exceed 64 bits.
#[test]
fn a_grandparent_of_any_size_ends_files() {
    let key = |n: u8| vec![b'k', n];
    let entries: Vec<_> = (0..20)
        .map(|n| Entry::new(&key(n), 1, common::PUT, &[7; 100]))
        .collect();
    let inputs = [open(common::one_file(&common::plan(), &entries)).expect("sound")];
    let mut plan = common::plan();
    plan.output.splitting = OutputSplitting {
        max_compaction_bytes: 10_000,
        grandparents: [(5, 9), (9, 12), (14, 16)]
            .map(|(first, last)| Grandparent {
                smallest: key(first),
                largest: key(last),
                size: u64::MAX - 1000,
            })
            .into(),
        ..common::splitting(100_000)
    };
    let range = KeyRange::default();
    let (_, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
    let (_, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
    assert!(files.len() > 3, "{} files", files.len());
    assert_eq!(difference(&files, &found), None);
}

/// Grandparents divide range tombstones, all of which are dropped afterwards.
#[test]
fn any_number_of_range_tombstones_that_are_dropped_makes_no_files() {
    const TOMBSTONES: u64 = 1000;
    let key = |n: u64| n.to_be_bytes().to_vec();
    let entries: Vec<_> = (0..20)
        .map(|n| Entry::new(&key(n * 50 * 10), 9, common::PUT, &[7; 100]))
        .collect();
    let inputs = [open(common::one_file(&common::plan(), &entries)).expect("sound")];
    let mut plan = common::plan();
    let tombstones: Vec<_> = (0..TOMBSTONES)
        .map(|n| RangeTombstone {
            begin: key(n * 10 + 2),
            end: key(n * 10 + 4),
            sequence: 5,
        })
        .collect();
    plan.rules.tombstones = Arc::new(Fragments::new(KeyOrder::Bytewise, &tombstones, &[]));
    plan.rules.deeper = DeeperLevels::Files(Vec::new());
    plan.output.splitting = OutputSplitting {
        max_compaction_bytes: 10_000,
        grandparents: (0..TOMBSTONES)
            .map(|n| Grandparent {
                smallest: key(n * 10 + 1),
                largest: key(n * 10 + 5),
                size: 20_000,
            })
            .collect(),
        ..common::splitting(100_000)
    };
    let range = KeyRange::default();
    let (_, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
    let (_, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
    assert_eq!(files.len(), 20);
    assert_eq!(difference(&files, &found), None);
}

/// An extractor of an application.
#[derive(Debug)]
struct NoPrefixes;

impl Prefixes for NoPrefixes {
    fn prefix_len(&self, _: &[u8]) -> Option<usize> {
        None
    }

    fn has_failed(&self) -> bool {
        false
    }
}

#[test]
fn what_is_not_done_yet_is_refused_before_anything_is_written() {
    let entries = [Entry::new(b"0123456789abcdef", 1, common::PUT, &[7; 1000])];
    let inputs = [open(common::one_file(&common::plan(), &entries)).expect("sound")];
    let mut zlib = common::plan();
    zlib.output.table.compression.kind = CompressionType::Zlib;
    let mut slow = common::plan();
    slow.output.table.compression.kind = CompressionType::Zstd;
    slow.output.table.compression.level = 13;
    let mut upper_bound = common::plan();
    upper_bound.output.splitting.size_is_upper_bound = true;
    let mut partitions = common::plan();
    partitions.output.table.index.partitions = Some(IndexPartitions {
        block_size: 4096,
        deviation: 10,
    });
    let mut prefixes = common::plan();
    prefixes.output.table.prefixes = Some(CustomPrefixes(Arc::new(NoPrefixes)));
    let mut dictionary = common::plan();
    dictionary.output.table.compression.kind = CompressionType::Zstd;
    dictionary.output.table.compression.dictionary = Some(DictionarySettings {
        max_bytes: 4096,
        max_buffer_bytes: 1 << 20,
        training: None,
    });
    let mut reverse = common::plan();
    reverse.rules.order = KeyOrder::ReverseBytewise;
    let range = KeyRange::default();
    let inputs = &inputs[..];
    for (inputs, plan, kind) in [
        (inputs, &zlib, Unsupported::Compression),
        (inputs, &slow, Unsupported::Compression),
        (inputs, &upper_bound, Unsupported::SizeIsUpperBound),
        (inputs, &partitions, Unsupported::Partitions),
        (inputs, &prefixes, Unsupported::Plugins),
        (inputs, &dictionary, Unsupported::Compression),
        (inputs, &reverse, Unsupported::Comparator),
        // It may have range tombstones.
        (&[], &reverse, Unsupported::Comparator),
    ] {
        let support = device().supports(&plan.request(inputs, &range, 0));
        assert_eq!(support, Support::No(kind));
        let error = compact(device(), inputs, plan, &range).expect_err("refused");
        assert_eq!(
            (error.kind, error.what),
            (ErrorKind::Unsupported, kind.to_string())
        );
    }
}
