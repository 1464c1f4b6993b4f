//! The files beneath one folder, read-only: no path and no link leads out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::{FolderId, LocalStorage, ReadableFile, Storage, WritableFile};

/// The files beneath a folder. The kernel resolves each path beneath it (`openat2` with RESOLVE_BENEATH), so a symbolic
/// link that leads elsewhere is an error, also if it is made while this process runs. Nothing can be written.
#[derive(Debug)]
pub struct Rooted {
    path: PathBuf,
    folder: OwnedFd,
}

impl Rooted {
    /// The files beneath this folder.
    ///
    /// # Errors
    /// The operating system's error; Unsupported on a kernel before 5.6.
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = std::fs::canonicalize(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::empty())?;
        let rooted = Self { path, folder };
        // Fails here rather than for each file.
        rooted.resolve(Path::new("."), OFlags::PATH)?;
        Ok(rooted)
    }

    /// The folder, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The absolute path of a path that is relative to the folder or lies beneath it.
    ///
    /// # Errors
    /// PermissionDenied if it leads out of the folder.
    pub fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(self.path.join(self.relative(path)?))
    }

    fn relative<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        let relative = match path.is_absolute() {
            true => path.strip_prefix(&self.path).map_err(|_| outside())?,
            false => path,
        };
        match relative
            .components()
            .any(|part| part == Component::ParentDir)
        {
            true => Err(outside()),
            false => Ok(relative),
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let relative = match self.relative(path)? {
            empty if empty.as_os_str().is_empty() => Path::new("."),
            relative => relative,
        };
        // Links of /proc would lead anywhere.
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        openat2(&self.folder, relative, flags, Mode::empty(), beneath).map_err(
            |error| match error {
                Errno::XDEV | Errno::LOOP => outside(),
                Errno::NOSYS => {
                    let what = "a worker needs Linux 5.6 or newer (openat2)";
                    io::Error::new(io::ErrorKind::Unsupported, what)
                }
                error => error.into(),
            },
        )
    }

    /// A path of an open file or folder that leads exactly there.
    fn metadata(&self, path: &Path) -> io::Result<std::fs::Metadata> {
        File::from(self.resolve(path, OFlags::PATH)?).metadata()
    }
}

fn outside() -> io::Error {
    let what = "it lies outside of the worker's root, or a link on the way leads out of it";
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Storage for Rooted {
    fn descriptors_left(&self) -> Option<u64> {
        LocalStorage.descriptors_left()
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        // Opening a pipe would wait for its writer.
        let file = File::from(self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        match file.metadata()?.is_file() {
            true => Ok(Box::new(file)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            )),
        }
    }

    fn mode(&self, path: &Path) -> io::Result<u32> {
        Ok(self.metadata(path)?.mode())
    }

    fn create(&self, _: &Path, _: u32) -> io::Result<Box<dyn WritableFile>> {
        read_only()
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_empty_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let folder = self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)?;
        LocalStorage.list(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())))
    }

    fn folder_id(&self, path: &Path) -> io::Result<FolderId> {
        let metadata = self.metadata(path)?;
        Ok(FolderId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    fn is_own_folder(&self, _: &Path) -> io::Result<bool> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn link_or_copy(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_path_and_no_link_leads_out_of_the_root() {
        let all = tempfile::tempdir().expect("a folder");
        let root = all.path().join("root");
        std::fs::create_dir_all(root.join("db")).expect("made");
        std::fs::create_dir(all.path().join("other")).expect("made");
        for name in ["root/db/CURRENT", "other/CURRENT"] {
            std::fs::write(all.path().join(name), name).expect("written");
        }
        symlink("db", root.join("within")).expect("linked");
        symlink(all.path().join("other"), root.join("absolute")).expect("linked");
        symlink("../other", root.join("relative")).expect("linked");
        symlink("/proc/self/cwd", root.join("magic")).expect("linked");
        symlink("../../other/CURRENT", root.join("db/file")).expect("linked");
        let rooted = Rooted::new(&root).expect("opened");
        let root = rooted.path().to_owned();
        let opens = |path: &str| {
            rooted
                .open(&root.join(path))
                .map(drop)
                .map_err(|e| e.kind())
        };
        assert_eq!(opens("db/CURRENT"), Ok(()));
        assert_eq!(opens("within/CURRENT"), Ok(()));
        assert_eq!(
            rooted.open(Path::new("db/CURRENT")).map(drop).ok(),
            Some(())
        );
        assert_eq!(rooted.list(&root.join("db")).expect("listed").len(), 2);
        let denied = Err(io::ErrorKind::PermissionDenied);
        for path in [
            "absolute/CURRENT",
            "relative/CURRENT",
            "magic/CURRENT",
            "db/file",
            "../other/CURRENT",
        ] {
            assert_eq!(opens(path), denied, "{path}");
        }
        assert_eq!(
            rooted
                .open(&all.path().join("other/CURRENT"))
                .map(drop)
                .map_err(|e| e.kind()),
            denied
        );
        assert!(rooted.list(&root.join("relative")).is_err());
        assert!(rooted.folder_id(&root.join("absolute")).is_err());
        assert_eq!(opens("db"), Err(io::ErrorKind::InvalidInput));
        assert!(rooted.remove_file(&root.join("db/CURRENT")).is_err());
        assert!(root.join("db/CURRENT").exists());
    }
}
