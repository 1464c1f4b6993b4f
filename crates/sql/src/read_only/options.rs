//! Options with which RocksDB opens a directory, although its OPTIONS name comparators of its application.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use rockmill_format::names;
use rockmill_format::options_file::{
    ColumnFamilyOptions, OptionsFile, text_from_bytes, without_families,
};
use rockmill_format::table::orders_by_bytes;
use rust_rocksdb::{Cache, ColumnFamilyDescriptor, Env, Options};

/// Memory of RocksDB's block cache.
const CACHE_BYTES: usize = 32 << 20;

/// RocksDB opens no database without the column family of this name.
const DEFAULT: &str = "default";

/// Comparators that RocksDB has by name (`options/customizable.cc:RegisterBuiltinComparators`).
const OF_ROCKSDB: [&str; 4] = [
    "leveldb.BytewiseComparator",
    "leveldb.BytewiseComparator.u64ts",
    "rocksdb.ReverseBytewiseComparator",
    "rocksdb.ReverseBytewiseComparator.u64ts",
];

/// What RocksDB opens of a database.
pub struct Loaded {
    pub options: Options,
    pub families: Vec<ColumnFamilyDescriptor>,
    /// Column families that RocksDB cannot read, by the text of their names, and why.
    pub unread: BTreeMap<String, String>,
}

/// Loads the newest OPTIONS file of a directory. `scratch` is a folder for a copy of it.
///
/// # Errors
/// What is wrong with the file, or why it cannot be read.
pub fn load(path: &Path, scratch: &Path, env: Env) -> Result<Loaded, String> {
    let text = newest(path).map_err(|e| e.to_string())?;
    let file = OptionsFile::parse(&text).map_err(|e| e.to_string())?;
    let unread: BTreeMap<_, _> = (file.column_families.iter())
        .filter_map(|family| Some((names::escape(&family.name), unreadable(family)?)))
        .collect();
    let is_known = |family: &ColumnFamilyOptions| {
        OF_ROCKSDB.contains(&comparator(family)) && std::str::from_utf8(&family.name).is_ok()
    };
    let known = without_families(&text, &file, |family| !is_known(family));
    fs::write(scratch.join("OPTIONS-000001"), known).map_err(|e| e.to_string())?;
    let cache = Cache::new_lru_cache(CACHE_BYTES);
    let loaded = Options::load_latest(scratch, env, true, cache);
    let (options, mut families) = loaded.map_err(|e| e.to_string())?;
    for family in file.column_families.iter().filter(|f| !is_known(f)) {
        let Ok(name) = std::str::from_utf8(&family.name) else {
            continue;
        };
        if name == DEFAULT {
            families.retain(|known| known.name() != DEFAULT);
        } else if unread.contains_key(&names::escape(&family.name)) {
            continue;
        }
        families.push(in_bytewise_order(name, comparator(family)));
    }
    Ok(Loaded {
        options,
        families,
        unread,
    })
}

/// Why RocksDB cannot read a column family without its application.
fn unreadable(family: &ColumnFamilyOptions) -> Option<String> {
    if std::str::from_utf8(&family.name).is_err() {
        return Some("its name is not UTF-8".to_owned());
    }
    let comparator = comparator(family);
    let is_plain = family.options.is_null("merge_operator");
    let is_read =
        OF_ROCKSDB.contains(&comparator) || (orders_by_bytes(comparator.as_bytes()) && is_plain);
    (!is_read).then(|| {
        let comparator = names::escape(comparator.as_bytes());
        format!("only its application has its comparator {comparator}")
    })
}

fn comparator(family: &ColumnFamilyOptions) -> &str {
    family.options.str("comparator").unwrap_or(OF_ROCKSDB[0])
}

/// A column family with a comparator of that name, which orders keys by their bytes. The default column family is opened
/// with one even if its own orders them otherwise. Then nothing is read of it, and the order of its files is not checked.
fn in_bytewise_order(name: &str, comparator: &str) -> ColumnFamilyDescriptor {
    let mut options = Options::default();
    options.set_comparator(comparator, Box::new(|a: &[u8], b: &[u8]| a.cmp(b)));
    options.set_force_consistency_checks(orders_by_bytes(comparator.as_bytes()));
    ColumnFamilyDescriptor::new(name, options)
}

/// The text of the newest OPTIONS file.
fn newest(path: &Path) -> io::Result<String> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("OPTIONS-"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    let newest = numbers.into_iter().max();
    let newest = newest.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is none"))?;
    Ok(text_from_bytes(fs::read(
        path.join(format!("OPTIONS-{newest:06}")),
    )?))
}
