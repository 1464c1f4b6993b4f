//! Rows of ranges that were deleted, which scans read from tables.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rockmill_core::{CancelToken, KeyRange};
use rockmill_scan::{Database, Directory, FamilySnapshot, ReadPath, ScanEngine, ScanSettings};
use rockmill_testkit::machine::{cases, seed};
use rockmill_testkit::scans::{ReadOnly, keys_and_values, open, rows, rows_of, scan};
use rust_rocksdb::{
    DB, DBCompactionStyle, IngestExternalFileOptions, Options, SstFileWriter, WriteBatch,
};

/// Keys are the numbers below it.
const KEYS: u32 = 600;
const FAMILY: &str = "default";

fn key(number: u32) -> Vec<u8> {
    // Longer ones as well.
    match number % 5 {
        0 => format!("{number:04}-a-key-of-more-than-sixteen-bytes").into_bytes(),
        _ => format!("{number:04}").into_bytes(),
    }
}

/// Small files in several levels.
fn options(style: DBCompactionStyle) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compaction_style(style);
    options.set_level_zero_file_num_compaction_trigger(3);
    options.set_target_file_size_base(4 << 10);
    options.set_max_bytes_for_level_base(8 << 10);
    options.set_max_bytes_for_level_multiplier(3.0);
    options
}

/// A range of any width, and sometimes none.
fn range(rng: &mut SmallRng) -> (Vec<u8>, Vec<u8>) {
    let width = *[0, 1, 3, 20, 150, KEYS].choose(rng).expect("some");
    let begin = rng.random_range(0..KEYS);
    (key(begin), key(begin + width))
}

fn ingest(db: &DB, file: &Path, options: &Options, rng: &mut SmallRng) {
    let mut writer = SstFileWriter::create(options);
    writer.open(file).expect("a file");
    let kinds = rng.random_range(1..4);
    if kinds & 1 != 0 {
        let first = rng.random_range(0..KEYS);
        let numbers: BTreeSet<_> = (0..20).map(|_| first + rng.random_range(0..40)).collect();
        for number in numbers {
            writer.put(key(number), b"ingested").expect("written");
        }
    }
    if kinds & 2 != 0 {
        // It deletes no entry of the same file, because all get the same sequence number.
        let (begin, end) = (rng.random_range(0..KEYS), rng.random_range(1..200));
        writer
            .delete_range(key(begin), key(begin + end))
            .expect("written");
    }
    writer.finish().expect("a file");
    let options = IngestExternalFileOptions::default();
    db.ingest_external_file_opts(&options, vec![file])
        .expect("ingested");
}

/// Changes a database at random. Snapshots keep tombstones and what they delete in the tree for a while.
fn change(db: &DB, scratch: &Path, options: &Options, steps: usize, rng: &mut SmallRng) {
    let family = db.cf_handle(FAMILY).expect("a family");
    let mut snapshots = Vec::new();
    for step in 0..steps {
        let number = rng.random_range(0..KEYS);
        match rng.random_range(0..100) {
            0..60 => {
                let mut batch = WriteBatch::default();
                for next in number..number + rng.random_range(1..30) {
                    let mut value = format!("{step}").into_bytes();
                    value.resize(rng.random_range(3..90), b'.');
                    batch.put(key(next), value);
                }
                db.write(&batch).expect("written");
            }
            60..66 => db.delete(key(number)).expect("written"),
            66..78 => {
                let (begin, end) = range(rng);
                db.delete_range_cf(family, begin, end).expect("deleted");
            }
            78..90 => db.flush().expect("flushed"),
            90..93 => {
                let (begin, end) = range(rng);
                db.compact_range(Some(begin), Some(end));
            }
            93..96 => ingest(db, &scratch.join(format!("{step}.sst")), options, rng),
            _ if snapshots.len() < 3 => snapshots.push(db.snapshot()),
            _ => drop(snapshots.swap_remove(rng.random_range(0..3))),
        }
    }
    end(db, rng);
}

/// Flushes all, or leaves the last tombstone in memory, or alone in a file. The steps seldom end so.
fn end(db: &DB, rng: &mut SmallRng) {
    const WIDTH: u32 = 20;
    let begin = rng.random_range(0..KEYS);
    let delete = || {
        let family = db.cf_handle(FAMILY).expect("a family");
        let deleted = db.delete_range_cf(family, key(begin), key(begin + WIDTH));
        deleted.expect("deleted");
    };
    match rng.random_range(0..5) {
        0 => {}
        1 | 2 => return delete(),
        _ => {
            // No compaction takes the file.
            let stopped = db.set_options(&[("disable_auto_compactions", "true")]);
            stopped.expect("no more compactions");
            db.flush().expect("flushed");
            delete();
        }
    }
    db.flush().expect("flushed");
}

/// Files with range tombstones: all, those below level 0, and those that have nothing else.
#[derive(Debug, Default)]
struct Seen {
    files: u64,
    below: u64,
    alone: u64,
    unflushed: u64,
}

impl Seen {
    fn add(&mut self, snapshot: &FamilySnapshot) {
        let inputs = snapshot.inputs();
        for (file, table) in snapshot.files().iter().zip(inputs) {
            let properties = &table.meta.properties;
            let tombstones = properties.num_range_deletions;
            self.files += u64::from(tombstones > 0);
            self.below += u64::from(tombstones > 0 && file.level > 0);
            self.alone += u64::from(tombstones > 0 && tombstones == properties.num_entries);
        }
        let mut in_memory = inputs[snapshot.files().len()..].iter();
        let deletes = in_memory.any(|table| {
            let own = table.range_tombstones(snapshot.sequence());
            own.is_some_and(|mut own| own.next().is_some())
        });
        self.unflushed += u64::from(deletes);
    }
}

fn engine(cache_bytes: u64) -> Arc<ScanEngine> {
    let settings = ScanSettings {
        cache_bytes,
        ..ScanSettings::default()
    };
    ScanEngine::new(settings).expect("an engine")
}

#[test]
fn a_scan_finds_no_deleted_row_and_needs_no_iterators() {
    const STEPS: usize = 250;
    const CASES: u64 = 40;
    let first = seed();
    let engines = [engine(0), engine(64 << 20)];
    let mut seen = Seen::default();
    let cases = cases(CASES);
    for case in 0..cases {
        let seed = first.wrapping_add(case);
        let mut rng = SmallRng::seed_from_u64(seed);
        let style = [DBCompactionStyle::Level, DBCompactionStyle::Universal][(seed % 2) as usize];
        let dir = tempfile::tempdir().expect("a folder");
        let (path, options) = (dir.path().join("db"), options(style));
        let db = DB::open_cf(&options, &path, [FAMILY]).expect("the database opens");
        change(&db, dir.path(), &options, STEPS, &mut rng);
        drop(db);
        let db = DB::open_cf_for_read_only(&options, &path, [FAMILY], false).expect("it opens");
        let directory = Directory::open(&path).expect("a database");
        let directory = directory.with_iterators(Arc::new(ReadOnly));
        let (begin, end) = range(&mut rng);
        let part = KeyRange {
            begin: Some(begin),
            end: Some(end),
        };
        for (engine, piece_bytes) in engines.iter().zip([2 << 10, 1 << 30]) {
            let snapshot = directory.snapshot(engine).expect("a snapshot");
            let snapshot = snapshot.family(FAMILY).expect("a family");
            seen.add(&snapshot);
            // Columns are kept by the first scan and used by the second one.
            for range in [&KeyRange::default(), &KeyRange::default(), &part] {
                let (found, reports) =
                    scan(engine, &snapshot, std::slice::from_ref(range), piece_bytes);
                let through = reports
                    .iter()
                    .filter_map(|one| one.through_iterators.as_ref());
                let through: Vec<_> = through.collect();
                assert_eq!(found, rows(&db, FAMILY, range), "seed {seed}: {through:?}");
                let is_cut = |why: &&String| why.contains("between the versions of a key");
                assert!(through.iter().all(is_cut), "seed {seed}: {through:?}");
            }
        }
    }
    eprintln!("{seen:?}");
    let all = seen.files > 0 && seen.below > 0 && seen.alone > 0 && seen.unflushed > 0;
    // One case that is run again need not have all.
    assert!(all || cases < CASES, "{seen:?}");
}

/// A database in which every other row is deleted by a range tombstone of its own.
fn half_deleted(path: &Path, rows: u32) {
    let db = open(path);
    let mut batch = WriteBatch::default();
    for row in 0..rows {
        batch.put(row.to_be_bytes(), "value");
    }
    db.write(&batch).expect("written");
    db.flush().expect("flushed");
    let mut batch = WriteBatch::default();
    for row in (0..rows).step_by(2) {
        batch.delete_range(row.to_be_bytes(), (row + 1).to_be_bytes());
    }
    db.write(&batch).expect("written");
    db.flush().expect("flushed");
}

#[test]
fn a_piece_of_a_process_with_more_memory_finds_no_deleted_row() {
    const ROWS: u32 = 40_000;
    /// The tombstones as they are fit into three eighths of it, and with their fragments they do not.
    const LITTLE_BYTES: u64 = 12 << 20;
    let dir = tempfile::tempdir().expect("a folder");
    half_deleted(dir.path(), ROWS);
    let large = engine(0);
    let small = ScanEngine::new(ScanSettings {
        memory_bytes: Some(LITTLE_BYTES),
        ..ScanSettings::default()
    });
    let small = small.expect("an engine");
    let without = Directory::open(dir.path()).expect("a database");
    let directory = Directory::open(dir.path()).expect("a database");
    let directory = directory.with_iterators(Arc::new(ReadOnly));
    let here = directory.snapshot(&large).expect("a snapshot");
    let here = here.family(FAMILY).expect("a family");
    let version = here.version().expect("it is in files");
    let there = |directory: &Directory| {
        let snapshot = directory.at(&small, &version).expect("the files are there");
        snapshot.family(FAMILY).expect("a family")
    };
    let (plan, cancel) = (keys_and_values(), CancelToken::new());
    let mut found = Vec::new();
    for piece in here.pieces(&[KeyRange::default()], 64 << 10) {
        assert_eq!(piece.path, ReadPath::Files);
        let output = small.run(&there(&directory), &piece, &plan, &cancel);
        let output = output.expect("iterators read it");
        found.extend(output.batches.iter().flat_map(rows_of));
        let through = output.report.through_iterators;
        let why = "there is no memory for its range tombstones";
        assert_eq!(through.as_deref(), Some(why));
        let refused = small.run(&there(&without), &piece, &plan, &cancel);
        let refused = refused.expect_err("no iterators").to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let keys = found.iter().map(|(key, _)| key.clone());
    let expected = (0..ROWS).skip(1).step_by(2);
    assert!(keys.eq(expected.map(|row| row.to_be_bytes().to_vec())));
}
