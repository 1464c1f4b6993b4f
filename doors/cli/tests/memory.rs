//! Statements of `rockmill sql` that have more data than memory.

#![cfg(feature = "sql")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rockmill_testkit::cgroup::MemoryGroup;
use rockmill_testkit::machine::skipped;
use rust_rocksdb::{DB, Options, WriteOptions};
use tempfile::TempDir;

/// Memory of the container, which includes the process's own.
const CONTAINER_BYTES: u64 = 256 << 20;
/// Number of rows of the database. Each has a number and some digits that do not compress: 360 MB.
const ROWS: u64 = 1_200_000;
const DIGITS: usize = 280;

/// Every key is a number, and the value starts with a number of the same length in another order.
fn database(rows: u64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let db = DB::open(&options, &dir).unwrap();
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let mut value = String::new();
    for row in 0..rows {
        value.clear();
        let mut digits = shuffled(row);
        while value.len() < DIGITS {
            value.push_str(&format!("{digits:08}"));
            digits = digits * 48_271 % 100_000_007;
        }
        db.put_opt(format!("{row:08}"), &value, &unlogged).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    (folder, dir)
}

/// Another number below [`ROWS`] for each number.
fn shuffled(row: u64) -> u64 {
    /// Coprime to the number of rows.
    const STEP: u64 = 700_001;
    row * STEP % ROWS
}

/// Statements that need more memory than the container has, and what they print.
fn statements() -> [(&'static str, String); 5] {
    let last = ROWS - 1;
    [
        ("select count(*) from \"default\"", format!("{ROWS}")),
        (
            "select count(distinct value) from \"default\"",
            format!("{ROWS}"),
        ),
        (
            // Compares each value with the previous one.
            "select count(*) from (select value, lag(value) over (order by value rows between unbounded preceding and current row) as before from \"default\") where before < value",
            format!("{last}"),
        ),
        (
            "select count(*), max(n) from (select value, count(*) as n from \"default\" group by value)",
            format!("{ROWS},1"),
        ),
        (
            "select count(*) from \"default\" a join \"default\" b on a.value = b.value",
            format!("{ROWS}"),
        ),
    ]
}

fn sql(group: Option<&MemoryGroup>, args: &[&str]) -> Output {
    let rockmill = env!("CARGO_BIN_EXE_rockmill");
    let mut command = match group {
        Some(group) => group.command(rockmill),
        None => Command::new(rockmill),
    };
    command.arg("sql").args(args).output().unwrap()
}

/// Runs the statements, and checks that nothing is left in the folder for temporary files.
fn check(group: Option<&MemoryGroup>, dir: &Path, more: &[&str]) {
    let spill = tempfile::tempdir().unwrap();
    for (statement, expected) in statements() {
        let dirs = [dir, spill.path()].map(|path| path.to_str().unwrap());
        let args = [
            dirs[0],
            "--spill-dir",
            dirs[1],
            "--format",
            "csv",
            statement,
        ];
        let output = sql(group, &[&args, more].concat());
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        let rows = out.lines().nth(1);
        assert_eq!(
            rows,
            Some(&*expected),
            "{statement}: {:?} {err}",
            output.status
        );
        assert_eq!(fs::read_dir(spill.path()).unwrap().count(), 0);
    }
}

#[test]
fn statements_end_in_a_container_with_less_memory_than_data() {
    let (_folder, dir) = database(ROWS);
    let Some(group) = MemoryGroup::new("rockmill-test-sql", CONTAINER_BYTES) else {
        skipped("there is no cgroup here whose memory may be limited: statements run without one");
        return check(None, &dir, &["--memory-mib", "128"]);
    };
    check(Some(&group), &dir, &[]);
    check(Some(&group), &dir, &["--memory-mib", "64"]);
    let output = group
        .command(env!("CARGO_BIN_EXE_rockmill"))
        .args(["devices", "--json"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["limits"]["memory_bytes"], CONTAINER_BYTES);
    assert!(
        report["limits"]["memory_file"]
            .as_str()
            .unwrap()
            .contains("rockmill-test-sql")
    );
}

#[test]
fn without_room_for_temporary_files_the_error_says_what_to_set() {
    /// Too many rows for 64 MiB.
    const SOME_ROWS: u64 = ROWS / 4;
    let (_folder, dir) = database(SOME_ROWS);
    let statement = "select count(distinct value) from \"default\"";
    let dir = dir.to_str().unwrap();
    let args = [
        dir,
        "--memory-mib",
        "64",
        "--spill-dir",
        "/dev/null",
        statement,
    ];
    let output = sql(None, &args);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(common::ENVIRONMENT), "{err}");
    assert!(
        err.contains("/dev/null") && err.contains("--spill-dir"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
}
