//! Result of a job.

use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{CachedOutput, FileIdentity, OutputFile, SizeSample, TaskReport};
use rockmill_format::compression::Implementation;

use crate::known_tables::Keeper;

/// Result of a job.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Output files in key order.
    pub files: Vec<OutputFile>,
    /// Sums over the subcompactions, with stages by name; without files and without entries by input.
    pub totals: TaskReport,
    /// The files that devices have cached.
    pub cached: CachedFiles,
    /// Number of entries read.
    pub entries_read: u64,
    /// Number of subcompactions.
    pub subcompactions: usize,
    /// Wall time.
    pub elapsed: Duration,
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Filter bits per key, in thousandths, that the inputs' filters imply, if they were read and are certain.
    pub learned_filter: Option<u32>,
    /// Names of the devices that did the job's subcompactions, joined by `+`.
    pub device: String,
    /// Work of each of these devices, the CPU first.
    pub devices: Vec<DeviceWork>,
    /// The compressor of the files' blocks.
    pub compressed_by: Implementation,
    /// The same by name, with the library's version ([`CompressionSettings::compressor`]).
    ///
    /// [`CompressionSettings::compressor`]: rockmill_format::compression::CompressionSettings::compressor
    pub compressor: Option<String>,
    /// Sizes of some blocks, if Rockmill's own code compressed them.
    pub size_sample: SizeSample,
    /// Files that should have bypassed the page cache and could not.
    pub files_cached_instead: u64,
    /// Whether it called objects of the application.
    pub has_plugins: bool,
    /// Why the CPU did some or all of a configured device's work.
    pub device_refused: Option<String>,
}

impl Outcome {
    /// Bytes of the output files.
    pub fn bytes_written(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// Files of a job that devices have cached.
#[derive(Debug, Default)]
pub struct CachedFiles {
    /// Its output files, in any order. Caches drop those that are not installed.
    pub outputs: Vec<Arc<dyn CachedOutput>>,
    /// Keeps their tables.
    pub keeper: Option<Arc<Keeper>>,
    /// The inputs that devices may have cached.
    pub inputs: Vec<FileIdentity>,
    /// The unique ids of all inputs.
    pub input_ids: Vec<[u64; 2]>,
    /// The session of the job's database.
    pub session: String,
}

/// Work of a device on a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceWork {
    /// Name of the device.
    pub device: String,
    /// Number of subcompactions.
    pub subcompactions: u64,
    /// Stored bytes of their inputs.
    pub bytes: u64,
    /// Bytes of their files, if the device wrote them itself and not through the host; else 0.
    pub near_data_bytes: u64,
}
