//! RocksDB's interface to the engine.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rockmill_compaction::staging::StagingDir;
use rockmill_compaction::{EligibleJob, Engine, MutableSettings, Stats, guarded};
use rockmill_core::{CancelToken, DeclineReason, Error, JobInfo};
use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, EnvPriority,
    ScheduleResponse,
};

use crate::builder::Builder;
use crate::sessions::Sessions;

/// Runs RocksDB's compactions.
///
/// Pass a clone to `Options::set_compaction_service`; keep one for [`Service::stats`]. Clones share threads, memory and
/// counters, so one service serves any number of databases. Give each database its own clone: when a database closes,
/// only the jobs that came through its clone stop.
///
/// Do not use a compaction service for a database whose paths (`db_paths`, `cf_paths`) are on different file systems.
/// RocksDB installs results by renaming them, and treats a failed rename as a fatal error. A service does not see these
/// paths before a file is in a second one.
#[derive(Debug)]
pub struct Service {
    engine: Arc<Engine>,
    jobs: Mutex<Jobs>,
}

/// The jobs that came through one clone.
#[derive(Debug, Default)]
struct Jobs {
    by_id: HashMap<Vec<u8>, Entry>,
    /// Token of all jobs since RocksDB last announced that a database closes; set at the next announcement.
    cancel: CancelToken,
    sessions: Sessions,
}

#[derive(Debug)]
enum Entry {
    /// Scheduled or running.
    Accepted {
        job: Arc<EligibleJob>,
        dir: PathBuf,
        cancel: CancelToken,
    },
    /// Reported to RocksDB, which has not taken the files yet.
    Reported { staging: StagingDir, dir: PathBuf },
}

impl Clone for Service {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.engine))
    }
}

impl Service {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            jobs: Mutex::default(),
        }
    }

    /// Returns a builder with default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the current values of the settings that can change. They are the same for all clones.
    pub fn settings(&self) -> MutableSettings {
        self.engine.settings()
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
        self.engine
            .change_settings(change)
            .map_err(crate::builder::Error)
    }

    /// Waits until the configured devices are open. They are opened in the background, which takes a few tenths of a
    /// second. Before that, and if no device can be used, the CPU does all jobs.
    ///
    /// # Errors
    /// One sentence about what is missing, if a device that was named cannot be used.
    pub fn wait_for_device(&self) -> Result<(), crate::Error> {
        let waited = self.engine.wait_for_device();
        waited.map_err(crate::builder::Error)
    }

    /// Describes the choice of [`Device::Auto`](crate::Device::Auto), as a sentence without a full stop. `None` for
    /// other devices, and before the choice is made.
    pub fn device_choice(&self) -> Option<&str> {
        self.engine.device_choice()
    }

    /// Returns the work done so far, through all clones.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a job and returns its id, under which RocksDB waits for it; otherwise returns the reason against it.
    fn accept(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> Result<String, Error> {
        let session_id = text(info.db_session_id());
        let cancel = {
            let mut jobs = self.jobs();
            if !jobs.sessions.job_comes(&session_id, Instant::now()) {
                return Err(Error::cancelled());
            }
            jobs.cancel.clone()
        };
        let dir = absolute(Path::new(OsStr::from_bytes(info.db_name())));
        let reason = info.compaction_reason().ok_or_else(|| {
            Error::declined(
                DeclineReason::CompactionReason,
                "a reason that is not known here",
            )
        })?;
        let job_info = JobInfo {
            db_name: text(info.db_name()),
            db_session_id: session_id,
            cf_id: info.cf_id(),
            job_id: info.job_id(),
            reason: reason as i32,
            is_full_compaction: info.is_full_compaction(),
            is_manual_compaction: info.is_manual_compaction(),
            is_bottommost_level: info.is_bottommost_level(),
            base_input_level: info.base_input_level(),
            output_level: info.output_level(),
            is_in_bottom_pool: info.priority() == Some(EnvPriority::Bottom),
        };
        let job = self.engine.prepare(&dir, job_info, input, &cancel)?;
        let id = job.job.identity.session_id.clone();
        let accepted = Entry::Accepted {
            job: Arc::new(job),
            dir,
            cancel,
        };
        self.jobs().by_id.insert(id.clone().into_bytes(), accepted);
        Ok(id)
    }

    /// Runs an accepted job and returns the message for RocksDB.
    fn run(&self, id: &[u8]) -> Result<Vec<u8>, Error> {
        let (job, dir, cancel) = match self.jobs().by_id.get(id) {
            Some(Entry::Accepted { job, dir, cancel }) => {
                (Arc::clone(job), dir.clone(), cancel.clone())
            }
            _ => return Err(Error::internal("no such job")),
        };
        let finished = self.engine.run(&job, &dir, &dir, &cancel)?;
        let reported = Entry::Reported {
            staging: finished.staging,
            dir,
        };
        self.jobs().by_id.insert(id.to_vec(), reported);
        Ok(finished.result)
    }

    /// Lets the engine drop the state that jobs of these sessions shared.
    fn sessions_ended(&self, sessions: &BTreeSet<String>) {
        let _ = guarded(|| {
            self.engine.sessions_ended(sessions);
            Ok(())
        });
    }
}

/// The directory is a key in maps, and RocksDB receives the staging folder's path.
fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl CompactionService for Service {
    fn name(&self) -> &CStr {
        c"Rockmill"
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        let use_local = || ScheduleResponse::from_status(CompactionServiceJobStatus::UseLocal);
        let accept = || self.accept(info, input);
        match self
            .engine
            .offered(&text(info.db_name()), info.job_id(), accept)
        {
            Ok(id) => ScheduleResponse::scheduled(&id, CompactionServiceJobStatus::Success)
                .unwrap_or_else(|_| use_local()),
            Err(_) => use_local(),
        }
    }

    fn wait(&self, scheduled_job_id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        let id = scheduled_job_id.to_bytes();
        match guarded(|| self.run(id)) {
            Ok(message) => {
                *result = message;
                CompactionServiceJobStatus::Success
            }
            Err(_) => {
                self.jobs().by_id.remove(id);
                CompactionServiceJobStatus::UseLocal
            }
        }
    }

    fn cancel_awaiting_jobs(&self) {
        let mut jobs = self.jobs();
        let ended = jobs.sessions.one_closes(Instant::now());
        std::mem::take(&mut jobs.cancel).cancel();
        drop(jobs);
        self.sessions_ended(&ended);
    }

    fn on_installation(&self, scheduled_job_id: &CStr, status: Option<CompactionServiceJobStatus>) {
        // The folder is no longer needed, whether RocksDB took the files or not.
        let entry = self.jobs().by_id.remove(scheduled_job_id.to_bytes());
        let Some(Entry::Reported { staging, dir }) = entry else {
            return;
        };
        let _ = guarded(|| {
            match status {
                Some(CompactionServiceJobStatus::Success) => {
                    if let Err(error) = self.engine.files_taken(&dir) {
                        // If RocksDB's own sync is not a no-op, it will fail as well.
                        tracing::error!(%error, "a job's files may not survive a crash");
                    }
                }
                Some(CompactionServiceJobStatus::Failure) => self.engine.refuse_database(&dir),
                _ => {}
            }
            drop(staging);
            Ok(())
        });
    }
}

impl Drop for Service {
    /// Jobs that were scheduled and never waited for hold nothing but memory. Reported jobs remove their folders here.
    fn drop(&mut self) {
        let jobs = std::mem::take(&mut *self.jobs());
        drop(jobs.by_id);
        self.sessions_ended(&jobs.sessions.into_kept());
    }
}
