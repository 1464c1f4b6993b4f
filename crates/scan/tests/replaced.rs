//! Databases and files that others have replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rockmill_core::{DeclineReason, ErrorKind, KeyRange, Result};
use rockmill_scan::{Database, Directory, FamilySnapshot, ScanEngine, ScanSettings};
use rockmill_storage::LocalStorage;
use rockmill_testkit::hooked::{Step, hooked};
use rockmill_testkit::scans::scan;
use rust_rocksdb::{DB, Options};

const FAMILY: &str = "default";

fn engine() -> Arc<ScanEngine> {
    ScanEngine::new(ScanSettings::default()).expect("an engine")
}

/// A new database, in which the values are this letter.
fn create(path: &Path, letter: u8, is_flushed: bool) {
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, path).expect("the database opens");
    for number in 0..1000u32 {
        let value = [letter; 40];
        db.put(number.to_be_bytes(), value).expect("written");
    }
    if is_flushed {
        db.flush().expect("flushed");
    }
}

fn take(path: &Path, engine: &Arc<ScanEngine>) -> Result<Arc<FamilySnapshot>> {
    let directory = Directory::open(path).expect("a database");
    directory.snapshot_of(engine, &[FAMILY])?.family(FAMILY)
}

/// The first value.
fn letter(engine: &Arc<ScanEngine>, family: &Arc<FamilySnapshot>) -> u8 {
    let (rows, _) = scan(engine, family, &[KeyRange::default()], 1 << 20);
    assert_eq!(rows.len(), 1000);
    rows[0].1[0]
}

/// The single table of a database.
fn table(path: &Path) -> PathBuf {
    let files = fs::read_dir(path).expect("a folder");
    let mut files = files.map(|file| file.expect("a file").path());
    files
        .find(|file| file.extension().is_some_and(|suffix| suffix == "sst"))
        .expect("a table")
}

#[test]
fn a_version_is_not_found_in_another_database() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, engine) = (dir.path().join("db"), engine());
    create(&path, b'A', false);
    let version = take(&path, &engine).and_then(|family| family.version());
    let version = version.expect("a version");
    let at = || {
        let directory = Directory::open(&path).expect("a database");
        directory.at(&engine, &version)?.family(FAMILY)
    };
    let found = at().expect("it is there");
    assert_eq!(letter(&engine, &found), b'A');
    fs::remove_dir_all(&path).expect("removed");
    create(&path, b'B', false);
    let error = at().expect_err("it is gone");
    let gone = ErrorKind::Declined(DeclineReason::InputMissing);
    assert_eq!(error.kind, gone, "{error}");
}

#[test]
fn a_file_that_has_the_name_of_another_one_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let [path, other] = ["a", "b"].map(|name| dir.path().join(name));
    create(&path, b'A', true);
    create(&other, b'B', true);
    let (own, other, aside) = (table(&path), table(&other), dir.path().join("aside"));
    let bytes = |file: &Path| fs::metadata(file).expect("a file").len();
    assert_eq!(bytes(&own), bytes(&other));
    // One engine has the table in its cache, and the other one has not.
    let (knows, new) = (engine(), engine());
    let found = take(&path, &knows).expect("it is sound");
    fs::rename(&own, &aside).expect("renamed");
    fs::copy(&other, &own).expect("copied");
    for engine in [&knows, &new] {
        let error = take(&path, engine).expect_err("it is another file");
        assert_eq!(error.kind, ErrorKind::Storage, "{error}");
        let text = error.to_string();
        assert!(text.contains("another file has its name"), "{text}");
    }
    // It has the right file open.
    assert_eq!(letter(&knows, &found), b'A');
    fs::rename(&aside, &own).expect("renamed");
    for engine in [&knows, &new] {
        let found = take(&path, engine).expect("it is sound");
        assert_eq!(letter(engine, &found), b'A');
    }
}

#[test]
fn a_file_that_comes_to_its_name_late_is_opened_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = fs::canonicalize(dir.path()).expect("a folder").join("a");
    let other = dir.path().join("b");
    create(&path, b'A', true);
    create(&other, b'B', true);
    let (own, aside) = (table(&path), dir.path().join("aside"));
    fs::rename(&own, &aside).expect("renamed");
    fs::copy(table(&other), &own).expect("copied");
    let late = Mutex::new(Some((aside.clone(), own)));
    let storage = hooked(LocalStorage, move |path, step| {
        let mut late = late.lock().expect("no thread has panicked");
        let moved = late.take_if(|(_, to)| matches!(step, Step::Opened) && path == to);
        moved.map_or(Ok(()), |(from, to)| fs::rename(from, to))
    });
    let engine = ScanEngine::with_storage(ScanSettings::default(), storage);
    let engine = engine.expect("an engine");
    let found = take(&path, &engine).expect("it is there in the end");
    assert_eq!(letter(&engine, &found), b'A');
    assert!(!aside.exists());
}
