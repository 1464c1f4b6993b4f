//! Table properties in a result message.

use super::value::{Added, Fields, Out, Value, write_hex};
use crate::error::Result;
use crate::options_file::text::TextSlice;
use crate::versions::reads_field;

/// The value of one table property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    /// A number.
    Int(u64),
    /// A string of any bytes.
    Bytes(Vec<u8>),
    /// A map of strings, such as the user collected properties.
    Map(Vec<(Vec<u8>, Vec<u8>)>),
}

/// Kind of [`PropertyValue`] of a table property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyKind {
    /// [`PropertyValue::Int`].
    Int,
    /// [`PropertyValue::Bytes`].
    Bytes,
    /// [`PropertyValue::Map`].
    Map,
}

/// C++ member names of the numbers in `TableProperties` (`table/table_properties.cc`, 11.12). [`crate::versions`] lists
/// those that older versions lack. Older versions also have `external_sst_file_global_seqno_offset`, whose default of 0
/// is right for output files.
const INTS: [&str; 38] = [
    "column_family_id",
    "creation_time",
    "data_block_restart_interval",
    "data_size",
    "fast_compression_estimated_data_size",
    "file_creation_time",
    "filter_size",
    "fixed_key_len",
    "format_version",
    "index_block_restart_interval",
    "index_key_is_user_key",
    "index_partitions",
    "index_size",
    "index_value_is_delta_encoded",
    "key_largest_seqno",
    "key_smallest_seqno",
    "lsm_info_at_creation",
    "newest_key_time",
    "num_data_blocks",
    "num_data_blocks_compression_bypassed",
    "num_data_blocks_compression_rejected",
    "num_deletions",
    "num_entries",
    "num_filter_entries",
    "num_merge_operands",
    "num_range_deletions",
    "num_uniform_blocks",
    "oldest_key_time",
    "orig_file_number",
    "raw_key_size",
    "raw_value_size",
    "separate_key_value_in_data_block",
    "slow_compression_estimated_data_size",
    "tail_start_offset",
    "top_level_index_size",
    "udi_is_primary_index",
    "uncompressed_data_size",
    "user_defined_timestamps_persisted",
];

/// C++ member names of the strings in `TableProperties`.
const BYTES: [&str; 12] = [
    "column_family_name",
    "comparator_name",
    "compression_name",
    "compression_options",
    "db_host_id",
    "db_id",
    "db_session_id",
    "filter_policy_name",
    "merge_operator_name",
    "prefix_extractor_name",
    "property_collectors_names",
    "seqno_to_time_mapping",
];

/// C++ member names of the maps in `TableProperties`.
const MAPS: [&str; 2] = ["readable_properties", "user_collected_properties"];

/// The kind of a table property by its C++ member name; `None` for a name that RocksDB 11.12
/// would ignore.
pub fn property_kind(name: &str) -> Option<PropertyKind> {
    if INTS.contains(&name) {
        Some(PropertyKind::Int)
    } else if BYTES.contains(&name) {
        Some(PropertyKind::Bytes)
    } else if MAPS.contains(&name) {
        Some(PropertyKind::Map)
    } else {
        None
    }
}

impl Value for Vec<(String, PropertyValue)> {
    fn write(&self, out: &mut Out) {
        const ADDED: Added = |release| release.table_properties;
        out.text.push('{');
        for (name, value) in self {
            if !reads_field(ADDED, name, out.version) {
                continue;
            }
            out.text.push_str(name);
            out.text.push('=');
            match value {
                PropertyValue::Int(number) => number.write(out),
                PropertyValue::Bytes(bytes) => bytes.write(out),
                PropertyValue::Map(map) => write_map(&mut out.text, map),
            }
            out.text.push(';');
        }
        out.text.push('}');
    }

    /// Reads the properties that 11.12 knows, ordered by name.
    fn read(text: TextSlice<'_>) -> Result<Self> {
        let mut properties = Self::new();
        for (name, value) in Fields::parse(text)?.iter() {
            let value = match property_kind(name) {
                Some(PropertyKind::Int) => PropertyValue::Int(u64::read(value)?),
                Some(PropertyKind::Bytes) => PropertyValue::Bytes(Vec::<u8>::read(value)?),
                Some(PropertyKind::Map) => PropertyValue::Map(read_map(value)?),
                None => continue,
            };
            properties.push((name.to_owned(), value));
        }
        Ok(properties)
    }
}

fn write_map(out: &mut String, map: &[(Vec<u8>, Vec<u8>)]) {
    out.push('{');
    for (key, value) in map {
        write_hex(out, key);
        out.push('=');
        write_hex(out, value);
        out.push(';');
    }
    out.push('}');
}

/// A map in braces. Unlike a struct's names, a key may be empty (`OptionTypeInfo::StringMap`).
fn read_map(text: TextSlice<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut map = Vec::new();
    for item in text.elements(';')? {
        if item.text.is_empty() {
            continue;
        }
        let Some((key, value)) = item.text.split_once('=') else {
            return Err(item.corruption("a map entry must have a '='"));
        };
        let value_at = item.at + key.len() as u64 + 1;
        let key = Vec::<u8>::read(TextSlice::new(item.at, key))?;
        map.push((key, Vec::<u8>::read(TextSlice::new(value_at, value))?));
    }
    Ok(map)
}
