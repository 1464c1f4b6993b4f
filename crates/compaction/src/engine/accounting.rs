//! Counts the results of jobs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rockmill_core::{Error, ErrorKind, JobInfo, Result, panic_message};

use super::Engine;

impl Engine {
    /// Counts a job that RocksDB offers with the number `job_id`. If `accept` fails, also counts that the job goes back
    /// to RocksDB.
    ///
    /// # Errors
    /// The errors of `accept`; Internal if it panics.
    pub fn offered<T>(
        &self,
        database: &str,
        job_id: u64,
        accept: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.stats.offered();
        self.accounted(database, job_id, accept)
    }

    /// If `work` fails, counts and logs that the job goes back to RocksDB.
    pub(super) fn accounted<T>(
        &self,
        database: &str,
        job_id: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        guarded(work).inspect_err(|error| {
            self.stats.returned(error);
            let log_job = JobInfo::log_number(job_id);
            let reason = error.kind.code();
            // The application's subscriber may panic.
            let _ = guarded(|| {
                if matches!(error.kind, ErrorKind::Declined(_) | ErrorKind::Cancelled) {
                    tracing::info!(database, log_job, reason, %error, "job left to RocksDB");
                } else {
                    tracing::warn!(database, log_job, reason, %error, "job failed, left to RocksDB");
                }
                Ok(())
            });
        })
    }
}

/// Does `work`. A panic becomes an error, because it must not reach RocksDB.
///
/// # Errors
/// The errors of `work`; Internal if it panics.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic_message(&*panic).unwrap_or_default();
        Err(Error::internal(format!("panic: {said}")))
    })
}
