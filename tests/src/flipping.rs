//! A file system that alters written bytes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_storage::{LocalStorage, Storage, WritableFile};

use crate::local::as_local_storage;

/// Flips a bit at `at_byte` in the first SST file after `files_before` others. Clones share the count.
#[derive(Debug, Clone)]
pub struct FlippingStorage {
    files_before: Arc<AtomicU64>,
    at_byte: usize,
}

impl FlippingStorage {
    /// Leaves the first `files` files unchanged.
    #[must_use]
    pub fn after(files: u64, at_byte: usize) -> Self {
        Self {
            files_before: Arc::new(AtomicU64::new(files)),
            at_byte,
        }
    }
}

impl Storage for FlippingStorage {
    as_local_storage!(open, list, others);

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WritableFile>> {
        let file = LocalStorage.create(path, mode)?;
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
