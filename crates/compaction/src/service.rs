//! The methods of a `rocksdb::CompactionService`, for programs in any language.

mod sessions;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rockmill_core::{
    CachedOutput, CancelToken, DeclineReason, Error, ErrorKind, FileIdentity, JobInfo, Result,
};
use rockmill_format::versions::tells_installation;

use crate::eligibility::EligibleJob;
use crate::engine::{Engine, guarded};
use crate::known_tables::WrittenTable;
use crate::staging::StagingDir;
use sessions::Sessions;

/// The jobs that come through one clone of a service, and the engine that all clones share.
///
/// The methods are those of RocksDB's `CompactionService`. An error of [`ServiceJobs::schedule`] or
/// [`ServiceJobs::wait`] means `kUseLocal`, since RocksDB treats every other answer but success as fatal.
#[derive(Debug)]
pub struct ServiceJobs {
    engine: Arc<Engine>,
    jobs: Mutex<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    /// Scheduled, and not waited for yet.
    accepted: HashMap<Vec<u8>, Accepted>,
    /// Reported to RocksDB, which has not taken the files yet.
    reported: HashMap<Vec<u8>, Reported>,
    /// Token of all jobs since RocksDB last announced that a database closes; set at the next announcement, and with all
    /// others of the engine by [`Engine::cancel_jobs`].
    cancel: CancelToken,
    sessions: Sessions,
}

#[derive(Debug)]
struct Accepted {
    job: EligibleJob,
    dir: PathBuf,
    cancel: CancelToken,
}

#[derive(Debug)]
struct Reported {
    staging: Arc<StagingDir>,
    dir: PathBuf,
    /// Its files that devices have cached, and its inputs.
    cached: Cached,
    /// Whether RocksDB will report whether it took the files. Before 9.6 it does not.
    is_told: bool,
}

impl Reported {
    /// Whether RocksDB has taken all files, if it does not report it.
    fn was_taken(&self) -> bool {
        !self.is_told && self.staging.has_files() == Some(false)
    }

    /// Whether RocksDB has left files behind, if it does not report it and no longer works on them.
    fn was_left(&self) -> bool {
        !self.is_told && self.staging.has_files() == Some(true)
    }
}

/// Output files of a job that devices have cached.
#[derive(Debug, Default)]
pub(crate) struct Cached {
    /// Its files. Caches drop those that are not installed.
    pub outputs: Vec<Arc<dyn CachedOutput>>,
    /// Files, as they were read back.
    pub tables: Vec<WrittenTable>,
    /// Its inputs.
    pub inputs: Vec<FileIdentity>,
    /// The unique ids of all inputs.
    pub input_ids: Vec<[u64; 2]>,
    /// The session of its database.
    pub session: String,
}

/// Whether RocksDB took a job's files (`options.h:CompactionServiceJobStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installation {
    /// RocksDB has taken them.
    Success,
    /// RocksDB could not take them, which is fatal to the database.
    Failure,
    /// RocksDB has no use for them.
    Unused,
}

impl Clone for ServiceJobs {
    /// Returns a service with the same engine and without jobs.
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.engine))
    }
}

impl ServiceJobs {
    /// Returns a service without jobs.
    pub fn new(engine: Arc<Engine>) -> Self {
        let jobs = Jobs {
            cancel: engine.job_token(),
            ..Jobs::default()
        };
        Self {
            engine,
            jobs: Mutex::new(jobs),
        }
    }

    /// Returns the engine that all clones share.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a job of the database in `dir` and returns its id, under which RocksDB waits for it. `input` is the
    /// serialised `CompactionServiceInput`.
    ///
    /// # Errors
    /// The errors of [`Engine::prepare`]; Internal after a panic.
    pub fn schedule(&self, dir: &Path, info: JobInfo, input: &[u8]) -> Result<String> {
        let (database, job_id) = (info.db_name.clone(), info.job_id);
        let accept = || self.accept(dir, info, input);
        self.engine.offered(&database, job_id, accept)
    }

    fn accept(&self, dir: &Path, info: JobInfo, input: &[u8]) -> Result<String> {
        // The directory is a key in maps, and RocksDB receives the staging folder's path.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let cancel = {
            let mut jobs = self.jobs();
            if !jobs.sessions.job_comes(&info.db_session_id, Instant::now()) {
                return Err(Error::cancelled());
            }
            // RocksDB renames a job's files directly after it has the result, so this finds those of all jobs but the
            // last.
            jobs.reported.retain(|_, job| !job.was_taken());
            if self.engine.settings().paused {
                let what = "the service takes no jobs: its setting paused is on";
                return Err(Error::declined(DeclineReason::Paused, what));
            }
            // The engine has cancelled the earlier jobs.
            if jobs.cancel.is_cancelled() {
                jobs.cancel = self.engine.job_token();
            }
            jobs.cancel.clone()
        };
        let now = self.engine.now();
        self.engine.refuse_if_left(&dir, &info.db_session_id, now);
        let job = self.engine.prepare(&dir, info, input, &cancel);
        let job = job.map_err(|error| cancelled_by(&cancel, error))?;
        let id = job.job.identity.session_id.clone();
        let accepted = Accepted { job, dir, cancel };
        let id_bytes = id.clone().into_bytes();
        self.jobs().accepted.insert(id_bytes, accepted);
        Ok(id)
    }

    /// Runs an accepted job, which can be waited for once, and returns the serialised `CompactionServiceResult`.
    ///
    /// # Errors
    /// The errors of [`Engine::run`]; Internal after a panic, or if there is no such job.
    pub fn wait(&self, id: &[u8]) -> Result<Vec<u8>> {
        guarded(|| {
            let accepted = self.jobs().accepted.remove(id);
            let Accepted { job, dir, cancel } =
                accepted.ok_or_else(|| Error::internal("no such job"))?;
            let finished = self.engine.run(&job, &dir, &dir, &cancel)?;
            let is_told = tells_installation(job.options().rocksdb_version);
            let staging = Arc::new(finished.staging);
            if !is_told {
                let session_id = &job.job.info.db_session_id;
                self.engine.handed_over(&dir, session_id, &staging);
            }
            let reported = Reported {
                staging,
                dir,
                cached: Cached {
                    outputs: finished.outcome.cached,
                    tables: finished.outcome.tables,
                    inputs: finished.outcome.inputs,
                    input_ids: (job.job.tree.inputs.iter())
                        .filter_map(|input| input.unique_id)
                        .collect(),
                    session: job.job.info.db_session_id.clone(),
                },
                is_told,
            };
            self.jobs().reported.insert(id.to_vec(), reported);
            Ok(finished.result)
        })
    }

    /// Whether a session has had a job, unless it has certainly ended since.
    pub fn has_had_jobs_of(&self, session_id: &str) -> bool {
        self.jobs().sessions.contain(session_id)
    }

    /// Cancels all jobs of this clone, since RocksDB announces that a database closes.
    pub fn cancel_awaiting_jobs(&self) {
        let mut jobs = self.jobs();
        let ended = jobs.sessions.one_closes(Instant::now());
        let next = self.engine.job_token();
        std::mem::replace(&mut jobs.cancel, next).cancel();
        drop(jobs);
        self.sessions_ended(&ended);
    }

    /// Forgets a reported job and removes its folder, which is no longer needed whether RocksDB took the files or not.
    pub fn on_installation(&self, id: &[u8], installation: Installation) {
        let reported = self.jobs().reported.remove(id);
        let Some(reported) = reported else {
            return;
        };
        let Reported {
            staging,
            dir,
            cached,
            ..
        } = reported;
        let _ = guarded(|| {
            match installation {
                Installation::Success => {
                    self.engine.cached_files_taken(&dir, &cached);
                    if let Err(error) = self.engine.files_taken(&dir) {
                        // If RocksDB's own sync is not a no-op, it will fail as well.
                        tracing::error!(%error, "a job's files may not survive a crash");
                    }
                }
                Installation::Failure => self.engine.refuse_database(&dir),
                Installation::Unused => {}
            }
            drop(staging);
            Ok(())
        });
    }

    /// Whether RocksDB has yet to report whether it took a job's files. If they were removed before, it could not
    /// install them, which is fatal to the database.
    pub fn has_reported(&self) -> bool {
        !self.jobs().reported.values().all(Reported::was_taken)
    }

    /// Lets the engine drop the state that jobs of these sessions shared.
    fn sessions_ended(&self, sessions: &BTreeSet<String>) {
        let _ = guarded(|| {
            self.engine.sessions_ended(sessions);
            Ok(())
        });
    }
}

/// Replaces an error by the reason of [`Engine::cancel_jobs`], if that has cancelled the job.
pub(crate) fn cancelled_by(cancel: &CancelToken, error: Error) -> Error {
    match error.kind {
        ErrorKind::Cancelled if cancel.is_parent_cancelled() => {
            let what = "the application has cancelled the jobs of the service";
            Error::declined(DeclineReason::Cancelled, what)
        }
        _ => error,
    }
}

impl Drop for ServiceJobs {
    /// Jobs that were scheduled and never waited for hold only memory. Reported jobs remove their folders here.
    fn drop(&mut self) {
        let jobs = std::mem::take(&mut *self.jobs());
        // No database has this clone any more, so RocksDB works on none of its jobs.
        for job in jobs.reported.values().filter(|job| job.was_left()) {
            self.engine.refuse_database(&job.dir);
        }
        drop(jobs.reported);
        self.sessions_ended(&jobs.sessions.into_kept());
    }
}
