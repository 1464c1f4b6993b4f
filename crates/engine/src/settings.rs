//! What a user can set.

use std::path::PathBuf;

use rockmill_core::Hints;
use rockmill_cuda::CudaSettings;

use crate::device::Device;

/// Settings of an engine; the defaults need no thought.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Slices in flight at most, over all jobs.
    pub threads: usize,
    /// Host memory that slices in flight hold at most, bytes.
    pub memory_budget_bytes: u64,
    /// Bytes to read at a time from each input; less where the budget demands it.
    pub read_ahead_bytes: usize,
    /// Every transaction database on this engine uses the WriteCommitted policy.
    pub write_committed: bool,
    /// What OPTIONS files leave out, for all column families.
    pub hints: Hints,
    /// Keep every job in this folder.
    pub record_dir: Option<PathBuf>,
    /// What slices run on.
    pub device: Device,
    /// How a GPU is used.
    pub cuda: CudaSettings,
}

/// Enough for two slices over a dozen inputs each; see `Backend::slice_memory_bytes`.
const DEFAULT_MEMORY_BUDGET_BYTES: u64 = 512 << 20;

/// Below this the output buffers of a single slice do not fit.
pub const MIN_MEMORY_BUDGET_BYTES: u64 = 32 << 20;

const DEFAULT_READ_AHEAD_BYTES: usize = 256 << 10;

/// Smallest read-ahead that the budget may force.
pub const MIN_READ_AHEAD_BYTES: usize = 16 << 10;

impl Default for Settings {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads,
            memory_budget_bytes: DEFAULT_MEMORY_BUDGET_BYTES,
            read_ahead_bytes: DEFAULT_READ_AHEAD_BYTES,
            write_committed: false,
            hints: Hints::default(),
            record_dir: None,
            device: Device::default(),
            cuda: CudaSettings::default(),
        }
    }
}

impl Settings {
    /// Checks that the settings make sense.
    ///
    /// # Errors
    /// One sentence that names the setting.
    pub fn check(&self) -> Result<(), String> {
        if self.threads == 0 {
            return Err("threads must be at least 1".to_owned());
        }
        if self.cuda.map_bytes == 0 || self.cuda.io_threads == 0 {
            return Err("cuda: map_bytes and io_threads must be at least 1".to_owned());
        }
        if self.memory_budget_bytes < MIN_MEMORY_BUDGET_BYTES {
            return Err(format!(
                "memory_budget_bytes is {}; it must be at least {MIN_MEMORY_BUDGET_BYTES}",
                self.memory_budget_bytes
            ));
        }
        Ok(())
    }
}
