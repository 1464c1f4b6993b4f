//! The operating system's file system.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rockmill_sysio::{cached_pages, has_disk, start_writeback};
use rustix::fs::{Advice as SystemAdvice, FallocateFlags, OFlags, fadvise, fallocate};
use rustix::process::{Resource, geteuid, getrlimit};

use super::direct::{DirectStorage, LocalDirect};
use super::{Advice, FolderId, ReadableFile, Storage, WritableFile};
use crate::files::removal;

/// Mode of created folders: other users can neither read nor change anything in them.
const FOLDER_MODE: u32 = 0o700;

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalStorage;

impl Storage for LocalStorage {
    fn direct(&self) -> io::Result<Arc<dyn DirectStorage>> {
        Ok(Arc::new(LocalDirect::new()?))
    }

    fn descriptors_left(&self) -> Option<u64> {
        let limit = getrlimit(Resource::Nofile).current?;
        let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Some(limit.saturating_sub(open))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        // Without the flag, this would wait for a process that writes to a FIFO.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(flags).open(path)?;
        let kind = file.metadata()?.file_type();
        match kind.is_file() || kind.is_dir() {
            true => Ok(Box::new(file)),
            false => Err(io::Error::other("it is not a regular file")),
        }
    }

    fn mode(&self, path: &Path) -> io::Result<u32> {
        Ok(fs::metadata(path)?.mode())
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WritableFile>> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(path)?;
        Ok(Box::new(file))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(path)
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

    fn is_own_folder(&self, path: &Path) -> io::Result<bool> {
        /// Write permission for others.
        const WRITABLE_BY_OTHERS: u32 = 0o002;
        let metadata = fs::symlink_metadata(path)?;
        let is_private = metadata.is_dir() && metadata.mode() & WRITABLE_BY_OTHERS == 0;
        let owner = metadata.uid();
        // The owner of the parent folder can do anything here as well. Some file systems change the owner of files that
        // the process creates.
        let above = || path.parent().and_then(|above| fs::metadata(above).ok());
        let is_trusted = owner == geteuid().as_raw() || above().is_some_and(|m| m.uid() == owner);
        Ok(is_private && is_trusted)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // A copy onto an existing name that is a link to the same file would empty that file.
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
        // For `fadvise`, no length means up to the end of the file, so an empty range needs no call.
        match NonZeroU64::new(bytes.end - bytes.start) {
            Some(len) => Ok(fadvise(self, bytes.start, Some(len), advice)?),
            None => Ok(()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        self.metadata().map(|m| m.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(AsFd::as_fd(self))
    }
}

impl WritableFile for File {
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        // A file system in memory gains nothing from preallocation.
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
            // The sync writes everything then.
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done,
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::Mode;
    use rustix::process::umask;

    use super::*;
    use crate::FILE_MODE;

    #[test]
    fn files_are_no_more_writable_than_was_asked_for_whatever_the_umask() {
        let dir = tempfile::tempdir().expect("a folder");
        let usual = umask(Mode::empty());
        let modes = [FILE_MODE, 0o600].map(|mode| {
            let path = dir.path().join(format!("{mode:o}"));
            LocalStorage.create(&path, mode).expect("made");
            LocalStorage.mode(&path).expect("it is there") & 0o777
        });
        umask(usual);
        assert_eq!(modes, [FILE_MODE, 0o600]);
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("000001.sst");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .expect("made");
        let error = LocalStorage.open(&path).expect_err("it is no file");
        assert_eq!(error.to_string(), "it is not a regular file");
        assert!(LocalStorage.open(dir.path()).is_ok());
    }
}
