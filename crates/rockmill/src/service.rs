//! RocksDB's side of the engine.

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

/// Does RocksDB's compactions.
///
/// Hand a clone to `Options::set_compaction_service`; keep one for [`Service::stats`]. Clones share
/// threads, memory and counters, so one service serves any number of databases. Give each database a
/// clone of its own: when a database closes, the jobs that came through its clone stop, and no others.
///
/// A database whose files lie in several paths (`db_paths`, `cf_paths`) on different file systems must not
/// use a compaction service at all: RocksDB moves results by renaming them, and takes a rename that fails
/// for a fatal error. A service cannot see these paths before a file lies in a second one.
#[derive(Debug)]
pub struct Service {
    engine: Arc<Engine>,
    jobs: Mutex<Jobs>,
}

/// The jobs that came through one clone.
#[derive(Debug, Default)]
struct Jobs {
    by_id: HashMap<Vec<u8>, Entry>,
    /// Shared by all jobs since RocksDB last told that a database closes; set when it does again.
    cancel: CancelToken,
    sessions: Sessions,
}

#[derive(Debug)]
enum Entry {
    /// Scheduled, or waited for.
    Accepted {
        job: Arc<EligibleJob>,
        dir: PathBuf,
        cancel: CancelToken,
    },
    /// Reported; the files wait to be taken.
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

    /// A service with default settings, to be changed.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The settings that may change, as they are now; the same for all clones.
    pub fn settings(&self) -> MutableSettings {
        self.engine.settings()
    }

    /// Changes settings for all clones, at once or, if one of them makes no sense, none.
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
    /// Subcompactions that run go on; [`MutableSettings`] says from when on each setting holds.
    ///
    /// # Errors
    /// One sentence that names the setting.
    pub fn change_settings(
        &self,
        change: impl FnOnce(&mut MutableSettings),
    ) -> Result<(), crate::Error> {
        self.engine
            .change_settings(change)
            .map_err(crate::builder::Error)
    }

    /// Waits until the configured devices are open, which takes some tenths of a second beside other work. Before
    /// that, and if none can be used, the CPU does all jobs.
    ///
    /// # Errors
    /// One sentence about what is missing, if a device that was named cannot be used.
    pub fn wait_for_device(&self) -> Result<(), crate::Error> {
        let waited = self.engine.wait_for_device();
        waited.map_err(crate::builder::Error)
    }

    /// What [`Device::Auto`](crate::Device::Auto) came to, in a sentence without an end; `None` for other
    /// devices, and as long as it is not known.
    pub fn device_choice(&self) -> Option<&str> {
        self.engine.device_choice()
    }

    /// What was done so far, through all clones.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a job, or says why not. Returns the id under which it is waited for.
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

    /// Runs an accepted job. Returns the message for RocksDB.
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

    /// The engine need not keep anything any more of what jobs of these sessions had in common.
    fn sessions_ended(&self, sessions: &BTreeSet<String>) {
        let _ = guarded(|| {
            self.engine.sessions_ended(sessions);
            Ok(())
        });
    }
}

/// The directory is a key among others, and the staging folder's path goes into a message.
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
        // Whatever became of the files, the folder is done with.
        let entry = self.jobs().by_id.remove(scheduled_job_id.to_bytes());
        let Some(Entry::Reported { staging, dir }) = entry else {
            return;
        };
        let _ = guarded(|| {
            match status {
                Some(CompactionServiceJobStatus::Success) => {
                    if let Err(error) = self.engine.files_taken(&dir) {
                        // Where RocksDB's own sync does something, it will fail as well.
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
    /// Jobs that were scheduled and never waited for leave nothing behind but their memory; reported
    /// ones drop their folders here.
    fn drop(&mut self) {
        let jobs = std::mem::take(&mut *self.jobs());
        drop(jobs.by_id);
        self.sessions_ended(&jobs.sessions.into_kept());
    }
}
