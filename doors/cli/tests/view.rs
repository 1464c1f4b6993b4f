//! `rockmill view` as a user calls it.

mod common;

use std::fs;

use common::{BAD_DATA, DONE, ENVIRONMENT, WRONG_USAGE, expect, made, text};
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
