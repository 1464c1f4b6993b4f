//! Storage that damages or blocks its first files.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rockmill_storage::{FolderId, ReadableFile, Storage, WritableFile};

use rockmill_testkit::storage_model::storage::SimStorage;

/// Storage that damages the first files that are written to it.
#[derive(Debug)]
pub struct Damaging {
    storage: SimStorage,
    files_left: AtomicU32,
    /// If set, writes to these files block instead.
    stuck: Option<Stuck>,
}

impl Damaging {
    /// Damages the first `files` files, or blocks writes to them if `stuck` is set.
    pub fn new(storage: SimStorage, files: u32, stuck: Option<Stuck>) -> Self {
        Self {
            storage,
            files_left: AtomicU32::new(files),
            stuck,
        }
    }
}

/// Set when blocked writes may continue.
pub type Stuck = Arc<(Mutex<bool>, Condvar)>;

/// A file whose writes block until they may continue.
#[derive(Debug)]
struct StuckFile(Box<dyn WritableFile>, Stuck);

impl WritableFile for StuckFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (is_free, changed) = &*self.1;
        let held = is_free.lock().expect("no panic");
        drop(changed.wait_while(held, |is_free| !*is_free));
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

/// A file that inverts a bit in the last byte of each piece.
#[derive(Debug)]
struct Damaged(Box<dyn WritableFile>);

impl WritableFile for Damaged {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        self.0.append(&bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Storage for Damaging {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        self.storage.open(path)
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WritableFile>> {
        let file = self.storage.create(path, mode)?;
        // The engine also creates a trial file in the staging folder.
        let is_output = path.extension().is_some_and(|extension| extension == "sst");
        let one_less = |left: u32| left.checked_sub(u32::from(is_output));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.files_left.fetch_update(set, fetch, one_less) {
            Ok(1..) if is_output => Ok(match &self.stuck {
                Some(stuck) => Box::new(StuckFile(file, Arc::clone(stuck))),
                None => Box::new(Damaged(file)),
            }),
            _ => Ok(file),
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.storage.create_dir_all(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_dir_all(path)
    }

    fn remove_empty_dir(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_empty_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.storage.rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.storage.list(path)
    }

    fn folder_id(&self, path: &Path) -> io::Result<FolderId> {
        self.storage.folder_id(path)
    }

    fn mode(&self, path: &Path) -> io::Result<u32> {
        self.storage.mode(path)
    }

    fn is_own_folder(&self, path: &Path) -> io::Result<bool> {
        self.storage.is_own_folder(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.storage.sync_dir(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.storage.link_or_copy(from, to)
    }
}
