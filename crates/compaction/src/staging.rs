//! Staging folders for output files until RocksDB renames them: `<db>/rockmill.staging/<job>/`, or
//! `<staging_dir>/rockmill.<database>/<job>/`.
//!
//! RocksDB renames the files into the database's directory, so the folder must be on the same file system, which
//! [`location::check`] verifies. A crash leaves at most this folder; [`clean`] removes what an earlier process left.

pub mod location;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rockmill_core::{Error, Lock, Result, SstFile, SstSink};
use rockmill_format::unique_id::SessionId;

use rockmill_storage::io::{self as job_io, JobIo, TaskFiles};
use rockmill_storage::syncs::Syncs;
use rockmill_storage::{Storage, base_name};

/// Folder in the database's directory that contains all jobs' folders.
pub const STAGING_DIR: &str = "rockmill.staging";

/// Folders of jobs of one database on which this process works; [`clean`] does not remove them.
type Active = Lock<BTreeSet<PathBuf>>;

/// Active folders by staging folder, as long as there are any. Each has its own lock, so a slow file system does not
/// delay other databases' jobs.
static ACTIVE: Lock<BTreeMap<PathBuf, Weak<Active>>> = Lock::new(BTreeMap::new());

fn active_in(staging: &Path) -> Arc<Active> {
    let mut all = ACTIVE.lock();
    all.retain(|_, active| active.strong_count() > 0);
    let known = all.get(staging).and_then(Weak::upgrade);
    known.unwrap_or_else(|| {
        let active = Arc::default();
        all.insert(staging.to_owned(), Arc::downgrade(&active));
        active
    })
}

/// A job's folder. Dropping it removes the folder with the remaining files.
#[derive(Debug)]
pub struct StagingDir {
    files: StagingFiles,
    active: Arc<Active>,
}

/// The files in a job's folder. It does not own the folder.
#[derive(Debug, Clone)]
pub struct StagingFiles {
    storage: Arc<dyn Storage>,
    path: PathBuf,
}

impl StagingDir {
    /// Creates the folder `name` in the staging folder `folder`.
    ///
    /// # Errors
    /// Declined if `folder` is a link or belongs to another user; Storage; Internal if `name` contains other characters
    /// than letters and digits, because the folder is removed in the end.
    pub fn create(storage: Arc<dyn Storage>, folder: &Path, name: &str) -> Result<Self> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Error::internal(format!(
                "{name:?} is not a valid name for a folder"
            )));
        }
        let refused = |e| {
            let folder = folder.display().to_string();
            Error::storage(&folder, "make a staging folder", &e)
        };
        let path = folder.join(name);
        let active = active_in(folder);
        let made = {
            // Held so that the end of another job does not remove the parent folder meanwhile.
            let mut jobs = active.lock();
            if let Err(e) = storage.create_dir_all(folder) {
                // It may have been created despite the error.
                let _ = storage.remove_empty_dir(folder);
                return Err(refused(e));
            }
            location::require_own(folder, storage.is_own_folder(folder))?;
            jobs.insert(path.clone());
            storage.create_dir_all(&path)
        };
        // If the folder was created partly, dropping `dir` removes it.
        let files = StagingFiles { storage, path };
        let dir = Self { files, active };
        made.map(|()| dir).map_err(refused)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.files.path
    }

    /// Whether a file is left in it; `None` if that cannot be determined.
    pub fn has_files(&self) -> Option<bool> {
        let listed = self.files.storage.list(self.path());
        listed.ok().map(|names| !names.is_empty())
    }

    /// Its files.
    pub fn files(&self) -> &StagingFiles {
        &self.files
    }

    /// Syncs the folder, so that the names in it are durable.
    ///
    /// # Errors
    /// Storage, Cancelled.
    pub fn sync(&self, syncs: &Syncs) -> Result<()> {
        let StagingFiles { storage, path } = self.files.clone();
        let synced = syncs.wait(move || storage.sync_dir(&path))?;
        synced.map_err(|e| {
            let path = self.path().display().to_string();
            Error::storage(&path, "sync the staging folder", &e)
        })
    }
}

impl StagingFiles {
    /// Removes the files of a subcompaction, so that it can run again. Files that are still open may still be written
    /// and synced.
    ///
    /// # Errors
    /// Storage.
    pub fn remove_subcompaction(&self, subcompaction: usize) -> Result<()> {
        for made in 0..NUMBERS_PER_SUBCOMPACTION {
            let path = self.file(file_number(subcompaction, made)?);
            match self.storage.remove_file(&path) {
                Ok(()) => {}
                // The numbers have no gaps.
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
        let StagingFiles { storage, path } = &self.files;
        match storage.remove_dir_all(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                tracing::warn!(folder = %path.display(), error = %e, "cannot remove a staging folder");
            }
            _ => {}
        }
        let mut active = self.active.lock();
        active.remove(path);
        if let Some(parent) = path.parent() {
            // This fails if other jobs have folders there.
            let _ = storage.remove_empty_dir(parent);
        }
    }
}

/// Whether `name` is a name of a job's folder.
fn is_job_name(name: &str) -> bool {
    name == location::TRIAL_JOB || SessionId::is_encoded(name)
}

/// Whether `name` is a name of a file in a job's folder.
fn is_job_file(name: &str) -> bool {
    let number = name.strip_suffix(".sst").and_then(|n| n.parse().ok());
    name == location::TRIAL_FILE || number.is_some_and(|number| file_name(number) == name)
}

/// Removes the leftovers of an earlier process from a database's staging folder: jobs' folders that contain only jobs'
/// files. Everything else stays. A warning names leftovers that cannot be removed.
///
/// # Errors
/// Declined if the folder is a link or belongs to another user; Storage if the system returns an error.
pub fn clean(storage: &dyn Storage, folder: &Path) -> Result<()> {
    match storage.is_own_folder(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        found => location::require_own(folder, found)?,
    }
    let warn = |path: &Path, error: &io::Error| {
        tracing::warn!(path = %path.display(), %error, "cannot remove a leftover");
    };
    let names = match storage.list(folder) {
        Ok(names) => names,
        Err(e) => {
            warn(folder, &e);
            return Ok(());
        }
    };
    let active = active_in(folder);
    for name in names.iter().filter(|name| is_job_name(name)) {
        let path = folder.join(name);
        if active.lock().contains(&path) {
            continue;
        }
        if let Err(e) = remove_job(storage, &path) {
            warn(&path, &e);
        }
    }
    // Held so that no job creates its folder there meanwhile.
    let _held = active.lock();
    let _ = storage.remove_empty_dir(folder);
    Ok(())
}

fn remove_job(storage: &dyn Storage, path: &Path) -> io::Result<()> {
    let is_ours =
        storage.is_own_folder(path)? && storage.list(path)?.iter().all(|name| is_job_file(name));
    match is_ours {
        true => storage.remove_dir_all(path),
        false => Err(io::Error::other("it is not a job's folder")),
    }
}

/// The files of a subcompaction. No two subcompactions use the same file numbers.
#[derive(Debug)]
pub struct StagingSink {
    dir: PathBuf,
    io: Arc<JobIo>,
    files: Arc<TaskFiles>,
    made: u64,
}

/// File numbers per subcompaction: enough for any, and so few that block-cache keys, which combine number and offset,
/// stay distinct.
const NUMBERS_PER_SUBCOMPACTION: u64 = 1 << 16;

/// Returns the number of a subcompaction's file after `made` others.
///
/// # Errors
/// Internal if there are too many.
pub fn file_number(subcompaction: usize, made: u64) -> Result<u64> {
    if made >= NUMBERS_PER_SUBCOMPACTION {
        return Err(Error::internal("a subcompaction has too many output files"));
    }
    Ok(subcompaction as u64 * NUMBERS_PER_SUBCOMPACTION + made + 1)
}

impl StagingSink {
    /// Creates the sink of a subcompaction with these files, none of which is written.
    pub fn new(dir: &StagingFiles, io: Arc<JobIo>, files: Arc<TaskFiles>) -> Self {
        Self {
            dir: dir.path.clone(),
            io,
            files,
            made: 0,
        }
    }
}

impl SstSink for StagingSink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let number = file_number(self.files.task, self.made)?;
        self.made += 1;
        let path = self.dir.join(file_name(number));
        let file = job_io::create(&self.io, &self.files, &path)?;
        Ok((number, file))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use rockmill_core::DeclineReason;
    use rockmill_core::ErrorKind::Declined;
    use rustix::process::geteuid;

    use super::*;
    use rockmill_storage::LocalStorage;

    #[test]
    fn nothing_is_kept_of_a_folder_whose_jobs_have_ended() {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let create = |dir: &tempfile::TempDir, name| {
            StagingDir::create(Arc::new(LocalStorage), dir.path(), name).expect("there is room")
        };
        let is_known = || ACTIVE.lock().contains_key(first.path());
        let (one, other) = (create(&first, "one"), create(&first, "other"));
        drop(one);
        clean(&LocalStorage, first.path()).expect("it is a folder");
        assert!(other.path().exists(), "a job works there");
        drop(other);
        let _next = create(&second, "next");
        assert!(!is_known());
    }

    /// Creates a job's folder with a file in it.
    fn leave_job(folder: &Path) -> PathBuf {
        let job = folder.join("ABCDEFGHIJKLMNOPQRST");
        fs::create_dir_all(&job).expect("made");
        fs::write(job.join(file_name(1)), "half a file").expect("written");
        job
    }

    fn is_declined(result: Result<()>) -> bool {
        result.is_err_and(|error| error.kind == Declined(DeclineReason::StagingFolder))
    }

    #[test]
    fn nothing_behind_a_link_is_touched() {
        let [dir, elsewhere] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let (job, trial) = (leave_job(elsewhere.path()), elsewhere.path().join("trial"));
        fs::create_dir(&trial).expect("made");
        let staging = dir.path().join(STAGING_DIR);
        symlink(elsewhere.path(), &staging).expect("a link");
        assert!(is_declined(clean(&LocalStorage, &staging)));
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage);
        assert!(is_declined(location::check(&storage, &staging, dir.path())));
        assert!(job.join(file_name(1)).exists() && trial.exists());
        fs::remove_file(&staging).expect("removed");
        fs::create_dir(&staging).expect("made");
        symlink(&job, staging.join("00000000000000000000")).expect("a link");
        clean(&LocalStorage, &staging).expect("it is a folder");
        assert!(job.join(file_name(1)).exists() && staging.exists());
    }

    #[test]
    fn only_folders_of_jobs_are_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let staging = dir.path().join(STAGING_DIR);
        let others = ["some", "abcdefghijklmnopqrst", "ABCDEFGHIJKLMNOPQRS"];
        let others = others.map(|name| staging.join(name).join("000001.sst"));
        let mixed = staging.join("01234567890123456789");
        for other in others
            .iter()
            .chain([&mixed.join("1.sst"), &mixed.join("notes")])
        {
            fs::create_dir_all(other.parent().expect("a folder")).expect("made");
            fs::write(other, "something").expect("written");
        }
        let job = leave_job(&staging);
        clean(&LocalStorage, &staging).expect("it is a folder");
        assert!(!job.exists());
        assert!(others.iter().all(|other| other.exists()));
        assert!(mixed.join("1.sst").exists() && mixed.join("notes").exists());
        fs::remove_dir_all(&staging).expect("removed");
        leave_job(&staging);
        clean(&LocalStorage, &staging).expect("it is a folder");
        assert!(!staging.exists());
    }

    #[test]
    fn folders_are_for_the_process_s_user_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let staging = dir.path().join("shared/rockmill.1");
        let job = StagingDir::create(Arc::new(LocalStorage), &staging, "job").expect("made");
        let private = |path: &Path| {
            let metadata = fs::metadata(path).expect("it is there");
            metadata.permissions().mode() & 0o777 == 0o700
        };
        assert!(private(job.path()) && private(&staging));
        let another_s = match geteuid().is_root() {
            true => {
                // This fails in a user namespace without another user.
                if chown(&staging, Some(1), None).is_err() {
                    return;
                }
                &*staging
            }
            false => Path::new("/"),
        };
        assert!(is_declined(clean(&LocalStorage, another_s)));
    }

    #[test]
    fn a_folder_that_everybody_may_write_to_is_not_used() {
        let dir = tempfile::tempdir().expect("a folder");
        let staging = dir.path().join(STAGING_DIR);
        let job = leave_job(&staging);
        let set = |mode| fs::set_permissions(&staging, fs::Permissions::from_mode(mode));
        set(0o777).expect("it is ours");
        assert!(is_declined(clean(&LocalStorage, &staging)) && job.exists());
        set(0o755).expect("it is ours");
        clean(&LocalStorage, &staging).expect("others may only look");
        assert!(!job.exists());
    }
}
