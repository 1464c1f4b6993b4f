//! The engine's promise that nothing is lost, tested with a file system that fails and crashes.
//!
//! Each case creates a small database from its seed and does its compaction once undisturbed. Then it does it again
//! with one fault at a random operation, lets the machine crash, and restarts on the files that the crash left.
//! `ROCKMILL_SIM_SEED` is the first seed, `ROCKMILL_CASES` the number of cases. [`schedules`] does the same with
//! devices that fail.

mod check;
mod life;
mod schedules;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rockmill_compaction::staging::STAGING_DIR;
use rockmill_compaction::{MutableSettings, OutputCache, Verification};
use rockmill_core::{CancelToken, DeclineReason, ErrorKind};
use rockmill_format::wire::CompactionServiceInput;
use rockmill_storage::descriptors;

use check::Lived;
use database::{DIR, Database};
use disk::{Disk, Survival};
use fault::{Fault, FaultKind, Op};
use life::{Case, Ending, RECORDS, live};
use rockmill_testkit::cases::tables;
use rockmill_testkit::machine;
use rockmill_testkit::storage_model::{database, disk, family, fault, storage};
use storage::{Mounts, Seen, SimStorage};

const DEFAULT_SEED: u64 = 1;
const DEFAULT_CASES: u64 = 500;

/// Number of cases that is enough to meet every kind of fault.
const ENOUGH_CASES: u64 = 100;

const LEVELS: [Verification; 3] = [
    Verification::Default,
    Verification::SAMPLED,
    Verification::Full,
];

const OUTPUT: [OutputCache; 2] = [OutputCache::Database, OutputCache::Bypass];

/// Results of all cases.
#[derive(Debug, Default)]
struct Tally {
    ops: u64,
    virtual_time: Duration,
    /// Output files of jobs after a restart.
    files: u64,
    by_kind: BTreeMap<FaultKind, KindTally>,
}

#[derive(Debug, Default)]
struct KindTally {
    cases: u64,
    done: u64,
    failed: u64,
    unprepared: u64,
    struck: BTreeMap<Op, u64>,
}

#[test]
fn nothing_is_lost_whatever_fails() {
    let first = machine::number("ROCKMILL_SIM_SEED", DEFAULT_SEED);
    let cases = machine::cases(DEFAULT_CASES);
    println!("seeds {first} to {}", first + cases - 1);
    let mut tally = Tally::default();
    for seed in first..first + cases {
        let kind = kind_of(seed);
        // The last line before a failure names the case to replay.
        println!("ROCKMILL_SIM_SEED={seed} ROCKMILL_CASES=1: {kind:?}");
        run_case(seed, kind, &mut tally);
    }
    print(&tally);
    if cases >= ENOUGH_CASES {
        for kind in FaultKind::ALL {
            let struck = tally.by_kind.get(&kind).map_or(0, |t| t.struck.len());
            assert!(struck > 0, "no operation met {kind:?}");
        }
    }
}

#[test]
fn settings_that_change_meanwhile_change_no_bytes() {
    const CASES: u64 = 40;
    /// Two jobs with the same session id in parallel tests would be one job to the process.
    const FIRST_SEED: u64 = 1 << 32;
    /// All suffice for each of the jobs, which need up to 50 MB: with less, RocksDB would have to do it.
    const BUDGETS: Range<u64> = 56 << 20..96 << 20;
    for seed in FIRST_SEED..FIRST_SEED + CASES {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let case = plain_case(seed);
        let machine =
            || SimStorage::new(case.database.disk.clone(), seed, None, CancelToken::new());
        let Ending::Done(expected) = live(&machine(), &case, FIRST, &CancelToken::new()) else {
            panic!("the job is not done");
        };
        let storage = machine();
        let engine = life::engine(&storage, &case);
        let is_over = AtomicBool::new(false);
        let ending = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let change = |settings: &mut MutableSettings| {
                        settings.threads = rng.random_range(1..=4);
                        settings.memory_budget_bytes = rng.random_range(BUDGETS);
                        settings.nice = rng.random_range(0..=1);
                        settings.verification = *LEVELS.choose(&mut rng).expect("there are some");
                        settings.output_cache = *OUTPUT.choose(&mut rng).expect("there are some");
                    };
                    engine.change_settings(change).expect("they make sense");
                    std::thread::yield_now();
                }
            });
            let ending = life::live_with(&engine, &storage, &case, FIRST, &CancelToken::new());
            is_over.store(true, Ordering::Relaxed);
            ending
        });
        match ending {
            Ending::Done(outputs) => assert!(outputs == expected, "other bytes"),
            other => panic!("{other:?}"),
        }
    }
}

/// A case with default settings.
fn plain_case(seed: u64) -> Case {
    Case {
        seed,
        database: Database::draw(&mut SmallRng::seed_from_u64(seed)),
        threads: 1,
        sync_threads: 2,
        io_bytes_per_second: 0,
        verification: Verification::Default,
        output_cache: OutputCache::Database,
        staging_dir: None,
        records: false,
        offline: false,
    }
}

#[test]
fn a_staging_folder_that_files_cannot_be_renamed_from_is_declined() {
    let inside = "/db/rockmill.staging";
    let beside = "/staging";
    for (staging_dir, mounts) in [
        (None, Mounts::Other(inside)),
        (None, Mounts::Bind(inside)),
        (Some(beside), Mounts::Other(beside)),
        (Some(beside), Mounts::Bind(beside)),
        (Some(beside), Mounts::Bind(DIR)),
    ] {
        let case = Case {
            staging_dir,
            ..plain_case(1)
        };
        let storage = SimStorage::new(case.database.disk.clone(), 1, None, CancelToken::new());
        let storage = storage.with(mounts);
        for life in [FIRST, FIRST + 1] {
            let ending = live(&storage, &case, life, &CancelToken::new());
            let Ending::Unprepared(error) = ending else {
                panic!("{mounts:?}: {ending:?}");
            };
            let reason = DeclineReason::StagingFolder;
            assert_eq!(error.kind, ErrorKind::Declined(reason), "{mounts:?}");
        }
        let disk = storage.disk();
        assert!(disk.list(&case.staging()).is_err(), "{mounts:?}");
        assert!(disk.open(Path::new("/db/rockmill.trial")).is_err());
    }
}

#[test]
fn databases_that_share_a_staging_folder_leave_each_others_files() {
    let case = Case {
        staging_dir: Some("/staging"),
        ..plain_case(2)
    };
    let mut disk = case.database.disk.clone();
    let of_another = Path::new("/staging/rockmill.ff/SOMEJOB");
    make_folder(&mut disk, of_another);
    leave_something(&mut disk, &case.staging());
    let storage = SimStorage::new(disk, 2, None, CancelToken::new());
    let ending = live(&storage, &case, FIRST, &CancelToken::new());
    assert!(matches!(ending, Ending::Done(_)), "{ending:?}");
    assert!(storage.disk().list(of_another).is_ok(), "it was removed");
    assert!(storage.disk().list(&case.staging()).is_err(), "it stays");
}

#[test]
fn a_job_of_a_database_that_lies_elsewhere_changes_nothing() {
    let mut case = plain_case(3);
    let message = &mut case.database.families[0].message;
    let mut input = CompactionServiceInput::decode(message).expect("it is one");
    input.db_id = b"another".to_vec();
    *message = input.encode();
    let mut disk = case.database.disk.clone();
    leave_something(&mut disk, &case.staging());
    let storage = SimStorage::new(disk, 3, None, CancelToken::new());
    let family = case.database.family();
    let prepared = life::engine(&storage, &case).prepare(
        Path::new(DIR),
        family.info("session"),
        &family.message,
        &CancelToken::new(),
    );
    let error = prepared.expect_err("it is another database's");
    assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::Manifest));
    assert!(
        error.to_string().contains("in memory, or encrypted"),
        "{error}"
    );
    let ops = storage.seen().ops;
    let is_look = |op: &Op| matches!(op, Op::Open | Op::Size | Op::Read | Op::Stat);
    assert!(ops.keys().all(is_look), "{ops:?}");
}

/// Returns a case with several parallel subcompactions, the number of files that these may have open, and a machine
/// that allows it: as many as one subcompaction over all inputs needs, minus `less`.
fn with_few_descriptors(seed: u64, less: u64) -> (Case, u64, SimStorage) {
    let case = Case {
        threads: 3,
        ..plain_case(seed)
    };
    let inputs = case.database.family().files;
    let open = inputs + descriptors::OUTPUT_FILES - less;
    let storage = SimStorage::new(case.database.disk.clone(), seed, None, CancelToken::new());
    // Subcompactions may use a quarter.
    (case, open, storage.with_descriptors(4 * open))
}

#[test]
fn subcompactions_wait_for_each_others_descriptors() {
    for seed in 0..100 {
        let (case, open, storage) = with_few_descriptors(seed, 0);
        let ending = live(&storage, &case, FIRST, &CancelToken::new());
        let Ending::Done(outputs) = ending else {
            panic!("seed {seed}: {ending:?}");
        };
        check::contents(&outputs, &case.database.family().expected);
        // Each thread may read a file for a moment.
        let threads = (case.threads + case.sync_threads) as u64;
        let most = storage.seen().max_open;
        assert!(most <= open + threads, "seed {seed}: {most} files");
    }
}

#[test]
fn a_subcompaction_that_needs_more_descriptors_than_there_are_is_declined() {
    let (case, _, storage) = with_few_descriptors(1, 1);
    let ending = live(&storage, &case, FIRST, &CancelToken::new());
    let Ending::Failed(error) = ending else {
        panic!("{ending:?}");
    };
    let reason = DeclineReason::OpenFiles;
    assert_eq!(error.kind, ErrorKind::Declined(reason), "{error}");
    assert!(storage.disk().list(&case.staging()).is_err(), "it stays");
}

/// Every second seed is a crash.
fn kind_of(seed: u64) -> FaultKind {
    let others = FaultKind::ALL.len() as u64 - 1;
    match seed % 2 {
        0 => FaultKind::Crash,
        _ => FaultKind::ALL[1 + (seed / 2 % others) as usize],
    }
}

/// Numbers of lives. The undisturbed one and the one with a fault have the same session id, and write the same bytes.
const FIRST: u64 = 1;
const AFTER_CRASH: u64 = 2;

fn run_case(seed: u64, kind: FaultKind, tally: &mut Tally) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let case = Case {
        seed,
        database: Database::draw(&mut rng),
        // A single thread repeats its operations exactly.
        threads: if rng.random_ratio(1, 4) { 3 } else { 1 },
        sync_threads: if rng.random_ratio(1, 4) { 2 } else { 0 },
        io_bytes_per_second: *[0, 1_000_000].choose(&mut rng).expect("there are some"),
        verification: *LEVELS.choose(&mut rng).expect("there are some"),
        output_cache: *OUTPUT.choose(&mut rng).expect("there are some"),
        staging_dir: rng.random_ratio(1, 3).then_some("/staging"),
        records: rng.random(),
        offline: rng.random(),
    };
    let mut disk = case.database.disk.clone();
    make_folder(&mut disk, Path::new(RECORDS));
    if rng.random_ratio(1, 3) {
        // The earlier process had another setting, or the same.
        let before = [case.staging(), Path::new(DIR).join(STAGING_DIR)];
        leave_something(&mut disk, before.choose(&mut rng).expect("there are two"));
    }
    let calm = SimStorage::new(disk.clone(), seed, None, CancelToken::new());
    let Ending::Done(outputs) = live(&calm, &case, FIRST, &CancelToken::new()) else {
        panic!("the job is not done undisturbed");
    };
    check::contents(&outputs, &case.database.family().expected);
    let first = Lived {
        life: FIRST,
        outputs: &outputs,
    };
    check::after(&calm, &case, &first);

    let fault = draw_fault(&mut rng, kind, &calm);
    let cancel = CancelToken::new();
    let storage = SimStorage::new(disk, seed, Some(fault), cancel.clone());
    let ending = live(&storage, &case, FIRST, &cancel);
    check::ending(&ending, fault, &storage, &outputs);
    check::after(&storage, &case, &first);
    count(tally, fault.kind, &ending, &storage.seen());

    let disk = storage.after_crash(&mut Survival::Random(&mut rng));
    let restarted = SimStorage::new(disk, seed, None, CancelToken::new());
    let Ending::Done(outputs) = live(&restarted, &case, AFTER_CRASH, &CancelToken::new()) else {
        panic!("the job is not done after a restart");
    };
    check::contents(&outputs, &case.database.family().expected);
    let after_crash = Lived {
        life: AFTER_CRASH,
        outputs: &outputs,
    };
    check::after(&restarted, &case, &after_crash);
    tally.files += outputs.len() as u64;
    for storage in [calm, storage, restarted] {
        let seen = storage.seen();
        tally.ops += seen.ops.values().sum::<u64>();
        tally.virtual_time += seen.time;
    }
}

/// Draws a fault at one of the operations of the undisturbed life. Each sort of operation is equally likely, because
/// most are reads.
fn draw_fault(rng: &mut SmallRng, kind: FaultKind, calm: &SimStorage) -> Fault {
    let ops: Vec<_> = calm.seen().ops.into_iter().collect();
    // A job that drops all entries writes nothing.
    let meets = |kind: FaultKind| ops.iter().any(|(op, _)| kind.strikes(*op));
    let kind = if meets(kind) { kind } else { FaultKind::Crash };
    let suited: Vec<_> = ops.iter().filter(|(op, _)| kind.strikes(*op)).collect();
    let &&(op, count) = suited.choose(rng).expect("each life does something");
    Fault {
        kind,
        op,
        at: rng.random_range(0..count),
        lasting: rng.random(),
    }
}

/// Name of a job's folder of an earlier process.
const LEFTOVER: &str = "EARLIER0000000000000";

/// Creates the staging folder of an earlier process.
fn leave_something(disk: &mut Disk, staging: &Path) {
    let folder = staging.join(LEFTOVER);
    make_folder(disk, &folder);
    let node = disk.create(&folder.join("000001.sst")).expect("a new file");
    disk.append(node, b"half a file");
    *disk = disk.after_crash(&mut Survival::Best);
}

/// Creates a durable folder.
fn make_folder(disk: &mut Disk, path: &Path) {
    for step in disk.steps_to_make(path) {
        disk.take_step(&step).expect("a new folder");
    }
    *disk = disk.after_crash(&mut Survival::Best);
}

fn count(tally: &mut Tally, kind: FaultKind, ending: &Ending, seen: &Seen) {
    let of_kind = tally.by_kind.entry(kind).or_default();
    of_kind.cases += 1;
    match ending {
        Ending::Done(_) => of_kind.done += 1,
        Ending::Failed(_) => of_kind.failed += 1,
        Ending::Unprepared(_) => of_kind.unprepared += 1,
    }
    for &op in &seen.struck {
        *of_kind.struck.entry(op).or_default() += 1;
    }
}

fn print(tally: &Tally) {
    println!(
        "{} operations, {} virtual seconds, {} output files",
        tally.ops,
        tally.virtual_time.as_secs(),
        tally.files
    );
    for (kind, of_kind) in &tally.by_kind {
        let KindTally {
            cases,
            done,
            failed,
            unprepared,
            struck,
        } = of_kind;
        println!(
            "{kind:?}: {cases} cases, {done} jobs done, {failed} failed, {unprepared} not made; \
             struck {struck:?}"
        );
    }
}
