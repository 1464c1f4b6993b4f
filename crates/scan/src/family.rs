//! A column family at one sequence number.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::{
    CancelToken, DeclineReason, Error, InputTable, KeyRange, Result, Support, Tombstones,
    Unsupported,
};

use crate::deleted::Deleted;
use crate::history::Origin;
use crate::iterators::{IteratorRead, Iterators, RowFn};
use crate::memory_table::MemoryTable;
use crate::piece::Piece;
use crate::quoted;
use crate::remote::Remote;
use crate::table::SnapshotTable;
use crate::task::{FromTables, Goal};

/// A column family at one sequence number, with its tables opened.
#[derive(Debug)]
pub struct FamilySnapshot {
    pub(crate) path: PathBuf,
    pub(crate) log_folder: PathBuf,
    pub(crate) name: String,
    pub(crate) sequence: u64,
    pub(crate) tables: Vec<SnapshotTable>,
    /// The tables of `tables`, followed by those of unflushed entries.
    pub(crate) inputs: Vec<InputTable>,
    pub(crate) orders_by_bytes: bool,
    pub(crate) iterators: Option<Arc<dyn Iterators>>,
    pub(crate) files: Vec<FileInfo>,
    /// What range tombstones delete.
    pub(crate) deleted: Deleted,
    pub(crate) unread: Option<String>,
    pub(crate) origin: Origin,
    pub(crate) unflushed: Vec<Arc<MemoryTable>>,
    /// A range that has all keys of its files.
    pub(crate) file_keys: Option<KeyRange>,
    /// Its parts, if other processes have the files.
    pub(crate) remotes: Vec<Remote>,
}

/// A file of a column family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Number of the file.
    pub number: u64,
    /// Its level.
    pub level: u32,
    /// Smallest user key.
    pub smallest: Vec<u8>,
    /// Largest user key.
    pub largest: Vec<u8>,
    /// Smallest sequence number of its entries and range tombstones.
    pub(crate) smallest_sequence: u64,
    /// Number of entries; `None` if Rockmill does not read the table.
    pub entries: Option<u64>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Compression of the blocks; empty if Rockmill does not read the table.
    pub compression: String,
}

impl FamilySnapshot {
    /// The same version, as if it had only some of its files and some of its unflushed entries.
    pub(crate) fn part(
        &self,
        has_file: impl Fn(u64) -> bool,
        has_unflushed: impl Fn(&Arc<MemoryTable>) -> bool,
    ) -> Self {
        let files = self.files.iter().filter(|file| has_file(file.number));
        let both = self.files.iter().zip(&self.tables);
        let tables = both.filter(|(file, _)| has_file(file.number));
        let tables: Vec<_> = tables.map(|(_, table)| table.clone()).collect();
        let unflushed = self.unflushed.iter().filter(|part| has_unflushed(part));
        let unflushed: Vec<_> = unflushed.cloned().collect();
        Self {
            path: self.path.clone(),
            log_folder: self.log_folder.clone(),
            name: self.name.clone(),
            sequence: self.sequence,
            inputs: inputs_of(&tables, &unflushed),
            tables,
            orders_by_bytes: self.orders_by_bytes,
            iterators: self.iterators.clone(),
            files: files.cloned().collect(),
            deleted: self.deleted.clone(),
            unread: self.unread.clone(),
            origin: self.origin.clone(),
            unflushed,
            file_keys: self.file_keys.clone(),
            remotes: self.remotes.clone(),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Folder of the write-ahead logs.
    pub fn log_folder(&self) -> &Path {
        &self.log_folder
    }

    /// Name of the column family.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sequence number: the snapshot has all writes up to it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether keys are ordered by their bytes. If not, rows come in another order.
    pub fn orders_by_bytes(&self) -> bool {
        self.orders_by_bytes
    }

    /// The files, by level and number.
    pub fn files(&self) -> &[FileInfo] {
        &self.files
    }

    /// Entries of all files and of the log: at least the number of rows. `None` if RocksDB's iterators read all of it,
    /// because not all entries are known then.
    pub fn entries(&self) -> Option<u64> {
        let remotes = self.remotes.iter().map(|remote| remote.described.entries);
        let inputs = self.inputs.iter();
        let entries = inputs.map(|input| input.meta.properties.num_entries);
        let entries = entries.chain(remotes);
        (self.unread.is_none()).then(|| entries.fold(0, u64::saturating_add))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let remotes = self.remotes.iter().map(|remote| remote.described.bytes);
        let bytes = self.files.iter().map(|file| file.bytes).chain(remotes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The tables: those of all files, followed by those of unflushed entries. Reads open a file anew.
    pub fn inputs(&self) -> &[InputTable] {
        &self.inputs
    }

    /// The reason why the rows of a piece cannot be stored in a table that stays on a device, if they cannot.
    pub fn unsupported(&self, piece: &Piece) -> Option<Unsupported> {
        let goal = Goal::Resident(Tombstones::Drop);
        let reading = FromTables::new(self, piece.range.clone(), goal);
        match reading.request(&self.inputs).support() {
            Support::No(what) => Some(what),
            Support::Yes => None,
        }
    }

    /// Reason why iterators read all of it, if they do.
    pub(crate) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }

    /// Whether RocksDB's iterators are available.
    pub fn has_iterators(&self) -> bool {
        self.iterators.is_some()
    }

    /// Calls `row` with the rows of a range as RocksDB's iterators find them.
    ///
    /// # Errors
    /// Declined if there are no iterators; those of [`Iterators::read`].
    pub fn read_through_iterators(
        &self,
        range: &KeyRange,
        cancel: &CancelToken,
        row: RowFn<'_>,
    ) -> Result<()> {
        let Some(iterators) = &self.iterators else {
            let what = format!(
                "column family {} has keys that only RocksDB's iterators read, and no iterators are available",
                quoted(&self.name)
            );
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        };
        let every_key = KeyRange::default();
        let read = IteratorRead {
            path: &self.path,
            family: &self.name,
            sequence: self.sequence,
            // Comparators other than the bytewise one order ranges differently.
            range: if self.orders_by_bytes {
                range
            } else {
                &every_key
            },
            checkpoint: None,
            cancel,
        };
        iterators.read(&read, &mut |key, value| match range.contains(key) {
            true => row(key, value),
            false => Ok(()),
        })
    }
}

/// The tables of files, followed by those of unflushed entries.
pub(crate) fn inputs_of(
    tables: &[SnapshotTable],
    unflushed: &[Arc<MemoryTable>],
) -> Vec<InputTable> {
    let in_memory = unflushed.iter().filter_map(|part| part.table.clone());
    let inputs = tables.iter().map(|table| table.input.clone());
    inputs.chain(in_memory).collect()
}
