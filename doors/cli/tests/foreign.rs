//! Databases that other versions of RocksDB, other programs and other options wrote.
//!
//! | folder of `data/foreign.tar.zst` | written by |
//! |---|---|
//! | `comparator-4.13` | RocksDB 4.13.5, whose files name the order of internal keys as their comparator |
//! | `range-deletes-5.8`, `range-deletes-5.18` | RocksDB 5.8.7 and 5.18.4, which count range tombstones apart |
//! | `global-sequence-7.8` | `ldb` 7.8.3, which writes sequence numbers into ingested files |
//! | `own-comparator` | RocksDB 9.8.4, with a comparator of its application in one column family |
//! | `names` | RocksDB 6.8.1, with names that are not UTF-8 |
//! | `log-record-255` | RocksDB 11.12, then a record of type 255 with a right checksum in a compressed log |
//! | `leveldb` | LevelDB 1.22 |
#![cfg(feature = "sql")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BAD_DATA, DONE, INCOMPLETE, expect, json, reasons, text};
use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, IteratorMode, Options, PlainTableFactoryOptions, SliceTransform,
};
use serde_json::Value;
use tempfile::TempDir;

/// Unpacks a database.
fn foreign(name: &str) -> (TempDir, PathBuf) {
    const ARCHIVE: &[u8] = include_bytes!("data/foreign.tar.zst");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let tar = zstd::decode_all(ARCHIVE).expect("the archive is sound");
    let unpacked = tar::Archive::new(&*tar).unpack(dir.path());
    unpacked.expect("the archive can be unpacked");
    let db = dir.path().join(name);
    assert!(db.is_dir(), "{name}");
    (dir, db)
}

/// The value of a query with one column and one row.
fn one(db: &Path, query: &str) -> String {
    let (out, _) = expect(DONE, &["sql", text(db), "--format", "csv", query]);
    let (_, value) = out.split_once('\n').expect("a header");
    value.trim().to_owned()
}

fn count(db: &Path, family: &str) -> usize {
    let count = one(db, &format!("select count(*) from \"{family}\""));
    count.parse().expect("a number")
}

/// Key and value.
type Row = (Box<[u8]>, Box<[u8]>);

/// Rows of a column family as RocksDB reads them.
fn rows(db: &Path, family: &str) -> Vec<Row> {
    let options = Options::default();
    let log_is_no_error = false;
    let db = DB::open_cf_for_read_only(&options, db, [family], log_is_no_error).expect("open");
    let family = db.cf_handle(family).expect("a family");
    let rows = db.iterator_cf(family, IteratorMode::Start);
    rows.map(|row| row.expect("sound")).collect()
}

/// Checks that a column family has the rows that RocksDB reads.
fn assert_same(db: &Path, family: &str) {
    let rows = rows(db, family);
    assert!(!rows.is_empty());
    assert_eq!(count(db, family), rows.len(), "{family}");
    let query = format!(
        "select encode(key, 'hex') as k, encode(value, 'hex') as v from \"{family}\" order by key"
    );
    let (out, _) = expect(DONE, &["sql", text(db), "--format", "csv", &query]);
    let hex = |bytes: &[u8]| -> String {
        match bytes {
            [] => "\"\"".to_owned(),
            _ => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        }
    };
    let expected = rows
        .iter()
        .map(|(key, value)| format!("{},{}", hex(key), hex(value)));
    assert!(out.lines().skip(1).eq(expected), "{family}");
}

/// The reasons for which jobs of a database are left to RocksDB, except that old MANIFESTs have no epoch numbers.
fn declines(db: &Path) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_rockmill"))
        .args(["doctor", text(db), "--json"])
        .output()
        .expect("the command starts");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let code = match document["accepted"] == true {
        true => DONE,
        false => BAD_DATA,
    };
    assert_eq!(output.status.code(), Some(code), "{document}");
    let families = document["column_families"].as_array().expect("families");
    let declines = families
        .iter()
        .flat_map(|family| reasons(&family["declines"]));
    let mut declines: Vec<_> = declines.map(str::to_owned).collect();
    declines.sort_unstable();
    declines.dedup();
    declines.retain(|reason| reason != "manifest");
    declines
}

#[test]
fn an_unknown_record_of_a_compressed_log_ends_its_block_as_for_rocksdb() {
    let (_dir, db) = foreign("log-record-255");
    let families = DB::list_cf(&Options::default(), &db).expect("families");
    assert_eq!(families.len(), 2);
    for family in families {
        assert_same(&db, &family);
    }
}

#[test]
fn a_sequence_number_that_was_written_into_a_file_breaks_no_checksum() {
    let (_dir, db) = foreign("global-sequence-7.8");
    expect(DONE, &["verify", text(&db)]);
    assert_same(&db, "default");
    assert!(declines(&db).is_empty());
}

#[test]
fn range_tombstones_are_counted_as_old_versions_did() {
    for name in ["range-deletes-5.8", "range-deletes-5.18"] {
        let (_dir, db) = foreign(name);
        expect(DONE, &["verify", text(&db)]);
        let query = "select count(*) from \"default\"";
        let stated = ["--merge-operator", "default=stringappend"];
        let (out, _) = expect(
            DONE,
            &[&["sql", text(&db), "--format", "csv", query][..], &stated].concat(),
        );
        assert_eq!(out.lines().nth(1), Some("932"), "{name}");
        assert_eq!(declines(&db), ["merge-operands"], "{name}");
    }
}

#[test]
fn a_comparator_named_as_the_order_of_internal_keys_is_bytewise() {
    let (_dir, db) = foreign("comparator-4.13");
    expect(DONE, &["verify", text(&db)]);
    assert_same(&db, "default");
    assert_eq!(declines(&db), [""; 0]);
}

/// Removes the comparator from a MANIFEST whose first record it is.
fn without_comparator(db: &Path) {
    const FIRST_RECORD: usize = 7 + 2 + 26;
    let manifest = db.join("MANIFEST-000008");
    let bytes = fs::read(&manifest).expect("read");
    assert!(bytes[..FIRST_RECORD].ends_with(b"leveldb.BytewiseComparator"));
    fs::write(&manifest, &bytes[FIRST_RECORD..]).expect("written");
}

#[test]
fn where_the_manifest_names_no_comparator_options_do() {
    let (_dir, db) = foreign("comparator-4.13");
    without_comparator(&db);
    expect(DONE, &["verify", text(&db)]);
    assert_same(&db, "default");
    assert_eq!(declines(&db), [""; 0]);
    let options = db.join("OPTIONS-000005");
    let said = fs::read_to_string(&options).expect("read");
    let other = said.replace("leveldb.BytewiseComparator", "mine");
    assert_ne!(said, other);
    fs::write(&options, other).expect("written");
    assert_eq!(declines(&db), ["comparator"]);
    let query = "select count(*) from \"default\"";
    let (_, error) = expect(BAD_DATA, &["sql", text(&db), query]);
    assert!(error.contains("comparator mine"), "{error}");
}

#[test]
fn a_comparator_of_one_column_family_costs_no_other() {
    let (_dir, db) = foreign("own-comparator");
    // Range tombstones, which RocksDB's iterators read.
    assert_eq!(count(&db, "plain"), 90);
    assert_same(&db, "plain");
    assert_same(&db, "default");
    let query = "select count(*) from own";
    let (_, error) = expect(BAD_DATA, &["sql", text(&db), query]);
    assert!(error.contains("comparator my.own.Comparator"), "{error}");
}

#[test]
fn names_that_are_not_utf8_are_escaped_everywhere() {
    let (_dir, db) = foreign("names");
    let counts = [("default", 10), (r"\x80", 11), (r"\x81", 12), ("ok", 13)];
    for (family, rows) in counts {
        assert_eq!(count(&db, family), rows, "{family}");
        let view = json(DONE, &["view", text(&db), "--family", family]);
        assert_eq!(view["family"], family);
    }
    let jobs = tempfile::tempdir().expect("a folder");
    let args = ["job", "record", text(jobs.path()), "--db", text(&db)];
    let with_a_file = r"\x81";
    expect(
        DONE,
        &[&args[..], &["--column-family", with_a_file]].concat(),
    );
    let families = "select string_agg(family, ' ') from (select family from rocksdb_families order by entries)";
    let names = one(&db, families);
    for (family, _) in counts {
        assert!(names.split(' ').any(|name| name == family), "{names}");
    }
    let document = json(DONE, &["doctor", text(&db)]);
    let of_doctor = document["column_families"].as_array().expect("families");
    let of_doctor: Vec<_> = of_doctor.iter().map(|family| &family["name"]).collect();
    assert_eq!(
        of_doctor,
        counts.map(|(name, _)| Value::from(name)).each_ref()
    );
    let verified = json(DONE, &["verify", text(&db)]);
    assert!(verified.to_string().contains(r#""\\x81""#), "{verified}");
    let (_, error) = expect(BAD_DATA, &["compact", text(&db), "--dry-run"]);
    assert!(error.contains("would be left alone"), "{error}");
    let compacted = json(BAD_DATA, &["compact", text(&db), "--dry-run"]);
    assert!(
        compacted.to_string().contains("its name is not UTF-8"),
        "{compacted}"
    );
}

#[test]
fn every_name_is_a_table() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = dir.path().join("db");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let names = [
        "rocksdb_files",
        "rocksdb_families",
        "a\\b",
        "\x1b[2J",
        "a b",
        "täble",
        "#",
    ];
    {
        let families = names.map(|name| ColumnFamilyDescriptor::new(name, Options::default()));
        let opened = DB::open_cf_descriptors(&options, &db, families).expect("open");
        for (rows, name) in (1..).zip(names) {
            let family = opened.cf_handle(name).expect("a family");
            for row in 0..rows {
                opened.put_cf(family, [row], b"value").expect("put");
            }
            opened.flush_cf(family).expect("flush");
        }
    }
    let texts = [
        "rocksdb_files",
        "rocksdb_families",
        r"a\x5Cb",
        r"\x1B[2J",
        "a b",
        "täble",
        "#",
    ];
    for (rows, name) in (1..).zip(texts) {
        assert_eq!(count(&db, name), rows, "{name}");
    }
    assert_eq!(count(&db, r"a\b"), 3);
    // A column family takes the place of a table of that name, which the others still have.
    let (out, error) = expect(DONE, &["sql", text(&db), "show tables"]);
    assert!(
        out.contains(r"\x1B[2J") && !out.contains('\x1b'),
        "{out}{error}"
    );
    let row = one(&db, "select count(*) from rocksdb_files where key = X'00'");
    assert_eq!(row, "1");
    let args = ["compact", text(&db), "--dry-run", "--column-family"];
    let plan = json(DONE, &[&args[..], &[r"\x1B[2J"]].concat());
    assert_eq!(plan["column_families"][0]["name"], r"\x1B[2J");
}

#[test]
fn leveldb_is_read() {
    let (_dir, db) = foreign("leveldb");
    expect(DONE, &["verify", text(&db)]);
    let sum =
        "select count(*) || ' ' || sum(octet_length(key) + octet_length(value)) from \"default\"";
    assert_eq!(one(&db, sum), "2241 143678");
    let value = "select arrow_cast(value, 'Utf8') from \"default\" where key = 'k00501'";
    assert_eq!(
        one(&db, value).trim_matches('"'),
        "v501-1 ".repeat(8).trim_end()
    );
    for entry in fs::read_dir(&db).expect("list") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "ldb") {
            expect(DONE, &["verify", text(&path)]);
            let document = json(DONE, &["inspect", text(&path)]);
            assert_eq!(document["format_version"], 0, "{document}");
        }
    }
}

/// Tables of sixty keys that RocksDB 5.18.4 wrote with format_version 1.
const FORMAT_VERSION_1: [(&str, &[u8]); 5] = [
    ("LZ4", include_bytes!("data/format-version-1/lz4.sst")),
    ("LZ4HC", include_bytes!("data/format-version-1/lz4hc.sst")),
    ("Zlib", include_bytes!("data/format-version-1/zlib.sst")),
    ("ZSTD", include_bytes!("data/format-version-1/zstd.sst")),
    ("BZip2", include_bytes!("data/format-version-1/bzlib2.sst")),
];

#[test]
fn files_of_format_version_1_are_read_except_those_with_bzip2() {
    let dir = tempfile::tempdir().expect("a folder");
    for (compression, bytes) in FORMAT_VERSION_1 {
        let path = dir.path().join(format!("{compression}.sst"));
        fs::write(&path, bytes).expect("written");
        if compression == "BZip2" {
            expect(INCOMPLETE, &["verify", text(&path)]);
            continue;
        }
        expect(DONE, &["verify", text(&path)]);
        let document = json(DONE, &["inspect", text(&path), "--entries"]);
        assert_eq!(document["format_version"], 1, "{compression}");
        let entries = document["entries"].as_array().expect("entries");
        assert_eq!(entries.len(), 60, "{compression}");
        for (row, entry) in entries.iter().enumerate() {
            let value = format!("value {row} {}", "x".repeat(30));
            assert_eq!(entry["user_key"], format!("key{row:03}"), "{compression}");
            assert_eq!(entry["value_size"], value.len(), "{compression}");
        }
    }
}

#[test]
fn a_compression_that_means_two_things_is_not_read_and_no_damage() {
    const FOOTER_BYTES: usize = 48;
    const TRAILER_BYTES: usize = 5;
    let (_dir, db) = foreign("leveldb");
    let path = db.join("000021.ldb");
    let mut bytes = fs::read(&path).expect("read");
    // The first data block, as the index names it.
    let document = json(DONE, &["inspect", text(&path), "--all-blocks"]);
    let blocks = document["blocks"].as_array().expect("blocks");
    let number = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("fits");
    let end = number(&blocks[1]["offset"]);
    assert!(end < bytes.len() - FOOTER_BYTES);
    let kind_at = end - TRAILER_BYTES;
    bytes[kind_at] = 2;
    let checksum = rockmill_format::checksum::ChecksumType::Crc32c.compute(&bytes[..kind_at], 2);
    bytes[kind_at + 1..end].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, bytes).expect("written");
    let (out, error) = expect(INCOMPLETE, &["verify", text(&path)]);
    assert!(
        out.contains("compression type 2") || error.contains("compression type 2"),
        "{out}{error}"
    );
}

#[test]
fn tables_of_another_format_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = dir.path().join("db");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_allow_mmap_reads(true);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(1));
    options.set_plain_table_factory(&PlainTableFactoryOptions {
        user_key_length: 0,
        bloom_bits_per_key: 10,
        hash_table_ratio: 0.75,
        index_sparseness: 16,
        huge_page_tlb_size: 0,
        encoding_type: rust_rocksdb::KeyEncodingType::Plain,
        full_scan_mode: false,
        store_index_in_file: false,
    });
    {
        let db = DB::open(&options, &db).expect("open");
        db.put(b"key", b"value").expect("put");
        db.flush().expect("flush");
    }
    let file = common::sst_files(&db).pop().expect("a file");
    let query = "select count(*) from \"default\"";
    for args in [
        &["verify", text(&db)][..],
        &["verify", text(&file)],
        &["inspect", text(&file)],
        &["sql", text(&db), query],
        &["view", text(&db)],
    ] {
        let (out, error) = expect(INCOMPLETE, args);
        assert!(
            out.contains("PlainTable") || error.contains("PlainTable"),
            "{out}{error}"
        );
    }
}

#[test]
fn a_database_of_pebble_is_named() {
    let made = |files: &[(&str, &str)]| {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("written");
        }
        dir
    };
    let options = ("OPTIONS-000003", "[Version]\n  pebble_version=0.1\n");
    let old = made(&[("CURRENT", "MANIFEST-000001\n"), options]);
    let new = made(&[("marker.manifest.000001.MANIFEST-000001", "")]);
    for dir in [&old, &new] {
        let db = text(dir.path());
        for args in [
            &["verify", db][..],
            &["doctor", db],
            &["sql", db, "select 1"],
            &["view", db],
            &["compact", db],
        ] {
            let (_, error) = expect(INCOMPLETE, args);
            assert!(error.contains("Pebble"), "{error}");
        }
    }
}
