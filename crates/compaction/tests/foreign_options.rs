//! OPTIONS files of programs on RocksDB 6.8 to 11.0, and the compactions that they rule out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rockmill_compaction::{Engine, Settings};
use rockmill_core::{Error, ErrorKind};
use rockmill_format::options_file::OptionsFile;
use rockmill_format::versions::release;
use rockmill_storage::LocalStorage;
use rockmill_testkit::storage_model::database::manifest_of;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/options");

/// OPTIONS files, and all findings that rule out jobs: of the database, or of one of its column families.
const FILES: [(&str, &[&str]); 15] = [
    // Its version has neither file checksums nor partitioners. The merge operator has no parts, so its name is empty,
    // and the filter policy's name means that no filters are written.
    ("ceph-mon.6.8.1", &[]),
    (
        "mariadb-myrocks.6.29.5",
        &[
            "allow-2pc: allow_2pc is on",
            "default: comparator: comparator is RocksDB_SE_v3.10",
            "default: table-property-collectors: table_properties_collectors has Rdb_tbl_prop_coll_factory",
            "default: compaction-filter: compaction_filter_factory is Rdb_compact_filter_factory",
            "__system__: comparator: comparator is RocksDB_SE_v3.10",
            "__system__: table-property-collectors: table_properties_collectors has Rdb_tbl_prop_coll_factory",
            "__system__: compaction-filter: compaction_filter_factory is Rdb_compact_filter_factory",
            "cf1: comparator: comparator is RocksDB_SE_v3.10",
            "cf1: table-property-collectors: table_properties_collectors has Rdb_tbl_prop_coll_factory",
            "cf1: compaction-filter: compaction_filter_factory is Rdb_compact_filter_factory",
            "rev:cf2: comparator: comparator is rev:RocksDB_SE_v3.10",
            "rev:cf2: table-property-collectors: table_properties_collectors has Rdb_tbl_prop_coll_factory",
            "rev:cf2: compaction-filter: compaction_filter_factory is Rdb_compact_filter_factory",
        ],
    ),
    (
        "db_bench-blobdb.7.8.3",
        &["default: blob-files: enable_blob_files is true"],
    ),
    ("db_bench-bloom.7.8.3", &[]),
    // Operands in its files would rule jobs out; the operator does not.
    ("db_bench-merge.7.8.3", &[]),
    ("db_bench-part.7.8.3", &[]),
    ("db_bench-prefix.7.8.3", &[]),
    ("db_bench-ribbon.7.8.3", &[]),
    ("db_bench-txn.7.8.3", &["allow-2pc: allow_2pc is on"]),
    ("db_bench-univ.7.8.3", &[]),
    ("flink.8.10.0", &[]),
    ("kafka-streams.9.7.3", &[]),
    ("rocksdict-compact-on-deletion.9.8.4", &[]),
    ("rocksdict-default.9.8.4", &[]),
    ("oxigraph.11.0.4", &[]),
];

/// Returns all reasons why jobs of a database without files are declined because of its OPTIONS.
fn diagnosed(options: &str) -> Vec<String> {
    let parsed = OptionsFile::parse(options).expect("an OPTIONS file");
    let names = parsed.column_families.iter().map(|family| {
        let name = String::from_utf8(family.name.clone());
        name.expect("names of these programs are text")
    });
    let names: Vec<_> = names.collect();
    let families = (0..)
        .zip(&names)
        .map(|(id, name)| (id, name.as_str(), &[][..]));
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in [
        ("OPTIONS-000007", options.as_bytes()),
        ("CURRENT", b"MANIFEST-000005\n"),
        ("MANIFEST-000005", &manifest_of(families)),
    ] {
        fs::write(dir.path().join(name), bytes).expect("room");
    }
    let engine = Engine::new(Settings::default(), Arc::new(LocalStorage)).expect("sound settings");
    let diagnosis = engine.diagnose(dir.path()).expect("a database");
    assert_eq!(diagnosis.families.len(), names.len());
    let of_families = diagnosis
        .families
        .iter()
        .zip(&names)
        .flat_map(|(family, name)| {
            let lines = family.found.iter().map(line);
            lines.map(move |line| format!("{name}: {line}"))
        });
    let lines = diagnosis.database.iter().map(line);
    lines.chain(of_families).collect()
}

/// Returns the code of a reason, and the finding.
fn line(error: &Error) -> String {
    let ErrorKind::Declined(reason) = error.kind else {
        panic!("{error}");
    };
    let found = error.what.split(';').next().unwrap_or_default();
    format!("{}: {found}", reason.code())
}

fn fixture(name: &str) -> String {
    let path = Path::new(FIXTURES).join(format!("{name}.ini"));
    fs::read_to_string(path).expect("a fixture")
}

#[test]
fn options_of_other_programs_are_declined_for_what_they_say_alone() {
    for (name, expected) in FILES {
        assert_eq!(diagnosed(&fixture(name)), expected, "{name}");
    }
    let files = fs::read_dir(FIXTURES).expect("a folder");
    let files = files.map(|file| file.expect("an entry").file_name());
    let of_table = FILES.map(|(name, _)| format!("{name}.ini").into());
    assert_eq!(files.collect::<BTreeSet<_>>(), BTreeSet::from(of_table));
}

#[test]
fn an_absent_object_has_no_name_once_its_option_is_written() {
    let all = [
        "file-checksum: file_checksum_gen_factory is an object without a name",
        "default: sst-partitioner: sst_partitioner_factory is an object without a name",
        "default: compression-manager: compression_manager is an object without a name",
        "default: user-defined-index: user_defined_index_factory is an object without a name",
    ];
    let old = fixture("ceph-mon.6.8.1");
    for (version, expected) in [
        ("rocksdb_version=6.25.3", &all[..0]),
        ("rocksdb_version=6.26.0", &all[..2]),
        ("rocksdb_version=10.2.1", &all[..2]),
        ("rocksdb_version=10.3.1", &all[..2]),
        ("rocksdb_version=10.4.0", &all[..3]),
        ("rocksdb_version=10.5.1", &all[..3]),
        ("rocksdb_version=10.6.0", &all),
        ("rocksdb_version=11.12.0", &all),
        // A file without a version.
        ("", &all),
    ] {
        let options = old.replace("rocksdb_version=6.8.1", version);
        assert_eq!(diagnosed(&options), expected, "{version}");
    }
    for key in [
        "comparator",
        "compaction_filter",
        "compaction_filter_factory",
    ] {
        let line = old
            .lines()
            .find(|line| line.trim().starts_with(&format!("{key}=")));
        let options = old.replace(line.expect("every version writes it"), "");
        let [found] = &diagnosed(&options)[..] else {
            panic!("{key}");
        };
        assert!(
            found.ends_with(&format!("{key} is an object without a name")),
            "{found}"
        );
    }
}

/// The versions of which the format crate has an OPTIONS file with default options, as RocksDB wrote it.
const CAPTURED: [[u32; 3]; 6] = [
    [10, 0, 1],
    [10, 4, 2],
    [10, 10, 1],
    [11, 1, 2],
    [11, 8, 1],
    [11, 12, 0],
];

fn captured([major, minor, patch]: [u32; 3]) -> String {
    let name = format!("{major}.{minor}.{patch}/options.ini");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/data/versions");
    fs::read_to_string(path.join(name)).expect("it was captured")
}

#[test]
fn default_options_of_every_version_rule_nothing_out() {
    for version in CAPTURED {
        let options = captured(version);
        assert_eq!(diagnosed(&options), [""; 0], "{version:?}");
        let release = release(version);
        let default = format!("format_version={}", release.default_format_version);
        assert!(options.contains(&default), "{version:?}");
        let after = options.replace(
            &default,
            &format!("format_version={}", release.newest_format_version + 1),
        );
        let found = diagnosed(&after);
        assert!(
            found[0].starts_with("default: format-version: "),
            "{found:?}"
        );
    }
    let next = captured([11, 12, 0]).replace("=11.12.0", "=11.13.0");
    let expected = ["newer-rocksdb: written by RocksDB 11.13.0, newer than 11.12"];
    assert_eq!(diagnosed(&next), expected);
}
