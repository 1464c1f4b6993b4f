//! The properties of a file in readable form.

use jiff::Timestamp;
use rockmill_format::properties::{TableProperties, UNKNOWN_COLUMN_FAMILY, UNKNOWN_SEQNO};
use rockmill_format::table::IndexType;
use rockmill_format::wire::PropertyValue;
use rockmill_terminal::output;
use serde_json::Value;
use std::collections::BTreeMap;

/// One property.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// Name of the C++ member, or the name in the file for properties without a member.
    pub name: String,
    /// A number, or the text with escaped bytes.
    pub value: Value,
    /// The value with its unit.
    pub shown: String,
}

/// Returns all properties that the file contains or that have a default; texts only if not empty.
pub fn properties(properties: &TableProperties) -> Vec<Property> {
    let mut rows = Vec::new();
    for (name, value) in properties.result_fields(&BTreeMap::new()) {
        match value {
            PropertyValue::Int(number) => rows.push(Property {
                name: name.to_owned(),
                value: number.into(),
                shown: with_unit(name, number),
            }),
            PropertyValue::Bytes(text) if !text.is_empty() => rows.push(text_row(name, &text)),
            _ => {}
        }
    }
    rows.extend(block_based(properties));
    rows.extend(
        properties
            .user
            .iter()
            .map(|(name, value)| text_row(&output::escape(name), value)),
    );
    rows
}

/// Returns the properties that the block-based table stores in its own formats.
fn block_based(properties: &TableProperties) -> impl Iterator<Item = Property> {
    let index_type = properties.index_type.and_then(IndexType::from_code);
    let embedded = properties.embedded_blob_stats.as_deref();
    let values = [
        (
            "index_type",
            index_type.map(|kind| Value::from(self::index_type(kind))),
        ),
        (
            "whole_key_filtering",
            properties.whole_key_filtering.map(Value::from),
        ),
        (
            "prefix_filtering",
            properties.prefix_filtering.map(Value::from),
        ),
        (
            "decoupled_partitioned_filters",
            properties.decoupled_partitioned_filters.map(Value::from),
        ),
        (
            "external_sst_file_version",
            properties.external_sst_file_version.map(Value::from),
        ),
        (
            "external_sst_file_global_seqno",
            properties.external_sst_file_global_seqno.map(Value::from),
        ),
        (
            "embedded_blob_stats",
            embedded.map(|stats| Value::from(output::escape(stats))),
        ),
    ];
    values.into_iter().filter_map(|(name, value)| {
        let value = value?;
        let shown = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some(Property {
            name: name.to_owned(),
            value,
            shown,
        })
    })
}

fn text_row(name: &str, text: &[u8]) -> Property {
    let shown = output::escape(text);
    Property {
        name: name.to_owned(),
        value: shown.clone().into(),
        shown,
    }
}

fn with_unit(name: &str, number: u64) -> String {
    let unknown = match name {
        "column_family_id" => number == UNKNOWN_COLUMN_FAMILY,
        "key_largest_seqno" | "key_smallest_seqno" => number == UNKNOWN_SEQNO,
        _ => number == 0 && name.ends_with("_time"),
    };
    if unknown {
        "unknown".to_owned()
    } else if name == "lsm_info_at_creation" {
        lsm_info(number)
    } else if name.ends_with("_size") || name.ends_with("_offset") {
        output::bytes(number)
    } else if name.ends_with("_time") {
        time(number)
    } else {
        number.to_string()
    }
}

/// Formats seconds since 1970, with the time in UTC if the year can be represented.
fn time(seconds: u64) -> String {
    let known = i64::try_from(seconds).ok();
    match known.and_then(|seconds| Timestamp::from_second(seconds).ok()) {
        Some(time) => format!("{seconds} ({time})"),
        None => format!("{seconds} s since 1970"),
    }
}

/// Formats the level and whether it is bottommost (`table_properties.cc:LsmInfoAtCreation::Encode`).
fn lsm_info(number: u64) -> String {
    const LEVEL_MASK: u64 = 0xff;
    const STATE_SHIFT: u32 = 8;
    const STATE_MASK: u64 = 3;
    if number == 0 {
        return "unknown".to_owned();
    }
    let level = match number & LEVEL_MASK {
        LEVEL_MASK => "unknown level".to_owned(),
        level => format!("level {level}"),
    };
    let state = match number >> STATE_SHIFT & STATE_MASK {
        1 => ", not bottommost",
        2 => ", bottommost",
        _ => "",
    };
    level + state
}

/// Returns RocksDB's name of an index type (`BlockBasedTableOptions::IndexType`).
pub fn index_type(kind: IndexType) -> &'static str {
    match kind {
        IndexType::BinarySearch => "kBinarySearch",
        IndexType::Hash => "kHashSearch",
        IndexType::TwoLevel => "kTwoLevelIndexSearch",
        IndexType::BinarySearchWithFirstKey => "kBinarySearchWithFirstKey",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockmill_format::properties::lsm_info_at_creation;

    #[test]
    fn values_carry_their_units() {
        assert_eq!(with_unit("data_size", 2048), "2048 B (2.0 KiB)");
        assert_eq!(with_unit("num_entries", 2048), "2048");
        for name in ["creation_time", "file_creation_time", "oldest_key_time"] {
            let shown = "1700000000 (2023-11-14T22:13:20Z)";
            assert_eq!(with_unit(name, 1_700_000_000), shown);
        }
        let far = format!("{} s since 1970", u64::MAX);
        assert_eq!(with_unit("creation_time", u64::MAX), far);
        assert_eq!(with_unit("creation_time", 0), "unknown");
        assert_eq!(with_unit("key_largest_seqno", UNKNOWN_SEQNO), "unknown");
        for (bottommost, text) in [(true, "bottommost"), (false, "not bottommost")] {
            assert_eq!(
                with_unit("lsm_info_at_creation", lsm_info_at_creation(6, bottommost)),
                format!("level 6, {text}")
            );
        }
    }

    #[test]
    fn user_properties_are_escaped_and_block_based_ones_decoded() {
        let mut all = TableProperties {
            index_type: Some(2),
            whole_key_filtering: Some(true),
            ..TableProperties::default()
        };
        all.user.insert(b"my.prop".to_vec(), vec![0, b'x']);
        let rows = properties(&all);
        let shown = |name: &str| {
            let row = rows.iter().find(|row| row.name == name)?;
            Some(row.shown.as_str())
        };
        assert_eq!(shown("my.prop"), Some("\\x00x"));
        assert_eq!(shown("index_type"), Some("kTwoLevelIndexSearch"));
        assert_eq!(shown("whole_key_filtering"), Some("true"));
        assert_eq!(shown("prefix_filtering"), None);
        assert_eq!(shown("num_entries"), Some("0"));
    }
}
