//! A file in which a process records its progress. The contents survive the process, however it ends.
//!
//! It has the number of the last acknowledged batch of each writer, followed by the gauges. Each number has 8 bytes,
//! little-endian.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::script::WRITERS;
use crate::device::Subcompactions;

/// Size of a number in bytes.
const NUMBER_BYTES: usize = 8;
/// Number of fields of [`Gauges`].
const GAUGES: usize = 9;

/// Current activity of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// 1 once database and device are open.
    pub open: u64,
    /// Jobs with a staging folder that were not reported yet.
    pub computing: u64,
    /// Files in these folders and in reported jobs' folders, including taken ones.
    pub staged_files: u64,
    /// Jobs whose files are durable and whose folders still exist: reported and not taken, or about to be reported.
    pub installing: u64,
    /// Jobs whose files RocksDB took.
    pub jobs_done: u64,
    /// Snapshots that were read and were correct.
    pub snapshots_read: u64,
    /// Subcompactions of finished jobs by device, a few milliseconds ago.
    pub subcompactions: Subcompactions,
}

impl Gauges {
    fn to_numbers(self) -> [u64; GAUGES] {
        [
            self.open,
            self.computing,
            self.staged_files,
            self.installing,
            self.jobs_done,
            self.snapshots_read,
            self.subcompactions.cpu,
            self.subcompactions.device,
            self.subcompactions.redone,
        ]
    }

    fn from_numbers(numbers: [u64; GAUGES]) -> Self {
        let [
            open,
            computing,
            staged_files,
            installing,
            jobs_done,
            snapshots_read,
            cpu,
            device,
            redone,
        ] = numbers;
        Self {
            open,
            computing,
            staged_files,
            installing,
            jobs_done,
            snapshots_read,
            subcompactions: Subcompactions {
                cpu,
                device,
                redone,
            },
        }
    }
}

/// The open file.
#[derive(Debug)]
pub struct Progress(File);

impl Progress {
    /// Creates the file with earlier acknowledged batches; replaces an older file.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn create(path: &Path, acknowledged: &[u64]) -> io::Result<Self> {
        let progress = Self(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?,
        );
        for (writer, &number) in acknowledged.iter().take(WRITERS).enumerate() {
            progress.acknowledge(writer, number)?;
        }
        progress.show(Gauges::default())?;
        Ok(progress)
    }

    /// Opens the file.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self(file))
    }

    fn put(&self, at: usize, numbers: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.0.write_all_at(&bytes, (at * NUMBER_BYTES) as u64)
    }

    fn get(&self, at: usize) -> io::Result<u64> {
        let mut bytes = [0; NUMBER_BYTES];
        self.0
            .read_exact_at(&mut bytes, (at * NUMBER_BYTES) as u64)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Records that batch `number` of `writer` was written.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn acknowledge(&self, writer: usize, number: u64) -> io::Result<()> {
        self.put(writer, &[number])
    }

    /// Returns the numbers of the last acknowledged batches.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn acknowledged(&self) -> io::Result<[u64; WRITERS]> {
        let mut numbers = [0; WRITERS];
        for (writer, number) in numbers.iter_mut().enumerate() {
            *number = self.get(writer)?;
        }
        Ok(numbers)
    }

    /// Records the gauges.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn show(&self, gauges: Gauges) -> io::Result<()> {
        self.put(WRITERS, &gauges.to_numbers())
    }

    /// Reads the gauges.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn gauges(&self) -> io::Result<Gauges> {
        let mut numbers = [0; GAUGES];
        for (position, number) in numbers.iter_mut().enumerate() {
            *number = self.get(WRITERS + position)?;
        }
        Ok(Gauges::from_numbers(numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_wrote_another_reads() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("progress");
        let mine = Progress::create(&path, &[5, 6, 7, 8]).expect("created");
        let theirs = Progress::open(&path).expect("opened");
        theirs.acknowledge(1, 9).expect("written");
        let gauges = Gauges {
            computing: 2,
            snapshots_read: 3,
            subcompactions: Subcompactions {
                cpu: 4,
                device: 5,
                redone: 6,
            },
            ..Gauges::default()
        };
        theirs.show(gauges).expect("written");
        assert_eq!(mine.acknowledged().expect("read"), [5, 9, 7]);
        assert_eq!(mine.gauges().expect("read"), gauges);
    }
}
