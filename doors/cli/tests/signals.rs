//! Control-C and SIGTERM at drawn moments. `ROCKMILL_SEED=N` draws the same moments again, and `ROCKMILL_CASES=N` more.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use common::{DONE, Entries, INTERRUPTED, TERMINATED, expect, json, newest_options, text};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill_testkit::machine::{cases, seed};
use rust_rocksdb::{ColumnFamilyDescriptor, DB, IteratorMode, Options, SliceTransform};
use rustix::process::{Pid, Signal, kill_process};

/// Column families of the database.
const FAMILIES: [&str; 5] = ["default", "a", "b", "c", "d"];

/// Bytes of the values of a run, which compress badly.
const VALUE_BYTES: usize = 400;

/// Makes a closed database whose column families each have overlapping files in level 0, and entries in the log.
fn database(dir: &Path) {
    const RUNS: u64 = 4;
    const KEYS: u64 = 1500;
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_disable_auto_compactions(true);
    options.set_target_file_size_base(64 << 10);
    let families = FAMILIES.map(|name| {
        let mut options = options.clone();
        if name == "b" {
            // RocksDB compacts this one itself.
            options.set_prefix_extractor(SliceTransform::create_fixed_prefix(2));
            options.add_compact_on_deletion_collector_factory(100, 50, 0.4);
        }
        ColumnFamilyDescriptor::new(name, options)
    });
    let db = DB::open_cf_descriptors(&options, dir, families).expect("open");
    let mut rng = StdRng::seed_from_u64(7);
    for name in FAMILIES {
        let family = db.cf_handle(name).expect("a column family");
        for run in 0..RUNS {
            for key in (run..KEYS).step_by(run as usize + 1) {
                let value: Vec<u8> = (0..VALUE_BYTES).map(|_| rng.random()).collect();
                db.put_cf(family, format!("key{key:06}"), value)
                    .expect("put");
            }
            db.flush_cf(family).expect("flush");
        }
        db.put_cf(family, "logged", name).expect("put");
    }
}

/// Entries of each column family, as RocksDB reads them.
fn contents(dir: &Path) -> BTreeMap<&'static str, Entries> {
    let db = DB::open_cf_for_read_only(&Options::default(), dir, FAMILIES, false);
    let db = db.expect("open");
    let entries = |name| {
        let family = db.cf_handle(name).expect("a column family");
        let all = db.iterator_cf(family, IteratorMode::Start);
        (name, all.map(|entry| entry.expect("sound")).collect())
    };
    FAMILIES.into_iter().map(entries).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("room");
    for entry in fs::read_dir(from).expect("list") {
        let path = entry.expect("list").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("room");
    }
}

fn start(args: &[&str], temporary: &Path) -> Child {
    // A process started behind a shell's `&` or by nohup ignores signals, and so do its children.
    Command::new("env")
        .args(["--default-signal", env!("CARGO_BIN_EXE_rockmill")])
        .args(args)
        .env("TMPDIR", temporary)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

/// A process's exit status and output.
struct Ended {
    status: ExitStatus,
    err: String,
}

fn wait(child: Child) -> Ended {
    let ended = child.wait_with_output().expect("it ends");
    Ended {
        status: ended.status,
        err: String::from_utf8(ended.stderr).expect("text"),
    }
}

/// Waits until the database has `files` new files of Rockmill, or the process has ended.
fn wait_for_work(child: &mut Child, dir: &Path) {
    while child.try_wait().expect("a process").is_none() {
        if dir.join("rockmill.staging").exists() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn names(dir: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(dir).expect("list");
    entries.map(|entry| entry.expect("list").path()).collect()
}

/// Checks that no new file is left.
fn assert_clean(dir: &Path, options: &(PathBuf, String)) {
    assert_eq!(&newest_options(dir), options);
    let live: BTreeSet<PathBuf> = {
        let db = DB::open_cf_for_read_only(&Options::default(), dir, FAMILIES, false);
        let files = db.expect("open").live_files().expect("files");
        let of = |name: String| dir.join(name.trim_start_matches('/'));
        files.into_iter().map(|file| of(file.name)).collect()
    };
    for path in names(dir) {
        let name = path
            .file_name()
            .expect("a name")
            .to_str()
            .expect("text")
            .to_owned();
        let is_table = name.ends_with(".sst");
        assert!(!is_table || live.contains(&path), "{name} is left");
        assert!(
            !name.contains("rockmill") && !name.ends_with("dbtmp"),
            "{name} is left"
        );
    }
}

#[test]
fn a_signal_ends_a_compaction_and_leaves_a_whole_database_without_a_file_of_rockmill() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let origin = folder.path().join("origin");
    database(&origin);
    let expected = contents(&origin);
    let options = newest_options(&origin).1;
    let temporary = folder.path().join("temporary");
    fs::create_dir(&temporary).expect("room");
    let mut rng = StdRng::seed_from_u64(seed());
    let mut stopped = 0;
    for case in 0..cases(10) {
        let db = folder.path().join(format!("db{case}"));
        copy(&origin, &db);
        let options = (newest_options(&db).0, options.clone());
        // The limit makes a compaction last longer than the drawn moments.
        let args = [
            "compact",
            text(&db),
            "--io-mib-per-s",
            "4",
            "--threads",
            "2",
        ];
        let mut child = start(&args, &temporary);
        let (kind, code) = match rng.random_range(0..2) {
            0 => (Signal::INT, INTERRUPTED),
            _ => (Signal::TERM, TERMINATED),
        };
        if rng.random_range(0..4) > 0 {
            wait_for_work(&mut child, &db);
        }
        thread::sleep(Duration::from_millis(rng.random_range(0..1500)));
        signal(&child, kind);
        let ended = wait(child);
        let said = format!("case {case}, {kind:?}: {:?}, {}", ended.status, ended.err);
        match ended.status.code() {
            Some(DONE) => {}
            Some(ended_with) => {
                assert_eq!(ended_with, code, "{said}");
                assert_eq!(ended.err.lines().count(), 1, "{said}");
                assert!(ended.err.starts_with("rockmill: stopped: "), "{said}");
                assert!(ended.err.contains("the database is"), "{said}");
                stopped += usize::from(ended.err.contains(" of 5 column families are compacted"));
            }
            // The signal came before the command caught signals.
            None => assert_eq!(ended.status.signal(), Some(kind.as_raw()), "{said}"),
        }
        assert_clean(&db, &options);
        assert!(contents(&db) == expected, "{said}");
        assert_eq!(names(&temporary), BTreeSet::new(), "{said}");
        fs::remove_dir_all(db).expect("removed");
    }
    assert!(
        stopped > 0,
        "no signal came while column families were compacted"
    );
}

#[test]
fn a_second_signal_ends_a_compaction_at_once_and_the_next_one_cleans_up() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let db = folder.path().join("db");
    database(&db);
    let expected = contents(&db);
    let mut rng = StdRng::seed_from_u64(seed());
    for case in 0..4 {
        let args = [
            "compact",
            text(&db),
            "--io-mib-per-s",
            "4",
            "--threads",
            "2",
        ];
        let mut child = start(&args, folder.path());
        wait_for_work(&mut child, &db);
        thread::sleep(Duration::from_millis(rng.random_range(0..300)));
        // One signal of each kind: two of the same kind may become one.
        signal(&child, Signal::INT);
        signal(&child, Signal::TERM);
        let ended = wait(child);
        let said = format!("case {case}: {:?}, {}", ended.status, ended.err);
        let of_first = [INTERRUPTED, TERMINATED].map(Some);
        let of_second = [Signal::INT, Signal::TERM].map(|signal| Some(signal.as_raw()));
        let (code, by) = (ended.status.code(), ended.status.signal());
        assert!(
            of_first.contains(&code) || of_second.contains(&by),
            "{said}"
        );
        assert!(contents(&db) == expected, "{said}");
    }
    expect(DONE, &["compact", text(&db)]);
    assert!(contents(&db) == expected);
    assert!(!db.join("rockmill.staging").exists());
}

#[test]
fn a_demo_that_is_stopped_removes_its_databases() {
    let mut rng = StdRng::seed_from_u64(seed());
    let mut stopped = 0;
    for case in 0..4 {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let dir = text(folder.path());
        let mut child = start(
            &["demo", "--entries", "1000000", "--dir", dir],
            folder.path(),
        );
        // Signals are caught before there is a folder.
        while names(folder.path()).is_empty() && child.try_wait().expect("a process").is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        // The first signal comes at once, since a fast machine may end the demo before the others.
        thread::sleep(Duration::from_millis(case * rng.random_range(0..900)));
        let kind = [Signal::INT, Signal::TERM][rng.random_range(0..2)];
        signal(&child, kind);
        let ended = wait(child);
        let said = format!("case {case}, {kind:?}: {:?}, {}", ended.status, ended.err);
        if ended.status.code() != Some(DONE) {
            let code = Some(128 + kind.as_raw());
            assert_eq!(ended.status.code(), code, "{said}");
            let what = "rockmill: stopped: the databases of the demo are removed\n";
            assert_eq!(ended.err, what, "{said}");
            stopped += 1;
        }
        assert_eq!(names(folder.path()), BTreeSet::new(), "{said}");
    }
    assert!(stopped > 0, "every demo was faster than its signal");
}

#[test]
fn a_database_that_is_not_loaded_whole_is_removed() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let db = folder.path().join("db");
    let child = start(
        &["load", "ycsb", "--scale", "2", "--db", text(&db)],
        folder.path(),
    );
    while !db.exists() {
        thread::sleep(Duration::from_millis(1));
    }
    signal(&child, Signal::INT);
    let ended = wait(child);
    assert_eq!(ended.status.code(), Some(INTERRUPTED), "{}", ended.err);
    let what = format!("rockmill: stopped: {} is removed\n", db.display());
    assert_eq!(ended.err, what);
    assert!(!db.exists());
}

#[test]
fn a_job_that_is_stopped_leaves_no_output() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [db, jobs, temporary] = ["db", "jobs", "temporary"].map(|name| folder.path().join(name));
    database(&db);
    fs::create_dir(&temporary).expect("room");
    expect(DONE, &["job", "record", text(&jobs), "--db", text(&db)]);
    let [dir] = names(&jobs)
        .into_iter()
        .collect::<Vec<_>>()
        .try_into()
        .expect("one job");
    let recorded = names(&dir);
    let child = start(
        &["job", "run", text(&jobs), "--io-mib-per-s", "1"],
        &temporary,
    );
    while names(&temporary).is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    signal(&child, Signal::TERM);
    let ended = wait(child);
    assert_eq!(ended.status.code(), Some(TERMINATED), "{}", ended.err);
    assert_eq!(ended.err, "rockmill: stopped: no more output is kept\n");
    assert_eq!(names(&temporary), BTreeSet::new());
    assert_eq!(names(&dir), recorded);
    // The block of the guide, for a folder with one job.
    let report = json(DONE, &["job", "run", text(&jobs), "--profile"]);
    assert_eq!(report["identical"], serde_json::Value::Null);
    let (out, _) = expect(DONE, &["job", "run", text(&jobs), "--profile"]);
    assert!(out.contains("identical to the first time"), "{out}");
    let (out, _) = expect(DONE, &["job", "run", text(&jobs)]);
    assert!(out.starts_with("1 job: 1 as the first time"), "{out}");
}

#[test]
fn sql_that_is_ended_leaves_no_temporary_folder() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (db, temporary) = (dir.path().join("db"), dir.path().join("tmp"));
    fs::create_dir(&temporary).expect("room");
    {
        let mut options = Options::default();
        let options =
            options.get_options_from_string("create_if_missing=true;merge_operator=uint64add");
        let opened = DB::open(&options.expect("options"), &db).expect("open");
        // RocksDB's iterators join the operands, in a temporary folder.
        for n in 1..3u64 {
            opened.merge("sum", n.to_le_bytes()).expect("merge");
        }
    }
    let statements = "select max(value) from \"default\"; select count(*) from generate_series(1, 1000000000000) g";
    for ending in [Signal::TERM, Signal::HUP, Signal::INT] {
        let args = [
            "sql",
            text(&db),
            statements,
            "--merge-operator",
            "uint64add",
        ];
        let mut child = start(&args, &temporary);
        let folders = || fs::read_dir(&temporary).expect("list").count();
        while child.try_wait().expect("a process").is_none() && folders() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(folders(), 1, "the statement has ended too early");
        signal(&child, ending);
        let ended = wait(child);
        match ending {
            Signal::INT => assert_eq!(ended.status.code(), Some(INTERRUPTED), "{}", ended.err),
            _ => assert_eq!(
                ended.status.signal(),
                Some(ending.as_raw()),
                "{}",
                ended.err
            ),
        }
        assert_eq!(folders(), 0, "{ending:?}");
    }
}

#[cfg(feature = "sql")]
#[test]
fn signals_end_a_statement_that_does_not_check_for_them() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let db = folder.path().join("db");
    database(&db);
    // The first statement shows that Control-C is caught.
    let statements = "select 1; select count(*) from generate_series(1, 3000000) a, generate_series(1, 3000000) b \
        where a.value + b.value = -1";
    for signals in [1, 2] {
        let mut child = start(&["sql", text(&db), statements], folder.path());
        let mut out = child.stdout.take().expect("a pipe");
        let mut printed = Vec::new();
        while !printed.ends_with(b"1\n") {
            let mut byte = [0];
            out.read_exact(&mut byte).expect("the first row");
            printed.extend(byte);
        }
        // The join begins.
        thread::sleep(Duration::from_secs(2));
        for _ in 0..signals {
            signal(&child, Signal::INT);
            thread::sleep(Duration::from_millis(100));
        }
        let ended = wait(child);
        assert_eq!(ended.status.code(), Some(INTERRUPTED), "{}", ended.err);
        assert_eq!(ended.err, "rockmill: interrupted\n");
    }
}
