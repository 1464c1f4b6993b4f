//! What a job runs with.

use std::sync::Arc;

use rockmill_core::{CancelToken, Result};

use crate::eligibility::EligibleJob;
use crate::stats::StatsCell;
use crate::verify::Verification;
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::executor::Executor;
use rockmill_storage::Storage;
use rockmill_storage::clock::Clock;
use rockmill_storage::descriptors::Descriptors;
use rockmill_storage::io::OutputCache;
use rockmill_storage::io::{JobIo, RateLimiter};

/// What a job runs with.
#[derive(Debug)]
pub struct RunContext<'a> {
    /// Runs the subcompactions.
    pub executor: &'a Executor,
    /// The open devices beside the CPU.
    pub devices: Vec<DeviceEntry>,
    /// How sure to be of the output.
    pub verification: Verification,
    /// Whether output goes through the page cache.
    pub output_cache: OutputCache,
    /// The file system.
    pub storage: &'a Arc<dyn Storage>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// Shared with other jobs.
    pub limiter: &'a Arc<RateLimiter>,
    /// Shared with other jobs.
    pub descriptors: &'a Arc<Descriptors>,
    /// Threads that sync and check finished files.
    pub sync_threads: usize,
    /// Bytes to read at a time from each input.
    pub read_ahead_bytes: usize,
    /// Set when the database closes.
    pub cancel: &'a CancelToken,
    /// Counts for all jobs.
    pub counters: &'a Arc<StatsCell>,
}

impl RunContext<'_> {
    /// What the files of a job share.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn files(&self, eligible: &EligibleJob) -> Result<Arc<JobIo>> {
        let options = eligible.io()?.with_outputs(self.output_cache);
        let io = JobIo::new(Arc::clone(self.storage), self.cancel.child()).with_options(options);
        // A subcompaction that is made again to verify it takes the place of one that is made.
        let max_waiting = match (self.sync_threads, self.verification) {
            (1.., Verification::Default) => self.executor.budget().slots(),
            _ => 0,
        };
        Ok(Arc::new(io.sharing(
            self.limiter,
            self.descriptors,
            max_waiting,
        )))
    }
}
