//! Views of databases, and their expected contents.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rockmill_scan::{Database, Directory, ScanEngine, ScanSettings};
use rockmill_view::{Builder, Target, View};
use rust_rocksdb::{ColumnFamilyDescriptor, DB, Options};

use crate::common::{self, ReadOnly};

pub fn engine() -> Arc<ScanEngine> {
    ScanEngine::new(ScanSettings::default()).expect("an engine")
}

/// `ROCKMILL_CASES` random cases, or `cases`.
pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig::with_cases(rockmill_testkit::machine::few_cases(cases))
}

/// The device that `ROCKMILL_TEST_DEVICE` names (`cuda:N`), or the host.
pub fn target() -> Target {
    let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
    match named.strip_prefix("cuda:") {
        Some(number) => Target::Cuda(number.parse().expect("cuda:N")),
        None => Target::Host,
    }
}

/// A view takes at most this much memory here, also on a GPU that other tests use.
pub fn builder(database: &Arc<dyn Database>, family: &str) -> Builder {
    View::builder(Arc::clone(database), family)
        .device(target())
        .memory_bytes(1 << 30)
}

pub fn directory(path: &Path) -> Arc<dyn Database> {
    let directory = Directory::open(path).expect("a database");
    Arc::new(directory.with_iterators(Arc::new(ReadOnly)))
}

/// Keys of the rows, some that are near to these, and some that histories write occasionally.
pub fn keys(rows: &common::Rows) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = rows.iter().map(|(key, _)| key.clone()).collect();
    keys.extend(rows.iter().map(|(key, _)| [key, &[0][..]].concat()));
    keys.extend((0..=u8::MAX).map(|key| vec![key]));
    keys.extend((0..=u8::MAX).map(|key| format!("{key:03}").into_bytes()));
    let long = |key: u8| format!("{key:03}-a-longer-key-of-more-than-sixteen-bytes").into_bytes();
    keys.extend((0..=u8::MAX).map(long));
    keys.push(Vec::new());
    keys
}

/// Compares the view's values with all rows.
pub fn compare(view: &View, rows: &common::Rows) -> std::result::Result<(), TestCaseError> {
    compare_values(rows, |keys| view.get(keys).expect("values"))
}

/// Compares the values of keys with all rows.
pub fn compare_values(
    rows: &common::Rows,
    get: impl FnOnce(&[&[u8]]) -> Vec<Option<Vec<u8>>>,
) -> std::result::Result<(), TestCaseError> {
    let keys = keys(rows);
    let refs: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let expected: BTreeMap<_, _> = rows.iter().map(|(key, value)| (key, value)).collect();
    for (key, found) in keys.iter().zip(&get(&refs)) {
        prop_assert_eq!(found.as_ref(), expected.get(key).copied(), "{:?}", key);
    }
    Ok(())
}

pub fn numbered(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A database with 5000 rows in one file, to which `change` is applied.
pub fn with_rows(dir: &Path, options: &Options, change: impl FnOnce(&DB)) {
    let family = ColumnFamilyDescriptor::new("default", options.clone());
    let db = DB::open_cf_descriptors(options, dir, [family]).expect("the database opens");
    put_rows(&db);
    change(&db);
}

/// Writes 5000 rows to one file.
pub fn put_rows(db: &DB) {
    for number in 0..5000 {
        db.put(numbered(number), [number as u8; 40])
            .expect("written");
    }
    db.flush().expect("flushed");
}
