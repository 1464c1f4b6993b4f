//! What a job came to.

use std::time::Duration;

use rockmill_core::{OutputFile, TaskReport};

/// What a job came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Output files in key order.
    pub files: Vec<OutputFile>,
    /// Sums over the subcompactions, of stages by name; files and entries by input are left out.
    pub totals: TaskReport,
    /// Entries read in all.
    pub entries_read: u64,
    /// Number of subcompactions.
    pub subcompactions: usize,
    /// From start to end.
    pub elapsed: Duration,
    /// Processor time of all threads.
    pub cpu: Duration,
    /// Thousandths of a bit a key that the inputs' filters were found to have, if they were asked
    /// and left no doubt.
    pub learned_filter: Option<u32>,
    /// Names of the devices that did the job's subcompactions, joined by `+`.
    pub device: String,
    /// What each of them did, the CPU first.
    pub devices: Vec<DeviceWork>,
    /// Files that were to pass by the page cache and could not.
    pub files_cached_instead: u64,
    /// Why a configured device did not do all that it was to do, if the CPU did some of it instead.
    pub device_refused: Option<String>,
}

impl Outcome {
    /// Bytes of the output files.
    pub fn bytes_written(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// What a device did of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceWork {
    /// Its name.
    pub device: String,
    /// Subcompactions.
    pub subcompactions: u64,
    /// Stored bytes of their input.
    pub bytes: u64,
    /// Bytes of their files, where it wrote these itself and not through the host; else 0.
    pub near_data_bytes: u64,
}
