//! Unflushed entries, read from RocksDB's logs: together with the SST files they equal RocksDB's content after its
//! recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, open_table, read_block};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::key::{self, ValueType, tag_sequence, tag_type};
use rockmill_format::log::LogReader;
use rockmill_format::range_tombstone::{RangeTombstone, decode_range_tombstones};
use rockmill_format::table::names;
use rockmill_snapshot::closed_database::ClosedDatabase;
use rockmill_snapshot::unflushed::Unflushed;
use rockmill_storage::{InputFileReader, LocalStorage};
use rockmill_tests::content::{Pairs, scan_forward};
use rockmill_tests::harness::local_options;
use rockmill_tests::internal::read_internal_entries;
use rockmill_tests::seed::{cases, first_seed};
use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode, FlushOptions, MergeOperands,
    Options, TransactionDB, TransactionDBOptions, TransactionOptions, WriteBatch, WriteOptions,
};
use tempfile::TempDir;

const FAMILIES: [&str; 2] = ["default", "other"];
const CASES: u64 = 6;
const CUTS: u64 = 30;
const ENOUGH_MEMORY: usize = 1 << 30;
/// Longer than a block of a log.
const LONG_VALUE: usize = 70_000;

/// Merges by appending, so that the result does not depend on earlier merges of operands.
fn append(_key: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let operands = operands.into_iter().flatten().copied();
    Some(
        value
            .unwrap_or_default()
            .iter()
            .copied()
            .chain(operands)
            .collect(),
    )
}

fn options() -> Options {
    let mut options = local_options();
    options.create_missing_column_families(true);
    options.set_merge_operator_associative("append", append);
    options
}

fn open(options: &Options, dir: &Path) -> DB {
    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    DB::open_cf_descriptors(options, dir, families).expect("open")
}

/// Writes one batch of all kinds of entries. A key that starts with `s` is put once.
fn write(db: &DB, rng: &mut StdRng, number: u32) {
    let mut batch = WriteBatch::default();
    for part in 0..rng.random_range(0..6_u8) {
        let family = db
            .cf_handle(FAMILIES[rng.random_range(0..2)])
            .expect("a family");
        let key = format!("k{:02}", rng.random_range(0..60)).into_bytes();
        let other = format!("k{:02}", rng.random_range(0..60)).into_bytes();
        let long = rng.random_ratio(1, 30);
        let len = if long {
            LONG_VALUE
        } else {
            rng.random_range(0..90)
        };
        let value = vec![part + b'a'; len];
        match rng.random_range(0..12) {
            0..5 => batch.put_cf(family, key, value),
            5..7 => batch.delete_cf(family, key),
            7 | 8 => batch.merge_cf(family, key, value),
            9 => {
                let end = [key.clone().max(other.clone()), b"!".to_vec()].concat();
                batch.delete_range_cf(family, key.min(other), end);
            }
            10 => batch.put_log_data(value),
            _ => batch.put_cf(family, format!("s{number}-{part}"), value),
        }
    }
    for part in 0..6 {
        for family in FAMILIES {
            let key = format!("s{}-{part}", number.saturating_sub(3));
            let family = db.cf_handle(family).expect("a family");
            if number > 3 && db.get_cf(family, &key).expect("get").is_some() {
                batch.single_delete_cf(family, key);
            }
        }
    }
    db.write(&batch).expect("write");
}

/// Writes a batch with an empty range, which takes no sequence number. In recovery it takes one if the column family is
/// flushed, so numbers can be compared only without flushes.
fn write_empty_range(db: &DB) {
    let mut batch = WriteBatch::default();
    batch.put(b"k00", b"before");
    batch.delete_range(b"k01", b"k01");
    batch.put(b"k02", b"behind");
    db.write(&batch).expect("write");
}

fn flush(db: &DB, family: &str) {
    let family = db.cf_handle(family).expect("a family");
    db.flush_cf_opt(family, &FlushOptions::default())
        .expect("flush");
}

/// All entries of one column family, with internal keys, and its range tombstones.
#[derive(Default)]
struct Entries {
    entries: Pairs,
    tombstones: Vec<RangeTombstone>,
}

impl Entries {
    fn add_file(&mut self, path: &Path) {
        self.entries
            .extend(read_internal_entries(path).expect("a sound file"));
        let file = InputFileReader::open(&LocalStorage, path).expect("open");
        let table = open_table(Box::new(file)).expect("a sound file");
        if let Some(&handle) = table.meta.metaindex.get(names::RANGE_DELETIONS) {
            let block = read_block(&table, handle).expect("a sound block");
            let own = decode_range_tombstones(&block, u64::MAX).expect("tombstones");
            self.tombstones.extend(own.into_iter().flatten());
        }
    }

    /// Visible keys and values.
    fn rows(&self) -> Pairs {
        let mut by_key: BTreeMap<&[u8], BTreeMap<u64, &[u8]>> = BTreeMap::new();
        for (internal_key, value) in &self.entries {
            let (user_key, tag) = key::split(internal_key).expect("an internal key");
            let before = by_key.entry(user_key).or_default().insert(tag, value);
            assert_eq!(before, None, "{} is there twice", user_key.escape_ascii());
        }
        let rows = by_key.into_iter().filter_map(|(user_key, versions)| {
            Some((user_key.to_vec(), self.value(user_key, &versions)?))
        });
        rows.collect()
    }

    fn value(&self, user_key: &[u8], versions: &BTreeMap<u64, &[u8]>) -> Option<Vec<u8>> {
        let covering = self.tombstones.iter().filter(|tombstone| {
            tombstone.begin.as_slice() <= user_key && user_key < tombstone.end.as_slice()
        });
        let deleted = covering.map(|tombstone| tombstone.sequence).max();
        let mut operands = Vec::new();
        let mut is_there = false;
        for (&tag, &value) in versions.iter().rev() {
            let kind = ValueType::from_code(tag_type(tag)).expect("a known type");
            if Some(tag_sequence(tag)) < deleted || kind.is_tombstone() {
                break;
            }
            is_there = true;
            operands.push(value);
            if kind == ValueType::Value {
                break;
            }
            assert_eq!(kind, ValueType::Merge);
        }
        operands.reverse();
        is_there.then(|| operands.concat())
    }
}

/// Reads the contents of the files in the folder, by column family.
fn read(dir: &Path, log_dir: &Path, max_bytes: usize) -> Result<Vec<Entries>, Error> {
    let database = ClosedDatabase::read(&LocalStorage, dir)?;
    let tree = database.follower.tree();
    let cancel = CancelToken::new();
    let unflushed = Unflushed::read(&LocalStorage, log_dir, tree, |_| true, max_bytes, &cancel)?;
    if let Some(error) = unflushed.left_out {
        return Err(error);
    }
    let families = FAMILIES.map(|name| {
        let (id, family) = tree.by_name(name.as_bytes()).expect("a family");
        let mut entries = Entries::default();
        for number in family.levels.values().flat_map(|files| files.keys()) {
            entries.add_file(&dir.join(format!("{number:06}.sst")));
        }
        if let Some(memtable) = unflushed.families.get(&id) {
            let pairs = memtable
                .entries()
                .map(|(key, value)| (key.to_vec(), value.to_vec()));
            entries.entries.extend(pairs);
            entries
                .tombstones
                .extend_from_slice(memtable.range_tombstones());
        }
        entries
    });
    Ok(families.into())
}

fn rows_of(db: &DB) -> Vec<Pairs> {
    let rows = FAMILIES.map(|name| {
        let family = db.cf_handle(name).expect("a family");
        scan_forward(db.raw_iterator_cf(family)).expect("rows")
    });
    rows.into()
}

/// Compares the contents of the files with RocksDB's content after opening them. The database is open afterwards.
fn check(options: &Options, dir: &Path, log_dir: &Path) -> DB {
    let found = read(dir, log_dir, ENOUGH_MEMORY).expect("sound files");
    let db = open(options, dir);
    let rows: Vec<_> = found.iter().map(Entries::rows).collect();
    assert!(rows == rows_of(&db), "other rows than RocksDB's");
    // Its flushes keep sequence numbers.
    for ((name, family), found) in FAMILIES.iter().zip(0..).zip(&found) {
        flush(&db, name);
        let numbered = |pairs: &Pairs| -> BTreeSet<(Vec<u8>, u64)> {
            let split = pairs
                .iter()
                .map(|(key, _)| key::split(key).expect("an internal key"));
            split
                .map(|(key, tag)| (key.to_vec(), tag_sequence(tag)))
                .collect()
        };
        let flushed = read(dir, log_dir, ENOUGH_MEMORY).expect("sound files");
        let (before, after) = (numbered(&found.entries), numbered(&flushed[family].entries));
        assert!(after.is_subset(&before), "{:?}", after.difference(&before));
        let numbers = |found: &Entries| -> BTreeSet<u64> {
            found
                .tombstones
                .iter()
                .map(|tombstone| tombstone.sequence)
                .collect()
        };
        assert!(numbers(&flushed[family]).is_subset(&numbers(found)));
    }
    db
}

fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().expect("a folder");
    for file in fs::read_dir(from).expect("list") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, to.path().join(name)).expect("copy");
    }
    to
}

/// The logs in a folder, oldest first.
fn logs(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir)
        .expect("list")
        .map(|file| file.expect("a file").path());
    let mut logs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    logs
}

fn seeded(cases_by_default: u64) -> impl Iterator<Item = (u64, StdRng)> {
    let first = first_seed();
    (first..first + cases(cases_by_default)).map(|seed| {
        println!("seed {seed}");
        (seed, StdRng::seed_from_u64(seed))
    })
}

/// Fills a database, closes it without a flush, and compares; several times. Some log begins with a record of one of
/// `types`.
fn run(types: &[u8], change: impl Fn(&mut Options), log_dir: Option<&Path>) {
    let mut of_types = 0;
    for (_, mut rng) in seeded(CASES) {
        let dir = TempDir::new().expect("a folder");
        let logs_elsewhere = log_dir.map(|name| dir.path().join(name));
        let mut options = options();
        change(&mut options);
        if let Some(log_dir) = &logs_elsewhere {
            options.set_wal_dir(log_dir);
        }
        let log_dir = logs_elsewhere.as_deref().unwrap_or(dir.path());
        let mut db = open(&options, dir.path());
        for round in 0..3 {
            for number in 0..rng.random_range(0..120) {
                write(&db, &mut rng, round * 1000 + number);
                if rng.random_ratio(1, 25) {
                    flush(&db, FAMILIES[rng.random_range(0..2)]);
                }
            }
            drop(db);
            let bytes = logs(log_dir)
                .into_iter()
                .map(|log| fs::read(log).expect("read"));
            let first_types = bytes.filter_map(|bytes| bytes.get(TYPE_AT).copied());
            of_types += first_types.filter(|first| types.contains(first)).count();
            db = check(&options, dir.path(), log_dir);
        }
    }
    assert!(of_types > 0, "no log of the kind");
}

#[test]
fn logs_and_files_hold_what_rocksdb_has() {
    run(&[1, 2], |_| {}, None);
}

#[test]
fn logs_in_another_folder() {
    run(&[1, 2], |_| {}, Some(Path::new("logs")));
}

#[test]
fn recycled_logs() {
    run(&[5, 6], |options| options.set_recycle_log_file_num(3), None);
}

#[test]
fn compressed_logs() {
    let compress =
        |options: &mut Options| options.set_wal_compression_type(DBCompressionType::Zstd);
    run(&[9], compress, None);
}

#[test]
fn logs_that_tell_of_the_logs_before() {
    run(
        &[130],
        |options| options.set_track_and_verify_wals(true),
        None,
    );
}

#[test]
fn logs_that_are_kept_when_the_database_is_opened() {
    let keep = |options: &mut Options| options.set_avoid_flush_during_recovery(true);
    run(&[1, 2], keep, None);
}

#[test]
fn a_crash_leaves_records_of_logs_before_in_a_recycled_log() {
    let mut options = options();
    options.set_recycle_log_file_num(2);
    let mut with_old_records = 0;
    for (_, mut rng) in seeded(CASES) {
        let dir = TempDir::new().expect("a folder");
        let db = open(&options, dir.path());
        for number in 0..150 {
            write(&db, &mut rng, number);
            if number % 20 == 0 {
                FAMILIES.iter().for_each(|family| flush(&db, family));
            }
            if number % 20 == 5 {
                let crashed = copy(dir.path());
                let log = logs(crashed.path()).pop().expect("a log");
                let stem = log.file_stem().and_then(|stem| stem.to_str());
                let number = stem.and_then(|stem| stem.parse().ok()).expect("a number");
                let mut reader = LogReader::write_ahead_log(number);
                reader.push(&fs::read(&log).expect("read"));
                while reader.next_record().expect("a sound log").is_some() {}
                with_old_records += u64::from(reader.has_ended());
                drop(check(&options, crashed.path(), crashed.path()));
            }
        }
    }
    assert!(with_old_records > 0);
}

/// A closed database without flushed data.
fn not_flushed(options: &Options, rng: &mut StdRng, writes: u32) -> TempDir {
    let dir = TempDir::new().expect("a folder");
    let db = open(options, dir.path());
    for number in 0..writes {
        write(&db, rng, number);
        if number % 10 == 0 {
            write_empty_range(&db);
        }
    }
    dir
}

#[test]
fn a_torn_log_ends_where_rocksdbs_recovery_ends() {
    let mut options = options();
    options.set_avoid_flush_during_recovery(true);
    let mut followed = 0;
    for (seed, mut rng) in seeded(CUTS) {
        let dir = not_flushed(&options, &mut rng, 50);
        let log = logs(dir.path()).pop().expect("a log");
        let mut bytes = fs::read(&log).expect("read");
        let whole = bytes.len();
        bytes.truncate(rng.random_range(0..whole));
        if seed % 2 == 0 {
            bytes.resize(whole, 0);
        }
        fs::write(&log, bytes).expect("write");
        let mut db = check_rows(&options, dir.path());
        // The next log continues from there.
        for number in 100..110 {
            write(&db, &mut rng, number);
        }
        drop(db);
        // RocksDB removes a log in which it finds no record.
        followed += u64::from(logs(dir.path()).len() > 1);
        db = check_rows(&options, dir.path());
        drop(db);
    }
    assert!(followed > 0);
}

/// Like the first part of [`check`].
fn check_rows(options: &Options, dir: &Path) -> DB {
    let found = read(dir, dir, ENOUGH_MEMORY).expect("sound files");
    let db = open(options, dir);
    let rows: Vec<_> = found.iter().map(Entries::rows).collect();
    assert!(rows == rows_of(&db), "other rows than RocksDB's");
    db
}

#[test]
fn damage_elsewhere_is_an_error_that_names_file_and_offset() {
    let options = options();
    let (_, mut rng) = seeded(1).next().expect("a seed");
    let dir = not_flushed(&options, &mut rng, 50);
    let log = logs(dir.path()).pop().expect("a log");
    let name = log
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let bytes = fs::read(&log).expect("read");
    for _ in 0..CUTS {
        let damaged = copy(dir.path());
        let mut bytes = bytes.clone();
        let at = rng.random_range(0..bytes.len() / 2);
        bytes[at] ^= 1 << rng.random_range(0..8);
        fs::write(damaged.path().join(&name), &bytes).expect("write");
        let error = read(damaged.path(), damaged.path(), ENOUGH_MEMORY).err();
        // A torn log may also have a length beyond the file's end.
        let Some(error) = error else {
            drop(check_rows(&options, damaged.path()));
            continue;
        };
        assert_eq!(error.file.as_ref(), Some(&name), "{error}");
        assert!(
            error.offset.is_some_and(|offset| offset <= at as u64),
            "{error} for {at}"
        );
    }
}

/// A fragment of a log: a record or a part of one.
struct Fragment {
    at: usize,
    end: usize,
}

/// Length of a log's block, of a fragment's header, and the offsets of its parts.
const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
const LEN_AT: usize = 4;
const TYPE_AT: usize = 6;

/// The checksum of a fragment in its stored form.
fn checksum(fragment: &[u8]) -> [u8; LEN_AT] {
    let (last, bytes) = fragment[TYPE_AT..].split_last().expect("a type");
    ChecksumType::Crc32c.compute(bytes, *last).to_le_bytes()
}

/// The fragments of a log that RocksDB wrote.
fn fragments(log: &[u8]) -> Vec<Fragment> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < log.len() {
        let block_end = (at / BLOCK + 1) * BLOCK;
        let header = log.get(at..at + HEADER).unwrap_or(&[0; HEADER]);
        if block_end - at < HEADER || header == [0; HEADER] {
            at = block_end;
            continue;
        }
        let has_number = matches!(header[TYPE_AT], 5..=8 | 11 | 131);
        let number = if has_number { 4 } else { 0 };
        let len = usize::from(u16::from_le_bytes([header[LEN_AT], header[LEN_AT + 1]]));
        let end = at + HEADER + number + len;
        // Remains of an earlier log may be behind the end.
        let is_sound =
            end <= log.len().min(block_end) && log[at..at + LEN_AT] == checksum(&log[at..end]);
        if !is_sound {
            break;
        }
        found.push(Fragment { at, end });
        at = end;
    }
    found
}

/// Changes a log that RocksDB wrote: types, payloads and lengths, mostly with the right checksum, and zeros.
///
/// Types are not changed so that a log appears to be recycled behind its first record, because RocksDB 11.12 would loop
/// forever.
fn change(log: &mut [u8], rng: &mut StdRng) {
    let all = fragments(log);
    let is_recycled = matches!(log[TYPE_AT], 5..=8 | 11 | 131);
    let types: &[u8] = match is_recycled {
        true => &[
            0, 5, 6, 7, 8, 9, 10, 11, 12, 127, 128, 130, 131, 132, 133, 135, 137, 255,
        ],
        false => &[
            0, 1, 2, 3, 4, 9, 10, 12, 100, 127, 128, 129, 130, 132, 133, 134, 135, 136, 137, 255,
        ],
    };
    for _ in 0..rng.random_range(1..4) {
        let Fragment { at, end } = all[rng.random_range(0..all.len())];
        let payload = at + HEADER..end;
        match rng.random_range(0..10_u8) {
            0..4 => log[at + TYPE_AT] = types[rng.random_range(0..types.len())],
            4 if !payload.is_empty() => {
                log[rng.random_range(payload)] ^= 1 << rng.random_range(0..8);
            }
            5 => log[payload].fill(rng.random()),
            6 => log[at..at + HEADER].fill(0),
            7 => {
                let block_end = log.len().min((at / BLOCK + 1) * BLOCK);
                log[at..block_end].fill(0);
            }
            8 => log[at + LEN_AT] ^= 1 << rng.random_range(0..8),
            _ if rng.random_ratio(1, 4) => log[at..].fill(0),
            _ => {
                log[at + TYPE_AT] = 255;
                log[payload].fill(0xff);
            }
        }
        if rng.random_ratio(4, 5) {
            let checksum = checksum(&log[at..end]);
            log[at..at + LEN_AT].copy_from_slice(&checksum);
        }
    }
}

/// Changes logs, and compares the entries read with RocksDB's content after opening the database. An error is right if
/// RocksDB reports one.
fn compare_changed(options: &Options) {
    const CHANGES: u64 = 12;
    let (mut equal, mut errors) = (0, 0);
    for (_, mut rng) in seeded(CASES) {
        let dir = TempDir::new().expect("a folder");
        let db = open(options, dir.path());
        for number in 0..60 {
            write(&db, &mut rng, number);
            if number % 10 == 9 && number < 40 {
                FAMILIES.iter().for_each(|family| flush(&db, family));
            }
        }
        drop(db);
        let log = logs(dir.path()).pop().expect("a log");
        let name = log.file_name().expect("a name");
        let whole = fs::read(&log).expect("read");
        for _ in 0..CHANGES {
            let changed = copy(dir.path());
            let mut bytes = whole.clone();
            change(&mut bytes, &mut rng);
            fs::write(changed.path().join(name), &bytes).expect("write");
            if let Err(error) = read(changed.path(), changed.path(), ENOUGH_MEMORY) {
                let mut strict = options.clone();
                strict.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
                let families =
                    FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, strict.clone()));
                let opened = DB::open_cf_descriptors(&strict, changed.path(), families);
                assert!(opened.is_err(), "RocksDB reports nothing: {error}");
                errors += 1;
            } else {
                drop(check_rows(options, changed.path()));
                equal += 1;
            }
        }
    }
    println!("{equal} equal, {errors} errors");
    assert!(equal > 0 && errors > 0);
}

#[test]
fn a_changed_log_holds_what_rocksdb_recovers() {
    compare_changed(&options());
}

#[test]
fn a_changed_log_that_is_recycled_holds_what_rocksdb_recovers() {
    let mut options = options();
    options.set_recycle_log_file_num(2);
    compare_changed(&options);
}

#[test]
fn a_changed_log_that_is_compressed_holds_what_rocksdb_recovers() {
    let mut options = options();
    options.set_wal_compression_type(DBCompressionType::Zstd);
    compare_changed(&options);
}

/// A database with many records in its MANIFEST, and the MANIFEST's path.
fn many_edits(options: &Options, rng: &mut StdRng) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a folder");
    let db = open(options, dir.path());
    for number in 0..60 {
        write(&db, rng, number);
        if number % 3 == 0 {
            flush(&db, FAMILIES[rng.random_range(0..2)]);
        }
        if number % 20 == 19 {
            db.compact_range(None::<&[u8]>, None::<&[u8]>);
        }
    }
    drop(db);
    let name = fs::read_to_string(dir.path().join("CURRENT")).expect("read");
    let path = PathBuf::from(name.trim());
    (dir, path)
}

/// Numbers of the files of each column family.
fn files_of(families: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, BTreeSet<u64>> {
    let mut files: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (family, number) in families {
        files.entry(family).or_default().insert(number);
    }
    files
}

#[test]
fn a_changed_manifest_has_the_files_that_rocksdb_finds() {
    const CHANGES: u64 = 20;
    let options = options();
    let (mut equal, mut refused) = (0, 0);
    for (_, mut rng) in seeded(CASES) {
        let (dir, manifest) = many_edits(&options, &mut rng);
        let whole = fs::read(dir.path().join(&manifest)).expect("read");
        for _ in 0..CHANGES {
            let changed = copy(dir.path());
            let mut bytes = whole.clone();
            change(&mut bytes, &mut rng);
            fs::write(changed.path().join(&manifest), &bytes).expect("write");
            let found = ClosedDatabase::read(&LocalStorage, changed.path());
            let opened = DB::open_cf_for_read_only(&options, changed.path(), FAMILIES, false);
            let (database, db) = match (found, opened) {
                (Ok(database), Ok(db)) => (database, db),
                (Err(error), Ok(_)) => {
                    // RocksDB drops the rest of the block or of the file.
                    let text = error.to_string();
                    assert!(text.contains("zeros") || text.contains("of type"), "{text}");
                    refused += 1;
                    continue;
                }
                (_, Err(_)) => {
                    refused += 1;
                    continue;
                }
            };
            let live = db.live_files().expect("files").into_iter().map(|file| {
                let number = file.name.trim_start_matches('/').trim_end_matches(".sst");
                (file.column_family_name, number.parse().expect("a number"))
            });
            let families = database.follower.tree().column_families.values();
            let ours = families.flat_map(|family| {
                let name = String::from_utf8(family.name.clone()).expect("text");
                let files = family.levels.values().flat_map(BTreeMap::keys);
                files.map(move |&number| (name.clone(), number))
            });
            assert_eq!(files_of(ours), files_of(live));
            equal += 1;
        }
    }
    println!("{equal} equal, {refused} refused");
    assert!(equal > 0 && refused > 0);
}

#[test]
fn a_torn_log_before_others_is_an_error() {
    let options = options();
    let (_, mut rng) = seeded(1).next().expect("a seed");
    let dir = TempDir::new().expect("a folder");
    let db = open(&options, dir.path());
    for number in 0..20 {
        write(&db, &mut rng, number);
    }
    // A batch without entries would not be missed.
    let other = db.cf_handle("other").expect("a family");
    db.put_cf(other, b"last", b"value").expect("put");
    flush(&db, "default");
    for number in 20..40 {
        write(&db, &mut rng, number);
    }
    drop(db);
    let logs = logs(dir.path());
    assert!(logs.len() > 1);
    let bytes = fs::read(&logs[0]).expect("read");
    fs::write(&logs[0], &bytes[..bytes.len() - 1]).expect("write");
    let error = read(dir.path(), dir.path(), ENOUGH_MEMORY)
        .err()
        .expect("an error");
    assert_eq!(error.kind, ErrorKind::Corruption);
    assert!(error.file.is_some_and(|name| logs[0].ends_with(name)));
    assert!(error.what.contains("torn"), "{}", error.what);
}

#[test]
fn too_many_entries_are_declined() {
    let (_, mut rng) = seeded(1).next().expect("a seed");
    let dir = not_flushed(&options(), &mut rng, 50);
    let error = read(dir.path(), dir.path(), 10_000)
        .err()
        .expect("an error");
    assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
    assert!(error.what.contains("flush the database"), "{}", error.what);
    let database = ClosedDatabase::read(&LocalStorage, dir.path()).expect("a database");
    let tree = database.follower.tree();
    let [little, enough] = [10_000, ENOUGH_MEMORY].map(|max_bytes| {
        let cancel = CancelToken::new();
        Unflushed::read(
            &LocalStorage,
            dir.path(),
            tree,
            |_| true,
            max_bytes,
            &cancel,
        )
        .expect("sound logs")
    });
    assert!(little.families.is_empty() && !enough.families.is_empty());
    assert!(enough.last_sequence > 0);
    assert_eq!(little.last_sequence, enough.last_sequence);
    assert_eq!(little.operands, enough.operands);
    let ends = |unflushed: &Unflushed| {
        let logs = unflushed.logs.iter();
        logs.map(|log| (log.number, log.end)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&little), ends(&enough));
}

/// Prepares transactions, commits some of them, and rolls some back. `number` makes names unique.
fn run_transactions(db: &TransactionDB, rng: &mut StdRng, number: &mut u32, flushes: bool) {
    let mut without_wait = TransactionOptions::default();
    without_wait.set_lock_timeout(0);
    // Transactions that were prepared before the database was closed exist again.
    let mut prepared = db.prepared_transactions();
    let family = |rng: &mut StdRng| {
        let name = FAMILIES[rng.random_range(0..2)];
        db.cf_handle(name).expect("a family")
    };
    for _ in 0..rng.random_range(0..100) {
        *number += 1;
        match rng.random_range(0..12) {
            0..5 => {
                let options = WriteOptions::default();
                let transaction = db.transaction_opt(&options, &without_wait);
                for part in 0..rng.random_range(1..5_u8) {
                    let family = family(rng);
                    let key = format!("k{:02}", rng.random_range(0..60));
                    let value = vec![part + b'a'; rng.random_range(0..90)];
                    // A prepared transaction may have the key.
                    let _ = match rng.random_range(0..6) {
                        0 => transaction.delete_cf(family, key),
                        1 => transaction.merge_cf(family, key, value),
                        _ => transaction.put_cf(family, key, value),
                    };
                }
                if rng.random_ratio(1, 4) {
                    transaction.commit().expect("commit");
                    continue;
                }
                let name = format!("transaction {number}");
                transaction.set_name(name.as_bytes()).expect("name");
                transaction.prepare().expect("prepare");
                prepared.push(transaction);
            }
            5..8 if !prepared.is_empty() => {
                let transaction = prepared.swap_remove(rng.random_range(0..prepared.len()));
                transaction.commit().expect("commit");
            }
            8 if !prepared.is_empty() => {
                let transaction = prepared.swap_remove(rng.random_range(0..prepared.len()));
                transaction.rollback().expect("rollback");
            }
            9 if flushes => db.flush_cf(family(rng)).expect("flush"),
            _ => {
                let _ = db.put_cf(family(rng), format!("put{number}"), b"value");
            }
        }
    }
}

#[test]
fn transactions_are_there_once_they_are_committed() {
    for (seed, mut rng) in seeded(CASES) {
        // The MANIFEST does not tell which logs are kept before the first flush.
        let flushes = seed % 2 == 0;
        let dir = TempDir::new().expect("a folder");
        let mut options = options();
        options.set_allow_2pc(true);
        // Larger than all data, so that only the test flushes.
        options.set_write_buffer_size(64 << 20);
        let mut number = 0;
        for _ in 0..4 {
            let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
            let settings = TransactionDBOptions::default();
            let db: TransactionDB =
                TransactionDB::open_cf_descriptors(&options, &settings, dir.path(), families)
                    .expect("open");
            run_transactions(&db, &mut rng, &mut number, flushes);
            drop(db);
            drop(match flushes {
                true => check(&options, dir.path(), dir.path()),
                false => check_rows(&options, dir.path()),
            });
        }
    }
}

#[test]
fn a_transaction_that_was_prepared_before_what_is_read_is_declined() {
    let dir = TempDir::new().expect("a folder");
    let db: TransactionDB =
        TransactionDB::open(&options(), &TransactionDBOptions::default(), dir.path())
            .expect("open");
    let transaction = db.transaction();
    transaction.put(b"key", b"value").expect("put");
    transaction.set_name(b"name").expect("name");
    transaction.prepare().expect("prepare");
    transaction.commit().expect("commit");
    let log = logs(dir.path()).pop().expect("a log");
    let number = log.file_stem().and_then(|stem| stem.to_str());
    let number = number.and_then(|stem| stem.parse().ok());
    let mut reader = LogReader::write_ahead_log(number.expect("a number"));
    reader.push(&fs::read(log).expect("read"));
    let mut unflushed = Unflushed::new(ENOUGH_MEMORY);
    let mut results = Vec::new();
    let mut number = 0;
    while let Some(record) = reader.next_record().expect("sound") {
        number += 1;
        // The first batch has prepared it.
        if number > 1 {
            let added = unflushed.add_batch(&record.payload, |_, _| true);
            results.push(added.map_err(|error| error.kind));
        }
    }
    assert_eq!(results, [Err(ErrorKind::Declined(DeclineReason::Allow2pc))]);
}

#[test]
fn the_batches_of_an_open_database_are_those_of_its_logs() {
    for (_, mut rng) in seeded(CASES) {
        let dir = TempDir::new().expect("a folder");
        let db = open(&options(), dir.path());
        for number in 0..50 {
            write(&db, &mut rng, number);
            write_empty_range(&db);
        }
        let mut unflushed = Unflushed::new(ENOUGH_MEMORY);
        // The binding skips the batch that begins at this number.
        let mut batches = db.get_updates_since(0).expect("batches");
        for batch in batches.by_ref() {
            let (_, batch) = batch.expect("a batch");
            unflushed
                .add_batch(batch.data(), |_, _| true)
                .expect("a sound batch");
        }
        batches.status().expect("no gap");
        assert_eq!(unflushed.last_sequence, db.latest_sequence_number());
        let read = read(dir.path(), dir.path(), ENOUGH_MEMORY).expect("sound files");
        for (id, read) in (0..).zip(&read) {
            let memtable = unflushed.families.get_mut(&id).expect("entries");
            memtable.sort();
            let pairs = memtable
                .entries()
                .map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert!(pairs.eq(read.entries.iter().cloned()));
            assert_eq!(memtable.range_tombstones(), read.tombstones);
        }
        assert!(read.iter().map(Entries::rows).eq(rows_of(&db)));
    }
}
