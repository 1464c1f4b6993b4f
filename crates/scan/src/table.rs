//! Opened tables, which are kept between queries.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::columns::{ColumnCache, TableColumns, TableIdentity};
use rockmill_core::{
    Cacheable, CancelToken, Error, ErrorKind, FileIdentity, InputTable, Lock, ReadAt, Result,
    open_table, range_tombstones,
};
use rockmill_exec::budget::{Budget, Reservation};
use rockmill_exec::file_caches::database_number;
use rockmill_format::key::KeyOrder;
use rockmill_format::manifest::FileMeta;
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::table::names;
use rockmill_snapshot::tree::user_key;
use rockmill_storage::io::{ClosedInput, JobInput, JobIo};
use rockmill_storage::{base_name, table_path};

/// A table of a database.
#[derive(Debug)]
pub struct Table {
    /// The table; reads of it open its file anew.
    pub input: InputTable,
    io: Arc<JobIo>,
    closed: Arc<ClosedInput>,
    /// The file from which it was opened, if the operating system has it.
    file: Option<Identity>,
    last_used: AtomicU64,
    _reservation: Reservation,
}

impl Table {
    /// Whether its rows may be read from an open file. A file under the same name may be another one.
    fn is_in(&self, file: &JobInput) -> bool {
        self.file.is_none() || self.file == Identity::of_file(file).ok()
    }

    /// Options for reading its file.
    pub fn io(&self) -> &JobIo {
        &self.io
    }

    /// The table with an open file, which tasks share while one of them has it.
    ///
    /// # Errors
    /// Storage.
    pub fn open(&self) -> Result<InputTable> {
        let file = self.closed.open_shared(None)?;
        Ok(self.input.read_through(file as Arc<dyn ReadAt>))
    }
}

/// A table of a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotTable {
    table: Arc<Table>,
    /// The snapshot's own open file, if another process may delete it.
    held: Option<Arc<JobInput>>,
    /// Its level, which may be another one in a later snapshot.
    level: u32,
}

impl Deref for SnapshotTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl SnapshotTable {
    /// The table with an open file, which other tasks have as well.
    ///
    /// # Errors
    /// Storage.
    pub fn open(&self) -> Result<InputTable> {
        let table = match &self.held {
            Some(file) => {
                let file = Arc::clone(file) as Arc<dyn ReadAt>;
                self.table.input.read_through(file)
            }
            None => self.table.open()?,
        };
        let level = self.level;
        let cacheable = table.cacheable().map(|of| Cacheable { level, ..*of });
        Ok(table.with_cacheable(cacheable))
    }
}

/// The folder of a database's tables.
#[derive(Debug, Clone)]
pub struct TableFolder {
    /// The directory.
    pub path: PathBuf,
    /// How files are read.
    pub io: Arc<JobIo>,
}

impl TableFolder {
    /// Path of a table's file.
    pub fn file(&self, number: u64) -> PathBuf {
        table_path(&self.path, number)
    }

    /// Opens a table's file.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn open(&self, number: u64) -> std::io::Result<Arc<JobInput>> {
        JobInput::open(&self.io, &self.file(number)).map(Arc::new)
    }
}

/// Names a table: its file's directory, number and size, and an identity that a later database in the same directory
/// does not share.
type Key = (PathBuf, u64, u64, Identity);

/// Tells a file from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    /// The unique id of the table. Old versions of RocksDB write none.
    Table([u64; 2]),
    /// Device and inode of the file, and the time of its last change, which no program can set.
    File {
        device: u64,
        inode: u64,
        changed: (i64, i64),
    },
}

impl Identity {
    fn of_file(file: &JobInput) -> io::Result<Self> {
        let descriptor = file.descriptor().ok_or(io::ErrorKind::Unsupported)?;
        let metadata = File::from(descriptor.try_clone_to_owned()?).metadata()?;
        Ok(Self::File {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The cached tables.
#[derive(Debug)]
pub struct Tables {
    budget: Arc<Budget>,
    kept: Lock<HashMap<Key, Arc<Table>>>,
    uses: AtomicU64,
    columns: Arc<ColumnCache>,
}

impl Tables {
    /// An empty cache.
    pub fn new(budget: &Arc<Budget>, columns: &Arc<ColumnCache>) -> Self {
        Self {
            budget: Arc::clone(budget),
            kept: Lock::default(),
            uses: AtomicU64::new(0),
            columns: Arc::clone(columns),
        }
    }

    /// Columns of the tables.
    pub fn columns(&self) -> &ColumnCache {
        &self.columns
    }

    /// The table that the MANIFEST describes by `meta`. If the caller has its file open, it is read from there.
    ///
    /// # Errors
    /// Storage, Corruption or Declined if it cannot be read; Storage if another table has its name; Declined if there is
    /// no memory for its index; Cancelled.
    pub fn get(
        &self,
        folder: &TableFolder,
        (meta, level): (&FileMeta, u32),
        file: Option<&Arc<JobInput>>,
        cancel: &CancelToken,
    ) -> Result<SnapshotTable> {
        cancel.check()?;
        let mut opened = None;
        let identity = match (meta.unique_id, file) {
            (Some(id), _) => Identity::Table(id),
            (None, file) => {
                let in_file = |e| {
                    let name = base_name(&folder.file(meta.number));
                    Error::storage(&name, "open it", &e)
                };
                let file = match file {
                    Some(file) => Arc::clone(file),
                    None => folder.open(meta.number).map_err(in_file)?,
                };
                let identity = Identity::of_file(&file).map_err(in_file)?;
                opened = Some(file);
                identity
            }
        };
        let key = (folder.path.clone(), meta.number, meta.size, identity);
        let open = opened.as_ref().or(file);
        let known = || {
            let known = self.kept.lock().get(&key).cloned();
            known.filter(|table| open.is_none_or(|file| table.is_in(file)))
        };
        let table = match known() {
            Some(table) => table,
            None => {
                let table = self.open(folder, meta, open, cancel)?;
                // Another thread may have opened it meanwhile.
                known().unwrap_or_else(|| {
                    self.kept.lock().insert(key, Arc::clone(&table));
                    table
                })
            }
        };
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        table.last_used.store(now, Ordering::Relaxed);
        let held = file.cloned();
        Ok(SnapshotTable { table, held, level })
    }

    fn open(
        &self,
        folder: &TableFolder,
        meta: &FileMeta,
        file: Option<&Arc<JobInput>>,
        cancel: &CancelToken,
    ) -> Result<Arc<Table>> {
        let path = folder.file(meta.number);
        let name = base_name(&path);
        let file = match file {
            Some(file) => Arc::clone(file),
            None => {
                let opened = folder.open(meta.number);
                opened.map_err(|e| Error::storage(&name, "open it", &e))?
            }
        };
        if file.len() != meta.size {
            let what = format!("the MANIFEST says that the file has {} bytes", meta.size);
            return Err(Error::corruption(&name, file.len(), what));
        }
        let closed = Arc::new(file.closed(path));
        let identity_of_file = Identity::of_file(&file).ok();
        let table = open_table(Box::new(Shared(file)))?;
        if FileIdentity::is_other(&table, meta.unique_id) {
            let what = "another file has its name: its unique id is not the one in the MANIFEST, as while a database is \
                        copied or restored; try again when that is done";
            return Err(Error::new(ErrorKind::Storage, what).in_file(&name));
        }
        // Only column families in the order of bytes are opened. Ranges of keys are in that order, so the table would seem to
        // have nothing of them, and RocksDB's iterators would seek in it by the wrong order as well.
        if table.order() != KeyOrder::Bytewise {
            let what = "its keys are in reverse order, and those of its column family are not";
            return Err(Error::corruption(&name, meta.size, what));
        }
        let table = table
            .with_largest_sequence(meta.largest_seqno)?
            .beginning_at(user_key(&meta.smallest));
        let identity = meta
            .unique_id
            .and_then(|id| FileIdentity::stated(&table, id));
        let columns = TableColumns {
            cache: Arc::clone(&self.columns),
            identity: identity.map(|file| TableIdentity::of_file(&table, file)),
        };
        let cacheable = identity.map(|identity| Cacheable {
            identity,
            level: u32::MAX,
            database: database_number(&folder.path),
        });
        let table = table.with_columns(columns).with_cacheable(cacheable);
        let (index, (most, reading)) = (table.index_memory_bytes(), tombstone_bytes(&table));
        // Several files may be opened at once, so the memory is reserved before they are read.
        let mut reservation = self.keep(index.saturating_add(reading), cancel)?;
        let deletions = range_tombstones(&table, most)?;
        let deleted = deletions.iter().map(RangeTombstone::memory_bytes);
        reservation.shrink(index + deleted.sum::<u64>());
        Ok(Arc::new(Table {
            _reservation: reservation,
            input: table
                .with_range_tombstones(deletions)
                .read_through(Arc::clone(&closed) as Arc<dyn ReadAt>),
            io: Arc::clone(&folder.io),
            closed,
            file: identity_of_file,
            last_used: AtomicU64::new(0),
        }))
    }

    /// Waits until bytes may be cached. Unused tables are dropped for them, the least recently used first.
    ///
    /// # Errors
    /// Declined if there is no room; Cancelled.
    pub fn keep(&self, bytes: u64, cancel: &CancelToken) -> Result<Reservation> {
        while self.budget.room_for_reservations() < bytes {
            let mut kept = self.kept.lock();
            let unused = kept
                .iter()
                .filter(|(_, table)| Arc::strong_count(table) == 1);
            let oldest = unused.min_by_key(|(_, table)| table.last_used.load(Ordering::Relaxed));
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            let table = kept.remove(&key);
            drop(kept);
            drop(table);
        }
        self.budget.reserve(bytes, cancel)
    }

    /// Bytes that unflushed entries may take.
    pub fn max_unflushed_bytes(&self) -> usize {
        /// The entries, and the table of them.
        const TIMES: u64 = 2;
        usize::try_from(self.budget.max_reserved_bytes() / TIMES).unwrap_or(usize::MAX)
    }
}

/// Maximum memory of a table's range tombstones, and of reading them: the block as it is stored and as it is decoded. RocksDB
/// does not compress that block (`block_based_table_builder.cc:WriteRangeDelBlock`).
fn tombstone_bytes(table: &InputTable) -> (u64, u64) {
    /// Three lengths of a byte, and the tag.
    const MIN_ENTRY_BYTES: u64 = 11;
    let Some(block) = table.meta.metaindex.get(names::RANGE_DELETIONS) else {
        return (0, 0);
    };
    let entries = block.size / MIN_ENTRY_BYTES;
    // Files of old versions state no number.
    let number = match table.meta.properties.num_range_deletions {
        0 => entries,
        stated => stated.min(entries),
    };
    let most =
        (number.saturating_mul(size_of::<RangeTombstone>() as u64)).saturating_add(block.size);
    (most, most.saturating_mul(2).saturating_add(block.size))
}

/// A file that others share.
#[derive(Debug)]
struct Shared(Arc<JobInput>);

impl ReadAt for Shared {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

/// The same path for all paths of a directory.
pub fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use rockmill_format::key::{join, pack_tag};
    use rockmill_storage::io::IoOptions;
    use rust_rocksdb::{Options, SstFileWriter};

    use super::*;
    use crate::{ScanEngine, ScanSettings};

    const NUMBER: u64 = 7;

    /// The bytes of a table of ten keys that begin with this letter.
    fn table(dir: &Path, letter: char) -> Vec<u8> {
        let path = dir.join("written.sst");
        let options = Options::default();
        let mut writer = SstFileWriter::create(&options);
        writer.open(&path).expect("opened");
        for row in 0..10 {
            writer.put(format!("{letter}{row}"), "value").expect("put");
        }
        writer.finish().expect("finished");
        std::fs::read(path).expect("read")
    }

    #[test]
    fn a_table_without_a_unique_id_is_told_from_one_that_took_its_place() {
        let dir = tempfile::tempdir().expect("a folder");
        let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
        let folder = engine.folder(dir.path(), IoOptions::default());
        let path = folder.file(NUMBER);
        let [one, other] = ['a', 'b'].map(|letter| table(dir.path(), letter));
        assert_eq!(one.len(), other.len());
        let meta = FileMeta {
            number: NUMBER,
            size: one.len() as u64,
            smallest: join(b"a", pack_tag(0, 1)),
            largest_seqno: 0,
            ..FileMeta::default()
        };
        let get = || {
            let table = engine
                .tables
                .get(&folder, (&meta, 0), None, &CancelToken::new());
            table.expect("it is sound").table
        };
        std::fs::write(&path, &one).expect("written");
        let first = get();
        assert!(Arc::ptr_eq(&first, &get()));
        let modified = std::fs::metadata(&path).and_then(|found| found.modified());
        let modified = modified.expect("a time");
        // In the same inode, and with the same time, as a copy may have.
        std::fs::write(&path, &other).expect("written");
        let file = File::options().write(true).open(&path).expect("opened");
        file.set_modified(modified).expect("set");
        let second = get();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, &one).expect("written");
        assert!(!Arc::ptr_eq(&second, &get()));
    }
}
