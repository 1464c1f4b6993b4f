//! Options of the database and of column families that Rockmill leaves to RocksDB, read from the
//! OPTIONS file.

use std::cmp::Ordering;
use std::ffi::CStr;

use rockmill_tests::content::Content;
use rockmill_tests::harness::{
    assert_declined, assert_jobs_add_up, fill, open, options, put, service, wait_for_compact,
};
use rockmill_tests::reasons::{
    BLOB_FILES, COMPACTION_FILTER, COMPACTION_STYLE, COMPARATOR, COMPRESSION,
    COMPRESSION_DICTIONARY, INGEST_BEHIND, PREFIX_EXTRACTOR, SST_PARTITIONER,
    TABLE_PROPERTY_COLLECTORS, TEMPERATURE, TIERING, TWO_WRITE_QUEUES, UNORDERED_WRITE,
    USER_TIMESTAMPS,
};
use rust_rocksdb::compaction_filter::{CompactionFilter, Decision};
use rust_rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rust_rocksdb::{
    DB, DBCompactionStyle, DBCompressionType, FifoCompactOptions, FileChecksumGenFactory, Options,
    ReadOptions, SliceTransform, SstPartitionerFactory, Temperature,
};

use crate::trial::{declines, plain, run_checked, takes, with_table};

const TIMESTAMP_BYTES: usize = 8;

/// Removes every tenth key.
fn removes(key: &[u8]) -> bool {
    key.ends_with(b"0")
}

/// [`plain`] as the filter leaves it.
fn filtered(db: &DB) -> Content {
    let mut content = plain(db);
    content.retain(|key, _| !removes(key));
    content
}

fn decide(key: &[u8]) -> Decision {
    if removes(key) {
        Decision::Remove
    } else {
        Decision::Keep
    }
}

struct TenthKeys;

impl CompactionFilter for TenthKeys {
    fn filter(&mut self, _level: u32, key: &[u8], _value: &[u8]) -> Decision {
        decide(key)
    }

    fn name(&self) -> &CStr {
        c"tenth-keys"
    }
}

struct TenthKeysFactory;

impl CompactionFilterFactory for TenthKeysFactory {
    type Filter = TenthKeys;

    fn create(&mut self, _context: CompactionFilterContext) -> TenthKeys {
        TenthKeys
    }

    fn name(&self) -> &CStr {
        c"tenth-keys-factory"
    }
}

#[test]
fn a_compaction_filter() {
    declines(
        &[COMPACTION_FILTER],
        |options| options.set_compaction_filter("tenth-keys", |_, key, _| decide(key)),
        filtered,
    );
}

#[test]
fn a_compaction_filter_factory() {
    declines(
        &[COMPACTION_FILTER],
        |options| options.set_compaction_filter_factory(TenthKeysFactory),
        filtered,
    );
}

#[test]
fn blob_files() {
    declines(
        &[BLOB_FILES],
        |options| {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(1);
        },
        plain,
    );
}

#[test]
fn blob_garbage_collection() {
    declines(
        &[BLOB_FILES],
        |options| {
            options.set_enable_blob_files(true);
            options.set_enable_blob_gc(true);
            options.set_blob_gc_age_cutoff(1.0);
        },
        plain,
    );
}

#[test]
fn a_custom_comparator() {
    // Backward scans give the content in reverse, so only lookups are compared.
    let check = |db: &DB, content: &Content| {
        for (key, value) in content {
            assert_eq!(db.get(key).expect("get").as_ref(), Some(value));
        }
        let pairs = db.iterator(rust_rocksdb::IteratorMode::Start).count();
        assert_eq!(pairs, content.len());
    };
    let reverse = |options: &mut Options| {
        options.set_comparator("reverse", Box::new(|a: &[u8], b: &[u8]| b.cmp(a)));
    };
    assert_declined(&run_checked(reverse, plain, check), &[COMPARATOR]);
}

/// A user key and, at its end, a timestamp.
fn split(key: &[u8]) -> (&[u8], &[u8]) {
    key.split_at(key.len() - TIMESTAMP_BYTES)
}

fn compare_timestamps(a: &[u8], b: &[u8]) -> Ordering {
    a.cmp(b)
}

/// Ascending keys, newest timestamp first.
fn compare_with_timestamps(a: &[u8], b: &[u8]) -> Ordering {
    let ((a, a_time), (b, b_time)) = (split(a), split(b));
    a.cmp(b).then_with(|| compare_timestamps(b_time, a_time))
}

fn compare_keys(a: &[u8], a_has_time: bool, b: &[u8], b_has_time: bool) -> Ordering {
    let key = |key, has_time| if has_time { split(key).0 } else { key };
    key(a, a_has_time).cmp(key(b, b_has_time))
}

/// Compacts keys with timestamps under a comparator of this name.
fn compact_timestamps(comparator: &str) -> rockmill::Stats {
    let timestamps = |options: &mut Options| {
        options.set_comparator_with_ts(
            comparator,
            TIMESTAMP_BYTES,
            Box::new(compare_with_timestamps),
            Box::new(compare_timestamps),
            Box::new(compare_keys),
        );
    };
    let write = |db: &DB| {
        let mut content = Content::new();
        for time in 1..4_u64 {
            for number in 0..300 {
                let (key, value) = (format!("key{number}"), format!("value{time}"));
                db.put_with_ts(&key, time.to_be_bytes(), &value)
                    .expect("put");
                content.insert(key.into_bytes(), value.into_bytes());
            }
            db.flush().expect("flush");
        }
        content
    };
    let check = |db: &DB, content: &Content| {
        let mut latest = ReadOptions::default();
        latest.set_timestamp(u64::MAX.to_be_bytes());
        for (key, value) in content {
            assert_eq!(db.get_opt(key, &latest).expect("get").as_ref(), Some(value));
        }
    };
    run_checked(timestamps, write, check)
}

#[test]
fn user_defined_timestamps() {
    // RocksDB's own comparators with timestamps have this suffix (`comparator.cc:ComparatorWithU64TsImpl`).
    let stats = compact_timestamps("leveldb.BytewiseComparator.u64ts");
    assert_declined(&stats, &[USER_TIMESTAMPS]);
}

#[test]
fn user_defined_timestamps_under_an_unknown_comparator() {
    // The MANIFEST tells that the files' keys have timestamps, whatever the comparator is.
    let stats = compact_timestamps("bytewise, then timestamps");
    assert_declined(&stats, &[USER_TIMESTAMPS]);
}

fn universal(options: &mut Options) {
    options.set_compaction_style(DBCompactionStyle::Universal);
}

#[test]
fn ingest_behind() {
    declines(
        &[INGEST_BEHIND],
        |options| {
            universal(options);
            options.set_allow_ingest_behind(true);
        },
        plain,
    );
}

#[test]
fn ingest_behind_of_one_column_family() {
    declines(
        &[INGEST_BEHIND],
        |options| {
            universal(options);
            options.set_cf_allow_ingest_behind(true);
        },
        plain,
    );
}

#[test]
fn universal_style_is_no_reason() {
    takes(universal, plain);
}

#[test]
fn two_write_queues() {
    declines(
        &[TWO_WRITE_QUEUES],
        |options| options.set_two_write_queues(true),
        plain,
    );
}

#[test]
fn unordered_write() {
    declines(
        &[UNORDERED_WRITE],
        |options| options.set_unordered_write(true),
        plain,
    );
}

#[test]
fn an_sst_partitioner() {
    let factory = SstPartitionerFactory::fixed_prefix("key000000".len());
    declines(
        &[SST_PARTITIONER],
        |options| options.set_sst_partitioner_factory(&factory),
        plain,
    );
}

#[test]
fn table_property_collectors() {
    const WINDOW: usize = 128;
    declines(
        &[TABLE_PROPERTY_COLLECTORS],
        |options| options.add_compact_on_deletion_collector_factory(WINDOW, WINDOW, 0.9),
        plain,
    );
}

#[test]
fn fifo_style() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let mut options = options(&service);
    let mut fifo = FifoCompactOptions::default();
    fifo.set_allow_compaction(true);
    options.set_fifo_compaction_options(&fifo);
    options.set_compaction_style(DBCompactionStyle::Fifo);
    options.set_disable_auto_compactions(false);
    let db = open(&options, directory.path());
    let mut content = Content::new();
    // So many flushes that RocksDB merges files within L0.
    for number in 0..12_u8 {
        put(&db, &mut content, b"overwritten each time", &[number]);
        put(&db, &mut content, &[number], b"value");
        db.flush().expect("flush");
    }
    wait_for_compact(&db);
    rockmill_tests::content::assert_content(&db, &content);
    assert_declined(&service.stats(), &[COMPACTION_STYLE]);
    assert_jobs_add_up(&service.stats());
}

#[test]
fn compression_that_rockmill_does_not_write() {
    let bzip2 = DBCompressionType::Bz2;
    declines(
        &[COMPRESSION],
        |options| options.set_compression_type(bzip2),
        plain,
    );
    declines(
        &[COMPRESSION],
        |options| options.set_bottommost_compression_type(bzip2),
        plain,
    );
    let levels = [DBCompressionType::None, bzip2];
    declines(
        &[COMPRESSION],
        |options| options.set_compression_per_level(&levels),
        plain,
    );
}

#[test]
fn file_checksums_by_crc32c_are_no_reason() {
    let factory = FileChecksumGenFactory::crc32c();
    takes(
        |options| options.set_file_checksum_gen_factory(&factory),
        |db| {
            let content = plain(db);
            rockmill_tests::harness::compact_everything(db);
            db.verify_file_checksums()
                .expect("Rockmill's checksums hold");
            content
        },
    );
}

#[test]
fn internal_times_are_preserved() {
    const DAY_SECONDS: u64 = 86_400;
    declines(
        &[TIERING],
        |options| options.set_preserve_internal_time_seconds(DAY_SECONDS),
        plain,
    );
    declines(
        &[TIERING],
        |options| {
            universal(options);
            options.set_preclude_last_level_data_seconds(DAY_SECONDS);
        },
        plain,
    );
}

#[test]
fn temperatures() {
    let warm = Temperature::Warm as i32;
    declines(
        &[TEMPERATURE],
        |options| options.set_last_level_temperature(warm),
        plain,
    );
    declines(
        &[TEMPERATURE],
        |options| options.set_default_write_temperature(warm),
        plain,
    );
}

#[test]
fn a_custom_prefix_extractor() {
    declines(
        &[PREFIX_EXTRACTOR],
        |options| {
            let first_half =
                SliceTransform::create("first-half", |key| &key[..key.len() / 2], None);
            options.set_prefix_extractor(first_half);
            with_table(|t| t.set_bloom_filter(10.0, false))(options);
        },
        plain,
    );
}

#[test]
fn a_compression_dictionary() {
    declines(
        &[COMPRESSION_DICTIONARY],
        |options| {
            options.set_compression_type(DBCompressionType::Zstd);
            options.set_compression_options(-14, i16::MAX.into(), 0, 4 << 10);
        },
        plain,
    );
}

#[test]
fn paranoid_file_checks_are_no_reason() {
    takes(|options| options.set_paranoid_file_checks(true), plain);
}

#[test]
fn outputs_checked_in_every_way_are_no_reason() {
    /// Every kind of check, in local and in remote compactions (`VerifyOutputFlags::kVerifyAll`,
    /// but for the sign, which the binding's type cannot hold).
    const EVERY_CHECK: i32 = i32::MAX;
    takes(
        |options| options.set_verify_output_flags(EVERY_CHECK),
        plain,
    );
}

#[test]
fn many_column_families_are_told_apart() {
    // Only the family with a filter goes local, though both share one OPTIONS file.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let mut with_filter = Options::default();
    with_filter.set_compaction_filter("tenth-keys", |_, key, _| decide(key));
    let mut db_options = options(&service);
    db_options.create_missing_column_families(true);
    let families = [
        ("default", options(&service)),
        ("a]=b#\\ \u{1f980}", with_filter),
    ];
    let db = DB::open_cf_with_opts(&db_options, directory.path(), families).expect("open");
    let content = fill(&db, 1_000, 1);
    let family = db.cf_handle("a]=b#\\ \u{1f980}").expect("open");
    for (key, value) in &content {
        db.put_cf(family, key, value).expect("put");
    }
    db.flush_cf(family).expect("flush");
    db.delete_cf(family, b"nothing").expect("delete");
    db.flush_cf(family).expect("flush");
    rockmill_tests::harness::compact_everything(&db);
    db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
    let stats = service.stats();
    assert!(stats.jobs_done > 0, "{stats}");
    assert!(stats.declines.contains_key(COMPACTION_FILTER), "{stats}");
    rockmill_tests::content::assert_content(&db, &content);
    let mut left = content.clone();
    left.retain(|key, _| !removes(key));
    rockmill_tests::content::check_family(&db, family, &left).expect("filtered");
}
