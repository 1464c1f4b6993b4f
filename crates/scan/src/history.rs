//! Finds what was written to a column family between two of its versions.
//!
//! The edits of the MANIFEST contain it. Sequence numbers do not: a compaction may have set them to zero.
//!
//! | edit | what follows |
//! |---|---|
//! | new files in level 0 and a log number: a flush | the files are read |
//! | new files in place of others, with the epoch number of a known file: a compaction | nothing |
//! | the same, if a compaction filter may have run | as the last line |
//! | all others: ingestion, files that are taken away | the ranges of files that only one version has are read again |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rockmill_core::{Error, KeyRange, ReadAt, Result};
use rockmill_format::log::LogReader;
use rockmill_format::manifest::VersionEdit;
use rockmill_snapshot::tree::Position;
use rockmill_storage::{InputFileReader, Storage};

use crate::engine::ScanEngine;
use crate::family::FamilySnapshot;
use crate::memory_table::MemoryTable;
use crate::ranges;
use crate::snapshot::version_file;
use crate::version::VersionFile;

/// Differences between a version and an older one, as readers see them.
#[derive(Debug)]
pub enum Since {
    /// Nothing.
    Nothing,
    /// The entries that were written.
    Written(WrittenSince),
    /// Any key in the ranges that [`FamilySnapshot::changed_since`] names may differ, for this reason.
    Anything(String),
}

/// Entries that were written between two versions.
#[derive(Debug)]
pub struct WrittenSince {
    /// The newer version with only the tables that were written since. The newest entry of a key in them is what readers
    /// find, also if it is a tombstone. A key without an entry is unchanged, but see `unflushed`.
    pub tables: Arc<FamilySnapshot>,
    /// The older version with its unflushed entries alone, if they may be in other tables now. RocksDB does not write
    /// all of them to files: a SingleDelete and its Put cancel each other. Keys that have a value here have an entry in
    /// `tables`, or everything must be read again.
    pub unflushed: Option<Arc<FamilySnapshot>>,
    /// The keys for which `tables` and `unflushed` tell the changes, as disjoint ranges.
    pub ranges: Vec<KeyRange>,
    /// All other keys, also as disjoint ranges. A range tombstone may have deleted them since, or may be newer than an
    /// entry of `tables`.
    pub deleted: Vec<KeyRange>,
}

/// Facts about a column family's files that determine its history.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Id of the column family in the database.
    pub id: u32,
    /// Position in the MANIFEST up to which it has these files.
    pub position: Position,
    /// Its files of all levels.
    pub files: BTreeSet<VersionFile>,
    /// Unflushed entries are in logs from this number on.
    pub log_number: u64,
    /// Largest sequence number that the logs had.
    pub logged: u64,
    /// Numbers of files with entries that were written after the snapshot was taken.
    pub ahead: BTreeSet<u64>,
    /// One of these files that also has entries older than those of other files, if there is one: a compaction has
    /// merged them.
    pub merged: Option<u64>,
    /// Epoch numbers of its files.
    pub epochs: BTreeSet<u64>,
    /// Whether a compaction may change what a reader finds.
    pub has_filter: bool,
    /// Number of the OPTIONS file, if a MANIFEST does not tell that options have changed.
    pub reuses_manifest: Option<u64>,
}

impl FamilySnapshot {
    /// Differences between this version and an older one, `base`, as readers see them. The ranges that iterators read
    /// are not compared.
    ///
    /// # Errors
    /// None now.
    pub fn since(&self, base: &Self, engine: &ScanEngine) -> Result<Since> {
        let mut files = match flushed(&*engine.storage, self, base) {
            Ok(files) => files,
            Err(reason) => return Ok(Since::Anything(reason)),
        };
        // Its entries are not all newer than those of other files, so they cannot be applied to the base.
        if let Some(number) = base.origin.merged {
            let reason = format!(
                "file {number} has entries that were written after the older version, merged with older ones"
            );
            return Ok(Since::Anything(reason));
        }
        // The base has not seen all of these.
        files.extend(&base.origin.ahead);
        let are_here = |number: &u64| self.files().iter().any(|file| file.number == *number);
        if let Some(number) = files.iter().find(|number| !are_here(number)) {
            let reason = format!("file {number} was compacted before it was read");
            return Ok(Since::Anything(reason));
        }
        let is_changed = base.unflushed.iter().any(|part| !self.has(part));
        let is_more = self.unflushed.iter().any(|part| !base.has(part));
        // A file may have a later number than entries that the log gets afterwards (`manual_wal_flush`).
        let has_same = self.sequence() == base.sequence()
            && self.unflushed_content() == base.unflushed_content();
        if files.is_empty() && (has_same || !is_changed && !is_more) {
            return Ok(Since::Nothing);
        }
        // Files may have entries that are older than those in the log.
        let has_file = |number| files.contains(&number);
        let mut tables = self.part(has_file, |part| !files.is_empty() || !base.has(part));
        // These tables have all tombstones that the base has not seen. A sequence number of the base does not tell which
        // these are: writes that the log lacked may be older than it.
        let deleted = self.deleted.since(tables.oldest_sequence());
        // All tombstones of the keys that are left are older than these entries.
        tables.deleted = tables.deleted.without_fragments();
        let unflushed = is_changed.then(|| Arc::new(base.part(|_| false, |_| true)));
        let ranges = ranges::cut(&KeyRange::default(), &deleted);
        let ranges = ranges.into_iter().filter(|(_, is_deleted)| !is_deleted);
        Ok(Since::Written(WrittenSince {
            tables: Arc::new(tables),
            unflushed,
            ranges: ranges.map(|(range, _)| range).collect(),
            deleted,
        }))
    }

    /// Smallest sequence number of the entries and range tombstones of its tables.
    fn oldest_sequence(&self) -> u64 {
        let files = self.files().iter().map(|file| file.smallest_sequence);
        let parts = self.unflushed.iter().map(|part| part.smallest_sequence);
        files.chain(parts).min().unwrap_or(u64::MAX)
    }

    /// Ranges outside of which readers of both versions find the same, whatever has happened between them. These are
    /// the ranges of files and unflushed entries that only one version has, and `more`. They are disjoint and ascend. Two
    /// databases have no file in common.
    pub fn changed_since(&self, base: &Self, more: &[KeyRange]) -> Vec<KeyRange> {
        let (ours, theirs) = (&self.origin.files, &base.origin.files);
        let other: BTreeSet<_> = ours.symmetric_difference(theirs).map(|id| id.0).collect();
        let is_of_other = self.origin.position.database != base.origin.position.database;
        // Files of which the base has not seen all entries.
        let is_ahead = |number| base.origin.ahead.contains(&number);
        let is_other = |number| is_of_other || other.contains(&number) || is_ahead(number);
        let files = self.files().iter().chain(base.files());
        let files = files.filter(|file| is_other(file.number));
        let files = files.map(|file| ranges::closed(&file.smallest, &file.largest));
        let parts = self.unflushed.iter().filter(|part| !base.has(part));
        let parts = parts.chain(base.unflushed.iter().filter(|part| !self.has(part)));
        let parts = parts.flat_map(|part| part.ranges());
        let all = files.chain(parts).chain(more.iter().cloned());
        ranges::disjoint(&all.collect::<Vec<_>>())
    }

    /// Hash of the unflushed entries and range tombstones, in whatever tables they are.
    fn unflushed_content(&self) -> u64 {
        let parts = self.unflushed.iter().map(|part| part.content);
        parts.fold(0, u64::wrapping_add)
    }

    fn has(&self, part: &Arc<MemoryTable>) -> bool {
        let mut parts = self.unflushed.iter();
        parts.any(|other| Arc::ptr_eq(part, other))
    }
}

/// Numbers of the files that were flushed between two versions, or the reason why there were other changes. The edits
/// between the versions must lead from the files of one to those of the other.
fn flushed(
    storage: &dyn Storage,
    now: &FamilySnapshot,
    base: &FamilySnapshot,
) -> std::result::Result<BTreeSet<u64>, String> {
    let (from, to) = (&base.origin.position, &now.origin.position);
    if base.origin.id != now.origin.id {
        return Err("the column family was dropped and created again".to_owned());
    }
    if from.database != to.database {
        return Err("another database has taken its place".to_owned());
    }
    if from.manifest != to.manifest || to.bytes < from.bytes {
        return Err("a new MANIFEST was begun".to_owned());
    }
    // A program with other options may have opened the database between the versions.
    let has_filter = base.origin.has_filter
        || now.origin.has_filter
        || base.origin.reuses_manifest != now.origin.reuses_manifest;
    let filtered = || Err("a compaction filter may have changed values".to_owned());
    let mut epochs = base.origin.epochs.clone();
    let mut files = BTreeSet::new();
    let of_base = base.origin.files.iter().map(|&file| (file.0, file));
    let mut all: BTreeMap<u64, VersionFile> = of_base.collect();
    let edits = edits(storage, now, from, to);
    for edit in edits.map_err(|error| format!("the MANIFEST cannot be read: {error}"))? {
        if edit.column_family != base.origin.id {
            continue;
        }
        edit.deleted_files.iter().for_each(|(_, number)| {
            all.remove(number);
        });
        let added = edit.new_files.iter().map(|(_, file)| version_file(file));
        all.extend(added.map(|file| (file.0, file)));
        let is_known = |epoch| epochs.contains(&epoch);
        match (edit.deleted_files.is_empty(), edit.new_files.is_empty()) {
            (true, true) => {}
            (false, true) => return Err("files were removed".to_owned()),
            (true, false) => {
                let mut levels = edit.new_files.iter().map(|(level, _)| *level);
                if edit.log_number.is_none() || levels.any(|level| level != 0) {
                    return Err("files were ingested".to_owned());
                }
                // A filter that skips keys in a flush skips their tombstones as well (`db/builder.cc`).
                if has_filter && !base.unflushed.is_empty() {
                    return filtered();
                }
                epochs.extend(edit.new_files.iter().map(|(_, file)| file.epoch_number));
                files.extend(edit.new_files.iter().map(|(_, file)| file.number));
            }
            (false, false) if edit.new_files.iter().all(|(_, f)| is_known(f.epoch_number)) => {
                if has_filter {
                    return filtered();
                }
            }
            (false, false) => return Err("files were replaced".to_owned()),
        }
    }
    match all.values().eq(&now.origin.files) {
        true => Ok(files),
        false => Err("the MANIFEST is another one".to_owned()),
    }
}

/// The edits between two positions in a MANIFEST.
fn edits(
    storage: &dyn Storage,
    snapshot: &FamilySnapshot,
    from: &Position,
    to: &Position,
) -> Result<Vec<VersionEdit>> {
    /// Bytes that are read at a time.
    const CHUNK_BYTES: u64 = 1 << 20;
    let malformed = |error| Error::format(&from.manifest, error);
    let mut edits = Vec::new();
    if from.bytes == to.bytes {
        return Ok(edits);
    }
    let file = InputFileReader::open(storage, &snapshot.path.join(&from.manifest))?;
    let mut log = LogReader::behind(from.bytes);
    while log.bytes_fed() < to.bytes {
        let len = CHUNK_BYTES.min(to.bytes - log.bytes_fed());
        let mut chunk = vec![0; len as usize];
        file.read_exact_at(&mut chunk, log.bytes_fed())?;
        log.push(&chunk);
        while let Some(record) = log.next_record().map_err(malformed)? {
            edits.push(VersionEdit::decode(&record.payload).map_err(malformed)?);
        }
    }
    Ok(edits)
}
