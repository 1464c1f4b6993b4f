//! `rockmill sql` as a user calls it.

#![cfg(feature = "sql")]

mod common;

use std::fs;
use std::path::Path;

use common::{BAD_DATA, DONE, ENVIRONMENT, WRONG_USAGE, expect, made};
use rockmill_testkit::machine::{Mount, again_where_mounting_is_allowed};
use rust_rocksdb::{DB, IteratorMode, Options, WriteBatch};

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
    assert!(error.contains(file.to_str().unwrap()), "{error}");
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

/// Rows are `k`, `p` and others; `k` and `p` have operands, and OPTIONS do not contain their delimiter.
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
    for other in ["uint64add", "default=max"] {
        let (out, error) = expect(BAD_DATA, &["sql", db, query, "--merge-operator", other]);
        assert!(
            error.contains("OPTIONS say StringAppendOperator"),
            "{error}"
        );
        assert_eq!(out, "");
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

#[test]
fn windows_may_be_in_the_order_of_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, path).unwrap();
    for (key, value) in [("a", "x"), ("b", "x"), ("c", "y")] {
        db.put(key, value).unwrap();
    }
    drop(db);
    // Equal values are in one frame, also from the other side.
    let windows = "select arrow_cast(key, 'Utf8') as k, row_number() over (order by key desc) as n, \
        count(*) over (order by value) as upto, lag(key) over (order by key) as before, \
        count(*) over (order by value range between current row and unbounded following) as since, \
        first_value(key) over (partition by value order by value desc, key) as first from \"default\" order by key";
    let (out, _) = expect(DONE, &["sql", path, "--format", "csv", windows]);
    let rows = [
        "k,n,upto,before,since,first",
        "a,3,2,,3,61",
        "b,2,2,61,3,61",
        "c,1,3,62,1,63",
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), rows);
    let ranges = "select count(*) over (order by key range between 1 preceding and current row) from \"default\"";
    let (_, error) = expect(WRONG_USAGE, &["sql", path, ranges]);
    assert!(!error.contains("please report it"), "{error}");
}

/// Values in blob files are read by RocksDB's iterators.
fn with_blobs() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(0);
    options
}

#[test]
fn a_value_of_a_blob_file_that_is_larger_than_its_operands_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut options = with_blobs();
    options.set_merge_operator_associative("MaxOperator", |_, value, operands| {
        value.into_iter().chain(operands).max().map(<[u8]>::to_vec)
    });
    let db = DB::open(&options, path).unwrap();
    for key in 0..100_u8 {
        db.put([key], [b'b'; 40]).unwrap();
    }
    db.flush().unwrap();
    for key in 0..100_u8 {
        db.merge([key], if key % 2 == 0 { "aaa" } else { "ccc" })
            .unwrap();
    }
    drop(db);
    let found = "select arrow_cast(value, 'Utf8') as value, count(*) as rows from \"default\" group by 1 order by 1";
    let sql = [
        "sql",
        path,
        "--merge-operator",
        "max",
        "--format",
        "csv",
        found,
    ];
    let (out, _) = expect(DONE, &sql);
    assert_eq!(out, format!("value,rows\n{},50\nccc,50\n", "b".repeat(40)));
}

#[test]
fn an_empty_range_at_the_end_of_the_log_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let db = DB::open(&with_blobs(), path).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    let mut batch = WriteBatch::default();
    batch.delete_range("a", "a");
    db.write(&batch).unwrap();
    drop(db);
    let count = "select count(*) as n from \"default\"";
    let (out, _) = expect(DONE, &["sql", path, "--format", "csv", count]);
    assert_eq!(out, "n\n2\n");
}

#[test]
fn nulls_empty_texts_and_floats_differ_in_each_format() {
    let (_folder, dir) = made();
    let db = dir.to_str().unwrap();
    let query = "select '' as a, null as b, cast('NaN' as double) as c, 1.5 as d";
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", query]);
    assert_eq!(out, "a,b,c,d\n\"\",,NaN,1.5\n");
    let (out, _) = expect(DONE, &["sql", db, "--format", "json", query]);
    assert_eq!(out, "{\"a\":\"\",\"c\":\"NaN\",\"d\":1.5}\n");
    // No date is that far away.
    let query = "select arrow_cast(2147483647, 'Date32') as d";
    for format in ["csv", "json", "table"] {
        let (out, err) = expect(WRONG_USAGE, &["sql", db, "--format", format, query]);
        assert!(
            !out.contains("ERROR") && err.contains("2147483647"),
            "{out} {err}"
        );
    }
}

#[test]
fn a_pipe_gets_all_rows_and_values_of_a_table() {
    const BYTES: usize = 64 << 10;
    let (_folder, dir) = made();
    let db = dir.to_str().unwrap();
    let query =
        format!("select 7 as n, repeat('x', {BYTES}) as a, 'line' || chr(10) || 'two' as b");
    let (out, _) = expect(DONE, &["sql", db, &query]);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert_eq!(lines[1], format!("7  {}  line\\ntwo", "x".repeat(BYTES)));
    let query = "select value from generate_series(1, 2500)";
    let (out, _) = expect(DONE, &["sql", db, query]);
    assert_eq!(out.lines().count(), 1 + 2500);
    assert_eq!(out.lines().last(), Some(" 2500"));
}

/// Runs statements of standard input.
fn piped(db: &str, text: &str) -> std::process::Output {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let mut child = Command::new(env!("CARGO_BIN_EXE_rockmill"))
        .args(["sql", db, "--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn statements_end_at_semicolons_outside_strings_and_comments() {
    let (_folder, dir) = made();
    let db = dir.to_str().unwrap();
    let text = "select ';' as a; /* ; */ select 2 as \";\" -- ;\n; select 3 as c; -- the end";
    let rows = "a\n;\n;\n2\nc\n3\n";
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", text]);
    assert_eq!(out, rows);
    let output = piped(db, text);
    assert_eq!(text_of(&output.stdout), rows, "{output:?}");
    // Commands are lines; nothing runs after the one that leaves.
    let output = piped(
        db,
        "select 1 as a;\n\\d rocksdb_families\nexit\nselect 2 as b;",
    );
    let out = text_of(&output.stdout);
    assert!(
        out.starts_with("a\n1\n") && out.contains("entries,"),
        "{out}"
    );
    assert!(!out.contains("b\n2"), "{out}");
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", ".tables"]);
    assert!(out.contains("public,default,BASE TABLE\n"), "{out}");
    assert!(!out.contains("information_schema"), "{out}");
    assert_eq!(out, text_of(&piped(db, "show tables").stdout));
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn errors_are_sentences_with_a_place() {
    let (_folder, dir) = made();
    let db = dir.to_str().unwrap();
    for (statement, said) in [
        (
            "create tabel u",
            "line 1, column 8: expected an object type after CREATE, found tabel",
        ),
        (
            "/* x */\n  select *\n from nobody",
            "line 3, column 7: there is no table nobody; show tables lists them",
        ),
        (
            "select * from defualt",
            "line 1, column 15: there is no table defualt; did you mean default?",
        ),
        (
            "select kye from \"default\"",
            "line 1, column 8: there is no column kye; did you mean key?",
        ),
        (
            "select key, d.missing from \"default\" d",
            "line 1, column 13: there is no column d.missing; columns are key, value",
        ),
        (
            "select\noctet_lenght(key) from \"default\"",
            "line 2, column 1: there is no function octet_lenght; did you mean octet_length?",
        ),
        ("select 'a", "line 1, column 8: unterminated string literal"),
        ("select 1 / 0", "division by zero"),
        (
            "select (1",
            "line 1, column 10: expected ), found the end of the statement",
        ),
        (
            "select u8(1, 2)",
            "line 1, column 8: there is no u8(Int64, Int64); there is u8(Binary, Int64)",
        ),
        ("\\x", "\\x is no command; help lists them"),
    ] {
        let (out, error) = expect(WRONG_USAGE, &["sql", db, statement]);
        assert_eq!(
            (out.as_str(), error),
            ("", format!("rockmill: {said}\n")),
            "{statement}"
        );
    }
    for statement in [
        "select cast('x' as int)",
        "select substr(1)",
        "select u8(1, 2)",
        "select key + 1 from \"default\"",
        "select key from \"default\" group by value",
        "select sum(key, value) from \"default\"",
        "insert into \"default\" values (1)",
        "set nothing = 1",
        "explain select * from x",
        "select regexp_like('a', '(')",
    ] {
        let (_, error) = expect(WRONG_USAGE, &["sql", db, statement]);
        assert_eq!(error.lines().count(), 1, "{error}");
        for debug in [
            "Error",
            "(\"",
            "Arrow error",
            "Schema error",
            "Some(",
            "{ ",
            "SQL(",
            "::",
        ] {
            assert!(!error.contains(debug), "{error}");
        }
    }
    // The error names the file with the statement.
    fs::write(
        dir.join("tables.sql"),
        "-- Tables.\ncreate table t as select 1;\ncreate tabel u;",
    )
    .unwrap();
    let (_, error) = expect(WRONG_USAGE, &["sql", db, "select 1"]);
    let place = format!("rockmill: {db}/tables.sql: line 3, column 8: expected ");
    assert!(error.starts_with(&place), "{error}");
}

#[test]
fn tables_of_the_database_are_not_written() {
    let (_folder, dir) = made();
    let db = dir.to_str().unwrap();
    for statement in [
        "drop table \"default\"",
        "drop table if exists \"default\"",
        "drop view rocksdb_files",
        "insert into \"default\" values (x'00', x'00')",
        "delete from \"default\"",
        "update \"default\" set value = key",
        "create external table t (key bytea not null, value bytea not null) stored as rocksdb location '.' \
         options ('key' 'rest key', 'value' 'rest value'); delete from t",
    ] {
        let statement = statement.replace("'.'", &format!("'{db}'"));
        let (_, error) = expect(WRONG_USAGE, &["sql", db, &statement]);
        assert!(error.contains("are only read here"), "{statement}: {error}");
    }
    let of_file = format!(
        "create external table named (key bytea not null, value bytea not null) stored as rocksdb location '{db}' \
         options ('key' 'rest key', 'value' 'rest value');\ncreate view few as select 1 as n;"
    );
    fs::write(dir.join("tables.sql"), of_file).unwrap();
    for statement in ["drop table named", "drop view few"] {
        let (_, error) = expect(WRONG_USAGE, &["sql", db, statement]);
        assert!(error.contains("are only read here"), "{statement}: {error}");
    }
    let replaced =
        "create or replace view few as select 2 as n; drop view few; drop view if exists few";
    expect(DONE, &["sql", db, replaced]);
    // Tables that replace them may be dropped.
    let made = "create or replace table \"default\" as select 7 as n; drop table \"default\"; \
                select count(*) > 7 as all_rows from \"default\"";
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", made]);
    assert!(out.ends_with("all_rows\ntrue\n"), "{out}");
}

#[test]
fn a_column_of_an_external_table_may_be_called_key() {
    let (_folder, dir) = made();
    let db = dir.to_str().unwrap();
    let statement = format!(
        "create external table t (key bytea not null, value bytea not null) stored as rocksdb location '{db}' \
         options ('key' 'rest key', 'value' 'rest value'); select min(key) as least from t"
    );
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", &statement]);
    assert!(out.starts_with("least\n6b6579"), "{out}");
    // Key and value need no layout.
    let statement = format!(
        "create external table t (key bytea, value bytea) stored as rocksdb location '{db}'; \
         select min(key) as least from t"
    );
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", &statement]);
    assert!(out.starts_with("least\n6b6579"), "{out}");
    let statement = format!("create external table t (id int) stored as rocksdb location '{db}'");
    let (_, error) = expect(WRONG_USAGE, &["sql", db, &statement]);
    assert!(error.contains("id int unsigned not null"), "{error}");
}

#[test]
fn copy_replaces_files_if_it_is_asked_to() {
    let (folder, dir) = made();
    let db = dir.to_str().unwrap();
    let target = folder.path().join("out.csv");
    let copy = |n| format!("copy (select {n} as n) to '{}'", target.display());
    expect(DONE, &["sql", db, &copy(1)]);
    let (_, error) = expect(WRONG_USAGE, &["sql", db, &copy(2)]);
    assert!(
        error.contains("out.csv exists") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&target).unwrap(), "n\n1\n");
    expect(DONE, &["sql", db, "--force", &copy(3)]);
    assert_eq!(fs::read_to_string(&target).unwrap(), "n\n3\n");
    let (out, _) = expect(DONE, &["sql", db, "--explain", "--force", &copy(4)]);
    assert!(out.contains("DataSink"), "{out}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "n\n3\n");
    let below = folder.path().join("missing/out.csv");
    let copy = format!("copy (select 5 as n) to '{}'", below.display());
    let (_, error) = expect(WRONG_USAGE, &["sql", db, &copy]);
    assert!(
        error.contains("there is no folder") && error.contains("--force"),
        "{error}"
    );
    assert!(!below.parent().unwrap().exists());
    expect(DONE, &["sql", db, "--force", &copy]);
    assert_eq!(fs::read_to_string(&below).unwrap(), "n\n5\n");
    let sst = common::sst_files(&dir).remove(0);
    let over = format!("copy (select 1) to '{}' stored as csv", sst.display());
    expect(WRONG_USAGE, &["sql", db, &over]);
}

#[test]
fn a_full_disk_is_named() {
    let (folder, dir) = made();
    let db = dir.to_str().unwrap();
    let Some(disk) = Mount::memory("64k", folder.path().join("disk")) else {
        return again_where_mounting_is_allowed("a_full_disk_is_named");
    };
    let rows = "select key, value from \"default\"";
    // More than is written at a time.
    let many = "select value, value + 1 as next from generate_series(1, 2000000)";
    for (rows, file) in [
        (rows, "rows.parquet"),
        (rows, "rows.csv"),
        (rows, "rows.json"),
        (many, "many.parquet"),
        (many, "many.csv"),
    ] {
        let target = disk.path().join(file).display().to_string();
        let copy = format!("copy ({rows}) to '{target}'");
        let (_, error) = expect(ENVIRONMENT, &["sql", db, &copy]);
        let says = format!(
            "{target}: a file could not be written: is its file system full? No file was added or replaced"
        );
        assert!(error.contains(&says), "{error}");
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }
    // The first of many small files would fit.
    let parts = "select value as n, value % 300 as part from generate_series(1, 200000)";
    let target = disk.path().join("parts/").display().to_string();
    let copy = format!("copy ({parts}) to '{target}' stored as csv partitioned by (part)");
    let (out, error) = expect(ENVIRONMENT, &["sql", db, &copy]);
    assert!(error.contains("No file was added"), "{error}");
    assert_eq!(out, "");
    let mut folders = vec![disk.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.is_dir(), "{}", path.display());
            folders.push(path);
        }
    }
}

#[test]
fn a_copy_that_fails_leaves_the_files_of_before() {
    let (folder, dir) = made();
    let db = dir.to_str().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let fails = "select 100 / (200000 - value) as n from generate_series(1, 300000)";
    let files = || {
        let mut files: Vec<_> = fs::read_dir(&out)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        files
    };
    for format in ["parquet", "csv", "json", "arrow"] {
        let target = out.join(format!("rows.{format}"));
        let copy = |rows, explain| format!("{explain}copy ({rows}) to '{}'", target.display());
        let (_, error) = expect(WRONG_USAGE, &["sql", db, &copy(fails, "")]);
        assert!(error.contains("division by zero"), "{error}");
        assert!(files().is_empty());
        expect(DONE, &["sql", db, &copy("select 1 as n", "")]);
        assert_eq!(files(), std::slice::from_ref(&target));
        let written = fs::read(&target).unwrap();
        expect(WRONG_USAGE, &["sql", db, "--force", &copy(fails, "")]);
        expect(
            WRONG_USAGE,
            &["sql", db, &copy("select 2 as n", "explain analyze ")],
        );
        assert_eq!(fs::read(&target).unwrap(), written);
        expect(
            DONE,
            &[
                "sql",
                db,
                "--force",
                &copy("select 2 as n", "explain analyze "),
            ],
        );
        assert_ne!(fs::read(&target).unwrap(), written);
        fs::remove_file(&target).unwrap();
    }
    // Those of an external table.
    let insert = format!(
        "create external table rows (n bigint) stored as csv location '{}/'; insert into rows ",
        out.display()
    );
    expect(WRONG_USAGE, &["sql", db, &format!("{insert} {fails}")]);
    assert!(files().is_empty());
    expect(DONE, &["sql", db, &format!("{insert} select 1")]);
    assert_eq!(files().len(), 1);
    fs::remove_file(&files()[0]).unwrap();
    // A folder keeps its files, and gets those of a statement that has ended.
    let copy = |rows: &str, parts| {
        format!(
            "copy ({rows}) to '{}/' stored as csv {parts}",
            out.display()
        )
    };
    let by = "partitioned by (part)";
    expect(DONE, &["sql", db, &copy("select 1 as n, 'a' as part", by)]);
    let fails = format!("select n, 'a' as part from ({fails})");
    expect(WRONG_USAGE, &["sql", db, "--force", &copy(&fails, by)]);
    let more = "select 1 as n, 'a' as part union all select 2, 'b'";
    expect(DONE, &["sql", db, "--force", &copy(more, by)]);
    assert_eq!(files(), [out.join("part=a"), out.join("part=b")]);
    assert_eq!(fs::read_dir(out.join("part=a")).unwrap().count(), 2);
    let new = folder.path().join("new");
    let copy = format!("copy (select 1 as n) to '{}/' stored as csv", new.display());
    expect(DONE, &["sql", db, &copy]);
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
}

#[test]
fn a_statement_with_thousands_of_alternatives_is_answered() {
    /// They would overflow a stack of 8 MiB.
    const ALTERNATIVES: usize = 3_000;
    let (folder, dir) = made();
    let db = dir.to_str().unwrap();
    let alternatives: Vec<_> = (1..=ALTERNATIVES)
        .map(|at| match at % 2 {
            0 => format!("octet_length(key) = -{at}"),
            _ => format!("octet_length(value) = -{at}"),
        })
        .collect();
    let statement = format!(
        "select count(*) as n from \"default\" where {}",
        alternatives.join(" or ")
    );
    let file = folder.path().join("statement.sql");
    fs::write(&file, statement).unwrap();
    let file = file.to_str().unwrap();
    let (out, _) = expect(
        DONE,
        &["sql", db, "--format", "csv", "-f", file, "select 1"],
    );
    assert_eq!(out, "n\n0\nInt64(1)\n1\n");
}

#[test]
fn an_interrupt_ends_a_statement_that_makes_a_table() {
    const INTERRUPTED: i32 = 130;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let (_folder, dir) = made();
    let endless = "select 1; create table t as select count(*) as n \
                   from generate_series(1, 100000000000) a where a.value % 7 = 8";
    let mut child = Command::new(env!("CARGO_BIN_EXE_rockmill"))
        .args(["sql", dir.to_str().unwrap(), "--format", "csv", endless])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Rows of the first statement.
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        out.read_line(&mut String::new()).unwrap();
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(INTERRUPTED));
    assert!(
        String::from_utf8(ended.stderr)
            .unwrap()
            .contains("interrupted")
    );
}

#[test]
fn more_files_than_the_usual_limit_of_open_files_are_read() {
    const FILES: usize = 150;
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let db = DB::open(&options, folder.path()).unwrap();
    for number in 0..FILES {
        db.put(format!("{number}"), "").unwrap();
        db.flush().unwrap();
    }
    drop(db);
    let command = format!(
        "ulimit -S -n 100 && exec {} sql {} --format csv 'select count(*) as n from \"default\"'",
        env!("CARGO_BIN_EXE_rockmill"),
        folder.path().display()
    );
    let (out, _) = rockmill_testkit::command::run("sh", DONE, &["-c", &command]);
    assert_eq!(out, format!("n\n{FILES}\n"));
}

#[test]
fn entries_that_are_not_known_are_null() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_comparator("mine", Box::new(|a, b| b.cmp(a)));
    let db = DB::open(&options, folder.path()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    drop(db);
    let query = "select family, files, entries from rocksdb_families; \
                 select family, entries, compression from rocksdb_files";
    let db = folder.path().to_str().unwrap();
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", query]);
    assert_eq!(
        out,
        "family,files,entries\ndefault,1,\nfamily,entries,compression\ndefault,,\n"
    );
}

#[test]
fn the_time_that_dbwithttl_appends_is_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let database = folder.path().join("db");
    let day = std::time::Duration::from_secs(86_400);
    let db = DB::open_with_ttl(&options, &database, day).unwrap();
    db.put("a", "body").unwrap();
    db.put("b", "").unwrap();
    drop(db);
    let db = database.to_str().unwrap();
    // Compactions with a filter are left to RocksDB.
    let (out, _) = expect(BAD_DATA, &["doctor", db]);
    assert!(out.contains("that of DBWithTTL"), "{out}");
    assert!(out.contains("'rest body, i32le written_at'"), "{out}");
    let tables = "create external table t (id varchar not null, body varchar not null, written_at int not null) \
                  stored as rocksdb location '.' \
                  options ('key' 'rest id', 'value' 'rest body, i32le written_at');";
    fs::write(database.join("tables.sql"), tables).unwrap();
    let query = "select id, body, written_at > 1600000000 as is_time from t order by id";
    let (out, _) = expect(DONE, &["sql", db, "--format", "csv", query]);
    assert_eq!(out, "id,body,is_time\na,body,true\nb,\"\",true\n");
}
