//! File system access behind one trait, so that tests can make any call fail.

mod backup;
pub mod direct;
mod local;
mod reader;
mod removal;
mod rooted;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use self::direct::DirectStorage;
use crate::clock::{Clock, SystemClock};

pub use backup::{is_backup, shared_files, shared_path};
pub use local::LocalStorage;
pub use reader::{InputFileReader, base_name, for_each_piece, read_from, table_path};
pub use rooted::Rooted;

/// Maximum permissions that RocksDB gives its files (`fs_posix.cc:GetDBFileMode`).
pub const FILE_MODE: u32 = 0o644;

/// The file system as the engine uses it.
pub trait Storage: Debug + Send + Sync {
    /// The clock in which waiting for files takes time.
    fn clock(&self) -> Arc<dyn Clock> {
        SystemClock::shared()
    }

    /// Returns direct I/O (past the page cache) for one job.
    ///
    /// # Errors
    /// The operating system's error; Unsupported if there is no direct I/O.
    fn direct(&self) -> io::Result<Arc<dyn DirectStorage>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Number of further files that the process may open; `None` if unknown.
    fn descriptors_left(&self) -> Option<u64> {
        None
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The operating system's error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>>;

    /// Returns the permissions of a file, as in `man 2 chmod`.
    ///
    /// # Errors
    /// The operating system's error; NotFound if there is none.
    fn mode(&self, path: &Path) -> io::Result<u32>;

    /// Creates a file for writing, with at most the permissions `mode`. Fails if the file exists.
    ///
    /// # Errors
    /// The operating system's error.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WritableFile>>;

    /// Creates a folder and its missing parents, accessible only to the process's user.
    ///
    /// # Errors
    /// The operating system's error.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder with its contents.
    ///
    /// # Errors
    /// The operating system's error; NotFound if there is none.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// The operating system's error.
    fn remove_empty_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's error; NotFound if there is none.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Renames a file within a file system, replacing an existing target. The target exists at any time.
    ///
    /// # Errors
    /// The operating system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Lists the names in a folder.
    ///
    /// # Errors
    /// The operating system's error; NotFound if there is none.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Returns the identity of a folder, independent of the path.
    ///
    /// # Errors
    /// The operating system's error; NotFound if there is none.
    fn folder_id(&self, path: &Path) -> io::Result<FolderId>;

    /// Whether `path` is a private folder: not a symlink, owned by the process's user or by the owner of the parent
    /// folder, and not writable by others.
    ///
    /// # Errors
    /// The operating system's error; NotFound if there is nothing of that name.
    fn is_own_folder(&self, path: &Path) -> io::Result<bool>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The operating system's error.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Hard-links `from` as `to`, or copies it where hard links are not possible. The contents of a copy are durable at
    /// once, its name only after the folder is synced.
    ///
    /// # Errors
    /// The operating system's error.
    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// Identity of a folder (`man 2 stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FolderId {
    /// Device number of its file system.
    pub device: u64,
    /// Inode number on that file system, valid as long as the folder exists.
    pub inode: u64,
}

/// An open file, for reading.
pub trait ReadableFile: Debug + Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end.
    ///
    /// # Errors
    /// The operating system's error.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Number of the pages of `bytes` that are in the page cache. Reads nothing.
    ///
    /// # Errors
    /// Unsupported if unknown.
    fn cached_pages(&self, bytes: Range<u64>) -> io::Result<u64> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Tells the operating system how `bytes` will be used.
    ///
    /// # Errors
    /// The operating system's error; it has no effect then.
    fn advise(&self, advice: Advice, bytes: Range<u64>) -> io::Result<()> {
        let _ = (advice, bytes);
        Ok(())
    }

    /// Size of the file in bytes.
    ///
    /// # Errors
    /// The operating system's error.
    fn size(&self) -> io::Result<u64>;

    /// The file's descriptor; `None` if the operating system does not have the file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// How a range of a file will be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// It is not read again, so the page cache need not keep it.
    DontNeed,
    /// The file is read front to back. Applies to the whole file, whatever the range.
    Sequential,
}

/// An open file, for writing front to back.
pub trait WritableFile: Debug + Send {
    /// Preallocates `bytes`, where that makes writes or the sync faster. The file will be at least that long.
    ///
    /// # Errors
    /// The operating system's error; the file can still be written then.
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// The operating system's error.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Starts writeback of written bytes, where the system can, without waiting for it.
    ///
    /// # Errors
    /// The operating system's error; the bytes may be lost then, as after a failed sync.
    fn start_writeback(&mut self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Makes the whole file durable.
    ///
    /// # Errors
    /// The operating system's error.
    fn sync(&mut self) -> io::Result<()>;
}
