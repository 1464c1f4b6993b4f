//! Which folder holds a database's jobs, and whether it will do.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::{DeclineReason, Error, Result};

use super::{STAGING_DIR, StagingDir};
use rockmill_storage::{FILE_MODE, Storage};

/// Name of a file that is renamed into the database's directory and removed, to see that it can be. A
/// crash may leave it; the next check replaces it.
pub const TRIAL_FILE: &str = "rockmill.trial";

/// Job folder that the trial takes place in.
pub(super) const TRIAL_JOB: &str = "trial";

/// The folder of the jobs of the database in `dir`: in it, or in `staging_dir`, which several databases may
/// share. There its name is that of the database's directory to the file system: two databases that live
/// at the same time never have the same, whatever their paths, since both lie on the file system that the
/// folder is on, and one that was closed finds its own again.
///
/// # Errors
/// Declined if `staging_dir` is on another file system; Storage if the system cannot say.
pub fn folder(storage: &dyn Storage, dir: &Path, staging_dir: Option<&Path>) -> Result<PathBuf> {
    let Some(shared) = staging_dir else {
        return Ok(dir.join(STAGING_DIR));
    };
    let id = storage
        .folder_id(dir)
        .map_err(|e| refused(dir, "look at the database's directory", &e))?;
    // Elsewhere, a folder of that name may be another database's, and is not to be cleaned.
    match storage.folder_id(shared) {
        Ok(found) if found.device != id.device => return Err(elsewhere(shared)),
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(refused(shared, "look at the staging folder", &e));
        }
        _ => {}
    }
    Ok(shared.join(format!("rockmill.{:x}", id.inode)))
}

/// Looks whether files can be renamed from `folder` into the database's directory `dir`, as RocksDB will: for
/// it a rename that fails is a fatal error. To be on one file system is not enough, where that is mounted
/// twice or has project quotas, so a file is renamed.
///
/// # Errors
/// Declined if they cannot; Storage if the system refuses something else.
pub fn check(storage: &Arc<dyn Storage>, folder: &Path, dir: &Path) -> Result<()> {
    let trial = StagingDir::create(Arc::clone(storage), folder, TRIAL_JOB)?;
    let id = |path: &Path| {
        let id = storage.folder_id(path);
        id.map_err(|e| refused(path, "look at it", &e))
    };
    if id(trial.path())?.device != id(dir)?.device {
        return Err(elsewhere(folder));
    }
    let (from, to) = (trial.path().join(TRIAL_FILE), dir.join(TRIAL_FILE));
    storage
        .create(&from, FILE_MODE)
        .map(drop)
        .map_err(|e| refused(folder, "make a file", &e))?;
    let renamed = storage.rename(&from, &to);
    // Also after an error: it may have been done all the same.
    match storage.remove_file(&to) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = %to.display(), %error, "leftover stays");
        }
        _ => {}
    }
    match renamed {
        Err(e) if e.kind() == ErrorKind::CrossesDevices => Err(elsewhere(folder)),
        renamed => renamed.map_err(|e| refused(folder, "rename a file out of it", &e)),
    }
}

/// Requires of a staging folder that [`Storage::is_own_folder`] has `found` it to be one: nothing may be made or
/// removed behind a link, or where another user may put links.
///
/// # Errors
/// Declined if the folder is a link or another user's; Storage if the system cannot say.
pub(crate) fn require_own(folder: &Path, found: io::Result<bool>) -> Result<()> {
    match found.map_err(|e| refused(folder, "look at the staging folder", &e))? {
        true => Ok(()),
        false => Err(Error::declined(
            DeclineReason::StagingFolder,
            format!(
                "{}: this is a link, another user's folder, or one that everybody may write to; remove it, or \
                 set staging_dir to another folder",
                folder.display()
            ),
        )),
    }
}

fn elsewhere(folder: &Path) -> Error {
    Error::declined(
        DeclineReason::StagingFolder,
        format!(
            "{}: RocksDB cannot rename files from there into the database's directory; set staging_dir \
             to a folder on the same mount of the same file system",
            folder.display()
        ),
    )
}

fn refused(path: &Path, doing: &str, error: &io::Error) -> Error {
    Error::storage(&path.display().to_string(), doing, error)
}
