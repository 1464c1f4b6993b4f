//! The methods of a `rocksdb::CompactionService`, for programs in any language.

mod sessions;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, JobInfo, Lock, Result};
use rockmill_format::versions::tells_installation;

use crate::eligibility::EligibleJob;
use crate::engine::{Engine, guarded};
use crate::outcome::CachedFiles;
use crate::staging::StagingDir;
pub(crate) use sessions::EndedSessions;
use sessions::Sessions;

/// The jobs that come through one clone of a service, and the engine that all clones share.
///
/// The methods are those of RocksDB's `CompactionService`. An error of [`ServiceJobs::schedule`] or
/// [`ServiceJobs::wait`] means `kUseLocal`, since RocksDB treats every other answer but success as fatal.
///
/// In a forked child, a service of the process before takes no jobs, and removes none of the files of that process.
#[derive(Debug)]
pub struct ServiceJobs {
    engine: Arc<Engine>,
    jobs: Lock<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    /// Scheduled, and not waited for yet.
    accepted: HashMap<Vec<u8>, Accepted>,
    /// Reported to RocksDB, which has not taken the files yet.
    reported: HashMap<Vec<u8>, Reported>,
    /// Tokens of all jobs since RocksDB last announced that a database closes, by session; set at the next announcement,
    /// and with all others of the engine by [`Engine::cancel_jobs`].
    cancel: HashMap<String, CancelToken>,
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
    cached: CachedFiles,
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
        Self {
            engine,
            jobs: Lock::default(),
        }
    }

    /// Returns the engine that all clones share.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Refuses a forked child, before anything takes a lock.
    fn require_own_process(&self) -> Result<()> {
        match self.engine.is_of_this_process() {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Invalid,
                "this process was forked from the one that has made the service, and has none of its threads",
            )),
        }
    }

    /// Accepts a job of the database in `dir` and returns its id, under which RocksDB waits for it. `input` is the
    /// serialised `CompactionServiceInput`.
    ///
    /// # Errors
    /// The errors of [`Engine::prepare`]; Invalid in a forked child; Internal after a panic.
    pub fn schedule(&self, dir: &Path, info: JobInfo, input: &[u8]) -> Result<String> {
        self.require_own_process()?;
        let (database, job_id) = (info.db_name.clone(), info.job_id);
        let accept = || self.accept(dir, info, input);
        self.engine.offered(&database, job_id, accept)
    }

    fn accept(&self, dir: &Path, info: JobInfo, input: &[u8]) -> Result<String> {
        // The directory is a key in maps, and RocksDB receives the staging folder's path.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let (taken, cancel) = {
            let mut jobs = self.jobs.lock();
            // An end that is reported later finds the token.
            if self.engine.has_ended(&info.db_session_id)
                || !jobs.sessions.job_comes(&info.db_session_id, Instant::now())
            {
                return Err(Error::cancelled());
            }
            // RocksDB renames a job's files directly after it has the result, so this finds those of all jobs but the
            // last.
            let taken = (jobs.reported).extract_if(|_, job| job.was_taken());
            let taken: Vec<_> = taken.collect();
            // The engine may have cancelled the earlier jobs.
            jobs.cancel.retain(|_, earlier| !earlier.is_cancelled());
            let cancel = (!self.engine.settings().paused).then(|| {
                let cancel = jobs.cancel.entry(info.db_session_id.clone());
                cancel.or_insert_with(|| self.engine.job_token()).clone()
            });
            (taken, cancel)
        };
        for (_, job) in taken {
            self.engine.cached_files_taken(&job.dir, &job.cached);
        }
        let cancel = cancel.ok_or_else(|| {
            let what = "the service takes no jobs: its setting paused is on";
            Error::declined(DeclineReason::Paused, what)
        })?;
        let now = self.engine.now();
        self.engine.refuse_if_left(&dir, &info.db_session_id, now);
        let job = self.engine.prepare(&dir, info, input, &cancel);
        let job = job.map_err(|error| cancelled_by(&cancel, error))?;
        let id = job.job.identity.session_id.clone();
        let accepted = Accepted { job, dir, cancel };
        let id_bytes = id.clone().into_bytes();
        self.jobs.lock().accepted.insert(id_bytes, accepted);
        Ok(id)
    }

    /// Runs an accepted job, which can be waited for once, and returns the serialised `CompactionServiceResult`.
    ///
    /// # Errors
    /// The errors of [`Engine::run`]; Invalid in a forked child; Internal after a panic, or if there is no such job.
    pub fn wait(&self, id: &[u8]) -> Result<Vec<u8>> {
        self.require_own_process()?;
        guarded(|| {
            let accepted = self.jobs.lock().accepted.remove(id);
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
                cached: finished.outcome.cached,
                is_told,
            };
            self.jobs.lock().reported.insert(id.to_vec(), reported);
            Ok(finished.result)
        })
    }

    /// Cancels the jobs of a database that closes, since the program says so, and takes no further ones. Clones of the
    /// same engine take none either.
    pub fn database_closes(&self, session_id: &str) {
        if !self.engine.is_of_this_process() {
            return;
        }
        self.engine.session_ends(session_id);
        let mut jobs = self.jobs.lock();
        let may_have_state = jobs.sessions.ends(session_id);
        if let Some(cancel) = jobs.cancel.remove(session_id) {
            cancel.cancel();
        }
        drop(jobs);
        if may_have_state {
            self.sessions_ended(&BTreeSet::from([session_id.to_owned()]));
        }
    }

    /// Cancels all jobs of this clone, since RocksDB announces that a database closes.
    pub fn cancel_awaiting_jobs(&self) {
        if !self.engine.is_of_this_process() {
            return;
        }
        let mut jobs = self.jobs.lock();
        let ended = jobs.sessions.one_closes(Instant::now());
        for cancel in std::mem::take(&mut jobs.cancel).into_values() {
            cancel.cancel();
        }
        drop(jobs);
        self.sessions_ended(&ended);
    }

    /// Forgets a reported job and removes its folder, which is no longer needed whether RocksDB took the files or not.
    pub fn on_installation(&self, id: &[u8], installation: Installation) {
        if !self.engine.is_of_this_process() {
            return;
        }
        let reported = self.jobs.lock().reported.remove(id);
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
        !self.jobs.lock().reported.values().all(Reported::was_taken)
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
        let jobs = self.jobs.get_mut();
        let jobs = std::mem::take(jobs);
        if !self.engine.is_of_this_process() {
            // The folders are those of the other process, and so are the threads, for which the end of the engine would wait.
            std::mem::forget((jobs, Arc::clone(&self.engine)));
            return;
        }
        // No database has this clone any more, so RocksDB works on none of its jobs.
        for job in jobs.reported.values().filter(|job| job.was_left()) {
            self.engine.refuse_database(&job.dir);
        }
        drop(jobs.reported);
        self.sessions_ended(&jobs.sessions.into_kept());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rockmill_core::CachedOutput;
    use rockmill_storage::LocalStorage;

    use super::*;
    use crate::settings::Settings;

    #[derive(Debug, Default)]
    struct Output(AtomicBool);

    impl CachedOutput for Output {
        fn installed(&self, _: u64) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn service() -> ServiceJobs {
        let engine = Engine::new(Settings::default(), Arc::new(LocalStorage));
        ServiceJobs::new(Arc::new(engine.expect("sound settings")))
    }

    /// Adds a job that was reported. `is_taken`: whether RocksDB has renamed its file; `is_told`: whether it will report that.
    fn report(
        service: &ServiceJobs,
        dir: &Path,
        id: &str,
        is_taken: bool,
        is_told: bool,
    ) -> Arc<Output> {
        let output = Arc::new(Output::default());
        let staging = StagingDir::create(Arc::new(LocalStorage), dir, id).expect("made");
        if !is_taken {
            std::fs::write(staging.files().file(1), "a table").expect("written");
        }
        let reported = Reported {
            staging: Arc::new(staging),
            dir: dir.to_owned(),
            cached: CachedFiles {
                outputs: vec![Arc::clone(&output) as _],
                ..CachedFiles::default()
            },
            is_told,
        };
        (service.jobs.lock().reported).insert(id.as_bytes().to_vec(), reported);
        output
    }

    /// Offers a job whose input cannot be read.
    fn offer(service: &ServiceJobs, dir: &Path) -> Error {
        let info = JobInfo {
            db_name: String::new(),
            db_session_id: "session".to_owned(),
            cf_id: 0,
            job_id: 1,
            reason: JobInfo::UNKNOWN_REASON,
            is_full_compaction: false,
            is_manual_compaction: false,
            is_bottommost_level: false,
            base_input_level: 0,
            output_level: 1,
            is_in_bottom_pool: false,
            rocksdb_version: None,
            plugins: None,
            picked_compression: None,
        };
        let offered = service.schedule(dir, info, b"no message");
        offered.expect_err("it is none")
    }

    #[test]
    fn files_that_an_older_rocksdb_has_taken_are_found_in_caches_from_the_next_job_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let service = service();
        let outputs = [
            report(&service, dir.path(), "taken", true, false),
            report(&service, dir.path(), "left", false, false),
            report(&service, dir.path(), "told", true, true),
        ];
        offer(&service, dir.path());
        let found = outputs.map(|output| output.0.load(Ordering::Relaxed));
        assert_eq!(found, [true, false, false]);
        assert_eq!(service.jobs.lock().reported.len(), 2);
    }

    #[test]
    fn a_forked_child_takes_no_jobs_and_removes_no_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut service = service();
        report(&service, dir.path(), "told", false, true);
        report(&service, dir.path(), "left", false, false);
        let engine = Arc::get_mut(&mut service.engine).expect("it is the only service");
        // In a child, the number is that of its parent.
        engine.process = 0;
        let clone = service.clone();
        for service in [&service, &clone] {
            assert_eq!(offer(service, dir.path()).kind, ErrorKind::Invalid);
        }
        let waited = service.wait(b"told").map_err(|error| error.kind);
        assert_eq!(waited, Err(ErrorKind::Invalid));
        assert_eq!(service.engine().stats().jobs_offered, 0);
        service.on_installation(b"told", Installation::Unused);
        service.cancel_awaiting_jobs();
        service.database_closes("session");
        drop(service);
        for job in ["told", "left"] {
            assert!(dir.path().join(job).join("000001.sst").exists(), "{job}");
        }
    }
}
