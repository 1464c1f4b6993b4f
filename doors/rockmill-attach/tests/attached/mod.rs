//! The tests of both crates.

use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rocksdb::{
    AsColumnFamilyRef, BlockBasedOptions, BottommostLevelCompaction, ColumnFamilyDescriptor,
    CompactOptions, CompactionDecision, DB, DBPath, Env, IteratorMode, MergeOperands, Options,
    ReadOptions, SliceTransform, WaitForCompactOptions,
};

use super::{Service, attach, attach_families};

const KEYS: u64 = 300;
const ROUNDS: u64 = 5;

fn service() -> Service {
    let service = Service::builder().threads(2).min_job_bytes(0).build();
    service.expect("sound settings")
}

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options
}

/// Joins operands, and what is beneath them.
fn set_operator(options: &mut Options) {
    let join = |_: &[u8], base: Option<&[u8]>, operands: &MergeOperands| {
        let mut joined = base.map(<[u8]>::to_vec).unwrap_or_default();
        for operand in operands {
            joined.push(b'+');
            joined.extend_from_slice(operand);
        }
        Some(joined)
    };
    options.set_merge_operator("joined", join, join);
}

fn decision(drawn: u64) -> CompactionDecision {
    match drawn {
        0 => CompactionDecision::Remove,
        1 => CompactionDecision::Change(b"changed"),
        _ => CompactionDecision::Keep,
    }
}

/// Removes some values and changes others, and counts its calls.
fn set_filter(options: &mut Options, calls: &Arc<AtomicU64>) {
    let calls = Arc::clone(calls);
    options.set_compaction_filter("sieve", move |_, _, value| {
        calls.fetch_add(1, Ordering::Relaxed);
        decision(value.iter().map(|&byte| u64::from(byte)).sum::<u64>() % 5)
    });
}

/// Decides by the number of the call, so another order of keys has other results.
struct Numbered(u64);

impl CompactionFilter for Numbered {
    fn filter(&mut self, _level: u32, _key: &[u8], _value: &[u8]) -> CompactionDecision {
        self.0 += 1;
        decision(self.0 % 7)
    }

    fn name(&self) -> &CStr {
        c"numbered"
    }
}

struct Factory;

impl CompactionFilterFactory for Factory {
    type Filter = Numbered;

    fn create(&mut self, context: CompactionFilterContext) -> Numbered {
        assert!(context.is_manual_compaction);
        Numbered(u64::from(context.is_full_compaction))
    }

    fn name(&self) -> &CStr {
        c"factory"
    }
}

fn set_prefixes(options: &mut Options) {
    let prefixes = SliceTransform::create(
        "half",
        |key| &key[..key.len() / 2],
        Some(|key: &[u8]| key.len() > 3),
    );
    options.set_prefix_extractor(prefixes);
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    options.set_block_based_table_factory(&table);
}

fn compact(db: &DB, family: &impl AsColumnFamilyRef) {
    let mut all = CompactOptions::default();
    all.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    db.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &all);
    db.wait_for_compact(&WaitForCompactOptions::default())
        .expect("no background error");
}

fn default_family(db: &DB) -> &impl AsColumnFamilyRef {
    db.cf_handle("default").expect("it is open")
}

type Content = Vec<(Box<[u8]>, Box<[u8]>)>;

fn content(db: &DB, read: ReadOptions) -> Content {
    let all = db.iterator_opt(IteratorMode::Start, read);
    all.collect::<Result<_, _>>().expect("readable")
}

/// Writes a random history and returns what it reads after each compaction, also through snapshots.
fn history(path: &Path, options: &Options, mut seed: u64) -> Vec<Content> {
    let default = [ColumnFamilyDescriptor::new("default", options.clone())];
    let db = DB::open_cf_descriptors(options, path, default).expect("a new database");
    let mut draw = |below: u64| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    let mut snapshots = Vec::new();
    let mut contents = Vec::new();
    for _ in 0..ROUNDS {
        for _ in 0..KEYS {
            let (key, value) = (format!("key{:05}", draw(KEYS)), draw(1000).to_string());
            match draw(8) {
                0 => db.delete(key),
                1..=3 => db.put(key, value),
                _ => db.merge(key, value),
            }
            .expect("room");
            if draw(100) == 0 {
                snapshots.push(db.snapshot());
            }
        }
        db.flush().expect("room");
        compact(&db, default_family(&db));
        for snapshot in &snapshots {
            let mut read = ReadOptions::default();
            read.set_snapshot(snapshot);
            contents.push(content(&db, read));
        }
        contents.push(content(&db, ReadOptions::default()));
    }
    contents
}

#[test]
fn databases_are_equal_with_and_without() {
    type Set = fn(&mut Options);
    let (calls, folder) = (Arc::default(), tempfile::tempdir().expect("a folder"));
    let sets: [(&str, bool, Set); 5] = [
        ("operator", false, |_| ()),
        ("factory", true, |options| {
            options.set_compaction_filter_factory(Factory)
        }),
        ("collector", false, |options| {
            options.add_compact_on_deletion_collector_factory(16, 4, 0.1);
        }),
        ("prefixes", false, set_prefixes),
        ("comparator", false, |options| {
            options.set_comparator("alias", Box::new(|a: &[u8], b: &[u8]| a.cmp(b)));
        }),
    ];
    for (seed, (name, has_factory, set)) in (1..).zip(sets) {
        let mut options = options();
        set_operator(&mut options);
        set(&mut options);
        if !has_factory {
            set_filter(&mut options, &calls);
        }
        let without = history(&folder.path().join(name), &options, seed);
        let service = service();
        attach(&mut options, &service).expect(name);
        let with = history(&folder.path().join(format!("{name}-with")), &options, seed);
        assert!(with == without, "{name}");
        let stats = service.stats();
        let missed = (
            stats.jobs_declined,
            stats.jobs_failed,
            stats.jobs_filtered_again,
        );
        assert_eq!(missed, (0, 0, 0), "{name}: {stats}");
        assert!(stats.jobs_with_plugins >= ROUNDS, "{name}: {stats}");
    }
}

/// Writes two files of one key with operands, and compacts them.
fn merges(db: &DB, family: &impl AsColumnFamilyRef) {
    for value in ["a", "b"] {
        db.merge_cf(family, "key", value).expect("room");
        db.flush_cf(family).expect("room");
    }
    compact(db, family);
    let merged = db.get_cf(family, "key").expect("readable");
    assert!(merged.expect("it is there").ends_with(b"+a+b"));
}

fn declined(service: &Service, reason: &str) -> u64 {
    let stats = service.stats();
    let by_reason = stats.jobs_declined_by_reason;
    by_reason.get(reason).copied().unwrap_or_default()
}

/// RocksDB compacts the lowest level a second time if that is forced.
fn assert_all_with_plugins(service: &Service) {
    let stats = service.stats();
    assert!(stats.jobs_done > 0);
    assert_eq!(stats.jobs_with_plugins, stats.jobs_done);
    assert_eq!(stats.jobs_declined, 0);
}

#[test]
fn column_families_have_their_own_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    let (service, calls) = (service(), Arc::default());
    let [mut database, mut plain, mut counts] = [(); 3].map(|()| options());
    database.create_missing_column_families(true);
    set_filter(&mut plain, &calls);
    set_operator(&mut counts);
    let families = [("default", &plain), ("counts", &counts)];
    let attachment = attach_families(&mut database, &families, &service).expect("attached");
    let opened = families.map(|(name, options)| ColumnFamilyDescriptor::new(name, options.clone()));
    let mut db = DB::open_cf_descriptors(&database, folder.path(), opened).expect("a database");
    merges(&db, db.cf_handle("counts").expect("it is open"));
    for value in ["a", "b"] {
        db.put("key", value).expect("room");
        db.flush().expect("room");
    }
    compact(&db, default_family(&db));
    assert!(calls.load(Ordering::Relaxed) > 0);
    assert_all_with_plugins(&service);

    db.create_cf("made", &counts).expect("a column family");
    let made = db.cf_handle("made").expect("it is open");
    merges(&db, made);
    assert_eq!(declined(&service, "merge-operands"), 1);
    attachment.add_column_family(&db, made, &counts);
    merges(&db, made);
    assert_eq!(service.stats().jobs_declined, 1);
    assert!(service.stats().jobs_with_plugins > 2);
}

fn open(options: &Options, path: &Path) -> DB {
    let default = [ColumnFamilyDescriptor::new("default", options.clone())];
    DB::open_cf_descriptors(options, path, default).expect("a database")
}

#[test]
fn options_are_attached_twice_and_shared() {
    let folder = tempfile::tempdir().expect("a folder");
    let services = [service(), service()];
    let mut options = options();
    set_operator(&mut options);
    for service in &services {
        attach(&mut options, service).expect("attached");
    }
    let databases = ["one", "other"].map(|name| open(&options, &folder.path().join(name)));
    for db in &databases {
        merges(db, default_family(db));
    }
    let done = services.map(|service| service.stats().jobs_with_plugins);
    assert_eq!(done, [0, 2]);
}

#[test]
fn a_database_that_is_open_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service();
    let mut options = options();
    set_operator(&mut options);
    {
        let db = open(&options, folder.path());
        attach(&mut options, &service).expect("attached");
        merges(&db, default_family(&db));
        assert_eq!(service.stats().jobs_done, 0);
    }
    // The next one keeps the service.
    let db = open(&options, folder.path());
    drop(options);
    merges(&db, default_family(&db));
    assert!(service.stats().jobs_with_plugins > 0);
}

#[test]
fn an_operator_that_is_set_later_is_not_called_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service();
    let mut options = options();
    options.set_merge_operator("early", |_, _, _| None, |_, _, _| None);
    attach(&mut options, &service).expect("attached");
    set_operator(&mut options);
    let db = open(&options, folder.path());
    merges(&db, default_family(&db));
    assert_eq!(declined(&service, "plugin-mismatch"), 1);
    assert_eq!(service.stats().jobs_done, 0);
}

#[test]
fn attached_options_live_as_long_as_a_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service();
    let [attached, others] = [(); 2].map(|()| Arc::<AtomicU64>::default());
    {
        let mut database = options();
        let mut own = options();
        set_filter(&mut own, &attached);
        attach_families(&mut database, &[("default", &own)], &service).expect("attached");
        drop(own);
        // The name is the same, so these are not told apart.
        let mut other = options();
        set_filter(&mut other, &others);
        let default = [ColumnFamilyDescriptor::new("default", other)];
        let db = DB::open_cf_descriptors(&database, folder.path(), default).expect("a database");
        for _ in 0..2 {
            db.put("key", "value").expect("room");
            db.flush().expect("room");
        }
        compact(&db, default_family(&db));
        assert_all_with_plugins(&service);
        assert!(attached.load(Ordering::Relaxed) > 0);
        assert_eq!(others.load(Ordering::Relaxed), 0);
    }
    for count in [attached, others] {
        assert_eq!(Arc::strong_count(&count), 1, "options are left");
    }
}

#[test]
fn nothing_is_left_of_options_that_keep_their_service() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service();
    let calls = Arc::default();
    {
        let mut options = options();
        set_filter(&mut options, &calls);
        attach(&mut options, &service).expect("attached");
        let attachment = attach(&mut options, &service).expect("attached");
        let mut db = open(&options, folder.path());
        db.create_cf("made", &options).expect("a column family");
        let made = db.cf_handle("made").expect("it is open");
        attachment.add_column_family(&db, made, &options);
        assert!(Arc::strong_count(&calls) > 1);
    }
    assert_eq!(Arc::strong_count(&calls), 1, "options are left");
}

#[test]
fn options_that_cannot_be_served_stay_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = service();
    let refused = |name: &str, word: &str, set: &dyn Fn(&mut Options)| {
        let mut options = options();
        set(&mut options);
        let error = attach(&mut options, &service).expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
        let db = open(&options, &folder.path().join(name));
        for _ in 0..2 {
            db.put("key", "value").expect("room");
            db.flush().expect("room");
        }
        compact(&db, default_family(&db));
        let stats = service.stats();
        assert_eq!((stats.jobs_done, stats.jobs_declined), (0, 0), "{stats}");
    };
    refused("env", "Env", &|options| {
        options.set_env(&Env::mem_env().expect("an Env"));
    });
    refused("paths", "paths", &|options| {
        let paths = ["a", "b"].map(|name| DBPath::new(folder.path().join(name), 1 << 30));
        options.set_db_paths(&paths.map(|path| path.expect("a path")));
    });
    refused("comparator", "comparator", &|options| {
        options.set_comparator(
            "leveldb.BytewiseComparator",
            Box::new(|a: &[u8], b: &[u8]| a.cmp(b)),
        );
    });
}
