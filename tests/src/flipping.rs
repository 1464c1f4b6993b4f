//! A file system that alters what is written to it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_engine::storage::{FolderId, LocalStorage, ReadableFile, Storage, WritableFile};

/// Flips a bit in the first SST file that is written after so many others, at `at_byte`. Clones count
/// together.
#[derive(Debug, Clone)]
pub struct FlippingStorage {
    files_before: Arc<AtomicU64>,
    at_byte: usize,
}

impl FlippingStorage {
    /// Spares `files` files.
    #[must_use]
    pub fn after(files: u64, at_byte: usize) -> Self {
        Self {
            files_before: Arc::new(AtomicU64::new(files)),
            at_byte,
        }
    }
}

impl Storage for FlippingStorage {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        LocalStorage.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = LocalStorage.create(path)?;
        let is_table = path.extension().is_some_and(|extension| extension == "sst");
        let left = self.files_before.load(Ordering::Relaxed);
        if is_table {
            self.files_before
                .store(left.wrapping_sub(1), Ordering::Relaxed);
        }
        let at_byte = (is_table && left == 0).then_some(self.at_byte);
        Ok(Box::new(FlippingFile {
            file,
            at_byte,
            written: 0,
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        LocalStorage.create_dir_all(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        LocalStorage.remove_dir_all(path)
    }

    fn remove_empty_dir(&self, path: &Path) -> io::Result<()> {
        LocalStorage.remove_empty_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        LocalStorage.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalStorage.rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        LocalStorage.list(path)
    }

    fn folder_id(&self, path: &Path) -> io::Result<FolderId> {
        LocalStorage.folder_id(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        LocalStorage.sync_dir(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalStorage.link_or_copy(from, to)
    }
}

#[derive(Debug)]
struct FlippingFile {
    file: Box<dyn WritableFile>,
    at_byte: Option<usize>,
    written: usize,
}

impl WritableFile for FlippingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let start = self.written;
        self.written += bytes.len();
        let Some(at) = self
            .at_byte
            .filter(|&at| (start..self.written).contains(&at))
        else {
            return self.file.append(bytes);
        };
        let mut bytes = bytes.to_vec();
        bytes[at - start] ^= 1;
        self.file.append(&bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}
