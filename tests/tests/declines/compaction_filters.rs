//! Compaction filters, which are the application's code.

use std::ffi::CStr;

use rockmill_tests::content::{Content, assert_content, check_family};
use rockmill_tests::harness::{compact_everything, fill, options, service};
use rockmill_tests::reasons::COMPACTION_FILTER;
use rust_rocksdb::compaction_filter::{CompactionFilter, Decision};
use rust_rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rust_rocksdb::{DB, Options};

use crate::trial::{declines, plain};

/// Removes every tenth key.
fn removes(key: &[u8]) -> bool {
    key.ends_with(b"0")
}

/// Returns [`plain`] without the keys that the filter removes.
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
fn many_column_families_are_told_apart() {
    // Only the family with a filter is compacted locally, although both share one OPTIONS file.
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
    compact_everything(&db);
    db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
    let stats = service.stats();
    assert!(stats.jobs_done > 0, "{stats}");
    assert!(
        stats.jobs_declined_by_reason.keys().eq([COMPACTION_FILTER]),
        "{stats}"
    );
    assert_content(&db, &content);
    let mut left = content.clone();
    left.retain(|key, _| !removes(key));
    check_family(&db, family, &left).expect("filtered");
}
