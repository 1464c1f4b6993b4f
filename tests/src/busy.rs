//! A file system in which another process writes while files are listed, opened and read.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rockmill_storage::{LocalStorage, ReadableFile, Storage, WritableFile};

use crate::local::as_local_storage;

/// The system's storage. It calls a function before steps in which files are listed, opened and read.
pub struct BusyStorage<F>(Arc<Steps<F>>);

struct Steps<F> {
    left: AtomicUsize,
    /// Number of steps from one call to the next.
    interval: usize,
    write: F,
}

impl<F: Fn() + Send + Sync + 'static> BusyStorage<F> {
    /// Calls `write` once, after `steps` steps.
    #[must_use]
    pub fn after(steps: usize, write: F) -> Self {
        Self::new(steps, usize::MAX, write)
    }

    /// Calls `write` after every `interval` steps.
    #[must_use]
    pub fn every(interval: usize, write: F) -> Self {
        Self::new(interval, interval, write)
    }

    fn new(left: usize, interval: usize, write: F) -> Self {
        let left = AtomicUsize::new(left);
        Self(Arc::new(Steps {
            left,
            interval,
            write,
        }))
    }

    /// Whether the function was called.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.0.left.load(Ordering::Relaxed) > usize::MAX / 2
    }
}

impl<F: Fn()> Steps<F> {
    fn step(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.left.store(self.interval, Ordering::Relaxed);
            (self.write)();
        }
    }
}

impl<F> fmt::Debug for BusyStorage<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BusyStorage")
    }
}

impl<F: Fn() + Send + Sync + 'static> Storage for BusyStorage<F> {
    as_local_storage!(others);

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WritableFile>> {
        LocalStorage.create(path, mode)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.step();
        LocalStorage.list(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        self.0.step();
        let file = LocalStorage.open(path)?;
        let steps = Arc::clone(&self.0);
        Ok(Box::new(BusyFile { file, steps }))
    }
}

struct BusyFile<F> {
    file: Box<dyn ReadableFile>,
    steps: Arc<Steps<F>>,
}

impl<F> fmt::Debug for BusyFile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BusyFile")
    }
}

impl<F: Fn() + Send + Sync> ReadableFile for BusyFile<F> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.steps.step();
        self.file.read_at(buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
}
