//! Every touch of a file system goes through one trait, so that tests can fail any of them.

pub mod direct;

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{CancelToken, Error, ReadAt, Result};
use rockmill_sysio::{cached_pages, has_disk, start_writeback};
use rustix::fs::{Advice as SystemAdvice, FallocateFlags, fadvise, fallocate};

use self::direct::{DirectStorage, LocalDirect};
use crate::clock::{Clock, SystemClock};

use crate::removal;

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

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Whatever the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>>;

    /// Makes a new file for writing; fails if it exists.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;

    /// Makes a folder and those above it.
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

    /// The descriptor, if this is a file of the operating system; see [`ReadAt::as_fd`].
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
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

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalStorage;

impl Storage for LocalStorage {
    fn direct(&self) -> io::Result<Arc<dyn DirectStorage>> {
        Ok(Arc::new(LocalDirect::new()?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(file))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        removal::remove_dir_all(path)
    }

    fn remove_empty_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(path)?.map(|entry| {
            let name = entry?.file_name();
            Ok(name.to_string_lossy().into_owned())
        });
        names.collect()
    }

    fn folder_id(&self, path: &Path) -> io::Result<FolderId> {
        let metadata = fs::metadata(path)?;
        Ok(FolderId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // A copy over a name that exists could empty the file itself.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                let mut copy = OpenOptions::new().write(true).create_new(true).open(to)?;
                io::copy(&mut File::open(from)?, &mut copy)?;
                copy.sync_all()
            }
            linked => linked,
        }
    }
}

impl ReadableFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }

    fn cached_pages(&self, bytes: Range<u64>) -> io::Result<u64> {
        cached_pages(AsFd::as_fd(self), bytes.start, bytes.end - bytes.start)
    }

    fn advise(&self, advice: Advice, bytes: Range<u64>) -> io::Result<()> {
        let advice = match advice {
            Advice::DontNeed => SystemAdvice::DontNeed,
            Advice::Sequential => SystemAdvice::Sequential,
        };
        // No length means up to the end.
        match NonZeroU64::new(bytes.end - bytes.start) {
            Some(len) => Ok(fadvise(self, bytes.start, Some(len), advice)?),
            None => Ok(()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        self.metadata().map(|m| m.len())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(AsFd::as_fd(self))
    }
}

impl WritableFile for File {
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        // Space in memory is had as quickly when it is needed.
        if has_disk(AsFd::as_fd(self)) {
            fallocate(&*self, FallocateFlags::empty(), 0, bytes)?;
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn start_writeback(&mut self, bytes: Range<u64>) -> io::Result<()> {
        match start_writeback(AsFd::as_fd(self), bytes.start, bytes.end - bytes.start) {
            // Then the sync does it all.
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done,
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A named file that is read at any offset; what backends see of inputs.
#[derive(Debug)]
pub struct InputFileReader {
    file: Box<dyn ReadableFile>,
    len: u64,
    name: String,
}

impl InputFileReader {
    /// Opens `path`; errors name it by its base name.
    ///
    /// # Errors
    /// Storage.
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<Self> {
        Self::try_open(storage, path).map_err(|e| Error::storage(&base_name(path), "open it", &e))
    }

    /// The file itself.
    pub fn inner(&self) -> &dyn ReadableFile {
        &*self.file
    }

    /// As [`InputFileReader::open`], for callers to whom it matters what the system says.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn try_open(storage: &dyn Storage, path: &Path) -> io::Result<Self> {
        let file = storage.open(path)?;
        Ok(Self {
            len: file.size()?,
            name: base_name(path),
            file,
        })
    }
}

impl ReadAt for InputFileReader {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.read_at(&mut buf[done..], at) {
                Ok(0) => return Err(Error::corruption(&self.name, at, "file ends too early")),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let error = Error::storage(&self.name, "read it", &e);
                    return Err(Error {
                        offset: Some(at),
                        ..error
                    });
                }
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}

/// Reads a whole file of at most `limit` bytes, from `offset`.
///
/// # Errors
/// Storage; a file that is longer is an error as well.
pub fn read_from(storage: &dyn Storage, path: &Path, offset: u64, limit: u64) -> Result<Vec<u8>> {
    let reader = InputFileReader::open(storage, path)?;
    let len = reader.len().saturating_sub(offset);
    if len > limit {
        let why = io::Error::other(format!("{len} bytes are more than {limit}"));
        return Err(Error::storage(reader.name(), "read it", &why));
    }
    let mut bytes = vec![0; len as usize];
    reader.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Calls `each` with all bytes of a file, in pieces.
///
/// # Errors
/// Storage; Corruption if the file ends too early; Cancelled.
pub fn for_each_piece(
    reader: &dyn ReadAt,
    cancel: &CancelToken,
    mut each: impl FnMut(&[u8]),
) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut piece = Vec::new();
    let mut at = 0;
    while at < reader.len() {
        cancel.check()?;
        piece.resize(PIECE_BYTES.min((reader.len() - at) as usize), 0);
        reader.read_exact_at(&mut piece, at)?;
        each(&piece);
        at += piece.len() as u64;
    }
    Ok(())
}

/// Last part of a path, for messages.
pub fn base_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
