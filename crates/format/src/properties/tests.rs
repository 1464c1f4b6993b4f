//! Properties compared with those in a real result of RocksDB 11.12.

use super::*;
use crate::coding::put_varint;
use crate::error::ErrorKind;
use proptest::prelude::*;

/// `table_properties` of a result that RocksDB 11.12's own worker wrote.
const EXAMPLE: &str = include_str!("result_example.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The fields of a struct's text, sorted; maps stay whole.
fn split_fields(text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut rest = text.trim();
    while let Some((name, value)) = rest.split_once('=') {
        let end = if value.starts_with('{') { "};" } else { ";" };
        let (value, after) = value.split_once(end).unwrap();
        fields.insert(name.to_owned(), value.trim_start_matches('{').to_owned());
        rest = after;
    }
    fields
}

fn to_text(field: &PropertyValue) -> String {
    match field {
        PropertyValue::Int(value) => value.to_string(),
        PropertyValue::Bytes(bytes) => hex(bytes),
        PropertyValue::Map(map) => map
            .iter()
            .map(|(name, value)| format!("{}={};", hex(name), hex(value)))
            .collect(),
    }
}

/// The properties behind [`EXAMPLE`].
fn example() -> TableProperties {
    TableProperties {
        orig_file_number: 13,
        data_size: 297_590,
        uncompressed_data_size: 3_133_705,
        index_size: 21_112,
        index_key_is_user_key: 1,
        index_value_is_delta_encoded: 1,
        filter_size: 34_437,
        raw_key_size: 660_576,
        raw_value_size: 2_752_400,
        num_data_blocks: 787,
        num_entries: 27_524,
        num_filter_entries: 27_524,
        format_version: 7,
        column_family_id: 0,
        oldest_ancestor_time: 1_795_168_663,
        file_creation_time: 1_795_168_663,
        tail_start_offset: 297_590,
        key_largest_seqno: 0,
        key_smallest_seqno: 0,
        data_block_restart_interval: 16,
        index_block_restart_interval: 1,
        lsm_info_at_creation: lsm_info_at_creation(6, true),
        db_id: b"4739b641-bad4-408a-a1bd-acad4da6dfd8".into(),
        db_session_id: b"18OJWKH5LV2HXJGLETSX".into(),
        db_host_id: b"vm".into(),
        column_family_name: b"default".into(),
        filter_policy_name: b"bloomfilter".into(),
        comparator_name: b"leveldb.BytewiseComparator".into(),
        merge_operator_name: b"nullptr".into(),
        prefix_extractor_name: b"nullptr".into(),
        property_collectors_names: b"[]".into(),
        compression_name: compression_name(7, Some(4), &[0, 4, 4]).into(),
        compression_options: CompressionOptions::default().text(4, [0; 3]).into(),
        index_type: Some(0),
        whole_key_filtering: Some(true),
        prefix_filtering: Some(false),
        decoupled_partitioned_filters: Some(true),
        ..TableProperties::default()
    }
}

#[test]
fn result_fields_are_those_of_a_real_result() {
    let ours: BTreeMap<String, String> = example()
        .result_fields()
        .iter()
        .map(|(name, field)| ((*name).to_owned(), to_text(field)))
        .collect();
    assert_eq!(ours, split_fields(EXAMPLE));
}

#[test]
fn entries_are_those_that_rocksdb_writes() {
    let names: Vec<String> = example()
        .to_entries([0; 3])
        .into_iter()
        .map(|(name, _)| String::from_utf8(name).unwrap())
        .collect();
    let names: Vec<&str> = names
        .iter()
        .map(|name| name.strip_prefix("rocksdb.").unwrap())
        .collect();
    #[rustfmt::skip]
    let expected = [
        "block.based.table.decoupled.partitioned.filters", "block.based.table.index.type",
        "block.based.table.prefix.filtering", "block.based.table.whole.key.filtering",
        "column.family.id", "column.family.name", "comparator", "compression", "compression_options",
        "creating.db.identity", "creating.host.identity", "creating.session.identity", "creation.time",
        "data.block.restart.interval", "data.size", "deleted.keys", "file.creation.time", "filter.policy",
        "filter.size", "fixed.key.length", "format.version", "index.block.restart.interval",
        "index.key.is.user.key", "index.size", "index.value.is.delta.encoded", "key.largest.seqno",
        "key.smallest.seqno", "lsm.info.at.creation", "merge.operands", "merge.operator", "newest.key.time",
        "num.data.blocks", "num.entries", "num.filter_entries", "num.range-deletions", "num.uniform.blocks",
        "oldest.key.time", "original.file.number", "prefix.extractor.name", "property.collectors",
        "raw.key.size", "raw.value.size", "tail.start.offset", "uncompressed.data.size",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_version_writes_what_it_knows() {
    for (version, lacks, options_end) in [
        ([10, 0, 1], 6, "use_zstd_dict_trainer=1; "),
        ([10, 4, 2], 6, "checksum=0; "),
        ([10, 10, 1], 5, "checksum=0; "),
        ([11, 1, 2], 3, "checksum=0; "),
        // Versions that are not known to write more.
        ([11, 5, 0], 3, "checksum=0; "),
        ([11, 8, 1], 2, "_type=4; "),
        ([11, 12, 0], 0, "_type=4; "),
    ] {
        let (all, written) = (example().to_entries([0; 3]), example().to_entries(version));
        assert_eq!(all.len() - written.len(), lacks, "{version:?}");
        let read = TableProperties::from_entries(written).unwrap();
        assert!(read.user.is_empty() && read.num_entries == example().num_entries);
        let options = CompressionOptions::default().text(4, version);
        assert!(options.ends_with(options_end), "{version:?}: {options}");
    }
}

#[test]
fn optional_entries_follow_rocksdbs_conditions() {
    let has = |properties: &TableProperties, name: &str| {
        properties
            .to_entries([0; 3])
            .iter()
            .any(|(key, _)| key == name.as_bytes())
    };
    let none = TableProperties::default();
    let mut some = TableProperties {
        index_partitions: 2,
        udi_is_primary_index: 1,
        num_data_blocks_compression_rejected: 1,
        num_data_blocks_compression_bypassed: 1,
        file_creation_time: 1,
        slow_compression_estimated_data_size: 1,
        fast_compression_estimated_data_size: 1,
        user_defined_timestamps_persisted: 0,
        key_largest_seqno: 0,
        key_smallest_seqno: 0,
        separate_key_value_in_data_block: 1,
        seqno_to_time_mapping: vec![1],
        ..TableProperties::default()
    };
    for name in [
        "rocksdb.index.partitions",
        "rocksdb.top-level.index.size",
        "rocksdb.udi.is.primary.index",
        "rocksdb.num.data.blocks.compression.rejected",
        "rocksdb.num.data.blocks.compression.bypassed",
        "rocksdb.file.creation.time",
        "rocksdb.sample_for_compression.slow.data.size",
        "rocksdb.sample_for_compression.fast.data.size",
        "rocksdb.user.defined.timestamps.persisted",
        "rocksdb.key.largest.seqno",
        "rocksdb.key.smallest.seqno",
        "rocksdb.separate.key.value.in.data.block",
        "rocksdb.seqno.time.map",
    ] {
        assert!(has(&some, name), "{name}");
        assert!(!has(&none, name), "{name}");
    }
    some.index_partitions = 0;
    some.top_level_index_size = 100;
    assert!(
        !has(&some, "rocksdb.top-level.index.size"),
        "it depends on the partitions"
    );
}

#[test]
fn malformed_and_unsorted_properties_are_corruption() {
    let long = [0xff; 10];
    for entries in [
        vec![("b", &[1][..]), ("a", &[1])],
        vec![("a", &[1]), ("a", &[1])],
        vec![("rocksdb.num.entries", &[])],
        vec![("rocksdb.num.entries", &[0x80])],
        vec![("rocksdb.num.entries", &[1, 2])],
        vec![("rocksdb.num.entries", &long)],
        vec![("rocksdb.block.based.table.index.type", &[0, 0, 0])],
        vec![("rocksdb.external_sst_file.global_seqno", &[0; 9])],
    ] {
        let error = TableProperties::from_entries(entries.clone()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corruption, "{entries:?}");
    }
}

#[test]
fn unknown_properties_are_kept_apart() {
    let entries = [("a.b", "1"), ("rocksdb.data.size", "\x05"), ("zz", "2")];
    let properties = TableProperties::from_entries(entries).unwrap();
    assert_eq!(properties.data_size, 5);
    let user: Vec<_> = properties
        .user
        .iter()
        .map(|(k, v)| (&k[..], &v[..]))
        .collect();
    assert_eq!(user, [(&b"a.b"[..], &b"1"[..]), (b"zz", b"2")]);
}

#[test]
fn lsm_info_holds_level_and_bottommost() {
    assert_eq!(lsm_info_at_creation(6, true), 518);
    assert_eq!(lsm_info_at_creation(0, false), 256);
    assert_eq!(lsm_info_at_creation(1000, false), 0xff | 256);
}

#[test]
fn compression_names_follow_the_format_version() {
    for (version, preferred, used, name) in [
        (7, Some(4), &[0, 4][..], "BuiltinV2;04;"),
        (8, Some(7), &[7, 4, 0x8a], "BuiltinV2;04078A;"),
        (7, Some(4), &[0], "BuiltinV2;;"),
        (7, None, &[0], ";;"),
        (6, None, &[0], "NoCompression"),
        (6, Some(5), &[], "LZ4HC"),
        (6, Some(1), &[1], "Snappy"),
        (5, Some(2), &[2, 7], "ZSTD"),
        (2, Some(3), &[3], "BZip2"),
        (2, Some(0x80), &[0x80], "Custom80"),
        (2, Some(0x10), &[0x10], "Reserved10"),
    ] {
        assert_eq!(compression_name(version, preferred, used), name);
    }
}

#[test]
fn compression_options_show_auto_skip_only_when_it_works() {
    let options = CompressionOptions {
        auto_skip: true,
        ..CompressionOptions::default()
    };
    let shown = "; auto_skip=1; auto_skip_min_sample_every=0; checksum=0; _type=7; ";
    assert!(options.text(7, [0; 3]).ends_with(shown));
    assert!(!options.text(0, [0; 3]).contains("auto_skip"));
    let wide = CompressionOptions {
        max_dict_buffer_bytes: u64::MAX,
        ..options
    };
    assert!(
        wide.text(7, [0; 3])
            .contains("max_dict_buffer_bytes=18446744073709551615; ")
    );
}

fn arbitrary_entry() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let int_names: Vec<&str> = INTS.iter().map(|row| row.name).collect();
    let bytes_names: Vec<&str> = BYTES.iter().map(|row| row.name).collect();
    let varint = |value: u64| {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        out
    };
    prop_oneof![
        (prop::sample::select(int_names), any::<u64>())
            .prop_map(move |(name, value)| (name.into(), varint(value))),
        (prop::sample::select(bytes_names), any::<Vec<u8>>())
            .prop_map(|(name, value)| (name.into(), value)),
        any::<(Vec<u8>, Vec<u8>)>(),
    ]
}

proptest! {
    #[test]
    fn properties_round_trip(
        entries in prop::collection::vec(arbitrary_entry(), 0..40),
        index_type: Option<u32>,
        seqno: Option<u64>,
        filtering: Option<bool>,
    ) {
        let all: BTreeMap<_, _> = entries.into_iter().collect();
        let mut properties = TableProperties::from_entries(&all)?;
        properties.index_type = index_type;
        properties.external_sst_file_global_seqno = seqno;
        properties.prefix_filtering = filtering;
        // Values that are not written do not come back.
        if properties.index_partitions == 0 {
            properties.top_level_index_size = 0;
        }
        if properties.user_defined_timestamps_persisted != 0 {
            properties.user_defined_timestamps_persisted = 1;
        }
        let entries = properties.to_entries([0; 3]);
        prop_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        prop_assert_eq!(TableProperties::from_entries(entries)?, properties);
    }

    #[test]
    fn reading_is_total(entries: Vec<(Vec<u8>, Vec<u8>)>, name in 0..INTS.len(), value: Vec<u8>) {
        let _ = TableProperties::from_entries(entries);
        let _ = TableProperties::from_entries([(INTS[name].name, value)]);
    }
}
