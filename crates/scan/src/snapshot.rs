//! A database at one sequence number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rockmill_core::{
    CancelToken, DeclineReason, Error, ErrorKind, InputTable, KeyRange, Result, Support,
    Tombstones, Unsupported,
};
use rockmill_exec::parallel;
use rockmill_format::manifest::{ColumnFamily, FileMeta};
use rockmill_format::names;
use rockmill_format::properties::{TableProperties, compression_types};
use rockmill_format::table::orders_by_bytes;
use rockmill_snapshot::tree::{Position, user_key};
use rockmill_storage::base_name;
use rockmill_storage::io::{IoOptions, JobInput};

use crate::deleted::Deleted;
use crate::engine::ScanEngine;
use crate::history::Origin;
use crate::iterators::{IteratorRead, Iterators, RowFn};
use crate::memory_table::MemoryTable;
use crate::options::{ReadOptions, comparator};
use crate::piece::Piece;
use crate::remote::Remote;
use crate::table::{SnapshotTable, TableFolder};
use crate::task::{FromTables, Goal};
use crate::version::VersionFile;
use crate::{lock, quoted};

/// All column families of a database at one sequence number.
#[derive(Debug)]
pub struct Snapshot {
    engine: Arc<ScanEngine>,
    folder: TableFolder,
    log_folder: PathBuf,
    sequence: u64,
    families: BTreeMap<String, Family>,
    /// Transactions that are prepared and not committed.
    prepared: usize,
}

/// A column family whose tables may still be closed.
#[derive(Debug)]
pub struct Family {
    /// Id of the column family in the database.
    id: u32,
    /// Position in the MANIFEST up to which it has these files.
    position: Position,
    log_number: u64,
    files: Vec<File>,
    orders_by_bytes: bool,
    /// Its unflushed entries up to the snapshot's sequence number.
    pub unflushed: Vec<Arc<MemoryTable>>,
    /// Reason why iterators read all of it, if they do.
    pub unread: Option<String>,
    /// Whether it is not read. Then neither its files nor its unflushed entries are here.
    pub(crate) is_closed: bool,
    /// The error of opening its files, if they cannot be opened. Other column families are read all the same.
    pub(crate) failed: Option<Error>,
    /// Whether it may have a compaction filter.
    has_filter: bool,
    /// See [`ReadOptions::reuses_manifest`].
    reuses_manifest: Option<u64>,
    /// Iterators for rows that tables alone do not determine.
    pub iterators: Option<Arc<dyn Iterators>>,
    snapshot: Mutex<Option<Arc<FamilySnapshot>>>,
}

/// A file of a column family.
#[derive(Debug)]
pub(crate) struct File {
    pub level: u32,
    pub meta: FileMeta,
    /// The open file, if another process may delete it.
    pub held: Option<Arc<JobInput>>,
}

impl Family {
    /// The column family with the files that the MANIFEST names up to a position. It has no unflushed entries and no
    /// iterators yet.
    pub fn new(id: u32, tree: &ColumnFamily, position: Position, options: &ReadOptions) -> Self {
        let files = tree.levels.iter().flat_map(|(&level, files)| {
            let files = files.values().cloned();
            files.map(move |meta| File {
                level,
                meta,
                held: None,
            })
        });
        let files: Vec<_> = files.collect();
        let comparator = comparator(tree, &options.comparators);
        let orders_by_bytes = orders_by_bytes(comparator);
        let unread = if !orders_by_bytes {
            let name = names::escape(comparator);
            Some(format!(
                "its comparator {name} may not order keys by their bytes"
            ))
        } else if files.iter().any(|file| file.meta.path_id != 0) {
            let why = "its files lie in several directories of db_paths, which OPTIONS do not name";
            Some(why.to_owned())
        } else if options.in_place.contains(&tree.name) {
            Some("inplace_update_support changes entries that are not flushed".to_owned())
        } else {
            None
        };
        Self {
            id,
            position,
            log_number: tree.log_number,
            files,
            orders_by_bytes,
            unflushed: Vec::new(),
            unread,
            is_closed: false,
            failed: None,
            has_filter: !options.unfiltered.contains(&tree.name),
            reuses_manifest: options.reuses_manifest,
            iterators: None,
            snapshot: Mutex::default(),
        }
    }

    /// A column family that other processes read.
    pub(crate) fn of_remotes(snapshot: FamilySnapshot) -> Self {
        Self {
            id: 0,
            position: Position::default(),
            log_number: 0,
            files: Vec::new(),
            orders_by_bytes: true,
            unflushed: Vec::new(),
            unread: None,
            is_closed: false,
            failed: None,
            has_filter: false,
            reuses_manifest: None,
            iterators: None,
            snapshot: Mutex::new(Some(Arc::new(snapshot))),
        }
    }

    /// Opens files that another process may delete, by their numbers. They stay open as long as the snapshot lives. Returns
    /// false if one of them was deleted. After another error of opening, iterators read the column family.
    pub fn hold_files(
        &mut self,
        engine: &ScanEngine,
        path: &Path,
        options: &ReadOptions,
        numbers: &BTreeSet<u64>,
    ) -> bool {
        if self.unread.is_some() {
            return true;
        }
        let folder = engine.folder(path, options.io);
        let files = self.files.iter_mut();
        for file in files.filter(|file| numbers.contains(&file.meta.number)) {
            match folder.open(file.meta.number) {
                Ok(open) => file.held = Some(open),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return false,
                Err(error) => {
                    let name = base_name(&folder.file(file.meta.number));
                    self.unread = Some(Error::storage(&name, "open it", &error).to_string());
                    return true;
                }
            }
        }
        true
    }

    fn origin(&self, sequence: u64) -> Origin {
        let metas = || self.files.iter().map(|file| &file.meta);
        let is_ahead = |meta: &&FileMeta| meta.largest_seqno > sequence;
        let ahead = metas().filter(is_ahead);
        let is_merged = |ahead: &&FileMeta| {
            let mut others = metas().filter(|other| !is_ahead(other));
            others.any(|other| other.largest_seqno > ahead.smallest_seqno && overlap(other, ahead))
        };
        Origin {
            id: self.id,
            position: self.position.clone(),
            files: metas().map(version_file).collect(),
            log_number: self.log_number,
            merged: ahead.clone().find(is_merged).map(|meta| meta.number),
            ahead: ahead.map(|meta| meta.number).collect(),
            epochs: metas().map(|meta| meta.epoch_number).collect(),
            has_filter: self.has_filter,
            reuses_manifest: self.reuses_manifest,
        }
    }

    /// Unflushed entries are in logs from this number on.
    pub(crate) fn log_number(&self) -> u64 {
        self.log_number
    }

    /// Removes all files except some.
    pub(crate) fn keep_files(&mut self, keeps: impl Fn(VersionFile) -> bool) {
        self.files.retain(|file| keeps(version_file(&file.meta)));
    }

    /// The files, to be opened.
    pub(crate) fn files_mut(&mut self) -> &mut [File] {
        &mut self.files
    }
}

impl File {
    /// Description of the file, whose table may be open.
    fn info(&self, table: Option<&SnapshotTable>) -> FileInfo {
        let properties = table.map(|table| &table.input.meta.properties);
        FileInfo {
            number: self.meta.number,
            level: self.level,
            smallest: user_key(&self.meta.smallest).to_vec(),
            largest: user_key(&self.meta.largest).to_vec(),
            smallest_sequence: self.meta.smallest_seqno,
            entries: properties.map(|properties| properties.num_entries),
            bytes: self.meta.size,
            compression: properties.map_or_else(String::new, compression),
        }
    }
}

/// A range that has all keys of some files.
fn file_keys(files: &[File]) -> Option<KeyRange> {
    /// Tag of a largest key that is the end of a deleted range, and no key of an entry
    /// (`dbformat.h:kRangeTombstoneSentinel`).
    const SENTINEL: [u8; 8] = [0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let begins = files.iter().map(|file| user_key(&file.meta.smallest));
    let ends = files.iter().map(|file| {
        let largest = user_key(&file.meta.largest);
        (largest, !file.meta.largest.ends_with(&SENTINEL))
    });
    let (end, is_key) = ends.max()?;
    Some(KeyRange {
        begin: Some(begins.min()?.to_vec()),
        end: Some(match is_key {
            true => [end, &[0]].concat(),
            false => end.to_vec(),
        }),
    })
}

/// Whether two files may have the same key.
fn overlap(one: &FileMeta, other: &FileMeta) -> bool {
    user_key(&one.smallest) <= user_key(&other.largest)
        && user_key(&other.smallest) <= user_key(&one.largest)
}

fn version_file(meta: &FileMeta) -> VersionFile {
    (meta.number, meta.size, meta.unique_id)
}

impl Snapshot {
    /// A snapshot of the database in a directory. The caller must keep the files as long as the snapshot lives.
    pub fn new(
        engine: &Arc<ScanEngine>,
        path: &Path,
        options: &ReadOptions,
        sequence: u64,
        families: BTreeMap<String, Family>,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            folder: engine.folder(path, options.io),
            log_folder: options.log_folder.clone(),
            sequence,
            families,
            prepared: 0,
        }
    }

    /// The same with a number of transactions that are prepared and not committed.
    #[must_use]
    pub(crate) fn with_prepared(self, prepared: usize) -> Self {
        Self { prepared, ..self }
    }

    /// Number of transactions that are prepared and not committed in the logs of a directory.
    pub fn prepared(&self) -> usize {
        self.prepared
    }

    /// A snapshot of these column families, without options.
    pub(crate) fn with_families(
        engine: &Arc<ScanEngine>,
        path: &Path,
        families: BTreeMap<String, Family>,
    ) -> Self {
        let sequences = families.values().filter_map(|family| {
            let snapshot = lock(&family.snapshot);
            snapshot.as_ref().map(|snapshot| snapshot.sequence)
        });
        Self {
            engine: Arc::clone(engine),
            folder: engine.folder(path, IoOptions::default()),
            log_folder: path.to_owned(),
            sequence: sequences.max().unwrap_or(0),
            families,
            prepared: 0,
        }
    }

    /// The sequence number: the snapshot has all writes up to it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Names of the column families.
    pub fn families(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }

    /// Name of the column family with this id.
    pub fn family_of_id(&self, id: u32) -> Option<&str> {
        let (name, _) = self.families.iter().find(|(_, family)| family.id == id)?;
        Some(name)
    }

    /// Whether files of a column family that is read could not be opened.
    pub(crate) fn lacks_files(&self) -> bool {
        let failed = self
            .families
            .values()
            .filter_map(|family| family.failed.as_ref());
        failed
            .filter(|error| error.kind == ErrorKind::Storage)
            .count()
            > 0
    }

    /// Opens the tables of a column family.
    ///
    /// # Errors
    /// Declined if there is no such column family; Storage or Corruption if a table cannot be read; Declined if there is no
    /// memory for its index.
    pub fn family(&self, name: &str) -> Result<Arc<FamilySnapshot>> {
        let (name, family) = self.known(name)?;
        let mut snapshot = lock(&family.snapshot);
        if let Some(snapshot) = &*snapshot {
            return Ok(Arc::clone(snapshot));
        }
        let opened = Arc::new(self.open(name, family)?);
        *snapshot = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The files of a column family as the MANIFEST describes them, which are not opened for it.
    ///
    /// # Errors
    /// Declined if there is no such column family.
    pub fn listed_files(&self, name: &str) -> Result<Vec<FileInfo>> {
        let (_, family) = self.known(name)?;
        Ok(family.files.iter().map(|file| file.info(None)).collect())
    }

    /// Whether a column family orders keys by their bytes.
    ///
    /// # Errors
    /// Declined if there is no such column family.
    pub fn orders_by_bytes(&self, name: &str) -> Result<bool> {
        Ok(self.known(name)?.1.orders_by_bytes)
    }

    fn known(&self, name: &str) -> Result<(&str, &Family)> {
        let none = || {
            let what = format!("there is no column family {}", quoted(name));
            Error::declined(DeclineReason::Manifest, what)
        };
        let known = self.families.get_key_value(name);
        // A text with backslashes that escape nothing names a column family as well.
        let known = known.or_else(|| {
            let name = names::escape(&names::unescape(name));
            self.families.get_key_value(&name)
        });
        let (name, family) = known.ok_or_else(none)?;
        Ok((name, family))
    }

    fn open(&self, name: &str, family: &Family) -> Result<FamilySnapshot> {
        if family.is_closed {
            let what = format!(
                "the snapshot was taken without column family {}",
                quoted(name)
            );
            return Err(Error::internal(what));
        }
        if let Some(error) = &family.failed {
            return Err(error.clone());
        }
        let cancel = CancelToken::new();
        let engine = &self.engine;
        let mut unread = family.unread.clone();
        let open = |file: &File| {
            let meta = (&file.meta, file.level);
            let table = (engine.tables).get(&self.folder, meta, file.held.as_ref(), &cancel);
            match table {
                Ok(table) => Ok(Ok(table)),
                Err(error) if is_of_table(&error) => Ok(Err(error.to_string())),
                // Iterators read its rows. Its tables only determine the borders, and need not stay open.
                Err(error) if family.unread.is_some() => Ok(Err(error.to_string())),
                Err(error) => Err(error),
            }
        };
        let mut tables = Vec::new();
        let are_here = family.files.iter().all(|file| file.meta.path_id == 0);
        if family.orders_by_bytes && are_here {
            let threads = engine.executor.budget().slots();
            let clock = engine.storage.clock();
            let opened = parallel::map_in(&clock, &family.files, threads, open)?.0;
            match opened.into_iter().collect::<std::result::Result<_, _>>() {
                Ok(opened) => tables = opened,
                Err(reason) => unread = unread.or(Some(reason)),
            }
        }
        let files = family.files.iter().zip(&tables);
        let files: Vec<_> = files
            .map(|(file, table)| (file.level, &file.meta, &table.input))
            .collect();
        let keep = |bytes| engine.tables.keep(bytes, &cancel);
        let deleted = match Deleted::new(&files, &family.unflushed, self.sequence, keep) {
            Err(error) if error.kind.is_out_of_memory() => {
                unread.get_or_insert_with(|| {
                    "there is no memory for its range tombstones".to_owned()
                });
                Deleted::default()
            }
            deleted => deleted?,
        };
        Ok(FamilySnapshot::new(
            self, name, family, tables, deleted, unread,
        ))
    }
}

/// Whether RocksDB may read a table that Rockmill cannot read. It reads tables of other formats only as their
/// application reads them.
fn is_of_table(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Declined(DeclineReason::TableFactory) => false,
        ErrorKind::Declined(_) => !error.kind.is_out_of_memory(),
        _ => false,
    }
}

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
    pub smallest_sequence: u64,
    /// Number of entries; `None` if Rockmill does not read the table.
    pub entries: Option<u64>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Compression of the blocks; empty if Rockmill does not read the table.
    pub compression: String,
}

impl FamilySnapshot {
    fn new(
        snapshot: &Snapshot,
        name: &str,
        family: &Family,
        tables: Vec<SnapshotTable>,
        deleted: Deleted,
        unread: Option<String>,
    ) -> Self {
        let files = family.files.iter().enumerate();
        let files = files.map(|(at, file)| file.info(tables.get(at)));
        let files = files.collect();
        let unflushed = family.unflushed.iter();
        let in_memory = unflushed.filter_map(|part| part.table.clone());
        let inputs = tables.iter().map(|table| table.input.clone());
        let inputs: Vec<_> = inputs.chain(in_memory).collect();
        Self {
            path: snapshot.folder.path.clone(),
            log_folder: snapshot.log_folder.clone(),
            name: name.to_owned(),
            sequence: snapshot.sequence,
            tables,
            inputs,
            orders_by_bytes: family.orders_by_bytes,
            iterators: family.iterators.clone(),
            files,
            deleted,
            unread,
            origin: family.origin(snapshot.sequence),
            unflushed: family.unflushed.clone(),
            file_keys: file_keys(&family.files),
            remotes: Vec::new(),
        }
    }

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
        let in_memory = unflushed.iter().filter_map(|part| part.table.clone());
        let inputs = tables.iter().map(|table| table.input.clone());
        Self {
            path: self.path.clone(),
            log_folder: self.log_folder.clone(),
            name: self.name.clone(),
            sequence: self.sequence,
            inputs: inputs.chain(in_memory).collect(),
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

fn compression(properties: &TableProperties) -> String {
    compression_types(&properties.compression_name)
}
