//! Directories that no process has open.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rockmill_core::scan::{
    Aggregate, Aggregation, Batch, ColumnType, OutputColumn, ScanOutput, ScanPlan,
};
use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, Footprint, KeyRange, Operator, ReadTask, Request,
    Result, Support, TaskReport,
};
use rockmill_cpu::CpuBackend;
use rockmill_exec::device::{Device, OpenBackend, Registered};
use rockmill_scan::{
    Database, Directory, FamilySnapshot, IteratorRead, Iterators, Piece, PieceOutput, PieceReport,
    PieceResult, RowFn, ScanEngine, ScanSettings,
};
use rockmill_testkit::scans::*;
use rust_rocksdb::{DB, Options, SingleThreaded, TransactionDB, TransactionDBOptions};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_scan_finds_what_iterators_find(
        steps in history(Kinds { unlogged: false, merges: true }),
        flushes: bool,
        scans in prop::collection::vec(scans(), 1..4),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, scratch) = (dir.path().join("db"), dir.path());
        let db = open(&path);
        run(&db, scratch, &steps);
        if flushes {
            for name in FAMILIES {
                db.flush_cf(&db.cf_handle(name).expect("a family")).expect("flushed");
            }
        }
        drop(db);
        let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
        let directory = Directory::open(&path).expect("a database").with_iterators(Arc::new(ReadOnly));
        let snapshot = directory.snapshot(&engine).expect("a snapshot");
        let db = open_read_only(&path);
        prop_assert_eq!(snapshot.sequence(), db.latest_sequence_number());
        for (ranges, piece_bytes) in &scans {
            for (family, expected) in rows_in(&db, ranges) {
                let snapshot = snapshot.family(family).expect("a family");
                let (found, reports) = scan(&engine, &snapshot, ranges, *piece_bytes);
                prop_assert_eq!(&found, &expected, "{}: {:?}", family, reports);
            }
        }
    }
}

const PIECE: u64 = 4 << 10;

fn numbered(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A database with 5000 rows in one file, changed by `change`.
fn with_rows(dir: &Path, options: &Options, change: impl FnOnce(&DB)) {
    let db = DB::open(options, dir).expect("the database opens");
    for number in 0..5000 {
        let key = numbered(number);
        db.put(key, [number as u8; 40]).expect("written");
    }
    db.flush().expect("flushed");
    change(&db);
}

fn family(directory: &Directory, engine: &Arc<ScanEngine>, name: &str) -> Arc<FamilySnapshot> {
    let snapshot = directory.snapshot(engine).expect("a snapshot");
    snapshot.family(name).expect("a family")
}

fn engine() -> Arc<ScanEngine> {
    ScanEngine::new(ScanSettings::default()).expect("an engine")
}

/// The pieces whose rows are read through iterators, and why.
fn through_iterators(reports: &[PieceReport]) -> Vec<(usize, &str)> {
    let reports = reports.iter().enumerate();
    let reasons =
        reports.filter_map(|(at, report)| Some((at, report.through_iterators.as_deref()?)));
    reasons.collect()
}

#[test]
fn only_what_tables_do_not_tell_is_read_through_iterators() {
    let all = [KeyRange::default()];
    let engine = engine();
    type Change = fn(&DB);
    let merged: Change = |db| db.merge(numbered(1000), b"more").expect("merged");
    let flushed: Change = |db| {
        db.merge(numbered(1000), b"more").expect("merged");
        db.flush().expect("flushed");
    };
    for (change, reason, rows) in [
        (merged, "merge-operands", 5000),
        (flushed, "merge-operands", 5000),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        drop(open(dir.path()));
        let db = open(dir.path());
        for number in 0..5000 {
            db.put(numbered(number), [number as u8; 40])
                .expect("written");
        }
        db.flush().expect("flushed");
        change(&db);
        drop(db);
        let directory = Directory::open(dir.path()).expect("a database");
        let without = family(&directory, &engine, "default");
        let with = directory.with_iterators(Arc::new(ReadOnly));
        let with = family(&with, &engine, "default");
        let (found, reports) = scan(&engine, &with, &all, PIECE);
        assert_eq!(found.len(), rows);
        assert!(reports.len() > 15, "{}", reports.len());
        let through = through_iterators(&reports);
        assert_eq!(through.len(), 1, "{through:?}");
        assert!(through[0].1.contains(reason), "{through:?}");
        let (plan, cancel) = (keys_and_values(), CancelToken::new());
        let pieces = without.pieces(&all, PIECE);
        let error = engine.run(&without, &pieces[through[0].0], &plan, &cancel);
        let error = error.expect_err("nobody reads it").to_string();
        assert!(
            error.contains("only RocksDB's iterators read") && error.contains(reason),
            "{error}"
        );
        assert!(engine.run(&without, &pieces[0], &plan, &cancel).is_ok());
    }
}

#[test]
fn blobs_are_read_through_iterators() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = options();
    options.set_enable_blob_files(true);
    options.set_min_blob_size(30);
    with_rows(dir.path(), &options, |_| {});
    let directory = Directory::open(dir.path()).expect("a database");
    let directory = directory.with_iterators(Arc::new(Only(options)));
    let engine = engine();
    let snapshot = family(&directory, &engine, "default");
    let (found, reports) = scan(&engine, &snapshot, &[KeyRange::default()], 1 << 30);
    assert_eq!((found.len(), found[7].1.len()), (5000, 40));
    assert!(
        through_iterators(&reports)[0].1.contains("blob"),
        "{reports:?}"
    );
}

/// Iterators over a database with one column family.
struct Only(Options);

impl std::fmt::Debug for Only {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Only")
    }
}

impl Iterators for Only {
    fn read(&self, what: &IteratorRead<'_>, row: RowFn<'_>) -> Result<()> {
        let db = DB::open_for_read_only(&self.0, what.path, false).expect("the database opens");
        read(&db, what.family, what.range, row)
    }
}

#[test]
fn other_comparators_are_left_to_rocksdb_unless_they_are_known_to_be_bytewise() {
    type Compare = fn(&[u8], &[u8]) -> std::cmp::Ordering;
    let backwards: Compare = |a, b| b.cmp(a);
    let comparators: [(&str, Compare, bool); 2] = [
        ("RocksDB_SE_v3.10", |a, b| a.cmp(b), true),
        ("rev:backwards", backwards, false),
    ];
    let engine = engine();
    for (name, compare, is_known) in comparators {
        let dir = tempfile::tempdir().expect("a folder");
        let mut options = options();
        options.set_comparator(name, Box::new(compare));
        with_rows(dir.path(), &options, |db| {
            db.put(numbered(7), b"seven").expect("written")
        });
        let directory = Directory::open(dir.path()).expect("a database");
        let directory = directory.with_iterators(Arc::new(Only(options)));
        let snapshot = family(&directory, &engine, "default");
        assert_eq!(snapshot.orders_by_bytes(), is_known);
        let range = KeyRange {
            begin: Some(numbered(5)),
            end: Some(numbered(10)),
        };
        let (mut found, reports) = scan(&engine, &snapshot, &[range], PIECE);
        assert_eq!(
            through_iterators(&reports).is_empty(),
            is_known,
            "{reports:?}"
        );
        found.sort();
        let keys: Vec<_> = found.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, (5..10).map(numbered).collect::<Vec<_>>());
        assert_eq!(found[2].1, b"seven");
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let missing = Directory::open(dir.path().join("missing")).expect_err("there is none");
    assert!(
        missing
            .to_string()
            .contains("missing: cannot list the directory"),
        "{missing}"
    );
    let empty = Directory::open(dir.path()).expect_err("it is none");
    assert!(
        empty.to_string().contains("holds no RocksDB database"),
        "{empty}"
    );
    with_rows(dir.path(), &options(), |_| {});
    let directory = Directory::open(dir.path()).expect("a database");
    assert_eq!(directory.families().expect("they are read"), ["default"]);
    let engine = engine();
    let snapshot = directory.snapshot(&engine).expect("a snapshot");
    let unknown = snapshot.family("accounts").expect_err("there is none");
    assert!(
        unknown
            .to_string()
            .contains("no column family \"accounts\""),
        "{unknown}"
    );
    let snapshot = snapshot.family("default").expect("a family");
    let (files, pieces) = (
        snapshot.files(),
        snapshot.pieces(&[KeyRange::default()], 1 << 30),
    );
    assert_eq!(
        (files.len(), files[0].entries, files[0].level),
        (1, Some(5000), 0)
    );
    assert_eq!(
        (&files[0].smallest, &files[0].largest),
        (&numbered(0), &numbered(4999))
    );
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let error = engine.run(&snapshot, &pieces[0], &keys_and_values(), &cancelled);
    assert_eq!(
        error.expect_err("it is cancelled").kind,
        ErrorKind::Cancelled
    );
    let name = format!("{:06}.sst", files[0].number);
    let directory_without_file = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(dir.path()).expect("a folder") {
        let entry = entry.expect("a file");
        if entry.file_name() != *name {
            let copy = directory_without_file.path().join(entry.file_name());
            std::fs::copy(entry.path(), copy).expect("copied");
        }
    }
    let directory = Directory::open(directory_without_file.path()).expect("a database");
    let snapshot = directory.snapshot(&engine).expect("others may be read");
    let error = snapshot.family("default").expect_err("a file is missing");
    let error = error.to_string();
    assert!(error.contains(&name), "{error}");
}

/// A backend that passes on the rows of each piece, and then fails.
#[derive(Debug)]
struct Failing(CpuBackend);

impl Backend for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn supports(&self, request: &Request<'_>) -> Support {
        Backend::supports(&self.0, request)
    }

    fn footprint(&self, request: &Request<'_>) -> Footprint {
        Backend::footprint(&self.0, request)
    }

    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        Backend::run(&self.0, task, operator)?;
        Err(Error::new(ErrorKind::Device, "it fails"))
    }
}

#[test]
fn the_cpu_does_what_a_device_fails_at_and_no_row_comes_twice() {
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let open: Box<OpenBackend> = Box::new(|_, _| Arc::new(Failing(CpuBackend)));
    let settings = ScanSettings {
        devices: Device::Registered(Registered::new("failing", open)).into(),
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).expect("an engine");
    engine.wait_for_device().expect("it opens");
    let directory = Directory::open(dir.path()).expect("a database");
    let snapshot = family(&directory, &engine, "default");
    let (found, reports) = scan(&engine, &snapshot, &[KeyRange::default()], PIECE);
    assert_eq!(
        found.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
        (0..5000).map(numbered).collect::<Vec<_>>()
    );
    assert_eq!(reports[0].device, "cpu");
    let refused = reports[0].device_refused.as_deref();
    assert!(
        refused.is_some_and(|why| why.contains("it fails")),
        "{refused:?}"
    );
}

#[test]
fn pieces_wait_for_memory_and_tables_that_nobody_uses_give_theirs_back() {
    const BUDGET: u64 = 24 << 20;
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    let settings = ScanSettings {
        memory_bytes: Some(BUDGET),
        max_threads: Some(4),
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).expect("an engine");
    for dir in &dirs {
        // 50,000 blocks of one row: some MB of index.
        let mut options = options();
        let mut blocks = rust_rocksdb::BlockBasedOptions::default();
        blocks.set_block_size(1);
        options.set_block_based_table_factory(&blocks);
        let db = DB::open(&options, dir.path()).expect("the database opens");
        for number in 0..50_000 {
            db.put(numbered(number), [7; 20]).expect("written");
        }
        db.flush().expect("flushed");
    }
    for dir in dirs.iter().chain(&dirs) {
        let directory = Directory::open(dir.path()).expect("a database");
        let snapshot = family(&directory, &engine, "default");
        let pieces = snapshot.pieces(&[KeyRange::default()], 100 << 10);
        let (plan, cancel) = (keys_and_values(), CancelToken::new());
        let rows: u64 = std::thread::scope(|scope| {
            let pieces = pieces.chunks(pieces.len().div_ceil(8)).map(|pieces| {
                let (engine, snapshot, plan, cancel) = (&engine, &snapshot, &plan, &cancel);
                scope.spawn(move || {
                    let outputs = pieces
                        .iter()
                        .map(|piece| engine.run(snapshot, piece, plan, cancel));
                    outputs
                        .map(|output| output.expect("it runs").report.selected)
                        .sum::<u64>()
                })
            });
            let threads: Vec<_> = pieces.collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        assert_eq!(rows, 50_000);
    }
}

#[test]
fn a_piece_that_has_no_room_in_memory_runs_in_parts() {
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let directory = Directory::open(dir.path()).expect("a database");
    let run = |memory_bytes| {
        let settings = ScanSettings {
            memory_bytes: Some(memory_bytes),
            max_threads: Some(1),
            ..ScanSettings::default()
        };
        let engine = ScanEngine::new(settings).expect("an engine");
        let snapshot = family(&directory, &engine, "default");
        let pieces = snapshot.pieces(&[KeyRange::default()], u64::MAX);
        let [piece] = &pieces[..] else {
            panic!("one piece");
        };
        engine.run(&snapshot, piece, &keys_and_values(), &CancelToken::new())
    };
    let enough = run(64 << 20).expect("it runs");
    assert_eq!(enough.batches.len(), 1);
    let short = run(5 << 19).expect("it runs");
    assert!(short.batches.len() > 1);
    let rows = |batches: &[Batch]| batches.iter().flat_map(rows_of).collect::<Vec<_>>();
    assert_eq!(rows(&short.batches), rows(&enough.batches));
    assert_eq!(short.report.selected, 5000);
    let refused = run(64 << 10).expect_err("no part has room");
    assert!(refused.to_string().contains("memory budget"), "{refused}");
}

#[test]
fn a_piece_is_cut_for_its_groups_only_if_they_are_many() {
    const ROWS: u32 = 150_000;
    let dir = tempfile::tempdir().expect("a folder");
    let db = DB::open(&options(), dir.path()).expect("the database opens");
    for number in 0..ROWS {
        let key = [numbered(number), vec![0; 100]].concat();
        db.put(key, [number as u8 % 5; 100]).expect("written");
    }
    db.flush().expect("flushed");
    let directory = Directory::open(dir.path()).expect("a database");
    let settings = ScanSettings {
        memory_bytes: Some(64 << 20),
        max_threads: Some(1),
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).expect("an engine");
    let snapshot = family(&directory, &engine, "default");
    let pieces = snapshot.pieces(&[KeyRange::default()], u64::MAX);
    // Counts the rows of each key or of each value.
    let run = |piece: &Piece, by: u16, has_many_groups| {
        let plan = ScanPlan {
            output: ScanOutput::Groups(Aggregation {
                keys: vec![OutputColumn {
                    register: by,
                    stored: ColumnType::Bytes,
                }],
                aggregates: vec![Aggregate::Count(None)],
                max_groups: 4096,
            }),
            ..(*keys_and_values()).clone()
        };
        let cancel = CancelToken::new();
        let ran = engine.run_or_cut(&snapshot, piece, &Arc::new(plan), has_many_groups, &cancel);
        ran.expect("it runs")
    };
    let groups =
        |output: &PieceOutput| output.batches.iter().map(|batch| batch.rows).sum::<usize>();
    match run(&pieces[0], 1, false) {
        PieceResult::Whole(output, _) => assert_eq!(groups(&output), 5),
        PieceResult::Parts(_) => panic!("five groups take little memory"),
    }
    assert!(matches!(run(&pieces[0], 1, true), PieceResult::Parts(_)));
    let (mut waiting, mut found) = (pieces, 0);
    let mut cuts = 0;
    while let Some(piece) = waiting.pop() {
        match run(&piece, 0, cuts > 0) {
            PieceResult::Whole(output, _) => found += groups(&output),
            PieceResult::Parts(parts) => {
                waiting.extend(parts);
                cuts += 1;
            }
        }
    }
    assert_eq!(found, ROWS as usize);
    assert!(cuts > 0, "each row is a group");
}

#[test]
fn a_database_of_pessimistic_transactions_is_read_through_its_directory() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = options();
    options.set_allow_2pc(true);
    let transactions = TransactionDBOptions::default();
    let db =
        TransactionDB::<SingleThreaded>::open_cf(&options, &transactions, dir.path(), FAMILIES);
    let db = db.expect("it opens");
    let directory = Directory::open(dir.path()).expect("a database");
    let directory = directory.with_iterators(Arc::new(ReadOnly));
    let engine = engine();
    let rows = || {
        let snapshot = family(&directory, &engine, "default");
        let (rows, reports) = scan(&engine, &snapshot, &[KeyRange::default()], PIECE);
        (rows, !through_iterators(&reports).is_empty())
    };
    db.put(b"a", b"1").expect("written");
    let transaction = db.transaction();
    transaction.put(b"b", b"2").expect("written");
    assert_eq!(rows(), (vec![row(b"a", b"1")], false));
    transaction.set_name(b"one").expect("named");
    let prepared = || directory.snapshot(&engine).expect("a snapshot").prepared();
    assert_eq!(prepared(), 0);
    transaction.prepare().expect("prepared");
    assert_eq!(rows(), (vec![row(b"a", b"1")], false));
    assert_eq!(prepared(), 1);
    transaction.commit().expect("committed");
    assert_eq!(prepared(), 0);
    assert_eq!(rows(), (vec![row(b"a", b"1"), row(b"b", b"2")], false));
    db.flush().expect("flushed");
    assert_eq!(rows(), (vec![row(b"a", b"1"), row(b"b", b"2")], false));
}

fn row(key: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

#[test]
fn a_manifest_that_is_cut_anywhere_is_refused_where_rocksdb_refuses_it() {
    /// Bytes between two cuts. Opening takes its time.
    const STRIDE: usize = 7;
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |db| {
        db.put(numbered(7), b"seven").expect("written");
        db.flush().expect("flushed");
    });
    let current = std::fs::read_to_string(dir.path().join("CURRENT")).expect("read");
    let path = dir.path().join(current.trim_end());
    let whole = std::fs::read(&path).expect("read");
    let files_of_rocksdb = || {
        let db = DB::open_for_read_only(&options(), dir.path(), false);
        let files = db.map(|db| db.live_files().expect("files"));
        files
            .map(|files| files.len())
            .map_err(|error| error.to_string())
    };
    let engine = engine();
    // RocksDB may loop over an altered MANIFEST.
    let changed = (0..whole.len())
        .step_by(STRIDE)
        .map(|at| whole[..at].to_vec());
    let (mut refused, mut read) = (0, 0);
    for bytes in changed {
        std::fs::write(&path, &bytes).expect("written");
        let directory = Directory::open(dir.path()).expect("a database");
        match (files_of_rocksdb(), directory.families()) {
            (Ok(expected), Ok(_)) => {
                let snapshot = family(&directory, &engine, "default");
                assert_eq!(snapshot.files().len(), expected);
                read += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            (by_rocksdb, here) => panic!("{} bytes: {by_rocksdb:?} {here:?}", bytes.len()),
        }
    }
    assert!(refused > 10 && read > 10, "{refused} refused, {read} read");
}
