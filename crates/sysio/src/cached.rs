//! Tells which parts of a file the page cache has, and whether there is a device below it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::fstatfs;

/// `cachestat(2)` of Linux 6.5; the number is the same on all architectures that Rust's standard library supports.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Stat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Number of pages in the page cache with some of the `len` bytes of a file at `offset`, including pages that are just
/// being read. Nothing is read for it. With `len` 0, the range goes up to the end of the file.
///
/// # Errors
/// The system's error; Unsupported before Linux 6.5 and where the call is forbidden.
pub fn cached_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    let range = Range { offset, len };
    let mut stat = Stat::default();
    // SAFETY: the kernel reads the one struct and fills the other, which have its layout and live until
    // it returns.
    let done = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0,
        )
    };
    match done {
        0 => Ok(stat.cached),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a file is on a file system with a disk.
pub fn has_disk(file: BorrowedFd<'_>) -> bool {
    /// `linux/magic.h`.
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    fstatfs(file).is_ok_and(|s| ![TMPFS_MAGIC, RAMFS_MAGIC].contains(&s.f_type))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_was_just_written_is_cached_if_anybody_can_tell() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[1; 100_000]).expect("room");
        match cached_pages(file.as_fd(), 0, 100_000) {
            Ok(pages) => {
                assert!(pages > 0);
                let behind = cached_pages(file.as_fd(), 1 << 30, 4096);
                assert_eq!(behind.expect("as before"), 0);
            }
            Err(e) => println!("this kernel cannot tell: {e}"),
        }
    }
}
