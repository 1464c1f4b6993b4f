//! Reads a database's state from its newest OPTIONS file and its MANIFEST. Writes nothing; the database may be open.

use std::path::Path;

use rockmill_core::{CancelToken, DeclineReason, Error, JobInfo, Result};
use rockmill_format::manifest::ColumnFamily;
use rockmill_format::options_file::{Options, OptionsFile, text_from_bytes};
use rockmill_format::wire::CompactionServiceInput;

use crate::manual::Shape;
use crate::tree::TreeFollower;
use rockmill_storage::{Storage, base_name, read_from};

/// Largest OPTIONS file that is read.
const MAX_OPTIONS_BYTES: u64 = 64 << 20;

/// `CompactionReason::kManualCompaction`.
const MANUAL: i32 = 9;

/// Options and tree of a database, as its files give them.
#[derive(Debug)]
pub struct ClosedDatabase {
    /// Number of the OPTIONS file.
    pub options_number: u64,
    /// Its text.
    pub options_text: String,
    /// The parsed text.
    pub options: OptionsFile,
    /// Follower that has read the MANIFEST.
    pub follower: TreeFollower,
}

impl ClosedDatabase {
    /// Reads the files in `dir`.
    ///
    /// # Errors
    /// Declined if one of them cannot be read, or Storage if the folder cannot.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let options_number = newest_options(storage, dir)?;
        let options_text = read_options(storage, dir, options_number)?;
        let options = OptionsFile::parse(&options_text).map_err(malformed)?;
        let mut follower = TreeFollower::default();
        follower.refresh(storage, dir, (0, 0), &CancelToken::new())?;
        // Even the MANIFEST of an empty database counts the MANIFEST's own file number.
        if follower.tree().next_file_number == 0 {
            let what = "the MANIFEST holds no edit";
            return Err(Error::declined(DeclineReason::Manifest, what));
        }
        Ok(Self {
            options_number,
            options_text,
            options,
            follower,
        })
    }

    /// Returns the options that decide how RocksDB splits a manual compaction of a column family.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn shape(&self, cf_name: &[u8]) -> Result<Shape> {
        let silent = Options::default();
        let options = self.options.cf(cf_name).map_or(&silent, |cf| &cf.options);
        Shape::read(options).map_err(malformed)
    }

    /// Returns the deepest level of a column family.
    ///
    /// # Errors
    /// Declined if the option is malformed.
    pub fn last_level(&self, cf_name: &[u8]) -> Result<i32> {
        let last = self.shape(cf_name)?.last_level();
        Ok(i32::try_from(last).unwrap_or(i32::MAX))
    }

    /// Returns the column family of that name and its id.
    ///
    /// # Errors
    /// Declined if there is none.
    pub fn family(&self, cf_name: &[u8]) -> Result<(u32, &ColumnFamily)> {
        let none = || Error::declined(DeclineReason::Manifest, "there is no such column family");
        self.follower.tree().by_name(cf_name).ok_or_else(none)
    }

    /// Returns the request that RocksDB would make to compact all files of a column family to the last level in one
    /// job. The column family may have no files.
    ///
    /// # Errors
    /// Declined if there is no such column family.
    pub fn full_request(
        &self,
        dir: &Path,
        cf_name: &[u8],
    ) -> Result<(JobInfo, CompactionServiceInput)> {
        let (_, family) = self.family(cf_name)?;
        let mut files = Vec::new();
        for (&level, of_level) in &family.levels {
            let numbers = of_level.keys().map(|&number| (level, number));
            // RocksDB names the newest file of level 0 first.
            match level {
                0 => files.extend(numbers.rev()),
                _ => files.extend(numbers),
            }
        }
        self.request(dir, cf_name, &files, self.last_level(cf_name)?)
    }

    /// Returns the request that RocksDB would make for a manual compaction of the files, given by level and number, to
    /// `output_level` in one job.
    ///
    /// # Errors
    /// Declined if there is no such column family.
    pub fn request(
        &self,
        dir: &Path,
        cf_name: &[u8],
        files: &[(u32, u64)],
        output_level: i32,
    ) -> Result<(JobInfo, CompactionServiceInput)> {
        let (cf_id, family) = self.family(cf_name)?;
        let all = family.levels.values().flat_map(|files| files.keys());
        let deepest = family.levels.iter().filter(|(_, files)| !files.is_empty());
        let deepest = deepest.map(|(&level, _)| i64::from(level)).max();
        let info = JobInfo {
            db_name: dir.display().to_string(),
            db_session_id: String::new(),
            cf_id,
            job_id: 0,
            reason: MANUAL,
            is_full_compaction: all.count() == files.len(),
            is_manual_compaction: true,
            is_bottommost_level: deepest.is_none_or(|level| level <= i64::from(output_level)),
            base_input_level: files.first().map_or(0, |&(level, _)| level as i32),
            output_level,
            is_in_bottom_pool: false,
        };
        let input = CompactionServiceInput {
            cf_name: cf_name.to_vec(),
            snapshots: Vec::new(),
            input_files: files
                .iter()
                .map(|(_, number)| format!("{number:06}.sst"))
                .collect(),
            output_level,
            db_id: self.follower.tree().db_id.clone(),
            begin: None,
            end: None,
            options_file_number: self.options_number,
            min_manifest_file_number: 0,
            min_manifest_file_size: 0,
        };
        Ok((info, input))
    }
}

/// Reads the text of an OPTIONS file.
///
/// # Errors
/// Declined if it cannot be read.
pub fn read_options(storage: &dyn Storage, dir: &Path, number: u64) -> Result<String> {
    let declined = |what: String| Error::declined(DeclineReason::OptionsFile, what);
    let path = dir.join(format!("OPTIONS-{number:06}"));
    let bytes =
        read_from(storage, &path, 0, MAX_OPTIONS_BYTES).map_err(|e| declined(e.to_string()))?;
    Ok(text_from_bytes(bytes))
}

/// Parses the number in the name of an OPTIONS file, `OPTIONS-000012`; `None` for other files.
pub fn options_number(file_name: &str) -> Option<u64> {
    file_name.strip_prefix("OPTIONS-")?.parse().ok()
}

/// Returns the number of the newest OPTIONS file in `dir`.
fn newest_options(storage: &dyn Storage, dir: &Path) -> Result<u64> {
    let names = storage
        .list(dir)
        .map_err(|e| Error::storage(&base_name(dir), "list it", &e))?;
    let numbers = names.iter().filter_map(|name| options_number(name));
    numbers.max().ok_or_else(|| {
        Error::declined(DeclineReason::OptionsFile, "there is none").in_file(&base_name(dir))
    })
}

fn malformed(error: rockmill_format::Error) -> Error {
    Error::declined(DeclineReason::OptionsFile, error.to_string())
}
