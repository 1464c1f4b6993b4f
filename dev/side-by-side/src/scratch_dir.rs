//! Temporary folders, which are removed with their owner.

use std::fs::{self, DirEntry, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rockmill_core::{Error, Result};
use rustix::process::geteuid;
use tempfile::TempDir;

/// Prefix of the names of these folders.
const PREFIX: &str = "rockmill-scratch.";

/// A folder that only this user can access. Dropping it removes it with its contents. The folder of a killed process is
/// removed by the next process.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    /// The open folder, locked while it is used.
    _held: File,
}

impl Scratch {
    /// Creates a folder in `place`, and removes unused ones there.
    ///
    /// # Errors
    /// Storage.
    pub fn new(place: &Path) -> Result<Self> {
        /// Another process may find a new folder before it is locked, and remove it.
        const TRIES: usize = 8;
        remove_left(place);
        let made = (0..TRIES).find_map(|_| Self::make(place).transpose());
        let made = made.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        made.map_err(|e| Error::storage(&place.display().to_string(), "make a folder there", &e))
    }

    /// Returns `None` if the folder was removed before it was locked.
    fn make(place: &Path) -> io::Result<Option<Self>> {
        let mut named = tempfile::Builder::new();
        named
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700));
        let dir = named.tempdir_in(place)?;
        let held = match File::open(dir.path()) {
            Ok(held) => held,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        // On file systems without locks on folders, no process removes any.
        if let Err(TryLockError::WouldBlock) = held.try_lock() {
            return Ok(None);
        }
        Ok(dir.path().exists().then_some(Self { dir, _held: held }))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes this user's folders in `place` that no process holds.
fn remove_left(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    for entry in entries.flatten().filter(is_ours) {
        let path = entry.path();
        let Ok(folder) = File::open(&path) else {
            continue;
        };
        if folder.try_lock().is_ok()
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a leftover");
        }
    }
}

fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && { entry.metadata() }
        .is_ok_and(|m| m.is_dir() && m.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_go_that_nobody_uses() {
        let place = tempfile::tempdir().expect("a folder");
        let in_use = Scratch::new(place.path()).expect("there is room");
        let left = place.path().join("rockmill-scratch.left");
        let others = place.path().join("rockmill-model");
        for folder in [&left, &others] {
            fs::create_dir_all(folder.join("cpu0")).expect("there is room");
            fs::write(folder.join("cpu0/000001.sst"), "x").expect("there is room");
        }
        let elsewhere = place.path().join("rockmill-scratch.elsewhere");
        std::os::unix::fs::symlink(&others, &elsewhere).expect("there is room");
        let next = Scratch::new(place.path()).expect("there is room");
        assert!(!left.exists());
        assert!(others.join("cpu0/000001.sst").exists() && elsewhere.exists());
        assert!(in_use.path().exists() && next.path().exists());
        let paths = [in_use.path().to_owned(), next.path().to_owned()];
        drop((in_use, next));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
