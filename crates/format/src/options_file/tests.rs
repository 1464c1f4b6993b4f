use super::*;
use proptest::prelude::*;

/// The structure of the output of `PersistRocksDBOptions`, shortened.
const FILE: &str = r#"# This is a RocksDB option file.
#
# For detailed file format spec, please refer to the example file

[Version]
  rocksdb_version=11.12.0
  options_file_version=1.1

[DBOptions]
  max_background_jobs=2
  db_log_dir=/var\:log\#1   # where
  wal_dir=

[CFOptions "default"]
  compression_opts={checksum=false;max_dict_buffer_bytes=0;enabled=false;level=32767;window_bits=-14;}
  compression=kLZ4Compression
  compression_per_level=kNoCompression:kLZ4Compression
  merge_operator=nullptr
  compaction_options_universal={allow_trivial_move=false;stop_style=kCompactionStopStyleTotalSize;}
  compression=kZSTD

[TableOptions/BlockBasedTable "default"]
  filter_policy={id=ribbonfilter:10:2;bloom_before_level=2;}
  block_size=4096

[CFOptions "a\:\"b\#\\"]
  ttl=2592000
[TableOptions/PlainTable "a\:\"b\#\\"]
"#;

/// Written by RocksDB 11.12 for three column families.
const REAL: &str = include_str!("../../tests/data/options-11.12.ini");

#[test]
fn a_real_file_is_taken_apart() {
    let file = OptionsFile::parse(REAL).unwrap();
    assert_eq!(
        (file.rocksdb_version, file.options_file_version),
        ([11, 12, 0], [1, 1])
    );
    assert_eq!(file.db.i64("max_open_files", 0), Ok(-1));
    let names: Vec<_> = file
        .column_families
        .iter()
        .map(|cf| cf.name.as_slice())
        .collect();
    assert_eq!(names, [&b"default"[..], b"a:b#c\"d\\e", b"blobs"]);
    for cf in &file.column_families {
        assert_eq!(cf.table_factory, "BlockBasedTable");
        assert_eq!(cf.table_options.u64("format_version", 0), Ok(7));
        assert!(cf.options.is_null("merge_operator"));
        let compression = cf.options.nested("compression_opts").unwrap();
        assert_eq!(compression.i64("level", 0), Ok(32767));
        assert_eq!(compression.bool("enabled", true), Ok(false));
        for (name, _) in cf.options.iter().chain(cf.table_options.iter()) {
            for options in [&cf.options, &cf.table_options] {
                assert!(
                    options.nested(name).is_ok() && options.list(name).is_ok(),
                    "{name}"
                );
            }
        }
    }
    let per_level = file.column_families[1]
        .options
        .list("compression_per_level");
    assert_eq!(per_level.unwrap(), ["kNoCompression", "kLZ4Compression"]);
    let blobs = file.cf(b"blobs").unwrap();
    assert_eq!(blobs.options.bool("enable_blob_files", false), Ok(true));
    assert!(blobs.table_options.is_null("filter_policy"));
}

#[test]
fn a_file_is_taken_apart() {
    let file = OptionsFile::parse(FILE).unwrap();
    assert_eq!(file.rocksdb_version, [11, 12, 0]);
    assert_eq!(file.options_file_version, [1, 1]);
    assert_eq!(file.db.i64("max_background_jobs", 0), Ok(2));
    assert_eq!(file.db.str("db_log_dir"), Some("/var:log#1"));
    assert!(file.db.is_null("wal_dir"));
    assert_eq!(file.column_families.len(), 2);

    let cf = file.cf(b"default").unwrap();
    assert_eq!(cf.options.str("compression"), Some("kLZ4Compression"));
    assert_eq!(cf.options.list("compression_per_level").unwrap().len(), 2);
    assert!(cf.options.is_null("merge_operator"));
    let opts = cf.options.nested("compression_opts").unwrap();
    assert_eq!(opts.i64("window_bits", 0), Ok(-14));
    assert_eq!(cf.table_factory, "BlockBasedTable");
    assert_eq!(cf.table_options.u64("block_size", 0), Ok(4096));
    let filter = cf.table_options.nested("filter_policy").unwrap();
    assert_eq!(filter.id(), Some("ribbonfilter:10:2"));

    let other = file.cf(b"a:\"b#\\").unwrap();
    assert_eq!(other.options.u64("ttl", 0), Ok(2_592_000));
    assert_eq!(other.table_factory, "PlainTable");
    assert!(file.cf(b"absent").is_none());
}

#[test]
fn of_other_column_families_only_the_names_are_kept() {
    let all = OptionsFile::parse(FILE).unwrap();
    for family in &all.column_families {
        let file = OptionsFile::parse_for(FILE, &family.name).unwrap();
        assert_eq!(file.cf(&family.name), Some(family));
        assert_eq!(
            (&file.db, file.rocksdb_version),
            (&all.db, all.rocksdb_version)
        );
        let others = file
            .column_families
            .iter()
            .filter(|cf| cf.name != family.name);
        let (mut others, count) = (others.clone(), others.count());
        assert_eq!(count + 1, all.column_families.len());
        assert!(others.all(|cf| cf.options.is_empty() && cf.table_options.is_empty()));
    }
}

#[test]
fn files_that_are_not_in_order_are_refused() {
    let cases = [
        ("", "no section DBOptions"),
        ("[DBOptions]", "no column family default"),
        ("[DBOptions]\n[CFOptions \"x\"]", "must be the first"),
        (
            "[DBOptions]\n[DBOptions]",
            "more than one section DBOptions",
        ),
        ("[Version]\n[Version]", "more than one section Version"),
        ("[Other]", "unknown section"),
        ("[TableOptions/]", "unknown section"),
        ("[TableOptions/X \"default\"]", "unknown column family"),
        ("a=1", "outside of sections"),
        ("[DBOptions]\nabc", "must have a '='"),
        ("[DBOptions]\n=1", "must have a name"),
        (
            "[Version]\nrocksdb_version=1.2.3.4\n[DBOptions]\n[CFOptions \"default\"]",
            "not a version",
        ),
        (
            "[Version]\nrocksdb_version=1.x\n[DBOptions]\n[CFOptions \"default\"]",
            "not a version",
        ),
    ];
    for (text, message) in cases {
        let error = OptionsFile::parse(text).unwrap_err();
        assert!(error.what.contains(message), "{text:?}: {error}");
        assert_eq!(OptionsFile::parse_for(text, b"other"), Err(error));
    }
}

#[test]
fn an_error_names_the_offset_in_the_file() {
    let error = OptionsFile::parse("[DBOptions]\n a=1\n  oops\n").unwrap_err();
    assert_eq!(error.offset, 19);
    let text = "[DBOptions]\n a= x\n[CFOptions \"default\"]\n";
    let file = OptionsFile::parse(text).unwrap();
    assert_eq!(file.db.u64("a", 0).unwrap_err().offset, 16);
}

proptest! {
    #[test]
    fn parsing_a_mutated_file_is_total(cuts in prop::collection::vec((0..FILE.len(), any::<char>()), 1..8)) {
        let mut chars: Vec<char> = FILE.chars().collect();
        for (at, c) in cuts {
            chars[at] = c;
        }
        let text: String = chars.into_iter().collect();
        if let Ok(file) = OptionsFile::parse(&text) {
            for cf in &file.column_families {
                for (name, value) in cf.options.iter() {
                    let _ = (cf.options.nested(name), cf.options.list(name), cf.options.u64(name, 0));
                    let _ = Options::from_value(value);
                }
            }
        }
    }

    #[test]
    fn any_name_survives_escaping(name in "[a-z:#\\\\ é\\r\\n]{1,12}") {
        prop_assume!(name != "default");
        let mut escaped = String::new();
        for c in name.chars() {
            match c {
                '\\' | '#' | ':' => escaped.extend(['\\', c]),
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                _ => escaped.push(c),
            }
        }
        let text = format!("[DBOptions]\n[CFOptions \"default\"]\n[CFOptions \"{escaped}\"]\n x=1");
        let file = OptionsFile::parse(&text).unwrap();
        prop_assert_eq!(file.cf(name.as_bytes()).unwrap().options.u64("x", 0), Ok(1));
    }
}
