//! Flushes and compactions come between the steps of a snapshot.

use rockmill_testkit::scans as common;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use rockmill_core::KeyRange;
use rockmill_scan::{FamilySnapshot, ScanSettings, Since};
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, DB, DBWALIterator, FlushOptions, Options,
    SstFileWriter,
};

use super::*;
use rockmill_testkit::busy::mode::{MODES, Mode};

const NUMBER: &str = "rocksdb.current-super-version-number";
const VERSIONS: &str = "rocksdb.num-live-versions";

/// A step of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The snapshot was taken.
    Pinned,
    /// RocksDB is about to list files; super versions are held.
    Files,
    /// The MANIFEST was read.
    Versions,
    /// RocksDB is about to list logs; the files are known.
    Logs,
}

type Act = Box<dyn FnOnce(&DB) + Send>;

/// A database with hooks at the steps of snapshots.
struct Stepped {
    db: DB,
    /// Actions, in their order.
    acts: Lock<VecDeque<(Step, Act)>>,
    /// How often listing the logs fails.
    failures: AtomicUsize,
    /// Maps the number of a super version from RocksDB to the number that snapshots see.
    number: Lock<Box<dyn FnMut(u64) -> u64 + Send>>,
}

impl Stepped {
    fn new(db: DB) -> Arc<Self> {
        Arc::new(Self {
            db,
            acts: Lock::default(),
            failures: AtomicUsize::new(0),
            number: Lock::new(Box::new(|number| number)),
        })
    }

    /// Adds an action at a step, after those added before.
    fn at(&self, step: Step, act: impl FnOnce(&DB) + Send + 'static) {
        self.acts.lock().push_back((step, Box::new(act)));
    }

    fn reach(&self, step: Step) {
        let mut acts = self.acts.lock();
        let is_next = acts.front().is_some_and(|(selected, _)| *selected == step);
        let act = if is_next { acts.pop_front() } else { None };
        drop(acts);
        if let Some((_, act)) = act {
            act(&self.db);
        }
    }

    /// Keeps reporting the current number of super versions, as if RocksDB installed the next ones late.
    fn keep_number(&self, family: &str) {
        let number = self.db.property(family, NUMBER).expect("a number");
        let number = number.expect("a family");
        *self.number.lock() = Box::new(move |_| number);
    }
}

impl Handle for Stepped {
    fn path(&self) -> &Path {
        Handle::path(&self.db)
    }
    fn names(&self) -> BTreeSet<String> {
        self.db.names()
    }
    fn latest_sequence(&self) -> u64 {
        self.db.latest_sequence()
    }
    fn property(&self, family: &str, name: &str) -> Result<Option<u64>> {
        if name == VERSIONS {
            self.reach(Step::Versions);
        }
        let value = self.db.property(family, name)?;
        Ok(match name {
            NUMBER => value.map(&mut *self.number.lock()),
            _ => value,
        })
    }
    fn files(&self) -> Result<BTreeMap<String, BTreeSet<u64>>> {
        self.reach(Step::Files);
        self.db.files()
    }
    fn logs(&self) -> Result<BTreeMap<u64, u64>> {
        self.reach(Step::Logs);
        let fails = |failures: usize| failures.checked_sub(1);
        match (self.failures).fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails) {
            Ok(_) => Err(Error::new(ErrorKind::Storage, "a log has gone")),
            Err(_) => self.db.logs(),
        }
    }
    fn logged_after(&self, sequence: u64) -> Result<DBWALIterator> {
        self.db.logged_after(sequence)
    }
    fn flush(&self, family: &str) -> Result<()> {
        Handle::flush(&self.db, family)
    }
    fn pin(&self) -> BoxedPin<'_> {
        let pin = self.db.pin();
        self.reach(Step::Pinned);
        pin
    }
    fn catch_up(&self) -> Result<()> {
        self.db.catch_up()
    }
    fn family(&self, name: &str) -> NamedFamily {
        self.db.family(name)
    }
    fn get(&self, family: &NamedFamily, keys: &[&[u8]], value: ValueFn<'_>) {
        Handle::get(&self.db, family, keys, value);
    }
    fn write(
        &self,
        family: &NamedFamily,
        writes: &[Write<'_>],
        options: &WriteOptions,
    ) -> Result<Written> {
        Handle::write(&self.db, family, writes, options)
    }
}

/// Column families of a case, besides the default one.
const FAMILIES: [&str; 2] = ["a", "b"];

/// Writes in addition to puts, which the log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Besides {
    Nothing,
    Ingested,
    Unlogged,
}

/// A database, and snapshots of it.
struct Case {
    dir: tempfile::TempDir,
    db: Arc<Stepped>,
    live: LiveDatabase<Stepped>,
    engine: Arc<ScanEngine>,
    besides: Besides,
}

impl Case {
    fn new(mode: Mode, besides: Besides) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let options = || {
            let mut options = Options::default();
            options.set_max_write_buffer_number(8);
            options.set_disable_auto_compactions(true);
            options
        };
        let db = mode.create(&dir.path().join("db"), &FAMILIES, options);
        let db = Stepped::new(db);
        Self {
            live: LiveDatabase::new(Arc::clone(&db)).flush_every(None),
            engine: ScanEngine::new(ScanSettings::default()).expect("an engine"),
            besides,
            dir,
            db,
        }
    }

    /// Writes a key and its newest value, after a write that no log has.
    fn put(&self, family: &str, key: &str) {
        let db = &self.db.db;
        let handle = db.cf_handle(family).expect("a family");
        let value = db.latest_sequence_number().to_string();
        match self.besides {
            Besides::Nothing => {}
            Besides::Ingested => {
                let path = self.dir.path().join("ingested.sst");
                let options = Options::default();
                let mut writer = SstFileWriter::create(&options);
                writer.open(&path).expect("a file");
                writer.put("ingested", &value).expect("written");
                writer.finish().expect("a file");
                db.ingest_external_file_cf(handle, vec![path])
                    .expect("ingested");
            }
            Besides::Unlogged => {
                let mut unlogged = WriteOptions::default();
                unlogged.disable_wal(true);
                let done = db.put_cf_opt(handle, "unlogged", &value, &unlogged);
                done.expect("written");
            }
        }
        db.put_cf(handle, key, &value).expect("written");
        db.put_cf(handle, "newest", &value).expect("written");
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.live.snapshot(&self.engine).expect("a snapshot");
        Arc::into_inner(snapshot).expect("it is held once")
    }

    /// The rows of a column family in a snapshot, and the reason if iterators read it.
    fn rows(&self, snapshot: &Snapshot, family: &str) -> (common::Rows, Option<String>) {
        let family = snapshot.family(family).expect("its files are there");
        let all = [KeyRange::default()];
        let (rows, reports) = common::scan(&self.engine, &family, &all, u64::MAX);
        let mut reasons = reports.into_iter().map(|report| report.through_iterators);
        (rows, reasons.next().flatten())
    }

    fn expected(&self, family: &str) -> common::Rows {
        common::rows(&self.db.db, family, &KeyRange::default())
    }

    /// Compares a snapshot with the database.
    fn compare(&self) {
        let snapshot = self.snapshot();
        for family in FAMILIES {
            assert_eq!(
                self.rows(&snapshot, family).0,
                self.expected(family),
                "{family}"
            );
        }
    }

    /// Like [`Self::compare`], where the column family a is flushed just before logs are listed.
    fn compare_with_late_flush(&self) {
        self.db.at(Step::Logs, |db| flush(db, "a"));
        self.compare();
        // A later snapshot is right as well.
        self.compare();
    }
}

fn flush(db: &DB, family: &str) {
    Handle::flush(db, family).expect("flushed");
}

/// Merges all files of a column family.
fn compact(db: &DB, family: &str) {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    let handle = db.cf_handle(family).expect("a family");
    db.compact_range_cf_opt(handle, None::<&[u8]>, None::<&[u8]>, &options);
}

/// Merges all files of the column family a, and waits until the newest one is deleted: no super version holds it.
fn delete_newest_file(db: &DB) {
    const FLUSHES: usize = 100;
    let files = db.files().expect("files");
    let newest = files["a"].last().expect("a file");
    let path = Handle::path(db).join(format!("{newest:06}.sst"));
    compact(db, "a");
    for _ in 0..FLUSHES {
        if !path.exists() {
            return;
        }
        // RocksDB deletes files when another job ends.
        db.put(b"key", b"value").expect("written");
        flush(db, "default");
    }
    panic!("a super version holds {}", path.display());
}

/// The tables of the column family's entries must be replaced by one, and nothing was written since the last snapshot.
fn too_many_tables(case: &Case) {
    for number in 0..8 {
        case.put("a", &format!("key{number}"));
        case.compare();
    }
    case.compare_with_late_flush();
}

/// Like [`too_many_tables`], while another column family needs a later log.
fn too_many_tables_beside_a_later_log(case: &Case) {
    case.put("a", "first");
    case.put("b", "first");
    case.compare();
    flush(&case.db.db, "b");
    case.put("b", "second");
    // The first snapshot with the new log begins anew; seven more follow.
    for number in 0..7 {
        case.put("a", &format!("key{number}"));
        case.compare();
    }
    case.put("a", "last");
    case.compare_with_late_flush();
}

/// The log number changes between two snapshots, because a flush ends that had begun before the first snapshot. The next
/// memtable is flushed during the second snapshot.
fn another_log_number(case: &Case) {
    let db = &case.db.db;
    let begin_flush = |family: &str| {
        let family = db.cf_handle(family).expect("a family");
        let mut options = FlushOptions::default();
        options.set_wait(false);
        db.flush_cf_opt(family, &options).expect("begun");
    };
    case.put("a", "one");
    case.put("b", "one");
    case.compare();
    let before = db.live_files().expect("files").len();
    db.pause_background_work().expect("paused");
    begin_flush("a");
    case.put("a", "two");
    case.put("a", "three");
    // The log that begins now has entries of both.
    begin_flush("b");
    case.put("b", "two");
    case.put("a", "four");
    case.compare();
    db.continue_background_work().expect("it goes on");
    for family in FAMILIES {
        // It waits for the one that has begun.
        while db
            .property(family, "rocksdb.num-immutable-mem-table")
            .expect("a number")
            != Some(0)
        {
            std::thread::yield_now();
        }
    }
    assert!(db.live_files().expect("files").len() > before);
    case.put("a", "five");
    case.compare_with_late_flush();
}

/// Runs a case in each mode, with each kind of additional writes.
fn in_all_modes(run: fn(&Case)) {
    for mode in MODES {
        for besides in [Besides::Nothing, Besides::Ingested, Besides::Unlogged] {
            // RocksDB refuses writes without a log then.
            if (mode, besides) == (Mode::RecycledLogs, Besides::Unlogged) {
                continue;
            }
            println!("{mode:?}, besides {besides:?}");
            let case = Case::new(mode, besides);
            run(&case);
            // Snapshots do not list logs if iterators read everything.
            let all_came = case.db.acts.lock().is_empty();
            assert_eq!(all_came, mode != Mode::Unordered);
        }
    }
}

#[test]
fn a_log_that_goes_before_tables_are_made_anew_costs_no_entries() {
    in_all_modes(too_many_tables);
}

#[test]
fn a_log_that_goes_before_tables_are_made_anew_from_a_later_log_costs_no_entries() {
    in_all_modes(too_many_tables_beside_a_later_log);
}

#[test]
fn a_log_that_goes_after_the_log_number_has_changed_costs_no_entries() {
    in_all_modes(another_log_number);
}

#[test]
fn a_file_that_the_super_version_lacks_stays_there_for_the_view() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    case.put("a", "one");
    flush(&case.db.db, "a");
    case.put("a", "two");
    let expected = case.expected("a");
    // All entries are known, so the next snapshot need not be taken twice.
    case.compare();
    case.db.keep_number("a");
    case.db.at(Step::Files, |db| flush(db, "a"));
    let snapshot = case.snapshot();
    delete_newest_file(&case.db.db);
    assert_eq!(case.rows(&snapshot, "a"), (expected, None));
}

#[test]
fn a_file_that_goes_before_it_is_opened_is_read_in_another_version() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    case.put("a", "one");
    flush(&case.db.db, "a");
    case.put("a", "two");
    // All entries are known, so the next snapshot need not be taken twice.
    case.compare();
    case.db.keep_number("a");
    case.db.at(Step::Files, |db| flush(db, "a"));
    case.db.at(Step::Versions, delete_newest_file);
    let snapshot = case.snapshot();
    assert!(case.db.acts.lock().is_empty());
    assert_eq!(case.rows(&snapshot, "a"), (case.expected("a"), None));
}

#[test]
fn a_column_family_that_iterators_read_does_not_need_its_files() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    case.put("a", "one");
    flush(&case.db.db, "a");
    case.put("a", "two");
    let expected = case.expected("a");
    let mut told = 0;
    *case.db.number.lock() = Box::new(move |_| {
        told += 1;
        told
    });
    for _ in 1..PIN_ATTEMPTS {
        case.db.at(Step::Files, |_| ());
    }
    // Runs after the last super version is held.
    case.db.at(Step::Files, |db| flush(db, "a"));
    let snapshot = case.snapshot();
    delete_newest_file(&case.db.db);
    let (rows, reason) = case.rows(&snapshot, "a");
    assert_eq!(rows, expected);
    assert_eq!(reason.as_deref(), Some("its files change constantly"));
}

#[test]
fn an_empty_range_deletion_does_not_stand_for_an_unlogged_entry() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    let family = case.db.db.cf_handle("a").expect("a family");
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let done = (case.db.db).put_cf_opt(family, "unlogged", b"v", &unlogged);
    done.expect("written");
    // The log has it, and no memtable.
    let done = case.db.db.delete_range_cf(family, "x", "x");
    done.expect("written");
    case.compare();
}

#[test]
fn files_are_held_that_were_listed_under_a_smaller_number_or_by_the_only_version() {
    let set = |files: &[u64]| files.iter().copied().collect::<BTreeSet<_>>();
    let mut listed = Listed::default();
    assert_eq!(listed.add(1, set(&[1, 2]), false), set(&[1, 2]));
    assert_eq!(listed.add(1, set(&[1, 2, 3]), false), set(&[1, 2, 3]));
    assert_eq!(listed.add(2, set(&[1, 3, 4]), false), set(&[4]));
    assert_eq!(listed.add(2, set(&[3, 4, 5]), true), set(&[]));
    assert_eq!(listed.add(2, set(&[4, 5, 6]), false), set(&[6]));
    assert_eq!(listed.add(3, set(&[4, 6]), false), set(&[]));
}

/// A compaction that has begun before the snapshot may have merged such a file with older ones.
#[test]
fn a_snapshot_that_is_older_than_a_file_is_taken_anew() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    case.put("a", "early");
    case.db.at(Step::Pinned, |db| {
        let family = db.cf_handle("a").expect("a family");
        db.put_cf(family, "late", "1").expect("written");
        flush(db, "a");
    });
    assert_eq!(case.snapshot().sequence(), case.db.latest_sequence());
    assert!(case.db.acts.lock().is_empty());
}

#[test]
fn a_file_with_entries_behind_the_snapshot_is_new_to_the_next_view() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    let db = &case.db;
    let put = |db: &DB, key: &str, value: &str| {
        let family = db.cf_handle("a").expect("a family");
        db.put_cf(family, key, value).expect("written");
    };
    put(&db.db, "early", "1");
    flush(&db.db, "a");
    db.at(Step::Files, move |db| {
        put(db, "late", "1");
        let family = db.cf_handle("a").expect("a family");
        db.delete_range_cf(family, "x", "y").expect("deleted");
        flush(db, "a");
    });
    let take = || -> Arc<FamilySnapshot> { case.snapshot().family("a").expect("a family") };
    let base = take();
    let [_, file] = base.files() else {
        panic!("{:?}", base.files());
    };
    assert_eq!(base.sequence() + 2, db.latest_sequence());
    let now = take();
    let Since::Written(written) = now.since(&base, &case.engine).expect("edits") else {
        panic!("nothing was written");
    };
    assert_eq!(written.tables.files(), std::slice::from_ref(file));
    let deleted = KeyRange {
        begin: Some(b"x".to_vec()),
        end: Some(b"y".to_vec()),
    };
    assert_eq!(written.deleted, [deleted]);
    let Since::Nothing = take().since(&now, &case.engine).expect("edits") else {
        panic!("something was written");
    };
    compact(&db.db, "a");
    put(&db.db, "early", "2");
    flush(&db.db, "a");
    compact(&db.db, "a");
    let Since::Anything(reason) = take().since(&base, &case.engine).expect("edits") else {
        panic!("the file has gone");
    };
    assert!(reason.contains("was compacted before it was read"));
}

/// Such entries are in an earlier log, which another column family needs.
#[test]
fn flushed_entries_behind_the_snapshot_do_not_stand_for_unlogged_ones() {
    type Late = fn(&DB);
    fn put(db: &DB, key: &str, has_log: bool) {
        let family = db.cf_handle("a").expect("a family");
        let mut options = WriteOptions::default();
        options.disable_wal(!has_log);
        db.put_cf_opt(family, key, "1", &options).expect("written");
    }
    let late: [(Step, Late); 5] = [
        (Step::Files, |db| {
            put(db, "late", true);
            flush(db, "a");
        }),
        (Step::Files, |db| {
            put(db, "late", true);
            flush(db, "a");
            put(db, "first of the next log", true);
        }),
        (Step::Files, |db| put(db, "unlogged", false)),
        (Step::Logs, |db| put(db, "unlogged", false)),
        (Step::Logs, |db| {
            put(db, "unlogged", false);
            put(db, "first of the log", true);
        }),
    ];
    for (step, write) in late {
        let case = Case::new(Mode::Usual, Besides::Nothing);
        case.put("b", "kept");
        let db = &case.db;
        put(&db.db, "early", true);
        flush(&db.db, "a");
        db.at(step, write);
        case.snapshot();
        assert!(db.acts.lock().is_empty(), "{step:?}");
        put(&db.db, "behind", true);
        case.compare();
        put(&db.db, "unlogged, too", false);
        put(&db.db, "logged", true);
        case.compare();
    }
}

#[test]
fn entries_that_were_merged_with_later_ones_are_not_new_to_the_next_view() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    let put = |db: &DB, keys: &[&str], value: &str| {
        let family = db.cf_handle("a").expect("a family");
        for key in keys {
            db.put_cf(family, key, value).expect("written");
        }
        flush(db, "a");
    };
    let compact = |db: &DB, begin: &str, end: &str| {
        let family = db.cf_handle("a").expect("a family");
        db.compact_range_cf(family, Some(begin), Some(end));
    };
    let db = &case.db;
    // Two files of the last level, which this compaction does not merge.
    put(&db.db, &["a", "b"], "old");
    compact(&db.db, "a", "b");
    put(&db.db, &["k", "p"], "old");
    compact(&db.db, "k", "p");
    put(&db.db, &["a", "k"], "new");
    db.at(Step::Files, move |db| {
        put(db, &["m", "p"], "late");
        // It also has the old value of k, and the file with the new one stays in level 0.
        compact(db, "m", "p");
    });
    let take = || -> Arc<FamilySnapshot> { case.snapshot().family("a").expect("a family") };
    let base = take();
    let levels: Vec<_> = base.files().iter().map(|file| file.level).collect();
    assert_eq!(levels, [0, 6, 6]);
    let Since::Anything(reason) = take().since(&base, &case.engine).expect("edits") else {
        panic!("the old value of k would be new");
    };
    assert!(reason.contains("merged"), "{reason}");
}

#[test]
fn a_view_waits_for_logs_that_can_be_listed() {
    let case = Case::new(Mode::Usual, Besides::Nothing);
    case.put("a", "one");
    case.db.failures.store(2, Ordering::Relaxed);
    case.compare();
    assert_eq!(case.db.failures.load(Ordering::Relaxed), 0);
    // Finally, it is an error.
    flush(&case.db.db, "a");
    case.put("a", "two");
    case.db.failures.store(usize::MAX, Ordering::Relaxed);
    let error = case.live.snapshot(&case.engine).expect_err("no logs");
    assert_eq!(error.what, "a log has gone");
}
