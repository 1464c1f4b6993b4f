//! Where outputs wait until RocksDB takes them: `<db>/rockmill.staging/<job>/`, or
//! `<staging_dir>/rockmill.<database>/<job>/`.
//!
//! RocksDB renames the files into the database's directory, so the folder must lie on the same file
//! system, which [`place::check`] looks at. A crash leaves at most this folder; [`clean`] removes what an
//! earlier process left.

pub mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rockmill_core::{Error, Result, SstFile, SstSink};

use crate::io::{self, JobIo, SliceFiles};
use crate::storage::{Storage, base_name};
use crate::syncs::Syncs;

/// Folder in the database's directory that holds all jobs' folders.
pub const STAGING_DIR: &str = "rockmill.staging";

/// Folders of jobs that this process works on, of one database; [`clean`] leaves them alone.
type Active = Mutex<BTreeSet<PathBuf>>;

/// By staging folder, as long as there are such jobs: a file system that takes its time keeps no other database's jobs
/// waiting.
static ACTIVE: Mutex<BTreeMap<PathBuf, Weak<Active>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn active_in(staging: &Path) -> Arc<Active> {
    let mut all = lock(&ACTIVE);
    all.retain(|_, active| active.strong_count() > 0);
    let known = all.get(staging).and_then(Weak::upgrade);
    known.unwrap_or_else(|| {
        let active = Arc::default();
        all.insert(staging.to_owned(), Arc::downgrade(&active));
        active
    })
}

/// A job's folder; removed with what is left in it when dropped.
#[derive(Debug)]
pub struct StagingDir {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    active: Arc<Active>,
}

impl StagingDir {
    /// Makes the folder `name` in the staging folder `folder`.
    ///
    /// # Errors
    /// Storage; Internal if `name` is no single name, since the folder is removed in the end.
    pub fn create(storage: Arc<dyn Storage>, folder: &Path, name: &str) -> Result<Self> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Error::internal(format!("{name:?} is no name for a folder")));
        }
        let dir = Self {
            storage,
            path: folder.join(name),
            active: active_in(folder),
        };
        let made = {
            // Held, so that no other job's end removes the parent folder in between.
            let mut active = lock(&dir.active);
            active.insert(dir.path.clone());
            dir.storage.create_dir_all(&dir.path)
        };
        // If it was made in part, dropping it removes that.
        match made {
            Ok(()) => Ok(dir),
            Err(e) => {
                let folder = folder.display().to_string();
                Err(Error::storage(&folder, "make a staging folder", &e))
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the names in the folder durable.
    ///
    /// # Errors
    /// Storage, Cancelled.
    pub fn sync(&self, syncs: &Syncs) -> Result<()> {
        let (storage, path) = (Arc::clone(&self.storage), self.path.clone());
        let synced = syncs.wait(move || storage.sync_dir(&path))?;
        synced.map_err(|e| {
            let path = self.path.display().to_string();
            Error::storage(&path, "sync the staging folder", &e)
        })
    }

    /// Removes what a slice has written, so that it can be made again. Files of it that are still open
    /// may go on to be written and synced.
    ///
    /// # Errors
    /// Storage.
    pub fn remove_slice(&self, slice: usize) -> Result<()> {
        for made in 0..NUMBERS_PER_SLICE {
            let path = self.file(file_number(slice, made)?);
            match self.storage.remove_file(&path) {
                Ok(()) => {}
                // They are made one after another.
                Err(e) if e.kind() == ErrorKind::NotFound => break,
                Err(e) => return Err(Error::storage(&base_name(&path), "remove it", &e)),
            }
        }
        Ok(())
    }

    /// Path of the job's file `number`.
    pub fn file(&self, number: u64) -> PathBuf {
        self.path.join(file_name(number))
    }
}

/// Name of the job's file `number`.
pub fn file_name(number: u64) -> String {
    format!("{number:06}.sst")
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        match self.storage.remove_dir_all(&self.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                tracing::warn!(folder = %self.path.display(), error = %e, "staging folder stays");
            }
            _ => {}
        }
        let mut active = lock(&self.active);
        active.remove(&self.path);
        if let Some(parent) = self.path.parent() {
            // Other jobs may have folders there: then it stays.
            let _ = self.storage.remove_empty_dir(parent);
        }
    }
}

/// Removes what an earlier process left in a database's staging folder. What cannot be removed stays, with
/// a warning: it is in nobody's way.
pub fn clean(storage: &dyn Storage, folder: &Path) {
    let warn = |path: &Path, error: &std::io::Error| {
        tracing::warn!(path = %path.display(), %error, "leftover stays");
    };
    let names = match storage.list(folder) {
        Ok(names) => names,
        Err(e) if e.kind() == ErrorKind::NotFound => return,
        Err(e) => return warn(folder, &e),
    };
    let active = active_in(folder);
    for name in names {
        let path = folder.join(name);
        if lock(&active).contains(&path) {
            continue;
        }
        if let Err(e) = storage.remove_dir_all(&path) {
            warn(&path, &e);
        }
    }
    // Held, so that no job makes its folder there in between.
    let _held = lock(&active);
    let _ = storage.remove_empty_dir(folder);
}

/// A slice's files, numbered so that no two slices' numbers meet.
#[derive(Debug)]
pub struct StagingSink {
    dir: PathBuf,
    io: Arc<JobIo>,
    files: Arc<SliceFiles>,
    made: u64,
}

/// File numbers of a slice: enough for any, and small enough that block-cache keys, which mix number
/// and offset, stay apart.
const NUMBERS_PER_SLICE: u64 = 1 << 16;

/// Number of the file that a slice makes after `made` others.
///
/// # Errors
/// Internal if that is one too many.
pub fn file_number(slice: usize, made: u64) -> Result<u64> {
    if made >= NUMBERS_PER_SLICE {
        return Err(Error::internal("a slice has too many output files"));
    }
    Ok(slice as u64 * NUMBERS_PER_SLICE + made + 1)
}

impl StagingSink {
    /// The sink of slice number `slice`.
    pub fn new(dir: &StagingDir, io: Arc<JobIo>, slice: usize) -> Self {
        Self {
            dir: dir.path.clone(),
            io,
            files: SliceFiles::new(slice),
            made: 0,
        }
    }

    /// What becomes of the files once they are written.
    pub fn into_files(self) -> Arc<SliceFiles> {
        self.files
    }
}

impl SstSink for StagingSink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let number = file_number(self.files.slice, self.made)?;
        self.made += 1;
        let path = self.dir.join(file_name(number));
        let file = io::create(&self.io, &self.files, &path)?;
        Ok((number, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalStorage;

    #[test]
    fn nothing_is_kept_of_a_folder_whose_jobs_have_ended() {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let create = |dir: &tempfile::TempDir, name| {
            StagingDir::create(Arc::new(LocalStorage), dir.path(), name).expect("there is room")
        };
        let is_known = || lock(&ACTIVE).contains_key(first.path());
        let (one, other) = (create(&first, "one"), create(&first, "other"));
        drop(one);
        clean(&LocalStorage, first.path());
        assert!(other.path().exists(), "a job works there");
        drop(other);
        let _next = create(&second, "next");
        assert!(!is_known());
    }
}
