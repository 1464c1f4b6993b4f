//! One row per property: its name in the file, its member name in C++, its field, and the condition for writing it.

use super::{TableProperties, UNKNOWN_COLUMN_FAMILY, UNKNOWN_SEQNO};
use crate::coding::Cursor;
use crate::error::{Error, Result};
use Written::{Always, IfIndexIsPartitioned, OnlyIf, Unless};
use std::collections::BTreeMap;

const INDEX_TYPE: &str = "rocksdb.block.based.table.index.type";
const WHOLE_KEY_FILTERING: &str = "rocksdb.block.based.table.whole.key.filtering";
const PREFIX_FILTERING: &str = "rocksdb.block.based.table.prefix.filtering";
const DECOUPLED_PARTITIONED_FILTERS: &str =
    "rocksdb.block.based.table.decoupled.partitioned.filters";
const EXTERNAL_VERSION: &str = "rocksdb.external_sst_file.version";
/// The sequence number of all entries of an ingested file
/// (`table/sst_file_writer_collectors.h:ExternalSstFilePropertyNames`).
pub(crate) const EXTERNAL_GLOBAL_SEQNO: &str = "rocksdb.external_sst_file.global_seqno";
const EMBEDDED_BLOB_STATS: &str = "rocksdb.embedded.blob.stats";

/// Condition under which RocksDB writes an integer property.
#[derive(Debug, Clone, Copy)]
pub(super) enum Written {
    Always,
    Unless(u64),
    OnlyIf(u64),
    IfIndexIsPartitioned,
}

impl Written {
    pub(super) fn holds(self, value: u64, properties: &TableProperties) -> bool {
        match self {
            Self::Always => true,
            Self::Unless(absent) => value != absent,
            Self::OnlyIf(present) => value == present,
            Self::IfIndexIsPartitioned => properties.index_partitions != 0,
        }
    }
}

pub(super) struct IntRow {
    pub(super) name: &'static str,
    pub(super) member: &'static str,
    pub(super) get: fn(&TableProperties) -> u64,
    pub(super) get_mut: fn(&mut TableProperties) -> &mut u64,
    pub(super) written: Written,
}

/// Texts are written unless they are empty.
pub(super) struct BytesRow {
    pub(super) name: &'static str,
    pub(super) member: &'static str,
    pub(super) get: fn(&TableProperties) -> &Vec<u8>,
    pub(super) get_mut: fn(&mut TableProperties) -> &mut Vec<u8>,
}

macro_rules! int {
    ($field:ident, $name:literal, $written:expr) => {
        int!($field, stringify!($field), $name, $written)
    };
    ($field:ident, $member:expr, $name:literal, $written:expr) => {
        IntRow {
            name: concat!("rocksdb.", $name),
            member: $member,
            get: |properties| properties.$field,
            get_mut: |properties| &mut properties.$field,
            written: $written,
        }
    };
}

macro_rules! bytes {
    ($field:ident, $name:literal) => {
        BytesRow {
            name: concat!("rocksdb.", $name),
            member: stringify!($field),
            get: |properties| &properties.$field,
            get_mut: |properties| &mut properties.$field,
        }
    };
}

#[rustfmt::skip]
pub(super) const INTS: &[IntRow] = &[
    int!(orig_file_number, "original.file.number", Always),
    int!(data_size, "data.size", Always),
    int!(uncompressed_data_size, "uncompressed.data.size", Always),
    int!(index_size, "index.size", Always),
    int!(index_partitions, "index.partitions", IfIndexIsPartitioned),
    int!(top_level_index_size, "top-level.index.size", IfIndexIsPartitioned),
    int!(index_key_is_user_key, "index.key.is.user.key", Always),
    int!(index_value_is_delta_encoded, "index.value.is.delta.encoded", Always),
    int!(udi_is_primary_index, "udi.is.primary.index", Unless(0)),
    int!(filter_size, "filter.size", Always),
    int!(raw_key_size, "raw.key.size", Always),
    int!(raw_value_size, "raw.value.size", Always),
    int!(num_data_blocks, "num.data.blocks", Always),
    int!(num_data_blocks_compression_rejected, "num.data.blocks.compression.rejected", Unless(0)),
    int!(num_data_blocks_compression_bypassed, "num.data.blocks.compression.bypassed", Unless(0)),
    int!(num_uniform_blocks, "num.uniform.blocks", Always),
    int!(num_entries, "num.entries", Always),
    int!(num_filter_entries, "num.filter_entries", Always),
    int!(num_deletions, "deleted.keys", Always),
    int!(num_merge_operands, "merge.operands", Always),
    int!(num_range_deletions, "num.range-deletions", Always),
    int!(format_version, "format.version", Always),
    int!(fixed_key_len, "fixed.key.length", Always),
    int!(column_family_id, "column.family.id", Always),
    int!(oldest_ancestor_time, "creation_time", "creation.time", Always),
    int!(oldest_key_time, "oldest.key.time", Always),
    int!(newest_key_time, "newest.key.time", Always),
    int!(file_creation_time, "file.creation.time", Unless(0)),
    int!(slow_compression_estimated_data_size, "sample_for_compression.slow.data.size", Unless(0)),
    int!(fast_compression_estimated_data_size, "sample_for_compression.fast.data.size", Unless(0)),
    int!(tail_start_offset, "tail.start.offset", Always),
    int!(user_defined_timestamps_persisted, "user.defined.timestamps.persisted", OnlyIf(0)),
    int!(key_largest_seqno, "key.largest.seqno", Unless(UNKNOWN_SEQNO)),
    int!(key_smallest_seqno, "key.smallest.seqno", Unless(UNKNOWN_SEQNO)),
    int!(data_block_restart_interval, "data.block.restart.interval", Unless(0)),
    int!(index_block_restart_interval, "index.block.restart.interval", Unless(0)),
    int!(separate_key_value_in_data_block, "separate.key.value.in.data.block", Unless(0)),
    int!(lsm_info_at_creation, "lsm.info.at.creation", Unless(0)),
];

pub(super) const BYTES: &[BytesRow] = &[
    bytes!(db_id, "creating.db.identity"),
    bytes!(db_session_id, "creating.session.identity"),
    bytes!(db_host_id, "creating.host.identity"),
    bytes!(column_family_name, "column.family.name"),
    bytes!(filter_policy_name, "filter.policy"),
    bytes!(comparator_name, "comparator"),
    bytes!(merge_operator_name, "merge.operator"),
    bytes!(prefix_extractor_name, "prefix.extractor.name"),
    bytes!(property_collectors_names, "property.collectors"),
    bytes!(compression_name, "compression"),
    bytes!(compression_options, "compression_options"),
    bytes!(seqno_to_time_mapping, "seqno.time.map"),
];

/// A varint64 that fills the value.
pub(super) fn parse_varint(name: &str, value: &[u8]) -> Result<u64> {
    let mut cursor = Cursor::new(value);
    match cursor.varint64() {
        Ok(number) if cursor.is_empty() => Ok(number),
        _ => Err(malformed(name)),
    }
}

fn malformed(name: &str) -> Error {
    Error::corruption(0, format!("malformed property {name}"))
}

fn parse_fixed<const N: usize>(name: &str, value: &[u8]) -> Result<[u8; N]> {
    value.try_into().map_err(|_| malformed(name))
}

/// Only `0` is false (`block_based_table_reader.cc:IsFeatureSupported`).
fn parse_bool(value: &[u8]) -> bool {
    value != b"0"
}

/// Takes one of the properties that RocksDB keeps among the user-collected ones; false for other properties.
pub(super) fn set_user_collected(
    properties: &mut TableProperties,
    name: &[u8],
    value: &[u8],
) -> Result<bool> {
    let Ok(name) = std::str::from_utf8(name) else {
        return Ok(false);
    };
    match name {
        INDEX_TYPE => {
            properties.index_type = Some(u32::from_le_bytes(parse_fixed(name, value)?));
        }
        WHOLE_KEY_FILTERING => properties.whole_key_filtering = Some(parse_bool(value)),
        PREFIX_FILTERING => properties.prefix_filtering = Some(parse_bool(value)),
        DECOUPLED_PARTITIONED_FILTERS => {
            properties.decoupled_partitioned_filters = Some(parse_bool(value));
        }
        EXTERNAL_VERSION => {
            let version = u32::from_le_bytes(parse_fixed(name, value)?);
            properties.external_sst_file_version = Some(version);
        }
        EXTERNAL_GLOBAL_SEQNO => {
            let seqno = u64::from_le_bytes(parse_fixed(name, value)?);
            properties.external_sst_file_global_seqno = Some(seqno);
        }
        EMBEDDED_BLOB_STATS => properties.embedded_blob_stats = Some(value.to_vec()),
        _ => return Ok(false),
    }
    Ok(true)
}

/// The inverse of [`set_user_collected`], for all of them.
pub(super) fn user_collected(
    properties: &TableProperties,
) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let fixed32 = |value: Option<u32>| value.map(|value| value.to_le_bytes().to_vec());
    let fixed64 = |value: Option<u64>| value.map(|value| value.to_le_bytes().to_vec());
    let boolean = |value: Option<bool>| value.map(|value| vec![if value { b'1' } else { b'0' }]);
    [
        (INDEX_TYPE, fixed32(properties.index_type)),
        (WHOLE_KEY_FILTERING, boolean(properties.whole_key_filtering)),
        (PREFIX_FILTERING, boolean(properties.prefix_filtering)),
        (
            DECOUPLED_PARTITIONED_FILTERS,
            boolean(properties.decoupled_partitioned_filters),
        ),
        (
            EXTERNAL_VERSION,
            fixed32(properties.external_sst_file_version),
        ),
        (
            EXTERNAL_GLOBAL_SEQNO,
            fixed64(properties.external_sst_file_global_seqno),
        ),
        (EMBEDDED_BLOB_STATS, properties.embedded_blob_stats.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.into(), value?)))
}

impl Default for TableProperties {
    fn default() -> Self {
        Self {
            column_family_id: UNKNOWN_COLUMN_FAMILY,
            user_defined_timestamps_persisted: 1,
            key_largest_seqno: UNKNOWN_SEQNO,
            key_smallest_seqno: UNKNOWN_SEQNO,
            orig_file_number: 0,
            data_size: 0,
            uncompressed_data_size: 0,
            index_size: 0,
            index_partitions: 0,
            top_level_index_size: 0,
            index_key_is_user_key: 0,
            index_value_is_delta_encoded: 0,
            udi_is_primary_index: 0,
            filter_size: 0,
            raw_key_size: 0,
            raw_value_size: 0,
            num_data_blocks: 0,
            num_data_blocks_compression_rejected: 0,
            num_data_blocks_compression_bypassed: 0,
            num_uniform_blocks: 0,
            num_entries: 0,
            num_filter_entries: 0,
            num_deletions: 0,
            num_merge_operands: 0,
            num_range_deletions: 0,
            format_version: 0,
            fixed_key_len: 0,
            oldest_ancestor_time: 0,
            oldest_key_time: 0,
            newest_key_time: 0,
            file_creation_time: 0,
            slow_compression_estimated_data_size: 0,
            fast_compression_estimated_data_size: 0,
            tail_start_offset: 0,
            data_block_restart_interval: 0,
            index_block_restart_interval: 0,
            separate_key_value_in_data_block: 0,
            lsm_info_at_creation: 0,
            db_id: Vec::new(),
            db_session_id: Vec::new(),
            db_host_id: Vec::new(),
            column_family_name: Vec::new(),
            filter_policy_name: Vec::new(),
            comparator_name: Vec::new(),
            merge_operator_name: Vec::new(),
            prefix_extractor_name: Vec::new(),
            property_collectors_names: Vec::new(),
            compression_name: Vec::new(),
            compression_options: Vec::new(),
            seqno_to_time_mapping: Vec::new(),
            index_type: None,
            whole_key_filtering: None,
            prefix_filtering: None,
            decoupled_partitioned_filters: None,
            external_sst_file_version: None,
            external_sst_file_global_seqno: None,
            embedded_blob_stats: None,
            user: BTreeMap::new(),
        }
    }
}
