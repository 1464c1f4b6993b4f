//! The folder from which the write-ahead logs are read.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{DONE, ENVIRONMENT, WRONG_USAGE, expect, newest_options, text};
use rust_rocksdb::{DB, Options};
use tempfile::TempDir;

/// Makes a closed database with 10 rows in a file and 10 in its log, which lies in `logs`.
fn database(dir: &Path, logs: Option<&Path>) {
    let mut options = Options::default();
    options.create_if_missing(true);
    if let Some(logs) = logs {
        options.set_wal_dir(logs);
    }
    let db = DB::open(&options, dir).expect("open");
    put(&db, 0..10);
    db.flush().expect("flush");
    put(&db, 10..20);
}

fn put(db: &DB, numbers: std::ops::Range<u32>) {
    for number in numbers {
        db.put(format!("key{number:04}"), "value").expect("put");
    }
}

/// Sets an option in the newest OPTIONS file, in which its first line counts.
fn say(dir: &Path, option: &str, value: &Path) {
    let (path, options) = newest_options(dir);
    let said = format!("[DBOptions]\n  {option}={}\n", text(value));
    let changed = options.replacen("[DBOptions]\n", &said, 1);
    assert_ne!(changed, options);
    fs::write(path, changed).expect("write");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("make");
    for entry in fs::read_dir(from).expect("list") {
        let path = entry.expect("list").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => {
                fs::copy(path, target).expect("copy");
            }
        }
    }
}

fn remove_logs(dir: &Path) {
    for entry in fs::read_dir(dir).expect("list") {
        let path = entry.expect("list").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(path).expect("remove");
        }
    }
}

/// Returns the number of rows that `sql` finds, and its message about the logs. `view` prints the same.
fn rows(dir: &Path, more: &[&str]) -> (u32, String) {
    let count = "select count(*) as n from \"default\"";
    let sql = ["sql", text(dir), "--format", "csv", count];
    let (out, said) = expect(DONE, &[&sql[..], more].concat());
    let number = out.strip_prefix("n\n").map(str::trim);
    let number = number.and_then(|number| number.parse().ok());
    let (_, by_view) = expect(DONE, &[&["view", text(dir)], more].concat());
    assert_eq!(by_view, said);
    (number.expect("a number"), said)
}

fn rows_of_rocksdb(dir: &Path) -> usize {
    common::contents(dir).len()
}

fn scratch() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_owned();
    (dir, path)
}

#[test]
fn the_folder_of_another_machine_is_not_needed() {
    let (_dir, dir) = scratch();
    let db = dir.join("db");
    database(&db, None);
    for option in ["wal_dir", "db_log_dir"] {
        say(&db, option, &dir.join("proc/of/another/machine"));
    }
    // The folder cannot be made.
    fs::write(dir.join("proc"), "").expect("write");
    assert_eq!(rows(&db, &[]), (20, String::new()));
    for command in ["verify", "doctor"] {
        expect(DONE, &[command, text(&db)]);
    }
    let (_, said) = expect(DONE, &["compact", text(&db)]);
    assert!(!said.contains("log"), "{said}");
    assert_eq!((rows(&db, &[]).0, rows_of_rocksdb(&db)), (20, 20));
}

#[test]
fn a_copy_is_not_read_with_the_logs_of_its_original() {
    let (_dir, dir) = scratch();
    let (original, whole, without) = (dir.join("db"), dir.join("whole"), dir.join("without"));
    database(&original, None);
    // RocksDB up to 6.20 wrote the folder like this.
    say(&original, "wal_dir", &original);
    for copied in [&whole, &without] {
        copy(&original, copied);
    }
    remove_logs(&without);
    // The original writes more, in the same log at first.
    let mut options = Options::default();
    options.set_avoid_flush_during_recovery(true);
    for _ in 0..2 {
        let db = DB::open(&options, &original).expect("open");
        put(&db, 20..40);
    }
    say(&original, "wal_dir", &original);
    assert_eq!(rows(&original, &[]), (40, String::new()));
    assert_eq!(rows(&whole, &[]), (20, String::new()));
    let (found, said) = rows(&without, &[]);
    assert_eq!(found, 10);
    let missing = format!(
        "{}, which is the folder of another database",
        text(&original)
    );
    assert!(
        said.contains(&missing) && said.contains("--wal-dir"),
        "{said}"
    );
    let before = common::snapshot(&original);
    let (_, said) = expect(WRONG_USAGE, &["compact", text(&without)]);
    assert!(
        said.contains(&missing) && said.contains("--wal-dir"),
        "{said}"
    );
    expect(
        DONE,
        &["compact", text(&without), "--wal-dir", text(&without)],
    );
    expect(DONE, &["compact", text(&whole)]);
    assert!(common::snapshot(&original) == before);
    let counts = [&without, &whole].map(|dir| rows_of_rocksdb(dir));
    assert_eq!(counts, [10, 20]);
}

#[test]
fn logs_in_another_folder_are_read_where_the_manifest_names_them() {
    let (_dir, dir) = scratch();
    let (original, logs, copied) = (dir.join("db"), dir.join("logs"), dir.join("copy"));
    database(&original, Some(&logs));
    copy(&original, &copied);
    let old = dir.join("old");
    copy(&logs, &old);
    for db in [&original, &copied] {
        let (found, said) = rows(db, &[]);
        assert_eq!(found, 20);
        assert!(
            said.contains(&format!("is in {}, the wal_dir", text(&logs))),
            "{said}"
        );
    }
    // Replaying deletes logs, so the user must name their owner.
    let before = common::snapshot(&logs);
    let (_, said) = expect(WRONG_USAGE, &["compact", text(&copied)]);
    assert!(
        said.contains(text(&logs)) && said.contains("--wal-dir"),
        "{said}"
    );
    assert!(common::snapshot(&logs) == before);
    // The original writes more, so its logs belong to another state.
    let mut options = Options::default();
    options.set_wal_dir(&logs);
    let db = DB::open(&options, &original).expect("open");
    put(&db, 20..40);
    drop(db);
    assert_eq!(rows(&original, &[]).0, 40);
    let (found, said) = rows(&copied, &[]);
    assert_eq!(found, 10);
    assert!(
        said.contains("has not the logs that the MANIFEST names"),
        "{said}"
    );
    let stated = ["--wal-dir", text(&old)];
    let (found, said) = rows(&copied, &stated);
    assert_eq!(found, 20);
    assert!(
        said.contains(&format!("the write-ahead log is in {}\n", text(&old))),
        "{said}"
    );
    let (_, said) = expect(DONE, &[&["compact", text(&copied)], &stated[..]].concat());
    assert!(said.contains(text(&old)), "{said}");
    assert_eq!(rows_of_rocksdb(&copied), 20);
    let stated = ["--wal-dir", text(&logs)];
    expect(DONE, &[&["compact", text(&original)], &stated[..]].concat());
    assert_eq!(rows_of_rocksdb(&original), 40);
}

#[test]
fn logs_below_the_databases_folder_move_with_it() {
    let (_dir, dir) = scratch();
    let (original, moved) = (dir.join("db"), dir.join("moved"));
    database(&original, Some(&original.join("logs")));
    fs::rename(&original, &moved).expect("move");
    let (found, said) = rows(&moved, &[]);
    assert_eq!(found, 20);
    let logs = moved.join("logs");
    assert!(said.contains(&format!("is in {}", text(&logs))), "{said}");
    // Rows that RocksDB reads come from there as well.
    let mut options = Options::default();
    options.set_wal_dir(&logs);
    let db = DB::open(&options, &moved).expect("open");
    let mut batch = rust_rocksdb::WriteBatch::default();
    batch.delete_range(b"key0005".as_slice(), b"key0015");
    db.write(&batch).expect("deleted");
    drop(db);
    fs::rename(&moved, &original).expect("move");
    assert_eq!(rows(&original, &[]).0, 10);
}

#[test]
fn a_relative_wal_dir_begins_at_the_working_directory() {
    let (_dir, dir) = scratch();
    let (db, logs) = (dir.join("db"), dir.join("logs"));
    database(&db, Some(&logs));
    say(&db, "wal_dir", Path::new("logs"));
    let count = "select count(*) as n from \"default\"";
    for (folder, expected) in [(&dir, "n\n20\n"), (&db, "n\n10\n")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockmill"));
        command.args(["sql", text(&db), "--format", "csv", count]);
        let done = command.current_dir(folder).output().expect("it starts");
        assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains("logs, "), "{said}");
    }
}

#[test]
fn a_folder_that_is_named_must_be_there() {
    let (_dir, dir) = scratch();
    let db = dir.join("db");
    database(&db, None);
    let missing = dir.join("missing");
    for command in [
        &["sql", text(&db), "select 1"][..],
        &["view", text(&db)],
        &["compact", text(&db)],
    ] {
        let args = [command, &["--wal-dir", text(&missing)]].concat();
        let (_, said) = expect(ENVIRONMENT, &args);
        assert!(said.contains(text(&missing)), "{said}");
    }
    let empty = dir.join("empty");
    fs::create_dir(&empty).expect("make");
    let (found, said) = rows(&db, &["--wal-dir", text(&empty)]);
    assert_eq!(found, 10);
    assert!(said.contains("has none that the MANIFEST names"), "{said}");
}

#[test]
fn tables_of_other_folders_need_their_logs_too() {
    let (_dir, dir) = scratch();
    let (db, other, logs) = (dir.join("db"), dir.join("other"), dir.join("logs"));
    database(&db, None);
    database(&other, Some(&logs));
    let moved = dir.join("moved");
    let count = |option: &str| {
        let (other, moved) = (text(&other), text(&moved));
        let option = option.replace("$", moved);
        format!(
            "create external table t stored as rocksdb location '{other}' {option}; select count(*) as n from t"
        )
    };
    let run =
        |code, statements: &str| expect(code, &["sql", text(&db), "--format", "csv", statements]);
    assert_eq!(run(DONE, &count("")).0, "n\n20\n");
    fs::rename(&logs, &moved).expect("move");
    let (_, said) = run(ENVIRONMENT, &count(""));
    assert!(
        said.contains(text(&logs)) && said.contains("as wal_dir"),
        "{said}"
    );
    assert_eq!(run(DONE, &count("options ('wal_dir' '$')")).0, "n\n20\n");
}
