//! Databases that `compact` refuses, in a real and in a dry run.

mod common;

use std::fs;
use std::path::Path;

use common::{
    BAD_DATA, DONE, WRONG_USAGE, contents, expect, json, newest_options, reasons, snapshot,
    sst_files, text,
};
use rust_rocksdb::compaction_filter::Decision;
use rust_rocksdb::{DB, DBCompactionStyle, MergeOperands, Options, WriteBatch};

/// Returns the larger number; RocksDB's own operator of that name compares texts.
fn larger(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let all = existing.into_iter().chain(operands);
    let largest = all.filter_map(number).max()?;
    Some(largest.to_string().into_bytes())
}

/// Options of an application with its own operator under one of RocksDB's names.
fn with_operator() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_merge_operator_associative("MaxOperator", larger);
    options
}

/// Returns the refusal of `compact`, after checking that the database is unchanged and a dry run agrees.
fn left_alone(code: i32, dir: &Path, more: &[&str]) -> String {
    let before = snapshot(dir);
    let compact = [&["compact", text(dir)], more].concat();
    let (out, err) = expect(code, &compact);
    assert_eq!(out, "");
    assert!(err.contains(text(dir)), "{err}");
    let dry_run = [&compact[..], &["--dry-run"]].concat();
    let plan = json(code, &dry_run);
    assert_eq!(plan["accepted"], false);
    let (foretold, _) = expect(code, &dry_run);
    let foretold = foretold.split_whitespace().collect::<Vec<_>>().join(" ");
    let refusals = plan["refusals"].as_array().expect("refusals");
    assert!(!refusals.is_empty());
    for refusal in refusals {
        for said in ["what", "change"] {
            let said = refusal[said].as_str().expect("text");
            assert!(
                err.contains(said) && foretold.contains(said),
                "{said}: {err}"
            );
        }
    }
    assert!(snapshot(dir) == before);
    err
}

#[test]
fn an_operator_is_not_known_by_its_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = with_operator();
    let db = DB::open(&options, dir.path()).expect("open");
    for number in ["9", "100"] {
        db.merge("key", number).expect("merge");
        db.flush().expect("flush");
    }
    drop(db);
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    for said in [
        "MaxOperator",
        "its files may hold operands",
        "--merge-operator default=NAME",
    ] {
        assert!(err.contains(said), "{err}");
    }
    let db = DB::open(&options, dir.path()).expect("open");
    assert_eq!(db.get("key").expect("sound").as_deref(), Some(&b"100"[..]));
    drop(db);
    for (other, said) in [("more=max", "\"more\""), ("mine", "uint64add")] {
        let wrong = ["compact", text(dir.path()), "--merge-operator", other];
        let (_, err) = expect(WRONG_USAGE, &wrong);
        assert!(err.contains(said), "{err}");
    }
    for other in ["uint64add", "default=stringappend"] {
        let err = left_alone(BAD_DATA, dir.path(), &["--merge-operator", other]);
        assert!(err.contains("OPTIONS say MaxOperator"), "{err}");
    }
    // The argument is for users whose operator is RocksDB's.
    let compact = ["compact", text(dir.path()), "--merge-operator", "max"];
    let plan = json(DONE, &[&compact[..], &["--dry-run"]].concat());
    assert_eq!(plan["refusals"].as_array().map(Vec::len), Some(0));
    let (out, _) = expect(DONE, &compact);
    assert!(out.contains("done by Rockmill"), "{out}");
}

#[test]
fn a_database_whose_log_is_damaged_is_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = DB::open(&with_operator(), dir.path()).expect("open");
    for number in 0..1_000 {
        db.put(format!("key{number:04}"), "value").expect("put");
    }
    drop(db);
    let entries = fs::read_dir(dir.path()).expect("a folder");
    let mut files = entries.map(|entry| entry.expect("an entry").path());
    let log = files.find(|file| file.extension().is_some_and(|end| end == "log"));
    let log = log.expect("a log");
    let mut bytes = fs::read(&log).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).expect("written");
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    assert!(
        err.contains("the write-ahead log is damaged") && err.contains(text(&log)),
        "{err}"
    );
}

#[test]
fn ranges_of_the_reverse_order_in_the_log_are_no_damage() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_comparator(
        "rocksdb.ReverseBytewiseComparator",
        Box::new(|a: &[u8], b: &[u8]| b.cmp(a)),
    );
    let db = DB::open(&options, dir.path()).expect("open");
    for key in ["a", "b", "c"] {
        db.put(key, "value").expect("put");
    }
    let mut batch = WriteBatch::default();
    batch.delete_range("b", "a");
    db.write(&batch).expect("written");
    drop(db);
    expect(DONE, &["compact", text(dir.path())]);
    let db = DB::open(&options, dir.path()).expect("open");
    let found = ["a", "b", "c"].map(|key| db.get(key).expect("sound").is_some());
    assert_eq!(found, [true, false, true]);
}

#[test]
fn a_family_whose_compactions_delete_entries_is_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = with_operator();
    options.set_compaction_style(DBCompactionStyle::Fifo);
    let db = DB::open(&options, dir.path()).expect("open");
    for number in 0..2_u8 {
        db.put([number], "value").expect("put");
        db.flush().expect("flush");
    }
    drop(db);
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    assert!(err.contains("delete the oldest entries"), "{err}");
}

#[test]
fn an_operator_with_nothing_to_merge_is_no_obstacle() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = with_operator();
    let db = DB::open(&options, dir.path()).expect("open");
    db.put("key", "100").expect("put");
    db.flush().expect("flush");
    drop(db);
    expect(DONE, &["compact", text(dir.path())]);
    let db = DB::open(&options, dir.path()).expect("open");
    db.merge("key", "9").expect("merge");
    drop(db);
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    assert!(
        err.contains("the write-ahead log may hold operands"),
        "{err}"
    );
    let db = DB::open(&options, dir.path()).expect("open");
    assert_eq!(db.get("key").expect("sound").as_deref(), Some(&b"100"[..]));
}

#[test]
fn an_applications_own_operator_with_nothing_to_merge_stays_in_its_options() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = with_operator();
    options.set_merge_operator_associative("mine", larger);
    let db = DB::open(&options, dir.path()).expect("open");
    for value in ["9", "100"] {
        db.put("key", value).expect("put");
        db.flush().expect("flush");
    }
    db.put("in the log", "value").expect("put");
    drop(db);
    let (_, before) = newest_options(dir.path());
    let report = json(DONE, &["compact", text(dir.path())]);
    assert_eq!(report["stats"]["jobs_done"], 1);
    let (_, after) = newest_options(dir.path());
    assert!(after.contains("merge_operator=mine") && after == before);
    let db = DB::open(&options, dir.path()).expect("open");
    db.merge("key", "101").expect("merge");
    assert_eq!(db.get("key").expect("sound").as_deref(), Some(&b"101"[..]));
    assert!(db.get("in the log").expect("sound").is_some());
}

#[test]
fn a_compaction_filter_is_not_known_by_its_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    let name = "RemoveEmptyValueCompactionFilter";
    options.set_compaction_filter(name, |_, _, _| Decision::Keep);
    let db = DB::open(&options, dir.path()).expect("open");
    db.put("key", "").expect("put");
    db.flush().expect("flush");
    drop(db);
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    assert!(
        err.contains(name) && err.contains("from its application"),
        "{err}"
    );
}

#[test]
fn what_only_an_application_has_keeps_a_database_from_being_compacted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compaction_filter("mine", |_, _, _| Decision::Keep);
    options.set_allow_2pc(true);
    let db = DB::open(&options, dir.path()).expect("open");
    db.put("key", "value").expect("put");
    db.flush().expect("flush");
    drop(db);
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    for said in ["compaction_filter is mine", "allow_2pc is on"] {
        assert!(err.contains(said), "{err}");
    }
    let err = left_alone(BAD_DATA, dir.path(), &["--write-committed"]);
    assert!(!err.contains("allow_2pc"), "{err}");
    let compact = ["compact", text(dir.path())];
    let plan = json(BAD_DATA, &[&compact[..], &["--dry-run"]].concat());
    let steps = &plan["column_families"][0]["steps"];
    let found = reasons(&steps[0]["declines"]);
    assert_eq!(found, ["allow-2pc", "compaction-filter"]);

    let mut options = Options::default();
    options.set_allow_2pc(true);
    drop(DB::open(&options, dir.path()).expect("open"));
    let err = left_alone(WRONG_USAGE, dir.path(), &[]);
    assert!(err.contains("--write-committed"), "{err}");
    let report = json(DONE, &[&compact[..], &["--write-committed"]].concat());
    assert_eq!(report["jobs_returned"], 0);
    expect(BAD_DATA, &["doctor", text(dir.path())]);
    expect(DONE, &["doctor", text(dir.path()), "--write-committed"]);
}

/// Options of column families without and with a filter that only the application has.
fn with_a_filter_in_one_family() -> (Options, [(&'static str, Options); 2]) {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_disable_auto_compactions(true);
    let mut filtered = options.clone();
    filtered.set_compaction_filter("mine", |_, _, _| Decision::Keep);
    (options.clone(), [("default", options), ("other", filtered)])
}

#[test]
fn a_filter_in_one_family_keeps_only_that_family_from_being_compacted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (options, families) = with_a_filter_in_one_family();
    let db = DB::open_cf_with_opts(&options, dir.path(), families).expect("open");
    let other = db.cf_handle("other").expect("open");
    for run in ["1", "2"] {
        db.put("key", run).expect("put");
        db.put_cf(other, "key", run).expect("put");
        db.flush().expect("flush");
        db.flush_cf(other).expect("flush");
    }
    db.put_cf(other, "logged", "value").expect("put");
    drop(db);
    let err = left_alone(BAD_DATA, dir.path(), &["--column-family", "other"]);
    assert!(
        err.contains("column family other: compaction_filter is mine"),
        "{err}"
    );
    let (_, own) = newest_options(dir.path());
    let before = sst_files(dir.path());
    // The others are compacted all the same.
    let all = ["compact", text(dir.path())];
    let plan = json(BAD_DATA, &[&all[..], &["--dry-run"]].concat());
    let accepted = |at: usize| plan["column_families"][at]["accepted"] == true;
    assert_eq!([accepted(0), accepted(1)], [true, false], "{plan}");
    let (out, err) = expect(BAD_DATA, &all);
    assert!(
        out.contains("2 column families: 1 compacted, 1 left alone; "),
        "{out}"
    );
    assert!(err.contains("compaction_filter is mine"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    let stayed = sst_files(dir.path());
    let stayed = before.iter().filter(|file| stayed.contains(file));
    assert_eq!((before.len(), stayed.count()), (4, 2));
    assert_eq!(newest_options(dir.path()).1, own);
    let (options, families) = with_a_filter_in_one_family();
    let db = DB::open_cf_with_opts(&options, dir.path(), families).expect("open");
    let other = db.cf_handle("other").expect("open");
    for (key, value) in [("key", "2"), ("logged", "value")] {
        let found = db.get_cf(other, key).expect("sound");
        assert_eq!(found.as_deref(), Some(value.as_bytes()));
    }
    assert_eq!(db.get("key").expect("sound").as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_log_is_not_called_nothing_to_compact() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, dir.path()).expect("open");
    db.put("key", "value").expect("put");
    drop(db);
    let dry_run = ["compact", text(dir.path()), "--dry-run"];
    let (out, _) = expect(DONE, &dry_run);
    let said = "there is no SST file\nthe write-ahead log has entries";
    assert!(out.starts_with(said), "{out}");
    assert_eq!(json(DONE, &dry_run)["log_has_entries"], true);
    let (out, _) = expect(DONE, &["compact", text(dir.path())]);
    assert!(!out.contains("nothing"), "{out}");
    assert_eq!(sst_files(dir.path()).len(), 1);
    let (out, _) = expect(DONE, &[&dry_run[..], &["--from", "z"]].concat());
    assert_eq!(out, "nothing to compact: no SST file holds such keys\n");
    assert_eq!(contents(dir.path()).len(), 1);
}

#[test]
fn an_older_bloom_filter_is_not_taken_for_none() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, dir.path()).expect("open");
    db.put("key", "value").expect("put");
    db.flush().expect("flush");
    drop(db);
    let (path, options) = newest_options(dir.path());
    let none = "filter_policy=nullptr";
    assert!(options.contains(none), "{options}");
    let read_only = options.replace(none, "filter_policy=rocksdb.BuiltinBloomFilter");
    let version = read_only
        .lines()
        .find(|line| line.contains("rocksdb_version="))
        .expect("a version");
    fs::write(
        &path,
        read_only.replace(version, "  rocksdb_version=6.29.5"),
    )
    .expect("write");
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    assert!(err.contains("RocksDB 7 or later"), "{err}");
    fs::write(&path, read_only).expect("write");
    expect(DONE, &["compact", text(dir.path())]);
}

#[test]
fn a_log_elsewhere_is_left_to_whose_it_is() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, logs) = (dir.path().join("db"), dir.path().join("logs"));
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_wal_dir(&logs);
    let db = DB::open(&options, &path).expect("open");
    db.put("key", "value").expect("put");
    drop(db);
    let before = snapshot(&logs);
    let err = left_alone(WRONG_USAGE, &path, &[]);
    assert!(err.contains(text(&logs)), "{err}");
    assert!(snapshot(&logs) == before);
}

#[test]
fn a_log_in_the_databases_own_folder_is_its_own() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, dir.path()).expect("open");
    db.put("flushed", "value").expect("put");
    db.flush().expect("flush");
    db.put("in the log", "value").expect("put");
    drop(db);
    // RocksDB up to version 6 wrote the folder like this.
    let (path, options) = newest_options(dir.path());
    let named = format!("[DBOptions]\n  wal_dir={}/\n", text(dir.path()));
    let options = options.replace("[DBOptions]\n", &named);
    assert!(options.contains("wal_dir"));
    fs::write(path, options).expect("write");
    expect(DONE, &["compact", text(dir.path())]);
    assert_eq!(contents(dir.path()).len(), 2);
}

#[test]
fn rocksdbs_own_collectors_are_no_obstacle() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.add_compact_on_deletion_collector_factory(100, 50, 0.4);
    let db = DB::open(&options, dir.path()).expect("open");
    for run in ["1", "2"] {
        db.put("key", run).expect("put");
        db.flush().expect("flush");
    }
    drop(db);
    let (_, options) = newest_options(dir.path());
    let report = json(DONE, &["compact", text(dir.path())]);
    assert!(reasons(&report["returned"]).is_empty());
    assert_eq!(newest_options(dir.path()).1, options);
}

#[test]
fn no_column_family_is_made() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let families = ["default", "gone"];
    let mut db = DB::open_cf(&options, dir.path(), families).expect("open");
    let (_, both) = newest_options(dir.path());
    db.drop_cf("gone").expect("drop");
    drop(db);
    expect(DONE, &["compact", text(dir.path())]);
    fs::write(newest_options(dir.path()).0, both).expect("write");
    let err = left_alone(BAD_DATA, dir.path(), &[]);
    assert!(
        err.contains("column family gone: OPTIONS alone have it"),
        "{err}"
    );
}

#[test]
fn a_database_without_options_is_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    drop(DB::open(&options, dir.path()).expect("open"));
    fs::remove_file(newest_options(dir.path()).0).expect("remove");
    for command in ["compact", "doctor"] {
        let (_, err) = expect(BAD_DATA, &[command, text(dir.path())]);
        assert!(err.contains("it has no OPTIONS file"), "{err}");
        assert!(!err.contains("not a database"), "{err}");
    }
}
