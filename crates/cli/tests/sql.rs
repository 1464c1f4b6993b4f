//! `rockmill sql` as a user calls it.

#![cfg(feature = "sql")]

mod common;

use std::fs;
use std::path::Path;

use common::{BAD_DATA, DONE, ENVIRONMENT, WRONG_USAGE, expect, made};
use rust_rocksdb::{DB, IteratorMode, Options};

/// Names and lengths of a folder's files.
fn files(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, entry.metadata().unwrap().len())
    });
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

#[test]
fn queries_print_rows_in_each_format() {
    let (_folder, dir) = made();
    let db = dir.to_str().unwrap();
    let expected = {
        let db = DB::open_for_read_only(&Options::default(), &dir, false).unwrap();
        db.iterator(IteratorMode::Start).count()
    };
    let before = files(&dir);
    let count = "select count(*) as n from \"default\"";
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", count]);
    assert_eq!(out, format!("n\n{expected}\n"));
    let query = "select key, octet_length(value) as bytes from \"default\" where key < 'key000004' order by key";
    let (out, _) = expect(DONE, &["sql", db, query]);
    assert!(out.contains("key000001"), "{out}");
    let (out, _) = expect(DONE, &["sql", db, "--format", "json", query]);
    assert!(
        out.lines()
            .all(|line| line.starts_with("{\"key\":\"6b6579")),
        "{out}"
    );
    let (out, _) = expect(DONE, &["sql", db, "--explain", query]);
    assert!(
        out.contains("RockmillScan") && out.contains("key ranges=1"),
        "{out}"
    );
    let count = "select count(*) as n from rocksdb_files";
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", count]);
    assert_eq!(out, "n\n4\n");
    assert_eq!(files(&dir), before);
}

#[test]
fn tables_of_the_database_have_their_columns() {
    let (_folder, dir) = made();
    let tables = "create external table rows (number varchar not null, body varchar not null) stored as rocksdb \
                  location '.' options ('key' '''key'', rest number', 'value' 'rest body');";
    fs::write(dir.join("tables.sql"), tables).unwrap();
    let query = "select max(number) as n from rows where body like 'value 0 %'";
    let (out, _) = expect(
        DONE,
        &["sql", dir.to_str().unwrap(), "--format", "csv", query],
    );
    assert!(out.starts_with("n\n01"), "{out}");
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let (folder, dir) = made();
    let db = dir.to_str().unwrap();
    let (_, error) = expect(WRONG_USAGE, &["sql", db, "select * from nobody"]);
    assert!(error.contains("nobody"), "{error}");
    expect(WRONG_USAGE, &["sql", db, "select from where"]);
    let missing = folder.path().join("missing");
    let (_, error) = expect(ENVIRONMENT, &["sql", missing.to_str().unwrap(), "select 1"]);
    assert!(error.contains("missing"), "{error}");
    let create = "create external table rows (number int not null) stored as rocksdb location '.' \
                  options ('key' 'u99 number', 'value' 'skip(1)');";
    fs::write(dir.join("tables.sql"), create).unwrap();
    let (_, error) = expect(WRONG_USAGE, &["sql", db, "select 1"]);
    assert!(error.contains("is no form of a layout"), "{error}");
    fs::remove_file(dir.join("tables.sql")).unwrap();
    let file = common::sst_files(&dir).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    let sum = "select sum(octet_length(value)) from \"default\"";
    let (_, error) = expect(BAD_DATA, &["sql", db, sum]);
    assert!(error.contains(".sst"), "{error}");
}

#[test]
fn a_loaded_database_has_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("tpch");
    let db = dir.to_str().unwrap();
    let load = ["load", "tpch", "--scale", "0.01", "--db", db];
    let (out, _) = expect(DONE, &load);
    assert!(
        out.contains("lineitem") && out.contains("rockmill sql"),
        "{out}"
    );
    let query = "select count(*) as n, max(o_orderdate) as last from orders";
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", query]);
    assert_eq!(out, "n,last\n15000,1998-08-02\n");
    let (_, said) = expect(WRONG_USAGE, &load);
    assert!(
        said.contains("has contents") && said.contains("--db"),
        "{said}"
    );
    let (_, said) = expect(
        WRONG_USAGE,
        &["load", "tpch", "--scale", "0.001", "--db", "new"],
    );
    assert!(
        said.contains("--scale: 0.001 is not between 0.01"),
        "{said}"
    );
}

/// Rows are `k`, `p` and others; `k` and `p` have operands, and OPTIONS do not tell their delimiter.
#[test]
fn operands_are_merged_with_the_stated_operator_alone() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/string-append-delimiter");
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(source).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let db = folder.path().to_str().unwrap();
    let query = "select arrow_cast(value, 'Utf8') as v from \"default\" where key = 'k'";
    let (out, error) = expect(BAD_DATA, &["sql", db, query]);
    assert_eq!(out, "");
    for said in [
        "\"default\"",
        "StringAppendOperator",
        "--merge-operator",
        db,
    ] {
        assert!(error.contains(said), "{error}");
    }
    let (_, error) = expect(BAD_DATA, &["compact", db]);
    assert!(error.contains("--merge-operator default=NAME"), "{error}");
    for wrong in ["nobody=max", "mine", "stringappend:delimitr=|"] {
        let (_, error) = expect(WRONG_USAGE, &["sql", db, query, "--merge-operator", wrong]);
        assert!(!error.is_empty(), "{wrong}");
    }
    let before = files(folder.path());
    let stated = ["--merge-operator", "default=stringappend:delimiter=|"];
    let sql = [&["sql", db, "--format", "csv", query][..], &stated].concat();
    let (out, _) = expect(DONE, &sql);
    assert_eq!(out, "v\na|b|c\n");
    assert_eq!(files(folder.path()), before);
    expect(DONE, &[&["compact", db][..], &stated].concat());
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", query]);
    assert_eq!(out, "v\na|b|c\n");
}
