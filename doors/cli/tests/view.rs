//! `rockmill view` as a user calls it.

mod common;

use std::fs;
use std::sync::Arc;

use common::{BAD_DATA, DONE, ENVIRONMENT, WRONG_USAGE, expect, made, text};
use rockmill_scan::Directory;
use rockmill_view::{Loaded, Target, View};
use rust_rocksdb::{DB, Options};
use serde_json::Value;

#[test]
fn what_a_view_takes_is_said_before_anything_is_loaded() {
    let (folder, dir) = made();
    let (out, _) = expect(DONE, &["view", text(&dir), "--json"]);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let number = |name: &str| report[name].as_u64().expect("a number");
    // The files have 20,000 + 10,000 + 6,667 + 5,000 entries, a seventh of them tombstones.
    assert!((30_000..36_000).contains(&number("max_keys")), "{out}");
    assert!(number("slot_bytes") >= 10 * number("max_keys"), "{out}");
    assert!(number("record_bytes") >= 96 * number("max_keys"), "{out}");
    assert_eq!(
        number("device_bytes"),
        number("slot_bytes") + number("record_bytes")
    );
    assert_eq!(report["asked"], Value::Array(Vec::new()));
    let (out, _) = expect(DONE, &["view", text(&dir)]);
    assert!(
        out.contains("No range of keys is left to RocksDB."),
        "{out}"
    );
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");

    let dir = folder.path().join("in place");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_inplace_update_support(true);
    options.set_allow_concurrent_memtable_write(false);
    let db = DB::open(&options, &dir).expect("it opens");
    db.put("key", "value").expect("put");
    db.flush().expect("flushed");
    drop(db);
    let (out, _) = expect(DONE, &["view", text(&dir), "--json"]);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let reason = report["asked"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("inplace_update_support"), "{out}");
    let (out, _) = expect(DONE, &["view", text(&dir)]);
    assert!(out.contains("inplace_update_support"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let (folder, dir) = made();
    let args = ["view", text(&dir), "--family", "none"];
    let (_, error) = expect(WRONG_USAGE, &args);
    assert!(
        error.contains("there is no column family \"none\", but default"),
        "{error}"
    );
    expect(WRONG_USAGE, &["view", text(folder.path())]);
    let missing = folder.path().join("missing");
    expect(ENVIRONMENT, &["view", text(&missing)]);
    let file = common::sst_files(&dir).remove(0);
    let bytes = fs::read(&file).expect("read");
    fs::write(&file, &bytes[..bytes.len() - 10]).expect("written");
    let (_, error) = expect(BAD_DATA, &["view", text(&dir)]);
    assert!(error.contains("MANIFEST says"), "{error}");
}

#[test]
fn a_refresh_beside_an_old_table_loads_no_key_that_rocksdb_is_asked_for() {
    const ARCHIVE: &[u8] = include_bytes!("data/corpus.tar.zst");
    let folder = tempfile::tempdir().expect("a folder");
    let tar = zstd::decode_all(ARCHIVE).expect("the archive is sound");
    let unpacked = tar::Archive::new(&*tar).unpack(folder.path());
    unpacked.expect("the archive can be unpacked");
    // LevelDB's tables have format_version 0. RocksDB reads none of them, but writes others beside them.
    let dir = folder.path().join("leveldb/once");
    let mut options = Options::default();
    options.set_paranoid_checks(false);
    options.set_disable_auto_compactions(true);
    let db = DB::open(&options, &dir).expect("it opens");
    let write = |key: &str| {
        db.put(key, "new").expect("written");
        db.flush().expect("flushed");
    };
    write("a");
    let database = Arc::new(Directory::open(&dir).expect("a database"));
    let view = View::builder(database, "default").device(Target::Host);
    let view = view.memory_bytes(1 << 30).open().expect("a view");
    let are_asked = || {
        let asked = view.asked();
        let is_old = |why: &str| why == "a table has format_version 0 or 1";
        let is_asked = |key: &str| {
            let mut asked = asked.iter();
            asked.any(|asked| asked.range.contains(key.as_bytes()) && is_old(&asked.reason))
        };
        ["", "a", "b", "key00000", "z"].into_iter().all(is_asked)
    };
    assert!(are_asked(), "{:?}", view.asked());
    write("b");
    let refreshed = view.refresh().expect("refreshed").how;
    let Loaded::Ranges { reason, keys, .. } = refreshed else {
        panic!("{refreshed:?}");
    };
    let why = "RocksDB must be asked for keys that were written";
    assert_eq!((reason.as_str(), keys), (why, 0));
    assert!(are_asked(), "{:?}", view.asked());
    assert_eq!(view.refresh().expect("refreshed").how, Loaded::Nothing);
}
