//! The operations that snapshots need from a database that rust-rocksdb has open.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rockmill_core::{DeclineReason, Error, ErrorKind, Result};
use rockmill_scan::{IteratorRead, RowFn, ValueFn, Write, Written};
use rust_rocksdb::{
    AsColumnFamilyRef, DBAccess, DBRawIteratorWithThreadMode, DBWALIterator, DBWithThreadMode,
    MultiThreaded, OptimisticTransactionDB, ReadOptions, ReadTier, SingleThreaded,
    SnapshotWithThreadMode, WriteBatch, WriteBatchWithTransaction, WriteOptions,
};

use crate::failed;

/// Name of the column family that every database has.
const DEFAULT: &str = "default";

/// Its id.
const DEFAULT_ID: u32 = 0;

/// A database that is open: `DB`, also with another thread mode, or `OptimisticTransactionDB`.
pub trait Handle: Send + Sync + 'static {
    /// Its directory.
    fn path(&self) -> &Path;

    /// Names of its column families.
    fn names(&self) -> BTreeSet<String>;

    /// Sequence number of the last write.
    fn latest_sequence(&self) -> u64;

    /// A property of a column family that is a number; nothing if there is no such column family.
    #[doc(hidden)]
    fn property(&self, family: &str, name: &str) -> Result<Option<u64>>;

    /// Numbers of the files of each column family that has some.
    #[doc(hidden)]
    fn files(&self) -> Result<BTreeMap<String, BTreeSet<u64>>>;

    /// Number and first sequence number of each log that has one.
    #[doc(hidden)]
    fn logs(&self) -> Result<BTreeMap<u64, u64>>;

    /// The writes of the log that begin after a sequence number.
    #[doc(hidden)]
    fn logged_after(&self, sequence: u64) -> Result<DBWALIterator>;

    /// Flushes a column family and waits for it.
    #[doc(hidden)]
    fn flush(&self, family: &str) -> Result<()>;

    /// Takes a snapshot of RocksDB.
    #[doc(hidden)]
    fn pin(&self) -> BoxedPin<'_>;

    /// Makes a secondary instance read what another process has written since.
    #[doc(hidden)]
    fn catch_up(&self) -> Result<()>;

    /// The column family that has a name now.
    #[doc(hidden)]
    fn family(&self, name: &str) -> NamedFamily;

    /// Like [`rockmill_scan::Store::get`], of a column family.
    #[doc(hidden)]
    fn get(&self, family: &NamedFamily, keys: &[&[u8]], value: ValueFn<'_>);

    /// Like [`rockmill_scan::Store::write`], to a column family.
    #[doc(hidden)]
    fn write(
        &self,
        family: &NamedFamily,
        writes: &[Write<'_>],
        options: &WriteOptions,
    ) -> Result<Written>;
}

/// A column family. If it is dropped, a later one may have its name, but not its id.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct NamedFamily {
    /// Its name.
    pub name: String,
    /// Its id in the database; `None` if there was no such column family.
    pub id: Option<u32>,
}

impl NamedFamily {
    /// The column family of a handle that was found by the name. The default one exists without a handle.
    fn new<H: AsColumnFamilyRef>(name: &str, found: Option<&H>) -> Self {
        let default = (name == DEFAULT).then_some(DEFAULT_ID);
        Self {
            name: name.to_owned(),
            id: found.map(AsColumnFamilyRef::id).or(default),
        }
    }

    /// Requires that a handle that was found by the name is of this column family.
    fn require<H: AsColumnFamilyRef>(&self, found: Option<H>) -> Result<Option<H>> {
        let now = Self::new(&self.name, found.as_ref());
        match now.id.is_some() && now.id == self.id {
            true => Ok(found),
            false => Err(dropped(&self.name)),
        }
    }
}

/// A snapshot of RocksDB, and super versions that are held.
pub type BoxedPin<'a> = Box<dyn Pin + 'a>;

/// A snapshot of RocksDB, and super versions that are held.
pub trait Pin: Send + Sync {
    /// Sequence number of the snapshot.
    fn sequence(&self) -> Option<u64>;

    /// Holds the super version of a column family, and drops the one held before; false if there is no such column
    /// family.
    fn hold(&mut self, family: &str) -> bool;

    /// Like [`rockmill_scan::Iterators::read`], at the snapshot and of a column family.
    fn read(&self, family: &NamedFamily, what: &IteratorRead<'_>, row: RowFn<'_>) -> Result<()>;
}

/// A [`Pin`] of a database. The iterators are dropped before the snapshot.
struct PinOf<'a, D: DBAccess> {
    held: BTreeMap<String, DBRawIteratorWithThreadMode<'a, D>>,
    snapshot: SnapshotWithThreadMode<'a, D>,
    db: &'a D,
}

/// The names of column families, as handles know them and with the one that every database has.
fn with_default(names: Vec<String>) -> BTreeSet<String> {
    names.into_iter().chain([DEFAULT.to_owned()]).collect()
}

/// Number in the name of a file, such as `/000012.sst`.
fn number(name: &str) -> Option<u64> {
    let name = name.rsplit('/').next()?;
    name.split('.').next()?.parse().ok()
}

macro_rules! handle {
    ($($db:ty, $batch:ty;)+) => { $(
        impl Handle for $db {
            fn path(&self) -> &Path {
                Self::path(self)
            }

            fn names(&self) -> BTreeSet<String> {
                with_default(self.cf_names())
            }

            fn latest_sequence(&self) -> u64 {
                self.latest_sequence_number()
            }

            fn property(&self, family: &str, name: &str) -> Result<Option<u64>> {
                let value = match self.cf_handle(family) {
                    Some(family) => self.property_int_value_cf(&family, name),
                    None if family == DEFAULT => self.property_int_value(name),
                    None => Ok(None),
                };
                value.map_err(|e| failed("tell a property", &e))
            }

            fn files(&self) -> Result<BTreeMap<String, BTreeSet<u64>>> {
                let files = self.live_files().map_err(|e| failed("list its files", &e))?;
                let mut numbers = BTreeMap::<_, BTreeSet<_>>::new();
                for file in files {
                    let of_family = numbers.entry(file.column_family_name).or_default();
                    of_family.extend(number(&file.name));
                }
                Ok(numbers)
            }

            fn logs(&self) -> Result<BTreeMap<u64, u64>> {
                let logs = self.get_sorted_wal_files();
                let logs = logs.map_err(|e| failed("list its logs", &e))?;
                let logs = logs.iter().map(|log| (log.log_number(), log.start_sequence()));
                Ok(logs.filter(|(_, first)| *first > 0).collect())
            }

            fn logged_after(&self, sequence: u64) -> Result<DBWALIterator> {
                self.get_updates_since(sequence).map_err(|e| failed("read its log", &e))
            }

            fn flush(&self, family: &str) -> Result<()> {
                let flushed = match self.cf_handle(family) {
                    Some(family) => self.flush_cf(&family),
                    None if family == DEFAULT => Self::flush(self),
                    None => Ok(()),
                };
                flushed.map_err(|e| failed("flush", &e))
            }

            fn pin(&self) -> BoxedPin<'_> {
                Box::new(PinOf {
                    held: BTreeMap::new(),
                    snapshot: self.snapshot(),
                    db: self,
                })
            }

            fn catch_up(&self) -> Result<()> {
                let caught_up = self.try_catch_up_with_primary();
                caught_up.map_err(|e| refused("catch up with the process that writes", &e))
            }

            fn family(&self, name: &str) -> NamedFamily {
                NamedFamily::new(name, self.cf_handle(name).as_ref())
            }

            fn get(&self, family: &NamedFamily, keys: &[&[u8]], value: ValueFn<'_>) {
                let options = ReadOptions::default();
                let keys = keys.iter().copied();
                let found = match family.require(self.cf_handle(&family.name)) {
                    Ok(Some(handle)) => self.batched_multi_get_cf_opt(&handle, keys, false, &options),
                    Ok(None) => self.batched_multi_get_pinned_opt(keys, false, &options),
                    Err(error) => {
                        (0..keys.len()).for_each(|at| value(at, Err(error.clone())));
                        return;
                    }
                };
                for (at, found) in found.into_iter().enumerate() {
                    match found {
                        Ok(found) => value(at, Ok(found.as_deref())),
                        Err(error) => value(at, Err(refused("read a key", &error))),
                    }
                }
            }

            fn write(
                &self,
                family: &NamedFamily,
                writes: &[Write<'_>],
                options: &WriteOptions,
            ) -> Result<Written> {
                let mut batch = <$batch>::default();
                let handle = family.require(self.cf_handle(&family.name))?;
                for write in writes {
                    match (write, &handle) {
                        (Write::Put { key, value }, Some(family)) => batch.put_cf(family, key, value),
                        (Write::Put { key, value }, None) => batch.put(key, value),
                        (Write::Delete { key }, Some(family)) => batch.delete_cf(family, key),
                        (Write::Delete { key }, None) => batch.delete(key),
                    }
                }
                match self.write_opt(&batch, options) {
                    Ok(()) => Ok(Written::Done),
                    // The error for a stall with `no_slowdown`.
                    Err(error) if error.kind() == rust_rocksdb::ErrorKind::Incomplete => {
                        Ok(Written::Stalled)
                    }
                    // The error of a database that was opened read-only.
                    Err(error) if error.kind() == rust_rocksdb::ErrorKind::NotSupported => {
                        Ok(Written::ReadOnly)
                    }
                    Err(error) => Err(refused("write", &error)),
                }
            }
        }

        impl Pin for PinOf<'_, $db> {
            fn sequence(&self) -> Option<u64> {
                self.snapshot.sequence_number()
            }

            fn hold(&mut self, family: &str) -> bool {
                let mut options = ReadOptions::default();
                options.set_read_tier(ReadTier::Memtable);
                // Dropping the last reference to a memtable or a file does not wait for its memory or for the file system.
                options.set_background_purge_on_iterator_cleanup(true);
                let iterator = match self.db.cf_handle(family) {
                    Some(family) => self.db.raw_iterator_cf_opt(&family, options),
                    None if family == DEFAULT => self.db.raw_iterator_opt(options),
                    None => return false,
                };
                self.held.insert(family.to_owned(), iterator);
                true
            }

            fn read(
                &self,
                family: &NamedFamily,
                what: &IteratorRead<'_>,
                row: RowFn<'_>,
            ) -> Result<()> {
                let mut options = ReadOptions::default();
                options.set_snapshot(&self.snapshot);
                options.set_total_order_seek(true);
                options.fill_cache(false);
                if let Some(begin) = &what.range.begin {
                    options.set_iterate_lower_bound(begin.clone());
                }
                if let Some(end) = &what.range.end {
                    options.set_iterate_upper_bound(end.clone());
                }
                let iterator = match family.require(self.db.cf_handle(&family.name))? {
                    Some(handle) => self.db.raw_iterator_cf_opt(&handle, options),
                    None => self.db.raw_iterator_opt(options),
                };
                read(iterator, what, row)
            }
        }
    )+ };
}

handle!(
    DBWithThreadMode<SingleThreaded>, WriteBatch;
    DBWithThreadMode<MultiThreaded>, WriteBatch;
    OptimisticTransactionDB<SingleThreaded>, WriteBatchWithTransaction<true>;
    OptimisticTransactionDB<MultiThreaded>, WriteBatchWithTransaction<true>;
);

fn dropped(family: &str) -> Error {
    let reason = format!("column family {family:?} was dropped");
    Error::declined(DeclineReason::Manifest, reason)
}

/// The error of a get or a write.
fn refused(doing: &str, error: &rust_rocksdb::Error) -> Error {
    match error.kind() {
        rust_rocksdb::ErrorKind::Corruption => Error::new(
            ErrorKind::Corruption,
            format!("RocksDB cannot {doing}: {error}"),
        ),
        _ => failed(doing, error),
    }
}

fn read<D: DBAccess>(
    mut iterator: DBRawIteratorWithThreadMode<'_, D>,
    what: &IteratorRead<'_>,
    row: RowFn<'_>,
) -> Result<()> {
    /// Rows between two checks of the token.
    const ROWS: usize = 1024;
    iterator.seek_to_first();
    for number in 0.. {
        if number % ROWS == 0 {
            what.cancel.check()?;
        }
        let Some((key, value)) = iterator.item() else {
            break;
        };
        row(key, value)?;
        iterator.next();
    }
    iterator.status().map_err(|e| failed("read rows", &e))
}
