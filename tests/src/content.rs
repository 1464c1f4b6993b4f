//! The expected content of a database, checked by all kinds of reads.

use std::collections::BTreeMap;

use rust_rocksdb::{ColumnFamily, DB, DBRawIteratorWithThreadMode, ReadOptions};

/// The visible keys and values of a column family.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys with their values, ascending.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns read options that ignore the prefix extractor and check each block's checksum.
#[must_use]
pub fn read_everything() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options.set_verify_checksums(true);
    options
}

/// Iterates forward and returns all pairs.
///
/// # Errors
///
/// RocksDB's error, as text.
pub fn scan_forward(mut iterator: DBRawIteratorWithThreadMode<'_, DB>) -> Result<Pairs, String> {
    let mut pairs = Vec::new();
    iterator.seek_to_first();
    while let Some((key, value)) = iterator.item() {
        pairs.push((key.to_vec(), value.to_vec()));
        iterator.next();
    }
    iterator
        .status()
        .map_err(|e| format!("forward scan: {e}"))?;
    Ok(pairs)
}

/// Iterates backward and returns all pairs in ascending order.
///
/// # Errors
///
/// RocksDB's error, as text.
pub fn scan_backward(mut iterator: DBRawIteratorWithThreadMode<'_, DB>) -> Result<Pairs, String> {
    let mut pairs = Vec::new();
    iterator.seek_to_last();
    while let Some((key, value)) = iterator.item() {
        pairs.push((key.to_vec(), value.to_vec()));
        iterator.prev();
    }
    iterator
        .status()
        .map_err(|e| format!("backward scan: {e}"))?;
    pairs.reverse();
    Ok(pairs)
}

/// Returns a key near `key` that is not in `content`, for errors of filters and block searches.
#[must_use]
pub fn absent_neighbour(content: &Content, key: &[u8]) -> Option<Vec<u8>> {
    let longer = [key, b"\0"].concat();
    let mut shorter = key.to_vec();
    shorter.pop();
    [longer, shorter]
        .into_iter()
        .find(|key| !content.contains_key(key))
}

/// Checks that a column family of `db` has exactly `content`: with a scan forward, a scan backward, a lookup of every
/// key, and lookups of the same number of absent keys.
///
/// # Errors
///
/// The first difference, or RocksDB's error, as text.
pub fn check_family(db: &DB, family: &ColumnFamily, content: &Content) -> Result<(), String> {
    let iterator = || db.raw_iterator_cf_opt(family, read_everything());
    let expected: Vec<_> = content
        .iter()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    check_pairs("forward scan", &expected, &scan_forward(iterator())?)?;
    check_pairs("backward scan", &expected, &scan_backward(iterator())?)?;
    for (key, value) in content {
        let name = key.escape_ascii();
        let found = db
            .get_cf(family, key)
            .map_err(|e| format!("get \"{name}\": {e}"))?;
        if found.as_ref() != Some(value) {
            return Err(format!(
                "get \"{name}\" gives {:?} bytes",
                found.map(|v| v.len())
            ));
        }
        let Some(absent) = absent_neighbour(content, key) else {
            continue;
        };
        let found = db
            .get_cf(family, &absent)
            .map_err(|e| format!("get after \"{name}\": {e}"))?;
        if found.is_some() {
            return Err(format!(
                "get of an absent key near \"{name}\" finds something"
            ));
        }
    }
    Ok(())
}

/// [`check_family`] for the default column family.
///
/// # Panics
///
/// With the first difference, or RocksDB's error.
pub fn assert_content(db: &DB, content: &Content) {
    let family = db
        .cf_handle(rust_rocksdb::DEFAULT_COLUMN_FAMILY_NAME)
        .expect("opened with its default column family by name");
    if let Err(difference) = check_family(db, family, content) {
        panic!("{}: {difference}", db.path().display());
    }
}

/// Checks that a scan found the expected pairs.
///
/// # Errors
///
/// The first differing pair, prefixed with `how`.
pub fn check_pairs(
    how: &str,
    expected: &[(Vec<u8>, Vec<u8>)],
    found: &[(Vec<u8>, Vec<u8>)],
) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let same = expected
        .iter()
        .zip(found)
        .take_while(|(a, b)| a == b)
        .count();
    let name = |pair: Option<&(Vec<u8>, Vec<u8>)>| {
        pair.map_or("the end".to_owned(), |(k, v)| {
            format!("\"{}\" ({})", k.escape_ascii(), v.len())
        })
    };
    Err(format!(
        "{how}: pair {same} is {} instead of {}",
        name(found.get(same)),
        name(expected.get(same))
    ))
}
