//! Cells that `rockmill-bench system` skips, and errors that end it early.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use common::{BAD_DATA, DONE, ENVIRONMENT, Folder, WRONG_USAGE, expect, text};
use rockmill_testkit::machine::{Mount, again_where_mounting_is_allowed};

#[test]
fn results_of_other_settings_and_builds_are_refused() {
    let folder = Folder::new();
    let scaling = |code, scale| {
        let args = [
            "--job-mb",
            "1",
            "--at-once",
            "1",
            "--rocksdb",
            "no",
            "--scale",
            scale,
        ];
        folder.run(code, "scaling", &args).1
    };
    scaling(DONE, "100");
    let (path, result) = folder.results("scaling").swap_remove(0);
    let err = scaling(WRONG_USAGE, "50");
    assert!(
        err.contains("with other settings") && err.contains(text(&path)),
        "{err}"
    );
    for (field, value, expected) in [
        ("commit", "0000000", "by another build (commit 0000000)"),
        ("program", "0", "by another build"),
        ("machine", "abacus", "on another machine (abacus)"),
        ("dir", "/elsewhere", "with --dir /elsewhere"),
    ] {
        let mut other = result.clone();
        other[field] = value.into();
        fs::write(&path, other.to_string()).expect("write");
        let err = scaling(WRONG_USAGE, "100");
        assert!(err.contains(expected), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    fs::write(&path, "{").expect("write");
    let err = scaling(BAD_DATA, "100");
    assert!(err.contains("not a result"), "{err}");
    fs::remove_file(&path).expect("remove");
    scaling(DONE, "100");
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_is() {
    let folder = Folder::new();
    let err = folder.run(WRONG_USAGE, "speed", &[]).1;
    assert!(
        err.contains("contention") && err.contains("update-ratio"),
        "{err}"
    );
    assert!(!folder.out().exists());
    let err = folder.run(WRONG_USAGE, "scaling", &["--cpu-load", "80"]).1;
    assert!(
        err.contains("--cpu-load is for the experiment contention"),
        "{err}"
    );
    let err = folder.run(WRONG_USAGE, "scaling", &["--clients", "2"]).1;
    assert!(
        err.contains("--clients is for experiments with clients"),
        "{err}"
    );
    folder.run(WRONG_USAGE, "scaling", &["--scale", "0"]);
    folder.run(WRONG_USAGE, "scaling", &["--repeat", "0"]);
    folder.run(WRONG_USAGE, "scaling", &["--device", "abacus"]);
    let err = folder
        .run(ENVIRONMENT, "scaling", &["--device", "cpu,cuda:99"])
        .1;
    assert!(err.contains("device cuda:99: "), "{err}");
    assert!(!folder.out().exists(), "nothing is abandoned");
    fs::create_dir(folder.out()).expect("make a folder");
    folder.run(ENVIRONMENT, "scaling", &["--device", "cuda:99"]);
    fs::remove_dir(folder.out()).expect("it is there, and nothing is in it");

    let tiny = ["--job-mb", "1", "--at-once", "1", "--out", "/dev/null/out"];
    let bench = ["system", "--experiment", "scaling"];
    let (_, err) = expect(ENVIRONMENT, &[&bench[..], &tiny].concat());
    assert!(err.contains("/dev/null/out: "), "{err}");
    let out = folder.out();
    let nowhere = ["--out", text(&out), "--dir", "/nowhere"];
    let (_, err) = expect(ENVIRONMENT, &[&bench[..], &nowhere].concat());
    assert!(err.contains("name another with --dir"), "{err}");
    assert!(!out.exists());
}

#[test]
fn one_process_at_a_time_measures_into_a_folder() {
    let folder = Folder::new();
    fs::create_dir(folder.out()).expect("make a folder");
    let held = fs::File::open(folder.out()).expect("open");
    held.lock().expect("lock");
    let err = folder.run(ENVIRONMENT, "scaling", &[]).1;
    assert!(err.contains("another process measures into it"), "{err}");
}

#[test]
fn a_call_that_was_killed_leaves_nothing_for_long() {
    let folder = Folder::new();
    let databases = folder.databases();
    let mut killed = Command::new(env!("CARGO_BIN_EXE_rockmill-bench"))
        .args(folder.arguments("secondary-index", &[]))
        .spawn()
        .expect("the command starts");
    while !has_database(&databases) {
        assert!(killed.try_wait().expect("it runs").is_none());
        thread::yield_now();
    }
    killed.kill().expect("kill");
    killed.wait().expect("it ends");
    // A process that was killed while it wrote its result also leaves a partial file.
    let part = folder.out().join("secondary-index/rocksdb.json.part");
    fs::write(part, "{").expect("write");
    // The child process of the killed one ends by itself.
    folder.run(DONE, "secondary-index", &["--scale", "0.05"]);
    assert_eq!(folder.results("secondary-index").len(), 2);
}

/// Whether a cell's database has been created.
fn has_database(databases: &Path) -> bool {
    let grounds = fs::read_dir(databases).expect("list");
    let mut databases = grounds.map(|entry| entry.expect("list").path().join("cell/CURRENT"));
    databases.any(|path| path.exists())
}

/// One cell of a few seconds at most, for which 128 MiB are enough.
const SMALL: [&str; 6] = ["--scale", "1", "--value-bytes", "512", "--cpu-load", "0"];

#[test]
fn a_disk_that_fills_up_ends_a_cell_and_no_other() {
    let folder = Folder::new();
    let Some(disk) = Mount::memory("128m", folder.databases()) else {
        return again_where_mounting_is_allowed("a_disk_that_fills_up_ends_a_cell_and_no_other");
    };
    let one_cell = [&SMALL[..], &["--stop-after", "0"]].concat();
    folder.run(DONE, "contention", &one_cell);
    let before = folder.results("contention");
    assert_eq!(before.len(), 1);
    let mut filled = Command::new(env!("CARGO_BIN_EXE_rockmill-bench"))
        .args(folder.arguments("contention", &SMALL))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let filler = disk.path().join("filler");
    let mut rest = fs::File::create(&filler).expect("create");
    let mut is_full = false;
    while filled.try_wait().expect("it runs").is_none() {
        is_full |= has_database(disk.path());
        // Also fills space that is freed later.
        while is_full && rest.write_all(&[0; 4 << 10]).is_ok() {}
        thread::yield_now();
    }
    let ended = filled.wait_with_output().expect("it ends");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(ENVIRONMENT), "{err}");
    let advice = format!(
        "make room in {} or name another with --dir",
        disk.path().display()
    );
    assert!(
        err.contains("No space left") && err.contains(&advice),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    assert_eq!(folder.results("contention"), before);
    // With free space, it resumes and finds only its own cell's database.
    drop(rest);
    fs::remove_file(&filler).expect("remove");
    folder.run(DONE, "contention", &SMALL);
    assert_eq!(folder.results("contention").len(), 2);
}

#[test]
fn cells_without_room_are_left_out_before_they_begin() {
    let folder = Folder::new();
    let Some(_disk) = Mount::memory("16m", folder.databases()) else {
        return again_where_mounting_is_allowed(
            "cells_without_room_are_left_out_before_they_begin",
        );
    };
    let err = folder.run(ENVIRONMENT, "contention", &SMALL).1;
    assert!(
        err.contains("-rocksdb: needs ") && err.contains(" MB are free"),
        "{err}"
    );
    assert!(
        err.contains("and 1 more need more space as well; make room"),
        "{err}"
    );
    assert!(!folder.out().exists(), "nothing is abandoned");
    let both = [
        "--scale",
        "0.1",
        "--value-bytes",
        "16,1024",
        "--cpu-load",
        "0",
    ];
    let (said, _) = folder.run(DONE, "contention", &both);
    assert!(
        said.contains("Not measured: value-B-1024-CPU-load-0-rocksdb: needs "),
        "{said}"
    );
    assert_eq!(folder.results("contention").len(), 2);
}

#[test]
fn a_file_that_must_not_grow_ends_a_cell() {
    let folder = Folder::new();
    // Ignores the system's signal, so that writes fail instead.
    let limited = r#"trap "" XFSZ; ulimit -f 128; exec "$0" "$@""#;
    let ended = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_rockmill-bench")])
        .args(folder.arguments("contention", &SMALL))
        .output()
        .expect("the command starts");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(ENVIRONMENT), "{err}");
    assert!(
        err.contains("File too large") && err.lines().count() == 1,
        "{err}"
    );
    assert!(!folder.out().exists());
    assert!(no_files(&folder.databases()));
}

fn no_files(dir: &Path) -> bool {
    let is_empty = |entry: fs::DirEntry| entry.path().is_dir() && no_files(&entry.path());
    fs::read_dir(dir)
        .expect("list")
        .all(|entry| is_empty(entry.expect("list")))
}
