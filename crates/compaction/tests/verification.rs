//! Faults that each level of verification detects.

use rockmill_testkit::cases as common;

use std::fs;
use std::num::NonZeroU32;
use std::sync::Arc;

use rockmill_compaction::Verification;
use rockmill_compaction::staging::{StagingDir, StagingSink};
use rockmill_compaction::verify::Verifier;
use rockmill_compaction::verify::table::scan;
use rockmill_core::{
    CancelToken, ErrorKind, InputTable, KeyRange, Plan, Result, SstOutput, Subcompaction,
    TaskReport,
};
use rockmill_cpu::CpuBackend;
use rockmill_storage::LocalStorage;
use rockmill_storage::io::{JobIo, RateLimiter, TaskFiles};
use tempfile::TempDir;

use common::{DELETE, Entry, PUT};

const FILE_BYTES: u64 = 8 << 10;
const SUBCOMPACTIONS: usize = 7;
const SESSION: &str = "0123456789ABCDEFGHIJ";

/// A subcompaction with its files in a staging folder.
struct Staged {
    inputs: Vec<InputTable>,
    plan: Plan,
    subcompaction: Subcompaction,
    report: TaskReport,
    staging: StagingDir,
    _root: TempDir,
}

impl Staged {
    /// Runs a subcompaction on a backend that follows `made` instead of the plan, and that reports its files as
    /// verified.
    fn new(made: impl Fn(&mut Plan)) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let staging = StagingDir::create(Arc::new(LocalStorage), root.path(), SESSION);
        let mut plan = common::plan();
        plan.output.splitting = common::splitting(FILE_BYTES);
        plan.rules.bottommost = true;
        let mut staged = Self {
            inputs: inputs(),
            subcompaction: Subcompaction {
                index: 3,
                range: KeyRange::default(),
            },
            report: TaskReport::default(),
            staging: staging.expect("room"),
            plan,
            _root: root,
        };
        let mut other = staged.plan.clone();
        made(&mut other);
        staged.report = staged.make(&other).expect("the inputs are sound");
        assert!(
            staged.report.files().len() > 2,
            "a subcompaction of several files"
        );
        staged
    }

    fn make(&self, plan: &Plan) -> Result<TaskReport> {
        let cancel = CancelToken::new();
        let mut sink = StagingSink::new(
            self.staging.files(),
            Arc::new(JobIo::new(Arc::new(LocalStorage), CancelToken::new())),
            TaskFiles::new(self.subcompaction.index),
        );
        let task = common::task(&self.inputs, plan, &self.subcompaction.range, &cancel);
        common::make(&CpuBackend, task, &plan.output, &mut sink)
    }

    fn verify(&self, level: Verification, session_id: &str) -> Result<()> {
        let files = JobIo::new(Arc::new(LocalStorage), CancelToken::new());
        self.verify_with(files, level, session_id)
    }

    fn verify_with(&self, files: JobIo, level: Verification, session_id: &str) -> Result<()> {
        let verifier = Verifier {
            keeper: None,
            level,
            files: Arc::new(files),
            staging: self.staging.files().clone(),
            session_id: session_id.to_owned(),
            subcompactions: SUBCOMPACTIONS,
            is_repeatable: true,
        };
        let cancel = CancelToken::new();
        let task = common::task(&self.inputs, &self.plan, &self.subcompaction.range, &cancel);
        verifier.verify(
            self.subcompaction.index,
            task,
            &self.plan.output,
            &self.report,
        )
    }

    /// Whether a level detects a fault in the files.
    fn notices(&self, level: Verification) -> bool {
        match self.verify(level, SESSION) {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Verification, "{error}");
                true
            }
        }
    }

    /// Inverts a bit in the middle of the file at `position`, which is in a data block.
    fn flip(&self, position: usize) {
        let file = &self.report.files()[position];
        let path = self.staging.files().file(file.number);
        let mut bytes = fs::read(&path).expect("it is there");
        let middle = file.properties.data_size as usize / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).expect("room");
    }
}

/// Creates two overlapping files with some tombstones.
fn inputs() -> Vec<InputTable> {
    const KEYS: u64 = 600;
    let of = |first_sequence: u64, kind: fn(u64) -> u8| {
        let entries: Vec<_> = (0..KEYS)
            .map(|key| {
                let kind = kind(key);
                let value = common::noise(first_sequence + key, 60);
                let value = if kind == PUT { &value[..] } else { &[] };
                let name = format!("key{key:06}");
                Entry::new(name.as_bytes(), first_sequence + key, kind, value)
            })
            .collect();
        common::open(common::one_file(&common::plan(), &entries)).expect("a sound file")
    };
    let newer = |key| if key % 5 == 0 { DELETE } else { PUT };
    vec![of(10_000, newer), of(1, |_| PUT)]
}

fn ssts(report: &mut TaskReport) -> &mut SstOutput {
    report.output.ssts_mut().expect("files were made")
}

fn one_in(subcompactions: u32) -> Verification {
    let one_in = NonZeroU32::new(subcompactions).expect("it is not zero");
    Verification::Sampled { one_in }
}

#[test]
fn sound_files_pass_every_level() {
    let staged = Staged::new(|_| {});
    for level in [Verification::Default, one_in(1), Verification::Full] {
        assert!(!staged.notices(level), "{level}");
    }
}

#[test]
fn a_bit_that_flips_after_the_backend_verified_it_is_noticed_where_all_is_read_back() {
    for position in [0, 1, 2] {
        let staged = Staged::new(|_| {});
        staged.flip(position);
        assert!(!staged.notices(Verification::Default));
        assert!(staged.notices(one_in(1)) && staged.notices(Verification::Full));
    }
}

#[test]
fn a_backend_that_does_not_verify_has_its_files_read_back_at_any_level() {
    let mut staged = Staged::new(|_| {});
    staged.flip(1);
    ssts(&mut staged.report).verified = false;
    assert!(staged.notices(Verification::Default));
}

#[test]
fn files_that_are_sound_and_wrong_are_noticed_where_the_subcompaction_is_made_again() {
    // Each is a valid plan, but of another job.
    let wrong: [fn(&mut Plan); 4] = [
        |plan| plan.rules.bottommost = false,
        |plan| plan.rules.snapshots = vec![5],
        |plan| plan.output.splitting = common::splitting(2 * FILE_BYTES),
        |plan| plan.output.properties.now += 1,
    ];
    for (i, made) in wrong.into_iter().enumerate() {
        let staged = Staged::new(made);
        assert!(!staged.notices(Verification::Default), "{i}");
        assert!(staged.notices(Verification::Full), "{i}");
    }
}

#[test]
fn what_is_told_of_a_file_must_be_right_too() {
    let tell: [fn(&mut TaskReport); 3] = [
        |report| ssts(report).files[1].oldest_ancester_time += 1,
        |report| ssts(report).files[1].paranoid_hash ^= 1,
        |report| report.read.entries[0] += 1,
    ];
    for (i, tell) in tell.into_iter().enumerate() {
        let mut staged = Staged::new(|_| {});
        tell(&mut staged.report);
        assert!(!staged.notices(Verification::Default), "{i}");
        assert!(staged.notices(Verification::Full), "{i}");
    }
}

#[test]
fn a_sample_notices_what_is_wrong_with_some_subcompactions_and_draws_alike_again() {
    let staged = Staged::new(|plan| plan.rules.bottommost = false);
    let noticed = |session: &String| staged.verify(one_in(4), session).is_err();
    let sessions: Vec<_> = (0..100).map(|i| format!("SESSION-{i}")).collect();
    let drawn: Vec<_> = sessions.iter().map(noticed).collect();
    assert_eq!(drawn, sessions.iter().map(noticed).collect::<Vec<_>>());
    // A quarter, and at least one of seven.
    let share = drawn.iter().filter(|noticed| **noticed).count();
    assert!((15..65).contains(&share), "{share} of 100");
}

#[test]
fn an_index_of_user_keys_is_refused_where_one_goes_on_in_the_next_block() {
    let version = |seq| Entry::new(b"key", seq, PUT, &common::noise(seq, 60));
    let entries: Vec<_> = (1..=200).rev().map(version).collect();
    let mut table = common::open(common::one_file(&common::plan(), &entries)).expect("sound");
    assert!(table.meta.index.len() > 2, "a user key in several blocks");
    let read = |table: &InputTable| scan(table, &CancelToken::new(), |_, _, _| Ok(()));
    assert_eq!(read(&table).expect("it is sound").entries(), 200);
    // Without their sequence numbers, these separators are equal.
    let meta = Arc::make_mut(&mut table.meta);
    meta.properties.index_key_is_user_key = 1;
    let error = read(&table).expect_err("they do not tell the versions apart");
    assert_eq!(error.kind, ErrorKind::Corruption, "{error}");
    assert!(error.what.contains("before its block's range"), "{error}");
}

#[test]
fn files_are_read_back_within_the_limit() {
    let staged = Staged::new(|_| {});
    let closing = CancelToken::new();
    closing.cancel();
    let mut files = JobIo::new(Arc::new(LocalStorage), closing);
    files.limiter = Arc::new(RateLimiter::new(1));
    // The first read proceeds and the next one waits; cancelling the job ends the wait.
    let error = staged.verify_with(files, Verification::Default, SESSION);
    assert_eq!(error.expect_err("it waits").kind, ErrorKind::Cancelled);
}
