//! The GPU backend writes the CPU backend's files and reports.
//!
//! The kernels run on the host, unless `ROCKMILL_TEST_DEVICE` says `cuda:N`. `PROPTEST_CASES` and
//! `PROPTEST_RNG_SEED` choose the cases.

#[path = "../../cpu/tests/common/mod.rs"]
mod common;

use std::sync::OnceLock;

use common::{Entry, MemOutput, MemSink, config, open};
use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, InputTable, KeyRange, Plan, RangesBeneath, Slice,
    SliceReport, SliceWork,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::filter::{FilterFormat, FilterOptions};
use rockmill_format::index::IndexShortening;

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

fn compact<B: Backend>(
    backend: &B,
    inputs: &[InputTable],
    plan: &Plan,
    range: &KeyRange,
) -> Result<(SliceReport, Vec<MemOutput>), Error> {
    let cancel = CancelToken::new();
    let slice = Slice {
        index: 0,
        range: range.clone(),
    };
    backend.accepts(plan, inputs)?;
    let run = backend.survivors(SliceWork {
        inputs,
        plan,
        slice: &slice,
        read_ahead_bytes: 1 << 16,
        cancel: &cancel,
        progress: None,
    })?;
    let mut sink = MemSink::numbered_from(1);
    let report = backend.write_ssts(run, &mut sink)?;
    Ok((report, sink.into_files()))
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

/// Runs of Puts and Deletes whose keys all have one length.
fn runs() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let value = prop_oneof![
        8 => common::values(),
        1 => (any::<u64>(), 230usize..260).prop_map(|(seed, len)| common::noise(seed, len)),
        1 => (any::<u64>(), 1000usize..1100).prop_map(|(seed, len)| common::noise(seed, len)),
    ];
    let entry = (
        any::<u32>(),
        prop::bool::weighted(0.8),
        value,
        any::<prop::sample::Index>(),
    );
    (
        4usize..=16,
        1u32..200,
        1usize..9,
        proptest::collection::vec(entry, 1..250),
    )
        .prop_map(|(key_len, num_keys, runs, entries)| {
            let mut out = vec![Vec::new(); runs];
            for (i, (key, is_put, value, run)) in entries.into_iter().enumerate() {
                let key = key_of(key % num_keys, key_len);
                let (kind, value) = match is_put {
                    true => (common::PUT, value),
                    false => (common::DELETE, Vec::new()),
                };
                out[run.index(runs)].push(Entry::new(&key, i as u64 + 1, kind, &value));
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

fn filters() -> impl Strategy<Value = Option<FilterOptions>> {
    let millibits = prop::sample::select(vec![0u32, 1000, 9900, 10_000, 50_500]);
    let filter = (millibits, any::<bool>()).prop_map(|(millibits_per_key, memory)| FilterOptions {
        format: FilterFormat::FastLocalBloom,
        millibits_per_key,
        whole_key_filtering: true,
        prefix_extractor: None,
        optimize_filters_for_memory: memory,
    });
    proptest::option::of(filter)
}

fn beneath() -> impl Strategy<Value = RangesBeneath> {
    prop_oneof![Just(RangesBeneath::Nothing), Just(RangesBeneath::Unknown)]
}

fn plans() -> impl Strategy<Value = Plan> {
    let rules = (
        proptest::collection::btree_set(1u64..310, 0..4),
        any::<bool>(),
        beneath(),
    );
    let sizes = (
        prop::sample::select(vec![1u64, 64, 500, 4096, 1 << 20]),
        prop::sample::select(vec![1usize, 2, 3, 16, 1000]),
        prop::sample::select(vec![1u64, 100, 3000, u64::MAX]),
        prop::sample::select(vec![(1u64, 1u64), (2, 3), (0, 0)]),
    );
    let shortening = prop::sample::select(vec![
        IndexShortening::None,
        IndexShortening::Separators,
        IndexShortening::SeparatorsAndSuccessor,
    ]);
    (
        rules,
        sizes,
        shortening,
        filters(),
        any::<[bool; 4]>(),
        2u32..=7,
    )
        .prop_map(
            |(rules, sizes, shortening, filter, switches, format_version)| {
                let [delta_keys, single_file, file_checksum, compress_index] = switches;
                let (snapshots, bottommost, beneath) = rules;
                let (block_size, restart_interval, file_size, ratio) = sizes;
                let mut plan = common::plan();
                plan.rules.snapshots = snapshots.into_iter().collect();
                plan.rules.bottommost = bottommost;
                plan.rules.beneath = if bottommost {
                    RangesBeneath::Nothing
                } else {
                    beneath
                };
                plan.table.format_version = format_version;
                plan.table.block_size = block_size;
                plan.table.restart_interval = restart_interval;
                plan.table.delta_keys = delta_keys;
                plan.table.compress_index = compress_index;
                plan.table.index.format_version = format_version;
                plan.table.index.shortening = shortening;
                plan.table.filter = filter;
                plan.cutting = common::cutting(file_size);
                plan.cutting.single_file = single_file;
                plan.cutting.compression_ratio = ratio;
                plan.file_checksum = file_checksum;
                plan
            },
        )
}

fn tables(runs: &[Vec<Entry>], block_size: u64, restart_interval: usize) -> Vec<InputTable> {
    let mut plan = common::plan();
    plan.table.block_size = block_size;
    plan.table.restart_interval = restart_interval;
    runs.iter()
        .map(|run| open(common::one_file(&plan, run)).expect("opens"))
        .collect()
}

/// Files beneath the output: the keys of every third entry, in turn first and last of a file.
fn files_beneath(runs: &[Vec<Entry>]) -> RangesBeneath {
    let mut keys: Vec<_> = runs
        .concat()
        .into_iter()
        .step_by(3)
        .map(|e| e.key)
        .collect();
    keys.sort();
    keys.dedup();
    let files = |keys: &[Vec<u8>]| -> Vec<_> {
        keys.chunks_exact(2)
            .map(|ends| (ends[0].clone(), ends[1].clone()))
            .collect()
    };
    let (near, deep) = keys.split_at(keys.len() / 2);
    RangesBeneath::Files(vec![files(near), Vec::new(), files(deep)])
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn files_and_reports_are_those_of_the_cpu_backend(
        runs in runs(),
        plan in plans(),
        input_block_size in prop::sample::select(vec![1u64, 400, 4096]),
        input_interval in prop::sample::select(vec![1usize, 4, 16]),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
        cut_bounds in any::<bool>(),
        with_files_beneath in any::<bool>(),
    ) {
        let inputs = tables(&runs, input_block_size, input_interval);
        let mut plan = plan;
        if with_files_beneath && !plan.rules.bottommost {
            plan.rules.beneath = files_beneath(&runs);
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
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range)?;
        let (found_report, found) = compact(device(), &inputs, &plan, &range)?;
        prop_assert_eq!(files, found);
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

/// Blocks whose checksum is right and whose contents are anything.
#[test]
fn hostile_blocks_give_errors_or_entries_but_never_a_crash() {
    use rand_like::Noise;
    let plan = common::plan();
    let entries: Vec<_> = (0..200u32)
        .map(|n| Entry::new(&key_of(n, 16), 1, common::PUT, &[7; 20]))
        .collect();
    let mut entries = entries;
    entries.sort_by_key(Entry::order);
    let file = common::one_file(&plan, &entries);
    let table = open(file.clone()).expect("sound");
    let guard = table.meta.footer.guard;
    let cases = std::env::var("PROPTEST_CASES").map_or(2000, |n| n.parse().expect("a number"));
    let mut noise = Noise(0x5eed);
    let mut errors = 0;
    for _ in 0..cases {
        let mut bytes = file.clone();
        for block in &table.meta.index {
            let handle = block.handle;
            let (start, size) = (handle.offset as usize, handle.size as usize);
            for _ in 0..noise.below(4) {
                let at = start + noise.below(size);
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
                    assert_eq!(files, found);
                    assert_eq!(essence(&report), essence(&found_report));
                }
            }
            Err(_) => {
                errors += 1;
                assert!(
                    ours.is_err(),
                    "the CPU backend refused what the device took"
                );
            }
        }
    }
    assert!(errors > 0 && errors < cases, "{errors} of {cases} failed");
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
    assert!(refuse(&|plan| plan.table.checksum = ChecksumType::Crc32c).contains("XXH3"));
    assert!(refuse(&|plan| plan.paranoid_hash = true).contains("paranoid_file_checks"));
    assert!(refuse(&|plan| plan.table.common_prefix = true).contains("format_version 8"));
    assert!(refuse(&|plan| plan.rules.snapshots = vec![0]).contains("number 0"));
    let long = [Entry::new(
        b"a key of more than 16 bytes",
        1,
        common::PUT,
        b"v",
    )];
    let inputs = [open(common::one_file(&common::plan(), &long)).expect("sound")];
    let range = KeyRange::default();
    let error = compact(device(), &inputs, &common::plan(), &range).expect_err("refused");
    assert!(error.to_string().contains("16 bytes"), "{error}");
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
