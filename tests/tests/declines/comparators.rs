//! Other key orders, and keys with timestamps.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

use rockmill_tests::content::Content;
use rockmill_tests::harness::{assert_declined, assert_done, compact_everything, open, options};
use rockmill_tests::reasons::{COMPARATOR, USER_TIMESTAMPS};
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, DB, IteratorMode, Options, ReadOptions,
};

use crate::trial::{plain, run_checked, with_text};

const TIMESTAMP_BYTES: usize = 8;

#[test]
fn a_custom_comparator() {
    // Backward scans return the content in reverse, so only lookups are compared.
    let check = |db: &DB, content: &Content| {
        for (key, value) in content {
            assert_eq!(db.get(key).expect("get").as_ref(), Some(value));
        }
        let pairs = db.iterator(IteratorMode::Start).count();
        assert_eq!(pairs, content.len());
    };
    let reverse = |name: &'static str| {
        move |options: &mut Options| {
            options.set_comparator(name, Box::new(|a: &[u8], b: &[u8]| b.cmp(a)));
        }
    };
    assert_declined(
        &run_checked(reverse("reverse"), plain, check),
        &[COMPARATOR],
    );
    // RocksDB has this one.
    let own = reverse("rocksdb.ReverseBytewiseComparator");
    assert_done(&run_checked(own, plain, check));
}

/// Bytes of each key of a comparator that knows no others.
const KEY_BYTES: usize = 8;

#[test]
fn a_stated_comparator_is_given_keys_of_the_application_alone() {
    const KEYS: u64 = 600;
    for (order, is_reverse) in [("bytewise", false), ("reverse", true)] {
        for shortening in ["kShortenSeparators", "kShortenSeparatorsAndSuccessor"] {
            let other: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
            let service = rockmill::Service::builder()
                .min_job_bytes(0)
                .comparator(&format!("eight={order}"))
                .build()
                .expect("the settings are good");
            let mut options = options(&service);
            // Blocks of one or two entries.
            let table =
                "index_shortening={};block_size=64;data_block_index_type=kDataBlockBinaryAndHash";
            let table = table.replace("{}", shortening);
            with_text(&format!("block_based_table_factory={{{table}}}"))(&mut options);
            options.set_target_file_size_base(8 << 10);
            let seen = Arc::clone(&other);
            let compare = move |a: &[u8], b: &[u8]| {
                let wrong = [a, b].into_iter().find(|key| key.len() != KEY_BYTES);
                if let Some(wrong) = wrong {
                    *seen.lock().expect("no panic") = Some(wrong.to_vec());
                }
                if is_reverse { b.cmp(a) } else { a.cmp(b) }
            };
            options.set_comparator("eight", Box::new(compare));
            let directory = tempfile::tempdir().expect("a temporary directory");
            let db = open(&options, directory.path());
            // Neighbours differ in an early byte, so that separators could be short.
            let key = |number: u64| (number << 40).to_be_bytes();
            for start in 0..3 {
                for number in (start..KEYS).step_by(3) {
                    db.put(key(number), number.to_string()).expect("put");
                }
                db.flush().expect("flush");
            }
            compact_everything(&db);
            assert_done(&service.stats());
            assert!(db.live_files().expect("live files").len() > 1);
            for number in 0..KEYS {
                let value = db.get(key(number)).expect("get");
                assert_eq!(value, Some(number.to_string().into_bytes()), "{number}");
            }
            let numbers = db.iterator(IteratorMode::Start).flatten();
            let numbers: Vec<_> = numbers.map(|(key, _)| key).collect();
            let mut expected: Vec<_> = (0..KEYS).map(|number| Box::from(key(number))).collect();
            if is_reverse {
                expected.reverse();
            }
            assert_eq!(numbers, expected);
            drop(db);
            let other = other.lock().expect("no panic");
            assert_eq!(*other, None, "{order}, {shortening}");
        }
    }
}

#[test]
fn bounds_of_deeper_files_show_a_wrong_statement() {
    let service = rockmill::Service::builder()
        .min_job_bytes(0)
        .comparator("numeric=bytewise")
        .build()
        .expect("the settings are good");
    let mut options = options(&service);
    options.set_num_levels(4);
    options.set_level_compaction_dynamic_level_bytes(false);
    let number = |key: &[u8]| -> u64 { String::from_utf8_lossy(key).parse().expect("a number") };
    let compare = move |a: &[u8], b: &[u8]| number(a).cmp(&number(b));
    options.set_comparator("numeric", Box::new(compare));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = open(&options, directory.path());
    let write = |keys: &[&str]| {
        for key in keys {
            db.put(key, "value").expect("put");
        }
        db.flush().expect("flush");
    };
    // Each file is in the order of bytes, but the two are not.
    let mut down = CompactOptions::default();
    down.set_bottommost_level_compaction(BottommostLevelCompaction::Skip);
    down.set_change_level(true);
    down.set_target_level(3);
    for keys in [&["5", "6"][..], &["10", "70", "99"]] {
        write(keys);
        db.compact_range_opt(Some(keys[0]), keys.last().copied(), &down);
    }
    let levels = db.live_files().expect("live files");
    let levels: Vec<_> = levels.iter().map(|file| file.level).collect();
    assert_eq!(levels, [3, 3]);
    assert_eq!(service.stats().jobs_offered, 0);
    // No deeper file seems to have this key, if their order is taken for that of bytes.
    db.delete("70").expect("delete");
    write(&["55", "71"]);
    write(&["55", "73"]);
    compact_everything(&db);
    let stats = service.stats();
    // Jobs to the lowest level do not have both files.
    assert!(stats.jobs_declined > 0, "{stats}");
    let reasons: Vec<_> = stats.jobs_declined_by_reason.keys().collect();
    assert_eq!(reasons, [COMPARATOR], "{stats}");
    assert_eq!(db.get("70").expect("get"), None);
}

/// Splits a key into the user key and the timestamp at its end.
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

/// Compacts keys with timestamps under a comparator with this name.
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
    // The MANIFEST shows that the files' keys have timestamps, whatever the comparator is.
    let stats = compact_timestamps("bytewise, then timestamps");
    assert_declined(&stats, &[USER_TIMESTAMPS]);
}
