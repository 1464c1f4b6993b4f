//! What an engine has done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rockmill_core::{DeclineReason, Error, ErrorKind, StageTime};

use crate::run::Outcome;

/// Counters since the engine was built.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Stats {
    /// Jobs that RocksDB offered.
    pub jobs_scheduled: u64,
    /// Jobs that were done here.
    pub jobs_done: u64,
    /// Jobs that were left to RocksDB because they need something that is not done here, or because
    /// the database closed.
    pub jobs_declined: u64,
    /// Jobs that went back to RocksDB after an error.
    pub jobs_failed: u64,
    /// Declined jobs by reason code.
    pub declines: BTreeMap<String, u64>,
    /// Bytes of input that jobs have begun upon, done or not.
    pub bytes_begun: u64,
    /// Those of them that lie behind: of finished slices, and of jobs that have ended in any way.
    pub bytes_passed: u64,
    /// Bytes read from input files by jobs done.
    pub bytes_read: u64,
    /// Bytes of the files written by jobs done.
    pub bytes_written: u64,
    /// Entries read by jobs done.
    pub entries_in: u64,
    /// Entries written by jobs done.
    pub entries_out: u64,
    /// Output files of jobs done.
    pub files_out: u64,
    /// Slices of jobs done.
    pub slices: u64,
    /// Wall time of jobs done, microseconds.
    pub busy_micros: u64,
    /// Processor time of jobs done, microseconds.
    pub cpu_micros: u64,
    /// Times that finished output did not pass verification and was thrown away.
    pub verification_failures: u64,
    /// Jobs that the CPU did because the configured device could not.
    pub jobs_device_refused: u64,
    /// Where the time of jobs done went, by stage; empty on devices that do not measure.
    pub stages: Vec<StageTime>,
    /// The last error or decline, in a sentence.
    pub last_error: Option<String>,
}

/// Counters that several threads add to.
#[derive(Debug, Default)]
pub struct StatsCell(Mutex<Stats>);

impl StatsCell {
    fn lock(&self) -> MutexGuard<'_, Stats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters now.
    pub fn snapshot(&self) -> Stats {
        self.lock().clone()
    }

    /// RocksDB offered a job.
    pub fn scheduled(&self) {
        self.lock().jobs_scheduled += 1;
    }

    /// A job begins upon so many bytes of input.
    pub fn begin(&self, bytes: u64) -> JobProgress<'_> {
        self.lock().bytes_begun += bytes;
        JobProgress {
            counters: self,
            left: AtomicU64::new(bytes),
        }
    }

    /// A job was done.
    pub fn done(&self, outcome: &Outcome) {
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(0);
        let mut stats = self.lock();
        stats.jobs_done += 1;
        stats.bytes_read += outcome.totals.bytes_read;
        stats.bytes_written += outcome.files.iter().map(|f| f.size).sum::<u64>();
        stats.entries_in += outcome.entries_read;
        stats.entries_out += outcome.totals.entries_written;
        stats.files_out += outcome.files.len() as u64;
        stats.slices += outcome.slices as u64;
        stats.busy_micros += micros(outcome.elapsed);
        stats.cpu_micros += micros(outcome.cpu);
        StageTime::add_all(&mut stats.stages, &outcome.totals.stages);
        if let Some(why) = &outcome.device_refused {
            stats.jobs_device_refused += 1;
            stats.last_error = Some(why.clone());
        }
    }

    /// A job's run on the configured device came to nothing.
    pub fn device_failed(&self, error: &Error) {
        self.lock().count_verification(error);
    }

    /// A job went back to RocksDB.
    pub fn returned(&self, error: &Error) {
        let mut stats = self.lock();
        let reason = match error.kind {
            ErrorKind::Declined(reason) => Some(reason),
            ErrorKind::Cancelled => Some(DeclineReason::ShuttingDown),
            _ => None,
        };
        match reason {
            Some(reason) => {
                stats.jobs_declined += 1;
                *stats.declines.entry(reason.code().to_owned()).or_default() += 1;
            }
            None => stats.jobs_failed += 1,
        }
        stats.count_verification(error);
        stats.last_error = Some(error.to_string());
    }
}

/// How far a job is. When it ends, well or not, nothing of it is left.
#[derive(Debug)]
pub struct JobProgress<'a> {
    counters: &'a StatsCell,
    left: AtomicU64,
}

impl JobProgress<'_> {
    /// A slice over so many bytes is finished.
    pub fn passed(&self, bytes: u64) {
        self.left.fetch_sub(bytes, Ordering::Relaxed);
        self.counters.lock().bytes_passed += bytes;
    }
}

impl Drop for JobProgress<'_> {
    fn drop(&mut self) {
        self.passed(self.left.load(Ordering::Relaxed));
    }
}

impl Stats {
    fn count_verification(&mut self, error: &Error) {
        self.verification_failures += u64::from(error.kind == ErrorKind::Verification);
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MB: f64 = 1e6;
        const SECOND: f64 = 1e6;
        writeln!(
            f,
            "jobs     {} offered, {} done, {} declined, {} failed",
            self.jobs_scheduled, self.jobs_done, self.jobs_declined, self.jobs_failed
        )?;
        writeln!(
            f,
            "bytes    {:.1} MB read, {:.1} MB written to {} files",
            self.bytes_read as f64 / MB,
            self.bytes_written as f64 / MB,
            self.files_out
        )?;
        writeln!(
            f,
            "entries  {} in, {} out, {} slices",
            self.entries_in, self.entries_out, self.slices
        )?;
        write!(
            f,
            "time     {:.3} s, {:.3} CPU-s",
            self.busy_micros as f64 / SECOND,
            self.cpu_micros as f64 / SECOND
        )?;
        if self.jobs_device_refused > 0 {
            write!(
                f,
                "\ndevice   {} jobs done by the CPU instead",
                self.jobs_device_refused
            )?;
        }
        if self.verification_failures > 0 {
            write!(
                f,
                "\nrejected {} outputs that did not pass verification",
                self.verification_failures
            )?;
        }
        for (reason, count) in &self.declines {
            write!(f, "\ndeclined {count} x {reason}")?;
        }
        if let Some(error) = &self.last_error {
            write!(f, "\nlast     {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_ended_leaves_no_bytes() {
        let counters = StatsCell::default();
        let bytes = || {
            let stats = counters.snapshot();
            (stats.bytes_begun, stats.bytes_passed)
        };
        let first = counters.begin(10);
        let second = counters.begin(5);
        first.passed(4);
        assert_eq!(bytes(), (15, 4));
        drop(first);
        assert_eq!(bytes(), (15, 10));
        second.passed(5);
        drop(second);
        assert_eq!(bytes(), (15, 15));
    }
}
