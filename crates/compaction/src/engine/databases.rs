//! State of each database between its jobs, and its folders.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rockmill_core::{CancelToken, DeclineReason, Error, Lock, Result};
use rockmill_format::manifest::Tree;

use super::Engine;
use super::described::DescribedFiles;
use super::failed_filters::FailedFilters;
use crate::outcome::CachedFiles;
use crate::staging::{self, StagingDir, location};
use rockmill_exec::file_caches::database_number;
use rockmill_snapshot::identity;
use rockmill_snapshot::tree::TreeFollower;
use rockmill_storage::{Storage, base_name};

/// State of a database between its jobs.
#[derive(Debug)]
pub(super) struct Database {
    session_id: String,
    /// Whether [`Engine::begin_session`] has succeeded.
    has_begun: Lock<bool>,
    pub(super) tree: Lock<TreeFollower>,
    /// Learned filter bits per key, in thousandths, by column family and OPTIONS file.
    pub(super) filter_millibits: Lock<HashMap<(u32, u64), u32>>,
    pub(super) described: Lock<DescribedFiles>,
    pub(super) failed_filters: Lock<FailedFilters>,
    /// Ids of column families whose attached comparator has another order than bytes.
    pub(super) other_orders: Lock<HashSet<u32>>,
}

/// Time after which RocksDB has renamed a job's files or failed to do so: it begins directly after it has received the
/// result.
const RENAMED: Duration = Duration::from_secs(600);

/// A job whose result RocksDB has received, and whose files it renames without a notice.
#[derive(Debug)]
pub(super) struct HandedOver {
    dir: PathBuf,
    session_id: String,
    /// Like [`Engine::now`].
    since: Duration,
    staging: Weak<StagingDir>,
}

impl Engine {
    /// Declines all further jobs of the database in `dir`. RocksDB could not rename finished files into it. This is a
    /// fatal error of the database, and would recur each time that it is opened.
    pub fn refuse_database(&self, dir: &Path) {
        tracing::error!(
            database = %dir.display(),
            "RocksDB could not rename a finished job's files; are there db_paths on another file system?"
        );
        self.refused.lock().insert(dir.to_owned());
    }

    /// Lets tasks find the cached files of a job that RocksDB has installed, and drops its inputs.
    pub(crate) fn cached_files_taken(&self, dir: &Path, cached: &CachedFiles) {
        let database = database_number(dir);
        for output in &cached.outputs {
            output.installed(database);
        }
        for cache in self.executor.registry().file_caches() {
            for input in &cached.inputs {
                cache.forget(input);
            }
        }
        if let Some(keeper) = &cached.keeper {
            keeper.are_taken.store(true, Ordering::Relaxed);
        }
        (self.known_tables).forget(&cached.session, &cached.input_ids);
    }

    /// Time by the clock of the storage.
    pub(crate) fn now(&self) -> Duration {
        self.storage.clock().now()
    }

    /// Records a job of the database in `dir` whose result RocksDB receives now, if it will not report whether it took
    /// the files.
    pub(crate) fn handed_over(&self, dir: &Path, session_id: &str, staging: &Arc<StagingDir>) {
        self.handed_over.lock().push(HandedOver {
            dir: dir.to_owned(),
            session_id: session_id.to_owned(),
            since: self.now(),
            staging: Arc::downgrade(staging),
        });
    }

    /// Refuses the database in `dir`, which has a job in this session `now`, if RocksDB has left files of an earlier
    /// job. It no longer works on that job if the database was opened again since, or if [`RENAMED`] has passed.
    pub(crate) fn refuse_if_left(&self, dir: &Path, session_id: &str, now: Duration) {
        let mut handed_over = self.handed_over.lock();
        handed_over.retain(|job| job.staging.strong_count() > 0);
        let is_over = |job: &HandedOver| {
            job.session_id != session_id || now.saturating_sub(job.since) >= RENAMED
        };
        let over = handed_over.extract_if(.., |job| job.dir == dir && is_over(job));
        let over: Vec<_> = over.filter_map(|job| job.staging.upgrade()).collect();
        drop(handed_over);
        if over.iter().any(|staging| staging.has_files() == Some(true)) {
            self.refuse_database(dir);
        }
    }

    /// Drops the state of the databases of these sessions, which have ended or are about to end. If one of them has
    /// further jobs, its state is read again.
    pub fn sessions_ended(&self, sessions: &BTreeSet<String>) {
        let is_one =
            |_: &PathBuf, database: &mut Arc<Database>| sessions.contains(&database.session_id);
        let ended: Vec<_> = self.databases.lock().extract_if(is_one).collect();
        self.known_tables.ended(sessions);
        for cache in self.executor.registry().file_caches() {
            for (dir, _) in &ended {
                cache.closed(database_number(dir));
            }
        }
        // Dropping large trees takes time, so it happens without the lock.
        drop(ended);
    }

    /// Syncs the folder `dir` after RocksDB has renamed a job's files into it and before RocksDB writes them to the
    /// MANIFEST. RocksDB's own sync of the folder is meant for files that were created there, and does nothing on btrfs
    /// (`io_posix.cc:PosixDirectory::FsyncWithDirOptions`, `kNewFileSynced`).
    ///
    /// # Errors
    /// Storage.
    pub fn files_taken(&self, dir: &Path) -> Result<()> {
        self.storage
            .sync_dir(dir)
            .map_err(|e| Error::storage(&base_name(dir), "sync the database's folder", &e))
    }

    /// Returns the state of the database in `dir`.
    pub(super) fn database(
        &self,
        dir: &Path,
        session_id: &str,
        cancel: &CancelToken,
    ) -> Result<Arc<Database>> {
        if self.refused.lock().contains(dir) {
            return Err(Error::declined(
                DeclineReason::DbPaths,
                "RocksDB could not rename an earlier job's files into the database",
            ));
        }
        self.known_database(dir, session_id, cancel)
    }

    /// Prepares the first job in a session of the database in `dir`: checks that the database has the job's id `db_id`,
    /// removes leftovers of an earlier process, and checks the staging folder.
    ///
    /// # Errors
    /// Declined if it is another database or the staging folder cannot be used; Storage.
    pub(super) fn begin_session(
        &self,
        database: &Database,
        dir: &Path,
        db_id: &[u8],
        tree: &Tree,
    ) -> Result<()> {
        // Other databases' jobs do not wait for this lock.
        let mut has_begun = database.has_begun.lock();
        if !*has_begun {
            require_id(&*self.storage, dir, db_id, tree)?;
            self.prepare_staging(dir)?;
            *has_begun = true;
        }
        Ok(())
    }

    fn prepare_staging(&self, dir: &Path) -> Result<()> {
        let folder = self.staging_folder(dir)?;
        staging::clean(&*self.storage, &folder)?;
        if self.settings.staging_dir.is_some() {
            // Left by a process without this setting.
            let unused = location::folder(&*self.storage, dir, None)?;
            if let Err(error) = staging::clean(&*self.storage, &unused) {
                tracing::warn!(%error, "cannot remove leftovers");
            }
        }
        location::check(&self.storage, &folder, dir)
    }

    fn known_database(
        &self,
        dir: &Path,
        session_id: &str,
        cancel: &CancelToken,
    ) -> Result<Arc<Database>> {
        let mut databases = self.databases.lock();
        if let Some(known) = databases.get(dir)
            && known.session_id == session_id
        {
            return Ok(Arc::clone(known));
        }
        // Otherwise the state of a session that has already ended would be kept.
        cancel.check()?;
        let database = Arc::new(Database {
            session_id: session_id.to_owned(),
            has_begun: Lock::default(),
            tree: Lock::default(),
            filter_millibits: Lock::default(),
            described: Lock::default(),
            failed_filters: Lock::default(),
            other_orders: Lock::default(),
        });
        databases.insert(dir.to_owned(), Arc::clone(&database));
        Ok(database)
    }

    /// Checks the staging folder of the database in `dir` without changing it.
    ///
    /// # Errors
    /// Declined if it cannot be used; Storage if the system returns an error.
    pub(super) fn check_staging(&self, dir: &Path) -> Result<()> {
        let folder = self.staging_folder(dir)?;
        match self.storage.is_own_folder(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            found => location::require_own(&folder, found),
        }
    }

    /// Returns the staging folder of the database in `dir`.
    pub(super) fn staging_folder(&self, dir: &Path) -> Result<PathBuf> {
        location::folder(&*self.storage, dir, self.settings.staging_dir.as_deref())
    }
}

/// Requires that the ids agree, if both are known. A database in another `Env` of RocksDB may have the same path as one
/// on the file system, and must not be confused with it.
fn require_id(storage: &dyn Storage, dir: &Path, db_id: &[u8], tree: &Tree) -> Result<()> {
    let (place, found) = match &*tree.db_id {
        [] => ("IDENTITY", identity(storage, dir)?),
        id => ("MANIFEST", id.to_vec()),
    };
    if db_id.is_empty() || found.is_empty() || db_id == found {
        return Ok(());
    }
    Err(Error::declined(
        DeclineReason::Manifest,
        format!(
            "the job is of the database with the id {}, but the {place} in {} has the id {}; RocksDB keeps the first \
             where Rockmill does not read it (in memory, or encrypted), so use no compaction service for it",
            String::from_utf8_lossy(db_id),
            dir.display(),
            String::from_utf8_lossy(&found),
        ),
    ))
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;

    use super::*;
    use crate::settings::Settings;
    use rockmill_storage::LocalStorage;

    #[test]
    fn a_database_is_forgotten_once_its_session_has_ended_and_stays_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path();
        let storage = Arc::new(LocalStorage);
        let engine = Engine::new(Settings::default(), storage).expect("sound settings");
        let cancel = CancelToken::new();
        let database = |session| engine.database(dir, session, &cancel);
        let sessions = |session: &str| BTreeSet::from([session.to_owned()]);
        let kept = || engine.databases.lock().len();
        let first = database("first").expect("it is taken");
        engine.sessions_ended(&sessions("another"));
        assert_eq!(kept(), 1);
        engine.sessions_ended(&sessions("first"));
        assert_eq!((kept(), Arc::strong_count(&first)), (0, 1));
        database("second").expect("it is taken again");
        engine.sessions_ended(&sessions("first"));
        assert_eq!(kept(), 1, "the second goes on");
        engine.refuse_database(dir);
        engine.sessions_ended(&sessions("second"));
        let error = database("third").expect_err("it would fail again");
        assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::DbPaths));
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_database_whose_files_rocksdb_leaves_behind_is_refused_once_it_no_longer_renames_them() {
        // Whether RocksDB takes the file of a job, the session of the next job, and the time between them.
        let is_refused = |takes: bool, session: &str, time: Duration| {
            let dir = tempfile::tempdir().expect("a folder");
            let dir = dir.path();
            let storage = Arc::new(LocalStorage);
            let engine = Engine::new(Settings::default(), storage).expect("sound settings");
            let staging = StagingDir::create(Arc::new(LocalStorage), dir, "job").expect("made");
            let staging = Arc::new(staging);
            let file = staging.files().file(1);
            std::fs::write(&file, "a table").expect("written");
            let given = engine.now();
            engine.handed_over(dir, "first", &staging);
            if takes {
                std::fs::rename(&file, dir.join("000007.sst")).expect("renamed");
            }
            let now = given + time;
            engine.refuse_if_left(Path::new("/elsewhere"), "second", now + 2 * RENAMED);
            engine.refuse_if_left(dir, session, now);
            engine.refused.lock().contains(dir)
        };
        let (soon, late) = (Duration::ZERO, 2 * RENAMED);
        assert!(!is_refused(true, "second", late) && !is_refused(true, "first", late));
        assert!(!is_refused(false, "first", soon), "it may rename it yet");
        assert!(is_refused(false, "first", late), "it cannot be so slow");
        assert!(is_refused(false, "second", soon), "it was opened again");
    }

    #[test]
    fn nothing_is_kept_of_a_session_that_closes() {
        let dir = tempfile::tempdir().expect("a folder");
        let storage = Arc::new(LocalStorage);
        let engine = Engine::new(Settings::default(), storage).expect("sound settings");
        let cancel = CancelToken::new();
        cancel.cancel();
        let closes = engine.database(dir.path(), "first", &cancel);
        assert_eq!(closes.expect_err("it closes").kind, ErrorKind::Cancelled);
        assert!(engine.databases.lock().is_empty());
    }

    #[test]
    fn a_job_is_of_the_database_whose_id_the_manifest_has_or_the_identity_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let is_taken = |job: &str, manifest: &str| {
            let mut tree = Tree::new();
            tree.db_id = manifest.into();
            let found = require_id(&LocalStorage, dir.path(), job.as_bytes(), &tree);
            if let Err(error) = &found {
                assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::Manifest));
            }
            found.is_ok()
        };
        assert!(is_taken("a", "a") && !is_taken("a", "b") && !is_taken("a", "a\n"));
        assert!(is_taken("a", "") && is_taken("", "b"));
        std::fs::write(dir.path().join("IDENTITY"), "a\n").expect("written");
        assert!(is_taken("a", "") && !is_taken("b", ""));
        assert!(is_taken("b", "b"), "the MANIFEST comes first");
    }
}
