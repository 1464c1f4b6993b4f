//! The request that RocksDB would make for a manual compaction of everything, for a closed database.

use std::path::Path;

use rockmill_core::{DeclineReason, Error, JobInfo, Result};
use rockmill_format::manifest::Tree;
use rockmill_format::options_file::OptionsFile;
use rockmill_format::wire::CompactionServiceInput;

use crate::storage::{Storage, base_name};

/// `CompactionReason::kManualCompaction`.
const MANUAL: i32 = 9;

/// Levels of a column family whose OPTIONS do not say.
const DEFAULT_NUM_LEVELS: u64 = 7;

/// Number of the newest OPTIONS file in `dir`.
pub fn newest_options(storage: &dyn Storage, dir: &Path) -> Result<u64> {
    let names = storage
        .list(dir)
        .map_err(|e| Error::storage(&base_name(dir), "list it", &e))?;
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix("OPTIONS-")?.parse().ok());
    numbers.max().ok_or_else(|| {
        Error::declined(DeclineReason::OptionsFile, "there is none").in_file(&base_name(dir))
    })
}

/// The request.
pub fn request(
    dir: &Path,
    tree: &Tree,
    options: &OptionsFile,
    options_file_number: u64,
    cf_name: &[u8],
) -> Result<(JobInfo, CompactionServiceInput)> {
    let missing = |what: &str| Error::declined(DeclineReason::Manifest, what);
    let (cf_id, family) = tree
        .by_name(cf_name)
        .ok_or_else(|| missing("there is no such column family"))?;
    let num_levels = match options.cf(cf_name) {
        Some(cf) => cf.options.u64("num_levels", DEFAULT_NUM_LEVELS),
        None => Ok(DEFAULT_NUM_LEVELS),
    };
    let num_levels =
        num_levels.map_err(|e| Error::declined(DeclineReason::OptionsFile, e.to_string()))?;
    let last_level = i32::try_from(num_levels.max(1) - 1).unwrap_or(i32::MAX);
    // Newest first within level 0, as RocksDB lists them.
    let files = family.levels.iter().flat_map(|(level, files)| {
        let numbers = files.keys().copied();
        let ordered: Vec<u64> = if *level == 0 {
            numbers.rev().collect()
        } else {
            numbers.collect()
        };
        ordered
    });
    let input_files: Vec<String> = files.map(|number| format!("{number:06}.sst")).collect();
    if input_files.is_empty() {
        return Err(missing("the column family has no files"));
    }
    let info = JobInfo {
        db_name: dir.display().to_string(),
        db_session_id: String::new(),
        cf_id,
        job_id: 0,
        reason: MANUAL,
        is_full_compaction: true,
        is_manual_compaction: true,
        is_bottommost_level: true,
        base_input_level: family.levels.keys().next().map_or(0, |&level| level as i32),
        output_level: last_level,
    };
    let input = CompactionServiceInput {
        cf_name: cf_name.to_vec(),
        snapshots: Vec::new(),
        input_files,
        output_level: last_level,
        db_id: tree.db_id.clone(),
        begin: None,
        end: None,
        options_file_number,
        min_manifest_file_number: 0,
        min_manifest_file_size: 0,
    };
    Ok((info, input))
}
