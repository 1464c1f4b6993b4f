//! What a job runs with.

use std::sync::Arc;

use rockmill_core::{CancelToken, Result};
use rockmill_cpu::CpuBackend;

use crate::eligibility::Admitted;
use crate::stats::StatsCell;
use crate::verify::Verification;
use rockmill_exec::Patience;
use rockmill_exec::budget::Budget;
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::pace::Paces;
use rockmill_storage::Storage;
use rockmill_storage::clock::Clock;
use rockmill_storage::descriptors::Descriptors;
use rockmill_storage::io::OutputCache;
use rockmill_storage::io::{JobIo, RateLimiter};

/// What a job runs with.
#[derive(Debug)]
pub struct RunContext<'a> {
    /// What subcompactions run on beside the CPU, where it can do them.
    pub devices: Vec<DeviceEntry<'a>>,
    /// What does the others, and makes subcompactions again to verify them.
    pub cpu: &'a CpuBackend,
    /// Whether the CPU also takes subcompactions that other devices can do.
    pub host_shares: bool,
    /// How long subcompactions take on each device.
    pub paces: &'a Paces,
    /// How long a subcompaction on another device than the CPU is waited for at least.
    pub patience: Patience,
    /// How sure to be of the output.
    pub verification: Verification,
    /// Whether output goes through the page cache.
    pub output_cache: OutputCache,
    /// The file system.
    pub storage: &'a Arc<dyn Storage>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// Shared with other jobs.
    pub budget: &'a Arc<Budget>,
    /// Shared with other jobs.
    pub limiter: &'a Arc<RateLimiter>,
    /// Shared with other jobs.
    pub descriptors: &'a Arc<Descriptors>,
    /// Threads that sync and check finished files.
    pub sync_threads: usize,
    /// Bytes to read at a time from each input.
    pub read_ahead_bytes: usize,
    /// Told when the database closes.
    pub cancel: &'a CancelToken,
    /// Told of progress.
    pub counters: &'a StatsCell,
}

impl RunContext<'_> {
    /// What the files of a job share.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn files(&self, admitted: &Admitted<'_>) -> Result<Arc<JobIo>> {
        let options = admitted.io()?.with_outputs(self.output_cache);
        let io = JobIo::new(Arc::clone(self.storage), self.cancel.child()).with_options(options);
        // A subcompaction that is made again to verify it takes the place of one that is made.
        let max_waiting = match (self.sync_threads, self.verification) {
            (1.., Verification::Default) => self.budget.slots(),
            _ => 0,
        };
        Ok(Arc::new(io.sharing(
            self.limiter,
            self.descriptors,
            max_waiting,
        )))
    }
}
