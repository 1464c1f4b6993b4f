//! The steps of a manual compaction. RocksDB compacts from level to level, with one or several jobs per step
//! (`db_impl_compaction_flush.cc:DBImpl::CompactRangeInternal` with `kForceOptimized`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rockmill_format::key;
use rockmill_format::manifest::{ColumnFamily, FileMeta};
use rockmill_format::options_file::Options;

use crate::levels::num_levels;
use crate::tree::{bounds_in_bytes, total_bytes};

/// A range of user keys in the order of their bytes, including both ends. In a column family with the reverse order,
/// RocksDB's `CompactRange` begins with the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserKeys {
    /// First key; `None` for no lower bound.
    pub from: Option<Vec<u8>>,
    /// Last key; `None` for no upper bound.
    pub to: Option<Vec<u8>>,
}

/// A merge of files into one level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Level that is compacted into the output level; equal to the output level if the last level is rewritten.
    pub from_level: u32,
    /// Level of the output.
    pub output_level: u32,
    /// Level and number of the database files that the step merges, in RocksDB's order: level 0 newest first.
    pub files: Vec<(u32, u64)>,
    /// Level and number of all files whose entries may be among those merged, including inputs of earlier steps.
    pub sources: Vec<(u32, u64)>,
    /// Size of merged results of earlier steps in bytes, if no entry was dropped.
    pub earlier_bytes: u64,
    /// Approximate number of jobs.
    pub jobs: u64,
}

/// The options of a column family that decide the steps.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Universal style: all files are merged at once, whatever the keys.
    pub universal: bool,
    /// `num_levels`.
    pub num_levels: u32,
    /// `level_compaction_dynamic_level_bytes`.
    pub dynamic_level_bytes: bool,
    /// `max_bytes_for_level_base`.
    pub level_base_bytes: u64,
    /// `max_bytes_for_level_multiplier`.
    pub level_multiplier: f64,
    /// `max_compaction_bytes`: the size at which a step from a level below L0 is cut into jobs.
    pub job_bytes: u64,
}

impl Shape {
    /// Reads the options of a column family, with RocksDB's defaults for missing ones.
    ///
    /// # Errors
    /// Corruption if one is malformed, Unsupported if there are too many levels.
    pub fn read(options: &Options) -> rockmill_format::Result<Self> {
        const LEVEL_BASE_BYTES: u64 = 256 << 20;
        const MULTIPLIER: f64 = 10.0;
        const FILE_BYTES: u64 = 64 << 20;
        /// Files per job where `max_compaction_bytes` is 0.
        const FILES_PER_JOB: u64 = 25;
        let universal = options.str("compaction_style") == Some("kCompactionStyleUniversal");
        // Level style always has a level 1.
        let fewest = if universal { 1 } else { 2 };
        let num_levels = num_levels(options)?.max(fewest);
        let file_bytes = options.u64("target_file_size_base", FILE_BYTES)?;
        let job_bytes = match options.u64("max_compaction_bytes", 0)? {
            0 => file_bytes.saturating_mul(FILES_PER_JOB),
            bytes => bytes,
        };
        Ok(Self {
            universal,
            num_levels,
            dynamic_level_bytes: options.bool("level_compaction_dynamic_level_bytes", true)?,
            level_base_bytes: options.u64("max_bytes_for_level_base", LEVEL_BASE_BYTES)?,
            level_multiplier: options
                .f64("max_bytes_for_level_multiplier", MULTIPLIER)?
                .max(1.0),
            job_bytes: job_bytes.max(1),
        })
    }

    /// Returns the deepest level.
    pub fn last_level(&self) -> u32 {
        self.num_levels - 1
    }

    /// Level that level 0 is compacted to (`version_set.cc:VersionStorageInfo::CalculateBaseBytes`).
    fn base_level(&self, levels: &Levels<'_>) -> u32 {
        if !self.dynamic_level_bytes {
            return 1;
        }
        let below = || levels.0.range(1..self.num_levels);
        let sizes = below().map(|(&level, pieces)| (level, total(pieces)));
        let mut filled = sizes.filter(|&(_, bytes)| bytes > 0);
        let Some((first, first_bytes)) = filled.next() else {
            return self.last_level();
        };
        let largest = filled.map(|(_, bytes)| bytes).fold(first_bytes, u64::max);
        let divided = |bytes: u64| (bytes as f64 / self.level_multiplier) as u64;
        let mut level_bytes = (first..self.last_level()).fold(largest, |bytes, _| divided(bytes));
        let mut base = first;
        while base > 1 && level_bytes > self.level_base_bytes {
            base -= 1;
            level_bytes = divided(level_bytes);
        }
        base
    }
}

/// Returns the steps of a manual compaction of `keys`, in order. Empty if no file overlaps the keys.
pub fn steps(family: &ColumnFamily, shape: &Shape, keys: &UserKeys) -> Vec<Step> {
    let mut levels = Levels::of(family);
    if shape.universal {
        return levels.merge_all(shape.last_level()).into_iter().collect();
    }
    let mut steps = Vec::new();
    let first = levels.0.keys().copied();
    let Some(mut level) = { first }.find(|&level| !levels.choose(level, keys).is_empty()) else {
        return steps;
    };
    // Level 0 is always compacted.
    while level == 0 || level < levels.deepest(shape) {
        let output = match level {
            0 => shape.base_level(&levels),
            _ => level + 1,
        };
        steps.extend(levels.merge_down(level, output, keys, shape.job_bytes));
        level = output;
    }
    steps.extend(levels.rewrite(level, keys, shape.job_bytes));
    steps
}

/// Whether these steps of a manual compaction would only write the same entries again: all files are in the level in
/// which it ends, and no entry has a sequence number. RocksDB compacts files of the bottommost level for that reason
/// alone (`version_set.cc:VersionStorageInfo::ComputeBottommostFilesMarkedForCompaction`): after a compaction without
/// snapshots, all sequence numbers are 0.
pub fn is_compacted(family: &ColumnFamily, steps: &[Step]) -> bool {
    let [only] = steps else {
        return false;
    };
    let bottom = only.output_level;
    // Each file of level 0 is a sorted run.
    let is_one_run = bottom > 0 || only.files.len() == 1;
    let is_done = |&(level, number): &(u32, u64)| {
        let file = family
            .levels
            .get(&level)
            .and_then(|files| files.get(&number));
        level == bottom && file.is_some_and(|file| file.largest_seqno == 0)
    };
    is_one_run && only.files.iter().all(is_done)
}

/// A file of the database, or the result of a step.
#[derive(Debug, Clone)]
struct StepFile<'a> {
    smallest: &'a [u8],
    largest: &'a [u8],
    bytes: u64,
    /// Level and number of the database files whose entries it contains.
    sources: Vec<(u32, u64)>,
    /// Whether it is the result of a step.
    made: bool,
}

impl<'a> StepFile<'a> {
    /// Makes the piece of a file, with its boundary keys in bytewise order. A reverse comparator swaps them, and the steps
    /// stay the same.
    fn file(level: u32, file: &'a FileMeta) -> Self {
        let (smallest, largest) =
            bounds_in_bytes(user_key(&file.smallest), user_key(&file.largest));
        Self {
            smallest,
            largest,
            bytes: file.size,
            sources: vec![(level, file.number)],
            made: false,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.smallest <= other.largest && other.smallest <= self.largest
    }

    fn holds_some(&self, keys: &UserKeys) -> bool {
        let above = |to: &Vec<u8>| self.smallest > to.as_slice();
        let below = |from: &Vec<u8>| self.largest < from.as_slice();
        !keys.to.as_ref().is_some_and(above) && !keys.from.as_ref().is_some_and(below)
    }
}

fn user_key(internal_key: &[u8]) -> &[u8] {
    key::split(internal_key).map_or(internal_key, |(user_key, _)| user_key)
}

fn total<'p>(pieces: impl IntoIterator<Item = &'p StepFile<'p>>) -> u64 {
    total_bytes(pieces.into_iter().map(|piece| piece.bytes))
}

/// Returns the result of merging the pieces; `None` if there are none.
fn merged<'a>(pieces: &[StepFile<'a>]) -> Option<StepFile<'a>> {
    let sources = pieces
        .iter()
        .flat_map(|piece| piece.sources.iter().copied());
    Some(StepFile {
        smallest: pieces.iter().map(|piece| piece.smallest).min()?,
        largest: pieces.iter().map(|piece| piece.largest).max()?,
        bytes: total(pieces),
        sources: sources.collect(),
        made: true,
    })
}

/// Makes the step that merges the pieces.
fn step(from_level: u32, output_level: u32, pieces: &[StepFile<'_>], jobs: u64) -> Step {
    let sources = |pieces: &mut dyn Iterator<Item = &StepFile<'_>>| {
        let mut files: Vec<(u32, u64)> = pieces.flat_map(|p| p.sources.iter().copied()).collect();
        files.sort_by_key(|&(level, number)| match level {
            0 => (level, u64::MAX - number),
            _ => (level, number),
        });
        files
    };
    let made = pieces.iter().filter(|piece| piece.made);
    Step {
        from_level,
        output_level,
        files: sources(&mut pieces.iter().filter(|piece| !piece.made)),
        sources: sources(&mut pieces.iter()),
        earlier_bytes: total(made),
        jobs: jobs.max(1),
    }
}

/// The tree, as the steps change it.
#[derive(Debug)]
struct Levels<'a>(BTreeMap<u32, Vec<StepFile<'a>>>);

impl<'a> Levels<'a> {
    fn of(family: &'a ColumnFamily) -> Self {
        let pieces = |(&level, files): (&u32, &'a BTreeMap<u64, FileMeta>)| {
            let pieces = files.values().map(|file| StepFile::file(level, file));
            (level, pieces.collect())
        };
        Self(family.levels.iter().map(pieces).collect())
    }

    /// Returns the deepest level that files are compacted to.
    fn deepest(&self, shape: &Shape) -> u32 {
        let filled = self.0.iter().filter(|(_, pieces)| !pieces.is_empty());
        match shape.dynamic_level_bytes {
            true => shape.last_level(),
            false => { filled.map(|(&level, _)| level) }
                .max()
                .map_or(0, |deepest| deepest.min(shape.last_level())),
        }
    }

    /// Marks the pieces of a level that overlap the keys, and those that overlap a marked one.
    fn choose(&self, level: u32, keys: &UserKeys) -> Vec<bool> {
        let Some(pieces) = self.0.get(&level) else {
            return Vec::new();
        };
        let mut chosen: Vec<bool> = pieces.iter().map(|piece| piece.holds_some(keys)).collect();
        loop {
            let bounds = merged(&selected(pieces, &chosen));
            let Some(bounds) = bounds else {
                return Vec::new();
            };
            let grown: Vec<bool> = pieces.iter().map(|piece| piece.overlaps(&bounds)).collect();
            // In level 0, each piece may overlap further ones. In deeper levels, only pieces that share a user key do.
            if grown == chosen {
                return chosen;
            }
            chosen = grown;
        }
    }

    /// Removes the marked pieces from a level and returns them.
    fn take(&mut self, level: u32, chosen: &[bool]) -> Vec<StepFile<'a>> {
        let Some(pieces) = self.0.get_mut(&level) else {
            return Vec::new();
        };
        let taken = selected(pieces, chosen);
        let mut keep = chosen.iter().map(|chosen| !chosen);
        pieces.retain(|_| keep.next().unwrap_or(true));
        taken
    }

    /// Merges all files into one level in one job.
    fn merge_all(&mut self, output: u32) -> Option<Step> {
        let from = *self.0.iter().find(|(_, pieces)| !pieces.is_empty())?.0;
        let pieces: Vec<_> = std::mem::take(&mut self.0)
            .into_values()
            .flatten()
            .collect();
        Some(step(from, output, &pieces, 1))
    }

    /// Merges the pieces that overlap the keys into a deeper level. A piece with nothing to merge is moved, which needs
    /// no job.
    fn merge_down(
        &mut self,
        level: u32,
        output: u32,
        keys: &UserKeys,
        job_bytes: u64,
    ) -> Option<Step> {
        let chosen = self.choose(level, keys);
        let mut pieces = self.take(level, &chosen);
        let bounds = merged(&pieces)?;
        let beside = self.0.entry(output).or_default();
        let overlapping: Vec<_> = beside.iter().map(|piece| piece.overlaps(&bounds)).collect();
        let others = self.take(output, &overlapping);
        if others.is_empty() && (level > 0 || are_apart(&pieces)) {
            self.0.entry(output).or_default().extend(pieces);
            return None;
        }
        pieces.extend(others);
        let jobs = match level {
            0 => 1,
            _ => total(&pieces).div_ceil(job_bytes),
        };
        let result = merged(&pieces)?;
        self.0.entry(output).or_default().push(result);
        Some(step(level, output, &pieces, jobs))
    }

    /// Rewrites the pieces that overlap the keys, except results of steps, within their level.
    fn rewrite(&mut self, level: u32, keys: &UserKeys, job_bytes: u64) -> Option<Step> {
        let pieces = self.0.get(&level)?;
        let old = pieces
            .iter()
            .filter(|piece| !piece.made && piece.holds_some(keys));
        let old: Vec<_> = old.cloned().collect();
        let jobs = total(&old).div_ceil(job_bytes);
        (!old.is_empty()).then(|| step(level, level, &old, jobs))
    }
}

fn selected<'a>(pieces: &[StepFile<'a>], chosen: &[bool]) -> Vec<StepFile<'a>> {
    let pairs = pieces.iter().zip(chosen).filter(|(_, chosen)| **chosen);
    pairs.map(|(piece, _)| piece.clone()).collect()
}

/// Whether no two pieces overlap.
fn are_apart(pieces: &[StepFile<'_>]) -> bool {
    let mut sorted: Vec<_> = pieces.iter().collect();
    sorted.sort_by_key(|piece| piece.smallest);
    sorted
        .windows(2)
        .all(|pair| pair[0].largest < pair[1].smallest)
}
