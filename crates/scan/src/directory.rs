//! A directory, read-only. Another process may have the database open and write to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, Lock, Result};
use rockmill_format::manifest::{ColumnFamily, Tree};
use rockmill_format::names;
use rockmill_snapshot::tree::{Position, TreeFollower};
use rockmill_snapshot::unflushed::Logs;
use rockmill_snapshot::{LogFolder, LogSource};
use rockmill_storage::{LocalStorage, Storage};

use crate::Database;
use crate::checkpoint::{AtCheckpoint, Checkpoint};
use crate::engine::ScanEngine;
use crate::iterators::Iterators;
use crate::logged::read_logs;
use crate::opened::{ATTEMPTS, OpenFiles, OpenTables, Opened, Opener};
use crate::options::ReadOptions;
use crate::snapshot::{Family, Snapshot};
use crate::version::Version;
use rockmill_core::{MergeOperators, StatedOperator};

/// Number of the default column family.
const DEFAULT_ID: u32 = 0;

/// Maximum attempts to take a snapshot while the MANIFEST changes. A busy writer flushes many times a second.
const CHANGES: usize = 50;

/// A directory with a database that this process does not write to.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    storage: Arc<dyn Storage>,
    /// Folder of the logs, if the caller has stated it.
    log_folder: Option<PathBuf>,
    /// Whether snapshots are possible while the folder of the logs is missing.
    may_lack_logs: bool,
    iterators: Option<Arc<dyn Iterators>>,
    merge_operators: Lock<MergeOperators>,
}

impl Directory {
    /// A directory with a database.
    ///
    /// # Errors
    /// Storage if there is no such directory; Declined if it holds no database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(Arc::new(LocalStorage), path.as_ref())
    }

    /// A directory with a database in the file system of an engine.
    ///
    /// # Errors
    /// Those of [`Directory::open`].
    pub fn open_for(engine: &ScanEngine, path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(Arc::clone(&engine.storage), path.as_ref())
    }

    fn open_in(storage: Arc<dyn Storage>, path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let names = storage.list(path);
        let names = names.map_err(|e| Error::storage(&name, "list the directory", &e))?;
        if !names.iter().any(|name| name == "CURRENT") {
            let what = "the directory holds no RocksDB database: there is no file CURRENT";
            return Err(Error::declined(DeclineReason::Manifest, what).in_file(&name));
        }
        Ok(Self {
            path: path.to_owned(),
            storage,
            log_folder: None,
            may_lack_logs: false,
            iterators: None,
            merge_operators: Lock::default(),
        })
    }

    /// The same directory, whose write-ahead logs are in this folder. Without it, [`LogFolder::find`] decides.
    #[must_use]
    pub fn with_log_folder(self, path: impl Into<PathBuf>) -> Self {
        Self {
            log_folder: Some(path.into()),
            ..self
        }
    }

    /// The same directory. While the folder of its logs is missing, snapshots have only what is flushed. Without this
    /// call they are an error then.
    #[must_use]
    pub fn may_lack_logs(self) -> Self {
        Self {
            may_lack_logs: true,
            ..self
        }
    }

    /// The same directory. These iterators read rows that tables alone do not determine.
    #[must_use]
    pub fn with_iterators(self, iterators: Arc<dyn Iterators>) -> Self {
        Self {
            iterators: Some(iterators),
            ..self
        }
    }

    /// The folder from which snapshots read the write-ahead logs, as the directory is now.
    ///
    /// # Errors
    /// Storage or Declined if MANIFEST, OPTIONS or the folder cannot be read.
    pub fn log_folder(&self) -> Result<LogFolder> {
        /// A log that the MANIFEST named may have gone before its folder was listed, again and again beside a busy writer.
        const LOOKS: usize = 20;
        let look = || {
            let tree = self.tree(&*self.storage)?;
            let options = ReadOptions::read(&*self.storage, &self.path)?;
            let found = self.find_logs(&*self.storage, &options, &tree)?;
            let is_missing = matches!(found.source, LogSource::Missing { .. });
            Ok((is_missing && self.tree(&*self.storage)? != tree, found))
        };
        let (mut may_have_gone, mut found) = look()?;
        for _ in 1..LOOKS {
            if !may_have_gone {
                break;
            }
            (may_have_gone, found) = look()?;
        }
        Ok(found)
    }

    fn find_logs(
        &self,
        storage: &dyn Storage,
        options: &ReadOptions,
        tree: &Tree,
    ) -> Result<LogFolder> {
        let (wal_dir, stated) = (options.wal_dir.as_deref(), self.log_folder.as_deref());
        LogFolder::find(storage, &self.path, wal_dir, tree, stated)
    }

    /// The same directory, where RocksDB's iterators merge operands with these operators. Without one, rows with
    /// operands are an error: OPTIONS only name the operator, and an application may use any name for its own.
    #[must_use]
    pub fn with_merge_operators(self, operators: MergeOperators) -> Self {
        Self {
            merge_operators: Lock::new(operators),
            ..self
        }
    }

    fn tree(&self, storage: &dyn Storage) -> Result<Tree> {
        let mut follower = TreeFollower::default();
        follower.refresh(storage, &self.path, (0, 0), &CancelToken::new())?;
        Ok(follower.tree().clone())
    }

    /// A snapshot of one column family as another snapshot of this directory had it, perhaps in another process.
    ///
    /// # Errors
    /// Declined if the column family, these files or these logs do not exist any more, or if there is no memory for
    /// unflushed entries; as those of [`Database::snapshot`].
    pub fn at(&self, engine: &Arc<ScanEngine>, version: &Version) -> Result<Arc<Snapshot>> {
        self.attempt(engine, &Selection::Version(version))
    }

    fn attempt(&self, engine: &Arc<ScanEngine>, selected: &Selection<'_>) -> Result<Arc<Snapshot>> {
        /// Time in which an edit of the MANIFEST is installed, and a compaction's files are deleted.
        const PAUSE: Duration = Duration::from_millis(5);
        let mut failures = 0;
        let (mut follower, mut tables) = (TreeFollower::default(), OpenTables::default());
        for attempt in 0..CHANGES {
            let pause = PAUSE * attempt.min(ATTEMPTS) as u32;
            engine.storage.clock().pause(pause);
            let taken = self.try_snapshot(engine, selected, &mut follower, &mut tables);
            // A file may have vanished, or be another one.
            let has_failed = match &taken {
                Ok(Some(snapshot)) if snapshot.lacks_files() => true,
                Ok(Some(snapshot)) if selected.lacks_tables(snapshot) => {
                    tables = OpenTables::default();
                    true
                }
                Ok(_) => false,
                Err(error) => error.kind == ErrorKind::Storage || is_of_log(error),
            };
            if has_failed && failures + 1 < ATTEMPTS {
                failures += 1;
                // Another database may have come to this folder.
                follower = TreeFollower::default();
                continue;
            }
            if let Some(snapshot) = taken? {
                return Ok(Arc::new(snapshot));
            }
        }
        let what = format!(
            "another process changes the database while its files are opened; {CHANGES} attempts have failed, so try again"
        );
        let error = Error::declined(DeclineReason::InputMissing, what);
        Err(error.in_file(&self.path.display().to_string()))
    }

    /// Takes a snapshot; nothing if the database has changed while its files were opened.
    ///
    /// All files are opened between two looks at the MANIFEST, and read behind the second one: the database may change then,
    /// but not what is in an open file. Only logs that RocksDB may write over need a third look.
    fn try_snapshot(
        &self,
        engine: &Arc<ScanEngine>,
        selected: &Selection<'_>,
        follower: &mut TreeFollower,
        tables: &mut OpenTables,
    ) -> Result<Option<Snapshot>> {
        let cancel = CancelToken::new();
        let storage = &*engine.storage;
        follower.refresh(storage, &self.path, (0, 0), &cancel)?;
        let at = At {
            tree: Arc::new(follower.tree().clone()),
            position: follower.position(),
        };
        let opened = self.open_at(engine, selected, &at, tables, &cancel);
        if !self.is_still(storage, selected, &at, follower, &cancel)? {
            return Ok(None);
        }
        engine.database_has(&self.path, &at.tree);
        let read = opened.and_then(|opened| self.read_at(engine, selected, &at, opened, &cancel));
        // Another process may have reused a log, which explains any error.
        let is_certain = matches!(read, Ok((_, false)));
        match is_certain || self.is_still(storage, selected, &at, follower, &cancel)? {
            true => read.map(|(snapshot, _)| Some(snapshot)),
            false => Ok(None),
        }
    }

    /// Whether it is the same database, and its MANIFEST still has the selected column families as they were at a
    /// position. If not, another process may have deleted or reused files, which explains any error.
    fn is_still(
        &self,
        storage: &dyn Storage,
        selected: &Selection<'_>,
        at: &At,
        follower: &mut TreeFollower,
        cancel: &CancelToken,
    ) -> Result<bool> {
        follower.refresh(storage, &self.path, (0, 0), cancel)?;
        if follower.position().database != at.position.database {
            return Ok(false);
        }
        let now = &follower.tree().column_families;
        let then = &at.tree.column_families;
        Ok(match selected {
            Selection::Version(version) => {
                let mut families = then.iter();
                families
                    .find(|(_, family)| version.is_of(&family.name))
                    .is_none_or(|(id, family)| now.get(id) == Some(family))
            }
            Selection::All | Selection::Families(_) => now == then,
        })
    }

    /// Opens the files that the MANIFEST names up to a position.
    fn open_at(
        &self,
        engine: &Arc<ScanEngine>,
        selected: &Selection<'_>,
        at: &At,
        tables: &mut OpenTables,
        cancel: &CancelToken,
    ) -> Result<Opened> {
        let storage = &*engine.storage;
        let mut options = ReadOptions::read(storage, &self.path)?;
        let logs = self.find_logs(storage, &options, &at.tree)?;
        let has_unflushed = selected.version().is_none_or(Version::has_unflushed);
        options.log_folder = match has_unflushed && !self.may_lack_logs {
            true => logs.required()?,
            false => logs.path,
        };
        let folder = engine.folder(&self.path, options.io);
        Ok(Opened {
            files: self.open_files(storage, selected, at, &options, tables.opener(&folder))?,
            logs: Logs::open(storage, &options.log_folder, &at.tree, cancel),
            options,
        })
    }

    /// Reads what is open. Returns the snapshot, and whether the logs may have become others.
    fn read_at(
        &self,
        engine: &Arc<ScanEngine>,
        selected: &Selection<'_>,
        at: &At,
        opened: Opened,
        cancel: &CancelToken,
    ) -> Result<(Snapshot, bool)> {
        let Opened {
            mut files,
            logs,
            options,
        } = opened;
        let version = selected.version();
        let logged = read_logs(engine, version, &at.tree, logs, &mut files, cancel)?;
        let sequence = sequence_of(&at.tree, version, logged.last_sequence)?;
        let OpenFiles {
            mut families,
            has_other_files,
            checkpoint,
        } = files;
        if let (Some(iterators), Some(checkpoint)) = (&self.iterators, checkpoint) {
            // RocksDB would find other entries.
            let is_newer = checkpoint.sequence() != sequence
                || has_other_files
                || version.is_some_and(|version| logged.last_sequence > version.logged);
            let checkpoint = match (logged.unreadable, version) {
                (Some(error), _) => Err(error),
                (None, Some(version)) if is_newer => Err(version.gone()),
                (None, _) => {
                    let mut stated = self.merge_operators.lock().clone();
                    if let Some(version) = version
                        && let Some(operator) = version.merge_operator.clone()
                    {
                        let family = Some(version.family.clone());
                        stated.add(&StatedOperator { family, operator })?;
                    }
                    Ok(Arc::new(checkpoint.merged_with(stated, &options)))
                }
            };
            let iterators = Arc::new(AtCheckpoint {
                iterators: Arc::clone(iterators),
                checkpoint,
            });
            for family in families.values_mut() {
                family.iterators = Some(Arc::clone(&iterators) as _);
            }
        }
        let named = families.into_iter().map(|(id, family)| {
            let name = name_of(&at.tree.column_families[&id]);
            (name, family)
        });
        let named = named.collect();
        let snapshot = Snapshot::new(engine, &self.path, &options, sequence, named);
        Ok((snapshot.with_prepared(logged.prepared), logged.may_change))
    }

    fn open_files(
        &self,
        storage: &dyn Storage,
        selected: &Selection<'_>,
        at: &At,
        options: &ReadOptions,
        mut opener: Opener<'_>,
    ) -> Result<OpenFiles> {
        const ELSEWHERE: &str = "it is only in a directory of db_paths, which OPTIONS do not name";
        let version = selected.version();
        let position = || at.position.clone();
        let has_other_paths = at.tree.has_other_paths();
        let mut checkpoint = match self.iterators {
            Some(_) => {
                let is_opened =
                    |id, family: &ColumnFamily| id == DEFAULT_ID || selected.has(family);
                let folder = opener.folder;
                let opened = Checkpoint::open(storage, folder, &at.tree, position(), is_opened);
                Some(opened?)
            }
            None => None,
        };
        let mut has_other_files = false;
        let mut families = BTreeMap::new();
        for (id, tree) in &at.tree.column_families {
            let mut family = Family::new(*id, tree, position(), options);
            let is_read = selected.has(tree);
            if is_read && let Some(version) = version {
                has_other_files = !version.choose(&mut family)?;
            }
            // RocksDB opens the default column family together with any other.
            let is_opened = checkpoint.is_some() && (is_read || *id == DEFAULT_ID);
            if is_opened || is_read && family.unread.is_none() {
                let held = opener
                    .open(&mut family)
                    .map_err(|error| match has_other_paths {
                        true => Error {
                            kind: ErrorKind::Declined(DeclineReason::DbPaths),
                            what: ELSEWHERE.to_owned(),
                            ..error
                        },
                        false => error,
                    });
                match version {
                    Some(_) => held?,
                    // The other column families are read all the same.
                    None => family.failed = held.err(),
                }
            }
            if let Some(checkpoint) = &mut checkpoint {
                let files = family.files_mut().iter();
                let held = files.filter_map(|file| Some((file.meta.number, file.held.as_ref()?)));
                held.for_each(|(number, held)| checkpoint.add_table(number, held));
            }
            family.is_closed = !is_read;
            if is_read || version.is_none() {
                families.insert(*id, family);
            }
        }
        match version.filter(|_| families.is_empty()) {
            Some(version) => Err(version.gone()),
            None => Ok(OpenFiles {
                families,
                has_other_files,
                checkpoint,
            }),
        }
    }
}

/// The column families to open.
enum Selection<'a> {
    All,
    /// Column families of these names.
    Families(BTreeSet<Vec<u8>>),
    Version(&'a Version),
}

impl<'a> Selection<'a> {
    fn version(&self) -> Option<&'a Version> {
        match self {
            Selection::Version(version) => Some(version),
            Selection::All | Selection::Families(_) => None,
        }
    }

    /// Opens the tables of the column families that are named, since the caller is going to read them. Returns whether one
    /// of them cannot be opened or is another file.
    fn lacks_tables(&self, snapshot: &Snapshot) -> bool {
        let lacks = |name: &str| {
            let family = snapshot.family(name);
            family.is_err_and(|error| error.kind == ErrorKind::Storage)
        };
        match self {
            Selection::All => false,
            Selection::Families(names) => names.iter().any(|name| lacks(&names::escape(name))),
            Selection::Version(version) => lacks(&version.family),
        }
    }

    fn has(&self, family: &ColumnFamily) -> bool {
        match self {
            Selection::All => true,
            Selection::Families(names) => names.contains(&family.name),
            Selection::Version(version) => version.is_of(&family.name),
        }
    }
}

/// A position in the MANIFEST, and the trees up to it.
struct At {
    tree: Arc<Tree>,
    position: Position,
}

impl Database for Directory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn families(&self) -> Result<Vec<String>> {
        let tree = self.tree(&*self.storage)?;
        Ok(tree.column_families.values().map(name_of).collect())
    }

    fn snapshot(&self, engine: &Arc<ScanEngine>) -> Result<Arc<Snapshot>> {
        self.attempt(engine, &Selection::All)
    }

    fn snapshot_of(&self, engine: &Arc<ScanEngine>, families: &[&str]) -> Result<Arc<Snapshot>> {
        let names = families.iter().map(|name| names::unescape(name));
        self.attempt(engine, &Selection::Families(names.collect()))
    }

    fn state_merge_operator(&self, stated: &StatedOperator) -> Result<()> {
        let mut operators = self.merge_operators.lock();
        let mut more = operators.clone();
        more.add(stated)?;
        *operators = more;
        Ok(())
    }
}

/// Whether a log seems damaged. It does if another process writes over it while it is read.
fn is_of_log(error: &Error) -> bool {
    let is_log = |name: &str| name.ends_with(".log");
    error.kind == ErrorKind::Corruption && error.file.as_deref().is_some_and(is_log)
}

fn name_of(family: &ColumnFamily) -> String {
    names::escape(&family.name)
}

/// The sequence number of a snapshot. `logged` is the last sequence number of its logs, or 0.
fn sequence_of(tree: &Tree, version: Option<&Version>, logged: u64) -> Result<u64> {
    let has_unflushed = version.is_none_or(Version::has_unflushed);
    let last = match has_unflushed {
        true => tree.last_sequence.max(logged),
        false => tree.last_sequence,
    };
    let files = tree.column_families.values();
    let files = files.flat_map(|family| family.levels.values().flat_map(BTreeMap::values));
    let sequence = files.map(|file| file.largest_seqno).fold(last, u64::max);
    match version {
        // The logs have fewer entries than another process has in its memory.
        Some(version) if has_unflushed && sequence < version.sequence => Err(version.gone()),
        Some(version) => Ok(version.sequence),
        None => Ok(sequence),
    }
}
