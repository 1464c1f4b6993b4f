//! The block-based table's options.

use rockmill_core::{DeclineReason, Error, Result, TablePlan};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::footer::FORMAT_VERSIONS;
use rockmill_format::index::{IndexSettings, IndexShortening};
use rockmill_format::options_file::{ColumnFamilyOptions, Options};

use super::{Admitted, NULL, compression, malformed, require, require_object};

/// First version in which the common prefix of a block's keys is stored once.
const FIRST_COMMON_PREFIX_VERSION: u64 = 8;

const DEFAULT_FORMAT_VERSION: u64 = 7;
const DEFAULT_BLOCK_SIZE: u64 = 4096;
const DEFAULT_RESTART_INTERVAL: u64 = 16;

/// Declines layouts that are not written here.
pub fn check(table: &Options) -> Result<()> {
    let off = ["false"];
    require(
        table,
        "partition_filters",
        &off,
        DeclineReason::PartitionedFilters,
    )?;
    require(
        table,
        "index_type",
        &["kBinarySearch"],
        DeclineReason::IndexType,
    )?;
    require(
        table,
        "data_block_index_type",
        &["kDataBlockBinarySearch"],
        DeclineReason::DataBlockIndex,
    )?;
    require(
        table,
        "separate_key_value_in_data_block",
        &off,
        DeclineReason::SeparateKeyValue,
    )?;
    require(table, "block_align", &off, DeclineReason::BlockAlign)?;
    require(
        table,
        "super_block_alignment_size",
        &["0"],
        DeclineReason::BlockAlign,
    )?;
    require_object(
        table,
        "user_defined_index_factory",
        &[NULL],
        DeclineReason::UserDefinedIndex,
    )?;
    require(
        table,
        "flush_block_policy_factory",
        &["FlushBlockBySizePolicyFactory"],
        DeclineReason::FlushBlockPolicy,
    )?;
    // Non-negative: index blocks are to carry a hint for interpolation search.
    if table.f64("uniform_cv_threshold", -1.0).map_err(malformed)? >= 0.0 {
        return Err(Error::declined(
            DeclineReason::IndexType,
            "uniform_cv_threshold is set",
        ));
    }
    Ok(())
}

/// The layout of output files, but for the filter.
pub fn plan(admitted: &Admitted<'_>, family: &ColumnFamilyOptions) -> Result<TablePlan> {
    let table = &family.table_options;
    let number = |key: &str, default: u64| table.u64(key, default).map_err(malformed);
    let version = number("format_version", DEFAULT_FORMAT_VERSION)?;
    let format_version = u32::try_from(version)
        .ok()
        .filter(|version| FORMAT_VERSIONS.contains(version))
        .ok_or_else(|| {
            Error::declined(
                DeclineReason::FormatVersion,
                format!("format_version is {version}"),
            )
        })?;
    let delta_keys = table.bool("use_delta_encoding", true).map_err(malformed)?;
    let strips_prefix = table.str("optimize_key_common_prefix") != Some("kDisabled");
    let common_prefix = version >= FIRST_COMMON_PREFIX_VERSION && delta_keys && strips_prefix;
    let (compression, _) = compression::choose(admitted.job, family)?;
    Ok(TablePlan {
        format_version,
        checksum: named(table, "checksum", "kXXH3", ChecksumType::from_option)?,
        block_size: number("block_size", DEFAULT_BLOCK_SIZE)?.max(1),
        restart_interval: number("block_restart_interval", DEFAULT_RESTART_INTERVAL)?.max(1)
            as usize,
        delta_keys,
        common_prefix,
        index: IndexSettings {
            format_version,
            restart_interval: number("index_block_restart_interval", 1)?.max(1) as usize,
            shortening: named(
                table,
                "index_shortening",
                "kShortenSeparators",
                IndexShortening::from_option,
            )?,
            common_prefix,
        },
        compression,
        compress_index: table
            .bool("enable_index_compression", true)
            .map_err(malformed)?,
        filter: None,
    })
}

/// The value of an option that is one of a few names.
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
