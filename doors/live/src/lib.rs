//! Databases that this process has open and writes to.
//!
//! A snapshot has a snapshot of RocksDB and, for each column family, an iterator over the memtables that is never moved. It
//! keeps RocksDB's super version, that is these files and memtables, through flushes, compactions and ingestions.
//! Nothing is written for a snapshot, so nothing is left after a crash.

#![forbid(unsafe_code)]

mod handle;
mod log;
mod secondary;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{CancelToken, Error, ErrorKind, Lock, Result};
use rockmill_format::manifest::ColumnFamily;
use rockmill_scan::source::{Family, ReadOptions};
use rockmill_scan::{
    Database, IteratorRead, Iterators, RowFn, ScanEngine, Snapshot, Store, ValueFn, Write, Written,
};
use rockmill_snapshot::tree::TreeFollower;
use rockmill_storage::clock::Clock;
use rust_rocksdb::WriteOptions;
use self_cell::self_cell;

pub use handle::Handle;
use handle::{BoxedPin, NamedFamily};
use log::{Counted, LogEntries};
pub use secondary::SecondaryStore;

/// Maximum attempts to read a super version that changes meanwhile. After that, iterators do the scan.
const PIN_ATTEMPTS: usize = 100;

/// Maximum attempts to take a snapshot while writes come between, first without and then after a flush.
const ATTEMPTS: usize = 3;

/// Reason why all of a column family is read through iterators although its files are known.
const NOT_IN_LOG: &str = "its unflushed entries are not all in the log";

/// A database that is open.
pub struct LiveDatabase<D: Handle> {
    db: Arc<D>,
    path: PathBuf,
    flush_every: Option<Duration>,
    write_options: Arc<WriteOptions>,
    state: Lock<State>,
    flushes: Lock<Flushes>,
}

/// The flushes so far. A caller that needs a flush waits for one that has begun.
#[derive(Debug, Default)]
struct Flushes {
    number: u64,
    /// Time at which the last one ended, by the engine's clock.
    last: Option<Duration>,
}

/// State that is kept from snapshot to snapshot.
#[derive(Debug, Default)]
struct State {
    follower: TreeFollower,
    log: LogEntries,
    listed: BTreeMap<u32, Listed>,
}

/// The files of a column family that RocksDB listed, by the super version's number at that time.
///
/// A flush or a compaction is in the list of files and in the MANIFEST before RocksDB installs the super version that
/// holds its files (`version_set.cc:LogAndApply`, `column_family.cc:InstallSuperVersion`). So files that were listed
/// while the super version had a number may be missing in it. They are in it if they were listed under a smaller
/// number. They are also in it if the column family had only one version while its super version had this number.
#[derive(Debug, Default)]
struct Listed {
    number: u64,
    files: BTreeSet<u64>,
    /// Those that the super version of this number holds for certain.
    held: BTreeSet<u64>,
}

impl Listed {
    /// Records a list. Returns the files that the super version may not hold.
    fn add(&mut self, number: u64, files: BTreeSet<u64>, is_only_version: bool) -> BTreeSet<u64> {
        if self.number != number {
            self.number = number;
            self.held.clone_from(&self.files);
        }
        if is_only_version {
            self.held.clone_from(&files);
        }
        self.held.retain(|file| files.contains(file));
        self.files = files;
        self.files.difference(&self.held).copied().collect()
    }
}

impl<D: Handle> fmt::Debug for LiveDatabase<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveDatabase")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl<D: Handle> LiveDatabase<D> {
    /// The database behind a handle.
    pub fn new(db: Arc<D>) -> Self {
        let mut write_options = WriteOptions::default();
        write_options.set_no_slowdown(true);
        Self {
            path: db.path().to_owned(),
            db,
            flush_every: Some(Duration::from_secs(1)),
            write_options: Arc::new(write_options),
            state: Lock::default(),
            flushes: Lock::default(),
        }
    }

    /// Minimum time between two flushes by snapshots; `None` for no flushes. The default is one second.
    ///
    /// A snapshot needs a flush if some unflushed entries are not in the log: it was switched off for some writes, files
    /// were ingested since, or transactions were prepared. Between two flushes, RocksDB's iterators read these column
    /// families. So each snapshot is complete, and frequent snapshots do not make many small files.
    #[must_use]
    pub fn flush_every(self, least: Option<Duration>) -> Self {
        Self {
            flush_every: least,
            ..self
        }
    }

    /// Options of writes by [`Database::store`]. The default is RocksDB's, but without waiting if it stalls writes.
    #[must_use]
    pub fn write_options(self, options: WriteOptions) -> Self {
        Self {
            write_options: Arc::new(options),
            ..self
        }
    }

    /// Takes a snapshot. Also returns the column families whose unflushed entries may be incomplete in it.
    ///
    /// Let S be the sequence number of RocksDB's snapshot, T a column family's files and L its log number. Its rows are those of T
    /// and of all its entries up to S in logs from L on. The steps, and why each is right:
    ///
    /// 1. The entries of all memtables are counted. A count may be too large, but is too small only with `unordered_write`,
    ///    so iterators read the column families then.
    /// 2. RocksDB's snapshot is taken when no file has later entries. Flushes and compactions that begin later keep what a
    ///    reader at S finds. Earlier ones have merged no entry later than S: [`Self::stable_snapshot`].
    /// 3. T and L are read from the MANIFEST, where one edit changes both, and the files T are held: [`Self::pin`].
    /// 4. The logs are listed. The MANIFEST that is read behind the list must still name L. Otherwise a log may have
    ///    been deleted since step 3, and earlier knowledge of older logs is void: [`LogEntries`].
    /// 5. The logs are read. A log that is deleted meanwhile, and entries that are in no log, leave a gap in the sequence
    ///    numbers.
    ///
    /// The entries are complete if those up to an earlier number were and there is no gap after it, or if their number
    /// equals the count. Any other column family is in the second part of the result, and iterators read it.
    fn try_snapshot(&self, engine: &Arc<ScanEngine>) -> Result<(Snapshot, BTreeSet<String>)> {
        let cancel = CancelToken::new();
        let mut state = self.state.lock();
        let counted = self.count_entries()?;
        let (mut pinned, sequence) = self.stable_snapshot(engine, &mut state.follower)?;
        let options = ReadOptions::read(engine.storage(), &self.path)?;
        let mut families = self.pin(engine, &options, &mut state, &mut pinned)?;
        let selected = families.iter();
        let selected = selected.filter(|(_, at)| at.family.unread.is_none());
        let selected = selected.map(|(name, at)| {
            let (name, log_number) = (name.clone(), at.log_number);
            (at.id, log::SelectedFamily { name, log_number })
        });
        let read = log::Read {
            families: selected.collect(),
            counted,
            sequence,
        };
        let State { follower, log, .. } = &mut *state;
        engine.database_has(&self.path, follower.tree());
        let incomplete = log.go_on(&*self.db, follower, &read, engine, &cancel)?;
        let pinned = Arc::new(pinned);
        for (name, FamilyAt { id, family, .. }) in &mut families {
            family.unflushed = log.tables(*id);
            family.iterators = Some(Arc::new(PinnedFamily {
                pinned: Arc::clone(&pinned),
                family: NamedFamily {
                    name: name.clone(),
                    id: Some(*id),
                },
            }));
            if let Some(reason) = incomplete.get(id) {
                family.unread.get_or_insert_with(|| reason.clone());
            }
        }
        let families = families.into_iter().map(|(name, at)| (name, at.family));
        let snapshot = Snapshot::new(engine, &self.path, &options, sequence, families.collect());
        let names = incomplete.keys().map(|id| read.families[id].name.clone());
        Ok((snapshot, names.collect()))
    }

    /// Takes a snapshot of RocksDB. Also returns its sequence number.
    ///
    /// RocksDB installs an ingested file before it publishes the file's sequence number
    /// (`db_impl.cc:IngestExternalFiles`). A compaction that begins between both may merge that file with older ones,
    /// and keeps no older entry for a snapshot that is taken then. So another snapshot is taken if a file has entries
    /// that are later than the first one. If each attempt finds such a file, the last snapshot is used.
    fn stable_snapshot(
        &self,
        engine: &ScanEngine,
        follower: &mut TreeFollower,
    ) -> Result<(Pinned, u64)> {
        for attempt in 0.. {
            let pinned = Pinned::new(Arc::clone(&self.db) as Arc<dyn Handle>, |db| db.pin());
            let sequence = pinned.with_dependent(|_, pin| pin.sequence());
            let sequence =
                sequence.ok_or_else(|| Error::internal("a snapshot without a number"))?;
            follower.refresh(engine.storage(), &self.path, (0, 0), &CancelToken::new())?;
            let families = follower.tree().column_families.values();
            let mut files = families.flat_map(|f| f.levels.values().flat_map(BTreeMap::values));
            if files.all(|file| file.largest_seqno <= sequence) || attempt == PIN_ATTEMPTS {
                return Ok((pinned, sequence));
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Counts the entries of all memtables, several times between two writes if possible.
    fn count_entries(&self) -> Result<Vec<Counted>> {
        const ACTIVE: &str = "rocksdb.num-entries-active-mem-table";
        const IMMUTABLE: &str = "rocksdb.num-entries-imm-mem-tables";
        const ATTEMPTS: usize = 100;
        const COUNTS: usize = 4;
        let names = self.db.names();
        let mut counts = Vec::new();
        for _ in 0..ATTEMPTS {
            let mut counted = Counted {
                at: self.db.latest_sequence(),
                entries: BTreeMap::new(),
            };
            for name in &names {
                let active = self.db.property(name, ACTIVE)?;
                let immutable = self.db.property(name, IMMUTABLE)?;
                if let (Some(active), Some(immutable)) = (active, immutable) {
                    counted.entries.insert(name.clone(), active + immutable);
                }
            }
            if self.db.latest_sequence() == counted.at {
                counts.push(counted);
            }
            if counts.len() == COUNTS {
                break;
            }
        }
        Ok(counts)
    }

    /// Holds the files of all column families as the MANIFEST names them.
    ///
    /// A column family's files are those of its super version if its number is the same before and after three steps:
    /// its super version is held, RocksDB lists its files, and the MANIFEST, which is at least as new as the list,
    /// names the same ones. Files that its super version may still lack ([`Listed`]) are opened, and stay open. If one
    /// of them was deleted, the column family is read again, as if the number had changed.
    fn pin(
        &self,
        engine: &ScanEngine,
        options: &ReadOptions,
        state: &mut State,
        pinned: &mut Pinned,
    ) -> Result<BTreeMap<String, FamilyAt>> {
        const NUMBER: &str = "rocksdb.current-super-version-number";
        const VERSIONS: &str = "rocksdb.num-live-versions";
        let State {
            follower, listed, ..
        } = state;
        let mut missing = self.db.names();
        let mut families = BTreeMap::new();
        for attempt in 0..PIN_ATTEMPTS {
            // The follower may read an edit before RocksDB has synced and installed it.
            let pause = Duration::from_millis(attempt.min(10) as u64);
            engine.storage().clock().pause(pause);
            let mut numbers = BTreeMap::new();
            for name in &missing {
                numbers.insert(name.clone(), self.db.property(name, NUMBER)?);
                pinned.with_dependent_mut(|_, pin| pin.hold(name));
            }
            let files = self.db.files()?;
            follower.refresh(engine.storage(), &self.path, (0, 0), &CancelToken::new())?;
            for (name, number) in numbers {
                // Read between the two reads of the number, so that the single version is the super version's.
                let versions = self.db.property(&name, VERSIONS)?;
                let is_same = number == self.db.property(&name, NUMBER)?;
                let tree = follower.tree().by_name(name.as_bytes());
                let (Some(number), Some((id, tree))) = (number.filter(|_| is_same), tree) else {
                    continue;
                };
                let of_manifest = files_of(tree);
                if of_manifest != files.get(&name).cloned().unwrap_or_default() {
                    continue;
                }
                let mut at = FamilyAt::new(id, tree, follower, options);
                let listed = listed.entry(id).or_default();
                let unheld = listed.add(number, of_manifest, versions == Some(1));
                if (at.family).hold_files(engine, &self.path, options, &unheld) {
                    missing.remove(&name);
                    families.insert(name, at);
                }
            }
            if missing.is_empty() {
                break;
            }
        }
        listed.retain(|id, _| follower.tree().column_families.contains_key(id));
        for name in missing {
            // It may have been dropped meanwhile.
            if let Some((id, tree)) = follower.tree().by_name(name.as_bytes()) {
                let mut at = FamilyAt::new(id, tree, follower, options);
                let reason = "its files change constantly";
                at.family.unread.get_or_insert_with(|| reason.to_owned());
                families.insert(name, at);
            }
        }
        Ok(families)
    }

    /// Flushes the column families, unless another snapshot has done so since there were `before` flushes.
    fn flush(&self, families: &BTreeSet<String>, before: u64, clock: &dyn Clock) -> Result<()> {
        let mut flushes = self.flushes.lock();
        if flushes.number == before {
            for family in families {
                self.db.flush(family)?;
            }
            flushes.number += 1;
            flushes.last = Some(clock.now());
        }
        Ok(())
    }

    /// The number of flushes so far, and whether another one is allowed now.
    fn flushes(&self, clock: &dyn Clock) -> (u64, bool) {
        let flushes = self.flushes.lock();
        let may_flush = self.flush_every.is_some_and(|least| {
            let since = flushes.last.map(|last| clock.now().saturating_sub(last));
            since.is_none_or(|since| since >= least)
        });
        (flushes.number, may_flush)
    }
}

/// A column family as the MANIFEST describes it.
#[derive(Debug)]
struct FamilyAt {
    id: u32,
    /// Unflushed entries are in logs from this number on.
    log_number: u64,
    family: Family,
}

impl FamilyAt {
    fn new(id: u32, tree: &ColumnFamily, follower: &TreeFollower, options: &ReadOptions) -> Self {
        let mut family = Family::new(id, tree, follower.position(), options);
        if options.is_unordered {
            let reason = "unordered_write: memtables may lack entries that have sequence numbers";
            family.unread.get_or_insert_with(|| reason.to_owned());
        }
        // RocksDB takes 1 for the first sequence number of a log that was empty when it was listed first, so that its search
        // for logs goes wrong (`wal_manager.cc:ReadFirstLine`, `RetainProbableWalFiles`).
        if options.is_log_compressed {
            let reason =
                "wal_compression: RocksDB does not always find all entries of compressed logs";
            family.unread.get_or_insert_with(|| reason.to_owned());
        }
        Self {
            id,
            log_number: tree.log_number,
            family,
        }
    }
}

/// Numbers of a column family's files, as the MANIFEST names them.
fn files_of(tree: &ColumnFamily) -> BTreeSet<u64> {
    let levels = tree.levels.values().flat_map(BTreeMap::keys);
    levels.copied().collect()
}

impl<D: Handle> Database for LiveDatabase<D> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn families(&self) -> Result<Vec<String>> {
        Ok(self.db.names().into_iter().collect())
    }

    fn snapshot(&self, engine: &Arc<ScanEngine>) -> Result<Arc<Snapshot>> {
        let clock = engine.storage().clock();
        let mut has_flushed = false;
        let mut attempts = 0;
        loop {
            let (flushes, may_flush) = self.flushes(&*clock);
            let (snapshot, incomplete) = self.try_snapshot(engine)?;
            attempts += 1;
            if incomplete.is_empty() {
                return Ok(Arc::new(snapshot));
            }
            if attempts < ATTEMPTS {
                continue;
            }
            if has_flushed || !may_flush {
                return Ok(Arc::new(snapshot));
            }
            drop(snapshot);
            self.flush(&incomplete, flushes, &*clock)?;
            has_flushed = true;
            attempts = 0;
        }
    }

    fn store(&self, family: &str) -> Option<Arc<dyn Store>> {
        Some(Arc::new(LiveStore {
            db: Arc::clone(&self.db),
            family: self.db.family(family),
            options: Arc::clone(&self.write_options),
        }))
    }
}

/// A column family of a database.
struct LiveStore<D: Handle> {
    db: Arc<D>,
    family: NamedFamily,
    options: Arc<WriteOptions>,
}

impl<D: Handle> fmt::Debug for LiveStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveStore")
            .field("path", &self.db.path())
            .field("family", &self.family.name)
            .finish_non_exhaustive()
    }
}

impl<D: Handle> Store for LiveStore<D> {
    fn get(&self, keys: &[&[u8]], value: ValueFn<'_>) {
        self.db.get(&self.family, keys, value);
    }

    fn write(&self, writes: &[Write<'_>]) -> Result<Written> {
        self.db.write(&self.family, writes, &self.options)
    }
}

self_cell! {
    /// A snapshot and the super versions that are held, with the database.
    struct Pinned {
        owner: Arc<dyn Handle>,
        #[covariant]
        dependent: BoxedPin,
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").finish_non_exhaustive()
    }
}

/// A column family at a snapshot.
#[derive(Debug)]
struct PinnedFamily {
    pinned: Arc<Pinned>,
    family: NamedFamily,
}

impl Iterators for PinnedFamily {
    fn read(&self, what: &IteratorRead<'_>, row: RowFn<'_>) -> Result<()> {
        (self.pinned).with_dependent(|_, pin| pin.read(&self.family, what, row))
    }
}

/// The error of RocksDB.
fn failed(doing: &str, error: &rust_rocksdb::Error) -> Error {
    Error::new(
        ErrorKind::Storage,
        format!("RocksDB cannot {doing}: {error}"),
    )
}
