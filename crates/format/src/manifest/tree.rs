//! The column families and their levels, after all edits so far.

use std::collections::{BTreeMap, HashMap};

use super::edit::VersionEdit;
use super::file_meta::FileMeta;
use crate::error::{Error, Result};

/// Id of the column family that every database has.
const DEFAULT_ID: u32 = 0;

/// Name of the column family that every database has (`kDefaultColumnFamilyName`).
const DEFAULT_NAME: &[u8] = b"default";

/// Files by level and number; a level without files is absent.
pub type Levels = BTreeMap<u32, BTreeMap<u64, FileMeta>>;

/// One column family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnFamily {
    /// Name.
    pub name: Vec<u8>,
    /// Name of the comparator; empty until an edit gives it.
    pub comparator: Vec<u8>,
    /// Its files.
    pub levels: Levels,
    /// Write-ahead logs below this number have no unflushed entries of the column family.
    pub log_number: u64,
    /// Whether the column family has ever had blob files, according to the MANIFEST.
    pub has_blob_files: bool,
    /// Whether user-defined timestamps, if the comparator has them, are kept in SST files; `None` if the MANIFEST lacks
    /// it.
    pub persist_user_defined_timestamps: Option<bool>,
    /// User-defined timestamps below this may be collapsed; empty if there is no such bound.
    pub full_history_ts_low: Vec<u8>,
    /// The level of each file.
    level_of: HashMap<u64, u32>,
}

/// The state that a MANIFEST describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Column families by id.
    pub column_families: BTreeMap<u32, ColumnFamily>,
    /// Identity of the database; empty if the MANIFEST lacks it.
    pub db_id: Vec<u8>,
    /// Lowest file number that is not used yet.
    pub next_file_number: u64,
    /// Last sequence number in SST files.
    pub last_sequence: u64,
    /// Write-ahead logs below this number are obsolete.
    pub min_log_number_to_keep: u64,
    /// Minimum sizes in bytes of closed write-ahead logs by number. Only a database with
    /// `track_and_verify_wals_in_manifest` has any.
    pub synced_logs: BTreeMap<u64, u64>,
    /// Logs below this number are not tracked.
    first_tracked_log: u64,
    /// Counters that the edits have set.
    pub given: Given,
}

/// Flags of the counters that the edits so far have set. A MANIFEST that was cut near its start lacks some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given {
    /// A column family's log number.
    pub log_number: bool,
    /// The next file number.
    pub next_file_number: bool,
    /// The last sequence number.
    pub last_sequence: bool,
}

impl Default for Tree {
    fn default() -> Self {
        let default = ColumnFamily {
            name: DEFAULT_NAME.to_vec(),
            ..ColumnFamily::default()
        };
        Self {
            column_families: BTreeMap::from([(DEFAULT_ID, default)]),
            db_id: Vec::new(),
            next_file_number: 0,
            last_sequence: 0,
            min_log_number_to_keep: 0,
            synced_logs: BTreeMap::new(),
            first_tracked_log: 0,
            given: Given::default(),
        }
    }
}

impl Tree {
    /// The state before the first edit: the default column family without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id and state of the column family of that name.
    pub fn by_name(&self, name: &[u8]) -> Option<(u32, &ColumnFamily)> {
        self.column_families
            .iter()
            .find(|(_, cf)| cf.name == name)
            .map(|(id, cf)| (*id, cf))
    }

    /// Checks that the edits so far have set all counters that RocksDB needs to open a database
    /// (`db/version_edit_handler.cc:CheckIterationResult`).
    ///
    /// RocksDB writes them to a MANIFEST before CURRENT names it. So they are present even while another process
    /// appends to the file.
    ///
    /// # Errors
    /// Corruption at offset 0, with RocksDB's text, if one is missing.
    pub fn check(&self) -> Result<()> {
        let counters = [
            (self.given.log_number, "log_file_number"),
            (self.given.next_file_number, "next_file_number"),
            (self.given.last_sequence, "last_sequence"),
        ];
        let missing = counters.iter().filter(|(is_given, _)| !is_given);
        let missing: Vec<_> = missing.map(|&(_, name)| name).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(misfit(format!(
                "no {} entry in MANIFEST",
                missing.join(", ")
            ))),
        }
    }

    /// The newest log that some column family's unflushed entries may begin with.
    pub fn newest_log_number(&self) -> u64 {
        let families = self.column_families.values();
        families.map(|family| family.log_number).max().unwrap_or(0)
    }

    /// Whether a file is in a directory of `db_paths` or `cf_paths` other than the first.
    pub fn has_other_paths(&self) -> bool {
        let families = self.column_families.values();
        let mut files =
            families.flat_map(|family| family.levels.values().flat_map(BTreeMap::values));
        files.any(|file| file.path_id != 0)
    }

    /// Applies one edit, as `db/version_edit_handler.cc:ApplyVersionEdit` does.
    ///
    /// # Errors
    /// Corruption at offset 0 if the edit does not fit the state: it names a missing column family, creates an existing
    /// one, deletes a file that is not at that level, or adds an existing file. The tree must not be used afterwards.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        let id = edit.column_family;
        if let Some(name) = &edit.column_family_add {
            self.add_column_family(id, name)?;
        }
        let Some(cf) = self.column_families.get_mut(&id) else {
            return Err(misfit(format!("column family {id} does not exist")));
        };
        if edit.column_family_drop {
            self.column_families.remove(&id);
        } else {
            cf.apply(edit)?;
            self.given.log_number |= edit.log_number.is_some();
        }
        if let Some(db_id) = &edit.db_id {
            self.db_id.clone_from(db_id);
        }
        self.given.next_file_number |= edit.next_file_number.is_some();
        self.given.last_sequence |= edit.last_sequence.is_some();
        self.next_file_number = edit.next_file_number.unwrap_or(self.next_file_number);
        self.last_sequence = edit.last_sequence.unwrap_or(self.last_sequence);
        let kept = edit.min_log_number_to_keep.unwrap_or(0);
        self.min_log_number_to_keep = self.min_log_number_to_keep.max(kept);
        self.track_logs(edit);
        Ok(())
    }

    /// Edits about the same log may come in any order (`db/wal_edit.cc:WalSet`).
    fn track_logs(&mut self, edit: &VersionEdit) {
        for &(number, size) in &edit.synced_logs {
            let known = self.synced_logs.entry(number).or_default();
            *known = size.max(*known);
        }
        let first = edit.first_tracked_log.unwrap_or(0);
        self.first_tracked_log = self.first_tracked_log.max(first);
        self.synced_logs = self.synced_logs.split_off(&self.first_tracked_log);
    }

    fn add_column_family(&mut self, id: u32, name: &[u8]) -> Result<()> {
        if self.column_families.contains_key(&id) || self.by_name(name).is_some() {
            return Err(misfit(format!("column family {id} is created twice")));
        }
        let cf = ColumnFamily {
            name: name.to_vec(),
            ..ColumnFamily::default()
        };
        self.column_families.insert(id, cf);
        Ok(())
    }
}

impl ColumnFamily {
    /// The level and description of a file.
    pub fn file(&self, number: u64) -> Option<(u32, &FileMeta)> {
        let level = *self.level_of.get(&number)?;
        let file = self.levels.get(&level)?.get(&number)?;
        Some((level, file))
    }

    /// Deletions first, so that one edit can move a file from level to level.
    fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        for &(level, number) in &edit.deleted_files {
            self.delete(level, number)?;
        }
        for (level, file) in &edit.new_files {
            self.add(*level, file)?;
        }
        self.has_blob_files |= edit.touches_blob_files;
        if let Some(comparator) = &edit.comparator {
            self.comparator.clone_from(comparator);
        }
        // RocksDB ignores a smaller number, too.
        self.log_number = self.log_number.max(edit.log_number.unwrap_or(0));
        if let Some(timestamp) = &edit.full_history_ts_low {
            self.full_history_ts_low.clone_from(timestamp);
        }
        self.persist_user_defined_timestamps = edit
            .persist_user_defined_timestamps
            .or(self.persist_user_defined_timestamps);
        Ok(())
    }

    fn delete(&mut self, level: u32, number: u64) -> Result<()> {
        if self.level_of.get(&number) != Some(&level) {
            let what = format!("file {number} is deleted from level {level} but is not there");
            return Err(misfit(what));
        }
        self.level_of.remove(&number);
        if let Some(files) = self.levels.get_mut(&level) {
            files.remove(&number);
            if files.is_empty() {
                self.levels.remove(&level);
            }
        }
        Ok(())
    }

    fn add(&mut self, level: u32, file: &FileMeta) -> Result<()> {
        if let Some(old) = self.level_of.insert(file.number, level) {
            let number = file.number;
            let what = format!("file {number} is added to level {level} but is at level {old}");
            return Err(misfit(what));
        }
        self.has_blob_files |= file.oldest_blob_file.is_some();
        let files = self.levels.entry(level).or_default();
        files.insert(file.number, file.clone());
        Ok(())
    }
}

fn misfit(what: String) -> Error {
    Error::corruption(0, what)
}
