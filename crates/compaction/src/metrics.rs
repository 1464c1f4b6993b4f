//! Metrics of an engine: one table of names, and one function for each event.
//!
//! An event goes to two sinks: the engine's own [`Values`], from which [`crate::Stats`] and the text for Prometheus are
//! made, and the process's metrics recorder. No other module uses the `metrics` facade. The application installs the
//! recorder; without one, each call only reads an atomic. Labels take few values. No label names the database, because
//! a process may have thousands of databases.

mod prometheus;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use metrics::{Label, Unit, counter, gauge, histogram};
use rockmill_core::columns::Accounts;
use rockmill_core::{DeclineReason, Error, ErrorKind};

pub use values::Values;

use crate::outcome::Outcome;

/// How a recorder combines a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They are summed.
    Counter,
    /// They rise and fall.
    Gauge,
    /// They form a distribution.
    Histogram,
}

/// A metric, as recorders and the documentation describe it.
#[derive(Debug)]
pub struct Metric {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    /// Key of its label, if any, or two keys with a comma between them. Their values have one, too.
    label: Option<&'static str>,
    help: &'static str,
}

macro_rules! metrics_table {
    ($($constant:ident = $kind:ident $unit:ident $name:literal $(by $label:literal)?, $help:literal;)+) => {
        $(pub static $constant: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            label: metrics_table!(@label $($label)?),
            help: $help,
        };)+

        /// Every metric.
        static ALL: &[&Metric] = &[$(&$constant),+];
    };
    (@label) => { None };
    (@label $label:literal) => { Some($label) };
}

metrics_table! {
    JOBS_OFFERED = Counter Count "rockmill_jobs_offered_total",
        "jobs that RocksDB offered";
    JOBS_DONE = Counter Count "rockmill_jobs_done_total",
        "jobs that were done";
    JOBS_DECLINED = Counter Count "rockmill_jobs_declined_total" by "reason",
        "jobs that were left to RocksDB, because Rockmill cannot do them exactly or because the database closed";
    JOBS_FAILED = Counter Count "rockmill_jobs_failed_total" by "error",
        "jobs that went back to RocksDB after an error";
    JOBS_REDONE = Counter Count "rockmill_jobs_redone_by_cpu_total",
        "jobs done of which the CPU did some or all subcompactions because a configured device could not";
    JOBS_WITH_PLUGINS = Counter Count "rockmill_jobs_with_plugins_total",
        "jobs done that called objects of the program, on the CPU";
    JOBS_FILTERED_AGAIN = Counter Count "rockmill_jobs_filtered_again_total",
        "jobs that went back to RocksDB after a compaction filter of the program had seen some keys, which RocksDB shows it again";
    SUBCOMPACTIONS_REDONE = Counter Count "rockmill_subcompactions_redone_by_cpu_total" by "device",
        "subcompactions that the CPU did after the device had failed at them";
    SUBCOMPACTIONS_ABANDONED = Counter Count "rockmill_subcompactions_abandoned_total" by "device",
        "subcompactions that were abandoned because the device did not return in time";
    DEVICE_QUARANTINED = Counter Count "rockmill_device_quarantined_total" by "device",
        "times that the device was quarantined, after several failures in a row or an abandoned subcompaction";
    VERIFICATION_FAILURES = Counter Count "rockmill_verification_failures_total" by "device",
        "subcompactions whose output did not pass verification and was discarded";
    SUBCOMPACTIONS = Counter Count "rockmill_subcompactions_total" by "device",
        "subcompactions of jobs done";
    SUBCOMPACTION_READ_BYTES = Counter Bytes "rockmill_subcompaction_read_bytes_total" by "device",
        "stored bytes of the input of subcompactions of jobs done";
    NEAR_DATA_BYTES = Counter Bytes "rockmill_subcompaction_near_data_bytes_total" by "device",
        "bytes of files of jobs done that a device at the data wrote itself, not through the host";
    SUBCOMPACTIONS_MOVED = Counter Count "rockmill_subcompactions_moved_total" by "device",
        "subcompactions that waited for another device and went to this one, which was expected to finish them sooner";
    READ_BYTES = Counter Bytes "rockmill_read_bytes_total",
        "bytes that jobs done read from input files";
    WRITTEN_BYTES = Counter Bytes "rockmill_written_bytes_total",
        "bytes of the files that jobs done wrote";
    ENTRIES_READ = Counter Count "rockmill_entries_read_total",
        "entries that jobs done read";
    ENTRIES_WRITTEN = Counter Count "rockmill_entries_written_total",
        "entries that jobs done wrote";
    FILES_WRITTEN = Counter Count "rockmill_files_written_total",
        "files that jobs done wrote";
    JOB_SECONDS = Histogram Seconds "rockmill_job_seconds" by "device",
        "wall time of a job done";
    JOB_CPU_SECONDS = Histogram Seconds "rockmill_job_cpu_seconds" by "device",
        "CPU time of a job done, over all its threads";
    JOB_READ_BYTES = Histogram Bytes "rockmill_job_read_bytes",
        "bytes that a job done read";
    STAGE_SECONDS = Histogram Seconds "rockmill_stage_seconds" by "stage",
        "time of a stage in a job done, summed over its threads";
    SUBCOMPACTION_SECONDS = Histogram Seconds "rockmill_subcompaction_seconds" by "device",
        "wall time of a subcompaction, from its start until its last file is written or it fails";
    SUBCOMPACTION_WAIT_SECONDS = Histogram Seconds "rockmill_subcompaction_wait_seconds" by "device",
        "time that a subcompaction waited for memory and for the device that took it";
    JOBS_RUNNING = Gauge Count "rockmill_jobs_running",
        "jobs whose subcompactions run or wait";
    SUBCOMPACTIONS_RUNNING = Gauge Count "rockmill_subcompactions_running",
        "running subcompactions; the threads setting limits them on each device";
    SUBCOMPACTIONS_HELD_BYTES = Gauge Bytes "rockmill_subcompactions_held_bytes",
        "memory of the budget that running subcompactions hold";
    BACKLOG_BYTES = Gauge Bytes "rockmill_backlog_bytes",
        "input bytes of running jobs, without subcompactions that have ended";
    CACHE_BYTES = Gauge Bytes "rockmill_cache_bytes" by "device,kind",
        "bytes that are cached in the device's memory";
    CACHE_HIT_BYTES = Counter Bytes "rockmill_cache_hit_bytes_total" by "device,kind",
        "bytes that jobs and scans found in the cache";
    CACHE_MISS_BYTES = Counter Bytes "rockmill_cache_miss_bytes_total" by "device,kind",
        "bytes that jobs and scans looked for in the cache and read from files";
    CACHE_EVICTED_BYTES = Counter Bytes "rockmill_cache_evicted_bytes_total" by "device,kind",
        "cached bytes that made room for others, for jobs or for a smaller limit";
    CACHE_MISMATCHES = Counter Count "rockmill_cache_mismatches_total" by "device,kind",
        "cached files, or groups of columns, whose bytes had changed and were read again from files";
}

/// Kinds of errors that a job may end with.
const FAILURES: &[ErrorKind] = &[
    ErrorKind::Corruption,
    ErrorKind::Storage,
    ErrorKind::Verification,
    ErrorKind::Device,
    ErrorKind::Unsupported,
    ErrorKind::Internal,
];

/// The device's name in the label of work on the CPU.
const CPU: &str = "cpu";

impl Metric {
    /// Keys and values of its labels.
    fn pairs<'a>(&self, label: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
        let keys = self.label.into_iter().flat_map(|keys| keys.split(','));
        keys.zip(label.split(','))
    }

    fn labels(&self, label: &str) -> Vec<Label> {
        let pairs = self.pairs(label);
        pairs
            .map(|(key, value)| Label::new(key, value.to_owned()))
            .collect()
    }

    fn describe(&self) {
        let (name, unit, help) = (self.name, self.unit, self.help);
        match self.kind {
            Kind::Counter => metrics::describe_counter!(name, unit, help),
            Kind::Gauge => metrics::describe_gauge!(name, unit, help),
            Kind::Histogram => metrics::describe_histogram!(name, unit, help),
        }
    }
}

/// Receives events. `label` is empty for a metric without a label.
pub trait Sink {
    /// Adds to a counter.
    fn count(&mut self, metric: &'static Metric, label: &str, by: u64);

    /// Changes a gauge.
    fn change(&mut self, metric: &'static Metric, label: &str, by: i64);

    /// Adds a value to a histogram, in the metric's unit.
    fn observe(&mut self, metric: &'static Metric, label: &str, value: f64);
}

/// The process's metrics recorder.
struct Recorder;

impl Sink for Recorder {
    fn count(&mut self, metric: &'static Metric, label: &str, by: u64) {
        counter!(metric.name, metric.labels(label)).increment(by);
    }

    fn change(&mut self, metric: &'static Metric, label: &str, by: i64) {
        gauge!(metric.name, metric.labels(label)).increment(by as f64);
    }

    fn observe(&mut self, metric: &'static Metric, label: &str, value: f64) {
        histogram!(metric.name, metric.labels(label)).record(value);
    }
}

/// Passes an event to the process's recorder. It belongs to the application, and its panics must not reach RocksDB.
pub fn tell_recorder(event: impl FnOnce(&mut dyn Sink)) {
    let _ = catch_unwind(AssertUnwindSafe(|| event(&mut Recorder)));
}

/// Describes all metrics to the installed recorder.
pub fn describe() {
    let _ = catch_unwind(|| ALL.iter().for_each(|metric| metric.describe()));
}

/// Creates gauges, and counters for the devices whose names are joined by `+`, with 0. If a counter appeared with its
/// first event, a rate over it would miss that event.
pub fn begins(devices: &str, to: &mut dyn Sink) {
    let devices = || devices.split('+').filter(|name| *name != "auto");
    for metric in ALL {
        let mut zero = |label: &str| to.count(metric, label, 0);
        match (metric.kind, metric.label) {
            (Kind::Histogram, _) => {}
            (_, Some("device,kind")) => {}
            (Kind::Gauge, _) => to.change(metric, "", 0),
            (_, None) => zero(""),
            (_, Some("reason")) => {
                let reasons = DeclineReason::ALL.iter();
                reasons.for_each(|reason| zero(reason.code()));
            }
            (_, Some("error")) => FAILURES.iter().for_each(|kind| zero(kind.code())),
            (_, Some(_)) => devices().chain([CPU]).for_each(zero),
        }
    }
}

/// Counts what a cache has done between two looks at its accounts. `label` names its device and kind.
pub fn cache_changed(label: &str, [before, now]: [Accounts; 2], to: &mut dyn Sink) {
    to.change(
        &CACHE_BYTES,
        label,
        signed(now.bytes) - signed(before.bytes),
    );
    let mut count = |metric, of: fn(&Accounts) -> u64| {
        to.count(metric, label, of(&now).saturating_sub(of(&before)));
    };
    count(&CACHE_HIT_BYTES, |of| of.hit_bytes);
    count(&CACHE_MISS_BYTES, |of| of.miss_bytes);
    count(&CACHE_EVICTED_BYTES, |of| of.evicted_bytes);
    count(&CACHE_MISMATCHES, |of| of.mismatches);
}

/// Counts a job that RocksDB offered.
pub fn job_offered(to: &mut dyn Sink) {
    to.count(&JOBS_OFFERED, "", 1);
}

/// Counts a job with `bytes` bytes of input whose subcompactions begin.
pub fn job_begins(bytes: u64, to: &mut dyn Sink) {
    to.change(&JOBS_RUNNING, "", 1);
    to.change(&BACKLOG_BYTES, "", signed(bytes));
}

/// Counts the end of a job's subcompactions. `bytes_left` is the input of those that have not begun.
pub fn job_ends(bytes_left: u64, to: &mut dyn Sink) {
    to.change(&JOBS_RUNNING, "", -1);
    to.change(&BACKLOG_BYTES, "", -signed(bytes_left));
}

/// Counts a job that was done.
pub fn job_done(outcome: &Outcome, to: &mut dyn Sink) {
    let totals = &outcome.totals;
    let device = outcome.device.as_str();
    to.count(&JOBS_DONE, "", 1);
    for work in &outcome.devices {
        to.count(&SUBCOMPACTIONS, &work.device, work.subcompactions);
        to.count(&SUBCOMPACTION_READ_BYTES, &work.device, work.bytes);
        if work.near_data_bytes > 0 {
            to.count(&NEAR_DATA_BYTES, &work.device, work.near_data_bytes);
        }
    }
    to.count(&READ_BYTES, "", totals.read.bytes);
    to.count(&WRITTEN_BYTES, "", outcome.bytes_written());
    to.count(&ENTRIES_READ, "", outcome.entries_read);
    to.count(&ENTRIES_WRITTEN, "", totals.read.rows());
    to.count(&FILES_WRITTEN, "", outcome.files.len() as u64);
    if outcome.has_plugins {
        to.count(&JOBS_WITH_PLUGINS, "", 1);
    }
    if outcome.device_refused.is_some() {
        to.count(&JOBS_REDONE, "", 1);
    }
    to.observe(&JOB_SECONDS, device, outcome.elapsed.as_secs_f64());
    to.observe(&JOB_CPU_SECONDS, device, outcome.cpu.as_secs_f64());
    to.observe(&JOB_READ_BYTES, "", totals.read.bytes as f64);
    for stage in &totals.stages {
        to.observe(&STAGE_SECONDS, stage.stage, stage.seconds);
    }
}

/// Counts a job that went back to RocksDB.
pub fn job_returned(error: &Error, to: &mut dyn Sink) {
    let metric = match error.kind {
        ErrorKind::Declined(_) | ErrorKind::Cancelled => &JOBS_DECLINED,
        _ => &JOBS_FAILED,
    };
    to.count(metric, error.kind.code(), 1);
}

/// Counts a job that went back to RocksDB after its filter had begun.
pub fn job_filtered_again(to: &mut dyn Sink) {
    to.count(&JOBS_FILTERED_AGAIN, "", 1);
}

/// Counts a subcompaction that begins with `held_bytes` of memory, after it `waited`.
pub fn subcompaction_begins(device: &str, held_bytes: u64, waited: Duration, to: &mut dyn Sink) {
    to.change(&SUBCOMPACTIONS_RUNNING, "", 1);
    to.change(&SUBCOMPACTIONS_HELD_BYTES, "", signed(held_bytes));
    to.observe(&SUBCOMPACTION_WAIT_SECONDS, device, waited.as_secs_f64());
}

/// Counts the end of a subcompaction with `bytes` bytes of input, which releases its memory.
pub fn subcompaction_ends(
    device: &str,
    bytes: u64,
    held_bytes: u64,
    took: Duration,
    to: &mut dyn Sink,
) {
    to.change(&SUBCOMPACTIONS_RUNNING, "", -1);
    to.change(&SUBCOMPACTIONS_HELD_BYTES, "", -signed(held_bytes));
    to.change(&BACKLOG_BYTES, "", -signed(bytes));
    to.observe(&SUBCOMPACTION_SECONDS, device, took.as_secs_f64());
}

/// No file and no memory has more bytes.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/metrics.md");

    impl Metric {
        /// Returns the metric's line in the documentation's table.
        fn line(&self) -> String {
            let label = self
                .label
                .map(|label| format!("`{}`", label.replace(',', "`, `")));
            let unit = self.unit.as_str();
            let kind = match self.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let label = label.unwrap_or_default();
            format!(
                "| `{}` | {kind} | {unit} | {label} | {} |",
                self.name, self.help
            )
        }
    }

    #[test]
    fn the_documentation_lists_all_metrics_and_no_others() {
        let documented: Vec<_> = PAGE
            .lines()
            .filter(|line| line.starts_with("| `rockmill_"))
            .collect();
        let described: Vec<_> = ALL.iter().map(|metric| metric.line()).collect();
        assert_eq!(
            documented,
            described,
            "docs/reference/metrics.md should have\n{}",
            described.join("\n")
        );
    }

    #[test]
    fn names_carry_their_unit() {
        for metric in ALL {
            let suffix = match (metric.kind, metric.unit) {
                (Kind::Counter, Unit::Bytes) => "_bytes_total",
                (Kind::Counter, _) => "_total",
                (_, Unit::Bytes) => "_bytes",
                (_, Unit::Seconds) => "_seconds",
                _ => "",
            };
            assert!(metric.name.ends_with(suffix), "{}", metric.name);
        }
    }
}
