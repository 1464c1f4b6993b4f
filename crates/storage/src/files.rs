//! Every touch of a file system goes through one trait, so that tests can fail any of them.

pub mod direct;
mod local;
mod reader;
mod removal;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use self::direct::DirectStorage;
use crate::clock::{Clock, SystemClock};

pub use local::LocalStorage;
pub use reader::{InputFileReader, base_name, for_each_piece, read_from};

/// Permissions that RocksDB gives its files at most (`fs_posix.cc:GetDBFileMode`).
pub const FILE_MODE: u32 = 0o644;

/// The file system as the engine uses it.
pub trait Storage: Debug + Send + Sync {
    /// The time that waiting for files takes.
    fn clock(&self) -> Arc<dyn Clock> {
        SystemClock::shared()
    }

    /// Files past the page cache, for one job.
    ///
    /// # Errors
    /// Whatever the system says; Unsupported if there is no such thing.
    fn direct(&self) -> io::Result<Arc<dyn DirectStorage>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Files that the process may open beside those that it has open; `None` if nobody can tell.
    fn descriptors_left(&self) -> Option<u64> {
        None
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Whatever the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>>;

    /// The permissions of a file, as `man 2 chmod` has them.
    ///
    /// # Errors
    /// Whatever the system says; NotFound if there is none.
    fn mode(&self, path: &Path) -> io::Result<u32>;

    /// Makes a new file for writing, with these permissions at most; fails if it exists.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WritableFile>>;

    /// Makes a folder and those above it, for nobody but the process's user.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder with all that it holds.
    ///
    /// # Errors
    /// Whatever the system says; NotFound if there is none.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder that is empty.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove_empty_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the system says; NotFound if there is none.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name on the same file system, in place of whatever had it: at any time
    /// there is the one or the other.
    ///
    /// # Errors
    /// Whatever the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Names in a folder.
    ///
    /// # Errors
    /// Whatever the system says; NotFound if there is none.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// What a folder is to the system, whatever its path.
    ///
    /// # Errors
    /// Whatever the system says; NotFound if there is none.
    fn folder_id(&self, path: &Path) -> io::Result<FolderId>;

    /// Whether this is a folder, not a link to one, that belongs to the process's user or to the owner of the folder
    /// above, and that others may not write to.
    ///
    /// # Errors
    /// Whatever the system says; NotFound if there is nothing of that name.
    fn is_own_folder(&self, path: &Path) -> io::Result<bool>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives `from` a second name, or copies it where links are not possible. The bytes of a copy are
    /// durable, its name only once the folder is synced.
    ///
    /// # Errors
    /// Whatever the system says.
    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// A folder's numbers (`man 2 stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderId {
    /// Of its file system.
    pub device: u64,
    /// On its file system, as long as it is there.
    pub inode: u64,
}

/// An open file, for reading.
pub trait ReadableFile: Debug + Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Pages of some bytes that the page cache has; nothing is read for that.
    ///
    /// # Errors
    /// Unsupported if nobody can tell.
    fn cached_pages(&self, bytes: Range<u64>) -> io::Result<u64> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Says what is going to become of some bytes, so that the system can use its cache well.
    ///
    /// # Errors
    /// Whatever the system says; nothing has changed then.
    fn advise(&self, advice: Advice, bytes: Range<u64>) -> io::Result<()> {
        let _ = (advice, bytes);
        Ok(())
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn size(&self) -> io::Result<u64>;
}

/// What is going to become of some bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// They are not read again: the cache need not keep them.
    DontNeed,
    /// They are read front to back, whatever the bytes; for the whole file.
    Sequential,
}

/// An open file, for writing front to back.
pub trait WritableFile: Debug + Send {
    /// Makes room for so many bytes, of which the file will have as many at least, where that makes writing them
    /// or their sync quicker.
    ///
    /// # Errors
    /// Whatever the system says; the file is written all the same then.
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Whatever the system says.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Begins to make written bytes durable, where the system can, and does not wait for them.
    ///
    /// # Errors
    /// Whatever the system says; as after a sync, the bytes may be lost then.
    fn start_writeback(&mut self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync(&mut self) -> io::Result<()>;
}
