//! Snapshots of directories whose logs decide.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{CancelToken, ErrorKind, KeyRange, Result};
use rockmill_scan::{Database, Directory, ScanEngine, ScanSettings};
use rockmill_testkit::scans::*;
use rust_rocksdb::{
    DB, SingleThreaded, SstFileWriter, TransactionDB, TransactionDBOptions, TxnDBWritePolicy,
    WriteBatch,
};

fn engine() -> Arc<ScanEngine> {
    ScanEngine::new(ScanSettings::default()).expect("an engine")
}

/// The rows of the default column family without RocksDB.
fn rows(directory: &Directory, engine: &Arc<ScanEngine>) -> Result<Rows> {
    let snapshot = directory.snapshot(engine)?.family("default")?;
    let (plan, cancel) = (keys_and_values(), CancelToken::new());
    let mut rows = Vec::new();
    for piece in snapshot.pieces(&[KeyRange::default()], u64::MAX) {
        let output = engine.run(&snapshot, &piece, &plan, &cancel)?;
        rows.extend(output.batches.iter().flat_map(rows_of));
    }
    Ok(rows)
}

fn row(key: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

fn transactions(dir: &Path, policy: TxnDBWritePolicy) -> TransactionDB<SingleThreaded> {
    let mut settings = TransactionDBOptions::default();
    settings.set_write_policy(policy);
    TransactionDB::open_cf(&options(), &settings, dir, FAMILIES).expect("it opens")
}

fn prepare(db: &TransactionDB<SingleThreaded>) {
    let transaction = db.transaction();
    transaction.put(b"k", b"v").expect("written");
    transaction.set_name(b"x").expect("named");
    transaction.prepare().expect("prepared");
}

#[test]
fn a_transaction_that_was_prepared_before_the_database_was_reopened_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    prepare(&transactions(dir.path(), TxnDBWritePolicy::WriteCommitted));
    // Nothing was flushed since, so that the MANIFEST does not tell which logs are kept.
    let db = transactions(dir.path(), TxnDBWritePolicy::WriteCommitted);
    let directory = Directory::open(dir.path()).expect("a database");
    let engine = engine();
    let prepared = || directory.snapshot(&engine).expect("a snapshot").prepared();
    assert_eq!(prepared(), 1);
    assert_eq!(rows(&directory, &engine), Ok(vec![]));
    for transaction in db.prepared_transactions() {
        transaction.commit().expect("committed");
    }
    assert_eq!(prepared(), 0);
    assert_eq!(rows(&directory, &engine), Ok(vec![row(b"k", b"v")]));
}

#[test]
fn a_torn_log_is_no_loss_if_recovery_has_flushed_what_it_has() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = transactions(dir.path(), TxnDBWritePolicy::WriteCommitted);
    db.put(b"a", b"1").expect("written");
    db.put(b"b", b"2").expect("written");
    drop(db);
    let files = fs::read_dir(dir.path()).expect("a folder");
    let mut files = files.map(|file| file.expect("a file").path());
    let log = files.find(|path| path.extension().is_some_and(|e| e == "log"));
    let file = File::options().write(true).open(log.expect("a log"));
    let file = file.expect("it opens");
    let len = file.metadata().expect("it is there").len();
    file.set_len(len - 1).expect("cut");
    // It keeps the log, which may have prepared transactions.
    let db = transactions(dir.path(), TxnDBWritePolicy::WriteCommitted);
    let directory = Directory::open(dir.path()).expect("a database");
    let engine = engine();
    let mut expected = vec![row(b"a", b"1")];
    assert_eq!(rows(&directory, &engine), Ok(expected.clone()));
    db.put(b"c", b"3").expect("written");
    expected.push(row(b"c", b"3"));
    assert_eq!(rows(&directory, &engine), Ok(expected));
}

#[test]
fn a_version_has_nothing_that_came_to_the_log_later() {
    let dir = tempfile::tempdir().expect("a folder");
    let [path, file] = ["db", "file"].map(|name| dir.path().join(name));
    let mut options = options();
    options.set_manual_wal_flush(true);
    let db = DB::open(&options, &path).expect("it opens");
    db.put(b"c", b"0").expect("written");
    db.flush().expect("flushed");
    db.put(b"a", b"1").expect("written");
    db.flush_wal(false).expect("flushed");
    db.put(b"b", b"2").expect("written");
    let mut batch = WriteBatch::default();
    batch.delete_range(b"a", b"b");
    db.write(&batch).expect("written");
    // Its entry replaces one, so it is later than those that the log lacks.
    let mut writer = SstFileWriter::create(&options);
    writer.open(&file).expect("opened");
    writer.put(b"c", b"3").expect("put");
    writer.finish().expect("finished");
    db.ingest_external_file(vec![file]).expect("ingested");
    let directory = Directory::open(&path).expect("a database");
    let engine = engine();
    let family = directory
        .snapshot(&engine)
        .and_then(|taken| taken.family("default"));
    let version = family.and_then(|family| family.version());
    let version = version.expect("a version");
    let found = || {
        let family = directory.at(&engine, &version)?.family("default")?;
        Ok(scan(&engine, &family, &[KeyRange::default()], 1 << 20).0)
    };
    let expected: Result<Rows> = Ok(vec![row(b"a", b"1"), row(b"c", b"3")]);
    assert_eq!(found(), expected);
    db.flush_wal(false).expect("flushed");
    assert_eq!(found(), expected);
    let again = directory.at(&engine, &version);
    let again = again.and_then(|taken| taken.family("default")?.version());
    assert_eq!(again.as_ref(), Ok(&version));
    let now = vec![row(b"b", b"2"), row(b"c", b"3")];
    assert_eq!(rows(&directory, &engine), Ok(now));
}

#[test]
fn what_is_not_committed_is_never_read_from_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    prepare(&transactions(dir.path(), TxnDBWritePolicy::WritePrepared));
    // RocksDB flushes the entry when it opens the database.
    drop(transactions(dir.path(), TxnDBWritePolicy::WritePrepared));
    let directory = Directory::open(dir.path()).expect("a database");
    let error = rows(&directory, &engine()).expect_err("it is not committed");
    assert!(error.to_string().contains("two-phase"), "{error}");
}

#[test]
fn logs_that_are_missing_are_an_error_unless_the_caller_reads_without_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let [path, logs, moved] = ["db", "logs", "moved"].map(|name| dir.path().join(name));
    let mut options = options();
    options.set_wal_dir(&logs);
    let db = DB::open(&options, &path).expect("it opens");
    db.put(b"a", b"1").expect("written");
    db.flush().expect("flushed");
    db.put(b"b", b"2").expect("written");
    drop(db);
    let (all, flushed) = (
        vec![row(b"a", b"1"), row(b"b", b"2")],
        vec![row(b"a", b"1")],
    );
    let engine = engine();
    let directory = Directory::open(&path).expect("a database");
    assert_eq!(rows(&directory, &engine), Ok(all.clone()));
    fs::rename(&logs, &moved).expect("moved");
    for directory in [&directory, &Directory::open(&path).expect("a database")] {
        let error = rows(directory, &engine).expect_err("there are no logs");
        assert_eq!(error.kind, ErrorKind::Storage);
        let what = format!("wal_dir of its OPTIONS is {}", logs.display());
        assert!(error.to_string().contains(&what), "{error}");
    }
    let stated = Directory::open(&path)
        .expect("a database")
        .with_log_folder(&moved);
    assert_eq!(rows(&stated, &engine), Ok(all.clone()));
    let without = Directory::open(&path).expect("a database").may_lack_logs();
    assert_eq!(rows(&without, &engine), Ok(flushed));
    fs::rename(&moved, &logs).expect("moved");
    for directory in [&directory, &without] {
        assert_eq!(rows(directory, &engine), Ok(all.clone()));
    }
}
