//! `CpuBackend` as the engine uses it: the files and reports do not depend on how the inputs are read, and agree with
//! the single stages.

mod ahead;
use rockmill_testkit::cases as common;

use ahead::AheadFile;
use common::{
    Entry, FILE_NAME, MemFile, MemOutput, MemSink, VecSink, VecSource, config, hash_sum, open,
};
use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, DeeperLevels, Error, ErrorKind, InputTable, KeyRange, Operator,
    OutputSplitting, Plan, ReadTask, TaskReport, open_table,
};
use rockmill_cpu::CpuBackend;
use rockmill_cpu::retain::retain;

/// Runs of entries with distinct sequence numbers, as an LSM tree has them. SingleDeletes are few, so
/// that not every job meets a broken contract.
fn runs() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let key = prop_oneof![
        proptest::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..4),
        (0u16..40).prop_map(|n| format!("key-with-a-long-prefix-{n:05}").into_bytes()),
    ];
    let kind = prop_oneof![
        20 => Just(common::PUT),
        6 => Just(common::DELETE),
        1 => Just(common::SINGLE_DELETE),
    ];
    let entry = (key, kind, common::values(), any::<prop::sample::Index>());
    (1usize..6, proptest::collection::vec(entry, 1..120)).prop_map(|(runs, entries)| {
        let mut out = vec![Vec::new(); runs];
        for (i, (key, kind, value, run)) in entries.into_iter().enumerate() {
            let value = if kind == common::PUT {
                value
            } else {
                Vec::new()
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

fn plans() -> impl Strategy<Value = Plan> {
    let snapshots = proptest::collection::btree_set(0u64..130, 0..4);
    let size = prop::sample::select(vec![100u64, 3000, u64::MAX]);
    (snapshots, any::<bool>(), size, any::<bool>()).prop_map(
        |(snapshots, bottommost, size, hash)| {
            let mut plan = common::plan();
            plan.rules.snapshots = snapshots.into_iter().collect();
            plan.rules.bottommost = bottommost;
            if bottommost {
                plan.rules.deeper = DeeperLevels::Nothing;
            }
            plan.output.table.block_size = 500;
            plan.output.splitting = OutputSplitting {
                grandparents: Vec::new(),
                ..common::splitting(size)
            };
            plan.output.paranoid_hash = hash;
            plan.output.file_checksum = hash;
            plan
        },
    )
}

/// The same files, read by streams with announced ranges.
fn read_ahead_tables(runs: &[Vec<Entry>], block_size: u64) -> Vec<InputTable> {
    let mut plan = common::plan();
    plan.output.table.block_size = block_size;
    let files = runs.iter().map(|run| common::one_file(&plan, run));
    let open = |file| open_table(Box::new(AheadFile(MemFile(file)))).expect("opens");
    files.map(open).collect()
}

fn tables(runs: &[Vec<Entry>], block_size: u64) -> Vec<InputTable> {
    let mut plan = common::plan();
    plan.output.table.block_size = block_size;
    common::tables(&plan, runs)
}

fn compact(
    inputs: &[InputTable],
    plan: &Plan,
    range: &KeyRange,
    read_ahead_bytes: usize,
    first_number: u64,
) -> Result<(TaskReport, Vec<MemOutput>), Error> {
    let cancel = CancelToken::new();
    let task = ReadTask {
        reading: plan.reading(inputs, range, read_ahead_bytes),
        ..common::task(inputs, plan, range, &cancel)
    };
    let mut sink = MemSink::numbered_from(first_number);
    let report = common::make(&CpuBackend, task, &plan.output, &mut sink)?;
    Ok((report, sink.into_files()))
}

fn contents(files: &[MemOutput]) -> Result<Vec<Entry>, Error> {
    let mut out = Vec::new();
    for file in files {
        let table = open(file.bytes.clone())?;
        out.extend(common::read(&table, &KeyRange::default(), 4096)?.0);
    }
    Ok(out)
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn read_ahead_changes_nothing(
        runs in runs(),
        plan in plans(),
        block_size in prop::sample::select(vec![1u64, 400, 4096]),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
    ) {
        let inputs = tables(&runs, block_size);
        let all = runs.concat();
        let [begin, end] = bounds.map(|at| at.map(|at| all[at.index(all.len())].key.clone()));
        let range = KeyRange { begin, end };
        let results = [1, 4096, 1 << 20].map(|read_ahead| {
            compact(&inputs, &plan, &range, read_ahead, 1)
                .map(|(report, files)| (format!("{report:#?}"), files))
        });
        prop_assert_eq!(&results[0], &results[1]);
        prop_assert_eq!(&results[0], &results[2]);
        let inputs = read_ahead_tables(&runs, block_size);
        for read_ahead in [1, 4096, 1 << 20] {
            let ahead = compact(&inputs, &plan, &range, read_ahead, 1)
                .map(|(report, files)| (format!("{report:#?}"), files));
            prop_assert_eq!(&results[0], &ahead);
        }
    }

    #[test]
    fn a_task_is_what_its_stages_make_of_it(
        runs in runs(),
        plan in plans(),
        bound in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let inputs = tables(&runs, 400);
        let mut all = runs.concat();
        all.sort_by_key(Entry::order);
        let bound = bound.map(|at| all[at.index(all.len())].key.clone());
        let tasks: Vec<_> = match bound {
            None => vec![KeyRange::default()],
            Some(key) => vec![
                KeyRange { begin: None, end: Some(key.clone()) },
                KeyRange { begin: Some(key), end: None },
            ],
        };
        let mut sink = VecSink::default();
        let expected = retain(&plan.rules, &mut VecSource::new(&all), &mut sink);
        let mut out = Vec::new();
        let mut sums = [0u64; 6];
        let mut hashes = [0u64; 3];
        let mut read = vec![0u64; runs.len()];
        for (i, range) in tasks.iter().enumerate() {
            let first_number = 1000 * i as u64;
            let (report, files) = match (compact(&inputs, &plan, range, 4096, first_number), &expected) {
                (Ok(done), _) => done,
                (Err(error), Err(expected)) => {
                    prop_assert_eq!(error.kind, expected.kind);
                    return Ok(());
                }
                (Err(error), Ok(_)) => return Err(error.into()),
            };
            prop_assert!(report.files().iter().map(|f| f.number).eq(files.iter().map(|f| f.number)));
            let found = contents(&files)?;
            let report = report.read;
            prop_assert_eq!(report.kept, found.len() as u64);
            out.extend(found);
            for (sum, part) in sums.iter_mut().zip([
                report.tombstones,
                report.key_bytes,
                report.value_bytes,
                report.replaced,
                report.tombstones_dropped,
                report.kept,
            ]) {
                *sum += part;
            }
            let parts = [report.hash_in, report.hash_kept, report.hash_dropped];
            for (hash, part) in hashes.iter_mut().zip(parts) {
                *hash = hash.wrapping_add(part);
            }
            prop_assert_eq!(report.entries.len(), runs.len());
            read.iter_mut().zip(&report.entries).for_each(|(sum, part)| *sum += part);
        }
        let totals = expected?;
        prop_assert_eq!(&out, &sink.0);
        prop_assert_eq!(sums, [
            all.iter().filter(|entry| entry.kind() != common::PUT).count() as u64,
            all.iter().map(|entry| entry.key.len() as u64 + 8).sum(),
            all.iter().map(|entry| entry.value.len() as u64).sum(),
            totals.replaced,
            totals.tombstones_dropped,
            totals.kept,
        ]);
        prop_assert_eq!(hashes, [hash_sum(&all), totals.hash_kept, totals.hash_dropped]);
        prop_assert!(read.into_iter().eq(runs.iter().map(|run| run.len() as u64)));
    }
}

fn puts() -> Vec<Entry> {
    (0..200u8)
        .map(|i| Entry::new(&[i], u64::from(i), common::PUT, &[i; 30]))
        .collect()
}

#[test]
fn a_damaged_input_fails_the_task() {
    let mut bytes = common::one_file(&common::plan(), &puts());
    bytes[100] ^= 1;
    let inputs = [open(bytes).expect("data blocks are not read yet")];
    let error =
        compact(&inputs, &common::plan(), &KeyRange::default(), 4096, 1).expect_err("damaged");
    assert_eq!(error.kind, ErrorKind::Corruption);
    assert_eq!(
        (error.file.as_deref(), error.offset),
        (Some(FILE_NAME), Some(0))
    );
}

#[test]
fn a_task_without_entries_makes_no_files() {
    let inputs = tables(&[puts()], 400);
    let range = common::range(Some(&[250]), None);
    let (report, files) = compact(&inputs, &common::plan(), &range, 4096, 1).expect("runs");
    assert!(files.is_empty() && report.files().is_empty());
    assert_eq!((report.read.entries, report.read.bytes), (vec![0], 0));
    let (report, files) = compact(&[], &common::plan(), &range, 4096, 1).expect("runs");
    assert!(files.is_empty() && report.read.entries.is_empty());
}

#[test]
fn a_cancelled_job_says_so() {
    let inputs = tables(&[puts()], 1);
    let (backend, cancel, plan) = (CpuBackend, CancelToken::new(), common::plan());
    let range = KeyRange::default();
    let task = ReadTask {
        reading: plan.reading(&inputs, &range, 1),
        ..common::task(&inputs, &plan, &range, &cancel)
    };
    cancel.cancel();
    let sink = &mut MemSink::numbered_from(1);
    let plan = &plan.output;
    let written = backend.run(task, Operator::WriteSst { plan, sink });
    let error = written.expect_err("cancelled");
    assert_eq!(error.kind, ErrorKind::Cancelled);
}
