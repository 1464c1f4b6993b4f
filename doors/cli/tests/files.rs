//! `verify` and `inspect` on files that RocksDB wrote, called as a user calls them.

mod common;

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BAD_DATA, DONE, ENVIRONMENT, INCOMPLETE, at_terminal, expect, made, sst_files, text};
use rust_rocksdb::{BlockBasedOptions, DB, DBCompressionType, Options};
use serde_json::Value;
use tempfile::TempDir;

/// Columns of a terminal.
const COLUMNS: usize = 80;
const TIMESTAMP_BYTES: usize = 8;
const FOOTER_SIZE: usize = 53;

/// Makes a closed database of two files with the given options and entries.
fn database(
    change: impl FnOnce(&mut Options),
    write: impl Fn(&DB, &str, &str),
    keys: u32,
) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_block_based_table_factory(&table);
    change(&mut options);
    let db = DB::open(&options, &path).expect("open");
    for run in 0..2 {
        for i in 0..keys {
            let value = format!("value {run} {i} ").repeat(9);
            write(&db, &format!("key{i:06}"), &value);
        }
        db.flush().expect("flush");
    }
    (dir, path)
}

fn put(db: &DB, key: &str, value: &str) {
    db.put(key, value).expect("put");
}

fn json(code: i32, args: &[&str]) -> Value {
    let (out, _) = expect(code, &[args, &["--json"]].concat());
    serde_json::from_str(&out).expect("JSON")
}

fn verified(code: i32, path: &Path) -> Vec<Value> {
    let rows = json(code, &["verify", text(path)]);
    rows.as_array().expect("rows").clone()
}

/// Flips one bit of a file.
fn damage(file: &Path, at: usize) {
    let mut bytes = fs::read(file).expect("read");
    bytes[at] ^= 1;
    fs::write(file, bytes).expect("write");
}

/// Returns a row's unchecked parts.
fn not_checked(row: &Value) -> String {
    row["not_checked"].to_string()
}

#[test]
fn all_but_the_order_is_verified_under_a_comparator_of_the_application() {
    const KEYS: u32 = 3000;
    let (_dir, db) = database(
        |options| options.set_comparator("reverse", Box::new(|a: &[u8], b: &[u8]| b.cmp(a))),
        put,
        KEYS,
    );
    for row in verified(INCOMPLETE, &db) {
        assert_eq!(row["entries"], KEYS, "{row}");
        assert!(
            row["error"].is_null() && row["blocks"].as_u64() > Some(9),
            "{row}"
        );
        assert!(not_checked(&row).contains("order of keys"), "{row}");
        assert!(not_checked(&row).contains("comparator reverse"), "{row}");
    }
    let (table, err) = expect(INCOMPLETE, &["verify", text(&db)]);
    assert!(
        table.contains("not checked in 2 files: the order of keys"),
        "{table}"
    );
    assert!(err.contains("2 of 2 files"), "{err}");
    let file = sst_files(&db).swap_remove(0);
    let shown = json(DONE, &["inspect", text(&file), "--entries"]);
    assert_eq!(shown["properties"]["comparator_name"], "reverse");
    assert_eq!(
        shown["entries"].as_array().map(Vec::len),
        Some(KEYS as usize)
    );
    let first = format!("key{:06}", KEYS - 1);
    assert_eq!(shown["blocks"][0]["first_key"], first.as_str());

    damage(
        &file,
        shown["blocks"][3]["offset"].as_u64().expect("an offset") as usize,
    );
    let rows = verified(BAD_DATA, &db);
    assert!(
        rows[0]["error"].is_string() && rows[1]["error"].is_null(),
        "{rows:?}"
    );
}

/// Splits a key into the user key and the timestamp at its end.
fn split(key: &[u8]) -> (&[u8], &[u8]) {
    key.split_at(key.len() - TIMESTAMP_BYTES)
}

/// Ascending keys, newest timestamp first.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let ((a, a_time), (b, b_time)) = (split(a), split(b));
    a.cmp(b).then_with(|| b_time.cmp(a_time))
}

fn compare_keys(a: &[u8], a_has_time: bool, b: &[u8], b_has_time: bool) -> Ordering {
    let key = |key, has_time| if has_time { split(key).0 } else { key };
    key(a, a_has_time).cmp(key(b, b_has_time))
}

#[test]
fn keys_with_timestamps_are_no_damage() {
    let with_times = |options: &mut Options| {
        options.set_comparator_with_ts(
            "leveldb.BytewiseComparator.u64ts",
            TIMESTAMP_BYTES,
            Box::new(compare),
            Box::new(|a: &[u8], b: &[u8]| a.cmp(b)),
            Box::new(compare_keys),
        );
    };
    // Filters contain keys without timestamps, and the newest version comes first.
    let write = |db: &DB, key: &str, value: &str| {
        for time in 1..4_u64 {
            db.put_with_ts(key, time.to_be_bytes(), value).expect("put");
        }
    };
    const KEYS: u32 = 1000;
    let (_dir, db) = database(with_times, write, KEYS);
    for row in verified(INCOMPLETE, &db) {
        assert!(row["error"].is_null(), "{row}");
        assert_eq!(row["entries"], 3 * KEYS);
    }
}

#[test]
fn blocks_of_bzip2_are_verified_by_their_checksums() {
    let bzip2 = |options: &mut Options| options.set_compression_type(DBCompressionType::Bz2);
    // The index of a few blocks is too small to be compressed.
    let (_dir, db) = database(bzip2, put, 300);
    for row in verified(INCOMPLETE, &db) {
        assert!(
            row["error"].is_null() && row["blocks"].as_u64() > Some(2),
            "{row}"
        );
        assert!(
            not_checked(&row).contains("entries of some data blocks"),
            "{row}"
        );
        assert!(not_checked(&row).contains("BZip2"), "{row}");
    }
    let file = sst_files(&db).swap_remove(0);
    let shown = json(INCOMPLETE, &["inspect", text(&file)]);
    assert_eq!(shown["blocks"][1]["compression"], "BZip2");
    assert!(shown["not_shown"].to_string().contains("BZip2"), "{shown}");
    damage(
        &file,
        shown["blocks"][1]["offset"].as_u64().expect("an offset") as usize,
    );
    let rows = verified(BAD_DATA, &db);
    let error = rows[0]["error"].as_str().expect("an error");
    assert!(error.contains("checksum mismatch"), "{error}");

    let (_dir, db) = database(bzip2, put, 30_000);
    for row in verified(INCOMPLETE, &db) {
        assert!(row["error"].is_null() && row["blocks"].is_null(), "{row}");
        assert!(
            not_checked(&row).contains("the data blocks, because compression BZip2"),
            "{row}"
        );
    }
    let file = sst_files(&db).swap_remove(0);
    let shown = json(INCOMPLETE, &["inspect", text(&file)]);
    assert_eq!(shown["layout"][0]["name"], "not known");
    assert_eq!(shown["properties"]["num_entries"], 30_000);
}

#[test]
fn files_with_a_dictionary_are_no_damage() {
    const DICTIONARY_BYTES: i32 = 4096;
    let zstd = |options: &mut Options| {
        options.set_compression_type(DBCompressionType::Zstd);
        options.set_compression_options(-14, 32_767, 0, DICTIONARY_BYTES);
    };
    let (_dir, db) = database(zstd, put, 3000);
    for row in verified(DONE, &db) {
        assert!(row["blocks"].as_u64() > Some(2), "{row}");
    }
    let file = sst_files(&db).swap_remove(0);
    let shown = json(DONE, &["inspect", text(&file)]);
    assert!(
        shown.to_string().contains("compression dictionary"),
        "{shown}"
    );
    // Equal values train no dictionary.
    let zstd = |options: &mut Options| {
        zstd(options);
        options.set_zstd_max_train_bytes(5 * DICTIONARY_BYTES);
    };
    let equal = |db: &DB, key: &str, _: &str| db.put(key, [b'x'; 100]).expect("put");
    let (_dir, db) = database(zstd, equal, 1000);
    for row in verified(DONE, &db) {
        assert!(row["blocks"].as_u64() > Some(2), "{row}");
    }
    let file = sst_files(&db).swap_remove(0);
    let shown = json(DONE, &["inspect", text(&file)]).to_string();
    assert!(!shown.contains("compression dictionary"), "{shown}");
}

#[test]
fn errors_name_a_file_by_the_path_that_was_given() {
    let (dir, db) = made();
    let file = sst_files(&db).swap_remove(0);
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let run = |code, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockmill"));
        let done = command.args(args).current_dir(dir.path()).output();
        let done = done.expect("the command starts");
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(done.status.code(), Some(code), "{args:?}: {said}");
        said
    };
    let path = format!("db/{name}");
    let assert_named = |code, args: &[&str]| {
        let said = run(code, args);
        assert!(said.contains(&format!("{path}: ")), "{args:?}: {said}");
    };
    let readers = [
        &["verify", "db"][..],
        &["verify", &path],
        &["inspect", &path],
    ];
    let sound = fs::read(&file).expect("read");
    damage(&file, 9);
    readers.iter().for_each(|args| assert_named(BAD_DATA, args));
    // Damages the checksum type, without which no block can be read.
    fs::write(&file, &sound).expect("write");
    damage(&file, sound.len() - FOOTER_SIZE);
    readers.iter().for_each(|args| assert_named(BAD_DATA, args));
    fs::remove_file(&file).expect("remove");
    let record = ["job", "record", "jobs", "--db", "db"];
    assert_named(ENVIRONMENT, &record);
    fs::create_dir(dir.path().join("job")).expect("make a folder");
    fs::write(dir.path().join("job/job.json"), "{").expect("write");
    let said = run(BAD_DATA, &["job", "run", "job/job.json"]);
    assert!(said.contains("job/job.json: "), "{said}");
    fs::write(db.join("CURRENT"), "MANIFEST-999999\n").expect("write");
    let said = run(BAD_DATA, &["verify", "db"]);
    assert!(said.contains(" db: "), "{said}");
}

#[test]
fn tables_fit_a_terminal() {
    let (dir, db) = made();
    let file = sst_files(&db).swap_remove(0);
    let jobs = dir.path().join("jobs");
    let (job, _) = expect(DONE, &["job", "record", text(&jobs), "--db", text(&db)]);
    for args in [
        &["demo", "--entries", "2000"][..],
        &["devices"],
        &["inspect", text(&file), "--entries"],
        &["job", "run", job.trim(), "--profile"],
        &["verify", text(&db)],
    ] {
        let (out, _) = expect(DONE, args);
        // Lines with a path may be longer.
        let lines = out.lines().filter(|line| !line.contains(text(dir.path())));
        let widest = lines.map(|line| line.chars().count()).max();
        assert!(
            widest > Some(20) && widest <= Some(COLUMNS),
            "{args:?}\n{out}"
        );
    }
}

#[test]
fn a_narrow_terminal_gets_whole_words() {
    const NARROW: usize = 60;
    let (dir, db) = made();
    let file = sst_files(&db).swap_remove(0);
    let jobs = dir.path().join("jobs");
    let (job, _) = expect(DONE, &["job", "record", text(&jobs), "--db", text(&db)]);
    for (args, words) in [
        (&["devices"][..], &["device", "threads", "usable"][..]),
        (
            &["inspect", text(&file), "--entries"],
            &["stored B", "user key"],
        ),
        (
            &["job", "run", job.trim(), "--profile"],
            &["subcompaction", "CPU-s"],
        ),
        (&["verify", text(&db)], &["family", "result"]),
        (&["compact", text(&db), "--dry-run"], &["subcompactions"]),
    ] {
        let out = at_terminal(NARROW, args);
        for word in words {
            assert!(out.contains(word), "{args:?}: {word}\n{out}");
        }
        let lines = out.lines().filter(|line| !line.contains(text(dir.path())));
        let widest = lines.map(|line| line.chars().count()).max();
        assert!(
            widest > Some(20) && widest <= Some(NARROW),
            "{args:?}\n{out}"
        );
    }
}

#[test]
fn times_are_shown_as_dates() {
    let (_dir, db) = made();
    let file = sst_files(&db).swap_remove(0);
    let (shown, _) = expect(DONE, &["inspect", text(&file)]);
    for property in ["creation_time", "file_creation_time", "oldest_key_time"] {
        let named = |line: &&str| line.split_whitespace().next() == Some(property);
        let line = shown.lines().find(named).expect(property);
        assert!(line.contains(" (20") && line.contains("Z)"), "{line}");
    }
}

#[test]
fn a_missing_file_of_a_database_is_the_same_kind_of_failure_in_every_command() {
    let (dir, db) = made();
    let jobs = dir.path().join("jobs");
    fs::remove_file(sst_files(&db).swap_remove(1)).expect("remove");
    let db = text(&db);
    for args in [
        &["verify", db][..],
        &["doctor", db],
        &["compact", db],
        &["compact", db, "--dry-run"],
        &["view", db],
        &["sql", db, "select count(*) from \"default\""],
        &["job", "record", text(&jobs), "--db", db],
    ] {
        let (out, err) = expect(ENVIRONMENT, args);
        assert!((out + &err).contains(".sst"), "{args:?}: {err}");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_not_called_bad() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;
    let (dir, db) = made();
    for file in sst_files(&db) {
        fs::set_permissions(file, fs::Permissions::from_mode(0o000)).expect("allowed");
    }
    let built = env!("CARGO_BIN_EXE_rockmill");
    for folder in [dir.path(), &db] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("allowed");
    }
    // Another user may not enter the folder of the command, but may run the open file.
    let open = fs::File::open(built).expect("the command");
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).expect("kept open");
    let run = |args: &[&str]| {
        let mut command = Command::new(built);
        // The superuser can read these files anyway.
        if rockmill_testkit::machine::is_superuser() {
            command = Command::new(format!("/proc/self/fd/{}", open.as_raw_fd()));
            rockmill_testkit::machine::as_nobody(&mut command);
        }
        let done = command.args(args).output().expect("the command starts");
        let said = [done.stdout, done.stderr];
        let [out, err] = said.map(|said| String::from_utf8_lossy(&said).into_owned());
        assert_eq!(done.status.code(), Some(ENVIRONMENT), "{out}{err}");
        (out, err)
    };
    let (out, err) = run(&["verify", text(&db)]);
    assert!(
        out.contains(": 4 not read\n") && !out.contains("bad"),
        "{out}"
    );
    assert_eq!(err, "rockmill: 4 not read of 4 files\n");
    let (options, _) = common::newest_options(&db);
    for file in [options, db.join("CURRENT")] {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("allowed");
        for args in [
            &["doctor"][..],
            &["view"],
            &["compact"],
            &["compact", "--dry-run"],
        ] {
            let (_, err) = run(&[args, &[text(&db)]].concat());
            assert!(err.contains(text(&file)), "{args:?}: {err}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("allowed");
    }
}
