//! Databases that are open and written to.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, Footprint, KeyRange, Operator, ReadTask, Request,
    Result, Support, TaskReport,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::CudaSettings;
use rockmill_exec::TaskDeadline;
use rockmill_exec::budget::Budget;
use rockmill_exec::device::{Device, OpenBackend, Registered};
use rockmill_exec::device_registry::DeviceRegistry;
use rockmill_exec::executor::Executor;
use rockmill_live::LiveDatabase;
use rockmill_scan::{
    Database, Directory, ReadPath, ScanEngine, ScanSettings, Store, Write, Written,
};
use rockmill_storage::clock::SystemClock;
use rockmill_testkit::scans::*;
use rust_rocksdb::{
    DB, DBCompressionType, DBWithThreadMode, MultiThreaded, OptimisticTransactionDB, Options,
    SingleThreaded, WaitForCompactOptions, WriteBatch,
};

fn engine() -> Arc<ScanEngine> {
    ScanEngine::new(ScanSettings::default()).expect("an engine")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_view_has_what_iterators_found_when_it_was_taken(
        steps in history(Kinds { unlogged: true, merges: true }),
        parts in 1usize..6,
        may_flush: bool,
        scans in prop::collection::vec(scans(), 1..3),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let db = Arc::new(open(&dir.path().join("db")));
        let live = LiveDatabase::new(Arc::clone(&db)).flush_every(may_flush.then_some(Duration::ZERO));
        let engine = engine();
        let part = steps.len().div_ceil(parts);
        // Each snapshot is scanned at once, and again after more writes.
        let mut snapshots = Vec::new();
        for steps in steps.chunks(part) {
            run(&db, dir.path(), steps);
            let snapshot = live.snapshot(&engine).expect("a snapshot");
            let expected: Vec<_> = scans.iter().map(|(ranges, _)| rows_in(&db, ranges)).collect();
            snapshots.push((snapshot, expected));
            for (snapshot, expected) in snapshots.iter().rev().take(2) {
                for ((ranges, piece_bytes), expected) in scans.iter().zip(expected) {
                    for (family, expected) in expected {
                        let snapshot = snapshot.family(family).expect("a family");
                        let (found, reports) = scan(&engine, &snapshot, ranges, *piece_bytes);
                        prop_assert_eq!(&found, expected, "{}: {:?}", family, reports);
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_not_flushed_comes_from_the_log_and_nothing_is_flushed() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Arc::new(open(&dir.path().join("db")));
    let (live, engine) = (LiveDatabase::new(Arc::clone(&db)), engine());
    let all = [KeyRange::default()];
    for number in 0..20u32 {
        db.put(number.to_be_bytes(), b"value").expect("written");
        if number == 7 {
            db.flush().expect("flushed");
        }
        let files = db.live_files().expect("files").len();
        let snapshot = live
            .snapshot(&engine)
            .expect("a snapshot")
            .family("default")
            .expect("a family");
        let (found, reports) = scan(&engine, &snapshot, &all, 1 << 30);
        assert_eq!(found.len() as u32, number + 1);
        assert!(
            reports
                .iter()
                .all(|report| report.through_iterators.is_none()),
            "{reports:?}"
        );
        assert_eq!(db.live_files().expect("files").len(), files);
    }
    let mut unlogged = rust_rocksdb::WriteOptions::default();
    unlogged.disable_wal(true);
    db.put_opt(b"unlogged", b"value", &unlogged)
        .expect("written");
    let files = db.live_files().expect("files").len();
    let never = LiveDatabase::new(Arc::clone(&db)).flush_every(None);
    let live = live.flush_every(Some(Duration::from_secs(3600)));
    for (database, flushes) in [(&never, false), (&live, true)] {
        let snapshot = database
            .snapshot(&engine)
            .expect("a snapshot")
            .family("default")
            .expect("a family");
        let (found, reports) = scan(&engine, &snapshot, &all, 1 << 30);
        assert_eq!(found.len(), 21);
        assert_eq!(
            reports
                .iter()
                .any(|report| report.through_iterators.is_some()),
            !flushes
        );
        assert_eq!(
            db.live_files().expect("files").len(),
            files + usize::from(flushes)
        );
    }
    // Soon after a flush, iterators read entries that are not in the log.
    db.put_opt(b"unlogged too", b"value", &unlogged)
        .expect("written");
    let files = db.live_files().expect("files").len();
    let snapshot = live.snapshot(&engine).expect("a snapshot");
    let snapshot = snapshot.family("default").expect("a family");
    let (found, reports) = scan(&engine, &snapshot, &all, 1 << 30);
    assert_eq!(found.len(), 22);
    assert!(
        reports
            .iter()
            .all(|report| report.through_iterators.is_some())
    );
    assert_eq!(db.live_files().expect("files").len(), files);
}

const ACCOUNTS: u32 = 50;
const AMOUNT: u64 = 1000;

fn amount(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Moves amounts between rows of both families in one batch.
fn move_amounts(db: &DB, random: &mut u64, accounts: std::ops::Range<u32>) {
    let mut next = |below: u32| {
        *random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*random >> 33) as u32 % below
    };
    let families = FAMILIES.map(|name| db.cf_handle(name).expect("a family"));
    let len = accounts.end - accounts.start;
    let mut pick = || (next(2) as usize, (accounts.start + next(len)).to_be_bytes());
    let (from, to) = (pick(), pick());
    if from == to {
        return;
    }
    let read = |(family, key): (usize, [u8; 4])| {
        let value = db
            .get_cf(&families[family], key)
            .expect("read")
            .expect("it is there");
        amount(&value)
    };
    let moved = read(from).min(u64::from(next(10)));
    let mut batch = WriteBatch::default();
    batch.put_cf(
        &families[from.0],
        from.1,
        (read(from) - moved).to_le_bytes(),
    );
    batch.put_cf(&families[to.0], to.1, (read(to) + moved).to_le_bytes());
    db.write(&batch).expect("written");
}

/// A device that fails, returns wrong rows and hangs by turns, and works in between.
#[derive(Debug, Default)]
struct Faulty {
    calls: AtomicU64,
    faults: Arc<AtomicU64>,
}

/// Time after which a call that hangs is abandoned. No other call may take as long, also beside twelve busy threads.
const TIMEOUT: Duration = Duration::from_millis(300);

impl Backend for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn supports(&self, request: &Request<'_>) -> Support {
        CpuBackend.supports(request)
    }

    fn footprint(&self, request: &Request<'_>) -> Footprint {
        CpuBackend.footprint(request)
    }

    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let fault = call.is_multiple_of(2).then_some(call / 2 % 3);
        let begin = |_| self.faults.fetch_add(1, Ordering::Relaxed);
        fault.map(begin);
        // It hangs until the call was abandoned.
        while fault == Some(2) && !task.cancel.is_cancelled() {
            std::thread::sleep(TIMEOUT / 4);
        }
        let mut report = CpuBackend.run(task, operator)?;
        match fault {
            // It fails after its rows were passed on.
            Some(0) => Err(Error::new(ErrorKind::Device, "it fails")),
            Some(1) => {
                report.read.hash_dropped = report.read.hash_dropped.wrapping_add(1);
                Ok(report)
            }
            _ => Ok(report),
        }
    }
}

#[test]
fn every_view_has_the_same_total_whatever_others_do() {
    compare_totals(&engine(), Duration::from_secs(3));
}

#[test]
fn every_view_has_the_same_total_whatever_a_device_does() {
    const KINDS: u64 = 3;
    // A device that hangs is not used for a while.
    for _ in 0..3 {
        let faults = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&faults);
        let open: Box<OpenBackend> = Box::new(move |_, _| {
            Arc::new(Faulty {
                faults: Arc::clone(&counted),
                ..Faulty::default()
            })
        });
        let clock = SystemClock::shared();
        let devices = Device::Registered(Registered::new("faulty", open)).into();
        let registry = DeviceRegistry::open(devices, CudaSettings::default(), &clock);
        let budget = Arc::new(Budget::new(4, 1 << 30, Arc::clone(&clock)));
        let deadline = TaskDeadline::at_least(TIMEOUT);
        let executor = Executor::new(registry, budget, deadline, clock);
        let engine = ScanEngine::sharing(Arc::new(executor));
        engine.wait_for_device().expect("it opens");
        compare_totals(&engine, Duration::from_secs(1));
        assert!(faults.load(Ordering::Relaxed) >= KINDS);
    }
}

/// Moves amounts while snapshots are taken, and compares their totals.
fn compare_totals(engine: &Arc<ScanEngine>, time: Duration) {
    const WRITERS: u32 = 8;
    const LEAST: u64 = 10;
    const LONGEST: Duration = Duration::from_secs(60);
    let dir = tempfile::tempdir().expect("a folder");
    let db = Arc::new(open(&dir.path().join("db")));
    let families = FAMILIES.map(|name| db.cf_handle(name).expect("a family"));
    for account in 0..ACCOUNTS * WRITERS {
        for family in &families {
            db.put_cf(family, account.to_be_bytes(), AMOUNT.to_le_bytes())
                .expect("written");
        }
    }
    let live = LiveDatabase::new(Arc::clone(&db));
    let ends = AtomicBool::new(false);
    let seed = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(1, |t| t.as_nanos() as u64);
    println!("seed {seed}");
    let directory = Directory::open(Database::path(&live)).expect("a database");
    let (mut snapshots, mut through_iterators, mut refused) = (0, 0, 0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, ends) = (&db, &ends);
            scope.spawn(move || {
                let mut random = seed ^ u64::from(writer);
                while !ends.load(Ordering::Relaxed) {
                    let accounts = writer * ACCOUNTS..(writer + 1) * ACCOUNTS;
                    move_amounts(db, &mut random, accounts);
                }
            });
        }
        scope.spawn(|| {
            for number in 0.. {
                let step = match number % 5 {
                    0 => Step::Flush(0),
                    1 => Step::Flush(1),
                    2 => Step::Ingest(number % 2, 200, 3),
                    3 => Step::Compact(number % 2),
                    _ => Step::DeleteRange(number % 2, 200, 20),
                };
                run_one(&db, dir.path(), number, &step);
                std::thread::sleep(Duration::from_millis(1));
                if ends.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let began = Instant::now();
        let _end = End(&ends);
        let bounds = (0u32.to_be_bytes(), (ACCOUNTS * WRITERS).to_be_bytes());
        let accounts = [KeyRange {
            begin: Some(bounds.0.to_vec()),
            end: Some(bounds.1.to_vec()),
        }];
        let is_enough = |number, refused| number >= LEAST && refused < number / 2;
        for number in 0u64.. {
            if began.elapsed() >= time && is_enough(number, refused) {
                snapshots = number;
                break;
            }
            // A busy machine takes longer than `time`.
            assert!(began.elapsed() < LONGEST, "{refused} of {number} refused");
            let before = db.latest_sequence_number();
            let snapshot = match number % 2 {
                0 => live.snapshot(engine),
                _ => directory.snapshot(engine),
            };
            let snapshot = match snapshot {
                // On a busy machine, files are compacted sooner than they are opened.
                Err(error) if error.to_string().contains(" attempts") => {
                    refused += 1;
                    continue;
                }
                snapshot => snapshot.expect("a snapshot"),
            };
            assert!(
                snapshot.sequence() >= before,
                "it sees what was committed before"
            );
            let mut total = 0;
            for family in FAMILIES {
                let snapshot = snapshot.family(family).expect("a family");
                let (rows, reports) = scan(engine, &snapshot, &accounts, 2000);
                assert_eq!(rows.len() as u32, ACCOUNTS * WRITERS, "{reports:?}");
                total += rows.iter().map(|(_, value)| amount(value)).sum::<u64>();
                through_iterators += reports
                    .iter()
                    .filter(|r| r.through_iterators.is_some())
                    .count();
            }
            let expected = u64::from(ACCOUNTS * WRITERS) * AMOUNT * FAMILIES.len() as u64;
            assert_eq!(total, expected, "sequence number {}", snapshot.sequence());
        }
    });
    println!(
        "{snapshots} snapshots, {refused} refused, {through_iterators} pieces through iterators"
    );
}

/// Ends other threads when the test does.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_transaction_database_is_one_as_well() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = OptimisticTransactionDB::<SingleThreaded>::open_default(dir.path().join("db"));
    let db = Arc::new(db.expect("it opens"));
    let (live, engine) = (LiveDatabase::new(Arc::clone(&db)), engine());
    let transaction = db.transaction();
    transaction.put(b"first", b"1").expect("written");
    let all = [KeyRange::default()];
    let rows = || {
        let snapshot = live
            .snapshot(&engine)
            .expect("a snapshot")
            .family("default")
            .expect("a family");
        scan(&engine, &snapshot, &all, 1 << 30)
    };
    assert!(rows().0.is_empty());
    transaction.commit().expect("committed");
    let (found, reports) = rows();
    assert_eq!(found, [(b"first".to_vec(), b"1".to_vec())]);
    assert_eq!(reports[0].through_iterators, None);
}

#[test]
fn a_column_family_that_was_made_again_is_another_one() {
    const FAMILY: &str = "a";
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DBWithThreadMode::<MultiThreaded>::open(&options, dir.path()).expect("it opens");
    db.create_cf(FAMILY, &options).expect("created");
    db.put_cf(&db.cf_handle(FAMILY).expect("a family"), b"key", b"old")
        .expect("written");
    let db = Arc::new(db);
    let (live, engine) = (LiveDatabase::new(Arc::clone(&db)), engine());
    let snapshot = live.snapshot(&engine).expect("a snapshot");
    let family = snapshot.family(FAMILY).expect("a family");
    let rows = || {
        let mut rows = Vec::new();
        let (all, cancel) = (KeyRange::default(), CancelToken::new());
        let read = family.read_through_iterators(&all, &cancel, &mut |_, value| {
            rows.push(value.to_vec());
            Ok(())
        });
        read.map(|()| rows)
    };
    let get = |store: &dyn Store| {
        let mut found = Ok(None);
        store.get(&[b"key"], &mut |_, value| {
            found = value.map(|value| value.map(<[u8]>::to_vec))
        });
        found
    };
    let put = |store: &dyn Store| {
        let (key, value) = (&b"key"[..], &b"new"[..]);
        store.write(&[Write::Put { key, value }])
    };
    let old = live.store(FAMILY).expect("a store");
    assert_eq!(rows(), Ok(vec![b"old".to_vec()]));
    assert_eq!(get(&*old), Ok(Some(b"old".to_vec())));
    db.drop_cf(FAMILY).expect("dropped");
    for is_new in [false, true] {
        if is_new {
            db.create_cf(FAMILY, &options).expect("created");
        }
        let errors = [
            rows().expect_err("it was dropped"),
            get(&*old).expect_err("it was dropped"),
            put(&*old).expect_err("it was dropped"),
        ];
        for error in errors {
            assert!(error.what.contains("was dropped"), "{error}");
        }
    }
    let new = live.store(FAMILY).expect("a store");
    assert_eq!(get(&*new), Ok(None));
    assert_eq!(put(&*new), Ok(Written::Done));
    assert_eq!(get(&*new), Ok(Some(b"new".to_vec())));
}

/// Names a folder, in which the process that is killed has its database.
const KILLED: &str = "ROCKMILL_SCAN_KILLED";

/// Writes to a database and scans it until the process is killed.
fn be_killed(path: &Path) {
    let db = Arc::new(open(path));
    let (live, engine) = (LiveDatabase::new(Arc::clone(&db)), engine());
    let value = vec![b'v'; 2000];
    for number in 0..u32::MAX {
        let family = db.cf_handle(FAMILIES[number as usize % 2]);
        db.put_cf(
            &family.expect("a family"),
            (number % 500).to_be_bytes(),
            &value,
        )
        .expect("written");
        if number % 50 == 0 {
            run_one(&db, path, 0, &Step::Flush(number as usize / 50 % 2));
            let snapshot = live.snapshot(&engine).expect("a snapshot");
            let snapshot = snapshot.family("default").expect("a family");
            scan(&engine, &snapshot, &[KeyRange::default()], 4 << 10);
            println!("scanned");
        }
    }
}

#[test]
fn a_killed_process_leaves_nothing_of_ours() {
    const KILLS: u64 = 5;
    if let Some(path) = std::env::var_os(KILLED) {
        return be_killed(Path::new(&path));
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("db");
    let name = "a_killed_process_leaves_nothing_of_ours";
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", name, "--nocapture"])
            .env(KILLED, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let scans = output.lines().map(|line| line.expect("a line"));
        let scans = scans.filter(|line| line.contains("scanned"));
        assert_eq!(
            scans.take(3 + 5 * kill as usize).count(),
            3 + 5 * kill as usize
        );
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
        // When RocksDB opens a database, it removes files that it does not need, and leaves files with other names.
        let db = open(&path);
        // A compaction that ends meanwhile would change both the live files and those in the folder.
        db.wait_for_compact(&WaitForCompactOptions::default())
            .expect("compacted");
        let live = db.live_files().expect("files").into_iter();
        let live: BTreeSet<_> = live
            .map(|file| file.name.trim_start_matches('/').to_owned())
            .collect();
        drop(db);
        for entry in std::fs::read_dir(&path).expect("a folder") {
            let name = entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name");
            let of_rocksdb = [
                "CURRENT",
                "IDENTITY",
                "LOCK",
                "LOG",
                "MANIFEST-",
                "OPTIONS-",
            ];
            let is_known =
                of_rocksdb.iter().any(|start| name.starts_with(start)) || name.ends_with(".log");
            assert!(is_known || live.contains(&name), "{name}");
        }
    }
}

#[test]
fn rows_of_compressed_logs_are_left_to_iterators() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = options();
    options.set_wal_compression_type(DBCompressionType::Zstd);
    let db = Arc::new(DB::open(&options, dir.path()).expect("it opens"));
    db.put(b"a", b"1").expect("written");
    let (live, engine, all) = (LiveDatabase::new(db), engine(), [KeyRange::default()]);
    let snapshot = live.snapshot(&engine).expect("a snapshot");
    let family = snapshot.family("default").expect("a family");
    let pieces = family.pieces(&all, u64::MAX);
    let mut paths = pieces.iter().map(|piece| &piece.path);
    assert!(
        paths.all(|path| matches!(path, ReadPath::RocksDb(why) if why.contains("wal_compression")))
    );
    let (rows, _) = scan(&engine, &family, &all, u64::MAX);
    assert_eq!(rows, [(b"a".to_vec(), b"1".to_vec())]);
}
