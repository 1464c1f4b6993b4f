//! Scans of tables at snapshots through the backend.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rockmill_core::scan::{Batch, ScanPlan};
use rockmill_core::{
    Backend, BatchOutput, CancelToken, InputTable, KeyRange, NeedsMerge, Operator, Output, Purpose,
    ReadReport, ReadTask, Reading, Request, Result, SnapshotRules, Support, Tombstones,
    Unsupported, Visibility,
};
use rockmill_cpu::CpuBackend;

use super::common::{self, DELETE, Entry, PUT, SINGLE_DELETE, config};
use super::{CollectedBatches, drawn_plan, model};

pub fn rules(sequence: u64) -> SnapshotRules<'static> {
    SnapshotRules {
        sequence,
        tombstones: Tombstones::Drop,
        needs_merge: NeedsMerge::Error,
        deleted: None,
    }
}

pub fn request<'a>(
    tables: &'a [InputTable],
    range: &'a KeyRange,
    plan: &'a ScanPlan,
    rules: SnapshotRules<'a>,
) -> Request<'a> {
    Request {
        reading: Reading {
            tables,
            range,
            visibility: Visibility::Snapshot(rules),
            read_ahead_bytes: 4096,
        },
        purpose: Purpose::Scan(plan),
    }
}

/// Batches, and the counts.
fn scan(request: Request<'_>, rows: u64) -> Result<(Vec<Batch>, BatchOutput)> {
    let (batches, output, report) = scan_reported(request)?;
    assert_eq!((output.rows, report.kept), (rows, rows));
    Ok((batches, output))
}

/// Batches, the counts, and what was read.
pub fn scan_reported(request: Request<'_>) -> Result<(Vec<Batch>, BatchOutput, ReadReport)> {
    CpuBackend.supports(&request).check()?;
    let Purpose::Scan(plan) = request.purpose else {
        panic!("{:?}", request.purpose);
    };
    let task = ReadTask {
        reading: request.reading,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let mut kept = CollectedBatches::default();
    let batches = &mut kept;
    let report = CpuBackend.run(task, Operator::Scan { plan, batches })?;
    let Output::Batches(output) = report.output else {
        panic!("{:?}", report.output);
    };
    assert_eq!(output.rows, report.read.kept);
    assert!(report.read.is_balanced());
    Ok((kept.0, output, report.read))
}

/// Entries of tables, in which a few keys have many versions.
pub fn runs() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let kind = prop_oneof![4 => Just(PUT), 1 => Just(DELETE), 1 => Just(SINGLE_DELETE)];
    let key = proptest::collection::vec(prop::sample::select(vec![0u8, b'a', 0xff]), 0..4);
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    let entry = (key, kind, value, 0usize..3);
    proptest::collection::vec(entry, 1..80).prop_map(|entries| {
        let mut runs = vec![Vec::new(); 3];
        for (i, (key, kind, value, run)) in entries.into_iter().enumerate() {
            let value = if kind == PUT { value } else { Vec::new() };
            runs[run].push(Entry::new(&key, i as u64 + 1, kind, &value));
        }
        runs.retain(|run: &Vec<Entry>| !run.is_empty());
        runs.iter_mut()
            .for_each(|run| run.sort_by_key(Entry::order));
        runs
    })
}

/// The rows in a range that a snapshot sees.
fn seen(runs: &[Vec<Entry>], range: &KeyRange, sequence: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut newest = BTreeMap::<_, &Entry>::new();
    let is_seen = |entry: &&Entry| {
        let key = entry.key.as_slice();
        entry.seq() <= sequence && range.contains(key)
    };
    for entry in runs.iter().flatten().filter(is_seen) {
        let known = newest.entry(entry.key.clone()).or_insert(entry);
        if known.seq() < entry.seq() {
            *known = entry;
        }
    }
    let puts = newest.into_values().filter(|entry| entry.kind() == PUT);
    puts.map(|entry| (entry.key.clone(), entry.value.clone()))
        .collect()
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn a_scan_makes_batches_of_what_its_snapshot_sees(
        runs in runs(),
        plan in proptest::collection::vec(any::<u8>(), 0..300),
        sequence in 0u64..100,
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
    ) {
        let (tables, plan) = (common::tables(&common::plan(), &runs), drawn_plan(&plan));
        let all = runs.concat();
        let [begin, end] = bounds.map(|at| at.map(|at| all[at.index(all.len())].key.clone()));
        let range = KeyRange { begin, end };
        let rows = seen(&runs, &range, sequence);
        let found = scan(request(&tables, &range, &plan, rules(sequence)), rows.len() as u64);
        prop_assert_eq!(found.map_err(|_| model::OutOfRange), model::scan(&plan, &rows));
    }
}

#[test]
fn rows_that_do_not_decide_alone_are_refused() {
    let (range, plan) = (KeyRange::default(), ScanPlan::default());
    for other in [
        SnapshotRules {
            tombstones: Tombstones::Keep,
            ..rules(1)
        },
        SnapshotRules {
            needs_merge: NeedsMerge::Mark,
            ..rules(1)
        },
    ] {
        let support = CpuBackend.supports(&request(&[], &range, &plan, other));
        assert_eq!(support, Support::No(Unsupported::Purpose));
    }
}

#[test]
fn a_scan_holds_a_batch_of_memory_at_most() {
    let plan = drawn_plan(&[]);
    let run = vec![Entry::new(b"key", 1, PUT, b"value")];
    let tables = common::tables(&common::plan(), &[run]);
    let range = KeyRange::default();
    let scan = request(&tables, &range, &plan, rules(1));
    let inspect = Request {
        purpose: Purpose::Inspect,
        ..scan
    };
    let [scan, inspect] = [scan, inspect].map(|r| CpuBackend.footprint(&r).host_bytes);
    assert!(scan >= inspect && scan < inspect + 4096, "{scan} {inspect}");
}
