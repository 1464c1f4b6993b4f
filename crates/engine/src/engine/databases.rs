//! What is kept of each database between its jobs, and its folders.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rockmill_core::{Error, Result};

use super::{Engine, lock};
use crate::staging::{self, place};
use crate::storage::base_name;
use crate::tree::TreeFollower;

/// What is kept of a database between its jobs.
#[derive(Debug)]
pub(super) struct Database {
    session_id: String,
    /// Whether leftovers of an earlier process were removed and the staging folder was looked at.
    staging_ready: Mutex<bool>,
    pub(super) tree: Mutex<TreeFollower>,
    /// Bits a key that were learned, by column family and OPTIONS file.
    pub(super) filter_millibits: Mutex<HashMap<(u32, u64), u32>>,
}

impl Engine {
    /// Takes no more jobs of the database in `dir`: RocksDB could not rename finished files into place,
    /// which is a fatal error of the database, and would be one again.
    pub fn refuse_database(&self, dir: &Path) {
        tracing::error!(
            database = %dir.display(),
            "RocksDB could not take a finished job's files; are there db_paths on another file system?"
        );
        lock(&self.refused).insert(dir.to_owned());
    }

    /// Makes the names durable under which RocksDB took a job's files into `dir`, before it writes them
    /// to the MANIFEST: its own sync of the folder is for files that were made there, and does nothing
    /// on btrfs (`io_posix.cc:PosixDirectory::FsyncWithDirOptions`, `kNewFileSynced`).
    ///
    /// # Errors
    /// Storage.
    pub fn files_taken(&self, dir: &Path) -> Result<()> {
        self.storage
            .sync_dir(dir)
            .map_err(|e| Error::storage(&base_name(dir), "sync the database's folder", &e))
    }

    /// The database in `dir`; at its first job in a session, leftovers of an earlier process go, and the
    /// staging folder is looked at.
    pub(super) fn database(&self, dir: &Path, session_id: &str) -> Result<Arc<Database>> {
        let database = self.known_database(dir, session_id);
        // Other databases' jobs do not wait for this.
        let mut staging_ready = lock(&database.staging_ready);
        if !*staging_ready {
            self.prepare_staging(dir)?;
            *staging_ready = true;
        }
        drop(staging_ready);
        Ok(database)
    }

    fn prepare_staging(&self, dir: &Path) -> Result<()> {
        let folder = self.staging_folder(dir)?;
        staging::clean(&*self.storage, &folder);
        if self.settings.staging_dir.is_some() {
            // Of a process that had no such setting.
            staging::clean(&*self.storage, &place::folder(&*self.storage, dir, None)?);
        }
        place::check(&self.storage, &folder, dir)
    }

    fn known_database(&self, dir: &Path, session_id: &str) -> Arc<Database> {
        let mut databases = lock(&self.databases);
        if let Some(known) = databases.get(dir)
            && known.session_id == session_id
        {
            return Arc::clone(known);
        }
        let database = Arc::new(Database {
            session_id: session_id.to_owned(),
            staging_ready: Mutex::default(),
            tree: Mutex::default(),
            filter_millibits: Mutex::default(),
        });
        databases.insert(dir.to_owned(), Arc::clone(&database));
        database
    }

    /// Where files wait that are to get into `dir`.
    pub(super) fn staging_folder(&self, dir: &Path) -> Result<PathBuf> {
        place::folder(&*self.storage, dir, self.settings.staging_dir.as_deref())
    }
}
