//! Other key orders, and keys with timestamps.

use std::cmp::Ordering;

use rockmill_tests::content::Content;
use rockmill_tests::harness::{assert_declined, assert_done};
use rockmill_tests::reasons::{COMPARATOR, USER_TIMESTAMPS};
use rust_rocksdb::{DB, Options, ReadOptions};

use crate::trial::{plain, run_checked};

const TIMESTAMP_BYTES: usize = 8;

#[test]
fn a_custom_comparator() {
    // Backward scans return the content in reverse, so only lookups are compared.
    let check = |db: &DB, content: &Content| {
        for (key, value) in content {
            assert_eq!(db.get(key).expect("get").as_ref(), Some(value));
        }
        let pairs = db.iterator(rust_rocksdb::IteratorMode::Start).count();
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
