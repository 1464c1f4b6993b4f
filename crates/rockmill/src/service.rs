//! RocksDB's interface to the engine.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rockmill_compaction::{Engine, Installation, MutableSettings, ServiceJobs, Stats};
use rockmill_core::JobInfo;
use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, EnvPriority,
    ScheduleResponse,
};

use crate::builder::Builder;

/// Runs RocksDB's compactions.
///
/// Pass a clone to `Options::set_compaction_service`; keep one for [`Service::stats`]. Clones share threads, memory and
/// counters, so one service serves any number of databases. Give each database its own clone: when a database closes,
/// only the jobs that came through its clone stop.
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
    /// Running subcompactions go on; [`MutableSettings`] says when each setting takes effect.
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

    /// Waits until the configured devices are open. They are opened in the background, which takes a few tenths of a
    /// second. Before that, and if no device can be used, the CPU does all jobs.
    ///
    /// # Errors
    /// One sentence about what is missing, if a device that was named cannot be used.
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
}

/// A reason that rust-rocksdb does not know is no reason of RocksDB 11.12.
const UNKNOWN_REASON: i32 = -1;

fn job_info(info: &CompactionServiceJobInfo<'_>) -> JobInfo {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let reason = info.compaction_reason();
    JobInfo {
        db_name: text(info.db_name()),
        db_session_id: text(info.db_session_id()),
        cf_id: info.cf_id(),
        job_id: info.job_id(),
        reason: reason.map_or(UNKNOWN_REASON, |reason| reason as i32),
        is_full_compaction: info.is_full_compaction(),
        is_manual_compaction: info.is_manual_compaction(),
        is_bottommost_level: info.is_bottommost_level(),
        base_input_level: info.base_input_level(),
        output_level: info.output_level(),
        is_in_bottom_pool: info.priority() == Some(EnvPriority::Bottom),
    }
}

impl CompactionService for Service {
    fn name(&self) -> &CStr {
        c"Rockmill"
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        let use_local = || ScheduleResponse::from_status(CompactionServiceJobStatus::UseLocal);
        let dir = Path::new(OsStr::from_bytes(info.db_name()));
        match self.jobs.schedule(dir, job_info(info), input) {
            Ok(id) => ScheduleResponse::scheduled(&id, CompactionServiceJobStatus::Success)
                .unwrap_or_else(|_| use_local()),
            Err(_) => use_local(),
        }
    }

    fn wait(&self, scheduled_job_id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        match self.jobs.wait(scheduled_job_id.to_bytes()) {
            Ok(message) => {
                *result = message;
                CompactionServiceJobStatus::Success
            }
            Err(_) => CompactionServiceJobStatus::UseLocal,
        }
    }

    fn cancel_awaiting_jobs(&self) {
        self.jobs.cancel_awaiting_jobs();
    }

    fn on_installation(&self, scheduled_job_id: &CStr, status: Option<CompactionServiceJobStatus>) {
        let installation = match status {
            Some(CompactionServiceJobStatus::Success) => Installation::Success,
            Some(CompactionServiceJobStatus::Failure) => Installation::Failure,
            _ => Installation::Unused,
        };
        self.jobs
            .on_installation(scheduled_job_id.to_bytes(), installation);
    }
}
