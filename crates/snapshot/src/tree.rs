//! The level structure of each database, read incrementally from its MANIFEST.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use rockmill_core::{
    CancelToken, DeclineReason, Error, FileSummary, InputFile, LevelSummary, Result, TreeState,
};
use rockmill_format::key::{self, KeyOrder};
use rockmill_format::manifest::{ColumnFamily, FileMeta, Follower, Tree};
use rockmill_format::range_tombstone::END_TAG;
use rockmill_format::wire::CompactionServiceInput;

use crate::{DatabaseIdentity, Findings};
use rockmill_core::ReadAt;
use rockmill_storage::{InputFileReader, Storage, base_name};

/// Follows the MANIFEST of one database.
#[derive(Debug, Default)]
pub struct TreeFollower {
    /// The database, whose id is empty if there is no file IDENTITY.
    database: DatabaseIdentity,
    /// Name of the current MANIFEST, `MANIFEST-000005`.
    manifest: String,
    follower: Follower,
    /// Offset up to which all edits are certain, since the last job was made after them.
    settled: u64,
}

/// A position in a MANIFEST, between two edits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// The database. Each new one begins with a MANIFEST of the same name.
    pub database: DatabaseIdentity,
    /// Name of the file.
    pub manifest: String,
    /// Number of bytes in front of the position.
    pub bytes: u64,
}

/// Bytes read from the MANIFEST at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Number of attempts; CURRENT may be replaced during one.
const ATTEMPTS: usize = 4;

/// The unique ids of all files of a version.
pub fn unique_ids(tree: &Tree) -> impl Iterator<Item = [u64; 2]> {
    let families = tree.column_families.values();
    let files = families.flat_map(|family| family.levels.values().flat_map(|level| level.values()));
    files.filter_map(|file| file.unique_id)
}

impl TreeFollower {
    /// Reads the edits appended to the MANIFEST in `dir` since the last call.
    ///
    /// `floor` is the number and the length of the MANIFEST that contains the job's inputs; 0 if unknown.
    ///
    /// # Errors
    /// Declined if the MANIFEST cannot be read or is older than the floor; Cancelled.
    pub fn refresh(
        &mut self,
        storage: &dyn Storage,
        dir: &Path,
        floor: (u64, u64),
        cancel: &CancelToken,
    ) -> Result<()> {
        let mut tried = String::new();
        for _ in 0..ATTEMPTS {
            let Err(error) = self.try_refresh(storage, dir, floor, cancel) else {
                return Ok(());
            };
            cancel.check()?;
            // A follower cannot be used after an error. Another attempt makes sense only if CURRENT has changed.
            let failed = std::mem::take(self).manifest;
            if failed == tried {
                return Err(Error::declined(DeclineReason::Manifest, error.to_string()));
            }
            tried = failed;
        }
        Err(Error::declined(
            DeclineReason::Manifest,
            "CURRENT changes constantly",
        ))
    }

    fn try_refresh(
        &mut self,
        storage: &dyn Storage,
        dir: &Path,
        floor: (u64, u64),
        cancel: &CancelToken,
    ) -> Result<()> {
        let (manifest, number) = current_manifest(storage, dir)?;
        let database = DatabaseIdentity::read(storage, dir)?;
        let is_same = manifest == self.manifest && database == self.database;
        if !is_same || self.follower.ends_in_zeros() {
            *self = Self {
                database,
                manifest,
                ..Self::default()
            };
        }
        let file = InputFileReader::open(storage, &dir.join(&self.manifest))?;
        // An older state of the database has been restored.
        if file.len() < self.follower.bytes_fed() {
            self.follower = Follower::new();
        }
        let mut chunk = Vec::new();
        while self.follower.bytes_fed() < file.len() {
            cancel.check()?;
            let at = self.follower.bytes_fed();
            chunk.resize(CHUNK_BYTES.min((file.len() - at) as usize), 0);
            file.read_exact_at(&mut chunk, at)?;
            self.follower
                .feed(&chunk)
                .map_err(|e| Error::format(&self.manifest, e))?;
        }
        let checked = self.follower.tree().check();
        checked.map_err(|e| Error::format(&self.manifest, e))?;
        let reached = (number, self.follower.bytes_consumed());
        if number < floor.0 || (number == floor.0 && reached.1 < floor.1) {
            return Err(Error::corruption(
                &self.manifest,
                reached.1,
                format!("the job needs MANIFEST {} up to byte {}", floor.0, floor.1),
            ));
        }
        self.settled = if number == floor.0 { floor.1 } else { 0 };
        Ok(())
    }

    /// The position up to which the last refresh has read the MANIFEST.
    pub fn position(&self) -> Position {
        let mut database = self.database.clone();
        if database.id.is_empty() {
            database.id.clone_from(&self.tree().db_id);
        }
        Position {
            database,
            manifest: self.manifest.clone(),
            bytes: self.follower.bytes_consumed(),
        }
    }

    /// Returns all column families as of the last refresh.
    pub fn tree(&self) -> &Tree {
        self.follower.tree()
    }

    /// The levels of a column family, and behind them those of files that RocksDB may still have. A job that took their
    /// deletion for granted would drop tombstones of keys in them.
    fn levels(&self, cf_id: u32) -> impl Iterator<Item = (u32, &BTreeMap<u64, FileMeta>)> {
        let family = self.tree().column_families.get(&cf_id);
        let levels = family.into_iter().map(|family| &family.levels);
        let uncertain = self.follower.uncertain_deletions(cf_id, self.settled);
        let levels = levels.chain(uncertain).flatten();
        levels.map(|(&level, files)| (level, files))
    }

    /// Returns the part of the tree that a job needs.
    ///
    /// # Errors
    /// Declined if the column family or an input is not in the tree, or if a file has a property that rules the job
    /// out.
    pub fn tree_state(&self, input: &CompactionServiceInput, cf_id: u32) -> Result<TreeState> {
        let mut found = Findings::default();
        let tree_state = self.examine(input, cf_id, &mut found)?;
        found.first()?;
        Ok(tree_state)
    }

    /// Returns whether a job's inputs are all files of its column family, and whether no file below them overlaps, as
    /// `Compaction::IsFullCompaction` and `Compaction::IsBottommostLevel` do (`db/compaction/compaction.cc`). RocksDB
    /// before 9.7 does not send this with a job. A file that RocksDB may have deleted counts as there, so that a filter
    /// does not take a job for a full one.
    ///
    /// Both stay true until the job ends: RocksDB moves nothing below the inputs of a compaction that overlaps them.
    pub fn extent(&self, input: &CompactionServiceInput, cf_id: u32) -> (bool, bool) {
        let all = || {
            let levels = self.levels(cf_id);
            levels.flat_map(|(level, files)| {
                files
                    .iter()
                    .map(move |(&number, file)| (level, number, file))
            })
        };
        let names = input.input_files.iter();
        let numbers: HashSet<u64> = names.filter_map(|name| file_number(name)).collect();
        let is_input = |number| numbers.contains(&number);
        let inputs: Vec<_> = all()
            .filter(|&(_, number, _)| is_input(number))
            .map(|(level, number, file)| input_file(&format!("{number:06}.sst"), level, file))
            .collect();
        let is_full = inputs.len() == all().count();
        let is_bottommost = match input.output_level {
            // Files of level 0 lie above each other, the oldest lowest.
            0 => {
                let oldest =
                    all()
                        .filter(|&(level, ..)| level == 0)
                        .min_by_key(|&(_, number, file)| {
                            (
                                file.epoch_number,
                                file.largest_seqno,
                                file.smallest_seqno,
                                number,
                            )
                        });
                all().all(|(level, ..)| level == 0)
                    && oldest.is_some_and(|(_, number, _)| is_input(number))
            }
            level => deeper_files(self.levels(cf_id), &inputs, level).is_empty(),
        };
        let has_inputs = !inputs.is_empty();
        (is_full && has_inputs, is_bottommost && has_inputs)
    }

    /// Like [`TreeFollower::tree_state`], but adds reasons against the job to `found`.
    ///
    /// # Errors
    /// Declined if the column family or an input is not in the tree.
    pub fn examine(
        &self,
        input: &CompactionServiceInput,
        cf_id: u32,
        found: &mut Findings,
    ) -> Result<TreeState> {
        let missing = |what: String| Error::declined(DeclineReason::Manifest, what);
        let tree = self.follower.tree();
        let family = tree
            .column_families
            .get(&cf_id)
            .filter(|family| family.name == input.cf_name)
            .ok_or_else(|| missing("the column family is not in the MANIFEST".to_owned()))?;
        if tree.has_other_paths() {
            found.note(Err(Error::declined(
                DeclineReason::DbPaths,
                "files lie in more than one directory",
            )));
        }
        let mut inputs = Vec::with_capacity(input.input_files.len());
        for name in &input.input_files {
            let (level, file) = file_number(name)
                .and_then(|number| family.file(number))
                .ok_or_else(|| missing(format!("{name} is not in the MANIFEST")))?;
            check_file(name, file, found);
            inputs.push(input_file(name, level, file));
        }
        Ok(TreeState {
            deeper: deeper_files(self.levels(cf_id), &inputs, input.output_level),
            deeper_bounds: Vec::new(),
            levels: level_sizes(family),
            inputs,
        })
    }

    /// Returns the smallest and largest user keys of all files in levels deeper than a job's output.
    pub fn deeper_bounds(&self, input: &CompactionServiceInput, cf_id: u32) -> Vec<Vec<u8>> {
        let output_level = i64::from(input.output_level);
        let deeper = self
            .levels(cf_id)
            .filter(|&(level, _)| i64::from(level) > output_level);
        let files = deeper.flat_map(|(_, files)| files.values());
        let bounds = files.flat_map(|file| [&file.smallest, &file.largest]);
        bounds.map(|key| user_key(key).to_vec()).collect()
    }
}

/// Returns the name and number of the MANIFEST that CURRENT names. RocksDB refuses what this refuses
/// (`db/manifest_ops.cc:GetCurrentManifestPath`).
fn current_manifest(storage: &dyn Storage, dir: &Path) -> Result<(String, u64)> {
    const LONGEST: u64 = 64;
    let path: PathBuf = dir.join("CURRENT");
    let bytes = rockmill_storage::read_from(storage, &path, 0, LONGEST)?;
    let refused = |what: &str| Error::corruption(&base_name(&path), 0, what);
    let Some((b'\n', name)) = bytes.split_last() else {
        return Err(refused(
            "it does not end with a newline, as RocksDB requires",
        ));
    };
    let name = std::str::from_utf8(name).unwrap_or_default();
    let digits = name.strip_prefix("MANIFEST-").unwrap_or_default();
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_number);
    let number = number.ok_or_else(|| refused("it names no MANIFEST"))?;
    Ok((name.to_owned(), number))
}

/// Records properties of an input in the MANIFEST that are not supported.
fn check_file(name: &str, file: &FileMeta, found: &mut Findings) {
    let rules_out = [
        (
            file.oldest_blob_file.is_some(),
            DeclineReason::BlobFiles,
            "values in blob files",
        ),
        (
            file.has_timestamps || !file.user_defined_timestamps_persisted,
            DeclineReason::UserTimestamps,
            "user-defined timestamps",
        ),
    ];
    for (_, reason, what) in rules_out.into_iter().filter(|(applies, ..)| *applies) {
        let what = format!("{what}, says the MANIFEST");
        found.note(Err(Error::declined(reason, what).in_file(name)));
    }
}

fn file_number(name: &str) -> Option<u64> {
    name.strip_suffix(".sst")?.parse().ok()
}

fn input_file(name: &str, level: u32, file: &FileMeta) -> InputFile {
    InputFile {
        name: name.to_owned(),
        size: file.size,
        level,
        smallest: file.smallest.clone(),
        largest: file.largest.clone(),
        epoch_number: file.epoch_number,
        oldest_ancester_time: file.oldest_ancester_time,
        unique_id: file.unique_id,
        largest_seqno: Some(file.largest_seqno),
    }
}

/// Returns the user key of an internal key of the MANIFEST, which may be damaged.
pub fn user_key(internal_key: &[u8]) -> &[u8] {
    key::split(internal_key).map_or(internal_key, |(user_key, _)| user_key)
}

/// User keys that two files of a level have versions of, each with the positions of both among `files`: the largest key of
/// the first is the smallest of the second. A range tombstone in one of them covers only the versions in its own file.
/// `files` have their level, and their smallest and largest internal key. Files of level 0 overlap and are passed over.
pub fn shared_keys<'a>(
    files: &[(u32, &'a [u8], &'a [u8])],
    order: KeyOrder,
) -> Vec<(&'a [u8], [usize; 2])> {
    let in_level = |&at: &usize| files[at].0 > 0;
    let mut sorted: Vec<_> = (0..files.len()).filter(in_level).collect();
    let compare = |a: &[u8], b: &[u8]| order.compare(user_key(a), user_key(b));
    sorted.sort_by(|&a, &b| {
        let ((level, smallest, largest), other) = (files[a], files[b]);
        let by_level = level.cmp(&other.0);
        by_level
            .then_with(|| compare(smallest, other.1))
            .then_with(|| compare(largest, other.2))
    });
    let pairs = sorted.windows(2).filter_map(|pair| {
        let (before, behind) = (files[pair[0]], files[pair[1]]);
        let (largest, tag) = key::split(before.2)?;
        let is_shared = before.0 == behind.0 && tag != END_TAG && largest == user_key(behind.1);
        is_shared.then_some((largest, [pair[0], pair[1]]))
    });
    pairs.collect()
}

/// Smallest and largest user key of a file in the order of bytes. In reverse order the largest is the first.
pub fn bounds_in_bytes<'a>(smallest: &'a [u8], largest: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    (smallest.min(largest), smallest.max(largest))
}

/// Returns the files in levels deeper than the output that overlap the inputs, by level and by the bytes of their keys.
/// Bytewise and reverse order have the same overlaps.
fn deeper_files<'a>(
    levels: impl Iterator<Item = (u32, &'a BTreeMap<u64, FileMeta>)>,
    inputs: &[InputFile],
    output_level: i32,
) -> Vec<(u32, Vec<FileSummary>)> {
    let keys = || {
        let files = inputs.iter();
        files.flat_map(|file| [user_key(&file.smallest), user_key(&file.largest)])
    };
    let (smallest, largest) = (keys().min(), keys().max());
    let (Some(smallest), Some(largest)) = (smallest, largest) else {
        return Vec::new();
    };
    let deeper = levels.filter(|&(level, _)| i64::from(level) > i64::from(output_level));
    let overlapping = deeper.map(|(level, files)| {
        let mut files: Vec<_> = files
            .values()
            .map(|file| FileSummary {
                smallest: user_key(&file.smallest).to_vec(),
                largest: user_key(&file.largest).to_vec(),
                size: file.size,
            })
            .filter(|file| {
                let (first, last) = bounds_in_bytes(&file.smallest, &file.largest);
                first <= largest && last >= smallest
            })
            .collect();
        // Two files may share a user key if one of them holds nothing else.
        files.sort_by(|a, b| (&a.smallest, &a.largest).cmp(&(&b.smallest, &b.largest)));
        (level, files)
    });
    overlapping.filter(|(_, files)| !files.is_empty()).collect()
}

/// Sums file sizes; a damaged MANIFEST may contain any sizes, so the sum saturates.
pub fn total_bytes(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn level_sizes(family: &ColumnFamily) -> Vec<LevelSummary> {
    family
        .levels
        .iter()
        .filter(|(_, files)| !files.is_empty())
        .map(|(&level, files)| LevelSummary {
            level,
            files: files.len() as u64,
            bytes: total_bytes(files.values().map(|file| file.size)),
        })
        .collect()
}

#[cfg(test)]
mod tests;
