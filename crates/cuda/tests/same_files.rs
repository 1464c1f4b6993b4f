//! The GPU backend writes the CPU backend's files and reports.
//!
//! The kernels run on the host, unless `ROCKMILL_TEST_DEVICE` says `cuda:N`. `PROPTEST_CASES` and
//! `PROPTEST_RNG_SEED` choose the cases.

#[path = "../../cpu/tests/common/mod.rs"]
mod common;

use std::sync::OnceLock;

use common::{Entry, MemOutput, config, open};
use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, Cutting, Error, ErrorKind, Grandparent, InputTable, KeyRange, Plan,
    RangesBeneath, Rules, SliceReport, TablePlan,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};
use rockmill_format::block::common_prefix_len;
use rockmill_format::coding::put_varint;
use rockmill_format::compression::{CompressionSettings, CompressionType};
use rockmill_format::filter::{FilterFormat, FilterOptions, legacy};
use rockmill_format::prefix::PrefixExtractor;

fn device() -> &'static CudaBackend {
    static BACKEND: OnceLock<CudaBackend> = OnceLock::new();
    BACKEND.get_or_init(|| {
        let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
        let target = match named.strip_prefix("cuda:") {
            Some(number) => Target::Cuda(number.parse().expect("cuda:N")),
            None => Target::Host,
        };
        CudaBackend::new(target, CudaSettings::default()).expect("the device opens")
    })
}

fn compact(
    backend: &impl Backend,
    inputs: &[InputTable],
    plan: &Plan,
    range: &KeyRange,
) -> Result<(SliceReport, Vec<MemOutput>), Error> {
    common::compact(backend, inputs, plan, range, &CancelToken::new())
}

/// All of a report but what says how it came about.
fn essence(report: &SliceReport) -> String {
    let report = SliceReport {
        bytes_read: 0,
        verified: false,
        stages: Vec::new(),
        cpu_elsewhere: std::time::Duration::ZERO,
        ..report.clone()
    };
    format!("{report:#?}")
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

/// A pool of user keys: all of one short length, short ones of any length, or anything.
fn key_pools() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one_length =
        (4usize..=16, 1u32..200).prop_map(|(len, n)| (0..n).map(|i| key_of(i, len)).collect());
    let byte = || prop::sample::select(vec![0u8, 1, 0x7f, 0xff]);
    let short = proptest::collection::vec(proptest::collection::vec(byte(), 0..=16), 1..100);
    let around_words = (byte(), proptest::collection::vec(byte(), 0..4), 14usize..19).prop_map(
        |(first, last, len)| {
            let mut key = vec![first; len];
            key.extend(last);
            key
        },
    );
    prop_oneof![
        2 => one_length,
        1 => short,
        1 => proptest::collection::vec(around_words, 1..60),
        2 => proptest::collection::vec(common::keys(), 1..60),
    ]
}

/// Runs of entries of all kinds.
fn runs() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let value = prop_oneof![
        8 => common::values(),
        1 => (any::<u64>(), 230usize..260).prop_map(|(seed, len)| common::noise(seed, len)),
        1 => (any::<u64>(), 1000usize..1100).prop_map(|(seed, len)| common::noise(seed, len)),
    ];
    let entry = (
        any::<prop::sample::Index>(),
        0u8..20,
        value,
        any::<prop::sample::Index>(),
        prop::bool::weighted(0.02),
    );
    (
        key_pools(),
        1usize..9,
        any::<bool>(),
        proptest::collection::vec(entry, 1..250),
    )
        .prop_map(|(keys, runs, with_single_deletes, entries)| {
            let mut out = vec![Vec::new(); runs];
            let mut zeroed = std::collections::BTreeSet::new();
            for (i, (key, kind, value, run, zero)) in entries.into_iter().enumerate() {
                let key = key.get(&keys);
                let (kind, value) = match kind {
                    0..=15 => (common::PUT, value),
                    16 if with_single_deletes => (common::SINGLE_DELETE, Vec::new()),
                    _ => (common::DELETE, Vec::new()),
                };
                // At most one version has the number that older compactions leave.
                let sequence = match zero && zeroed.insert(key.clone()) {
                    true => 0,
                    false => i as u64 + 1,
                };
                out[run.index(runs)].push(Entry::new(key, sequence, kind, &value));
            }
            out.retain(|run| !run.is_empty());
            for run in &mut out {
                run.sort_by_key(Entry::order);
            }
            out
        })
}

/// Keys that differ early, late, or in between.
fn key_of(n: u32, len: usize) -> Vec<u8> {
    let mut key = vec![(n % 3) as u8 * 0x7f; len];
    let at = (n as usize / 3) % (len - 3);
    key[at..at + 4].copy_from_slice(&n.to_be_bytes());
    key
}

/// Table plans without compression, which the device does not do.
fn table_plans() -> impl Strategy<Value = TablePlan> {
    common::plans::table_plans().prop_map(|mut plan| {
        plan.compression = CompressionSettings::none();
        plan
    })
}

fn plans() -> impl Strategy<Value = Plan> {
    let rules = (
        proptest::collection::btree_set(0u64..310, 0..4),
        any::<bool>(),
        prop_oneof![Just(RangesBeneath::Nothing), Just(RangesBeneath::Unknown)],
        any::<bool>(),
    );
    let cutting = (
        prop::sample::select(vec![1u64, 100, 3000, 100_000, u64::MAX]),
        prop::sample::select(vec![(1u64, 1u64), (2, 3), (0, 0)]),
        prop::sample::select(vec![2000u64, 6000, u64::MAX]),
        any::<[bool; 4]>(),
    );
    (rules, table_plans(), cutting).prop_map(|(rules, table, cutting)| {
        let (snapshots, bottommost, beneath, enforce_single_del_contracts) = rules;
        let (file_size, ratio, max_compaction_bytes, switches) = cutting;
        let [single_file, level_style, file_checksum, paranoid_hash] = switches;
        let mut plan = common::plan();
        plan.rules = Rules {
            snapshots: snapshots.into_iter().collect(),
            bottommost,
            beneath: if bottommost {
                RangesBeneath::Nothing
            } else {
                beneath
            },
            enforce_single_del_contracts,
        };
        plan.table = table;
        plan.cutting = Cutting {
            single_file,
            level_style,
            compression_ratio: ratio,
            max_compaction_bytes,
            ..common::cutting(file_size)
        };
        plan.file_checksum = file_checksum;
        plan.paranoid_hash = paranoid_hash;
        plan
    })
}

fn tables(runs: &[Vec<Entry>], table: &TablePlan) -> Vec<InputTable> {
    let mut plan = common::plan();
    plan.table = table.clone();
    runs.iter()
        .map(|run| open(common::one_file(&plan, run)).expect("opens"))
        .collect()
}

/// User keys of every third entry, ascending.
fn some_keys(runs: &[Vec<Entry>]) -> Vec<Vec<u8>> {
    let entries = runs.concat();
    let mut keys: Vec<_> = entries.into_iter().step_by(3).map(|e| e.key).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Files beneath the output, whose ends are keys of entries.
fn files_beneath(runs: &[Vec<Entry>]) -> RangesBeneath {
    let keys = some_keys(runs);
    let files = |keys: &[Vec<u8>]| -> Vec<_> {
        keys.chunks_exact(2)
            .map(|ends| (ends[0].clone(), ends[1].clone()))
            .collect()
    };
    let (near, deep) = keys.split_at(keys.len() / 2);
    RangesBeneath::Files(vec![files(near), Vec::new(), files(deep)])
}

/// Files of the level below the output. With `touching`, one ends on the key with which the next begins.
fn grandparents(runs: &[Vec<Entry>], touching: bool) -> Vec<Grandparent> {
    let keys = some_keys(runs);
    let step = if touching { 1 } else { 2 };
    let ends = keys.windows(2).step_by(step);
    (0u64..)
        .zip(ends)
        .map(|(i, ends)| Grandparent {
            smallest: ends[0].clone(),
            largest: ends[1].clone(),
            size: i * 7919 % 3000,
        })
        .collect()
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn files_and_reports_are_those_of_the_cpu_backend(
        runs in runs(),
        plan in plans(),
        input_plan in table_plans(),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
        cut_bounds in any::<bool>(),
        switches in any::<[bool; 3]>(),
    ) {
        let inputs = tables(&runs, &input_plan);
        let mut plan = plan;
        let [with_files_beneath, with_grandparents, touching] = switches;
        if with_files_beneath && !plan.rules.bottommost {
            plan.rules.beneath = files_beneath(&runs);
        }
        if with_grandparents {
            plan.cutting.grandparents = grandparents(&runs, touching);
        }
        let all = runs.concat();
        let mut bounds = bounds.map(|at| at.map(|at| all[at.index(all.len())].key.clone()));
        if cut_bounds {
            // As index separators are: shorter than keys.
            bounds.iter_mut().flatten().for_each(|key| key.truncate(3));
        }
        bounds.sort();
        let [begin, end] = bounds;
        let range = KeyRange { begin, end };
        let found = compact(device(), &inputs, &plan, &range);
        let (report, files) = match compact(&CpuBackend, &inputs, &plan, &range) {
            Ok(done) => done,
            Err(error) => {
                prop_assert_eq!(error, found.expect_err("the CPU backend fails"));
                return Ok(());
            }
        };
        let (found_report, found) = found?;
        prop_assert_eq!(difference(&files, &found), None);
        prop_assert_eq!(essence(&report), essence(&found_report));
        prop_assert!(found_report.verified);
    }

    #[test]
    fn damaged_blocks_are_noticed_and_named(
        runs in runs(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let file = common::one_file(&common::plan(), &runs[0]);
        let sound = open(file.clone())?;
        let last = sound.meta.index.last().expect("a block").handle;
        let data_bytes = (last.offset + last.size) as usize + 5;
        let mut damaged = file;
        damaged[at.index(data_bytes)] ^= 1 << bit;
        let inputs = [open(damaged)?];
        let range = KeyRange::default();
        let error = compact(device(), &inputs, &common::plan(), &range).expect_err("damaged");
        prop_assert!(matches!(error.kind, ErrorKind::Corruption | ErrorKind::Device), "{}", error);
        prop_assert_eq!(error.file.as_deref(), Some(common::FILE_NAME));
        let (from, to) = (error.offset.expect("an offset"), data_bytes as u64);
        prop_assert!(from < to, "{} of {}", from, to);
    }
}

/// A block of entries whose values are stored apart from their keys, and with a hash index if asked for.
fn block_apart(entries: &[Entry], interval: usize, hash_index: bool) -> Vec<u8> {
    let (mut block, mut restarts, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: Vec<u8> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let key = entry.internal_key();
        let at_restart = i % interval == 0;
        let shared = match at_restart {
            true => 0,
            false => common_prefix_len(&before, &key),
        };
        if at_restart {
            restarts.push(block.len() as u32);
        }
        for number in [shared, key.len() - shared, entry.value.len()] {
            put_varint(&mut block, number as u64);
        }
        if at_restart {
            put_varint(&mut block, values.len() as u64);
        }
        block.extend_from_slice(&key[shared..]);
        values.extend_from_slice(&entry.value);
        before = key;
    }
    let values_at = block.len() as u32;
    block.extend_from_slice(&values);
    let mut packed = restarts.len() as u32 | 1 << 28;
    restarts.iter().for_each(|r| block.extend(r.to_le_bytes()));
    if hash_index {
        block.extend_from_slice(&[1, 0, 255, 3, 0]);
        packed |= 1 << 31;
    }
    block.extend(values_at.to_le_bytes());
    block.extend(packed.to_le_bytes());
    block
}

/// Files whose blocks are to be damaged: plain, with prefixes stored once, with values apart; keys of one length
/// or of several, short or long.
fn files_to_damage() -> Vec<Vec<u8>> {
    let entries = |len: fn(u32) -> usize| {
        let mut entries: Vec<_> = (0..200u32)
            .map(|n| Entry::new(&key_of(n, len(n)), 1, common::PUT, &[7; 20]))
            .collect();
        entries.sort_by_key(Entry::order);
        entries.dedup_by_key(|entry| entry.key.clone());
        entries
    };
    let lists = [
        entries(|_| 16),
        entries(|n| 4 + n as usize % 13),
        entries(|n| 10 + n as usize % 40),
    ];
    let mut files = Vec::new();
    for list in &lists {
        files.push(common::one_file(&common::plan(), list));
        let mut plan = common::plan();
        plan.table.format_version = 8;
        plan.table.common_prefix = true;
        plan.table.index.format_version = 8;
        plan.table.index.common_prefix = true;
        plan.table.block_size = 300;
        files.push(common::one_file(&plan, list));
        for hash_index in [false, true] {
            let blocks: Vec<_> = list
                .chunks(25)
                .map(|part| {
                    let separator = part.last().map(|entry| entry.key.clone());
                    let block = block_apart(part, 4, hash_index);
                    (separator.unwrap_or_default(), block, 0)
                })
                .collect();
            files.push(common::raw::file_of_blocks(&blocks, 4));
        }
    }
    files
}

/// Blocks whose checksum is right and whose contents are anything.
#[test]
fn hostile_blocks_give_errors_or_entries_but_never_a_crash() {
    use rand_like::Noise;
    let plan = common::plan();
    let files = files_to_damage();
    let cases = std::env::var("PROPTEST_CASES").map_or(4000, |n| n.parse().expect("a number"));
    let mut noise = Noise(0x5eed);
    let mut errors = 0;
    for case in 0..cases {
        let file = &files[case % files.len()];
        let table = open(file.clone()).expect("sound");
        let guard = table.meta.footer.guard;
        let mut bytes = file.clone();
        for block in &table.meta.index {
            let handle = block.handle;
            let (start, size) = (handle.offset as usize, handle.size as usize);
            for _ in 0..noise.below(4) {
                // Frames are small and decide much.
                let from_end = noise.below(2) == 0;
                let at = match from_end {
                    true => start + size - 1 - noise.below(size.min(16)),
                    false => start + noise.below(size),
                };
                bytes[at] = [0, 1, 16, 24, 127, 128, 255][noise.below(7)];
            }
            let sum = guard.checksum(&bytes[start..start + size], 0, handle.offset);
            bytes[start + size + 1..start + size + 5].copy_from_slice(&sum.to_le_bytes());
        }
        let inputs = [open(bytes).expect("the index is sound")];
        let range = KeyRange::default();
        let ours = compact(device(), &inputs, &plan, &range);
        match compact(&CpuBackend, &inputs, &plan, &range) {
            Ok((report, files)) => {
                // The device may refuse what the CPU takes, but not read it otherwise.
                if let Ok((found_report, found)) = ours {
                    assert_eq!(difference(&files, &found), None, "case {case}");
                    assert_eq!(essence(&report), essence(&found_report));
                }
            }
            Err(_) => {
                errors += 1;
                assert!(
                    ours.is_err(),
                    "case {case}: the CPU backend refused what the device took"
                );
            }
        }
    }
    assert!(errors > 0 && errors < cases, "{errors} of {cases} failed");
}

#[test]
fn every_layout_of_blocks_is_read() {
    for (i, file) in files_to_damage().into_iter().enumerate() {
        let inputs = [open(file).expect("sound")];
        let (plan, range) = (common::plan(), KeyRange::default());
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("reads");
        let (found_report, found) = compact(device(), &inputs, &plan, &range).expect("reads");
        assert_eq!(difference(&files, &found), None, "file {i}");
        assert_eq!(essence(&report), essence(&found_report));
    }
}

/// The four bytes that take a legacy hash from `state` to `target`.
fn word_between(state: u32, target: u32) -> [u8; 4] {
    /// Inverse of the multiplier of `legacy::bloom_hash`, modulo 2^32.
    const INVERSE: u32 = 0xd819_8e9b;
    let product = target ^ target >> 16;
    product
        .wrapping_mul(INVERSE)
        .wrapping_sub(state)
        .to_le_bytes()
}

/// Keys of which all that a legacy filter hashes, prefixes of four bytes and whole keys, has one of few hashes.
fn colliding_keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let hash = || prop::sample::select(vec![1u32, 2, 3, 0x8000_0000]);
    let key = (hash(), hash(), 0u8..4).prop_map(|(first, second, form)| {
        let start = |len: u32| 0xbc9f_1d34 ^ len.wrapping_mul(0xc6a4_a793);
        // As a prefix the first word is hashed from another start than as a part of the key.
        let mut key = word_between(start(4), first).to_vec();
        if form > 0 {
            let word = u32::from_le_bytes([key[0], key[1], key[2], key[3]]);
            let state = start(8).wrapping_add(word).wrapping_mul(0xc6a4_a793);
            key.extend(word_between(state ^ state >> 16, second));
            assert_eq!(legacy::bloom_hash(&key), second);
        }
        assert_eq!(legacy::bloom_hash(&key[..4]), first);
        key
    });
    proptest::collection::vec(key, 1..40)
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn hashes_that_collide_go_into_filters_as_on_the_cpu(
        keys in colliding_keys(),
        versions in 1u64..4,
        whole_key_filtering: bool,
        extractor in prop::sample::select(vec![
            PrefixExtractor::Capped(4),
            PrefixExtractor::Fixed(4),
            PrefixExtractor::Fixed(5),
        ]),
        file_size in prop::sample::select(vec![200u64, 100_000]),
    ) {
        let mut entries: Vec<_> = (1..=versions)
            .flat_map(|seq| keys.iter().map(move |key| Entry::new(key, seq, common::PUT, b"v")))
            .collect();
        entries.sort_by_key(Entry::order);
        entries.dedup_by_key(|entry| entry.internal_key());
        let inputs = [open(common::one_file(&common::plan(), &entries))?];
        let mut plan = common::plan();
        plan.cutting = common::cutting(file_size);
        plan.rules.snapshots = (1..versions).collect();
        plan.table.filter = Some(FilterOptions {
            format: FilterFormat::Legacy,
            millibits_per_key: 10_000,
            whole_key_filtering,
            prefix_extractor: Some(extractor),
            optimize_filters_for_memory: false,
        });
        let range = KeyRange::default();
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range)?;
        let (found_report, found) = compact(device(), &inputs, &plan, &range)?;
        prop_assert_eq!(difference(&files, &found), None);
        prop_assert_eq!(essence(&report), essence(&found_report));
    }
}

/// Entries that are larger than any buffer of fixed size, alone and beside small ones; slices without survivors.
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
        let inputs = tables(runs, &common::plan().table);
        let (mut plan, range) = (common::plan(), KeyRange::default());
        plan.rules.bottommost = true;
        plan.rules.beneath = RangesBeneath::Nothing;
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
        let (found_report, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
        assert_eq!(difference(&files, &found), None, "case {i}");
        assert_eq!(essence(&report), essence(&found_report), "case {i}");
    }
}

/// Bytes that a file would overlap, and its own, may be more than a number holds.
#[test]
fn a_grandparent_of_any_size_ends_files() {
    let key = |n: u8| vec![b'k', n];
    let entries: Vec<_> = (0..20)
        .map(|n| Entry::new(&key(n), 1, common::PUT, &[7; 100]))
        .collect();
    let inputs = [open(common::one_file(&common::plan(), &entries)).expect("sound")];
    let mut plan = common::plan();
    plan.cutting = Cutting {
        max_compaction_bytes: 10_000,
        grandparents: [(5, 9), (9, 12), (14, 16)]
            .map(|(first, last)| Grandparent {
                smallest: key(first),
                largest: key(last),
                size: u64::MAX - 1000,
            })
            .into(),
        ..common::cutting(100_000)
    };
    let range = KeyRange::default();
    let (_, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("compacts");
    let (_, found) = compact(device(), &inputs, &plan, &range).expect("compacts");
    assert!(files.len() > 3, "{} files", files.len());
    assert_eq!(difference(&files, &found), None);
}

#[test]
fn what_is_not_done_yet_is_refused_before_anything_is_written() {
    let entries = [Entry::new(b"0123456789abcdef", 1, common::PUT, b"v")];
    let inputs = [open(common::one_file(&common::plan(), &entries)).expect("sound")];
    let refuse = |change: &dyn Fn(&mut Plan)| {
        let mut plan = common::plan();
        change(&mut plan);
        let error = compact(device(), &inputs, &plan, &KeyRange::default()).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Device, "{error}");
        error.to_string()
    };
    assert!(refuse(&|plan| plan.cutting.size_is_upper_bound = true).contains("upper_bound"));
    assert!(
        refuse(&|plan| plan.table.compression.kind = CompressionType::Lz4).contains("compression")
    );
}

/// A few random numbers without a library.
mod rand_like {
    pub struct Noise(pub u64);

    impl Noise {
        pub fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as usize % n
        }
    }
}
