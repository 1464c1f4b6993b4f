//! A database as its files show it: the newest OPTIONS file and the MANIFEST. Nothing is written, and it
//! may be open.

use std::collections::BTreeSet;
use std::path::Path;

use rockmill_core::{CancelToken, DeclineReason, Error, JobInfo, Result};
use rockmill_format::key;
use rockmill_format::manifest::{ColumnFamily, FileMeta};
use rockmill_format::options_file::{Options, OptionsFile};
use rockmill_format::wire::CompactionServiceInput;

use crate::storage::{Storage, base_name, read_from};
use crate::tree::TreeFollower;

/// Largest OPTIONS file that is read.
const MAX_OPTIONS_BYTES: u64 = 64 << 20;

/// `CompactionReason::kManualCompaction`.
const MANUAL: i32 = 9;

/// Levels of a column family whose OPTIONS do not say.
const DEFAULT_NUM_LEVELS: u64 = 7;

/// User keys from one to another, as RocksDB's `CompactRange` takes them: both belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserKeys {
    /// The first, or from the start.
    pub from: Option<Vec<u8>>,
    /// The last, or to the end.
    pub to: Option<Vec<u8>>,
}

impl UserKeys {
    fn overlap(&self, file: &FileMeta) -> bool {
        let above = |to: &Vec<u8>| user_key(&file.smallest) > to.as_slice();
        let below = |from: &Vec<u8>| user_key(&file.largest) < from.as_slice();
        !self.to.as_ref().is_some_and(above) && !self.from.as_ref().is_some_and(below)
    }

    /// Widens the range to hold all of the file.
    fn cover(&mut self, file: &FileMeta) {
        let (smallest, largest) = (user_key(&file.smallest), user_key(&file.largest));
        if let Some(from) = self.from.as_mut().filter(|from| from.as_slice() > smallest) {
            *from = smallest.to_vec();
        }
        if let Some(to) = self.to.as_mut().filter(|to| to.as_slice() < largest) {
            *to = largest.to_vec();
        }
    }
}

fn user_key(internal_key: &[u8]) -> &[u8] {
    key::split(internal_key).map_or(internal_key, |(user_key, _)| user_key)
}

/// The files that say what a database is.
#[derive(Debug)]
pub struct AtRest {
    /// Number of the OPTIONS file.
    pub options_number: u64,
    /// Its text.
    pub options_text: String,
    /// The same, taken apart.
    pub options: OptionsFile,
    /// Has read the MANIFEST.
    pub follower: TreeFollower,
}

impl AtRest {
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
        // Even an empty database's MANIFEST counts the MANIFEST itself.
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

    /// The deepest level of a column family.
    ///
    /// # Errors
    /// Declined if the option is malformed.
    pub fn last_level(&self, cf_name: &[u8]) -> Result<i32> {
        let num_levels = match self.options.cf(cf_name) {
            Some(cf) => cf.options.u64("num_levels", DEFAULT_NUM_LEVELS),
            None => Ok(DEFAULT_NUM_LEVELS),
        };
        let num_levels = num_levels.map_err(malformed)?;
        Ok(i32::try_from(num_levels.max(1) - 1).unwrap_or(i32::MAX))
    }

    /// The request that RocksDB would make for a manual compaction of all files that hold some of the
    /// keys, in one job to the last level. There may be no such file.
    ///
    /// # Errors
    /// Declined if there is no such column family.
    pub fn request(
        &self,
        dir: &Path,
        cf_name: &[u8],
        keys: &UserKeys,
    ) -> Result<(JobInfo, CompactionServiceInput)> {
        let tree = self.follower.tree();
        let (cf_id, family) = tree.by_name(cf_name).ok_or_else(|| {
            Error::declined(DeclineReason::Manifest, "there is no such column family")
        })?;
        let last_level = self.last_level(cf_name)?;
        let options = self.options.cf(cf_name).map(|cf| &cf.options);
        let chosen = if options.is_some_and(is_universal) {
            // All runs are merged, whatever the keys (`UniversalCompactionPicker::CompactRange`).
            overlapping(family, UserKeys::default())
        } else {
            overlapping(family, keys.clone())
        };
        let all = family.levels.values().flat_map(|files| files.keys());
        let info = JobInfo {
            db_name: dir.display().to_string(),
            db_session_id: String::new(),
            cf_id,
            job_id: 0,
            reason: MANUAL,
            is_full_compaction: all.count() == chosen.len(),
            is_manual_compaction: true,
            is_bottommost_level: true,
            base_input_level: chosen.first().map_or(0, |&(level, _)| level as i32),
            output_level: last_level,
        };
        let input = CompactionServiceInput {
            cf_name: cf_name.to_vec(),
            snapshots: Vec::new(),
            input_files: chosen
                .iter()
                .map(|(_, number)| format!("{number:06}.sst"))
                .collect(),
            output_level: last_level,
            db_id: tree.db_id.clone(),
            begin: None,
            end: None,
            options_file_number: self.options_number,
            min_manifest_file_number: 0,
            min_manifest_file_size: 0,
        };
        Ok((info, input))
    }
}

fn is_universal(cf: &Options) -> bool {
    cf.str("compaction_style") == Some("kCompactionStyleUniversal")
}

/// Levels and numbers of the files that hold some of the keys, and of those that overlap these, in
/// RocksDB's order: level 0 newest first.
fn overlapping(family: &ColumnFamily, mut keys: UserKeys) -> Vec<(u32, u64)> {
    let mut chosen = Vec::new();
    for (&level, files) in &family.levels {
        let mut of_level = BTreeSet::new();
        loop {
            let overlaps = |file: &&FileMeta| keys.overlap(file);
            let found: BTreeSet<u64> = files
                .values()
                .filter(overlaps)
                .map(|file| file.number)
                .collect();
            let grown = found.len() > of_level.len();
            of_level = found;
            for number in &of_level {
                keys.cover(&files[number]);
            }
            // In level 0 each file may bring in others; below, files do not overlap.
            if !grown || level > 0 {
                break;
            }
        }
        let numbers = of_level.iter().map(|&number| (level, number));
        if level == 0 {
            chosen.extend(numbers.rev());
        } else {
            chosen.extend(numbers);
        }
    }
    chosen
}

/// The text of an OPTIONS file.
///
/// # Errors
/// Declined if it cannot be read.
pub fn read_options(storage: &dyn Storage, dir: &Path, number: u64) -> Result<String> {
    let declined = |what: String| Error::declined(DeclineReason::OptionsFile, what);
    let path = dir.join(format!("OPTIONS-{number:06}"));
    let bytes =
        read_from(storage, &path, 0, MAX_OPTIONS_BYTES).map_err(|e| declined(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| declined(e.to_string()))
}

/// Number of the newest OPTIONS file in `dir`.
fn newest_options(storage: &dyn Storage, dir: &Path) -> Result<u64> {
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

fn malformed(error: rockmill_format::Error) -> Error {
    Error::declined(DeclineReason::OptionsFile, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn family(files: &[(u32, u64, &str, &str)]) -> ColumnFamily {
        let mut family = ColumnFamily::default();
        for &(level, number, smallest, largest) in files {
            let internal = |text: &str| key::join(text.as_bytes(), key::pack_tag(1, 1));
            let file = FileMeta {
                number,
                smallest: internal(smallest),
                largest: internal(largest),
                ..FileMeta::default()
            };
            let level = family.levels.entry(level).or_insert_with(BTreeMap::new);
            level.insert(number, file);
        }
        family
    }

    #[test]
    fn a_range_takes_in_what_overlaps_and_no_more() {
        let family = family(&[
            (0, 20, "d", "f"),
            (0, 21, "a", "d"),
            (0, 22, "x", "z"),
            (6, 10, "a", "b"),
            (6, 11, "c", "e"),
            (6, 12, "g", "k"),
        ]);
        let keys = |from: &str, to: &str| UserKeys {
            from: Some(from.into()),
            to: Some(to.into()),
        };
        let all = [(0, 22), (0, 21), (0, 20), (6, 10), (6, 11), (6, 12)];
        assert_eq!(overlapping(&family, UserKeys::default()), all);
        let lower = [(0, 21), (0, 20), (6, 10), (6, 11)];
        assert_eq!(overlapping(&family, keys("f", "f")), lower);
        assert_eq!(overlapping(&family, keys("g", "h")), [(6, 12)]);
        assert_eq!(overlapping(&family, keys("l", "m")), []);
        let from = UserKeys {
            from: Some(b"h".to_vec()),
            to: None,
        };
        assert_eq!(overlapping(&family, from), [(0, 22), (6, 12)]);
    }
}
