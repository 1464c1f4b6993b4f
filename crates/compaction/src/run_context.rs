//! Context of a job.

use std::sync::Arc;

use rockmill_core::{CancelToken, Result};

use crate::eligibility::EligibleJob;
use crate::known_tables::KnownTables;
use crate::settings::MutableSettings;
use crate::stats::StatsCell;
use crate::verify::Verification;
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::executor::Executor;
use rockmill_storage::Storage;
use rockmill_storage::clock::Clock;
use rockmill_storage::descriptors::Descriptors;
use rockmill_storage::io::{JobIo, RateLimiter};

/// Context of a job.
#[derive(Debug)]
pub struct RunContext<'a> {
    /// Runs the subcompactions.
    pub executor: &'a Executor,
    /// The open devices other than the CPU.
    pub devices: Vec<DeviceEntry>,
    /// The settings at the job's start.
    pub settings: MutableSettings,
    /// The file system.
    pub storage: &'a Arc<dyn Storage>,
    /// Clock of the storage.
    pub clock: Arc<dyn Clock>,
    /// Shared with other jobs.
    pub limiter: &'a Arc<RateLimiter>,
    /// Shared with other jobs.
    pub descriptors: &'a Arc<Descriptors>,
    /// Number of threads that sync and verify finished files.
    pub sync_threads: usize,
    /// Tables of all databases that need not be read again.
    pub known_tables: &'a Arc<KnownTables>,
    /// Set when the database closes.
    pub cancel: &'a CancelToken,
    /// Counters of all jobs.
    pub counters: &'a Arc<StatsCell>,
}

impl RunContext<'_> {
    /// Creates the state shared by the files of a job.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn files(&self, eligible: &EligibleJob) -> Result<Arc<JobIo>> {
        let options = eligible.io()?.with_outputs(self.settings.output_cache);
        let io = JobIo::new(Arc::clone(self.storage), self.cancel.child()).with_options(options);
        // A subcompaction that is repeated for verification uses the memory of a running one. So its files do not wait
        // for other threads.
        let max_waiting = match (self.sync_threads, self.settings.verification) {
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
