//! Starts writeback of dirty pages before a sync waits for them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Begins to write `len` bytes of a file at `offset` from the page cache to the disk. It waits only for room in the
/// device's queue. The bytes are durable only after a sync, which then has less to do.
///
/// # Errors
/// The system's error; `EOPNOTSUPP`, `ENOSYS` or `ESPIPE` if the file does not support it, `EINVAL` for offsets beyond
/// `i64`.
pub fn start_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let number = |n: u64| i64::try_from(n).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let (offset, len) = (number(offset)?, number(len)?);
    // SAFETY: the descriptor is open as long as it is borrowed, and no memory is passed.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn ranges_within_and_behind_a_file_are_taken() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[1; 10_000]).expect("room");
        for (offset, len) in [(0, 10_000), (1, 1), (4096, 0), (1 << 40, 1)] {
            start_writeback(file.as_fd(), offset, len).expect("a regular file");
        }
    }

    #[test]
    fn what_is_no_range_or_no_file_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        assert!(start_writeback(file.as_fd(), u64::MAX, 1).is_err());
        let null = File::open("/dev/null").expect("it is there");
        assert!(start_writeback(null.as_fd(), 0, 1).is_err());
    }
}
