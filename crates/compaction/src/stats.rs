//! Counters of an engine, for [`Stats`] and for the process's metrics recorder.

mod durations;
mod text;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rockmill_core::columns::Accounts;
use rockmill_core::{Error, ErrorKind, Lock, Progress, SizeSample, StageTime};
use serde::Serialize;

pub use durations::Durations;
pub use text::show_bytes;

use crate::metrics::{self, Metric, Sink, Values};
use crate::outcome::Outcome;

/// Declares [`Stats`]: its fields in the order of the JSON, and for most of them the metric that they are computed from, which
/// has the same name.
macro_rules! statistics {
    ($($(#[$doc:meta])+ $name:ident: $type:ty $(= $compute:ident($($metric:ident)?))?;)+) => {
        /// Counters since the engine was created.
        #[derive(Debug, Default, Clone, PartialEq, Serialize)]
        pub struct Stats {
            $($(#[$doc])+ pub $name: $type,)+
        }

        impl Stats {
            /// Computes the fields with a metric. `others` has the rest.
            pub(crate) fn of(values: &Values, others: Self) -> Self {
                Self {
                    $($($name: values.$compute($(&metrics::$metric)?),)?)+
                    ..others
                }
            }
        }
    };
}

statistics! {
    /// Jobs that RocksDB offered.
    jobs_offered: u64 = total(JOBS_OFFERED);
    /// Jobs that were done.
    jobs_done: u64 = total(JOBS_DONE);
    /// Jobs that were left to RocksDB because Rockmill cannot do them exactly, or because the database closed.
    jobs_declined: u64 = total(JOBS_DECLINED);
    /// Jobs that went back to RocksDB after an error.
    jobs_failed: u64 = total(JOBS_FAILED);
    /// Declined jobs by reason code.
    jobs_declined_by_reason: BTreeMap<String, u64> = by_label(JOBS_DECLINED);
    /// Failed jobs by kind of error.
    jobs_failed_by_error: BTreeMap<String, u64> = by_label(JOBS_FAILED);
    /// Jobs whose subcompactions run or wait now.
    jobs_running: u64 = gauge(JOBS_RUNNING);
    /// Input bytes of running jobs, without subcompactions that have ended.
    backlog_bytes: u64 = gauge(BACKLOG_BYTES);
    /// Input bytes of all jobs that have begun, whether done or not.
    bytes_begun: u64;
    /// The processed part of `bytes_begun`: the bytes that running subcompactions have read, and all bytes of
    /// subcompactions that have ended in any way. A subcompaction on a GPU counts about half of its bytes when they are
    /// loaded.
    bytes_passed: u64;
    /// Bytes read from input files by jobs done.
    read_bytes: u64 = total(READ_BYTES);
    /// Bytes of the files written by jobs done.
    written_bytes: u64 = total(WRITTEN_BYTES);
    /// Entries read by jobs done.
    entries_read: u64 = total(ENTRIES_READ);
    /// Entries written by jobs done.
    entries_written: u64 = total(ENTRIES_WRITTEN);
    /// Output files of jobs done.
    files_written: u64 = total(FILES_WRITTEN);
    /// Number of these files that should have bypassed the page cache and did not, because their file system cannot do
    /// so.
    files_cached_instead: u64;
    /// Sizes of some data blocks that Rockmill's own code has compressed, beside those that the library would have
    /// given. It shows what [`crate::MutableSettings::device_compression`] costs in size.
    size_sample: SizeSample;
    /// Subcompactions of jobs done.
    subcompactions: u64 = total(SUBCOMPACTIONS);
    /// Subcompactions of all jobs that run now.
    subcompactions_running: u64 = gauge(SUBCOMPACTIONS_RUNNING);
    /// Memory of the budget that running subcompactions hold, in bytes.
    subcompactions_held_bytes: u64 = gauge(SUBCOMPACTIONS_HELD_BYTES);
    /// Maximum of `subcompactions_held_bytes` so far.
    subcompactions_peak_held_bytes: u64;
    /// Wall times of jobs done.
    job_seconds: Durations = times(JOB_SECONDS);
    /// CPU times of jobs done, over all their threads.
    job_cpu_seconds: Durations = times(JOB_CPU_SECONDS);
    /// Wall times of subcompactions, each from its start until its last file is written or it fails.
    subcompaction_seconds: Durations = times(SUBCOMPACTION_SECONDS);
    /// Waits of subcompactions for slots and memory.
    subcompaction_wait_seconds: Durations = times(SUBCOMPACTION_WAIT_SECONDS);
    /// Subcompactions whose output did not pass verification and was discarded.
    verification_failures: u64 = total(VERIFICATION_FAILURES);
    /// Jobs done of which the CPU did some or all subcompactions because the configured device could not.
    jobs_redone_by_cpu: u64 = total(JOBS_REDONE);
    /// Jobs done that called objects of the application, on the CPU.
    jobs_with_plugins: u64 = total(JOBS_WITH_PLUGINS);
    /// Jobs that went back to RocksDB after a compaction filter of the application had seen some keys. RocksDB makes a new
    /// filter, which sees them again.
    jobs_filtered_again: u64 = total(JOBS_FILTERED_AGAIN);
    /// Work of each device on jobs done, by its name.
    devices: BTreeMap<String, DeviceStats> = devices();
    /// What is cached on each device: files on GPUs, columns on the CPU.
    caches: Vec<CacheStats> = caches();
    /// Subcompactions that waited for a device and then ran on another one that was expected to finish them sooner.
    subcompactions_moved: u64 = total(SUBCOMPACTIONS_MOVED);
    /// Subcompactions that the CPU did after a device had failed at them.
    subcompactions_redone_by_cpu: u64 = total(SUBCOMPACTIONS_REDONE);
    /// Subcompactions from which a device did not return in time. The CPU does these too.
    subcompactions_abandoned: u64 = total(SUBCOMPACTIONS_ABANDONED);
    /// Injected faults of simulated devices, by the names in their profiles.
    simulated_faults: BTreeMap<String, u64>;
    /// Number of quarantines of devices, after several consecutive failures or an abandoned subcompaction.
    device_quarantined: u64 = total(DEVICE_QUARANTINED);
    /// Times of jobs done by stage; empty for devices that do not measure.
    stages: Vec<StageTime>;
    /// The reason why the configured device cannot be used, in a sentence, once this is known.
    device_trouble: Option<String>;
    /// The last error or decline, in a sentence.
    last_error: Option<String>;
}

/// Work of a device on jobs done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceStats {
    /// Number of subcompactions.
    pub subcompactions: u64,
    /// Stored bytes of their inputs.
    pub subcompaction_read_bytes: u64,
    /// Bytes of their files, if the device is at the data and wrote them itself, not through the host; else 0.
    pub subcompaction_near_data_bytes: u64,
}

/// The accounts of a cache.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct CacheStats {
    /// The device in whose memory it is.
    pub device: String,
    /// `files` or `columns`.
    pub kind: String,
    /// Bytes that are cached now.
    pub bytes: u64,
    /// Bytes that jobs and scans have found.
    pub hit_bytes: u64,
    /// Bytes that they have read from files, or parsed.
    pub miss_bytes: u64,
    /// Bytes that have made room.
    pub evicted_bytes: u64,
    /// Cached files, or groups of columns, whose bytes had changed.
    pub mismatches: u64,
}

/// Counters that several threads change.
#[derive(Debug, Default)]
pub struct StatsCell {
    counts: Lock<Counts>,
    /// [`Stats::bytes_passed`], which running subcompactions change continually.
    bytes_passed: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Counts {
    /// What metrics tell.
    values: Values,
    /// The fields without a metric; the others are computed from `values`.
    others: Stats,
    /// The accounts of caches at the last look, by their labels.
    caches: BTreeMap<String, Accounts>,
}

impl StatsCell {
    /// Creates counters of an engine with the devices whose names are joined by `+`.
    pub fn new(devices: &str) -> Self {
        let cell = Self::default();
        metrics::describe();
        cell.tell(|_| {}, |to| metrics::begins(devices, to));
        cell
    }

    /// Counts an event, and passes it to the process's recorder. `change` adds the values without a metric.
    fn tell(&self, change: impl FnOnce(&mut Stats), event: impl Fn(&mut dyn Sink)) {
        let mut counts = self.counts.lock();
        event(&mut counts.values);
        let held_bytes = counts.values.gauge(&metrics::SUBCOMPACTIONS_HELD_BYTES);
        let peak = &mut counts.others.subcompactions_peak_held_bytes;
        *peak = held_bytes.max(*peak);
        change(&mut counts.others);
        drop(counts);
        metrics::tell_recorder(event);
    }

    /// Counts what a cache has done since the last look, and passes to the process's recorder what that does not know yet:
    /// other engines may use the same cache.
    pub fn look_at_cache(&self, label: &str, tell: impl FnOnce() -> [Accounts; 2]) {
        let mut guard = self.counts.lock();
        let counts = &mut *guard;
        // Under the lock, so that a later look has later counts.
        let untold = tell();
        let now = untold[1];
        let before = counts.caches.insert(label.to_owned(), now);
        let changes = [before.unwrap_or_default(), now];
        metrics::cache_changed(label, changes, &mut counts.values);
        // The recorder is the program's, and may ask for these statistics.
        drop(guard);
        metrics::tell_recorder(|to| metrics::cache_changed(label, untold, to));
    }

    /// Returns the current counters.
    pub fn snapshot(&self) -> Stats {
        let counts = self.counts.lock();
        Stats {
            bytes_passed: self.bytes_passed.load(Ordering::Relaxed),
            ..Stats::of(&counts.values, counts.others.clone())
        }
    }

    /// Returns the current metrics in Prometheus' text format.
    pub fn prometheus(&self) -> String {
        self.counts.lock().values.prometheus()
    }

    /// Counts a job that RocksDB offered.
    pub fn offered(&self) {
        self.tell(|_| {}, metrics::job_offered);
    }

    /// Counts a job with `bytes` bytes of input whose subcompactions begin.
    pub fn begin(self: &Arc<Self>, bytes: u64) -> JobProgress {
        let begun = |stats: &mut Stats| stats.bytes_begun += bytes;
        self.tell(begun, |to| metrics::job_begins(bytes, to));
        JobProgress(ProgressCounter {
            counters: Arc::clone(self),
            left: Arc::new(AtomicU64::new(bytes)),
        })
    }

    /// Counts a job that was done.
    pub fn done(&self, outcome: &Outcome) {
        let change = |stats: &mut Stats| {
            stats.files_cached_instead += outcome.files_cached_instead;
            stats.size_sample.add(outcome.size_sample);
            StageTime::add_all(&mut stats.stages, &outcome.totals.stages);
            if let Some(why) = &outcome.device_refused {
                stats.last_error = Some(why.clone());
            }
        };
        self.tell(change, |to| metrics::job_done(outcome, to));
    }

    /// Counts an event of a device.
    fn of_device(&self, metric: &'static Metric, device: &str) {
        self.tell(|_| {}, |to| to.count(metric, device, 1));
    }

    /// Counts a subcompaction that failed on `device`, or whose files did not pass verification.
    pub fn subcompaction_failed(&self, device: &str, error: &Error) {
        if error.kind == ErrorKind::Verification {
            self.of_device(&metrics::VERIFICATION_FAILURES, device);
        }
    }

    /// Counts a subcompaction that waited for another device and runs on `device`.
    pub fn subcompaction_moved(&self, device: &str) {
        self.of_device(&metrics::SUBCOMPACTIONS_MOVED, device);
    }

    /// Counts a subcompaction that the CPU has done after `device` failed at it.
    pub fn subcompaction_redone(&self, device: &str) {
        self.of_device(&metrics::SUBCOMPACTIONS_REDONE, device);
    }

    /// Counts a subcompaction from which `device` did not return in time.
    pub fn subcompaction_abandoned(&self, device: &str) {
        self.of_device(&metrics::SUBCOMPACTIONS_ABANDONED, device);
    }

    /// Counts a quarantine of `device`.
    pub fn device_quarantined(&self, device: &str) {
        self.of_device(&metrics::DEVICE_QUARANTINED, device);
    }

    /// Counts a job that goes back to RocksDB after its filter has begun.
    pub fn filtered_again(&self) {
        self.tell(|_| {}, metrics::job_filtered_again);
    }

    /// Counts a job that went back to RocksDB.
    pub fn returned(&self, error: &Error) {
        let change = |stats: &mut Stats| stats.last_error = Some(error.to_string());
        self.tell(change, |to| metrics::job_returned(error, to));
    }
}

/// The progress of a job in bytes of input. When this is dropped, all remaining bytes count as processed.
#[derive(Debug)]
pub struct JobProgress(ProgressCounter);

/// Counters for a [`JobProgress`], which they may outlive.
#[derive(Debug, Clone)]
pub struct ProgressCounter {
    counters: Arc<StatsCell>,
    /// Bytes of subcompactions that have not begun.
    left: Arc<AtomicU64>,
}

impl ProgressCounter {
    /// Returns the counters of all jobs.
    pub fn counters(&self) -> &StatsCell {
        &self.counters
    }

    /// Counts a subcompaction with `bytes` bytes of input that begins on `device`, after it waited for `held_bytes` of
    /// memory.
    pub fn subcompaction_begins(
        &self,
        device: &str,
        bytes: u64,
        held_bytes: u64,
        waited: Duration,
    ) -> RunningSubcompaction {
        let counters = &self.counters;
        self.left.fetch_sub(bytes, Ordering::Relaxed);
        let begins =
            |to: &mut dyn Sink| metrics::subcompaction_begins(device, held_bytes, waited, to);
        counters.tell(|_| {}, begins);
        RunningSubcompaction {
            counters: Arc::clone(counters),
            progress: Progress::new(bytes, &counters.bytes_passed),
            device: device.to_owned(),
            bytes,
            held_bytes,
            began: Instant::now(),
            has_ended: AtomicBool::new(false),
        }
    }
}

impl Deref for JobProgress {
    type Target = ProgressCounter;

    fn deref(&self) -> &ProgressCounter {
        &self.0
    }
}

impl Drop for JobProgress {
    fn drop(&mut self) {
        let left = self.left.load(Ordering::Relaxed);
        let passed = &self.counters.bytes_passed;
        passed.fetch_add(left, Ordering::Relaxed);
        self.counters.tell(|_| {}, |to| metrics::job_ends(left, to));
    }
}

/// A running subcompaction.
#[derive(Debug)]
pub struct RunningSubcompaction {
    counters: Arc<StatsCell>,
    progress: Progress,
    device: String,
    bytes: u64,
    held_bytes: u64,
    began: Instant,
    has_ended: AtomicBool,
}

impl RunningSubcompaction {
    /// Returns the progress of the subcompaction.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Counts the end of the subcompaction, at most once. An abandoned call may still own this value.
    pub fn end(&self) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let took = self.began.elapsed();
        self.progress.advance(u64::MAX);
        let (device, bytes, held_bytes) = (&*self.device, self.bytes, self.held_bytes);
        let ends =
            |to: &mut dyn Sink| metrics::subcompaction_ends(device, bytes, held_bytes, took, to);
        self.counters.tell(|_| {}, ends);
    }
}

impl Drop for RunningSubcompaction {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_ended_leaves_no_bytes() {
        let counters = Arc::<StatsCell>::default();
        let bytes = || {
            let stats = counters.snapshot();
            (stats.bytes_begun, stats.bytes_passed)
        };
        let (none, wait) = (0, Duration::ZERO);
        let first = counters.begin(10);
        let second = counters.begin(5);
        let subcompaction = first.subcompaction_begins("cpu", 4, none, wait);
        subcompaction.progress().advance(1);
        assert_eq!(bytes(), (15, 1));
        drop(subcompaction);
        assert_eq!(bytes(), (15, 4));
        drop(first);
        assert_eq!(bytes(), (15, 10));
        drop(second.subcompaction_begins("cpu", 5, none, wait));
        drop(second);
        assert_eq!(bytes(), (15, 15));
        assert_eq!(counters.snapshot().jobs_running, 0);
    }

    #[test]
    fn subcompactions_give_back_what_they_hold() {
        let counters = Arc::<StatsCell>::default();
        let wait = Duration::from_millis(3);
        let job = counters.begin(0);
        let first = job.subcompaction_begins("cpu", 0, 100, wait);
        let second = job.subcompaction_begins("cpu", 0, 20, Duration::ZERO);
        drop(first);
        counters.subcompaction_failed(
            "cpu",
            &Error::new(ErrorKind::Verification, "not what was meant"),
        );
        counters.subcompaction_failed("cpu", &Error::cancelled());
        let during = counters.snapshot();
        assert_eq!(
            (
                during.subcompactions_running,
                during.subcompactions_held_bytes
            ),
            (1, 20)
        );
        drop(second);
        let after = counters.snapshot();
        assert_eq!(
            (
                after.subcompactions_running,
                after.subcompactions_held_bytes
            ),
            (0, 0)
        );
        assert_eq!(after.subcompactions_peak_held_bytes, 120);
        assert_eq!(
            (
                after.subcompaction_seconds.count(),
                after.subcompaction_wait_seconds.count()
            ),
            (2, 2)
        );
        assert_eq!(after.subcompaction_wait_seconds.longest(), Some(wait));
        assert_eq!(after.verification_failures, 1);
    }
}
