//! The staging folder of a database, and checks of it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::{DeclineReason, Error, Result};

use super::{STAGING_DIR, StagingDir};
use rockmill_storage::{FILE_MODE, Storage};

/// Name of a file that is renamed into the database's directory and removed, to test renames. A crash may leave it; the
/// next check replaces it.
pub const TRIAL_FILE: &str = "rockmill.trial";

/// Name of the job folder of this test.
pub(super) const TRIAL_JOB: &str = "trial";

/// Returns the staging folder of the database in `dir`: in its directory, or in `staging_dir`, which several databases
/// may share. There, its name contains the inode number of the database's directory. All these directories are on the
/// same file system, so existing databases never have the same name, whatever their paths. A database that was closed
/// finds its folder again.
///
/// # Errors
/// Declined if `staging_dir` is on another file system; Storage if the system returns an error.
pub fn folder(storage: &dyn Storage, dir: &Path, staging_dir: Option<&Path>) -> Result<PathBuf> {
    let Some(shared) = staging_dir else {
        return Ok(dir.join(STAGING_DIR));
    };
    let id = storage
        .folder_id(dir)
        .map_err(|e| refused(dir, "read the metadata of the database's directory", &e))?;
    // On another file system, a folder with this name may belong to another database, and must not be cleaned.
    match storage.folder_id(shared) {
        Ok(found) if found.device != id.device => return Err(elsewhere(shared)),
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(refused(
                shared,
                "read the metadata of the staging folder",
                &e,
            ));
        }
        _ => {}
    }
    Ok(shared.join(format!("rockmill.{:x}", id.inode)))
}

/// Checks that files can be renamed from `folder` into the database's directory `dir`, because a rename that fails is a
/// fatal error for RocksDB. It renames a file: even on one file system, renames fail between two mounts or under
/// project quotas.
///
/// # Errors
/// Declined if files cannot be renamed; Storage if another operation fails.
pub fn check(storage: &Arc<dyn Storage>, folder: &Path, dir: &Path) -> Result<()> {
    let trial = StagingDir::create(Arc::clone(storage), folder, TRIAL_JOB)?;
    let id = |path: &Path| {
        let id = storage.folder_id(path);
        id.map_err(|e| refused(path, "read its metadata", &e))
    };
    if id(trial.path())?.device != id(dir)?.device {
        return Err(elsewhere(folder));
    }
    let (from, to) = (trial.path().join(TRIAL_FILE), dir.join(TRIAL_FILE));
    storage
        .create(&from, FILE_MODE)
        .map(drop)
        .map_err(|e| refused(folder, "create a file", &e))?;
    let renamed = storage.rename(&from, &to);
    // Also after an error, because the rename may have happened despite it.
    match storage.remove_file(&to) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = %to.display(), %error, "cannot remove a leftover");
        }
        _ => {}
    }
    match renamed {
        Err(e) if e.kind() == ErrorKind::CrossesDevices => Err(elsewhere(folder)),
        renamed => renamed.map_err(|e| refused(folder, "rename a file out of it", &e)),
    }
}

/// Requires that [`Storage::is_own_folder`] has `found` a staging folder to be the process's own. Rockmill must not
/// create or remove files behind a link, or where another user may create links.
///
/// # Errors
/// Declined if the folder is a link or belongs to another user; Storage if the system returned an error.
pub(crate) fn require_own(folder: &Path, found: io::Result<bool>) -> Result<()> {
    match found.map_err(|e| refused(folder, "read the metadata of the staging folder", &e))? {
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
