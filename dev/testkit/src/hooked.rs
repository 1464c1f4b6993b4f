//! Storage that calls a function of a test at each step.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rockmill_storage::{Advice, FolderId, ReadableFile, Storage, WritableFile};

/// A step of a storage.
#[derive(Debug)]
pub enum Step<'a> {
    /// A folder will be listed, or a file opened or read.
    Read,
    /// A file was opened.
    Opened,
    /// A file was created.
    Created,
    /// Bytes will be written.
    Write {
        /// Number of SST files that were created before this one; `None` if it is no SST file.
        table: Option<u32>,
        /// Offset in the file.
        at: usize,
        /// The bytes, which the function may change.
        bytes: &'a mut [u8],
    },
    /// Bytes were written.
    Written,
    /// A file will be synced.
    Sync,
    /// A file was synced.
    Synced,
    /// A folder was created.
    FolderCreated,
    /// A folder was removed with its contents.
    FolderRemoved,
    /// A folder will be synced.
    SyncFolder,
    /// A folder was synced.
    FolderSynced,
}

/// Returns `storage` without direct I/O. It calls `hook` with the path at each step, and returns the hook's errors.
pub fn hooked(
    storage: impl Storage + 'static,
    hook: impl Fn(&Path, Step<'_>) -> io::Result<()> + Send + Sync + 'static,
) -> Arc<dyn Storage> {
    Arc::new(Hooked {
        storage,
        hook: Hook(Arc::new(hook)),
        tables: AtomicU32::new(0),
    })
}

type Function = dyn Fn(&Path, Step<'_>) -> io::Result<()> + Send + Sync;

#[derive(Clone)]
struct Hook(Arc<Function>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

#[derive(Debug)]
struct Hooked<S> {
    storage: S,
    hook: Hook,
    /// Number of created SST files.
    tables: AtomicU32,
}

impl<S> Hooked<S> {
    fn file<F>(&self, file: F, path: &Path, table: Option<u32>) -> Box<HookedFile<F>> {
        Box::new(HookedFile {
            file,
            path: path.to_owned(),
            hook: self.hook.clone(),
            table,
            written: 0,
        })
    }
}

macro_rules! forward {
    ($($name:ident($($path:ident),+) -> $result:ty;)+) => { $(
        fn $name(&self, $($path: &Path),+) -> io::Result<$result> {
            self.storage.$name($($path),+)
        }
    )+ };
}

impl<S: Storage> Storage for Hooked<S> {
    forward! {
        mode(path) -> u32;
        remove_empty_dir(path) -> ();
        remove_file(path) -> ();
        rename(from, to) -> ();
        folder_id(path) -> FolderId;
        is_own_folder(path) -> bool;
        link_or_copy(from, to) -> ();
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        (self.hook.0)(path, Step::Read)?;
        let file = self.storage.open(path)?;
        (self.hook.0)(path, Step::Opened)?;
        Ok(self.file(file, path, None))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WritableFile>> {
        let file = self.storage.create(path, mode)?;
        let is_table = path.extension().is_some_and(|suffix| suffix == "sst");
        let table = is_table.then(|| self.tables.fetch_add(1, Ordering::Relaxed));
        (self.hook.0)(path, Step::Created)?;
        Ok(self.file(file, path, table))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.storage.create_dir_all(path)?;
        (self.hook.0)(path, Step::FolderCreated)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_dir_all(path)?;
        (self.hook.0)(path, Step::FolderRemoved)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        (self.hook.0)(path, Step::Read)?;
        self.storage.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        (self.hook.0)(path, Step::SyncFolder)?;
        self.storage.sync_dir(path)?;
        (self.hook.0)(path, Step::FolderSynced)
    }
}

#[derive(Debug)]
struct HookedFile<F> {
    file: F,
    path: PathBuf,
    hook: Hook,
    table: Option<u32>,
    written: usize,
}

impl ReadableFile for HookedFile<Box<dyn ReadableFile>> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.hook.0)(&self.path, Step::Read)?;
        self.file.read_at(buf, offset)
    }

    fn cached_pages(&self, bytes: Range<u64>) -> io::Result<u64> {
        self.file.cached_pages(bytes)
    }

    fn advise(&self, advice: Advice, bytes: Range<u64>) -> io::Result<()> {
        self.file.advise(advice, bytes)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

impl WritableFile for HookedFile<Box<dyn WritableFile>> {
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        let step = Step::Write {
            table: self.table,
            at: self.written,
            bytes: &mut bytes,
        };
        (self.hook.0)(&self.path, step)?;
        self.written += bytes.len();
        self.file.append(&bytes)?;
        (self.hook.0)(&self.path, Step::Written)
    }

    fn start_writeback(&mut self, bytes: Range<u64>) -> io::Result<()> {
        self.file.start_writeback(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        (self.hook.0)(&self.path, Step::Sync)?;
        self.file.sync()?;
        (self.hook.0)(&self.path, Step::Synced)
    }
}
