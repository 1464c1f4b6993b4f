//! Times for moving a job's bytes through the page cache and to the disk without other work. A compaction that reads
//! and writes in the same way cannot be faster.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use rockmill_terminal::outcome::Failure;
use rustix::fs::OFlags;
use serde::Serialize;
use tempfile::TempDir;

/// Size of each file; the last one is smaller.
const FILE_BYTES: u64 = 64 << 20;

/// Bytes written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Alignment of addresses, lengths and offsets of direct writes.
const ALIGNMENT: usize = 4096;

/// Seconds for the output's bytes in several ways, in files of 64 MiB, with one file per thread at a time.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct DiskFloor {
    /// Syncing them when all are in the page cache.
    pub sync_s: f64,
    /// Writing them into the page cache before that.
    pub write_s: f64,
    /// Writing them with direct I/O, and syncing; `None` if the file system has no direct I/O.
    pub direct_s: Option<f64>,
    /// Copying the input's number of bytes out of the page cache and the output's number into it, in parallel.
    pub copy_s: f64,
}

impl DiskFloor {
    /// Measures in a separate folder in `dir`, for `bytes` bytes of output, rounded to MiB, and `bytes_in` bytes of
    /// input.
    ///
    /// # Errors
    /// Environment if an operation fails.
    pub fn measure(dir: &Path, bytes_in: u64, bytes: u64, threads: u32) -> Result<Self, Failure> {
        let failed =
            |e: io::Error| Failure::Environment(format!("the disk of {}: {e}", dir.display()));
        let folder = || tempfile::Builder::new().prefix("floor-").tempdir_in(dir);
        let files = bytes.div_ceil(FILE_BYTES);
        let len = |i: u64| {
            (bytes - i * FILE_BYTES)
                .min(FILE_BYTES)
                .next_multiple_of(PIECE_BYTES as u64)
        };
        let cached = folder().map_err(failed)?;
        let piece = piece();
        let (write_s, open) =
            timed(|| at_once(files, threads, |i| write(&cached, i, len(i), &piece)))
                .map_err(failed)?;
        let sync = |i: u64| open[i as usize].sync_all();
        let (sync_s, _) = timed(|| at_once(files, threads, sync)).map_err(failed)?;
        let again = folder().map_err(failed)?;
        let reads = bytes_in as f64 / bytes.max(1) as f64;
        let copy = |i: u64| copy(&open[i as usize], reads, &again, i, len(i), &piece);
        let (copy_s, _) = timed(|| at_once(files, threads, copy)).map_err(failed)?;
        drop((open, cached, again));
        let direct = folder().map_err(failed)?;
        let direct_s =
            match timed(|| at_once(files, threads, |i| write_directly(&direct, i, len(i)))) {
                Ok((seconds, _)) => Some(seconds),
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => None,
                Err(e) => return Err(failed(e)),
            };
        Ok(Self {
            sync_s,
            write_s,
            direct_s,
            copy_s,
        })
    }

    /// Returns the lower times of two measurements.
    pub fn least(self, other: Self) -> Self {
        let direct_s = match (self.direct_s, other.direct_s) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            sync_s: self.sync_s.min(other.sync_s),
            write_s: self.write_s.min(other.write_s),
            direct_s,
            copy_s: self.copy_s.min(other.copy_s),
        }
    }

    /// Describes the times in one line.
    pub fn summary(&self) -> String {
        let direct = match self.direct_s {
            Some(seconds) => format!("{seconds:.3} s with direct I/O"),
            None => "there is no direct I/O".to_owned(),
        };
        format!(
            "as many bytes by themselves: {:.3} s into the page cache, then {:.3} s to sync; {direct}; {:.3} s with the \
             input's bytes copied out of the page cache at once",
            self.write_s, self.sync_s, self.copy_s
        )
    }
}

fn timed<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<(f64, T)> {
    let started = Instant::now();
    let done = work()?;
    Ok((started.elapsed().as_secs_f64(), done))
}

/// Runs work for each file on `threads` threads. Returns the results in order, or the first error.
fn at_once<T: Send>(
    files: u64,
    threads: u32,
    each: impl Fn(u64) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let threads = u64::from(threads.max(1));
    let mut done = std::thread::scope(|scope| {
        let part = |thread: u64| {
            let each = &each;
            let work = move || {
                (thread..files)
                    .step_by(threads as usize)
                    .map(|i| Ok((i, each(i)?)))
            };
            scope.spawn(move || work().collect::<io::Result<Vec<_>>>())
        };
        let spawned: Vec<_> = (0..threads.min(files)).map(part).collect();
        let mut all = Vec::new();
        for thread in spawned {
            let part = thread.join().map_err(|_| io::Error::other("a panic"))?;
            all.extend(part?);
        }
        Ok::<_, io::Error>(all)
    })?;
    done.sort_by_key(|&(i, _)| i);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}

/// Bytes that a disk cannot compress.
fn piece() -> Vec<u8> {
    /// An odd step, so that its multiples take all values.
    const STEP: u32 = 0x9e37_79b9;
    let noise = |i: usize| (i as u32).wrapping_mul(STEP) >> 24;
    (0..PIECE_BYTES + ALIGNMENT)
        .map(|i| noise(i) as u8)
        .collect()
}

fn write(folder: &TempDir, number: u64, len: u64, piece: &[u8]) -> io::Result<File> {
    let path = folder.path().join(number.to_string());
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    for _ in 0..len / PIECE_BYTES as u64 {
        file.write_all(&piece[..PIECE_BYTES])?;
    }
    Ok(file)
}

/// Writes a file as [`write()`] does, and reads `reads` times its length from another file.
fn copy(
    from: &File,
    reads: f64,
    folder: &TempDir,
    number: u64,
    len: u64,
    piece: &[u8],
) -> io::Result<()> {
    let path = folder.path().join(number.to_string());
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut read = vec![0; PIECE_BYTES];
    let (pieces, mut done) = (len / PIECE_BYTES as u64, 0);
    for written in 1..=pieces {
        file.write_all(&piece[..PIECE_BYTES])?;
        while (done as f64) < written as f64 * reads {
            from.read_exact_at(&mut read, done % pieces * PIECE_BYTES as u64)?;
            done += 1;
        }
    }
    Ok(())
}

fn write_directly(folder: &TempDir, number: u64, len: u64) -> io::Result<()> {
    let path = folder.path().join(number.to_string());
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(path)?;
    // Extended beforehand, because writes that extend a file are serialized.
    file.set_len(len)?;
    let piece = piece();
    let start = piece.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let piece = &piece[start..start + PIECE_BYTES];
    for offset in (0..len).step_by(PIECE_BYTES) {
        file.write_all_at(piece, offset)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let floor = DiskFloor::measure(dir.path(), 4 * FILE_BYTES, FILE_BYTES + 1, 2);
        let floor = floor.expect("room");
        assert!(floor.sync_s >= 0.0 && floor.write_s > 0.0 && floor.copy_s > 0.0);
        let left = dir.path().read_dir().expect("it is there").count();
        assert_eq!(left, 0);
    }

    #[test]
    fn all_files_are_done_whatever_the_threads_and_errors_are_told() {
        for threads in [0, 1, 3, 9] {
            let done = at_once(7, threads, Ok).expect("no error");
            assert_eq!(done, (0..7).collect::<Vec<_>>());
        }
        let failed = at_once(7, 2, |i| match i {
            5 => Err(io::Error::other("five")),
            _ => Ok(()),
        });
        assert_eq!(failed.expect_err("one fails").to_string(), "five");
    }
}
