//! A snapshot sees the same on the CPU, by the kernels, and in a model. Rows that are passed on equal those that files
//! would have.

mod deltas;
mod drawn;
mod model;
mod refused;
mod resident;
pub mod scans;
mod sizes;

use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, Fragments, InputTable, KeyRange, NeedsMerge, Operator, Output,
    OutputPlan, Plan, Purpose, ReadReport, ReadTask, Reading, Request, Result, Row, RowOutput,
    RowSink, SnapshotRules, Support, TaskReport, Tombstones, Unsupported, Visibility,
};
use rockmill_cpu::CpuBackend;
use rockmill_format::key::{KeyOrder, MAX_SEQUENCE, pack_tag};
use rockmill_format::range_tombstone::RangeTombstone;

use super::device;
use super::same_files::cases;
use crate::common::{self, Entry, MemSink, config};

/// All entries that existed at some time, tombstones included.
const EVERYTHING: SnapshotRules = SnapshotRules {
    sequence: MAX_SEQUENCE,
    tombstones: Tombstones::Keep,
    needs_merge: NeedsMerge::Mark,
    deleted: None,
};

fn request<'a>(
    tables: &'a [InputTable],
    range: &'a KeyRange,
    visibility: Visibility<'a>,
    purpose: Purpose<'a>,
) -> Request<'a> {
    Request {
        reading: Reading {
            tables,
            range,
            visibility,
            read_ahead_bytes: 64 << 10,
        },
        purpose,
    }
}

/// Stores the rows that it receives.
#[derive(Debug, Default)]
struct CollectedBatches(Vec<Entry>);

impl RowSink for CollectedBatches {
    fn row(&mut self, row: Row<'_>) -> Result<()> {
        assert_eq!(row.needs_merge(), row.value_type.needs_merge());
        self.0.push(Entry {
            key: row.user_key.to_vec(),
            tag: pack_tag(row.sequence, row.value_type as u8),
            value: row.value.to_vec(),
        });
        Ok(())
    }
}

/// Rows in a range, and the report of reading them without the bytes read.
fn inspect(
    backend: &impl Backend,
    tables: &[InputTable],
    range: &KeyRange,
    visibility: Visibility<'_>,
) -> Result<(Vec<Entry>, ReadReport)> {
    let request = request(tables, range, visibility, Purpose::Inspect);
    backend.supports(&request).check()?;
    let task = ReadTask {
        reading: request.reading,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let mut rows = CollectedBatches::default();
    let report = backend.run(task, Operator::Inspect { rows: &mut rows })?;
    let bytes = rows.0.iter().map(|row| row.key.len() + row.value.len());
    let meant = RowOutput {
        rows: rows.0.len() as u64,
        bytes: bytes.sum::<usize>() as u64,
    };
    assert!(matches!(report.output, Output::Rows(output) if output == meant));
    assert!(report.read.is_balanced() && report.files().is_empty());
    Ok((rows.0, without_bytes(&report)))
}

fn without_bytes(report: &TaskReport) -> ReadReport {
    ReadReport {
        bytes: 0,
        cached_bytes: 0,
        ..report.read.clone()
    }
}

/// Files of the rows in a range, and the report of reading them.
fn write(
    backend: &impl Backend,
    tables: &[InputTable],
    range: &KeyRange,
    visibility: Visibility<'_>,
    plan: &OutputPlan,
) -> Result<(Vec<common::MemOutput>, ReadReport)> {
    let request = request(tables, range, visibility, Purpose::WriteSst(plan));
    let task = ReadTask {
        reading: request.reading,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let mut sink = MemSink::numbered_from(1);
    let report = common::make(backend, task, plan, &mut sink)?;
    Ok((sink.into_files(), without_bytes(&report)))
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_snapshot_sees_on_each_backend_what_it_sees_in_the_model(
        runs in drawn::runs(),
        plan in common::plans::table_plans(),
        rules in drawn::rules(),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
        is_cut in any::<bool>(),
    ) {
        let tables = drawn::tables(&runs, &plan);
        let range = drawn::range(&runs, bounds, is_cut);
        let meant = model::read(&runs, &range, &rules);
        let visibility = Visibility::Snapshot(rules);
        prop_assert_eq!(&inspect(&CpuBackend, &tables, &range, visibility), &meant);
        prop_assert_eq!(&inspect(device(), &tables, &range, visibility), &meant);
    }

    #[test]
    fn what_range_tombstones_delete_is_no_row_on_any_backend(
        runs in drawn::runs(),
        plan in common::plans::table_plans(),
        rules in drawn::rules(),
        tombstones in drawn::tombstones(),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
        is_cut in any::<bool>(),
    ) {
        let tables = drawn::tables(&runs, &plan);
        let range = drawn::range(&runs, bounds, is_cut);
        let all = drawn::tombstones_of(&runs, tombstones);
        let is_seen = |one: &&RangeTombstone| one.sequence <= rules.sequence;
        let seen: Vec<_> = all.iter().filter(is_seen).cloned().collect();
        let fragments = Fragments::new(KeyOrder::Bytewise, &seen, &[]);
        let rules = SnapshotRules { deleted: Some(&fragments), ..rules };
        let visibility = Visibility::Snapshot(rules);
        if rules.tombstones == Tombstones::Keep && fragments.meets(&range) {
            let asked = request(&tables, &range, visibility, Purpose::Inspect);
            let refused = Support::No(Unsupported::RangeTombstones);
            prop_assert_eq!(CpuBackend.supports(&asked), refused);
            prop_assert_eq!(device().supports(&asked), refused);
        } else {
            let meant = model::read_under(&runs, &range, &rules, &all);
            prop_assert_eq!(&inspect(&CpuBackend, &tables, &range, visibility), &meant);
            prop_assert_eq!(&inspect(device(), &tables, &range, visibility), &meant);
        }
    }

    #[test]
    fn files_of_a_snapshot_hold_what_it_sees(
        runs in drawn::runs(),
        plan in cases::plans(),
        rules in drawn::rules(),
    ) {
        let rules = SnapshotRules { needs_merge: NeedsMerge::Error, ..rules };
        let tables = drawn::tables(&runs, &common::plan().output.table);
        let (range, visibility) = (KeyRange::default(), Visibility::Snapshot(rules));
        let plan = &plan.output;
        let files = write(&CpuBackend, &tables, &range, visibility, plan);
        prop_assert_eq!(&write(device(), &tables, &range, visibility, plan), &files);
        let meant = model::read(&runs, &range, &rules);
        prop_assert_eq!(files.and_then(|(files, report)| Ok((contents(&files)?, report))), meant);
    }

    #[test]
    fn rows_of_a_compaction_are_those_that_its_files_hold(
        runs in cases::runs(),
        plan in cases::plans(),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
    ) {
        let tables = cases::tables(&runs, &common::plan().output.table);
        let all = runs.concat();
        let mut bounds = bounds.map(|at| at.map(|at| all[at.index(all.len())].key.clone()));
        bounds.sort();
        let [begin, end] = bounds;
        let range = KeyRange { begin, end };
        let Plan { rules, output, .. } = &plan;
        let visibility = Visibility::Compaction(rules);
        let files = write(&CpuBackend, &tables, &range, visibility, output);
        let meant = files.and_then(|(files, report)| Ok((contents(&files)?, report)));
        prop_assert_eq!(&inspect(&CpuBackend, &tables, &range, visibility), &meant);
        prop_assert_eq!(&inspect(device(), &tables, &range, visibility), &meant);
    }
}

/// All entries of some files, read only by the decoder.
fn contents(files: &[common::MemOutput]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in files {
        let table = common::open(file.bytes.clone())?;
        entries.extend(common::read(&table, &KeyRange::default(), 4096)?.0);
    }
    Ok(entries)
}
