//! Snapshots of a directory whose database another process changes while its files are opened and read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rockmill_core::KeyRange;
use rockmill_scan::{Database, Directory, ScanEngine, ScanSettings, Snapshot};
use rockmill_testkit::scans::scan;
use rockmill_tests::busy::Busy;
use rockmill_tests::harness::local_options;
use rust_rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter};
use tempfile::TempDir;

/// Values by key.
type Rows = BTreeMap<String, String>;

/// A database, and its rows after each change of it.
struct History {
    db: DB,
    dir: TempDir,
    states: Mutex<Vec<Rows>>,
}

impl History {
    fn new(options: &Options) -> Self {
        let dir = TempDir::new().expect("a folder");
        let db = DB::open(options, dir.path().join("db")).expect("open");
        let states = Mutex::new(vec![Rows::new()]);
        Self { db, dir, states }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Notes rows before they are written: a snapshot may have them as soon as they are.
    fn note(&self, key: &str, value: &str) {
        let mut states = self.states.lock().expect("no panic");
        let mut rows = states.last().cloned().unwrap_or_default();
        rows.insert(key.to_owned(), value.to_owned());
        states.push(rows);
    }

    fn put(&self, key: &str, value: &str) {
        self.note(key, value);
        self.db.put(key, value).expect("put");
    }

    fn flush(&self) {
        self.db.flush().expect("flush");
    }

    fn compact(&self) {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    }

    /// Ingests a file with a row, which is in no log.
    fn ingest(&self, key: &str, value: &str) {
        self.note(key, value);
        let path = self.dir.path().join("ingested.sst");
        let options = Options::default();
        let mut writer = SstFileWriter::create(&options);
        writer.open(&path).expect("a file");
        writer.put(key, value).expect("put");
        writer.finish().expect("a file");
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let ingested = self.db.ingest_external_file_opts(&options, vec![path]);
        ingested.expect("ingested");
    }

    fn states(&self) -> Vec<Rows> {
        self.states.lock().expect("no panic").clone()
    }
}

fn rows(engine: &Arc<ScanEngine>, snapshot: &Snapshot) -> Rows {
    let snapshot = snapshot.family("default").expect("a column family");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a text");
    let (rows, _) = scan(engine, &snapshot, &[KeyRange::default()], u64::MAX);
    rows.into_iter()
        .map(|(key, value)| (text(key), text(value)))
        .collect()
}

#[test]
fn a_snapshot_is_one_state_whatever_happens_between_two_steps() {
    for recycled in [0, 2] {
        let mut options = local_options();
        options.set_recycle_log_file_num(recycled);
        let mut newest = false;
        for steps in 0.. {
            let history = Arc::new(History::new(&options));
            for round in 0..3 {
                history.put("a", &format!("{round}"));
                history.put("b", &format!("{round}"));
                if round < 2 {
                    history.flush();
                }
            }
            let first = history.states().len() - 1;
            let writer = Arc::clone(&history);
            let busy = Busy::after(steps, move || {
                writer.put("c", "of a log");
                writer.ingest("a", "of a file");
                writer.put("b", "of a log");
                writer.flush();
                writer.put("a", "of the next log");
                writer.flush();
                writer.compact();
                writer.put("b", "of the last log");
            });
            let engine = ScanEngine::with_storage(ScanSettings::default(), busy.storage.clone());
            let engine = engine.expect("an engine");
            let directory = Directory::open_for(&engine, history.path()).expect("a database");
            let snapshot = directory.snapshot(&engine).expect("a snapshot");
            let found = rows(&engine, &snapshot);
            let states = history.states();
            let at = states.iter().rposition(|state| *state == found);
            assert!(
                at.is_some_and(|at| at >= first),
                "{recycled} recycled logs, {steps} steps: {found:?}"
            );
            newest |= at == Some(states.len() - 1);
            if !busy.has_written() {
                assert!(steps > 20 && newest);
                break;
            }
        }
    }
}

#[test]
fn an_attempt_at_a_snapshot_opens_only_files_that_are_new() {
    /// Tables before the snapshot.
    const TABLES: usize = 60;
    /// Steps between two flushes: fewer than to open all tables, and more than to read the MANIFEST and open the logs.
    const INTERVAL: usize = 40;
    /// Flushes in an attempt that opens all tables, and in one more.
    const MAX_FLUSHES: usize = 4;
    let history = Arc::new(History::new(&local_options()));
    for table in 0..TABLES {
        history.put(&format!("{table:03}"), "before");
        history.flush();
    }
    let first = history.states().len() - 1;
    let (flushes, writer) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&history));
    let count = Arc::clone(&flushes);
    let busy = Busy::every(INTERVAL, move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        writer.put(&format!("{number:03}"), "meanwhile");
        writer.flush();
    });
    let engine = ScanEngine::with_storage(ScanSettings::default(), busy.storage);
    let engine = engine.expect("an engine");
    let directory = Directory::open_for(&engine, history.path()).expect("a database");
    let snapshot = directory.snapshot(&engine).expect("a snapshot");
    let flushes = flushes.load(Ordering::Relaxed);
    assert!((1..=MAX_FLUSHES).contains(&flushes), "{flushes}");
    let found = rows(&engine, &snapshot);
    let at = history.states().iter().position(|state| *state == found);
    assert!(at.is_some_and(|at| at >= first), "{found:?}");
}
