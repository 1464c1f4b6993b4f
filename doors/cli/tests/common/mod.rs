//! The command, and databases to run it on.

#![allow(dead_code, reason = "each of the tests uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rockmill_testkit::command;
use rust_rocksdb::{BlockBasedOptions, DB, IteratorMode, Options};
use serde_json::Value;
use tempfile::TempDir;

#[allow(unused_imports, reason = "each of the tests uses its part")]
pub use rockmill_testkit::command::{
    BAD_DATA, DONE, ENVIRONMENT, INCOMPLETE, INTERRUPTED, TERMINATED, WRONG_USAGE, text,
};

/// Runs the command, checks its exit code and returns what it printed.
pub fn expect(code: i32, args: &[&str]) -> (String, String) {
    command::run(env!("CARGO_BIN_EXE_rockmill"), code, args)
}

/// Runs the command at a terminal of this width, which `script` makes, and returns its standard output.
pub fn at_terminal(columns: usize, args: &[&str]) -> String {
    let words = [&[env!("CARGO_BIN_EXE_rockmill")], args].concat();
    let words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    let command = format!(
        "stty cols {columns} rows 24; exec {} 2>/dev/null",
        words.join(" ")
    );
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("script of util-linux");
    let out = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{args:?}\n{out}");
    out
}

/// Makes a closed database with overlapping files in level 0, large enough for many subcompactions.
fn database(dir: &Path) {
    const RUNS: usize = 4;
    const KEYS: usize = 20_000;
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_target_file_size_base(32 << 10);
    options.set_block_based_table_factory(&table);
    let db = DB::open(&options, dir).expect("open");
    for run in 0..RUNS {
        for i in (run..KEYS).step_by(run + 1) {
            let key = format!("key{i:06}");
            if (i + run) % 7 == 0 {
                db.delete(key).expect("delete");
            } else {
                db.put(key, format!("value {run} {i} ").repeat(5))
                    .expect("put");
            }
        }
        db.flush().expect("flush");
    }
}

/// The SST files of a folder, by name.
pub fn sst_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("list")
        .map(|entry| entry.expect("list").path())
        .filter(|path| path.extension().is_some_and(|e| e == "sst"))
        .collect();
    files.sort();
    files
}

/// Makes a database and the temporary folder that contains it.
pub fn made() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = dir.path().join("db");
    database(&db);
    (dir, db)
}

pub type Entries = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Returns all entries of the default column family.
pub fn contents(dir: &Path) -> Entries {
    let log_is_no_error = false;
    let db = DB::open_for_read_only(&Options::default(), dir, log_is_no_error).expect("open");
    let entries = db.iterator(IteratorMode::Start);
    entries.map(|entry| entry.expect("sound")).collect()
}

/// Returns names and contents of all files in a folder except LOCK: closing LOCK would release this process's lock.
pub fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("list");
    let paths = entries.map(|entry| entry.expect("list").path());
    paths
        .filter(|path| !path.ends_with("LOCK"))
        .map(|path| (path.clone(), fs::read(&path).expect("read")))
        .collect()
}

pub fn json(code: i32, args: &[&str]) -> Value {
    let (out, _) = expect(code, &[args, &["--json"]].concat());
    serde_json::from_str(&out).expect("JSON")
}

/// Returns the reasons of the declines in a document.
pub fn reasons(declines: &Value) -> Vec<&str> {
    let declines = declines.as_array().expect("declines").iter();
    declines
        .map(|decline| decline["reason"].as_str().expect("a reason"))
        .collect()
}

/// Returns the newest OPTIONS file of a database and its text.
pub fn newest_options(dir: &Path) -> (PathBuf, String) {
    let entries = fs::read_dir(dir).expect("list");
    let paths = entries.map(|entry| entry.expect("list").path());
    let newest = paths.filter(|path| text(path).contains("/OPTIONS-")).max();
    let newest = newest.expect("an OPTIONS file");
    let options = fs::read_to_string(&newest).expect("read");
    (newest, options)
}
