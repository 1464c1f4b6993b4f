//! A database at one sequence number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, KeyRange, Lock, Result};
use rockmill_exec::parallel;
use rockmill_format::manifest::{ColumnFamily, FileMeta};
use rockmill_format::names;
use rockmill_format::properties::{TableProperties, compression_types};
use rockmill_format::table::orders_by_bytes;
use rockmill_snapshot::DatabaseIdentity;
use rockmill_snapshot::tree::{Position, user_key};
use rockmill_storage::base_name;
use rockmill_storage::io::{IoOptions, JobInput};

use crate::deleted::Deleted;
use crate::engine::ScanEngine;
use crate::family::{FamilySnapshot, FileInfo, inputs_of};
use crate::history::Origin;
use crate::iterators::Iterators;
use crate::memory_table::MemoryTable;
use crate::options::{ReadOptions, comparator};
use crate::quoted;
use crate::table::{SnapshotTable, TableFolder};
use crate::version::VersionFile;

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
    /// Largest sequence number that the logs had, if it is known.
    pub(crate) logged: Option<u64>,
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
    snapshot: Lock<Option<Arc<FamilySnapshot>>>,
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
            logged: None,
            files,
            orders_by_bytes,
            unflushed: Vec::new(),
            unread,
            is_closed: false,
            failed: None,
            has_filter: !options.unfiltered.contains(&tree.name),
            reuses_manifest: options.reuses_manifest,
            iterators: None,
            snapshot: Lock::default(),
        }
    }

    /// A column family that other processes read.
    pub(crate) fn of_remotes(snapshot: FamilySnapshot) -> Self {
        Self {
            id: 0,
            position: Position::default(),
            log_number: 0,
            logged: None,
            files: Vec::new(),
            orders_by_bytes: true,
            unflushed: Vec::new(),
            unread: None,
            is_closed: false,
            failed: None,
            has_filter: false,
            reuses_manifest: None,
            iterators: None,
            snapshot: Lock::new(Some(Arc::new(snapshot))),
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
            logged: self.logged.unwrap_or(sequence),
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

    /// The database.
    pub(crate) fn database(&self) -> &DatabaseIdentity {
        &self.position.database
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

pub(crate) fn version_file(meta: &FileMeta) -> VersionFile {
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
            let snapshot = family.snapshot.lock();
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
        let mut snapshot = family.snapshot.lock();
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
        Self {
            path: snapshot.folder.path.clone(),
            log_folder: snapshot.log_folder.clone(),
            name: name.to_owned(),
            sequence: snapshot.sequence,
            inputs: inputs_of(&tables, &family.unflushed),
            tables,
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
}

fn compression(properties: &TableProperties) -> String {
    compression_types(&properties.compression_name)
}
