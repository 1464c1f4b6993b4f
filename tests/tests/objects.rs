//! Merge operators and compaction filters of an application in Rust, which it registers by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill::{FilterDecision, Service};
use rust_rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, CompactOptions, CompactionDecision, DB,
    DBCompressionType, IteratorMode, MergeOperands, Options, SliceTransform, WaitForCompactOptions,
    WriteBatch,
};

const KEYS: u32 = 300;
const ROUNDS: u64 = 5;

fn joined<'a>(base: Option<&[u8]>, operands: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = base.map(<[u8]>::to_vec).unwrap_or_default();
    for operand in operands {
        joined.push(b'+');
        joined.extend_from_slice(operand);
    }
    joined
}

/// What a filter makes of a value.
enum Sieved {
    Keep,
    Remove,
    Change,
}

fn sieved(value: &[u8]) -> Sieved {
    match value.first() {
        Some(b'0'..=b'1') => Sieved::Remove,
        Some(b'2'..=b'3') => Sieved::Change,
        _ => Sieved::Keep,
    }
}

const CHANGED: &[u8] = b"changed";

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let full = |_: &[u8], base: Option<&[u8]>, operands: &MergeOperands| {
        Some(joined(base, operands.iter()))
    };
    let partial =
        |_: &[u8], _: Option<&[u8]>, operands: &MergeOperands| Some(joined(None, operands.iter()));
    options.set_merge_operator("joined", full, partial);
    options.set_compaction_filter("sieve", |_, _, value| match sieved(value) {
        Sieved::Keep => CompactionDecision::Keep,
        Sieved::Remove => CompactionDecision::Remove,
        Sieved::Change => CompactionDecision::Change(CHANGED),
    });
    options
}

fn write(db: &DB, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut snapshots = Vec::new();
    for _ in 0..ROUNDS {
        for _ in 0..KEYS {
            let key = format!("key{:05}", random.random_range(0..KEYS));
            let value = random.random_range(0..1000_u32).to_string();
            match random.random_range(0..8) {
                0 => db.delete(key).expect("delete"),
                1..=3 => db.put(key, value).expect("put"),
                _ => db.merge(key, value).expect("merge"),
            }
            if random.random_range(0..200) == 0 {
                snapshots.push(db.snapshot());
            }
        }
        db.flush().expect("flush");
        compact(db);
    }
    drop(snapshots);
    compact(db);
}

fn compact(db: &DB) {
    let mut all = CompactOptions::default();
    all.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &all);
    db.wait_for_compact(&WaitForCompactOptions::default())
        .expect("no background error");
}

#[test]
fn filters_have_the_prefixes_of_a_registered_extractor() {
    const NAME: &str = "first-half";
    let prefix_len = |key: &[u8]| (key.len() > 3).then_some(key.len() / 2);
    let tables = [false, true].map(|is_with| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_disable_auto_compactions(true);
        let transform = SliceTransform::create(
            NAME,
            |key| &key[..key.len() / 2],
            Some(|key: &[u8]| key.len() > 3),
        );
        options.set_prefix_extractor(transform);
        let mut table = BlockBasedOptions::default();
        table.set_bloom_filter(10.0, false);
        options.set_block_based_table_factory(&table);
        let rockmill = Service::builder()
            .min_job_bytes(0)
            .prefix_extractor(NAME, prefix_len)
            .build()
            .expect("sound settings");
        if is_with {
            options.set_compaction_service(rockmill.clone());
        }
        let db = DB::open(&options, folder.path()).expect("a database");
        for round in 0..3 {
            for number in 0..5000_u32 {
                let key = format!("{:x}", number * 31 + round);
                db.put(key, b"value").expect("put");
            }
            db.flush().expect("flush");
        }
        compact(&db);
        let stats = rockmill.stats();
        assert_eq!(stats.jobs_done > 0, is_with, "{stats:?}");
        assert_eq!(
            (stats.jobs_declined, stats.jobs_failed),
            (0, 0),
            "{stats:?}"
        );
        let all = content(&db);
        for (key, _) in all.iter().step_by(17) {
            let mut seek = rust_rocksdb::ReadOptions::default();
            seek.set_prefix_same_as_start(true);
            let mode = IteratorMode::From(key, rust_rocksdb::Direction::Forward);
            let found = db.iterator_opt(mode, seek).next().expect("it is there");
            assert_eq!(&found.expect("readable").0, key);
        }
        let files = db.live_files().expect("live files");
        let hashes = files.iter().map(|file| {
            let path = folder.path().join(file.name.trim_start_matches('/'));
            let properties = rockmill_tests::internal::properties(&path).expect("readable");
            assert_eq!(properties.prefix_extractor_name, NAME.as_bytes());
            properties.num_filter_entries
        });
        (all, hashes.sum::<u64>())
    });
    assert!(tables[0] == tables[1], "{} {}", tables[0].1, tables[1].1);
}

type KeyValue = (Box<[u8]>, Box<[u8]>);

fn content(db: &DB) -> Vec<KeyValue> {
    let all = db.iterator(IteratorMode::Start);
    all.collect::<Result<_, _>>().expect("they can be read")
}

#[test]
fn registered_operators_and_filters_make_what_rocksdb_makes() {
    let folder = tempfile::tempdir().expect("a folder");
    let seed = rand::rng().random();
    println!("seed {seed}");
    let without = DB::open(&options(), folder.path().join("without")).expect("a database");
    write(&without, seed);
    let filtered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&filtered);
    let rockmill = Service::builder()
        .min_job_bytes(0)
        .custom_merge_operator(
            "joined",
            |_, base, operands| Some(joined(base, operands.iter().copied())),
            |_, operands| Some(joined(None, operands.iter().copied())),
        )
        .compaction_filter("sieve", move |context| {
            assert!(context.is_manual_compaction);
            let count = Arc::clone(&count);
            Some(Box::new(move |_, value| {
                count.fetch_add(1, Ordering::Relaxed);
                match sieved(value) {
                    Sieved::Keep => FilterDecision::Keep,
                    Sieved::Remove => FilterDecision::Remove,
                    Sieved::Change => FilterDecision::ChangeValue(CHANGED.to_vec()),
                }
            }))
        })
        .build()
        .expect("settings");
    let mut with = options();
    with.set_compaction_service(rockmill.clone());
    let with = DB::open(&with, folder.path().join("with")).expect("a database");
    write(&with, seed);
    assert_eq!(content(&with), content(&without), "seed {seed}");
    let stats = rockmill.stats();
    assert_eq!((stats.jobs_declined, stats.jobs_failed), (0, 0), "{stats}");
    assert!(stats.jobs_with_plugins >= ROUNDS, "{stats}");
    assert!(filtered.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_job_that_needs_what_is_not_registered_is_declined() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = |builder: rockmill::Builder| builder.min_job_bytes(0).build().expect("settings");
    let operator = |builder: rockmill::Builder| {
        builder.custom_merge_operator("joined", |_, _, _| None, |_, _| panic!("on purpose"))
    };
    let no_filter = |builder: rockmill::Builder| builder.compaction_filter("sieve", |_| None);
    for (builder, reason) in [
        (operator(Service::builder()), "compaction-filter"),
        (no_filter(Service::builder()), "merge-operands"),
        (no_filter(operator(Service::builder())), "plugin-failed"),
    ] {
        let rockmill = build(builder);
        let mut options = options();
        options.set_compaction_service(rockmill.clone());
        let db = DB::open(&options, folder.path().join(reason)).expect("a database");
        for value in ["7", "8"] {
            db.merge("key", value).expect("merge");
            db.flush().expect("flush");
        }
        compact(&db);
        let stats = rockmill.stats();
        let declined = stats.jobs_declined_by_reason.get(reason);
        assert!(declined.is_some_and(|&jobs| jobs > 0), "{reason}: {stats}");
        assert_eq!(
            db.get("key").expect("a read").as_deref(),
            Some(&b"+7+8"[..])
        );
    }
}

#[test]
fn keys_are_compacted_in_the_order_of_a_comparator() {
    const OWN: &str = "newest-first";
    let seed = rockmill_tests::seed::first_seed();
    for name in ["rocksdb.ReverseBytewiseComparator", OWN] {
        let contents = [false, true].map(|is_with| {
            let mut rng = StdRng::seed_from_u64(seed);
            let folder = tempfile::tempdir().expect("a folder");
            let mut options = Options::default();
            options.create_if_missing(true);
            options.set_disable_auto_compactions(true);
            options.set_num_levels(4);
            options.set_target_file_size_base(16 << 10);
            options.set_compression_type(DBCompressionType::None);
            options.set_comparator(name, Box::new(|a: &[u8], b: &[u8]| b.cmp(a)));
            let rockmill = Service::builder()
                .min_job_bytes(0)
                .comparator(&format!("{OWN}=reverse"))
                .build()
                .expect("sound settings");
            if is_with {
                options.set_compaction_service(rockmill.clone());
            }
            let db = DB::open(&options, folder.path()).expect("a database");
            let mut read = Vec::new();
            for round in 0..ROUNDS {
                for _ in 0..2000 {
                    let key = format!("{:06}", rng.random_range(0..9000_u32));
                    let key = &key[..rng.random_range(4..=6)];
                    match rng.random_bool(0.8) {
                        true => db.put(key, format!("{round}{key:0>60}")).expect("put"),
                        false => db.delete(key).expect("delete"),
                    }
                }
                let [from, to] = [(); 2].map(|()| format!("{:06}", rng.random_range(0..9000_u32)));
                if to < from {
                    let mut batch = WriteBatch::default();
                    batch.delete_range(from, to);
                    db.write(&batch).expect("delete range");
                }
                db.flush().expect("flush");
                if round % 2 == 1 {
                    compact(&db);
                }
                let all = content(&db);
                assert!(all.windows(2).all(|pair| pair[0].0 > pair[1].0));
                read.push(all);
            }
            compact(&db);
            let stats = rockmill.stats();
            assert_eq!(stats.jobs_done > 1, is_with, "seed {seed}: {stats:?}");
            let failures = (stats.jobs_declined, stats.jobs_failed);
            assert_eq!(failures, (0, 0), "seed {seed}: {stats:?}");
            read.push(content(&db));
            let files = db.live_files().expect("live files");
            assert!(files.len() > 2, "seed {seed}");
            for file in files {
                let path = folder.path().join(file.name.trim_start_matches('/'));
                let properties = rockmill_tests::internal::properties(&path);
                if name != OWN {
                    let found = properties.expect("readable").comparator_name;
                    assert_eq!(found, name.as_bytes());
                }
            }
            read
        });
        assert!(contents[0] == contents[1], "{name}, seed {seed}");
    }
}
