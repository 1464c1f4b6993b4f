//! Write-ahead logs that another process writes while they are read, and logs that are damaged behind a flush.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rockmill_core::{CancelToken, Error, ErrorKind};
use rockmill_format::key;
use rockmill_format::log::LogReader;
use rockmill_format::manifest::Tree;
use rockmill_snapshot::closed_database::ClosedDatabase;
use rockmill_snapshot::unflushed::Unflushed;
use rockmill_storage::{LocalStorage, Storage};
use rockmill_tests::busy::Busy;
use rockmill_tests::harness::local_options;
use rust_rocksdb::{ColumnFamilyDescriptor, DB, FlushOptions, Options};
use tempfile::TempDir;

const FAMILIES: [&str; 2] = ["default", "other"];

fn options() -> Options {
    let mut options = local_options();
    options.create_missing_column_families(true);
    options
}

fn try_open(options: &Options, dir: &Path) -> Result<DB, String> {
    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    DB::open_cf_descriptors(options, dir, families).map_err(|error| error.to_string())
}

fn open(options: &Options) -> (TempDir, DB) {
    let dir = TempDir::new().expect("a folder");
    let db = try_open(options, dir.path()).expect("open");
    (dir, db)
}

fn put(db: &DB, family: &str, keys: &[&str]) {
    let family = db.cf_handle(family).expect("a family");
    for key in keys {
        db.put_cf(family, key, [b'v'; 50]).expect("put");
    }
}

fn flush(db: &DB, family: &str) {
    let family = db.cf_handle(family).expect("a family");
    db.flush_cf_opt(family, &FlushOptions::default())
        .expect("flush");
}

fn tree(dir: &Path) -> Tree {
    let database = ClosedDatabase::read(&LocalStorage, dir).expect("a database");
    database.follower.tree().clone()
}

/// User keys in the logs.
fn keys(storage: &dyn Storage, dir: &Path, tree: &Tree) -> Result<BTreeSet<String>, Error> {
    let cancel = CancelToken::new();
    let unflushed = Unflushed::read(storage, dir, tree, |_| true, usize::MAX, &cancel)?;
    let entries = unflushed
        .families
        .values()
        .flat_map(|table| table.entries());
    let user_keys = entries.map(|(key, _)| key::split(key).expect("an internal key").0);
    Ok(user_keys
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .collect())
}

fn closed_keys(dir: &Path) -> Result<BTreeSet<String>, Error> {
    keys(&LocalStorage, dir, &tree(dir))
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

/// The logs in a folder, oldest first.
fn logs(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).expect("list");
    let paths = paths.map(|file| file.expect("a file").path());
    let mut logs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    logs
}

/// Where the records of a log end.
fn ends(log: &Path) -> Vec<u64> {
    let number = log.file_stem().and_then(|stem| stem.to_str());
    let number = number.and_then(|stem| stem.parse().ok());
    let mut reader = LogReader::write_ahead_log(number.expect("a number"));
    reader.push(&fs::read(log).expect("read"));
    let mut ends = Vec::new();
    while let Some(record) = reader.next_record().expect("a sound log") {
        ends.push(record.end);
    }
    ends
}

fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().expect("a folder");
    for file in fs::read_dir(from).expect("list") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a name");
        match fs::copy(&path, to.path().join(name)) {
            // RocksDB has removed a file that it does not need.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            copied => drop(copied.expect("copy")),
        }
    }
    to
}

fn is_retried(error: &Error) -> bool {
    error.kind == ErrorKind::Storage
}

#[test]
fn logs_that_are_written_while_they_are_read_have_no_hole() {
    let mut options = options();
    // The next log is there before RocksDB writes to it.
    options.set_async_wal_precreate(true);
    for steps in 0.. {
        let (dir, db) = open(&options);
        put(&db, "default", &["a0"]);
        put(&db, "other", &["b0"]);
        let ends = Instant::now() + Duration::from_secs(60);
        while logs(dir.path()).len() < 2 {
            assert!(Instant::now() < ends, "RocksDB makes no log in advance");
            thread::sleep(Duration::from_millis(1));
        }
        let tree = tree(dir.path());
        let busy = Busy::after(steps, move || {
            put(&db, "default", &["a1"]);
            flush(&db, "other");
            put(&db, "default", &["a2"]);
        });
        let found = keys(&*busy.storage, dir.path(), &tree).expect("sound logs");
        assert!(found.contains("a0"));
        assert!(
            !found.contains("a2") || found.contains("a1"),
            "{steps}: {found:?}"
        );
        if !busy.has_written() {
            assert!(steps > 4);
            break;
        }
    }
}

/// A database with two logs, of which the newer one is written over an older one. The first folder has only the file
/// of the newer one, before its first record.
fn recycled() -> (TempDir, TempDir) {
    /// Offset of the log's number in a fragment.
    const NUMBER_AT: usize = 7;
    let mut options = options();
    options.set_recycle_log_file_num(2);
    let (dir, db) = open(&options);
    put(&db, "default", &["d0", "d1", "d2"]);
    put(&db, "other", &["o"]);
    FAMILIES.iter().for_each(|family| flush(&db, family));
    put(&db, "default", &["a0"]);
    put(&db, "other", &["b0"]);
    let before = copy(dir.path());
    put(&db, "default", &["a1"]);
    flush(&db, "other");
    put(&db, "default", &["a2"]);
    let behind = copy(dir.path());
    let newest = logs(behind.path()).pop().expect("a log");
    let mut bytes = fs::read(&newest).expect("read");
    assert!(
        ends(&newest) < vec![bytes.len() as u64],
        "it is not written over another log"
    );
    bytes[NUMBER_AT] ^= 1;
    let name = newest.file_name().expect("a name");
    fs::write(before.path().join(name), bytes).expect("write");
    (before, behind)
}

#[test]
fn logs_that_are_written_over_others_while_they_are_read_have_no_hole() {
    let mut refused = 0;
    for steps in 0.. {
        let (before, behind) = recycled();
        let dir = before.path().to_owned();
        let busy = Busy::after(steps, move || {
            for log in logs(behind.path()) {
                let name = log.file_name().expect("a name");
                fs::write(dir.join(name), fs::read(&log).expect("read")).expect("write");
            }
        });
        match keys(&*busy.storage, before.path(), &tree(before.path())) {
            Ok(found) => {
                assert!(found.contains("a0"));
                assert!(
                    !found.contains("a2") || found.contains("a1"),
                    "{steps}: {found:?}"
                );
            }
            Err(error) if is_retried(&error) => refused += 1,
            Err(error) => panic!("{steps}: {error}"),
        }
        if !busy.has_written() {
            assert!(steps > 4 && refused > 0);
            break;
        }
    }
}

#[test]
fn a_log_may_be_cut_where_its_records_end_while_it_is_read() {
    for steps in 0.. {
        let (_, dir) = recycled();
        let newest = logs(dir.path()).pop().expect("a log");
        let end = *ends(&newest).last().expect("a record");
        let busy = Busy::after(steps, move || {
            let file = File::options().write(true).open(&newest).expect("open");
            file.set_len(end).expect("cut");
        });
        match keys(&*busy.storage, dir.path(), &tree(dir.path())) {
            Ok(found) => assert!(found.is_superset(&set(&["a0", "a1", "a2"]))),
            Err(error) => assert!(is_retried(&error), "{steps}: {error}"),
        }
        if !busy.has_written() {
            assert!(steps > 4);
            break;
        }
    }
}

#[test]
fn damage_in_a_recycled_log_behind_which_another_family_was_flushed_is_an_error() {
    let mut options = options();
    options.set_recycle_log_file_num(2);
    let (dir, db) = open(&options);
    for round in 0..2 {
        for family in FAMILIES {
            put(&db, family, &[&format!("d{round}"), &format!("e{round}")]);
        }
        FAMILIES.iter().for_each(|family| flush(&db, family));
    }
    put(&db, "default", &["a0", "a1", "a2"]);
    put(&db, "other", &["b"]);
    flush(&db, "other");
    drop(db);
    assert_eq!(closed_keys(dir.path()), Ok(set(&["a0", "a1", "a2"])));
    let [damaged, last] = <[_; 2]>::try_from(logs(dir.path())).expect("two logs");
    let mut bytes = fs::read(&damaged).expect("read");
    let second = ends(&damaged)[1] as usize;
    bytes[second - 1] ^= 1;
    fs::write(&damaged, bytes).expect("write");
    // RocksDB does not see the loss if the last log has the rest of an older one.
    for is_new in [false, true] {
        if is_new {
            fs::write(&last, "").expect("write");
        }
        let error = closed_keys(dir.path()).expect_err("rows are lost");
        assert_eq!(error.kind, ErrorKind::Corruption, "{error}");
        assert!(error.file.is_some_and(|name| damaged.ends_with(name)));
    }
    let refused = try_open(&options, dir.path()).map(drop);
    let refused = refused.expect_err("rows are lost");
    assert!(refused.contains("Column family inconsistency"), "{refused}");
}

#[test]
fn a_log_that_the_manifest_tracks_must_be_whole() {
    let mut options = options();
    options.set_track_and_verify_wals_in_manifest(true);
    let (dir, db) = open(&options);
    put(&db, "default", &["a0", "a1"]);
    put(&db, "other", &["b0"]);
    flush(&db, "other");
    put(&db, "other", &["b1"]);
    // A flush of all families deletes the logs, and the MANIFEST says so.
    let whole = copy(dir.path());
    FAMILIES.iter().for_each(|family| flush(&db, family));
    put(&db, "other", &["b2"]);
    drop(db);
    assert_eq!(closed_keys(dir.path()), Ok(set(&["b2"])));
    assert_eq!(closed_keys(whole.path()), Ok(set(&["a0", "a1", "b1"])));
    let log = logs(whole.path()).remove(0);
    let name = log.file_name().expect("a name");
    let refused = |dir: &Path| {
        try_open(&options, dir)
            .map(drop)
            .expect_err("a log is damaged")
    };
    let short = copy(whole.path());
    let file = File::options().write(true).open(short.path().join(name));
    file.expect("open").set_len(ends(&log)[0]).expect("cut");
    let error = closed_keys(short.path()).expect_err("it is cut");
    assert_eq!(error.kind, ErrorKind::Corruption, "{error}");
    assert!(refused(short.path()).contains("Size mismatch"));
    fs::remove_file(&log).expect("remove");
    let error = closed_keys(whole.path()).expect_err("it is missing");
    assert!(is_retried(&error), "{error}");
    assert!(
        error
            .file
            .is_some_and(|file| file == name.to_string_lossy())
    );
    assert!(refused(whole.path()).contains("Missing WAL"));
}
