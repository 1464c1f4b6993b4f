//! Rules for the end of output files: target size, grandparents, compression ratio.

use rockmill_core::{Grandparent, InputTable, Job, OutputSplitting, Result};
use rockmill_format::key::KeyOrder;
use rockmill_format::options_file::{ColumnFamilyOptions, Options};

use super::{in_order, malformed};
use rockmill_snapshot::levels::num_levels;

const DEFAULT_TARGET_FILE_SIZE: u64 = 64 << 20;
const DEFAULT_LEVEL_BASE_BYTES: u64 = 256 << 20;
const DEFAULT_MULTIPLIER: f64 = 10.0;
/// With `max_compaction_bytes` of 0, the limit is this number of target files (`column_family.cc:SanitizeCfOptions`).
const COMPACTION_TARGET_FILES: u64 = 25;

/// Returns the rules for the end of output files, without the tails of subcompactions.
pub fn plan(
    job: &Job,
    family: &ColumnFamilyOptions,
    order: KeyOrder,
    tables: &[InputTable],
    written_by: [u32; 3],
) -> Result<OutputSplitting> {
    let cf = &family.options;
    let level_style = is_level_style(cf);
    let target_file_size = target_file_size(job, cf, level_style)?;
    let single_file = job.info.output_level == 0;
    // RocksDB creates no partitioner for level 0 (`compaction_outputs.cc:CompactionOutputs`).
    let partition_bytes = match single_file {
        true => None,
        false => super::options::partition_bytes(cf, written_by)?,
    };
    let grandparents = if level_style && !single_file {
        grandparents(job, order)
    } else {
        Vec::new()
    };
    let at_once = if job.info.is_bottommost_level || grandparents.is_empty() {
        1
    } else {
        2
    };
    let max_compaction_bytes = match cf.u64("max_compaction_bytes", 0).map_err(malformed)? {
        0 => target_file_size.saturating_mul(COMPACTION_TARGET_FILES),
        bytes => bytes,
    };
    Ok(OutputSplitting {
        single_file,
        target_file_size,
        max_output_file_size: target_file_size.saturating_mul(at_once),
        size_is_upper_bound: cf
            .bool("target_file_size_is_upper_bound", false)
            .map_err(malformed)?,
        compression_ratio: compression_ratio(tables),
        grandparents,
        max_compaction_bytes,
        level_style,
        partition_bytes,
        ..OutputSplitting::default()
    })
}

fn is_level_style(cf: &Options) -> bool {
    matches!(
        cf.str("compaction_style"),
        None | Some("kCompactionStyleLevel")
    )
}

/// Returns the files of the first deeper level that has any in the inputs' range
/// (`compaction_picker.cc:GetGrandparents`). One that RocksDB may have deleted can be among them, and files then end at its
/// bounds as well.
fn grandparents(job: &Job, order: KeyOrder) -> Vec<Grandparent> {
    let Some((_, files)) = job.tree.deeper.first() else {
        return Vec::new();
    };
    let files = in_order(files, order).into_iter();
    let grandparents = files.map(|file| Grandparent {
        smallest: file.smallest.clone(),
        largest: file.largest.clone(),
        size: file.size,
    });
    grandparents.collect()
}

/// `options/cf_options.cc:MaxFileSizeForLevel`.
fn target_file_size(job: &Job, cf: &Options, level_style: bool) -> Result<u64> {
    let base_size = cf
        .u64("target_file_size_base", DEFAULT_TARGET_FILE_SIZE)
        .map_err(malformed)?
        .max(1);
    let multiplier = cf
        .u64("target_file_size_multiplier", 1)
        .map_err(malformed)?
        .max(1);
    let level = i64::from(job.info.output_level);
    let base = base_level(job, cf)?;
    let steps = if level_style && is_dynamic(cf)? && level >= base {
        level - base
    } else {
        level
    };
    // Levels 0 and 1 have the base size.
    let growth = u32::try_from(steps.max(1) - 1).unwrap_or(0);
    Ok(base_size.saturating_mul(multiplier.saturating_pow(growth)))
}

fn is_dynamic(cf: &Options) -> Result<bool> {
    cf.bool("level_compaction_dynamic_level_bytes", true)
        .map_err(malformed)
}

/// Returns the level into which level 0 is compacted, computed from the levels' sizes
/// (`version_set.cc:VersionStorageInfo::CalculateBaseBytes`).
pub fn base_level(job: &Job, cf: &Options) -> Result<i64> {
    if !is_level_style(cf) || !is_dynamic(cf)? {
        return Ok(1);
    }
    let last = i64::from(num_levels(cf).map_err(malformed)?) - 1;
    let multiplier = cf
        .f64("max_bytes_for_level_multiplier", DEFAULT_MULTIPLIER)
        .map_err(malformed)?
        .max(1.0);
    let base_bytes = cf
        .u64("max_bytes_for_level_base", DEFAULT_LEVEL_BASE_BYTES)
        .map_err(malformed)?;
    let below_l0 = job.tree.levels.iter().filter(|level| level.level > 0);
    let Some(first) = below_l0.clone().map(|level| i64::from(level.level)).min() else {
        return Ok(last);
    };
    let largest = below_l0.map(|level| level.bytes).max().unwrap_or(0);
    let shrink = |bytes: u64| (bytes as f64 / multiplier) as u64;
    let mut bytes = largest;
    for _ in first..last {
        bytes = shrink(bytes);
    }
    let mut base = first;
    if bytes > shrink(base_bytes) {
        while base > 1 && bytes > base_bytes {
            base -= 1;
            bytes = shrink(bytes);
        }
    }
    Ok(base)
}

/// Returns stored and uncompressed bytes of the inputs' data blocks. Files of older versions lack the uncompressed
/// size; the size of their keys and values is used instead.
fn compression_ratio(tables: &[InputTable]) -> (u64, u64) {
    let sizes = tables.iter().map(|table| {
        let properties = &table.meta.properties;
        let raw = match properties.uncompressed_data_size {
            0 => properties.raw_bytes(),
            raw => raw,
        };
        (properties.data_size, raw)
    });
    sizes.fold((0, 0), |(stored, raw), (s, r)| {
        (stored.saturating_add(s), raw.saturating_add(r))
    })
}
