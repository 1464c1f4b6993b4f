//! Where files that are measured lie: in memory if there is room, in a folder that goes with whoever made it.

use std::fs::{self, DirEntry, File, Permissions, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_sysio::has_disk;
use rustix::process::geteuid;
use tempfile::TempDir;

use super::memory;

/// What names of folders begin with.
const PREFIX: &str = "rockmill-scratch.";

/// A folder for this user alone. It goes with all that is in it when dropped; what a process leaves that is killed,
/// the next one removes.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    /// The folder itself, locked for as long as it is used.
    _held: File,
}

impl Scratch {
    /// Makes a folder in `place`, where those go that nobody uses any more.
    ///
    /// # Errors
    /// Storage.
    pub fn new(place: &Path) -> Result<Self> {
        /// Another process may find a folder before that is locked, and remove it.
        const TRIES: usize = 8;
        remove_left(place);
        let made = (0..TRIES).find_map(|_| Self::make(place).transpose());
        let made = made.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        made.map_err(|e| Error::storage(&place.display().to_string(), "make a folder there", &e))
    }

    /// `None` if it was removed before it was locked.
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
        // Where folders have no locks nobody removes any.
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
            tracing::warn!(path = %path.display(), %error, "leftover stays");
        }
    }
}

fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && { entry.metadata() }
        .is_ok_and(|m| m.is_dir() && m.uid() == geteuid().as_raw())
}

/// Where `bytes` of files may lie: in the folder that was asked for, else in memory, or in the system's folder for temporary
/// files. As much again stays free for others.
///
/// # Errors
/// Storage if there is no such folder, or no room.
pub fn files_dir(asked: Option<&Path>, bytes: u64) -> Result<PathBuf> {
    let places = match asked {
        Some(place) => vec![place.to_owned()],
        None => vec![PathBuf::from("/dev/shm"), std::env::temp_dir()],
    };
    if let Some(place) = asked {
        fs::metadata(place)
            .map_err(|e| Error::storage(&place.display().to_string(), "look into it", &e))?;
    }
    let needed = bytes.saturating_mul(2);
    let found = places.iter().find(|place| has_room(place, needed));
    found.cloned().ok_or_else(|| {
        let places: Vec<_> = { places.iter() }
            .map(|place| place.display().to_string())
            .collect();
        let what = format!(
            "{} MB of files are to be measured, and there is no room for twice as much in {}",
            bytes.div_ceil(1_000_000),
            places.join(" or ")
        );
        Error::new(ErrorKind::Storage, what)
    })
}

/// Whether there is so much room, in memory as well if that is where files lie.
fn has_room(place: &Path, bytes: u64) -> bool {
    let free = rustix::fs::statvfs(place).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let in_memory = || File::open(place).is_ok_and(|folder| !has_disk(folder.as_fd()));
    free >= bytes && (!in_memory() || memory::free() >= bytes)
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

    #[test]
    fn more_than_there_is_has_no_room() {
        let here = tempfile::tempdir().expect("a folder");
        assert!(has_room(here.path(), 0) && !has_room(here.path(), u64::MAX));
        let error = files_dir(None, 1 << 60).expect_err("no machine has that");
        assert!(error.what.contains("in /dev/shm or "), "{error}");
        let error = files_dir(Some(here.path()), 1 << 60).expect_err("no machine has that");
        let name = here.path().display().to_string();
        assert!(error.what.ends_with(&format!(" in {name}")), "{error}");
        assert_eq!(files_dir(Some(here.path()), 0).as_deref(), Ok(here.path()));
        let error = files_dir(Some(&here.path().join("none")), 0).expect_err("it is not there");
        assert!(
            error.to_string().contains("none: cannot look into it"),
            "{error}"
        );
    }
}
