//! A refreshed view equals RocksDB's current state, and held versions equal its state at their time.

mod helpers;

use rockmill_testkit::scans as common;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helpers::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rockmill_core::{ErrorKind, KeyRange};
use rockmill_cuda::LookupResult;
use rockmill_live::LiveDatabase;
use rockmill_scan::Database;
use rockmill_testkit::scans::*;
use rockmill_view::{CallerStream, Hold, Loaded, View};
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, CompactionDecision, DB, IngestExternalFileOptions,
    Options, SstFileWriter, WaitForCompactOptions, WriteBatch, WriteOptions,
};

/// A hold of a kernel that was never launched.
fn hold(view: &View) -> Hold {
    // SAFETY: the default stream is one of every device.
    view.hold(unsafe { CallerStream::new(ptr::null_mut()) })
        .expect("held")
}

fn wait_for_compactions(db: &DB) {
    let options = WaitForCompactOptions::default();
    db.wait_for_compact(&options).expect("compacted");
}

/// Compares what a table finds with all rows, except for keys for which RocksDB must be asked.
fn compare_table(hold: &Hold, rows: &Rows) -> Result<(), TestCaseError> {
    let keys = keys(rows);
    let refs: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let answers = hold.table().get(&refs).expect("answers");
    for (key, answer) in keys.iter().zip(answers) {
        let row = rows.iter().find(|(other, _)| other == key);
        let meant = row.map_or(LookupResult::NotFound, |(_, value)| {
            LookupResult::Found(value.clone())
        });
        prop_assert!(
            answer == LookupResult::NeedsHost || answer == meant,
            "{:?}",
            key
        );
    }
    Ok(())
}

/// Number of refreshes by kind.
#[derive(Debug, Default)]
struct Counts {
    nothing: u32,
    added: u32,
    ranges: u32,
}

impl Counts {
    fn add(&mut self, how: &Loaded) {
        *match how {
            Loaded::Nothing => &mut self.nothing,
            Loaded::Added { .. } => &mut self.added,
            Loaded::Ranges { .. } => &mut self.ranges,
        } += 1;
    }
}

/// Runs random cases, and returns the number of refreshes by kind.
fn check_cases<S: Strategy>(
    cases: u32,
    strategy: S,
    check: impl Fn(S::Value, &mut Counts) -> Result<(), TestCaseError>,
) -> Counts {
    let counts = std::cell::RefCell::new(Counts::default());
    let mut config = Config {
        failure_persistence: None,
        ..config(cases)
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(RandomState::new().build_hasher().finish());
    }
    if let RngSeed::Fixed(seed) = config.rng_seed {
        println!("PROPTEST_RNG_SEED={seed}");
    }
    let checked =
        TestRunner::new(config).run(&strategy, |case| check(case, &mut counts.borrow_mut()));
    // The message has the smallest failing case.
    checked.unwrap_or_else(|error| panic!("{error}"));
    counts.into_inner()
}

#[test]
fn a_refreshed_view_of_an_open_database_has_what_iterators_find_and_holds_what_they_found() {
    let strategy = (
        history(Kinds {
            unlogged: true,
            merges: true,
        }),
        2usize..8,
        any::<bool>(),
        any::<u8>(),
    );
    let counts = check_cases(100, strategy, |(steps, parts, may_flush, held), counts| {
        let dir = tempfile::tempdir().expect("a folder");
        let db = Arc::new(open(&dir.path().join("db")));
        let live = LiveDatabase::new(Arc::clone(&db));
        let live = live.flush_every(may_flush.then_some(Duration::ZERO));
        let database: Arc<dyn Database> = Arc::new(live);
        let views =
            FAMILIES.map(|family| (family, builder(&database, family).open().expect("a view")));
        let mut holds = Vec::new();
        let steps: Vec<_> = steps.iter().enumerate().collect();
        for (part, steps) in steps.chunks(steps.len().div_ceil(parts)).enumerate() {
            for (number, step) in steps {
                run_one(&db, dir.path(), *number, step);
            }
            for (family, view) in &views {
                let refreshed = view.refresh().expect("refreshed");
                counts.add(&refreshed.how);
                prop_assert_eq!(refreshed.sequence, db.latest_sequence_number());
                let rows = rows(&db, family, &KeyRange::default());
                compare(view, &rows)?;
                if held >> part & 1 == 1 {
                    holds.push((hold(view), rows));
                }
            }
        }
        for (hold, rows) in &holds {
            compare_values(rows, |keys| hold.get(keys).expect("values"))?;
        }
        Ok(())
    });
    println!("{counts:?}");
    assert!(
        counts.added > 50 && counts.ranges > 50 && counts.nothing > 0,
        "{counts:?}"
    );
}

#[test]
fn a_refreshed_view_of_a_directory_has_what_iterators_find() {
    let strategy = (
        history(Kinds {
            unlogged: false,
            merges: true,
        }),
        2usize..8,
        any::<u8>(),
    );
    let counts = check_cases(40, strategy, |(steps, parts, held), counts| {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let db = open(&path);
        let database = directory(&path);
        let views =
            FAMILIES.map(|family| (family, builder(&database, family).open().expect("a view")));
        let mut holds = Vec::new();
        let steps: Vec<_> = steps.iter().enumerate().collect();
        for (part, steps) in steps.chunks(steps.len().div_ceil(parts)).enumerate() {
            for (number, step) in steps {
                run_one(&db, dir.path(), *number, step);
            }
            wait_for_compactions(&db);
            for (family, view) in &views {
                let refreshed = view.refresh().expect("refreshed");
                counts.add(&refreshed.how);
                let rows = rows(&db, family, &KeyRange::default());
                compare(view, &rows)?;
                if held >> part & 1 == 1 {
                    holds.push((hold(view), rows));
                    // Few of the refreshes above find everything unchanged.
                    counts.add(&view.refresh().expect("refreshed").how);
                }
            }
        }
        // Iterators of a directory read its current state.
        for (hold, rows) in &holds {
            compare_table(hold, rows)?;
        }
        Ok(())
    });
    println!("{counts:?}");
    assert!(
        counts.added > 20 && counts.ranges > 20 && counts.nothing > 0,
        "{counts:?}"
    );
}

#[test]
fn a_view_that_is_refreshed_while_others_write_has_whole_batches() {
    const KEYS: u32 = 50;
    const REFRESHES: usize = 60;
    let dir = tempfile::tempdir().expect("a folder");
    let db = Arc::new(open(&dir.path().join("db")));
    let keys: Vec<_> = (0..KEYS).map(u32::to_be_bytes).collect();
    let refs: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let write = |number: u64| {
        let mut batch = WriteBatch::default();
        refs.iter()
            .for_each(|key| batch.put(key, number.to_be_bytes()));
        // In no other batch, so that no later one repairs a missed one.
        batch.put([&number.to_be_bytes()[..], b"once"].concat(), b"");
        db.write(&batch).expect("written");
    };
    write(0);
    let database: Arc<dyn Database> = Arc::new(LiveDatabase::new(Arc::clone(&db)));
    let view = builder(&database, "default").open().expect("a view");
    let is_done = AtomicBool::new(false);
    let number_of = |view: &View| {
        let found = view.get(&refs).expect("values");
        let numbers = (found.iter().flatten())
            .map(|value| u64::from_be_bytes(value[..].try_into().expect("eight bytes")));
        let numbers: Vec<_> = numbers.collect();
        assert_eq!(numbers, [numbers[0]; KEYS as usize]);
        numbers[0]
    };
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                write(number);
                if number % 20 == 0 {
                    db.flush().expect("flushed");
                }
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut last = 0;
        for round in 0..20 * REFRESHES {
            // On a busy machine, files are compacted before they are read.
            if round >= REFRESHES && counts.added > 0 {
                break;
            }
            counts.add(&view.refresh().expect("refreshed").how);
            let number = number_of(&view);
            assert!(number >= last);
            last = number;
            let once: Vec<_> = (0..=number + 1)
                .map(|number| [&number.to_be_bytes()[..], b"once"].concat())
                .collect();
            let once: Vec<_> = once.iter().map(Vec::as_slice).collect();
            let found = view.get(&once).expect("values");
            let missing = found.iter().position(Option::is_none);
            assert_eq!(missing, Some(number as usize + 1));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(counts.added > 0, "{counts:?}");
}

/// A database in a directory with 5000 rows in one file, and a view of it.
struct Case {
    dir: tempfile::TempDir,
    db: DB,
    view: View,
}

impl Case {
    fn new() -> Self {
        Self::with(|db| db.flush().expect("flushed"))
    }

    fn with(change: impl FnOnce(&DB)) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let db = open(&path);
        put_rows(&db);
        change(&db);
        let view = builder(&directory(&path), "default").open();
        Self {
            view: view.expect("a view"),
            dir,
            db,
        }
    }

    fn refresh(&self) -> Loaded {
        self.view.refresh().expect("refreshed").how
    }

    fn compare(&self) {
        let rows = rows(&self.db, "default", &KeyRange::default());
        compare(&self.view, &rows).expect("equal");
    }

    /// The reason why ranges were loaded, and the number of their keys.
    fn reason(&self) -> (String, u64) {
        let how = self.refresh();
        self.compare();
        match how {
            Loaded::Ranges { reason, keys, .. } => (reason, keys),
            how => panic!("{how:?}"),
        }
    }

    fn put(&self, numbers: std::ops::Range<u32>, value: &[u8]) {
        for number in numbers {
            self.db.put(numbered(number), value).expect("written");
        }
    }

    fn delete_range(&self, numbers: std::ops::Range<u32>) {
        let family = self.db.cf_handle("default").expect("a family");
        let [begin, end] = [numbers.start, numbers.end].map(numbered);
        self.db
            .delete_range_cf(family, begin, end)
            .expect("deleted");
    }

    fn compact(&self) {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    }
}

#[test]
fn a_flush_is_added_and_a_compaction_is_nothing() {
    let case = Case::new();
    let before = case.view.contents();
    let old = hold(&case.view);
    assert_eq!(case.refresh(), Loaded::Nothing);
    case.put(4990..5010, b"new");
    for number in 0..5 {
        case.db.delete(numbered(number)).expect("deleted");
    }
    case.db.delete(b"absent").expect("deleted");
    case.db.flush().expect("flushed");
    // A record of 4 and 3 bytes has two units of 16.
    let added = Loaded::Added {
        keys: 26,
        bytes: 20 * 32,
    };
    assert_eq!(case.refresh(), added);
    case.compare();
    let after = case.view.contents();
    assert_eq!(after.keys, 5005);
    assert_eq!(after.dead_bytes, 15 * 64);
    assert_eq!(after.record_bytes, before.record_bytes + 20 * 32);
    assert_eq!(after.slot_bytes, before.slot_bytes);
    case.compact();
    assert_eq!(case.refresh(), Loaded::Nothing);
    case.compare();
    // Deleted keys come back where slots of others have gone.
    case.put(0..5, b"back");
    assert!(matches!(case.refresh(), Loaded::Added { keys: 5, .. }));
    case.compare();
    let found = old.get(&[&numbered(0), &numbered(4990), &numbered(5000)]);
    let found = found.expect("values");
    assert_eq!(
        found,
        [Some(vec![0; 40]), Some(vec![4990u32 as u8; 40]), None]
    );
    assert!(old.sequence() < case.view.sequence());
}

#[test]
fn what_was_in_the_log_is_added_when_it_grows_and_when_it_is_flushed() {
    let case = Case::with(|db| db.put(b"logged", b"1").expect("written"));
    case.db.put(b"logged", b"2").expect("written");
    case.db.put(b"more", b"3").expect("written");
    assert!(matches!(case.refresh(), Loaded::Added { keys: 2, .. }));
    case.compare();
    assert_eq!(case.refresh(), Loaded::Nothing);
    case.db.delete(b"logged").expect("deleted");
    case.db.flush().expect("flushed");
    assert!(matches!(case.refresh(), Loaded::Added { keys: 2, .. }));
    case.compare();
}

#[test]
fn a_put_that_goes_with_its_single_delete_does_not_stay() {
    let case = Case::with(|db| db.put(b"once", b"1").expect("written"));
    assert_eq!(
        case.view.get(&[b"once"]).expect("values"),
        [Some(b"1".to_vec())]
    );
    case.db.single_delete(b"once").expect("deleted");
    case.db.put(b"other", b"2").expect("written");
    case.db.flush().expect("flushed");
    let (reason, keys) = case.reason();
    assert!(reason.contains("1 keys that were in the log"), "{reason}");
    assert_eq!(keys, 1);
}

/// A MANIFEST that RocksDB appends to after an opening does not tell that another program had the database open.
#[test]
fn a_filter_of_a_program_that_came_between_is_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("db");
    let open = |has_filter| {
        let options = Options::default().get_options_from_string("reuse_manifest_on_open=true");
        let mut options = options.expect("options");
        options.create_if_missing(true);
        if has_filter {
            options.set_compaction_filter("removes", |_, key, _| match key {
                b"gone" => CompactionDecision::Remove,
                _ => CompactionDecision::Keep,
            });
        }
        DB::open(&options, &path).expect("the database opens")
    };
    let compact = |db: &DB| {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
    };
    let manifests = || {
        let files = std::fs::read_dir(&path).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| name.starts_with("MANIFEST"));
        names
    };
    let db = open(false);
    for key in ["gone", "kept"] {
        db.put(key, b"1").expect("written");
    }
    db.flush().expect("flushed");
    compact(&db);
    drop(db);
    let view = builder(&directory(&path), "default").open();
    let view = view.expect("a view");
    let get = || view.get(&[b"gone", b"kept"]).expect("values");
    let one = Some(b"1".to_vec());
    assert_eq!(get(), [one.clone(), one.clone()]);
    let before = manifests();
    compact(&open(true));
    drop(open(false));
    assert_eq!(manifests(), before, "RocksDB began another MANIFEST");
    let how = view.refresh().expect("refreshed").how;
    assert!(matches!(how, Loaded::Ranges { .. }), "{how:?}");
    assert_eq!(get(), [None, one]);
}

#[test]
fn merge_operands_of_a_flush_are_asked_for() {
    let case = Case::new();
    for number in [7, 6000] {
        case.db.merge(numbered(number), b"more").expect("merged");
        case.db.flush().expect("flushed");
    }
    // Their keys have records of 16 bytes.
    assert!(matches!(
        case.refresh(),
        Loaded::Added { keys: 2, bytes: 32 }
    ));
    assert_eq!(
        (case.view.contents().keys, case.view.contents().needs_host),
        (4999, 2)
    );
    case.compare();
    for how in ["put", "deleted"] {
        match how {
            "put" => case.put(7..8, b"decides"),
            _ => case.db.delete(numbered(7)).expect("deleted"),
        }
        case.db.flush().expect("flushed");
        assert!(
            matches!(case.refresh(), Loaded::Added { keys: 1, .. }),
            "{how}"
        );
        case.compare();
        let contents = case.view.contents();
        let keys = if how == "put" { 5000 } else { 4999 };
        assert_eq!((contents.keys, contents.needs_host), (keys, 1), "{how}");
    }
}

#[test]
fn ranges_are_loaded_where_files_do_not_tell_what_was_written() {
    let case = Case::new();
    case.put(0..10, b"new");
    case.db.flush().expect("flushed");
    case.compact();
    let (reason, keys) = case.reason();
    assert!(reason.contains("was compacted before it was read"));
    assert_eq!(keys, 5000);

    case.delete_range(10..20);
    let Loaded::Added { keys, .. } = case.refresh() else {
        panic!("it is known what was written");
    };
    assert_eq!((keys, case.view.contents().keys), (0, 4990));
    case.compact();
    case.put(0..1, b"newer");
    assert!(case.reason().0.contains("was compacted before it was read"));

    let path = case.dir.path().join("ingested.sst");
    let (options, ingest) = (options(), IngestExternalFileOptions::default());
    let mut writer = SstFileWriter::create(&options);
    writer.open(&path).expect("a file");
    writer.put(numbered(1), b"ingested").expect("written");
    writer.finish().expect("a file");
    case.db
        .ingest_external_file_opts(&ingest, vec![&path])
        .expect("ingested");
    let before = case.view.contents();
    let (reason, keys) = case.reason();
    assert!(reason.contains("files were ingested"));
    // That key, and the one in the log.
    assert_eq!(keys, 2);
    let after = case.view.contents();
    assert_eq!(after.record_bytes, before.record_bytes + 32);

    case.put(0..1, b"x");
    let Case { dir, db, view } = case;
    drop(db);
    let db = open(&dir.path().join("db"));
    let case = Case { dir, db, view };
    let (reason, keys) = case.reason();
    assert!(reason.contains("a new MANIFEST was begun"));
    assert_eq!(keys, 1);
    assert_eq!(case.refresh(), Loaded::Nothing);
}

#[test]
fn range_tombstones_delete_what_files_and_the_log_had() {
    let case = Case::with(|db| {
        // A refresh finds each flushed file.
        db.set_options(&[("disable_auto_compactions", "true")])
            .expect("set");
        for number in 0..4 {
            db.put(numbered(number), b"in the log").expect("written");
        }
    });
    let added = || {
        let how = case.refresh();
        case.compare();
        assert!(matches!(how, Loaded::Added { .. }), "{how:?}");
    };
    // Older entries of the same log, and newer ones.
    case.delete_range(2..10);
    case.put(5..6, b"newer");
    added();
    // The whole log is read again, with entries that a tombstone deletes which the view has seen.
    case.put(20..21, b"newer");
    added();
    case.db.flush().expect("flushed");
    added();
    // A tombstone that the view has seen stays when other keys are written.
    case.put(6..7, b"newer");
    added();
    // One in a file of its own, with its keys in older files and in the log.
    case.put(100..110, b"in the log");
    added();
    case.delete_range(105..4990);
    case.db.flush().expect("flushed");
    case.put(106..107, b"newer");
    added();
    assert_eq!(case.view.asked(), []);
    case.compact();
    case.put(0..1, b"newer");
    case.refresh();
    case.compare();
    assert_eq!(case.view.contents().keys, 5000 - 8 + 2 - 4885 + 1);
}

#[test]
fn a_refresh_finds_range_tombstones_that_are_older_than_what_the_view_has_seen() {
    let case = Case::with(|db| {
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        let mut batch = WriteBatch::default();
        batch.delete_range(numbered(10), numbered(20));
        batch.put(numbered(15), b"newer");
        db.write_opt(&batch, &unlogged).expect("written");
        db.put(numbered(30), b"in the log").expect("written");
    });
    assert_eq!(case.view.contents().keys, 5000);
    case.db.flush().expect("flushed");
    // The key that was written, and the one that is left in the deleted range.
    let how = case.refresh();
    assert!(matches!(how, Loaded::Added { keys: 2, .. }), "{how:?}");
    case.compare();
    assert_eq!(case.view.contents().keys, 4991);
}

#[test]
fn a_refresh_finds_entries_that_the_log_got_after_a_file_with_a_later_number() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("db");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_manual_wal_flush(true);
    options.set_disable_auto_compactions(true);
    let db = DB::open(&options, &path).expect("the database opens");
    for key in ["a", "b", "z"] {
        db.put(key, "old").expect("written");
    }
    db.flush().expect("flushed");
    // RocksDB buffers these entries.
    db.put("a", "new").expect("written");
    let mut batch = WriteBatch::default();
    batch.delete_range("b", "c");
    db.write(&batch).expect("written");
    let file = dir.path().join("ingested.sst");
    let mut writer = SstFileWriter::create(&options);
    writer.open(&file).expect("a file");
    writer.put("z", "ingested").expect("written");
    writer.finish().expect("a file");
    db.ingest_external_file_opts(&IngestExternalFileOptions::default(), vec![&file])
        .expect("ingested");
    let view = builder(&directory(&path), "default")
        .open()
        .expect("a view");
    let values = || view.get(&[b"a", b"b", b"z"]).expect("values");
    let are = |values: [Option<&str>; 3]| values.map(|value| Some(value?.as_bytes().to_vec()));
    assert_eq!(values(), are([Some("old"), Some("old"), Some("ingested")]));
    db.flush_wal(false).expect("written");
    view.refresh().expect("refreshed");
    assert_eq!(values(), are([Some("new"), None, Some("ingested")]));
    assert_eq!(view.refresh().expect("refreshed").how, Loaded::Nothing);
}

#[test]
fn slots_grow_and_memory_of_dead_records_is_used_again() {
    let case = Case::new();
    let before = case.view.contents();
    case.put(5000..7000, b"new");
    assert!(matches!(case.refresh(), Loaded::Added { keys: 2000, .. }));
    case.compare();
    let contents = case.view.contents();
    assert_eq!((contents.keys, contents.dead_bytes), (7000, 0));
    assert!(contents.slot_bytes > before.slot_bytes);
    let old = hold(&case.view);
    case.put(0..3000, &[[7; 20], [8; 20]].concat());
    // Those that were in the log have been loaded already.
    let added = Loaded::Added {
        keys: 5000,
        bytes: 3000 * 64,
    };
    assert_eq!(case.refresh(), added);
    case.compare();
    let contents = case.view.contents();
    assert_eq!((contents.keys, contents.dead_bytes), (7000, 0));
    assert_eq!(contents.record_bytes, 5000 * 64 + 2000 * 32);
    let found = old.get(&[&numbered(2)]).expect("values");
    assert_eq!(found, [Some(vec![2; 40])]);
}

#[test]
fn all_keys_may_go_and_others_come_at_once() {
    let case = Case::new();
    for number in 0..5000 {
        case.db.delete(numbered(number)).expect("deleted");
    }
    case.put(5000..7500, b"new");
    case.db.flush().expect("flushed");
    assert!(matches!(case.refresh(), Loaded::Added { keys: 7500, .. }));
    case.compare();
    let contents = case.view.contents();
    assert_eq!((contents.keys, contents.needs_host), (2500, 0));
    // All dead records are gone.
    assert_eq!((contents.record_bytes, contents.dead_bytes), (2500 * 32, 0));
}

#[test]
fn a_view_whose_table_takes_most_of_its_memory_loads_ranges() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("db");
    let db = open(&path);
    put_rows(&db);
    // Slots of two tables, and records of one.
    let small = builder(&directory(&path), "default").memory_bytes(5000 * (2 * 10 + 64) + 10_000);
    let view = small.open().expect("a view");
    for round in 0..10u8 {
        let key = numbered(1000 + u32::from(round / 2));
        db.put(key, [round / 2; 40]).expect("written");
        db.flush().expect("flushed");
        db.compact_range(None::<&[u8]>, None::<&[u8]>);
        let how = view.refresh().expect("there is room").how;
        let Loaded::Ranges { keys, bytes, .. } = how else {
            panic!("{how:?}");
        };
        // Every second one is unchanged.
        assert_eq!(bytes, 64 * u64::from(1 - round % 2));
        assert!(keys > 1, "{keys}");
        compare(&view, &rows(&db, "default", &KeyRange::default())).expect("equal");
    }
}

#[test]
fn a_view_stays_what_it_was_if_there_is_no_memory_for_another_version() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("db");
    let db = open(&path);
    put_rows(&db);
    // Slots and records of 5000 keys, without memory for as many slots again.
    let small = builder(&directory(&path), "default").memory_bytes(5000 * (10 + 64) + 30_000);
    let view = small.open().expect("a view");
    let before = rows(&db, "default", &KeyRange::default());
    db.put(numbered(1), b"new").expect("written");
    let error = view.refresh().expect_err("there is no room");
    assert_eq!(error.kind, ErrorKind::Device);
    assert!(
        error.what.contains("so does the old one during a refresh"),
        "{error}"
    );
    compare(&view, &before).expect("equal");
    // A version that no longer exists does not count.
    let larger = builder(&directory(&path), "default").memory_bytes(5000 * (20 + 64) + 30_000);
    let view = larger.open().expect("a view");
    for number in 0..20u8 {
        db.put(numbered(1), [number]).expect("written");
        let how = view.refresh().expect("refreshed").how;
        assert!(matches!(how, Loaded::Added { .. }), "{how:?}");
    }
    let held = hold(&view);
    db.put(numbered(1), b"held").expect("written");
    view.refresh().expect("there is room for two");
    db.put(numbered(1), b"more").expect("written");
    view.refresh().expect_err("and not for three");
    drop(held);
    view.refresh().expect("the one that was held is gone");
}

#[test]
fn a_database_that_has_gone_is_an_error() {
    let case = Case::new();
    let path = case.dir.path().join("db");
    let Case { dir, db, view } = case;
    drop(db);
    std::fs::remove_dir_all(path).expect("removed");
    view.refresh().expect_err("it is gone");
    assert_eq!(
        view.get(&[&numbered(3)]).expect("values"),
        [Some(vec![3; 40])]
    );
    drop(dir);
}
