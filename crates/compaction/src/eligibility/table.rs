//! Options of the block-based table.

use rockmill_core::{DeclineReason, Error, Result, TablePlan};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::footer::FORMAT_VERSIONS;
use rockmill_format::index::{IndexPartitions, IndexSettings, IndexShortening};
use rockmill_format::key::KeyOrder;
use rockmill_format::options_file::{ColumnFamilyOptions, Options};
use rockmill_format::versions;

use super::{EligibleJob, NULL, compression, malformed, require, require_object};
use rockmill_snapshot::Findings;

/// First format version that stores the common prefix of a block's keys only once.
const FIRST_COMMON_PREFIX_VERSION: u32 = 8;

const BINARY_SEARCH: &str = "kBinarySearch";
const TWO_LEVEL: &str = "kTwoLevelIndexSearch";

/// Table options that must be absent or have one of these values.
const VALUES: [(&str, &[&str], DeclineReason); 5] = [
    (
        "index_type",
        // Readers go by the property of each file, and hashes only speed up what a binary search finds.
        &[BINARY_SEARCH, TWO_LEVEL, "kHashSearch"],
        DeclineReason::IndexType,
    ),
    (
        "separate_key_value_in_data_block",
        &["false"],
        DeclineReason::SeparateKeyValue,
    ),
    ("block_align", &["false"], DeclineReason::BlockAlign),
    (
        "super_block_alignment_size",
        &["0"],
        DeclineReason::BlockAlign,
    ),
    (
        "flush_block_policy_factory",
        &["FlushBlockBySizePolicyFactory"],
        DeclineReason::FlushBlockPolicy,
    ),
];

/// Finds layouts that Rockmill does not write.
pub fn check(table: &Options, written_by: [u32; 3], found: &mut Findings) {
    for (key, fine, reason) in VALUES {
        found.note(require(table, key, fine, reason));
    }
    found.note(require_object(
        table,
        "user_defined_index_factory",
        &[NULL],
        written_by,
        DeclineReason::UserDefinedIndex,
    ));
    found.note(interpolation(table));
    found.note(keys_per_bucket(table).map(drop));
    found.note(format_version(table, written_by).map(drop));
}

/// A threshold of 0 or more requests hints for interpolation search in index blocks. RocksJava requests them from 11.0 on
/// unless it is told not to. Rockmill writes none, as earlier versions of RocksDB do. So it leaves databases to RocksDB that
/// use them.
fn interpolation(table: &Options) -> Result<()> {
    let is_read = table.str("index_block_search_type") == Some("kAuto");
    if !is_read || table.f64("uniform_cv_threshold", -1.0).map_err(malformed)? < 0.0 {
        return Ok(());
    }
    Err(Error::declined(
        DeclineReason::IndexType,
        "uniform_cv_threshold is set, and index_block_search_type is kAuto",
    ))
}

/// Keys for each bucket of the hash index in data blocks, if one is written.
fn keys_per_bucket(table: &Options) -> Result<Option<f64>> {
    const USUAL: f64 = 0.75;
    let ratio = table
        .f64("data_block_hash_table_util_ratio", USUAL)
        .map_err(malformed)?;
    named(
        table,
        "data_block_index_type",
        "kDataBlockBinarySearch",
        |name| match name {
            "kDataBlockBinarySearch" => Some(None),
            "kDataBlockBinaryAndHash" => Some(Some(ratio)),
            _ => None,
        },
    )
}

/// The version of output files. RocksDB would stop at a version that it cannot read.
fn format_version(table: &Options, written_by: [u32; 3]) -> Result<u32> {
    let release = versions::release(written_by);
    let default = u64::from(release.default_format_version);
    let version = table.u64("format_version", default).map_err(malformed)?;
    let written = *FORMAT_VERSIONS.start()..=release.newest_format_version;
    u32::try_from(version)
        .ok()
        .filter(|version| written.contains(version))
        .ok_or_else(|| {
            Error::declined(
                DeclineReason::FormatVersion,
                format!("format_version is {version}"),
            )
        })
}

/// Returns the layout of output files, without the filter.
pub fn plan(eligible: &EligibleJob, family: &ColumnFamilyOptions) -> Result<TablePlan> {
    const METADATA_BLOCK_SIZE: u64 = 4096;
    const DEVIATION: u64 = 10;
    let (table, default) = (&family.table_options, TablePlan::default());
    let number = |key: &str, default: u64| table.u64(key, default).map_err(malformed);
    let rocksdb_version = eligible.file.rocksdb_version;
    let format_version = format_version(table, rocksdb_version)?;
    let delta_keys = table.bool("use_delta_encoding", true).map_err(malformed)?;
    let strips_prefix = table.str("optimize_key_common_prefix") != Some("kDisabled");
    let common_prefix =
        format_version >= FIRST_COMMON_PREFIX_VERSION && delta_keys && strips_prefix;
    let has_own_comparator = KeyOrder::from_comparator(eligible.comparator()).is_none();
    let (compression, _) = compression::choose(&eligible.job, family, rocksdb_version)?;
    Ok(TablePlan {
        format_version,
        checksum: named(table, "checksum", "kXXH3", ChecksumType::from_option)?,
        block_size: number("block_size", default.block_size)?.max(1),
        restart_interval: number("block_restart_interval", default.restart_interval as u64)?.max(1)
            as usize,
        delta_keys,
        common_prefix,
        // RocksDB writes no hashes for a comparator that may call keys of different bytes equal, as others than its own do.
        keys_per_bucket: keys_per_bucket(table)?.filter(|_| !has_own_comparator),
        index: IndexSettings {
            format_version,
            restart_interval: number("index_block_restart_interval", 1)?.max(1) as usize,
            shortening: match has_own_comparator {
                // A comparator of the program must see no other keys than the program's.
                true => IndexShortening::None,
                false => named(
                    table,
                    "index_shortening",
                    "kShortenSeparators",
                    IndexShortening::from_option,
                )?,
            },
            order: eligible.order()?,
            common_prefix,
            partitions: match table.str("index_type") {
                Some(TWO_LEVEL) => Some(IndexPartitions {
                    block_size: number("metadata_block_size", METADATA_BLOCK_SIZE)?,
                    // Other values count as 0.
                    deviation: Some(number("block_size_deviation", DEVIATION)?)
                        .filter(|&percent| percent <= 100)
                        .unwrap_or(0),
                }),
                _ => None,
            },
        },
        compression,
        compress_index: table
            .bool("enable_index_compression", true)
            .map_err(malformed)?,
        filter: None,
        prefixes: None,
    })
}

/// Parses an option that is one of a few names.
fn named<T>(
    table: &Options,
    key: &str,
    default: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T> {
    let name = table.str(key).unwrap_or(default);
    parse(name)
        .ok_or_else(|| Error::declined(DeclineReason::OptionsFile, format!("{key} is {name}")))
}
