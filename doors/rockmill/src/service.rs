//! The part of the engine that is public.

use std::sync::Arc;

use rockmill_compaction::{Engine, Executor, MutableSettings, ServiceJobs, Stats};

use crate::builder::Builder;

/// Runs RocksDB's compactions.
///
/// Pass a clone to `Options::set_compaction_service`; keep one for [`Service::stats`]. Clones share threads, memory and
/// counters, so one service serves any number of databases. Give each database its own clone: when a database closes,
/// only the jobs that came through its clone stop.
///
/// A forked child has none of the service's threads. There, the service takes no jobs, and RocksDB does all compactions.
///
/// Do not use a compaction service for a database whose paths (`db_paths`, `cf_paths`) are on different file systems.
/// RocksDB installs results by renaming them, and treats a failed rename as a fatal error. A service does not see these
/// paths before a file is in a second one.
#[derive(Debug, Clone)]
pub struct Service {
    jobs: ServiceJobs,
}

impl Service {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let jobs = ServiceJobs::new(engine);
        Self { jobs }
    }

    /// Returns a builder with default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the current values of the settings that can change. They are the same for all clones.
    pub fn settings(&self) -> MutableSettings {
        self.jobs.engine().settings()
    }

    /// Changes settings for all clones, all of them at once. If one is invalid, none is changed.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rockmill = rockmill::Service::builder().build()?;
    /// rockmill.change_settings(|settings| {
    ///     settings.threads = 2;
    ///     settings.nice = 10;
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Running subcompactions continue; [`MutableSettings`] documents when each setting takes effect.
    ///
    /// # Errors
    /// One sentence that names the invalid setting.
    pub fn change_settings(
        &self,
        change: impl FnOnce(&mut MutableSettings),
    ) -> Result<(), crate::Error> {
        self.jobs
            .engine()
            .change_settings(change)
            .map_err(crate::builder::Error)
    }

    /// Cancels all running and waiting jobs, through all clones. RocksDB does them itself, and they count as declined
    /// with the reason `cancelled`. Later jobs are accepted, unless the setting `paused` is on.
    ///
    /// `DB::disable_manual_compaction` does not cancel a job: it waits for its end. Call this before it.
    pub fn cancel_jobs(&self) {
        self.jobs.engine().cancel_jobs();
    }

    /// Waits until the configured devices are open. They are opened in the background, which takes a few tenths of a
    /// second. Before that, and if no device can be used, the CPU does all jobs.
    ///
    /// # Errors
    /// One sentence that names what is missing, if a named device cannot be used.
    pub fn wait_for_device(&self) -> Result<(), crate::Error> {
        let waited = self.jobs.engine().wait_for_device();
        waited.map_err(crate::builder::Error)
    }

    /// Describes the choice of [`Device::Auto`](crate::Device::Auto), as a sentence without a full stop. `None` for
    /// other devices, and before the choice is made.
    pub fn device_choice(&self) -> Option<&str> {
        self.jobs.engine().device_choice()
    }

    /// Returns the work done so far, through all clones.
    pub fn stats(&self) -> Stats {
        self.jobs.engine().stats()
    }

    /// Threads, memory and devices of all clones, for a `rockmill_scan::ScanEngine` that shares them. They last as long
    /// as the service or the engine.
    pub fn executor(&self) -> Arc<Executor> {
        Arc::clone(self.jobs.engine().executor())
    }

    /// The methods that RocksDB calls; for the crate rockmill-rocksdb.
    #[doc(hidden)]
    pub fn jobs(&self) -> &ServiceJobs {
        &self.jobs
    }
}
