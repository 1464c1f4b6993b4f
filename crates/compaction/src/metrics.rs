//! Metrics of an engine for the process's metrics recorder.
//!
//! No other module uses the `metrics` facade. The application installs the recorder; without one, each call only reads
//! an atomic. Labels take few values. No label names the database, because a process may have thousands of databases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use rockmill_core::{DeclineReason, Error, ErrorKind};

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
struct Metric {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    /// Key of its label, if any.
    label: Option<&'static str>,
    help: &'static str,
}

macro_rules! metrics_table {
    ($($constant:ident = $kind:ident $unit:ident $name:literal $(by $label:literal)?, $help:literal;)+) => {
        $(const $constant: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            label: metrics_table!(@label $($label)?),
            help: $help,
        };)+

        /// Every metric.
        const ALL: &[Metric] = &[$($constant),+];
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
    SUBCOMPACTION_BYTES = Counter Bytes "rockmill_subcompaction_read_bytes_total" by "device",
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
}

/// Kinds of errors that a job may end with.
const FAILURES: &[ErrorKind] = &[
    ErrorKind::Corruption,
    ErrorKind::Storage,
    ErrorKind::Verification,
    ErrorKind::Device,
    ErrorKind::Internal,
];

/// The device's name in the label of work that the CPU did.
const CPU: &str = "cpu";

impl Metric {
    fn describe(&self) {
        let (name, unit, help) = (self.name, self.unit, self.help);
        match self.kind {
            Kind::Counter => metrics::describe_counter!(name, unit, help),
            Kind::Gauge => metrics::describe_gauge!(name, unit, help),
            Kind::Histogram => metrics::describe_histogram!(name, unit, help),
        }
    }

    fn counter(&self) -> Counter {
        counter!(self.name)
    }

    fn counter_of(&self, label: &str) -> Counter {
        counter!(self.name, self.label.unwrap_or_default() => label.to_owned())
    }

    fn gauge(&self) -> Gauge {
        gauge!(self.name)
    }

    fn histogram(&self) -> Histogram {
        histogram!(self.name)
    }

    fn histogram_of(&self, label: &str) -> Histogram {
        histogram!(self.name, self.label.unwrap_or_default() => label.to_owned())
    }
}

/// The recorder belongs to the application. Its panics must not reach RocksDB.
fn guarded(tell: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(tell));
}

/// Describes all metrics to the installed recorder, and creates the counters with 0 for the devices whose names are joined
/// by `+`. If a counter appeared with its first event, a rate over it would miss that event.
pub fn describe(devices: &str) {
    let devices = || devices.split('+').filter(|name| *name != "auto");
    guarded(|| {
        for metric in ALL {
            metric.describe();
            if metric.kind != Kind::Counter {
                continue;
            }
            let zero = |label: &str| metric.counter_of(label).increment(0);
            match metric.label {
                None => metric.counter().increment(0),
                Some("reason") => {
                    let reasons = DeclineReason::ALL.iter();
                    reasons.for_each(|reason| zero(reason.code()));
                }
                Some("error") => FAILURES.iter().for_each(|kind| zero(kind.code())),
                Some(_) => devices().chain([CPU]).for_each(zero),
            }
        }
    });
}

/// Counts a job that RocksDB offered.
pub fn job_offered() {
    guarded(|| JOBS_OFFERED.counter().increment(1));
}

/// Counts a job with `bytes` bytes of input whose subcompactions begin.
pub fn job_begins(bytes: u64) {
    guarded(|| {
        JOBS_RUNNING.gauge().increment(1);
        BACKLOG_BYTES.gauge().increment(bytes as f64);
    });
}

/// Counts the end of a job's subcompactions. `bytes_left` is the input of those that have not begun.
pub fn job_ends(bytes_left: u64) {
    guarded(|| {
        JOBS_RUNNING.gauge().decrement(1);
        BACKLOG_BYTES.gauge().decrement(bytes_left as f64);
    });
}

/// Counts a job that was done.
pub fn job_done(outcome: &Outcome) {
    guarded(|| {
        let totals = &outcome.totals;
        let device = outcome.device.as_str();
        JOBS_DONE.counter().increment(1);
        for work in &outcome.devices {
            SUBCOMPACTIONS
                .counter_of(&work.device)
                .increment(work.subcompactions);
            let bytes = SUBCOMPACTION_BYTES.counter_of(&work.device);
            bytes.increment(work.bytes);
            if work.near_data_bytes > 0 {
                let bytes = NEAR_DATA_BYTES.counter_of(&work.device);
                bytes.increment(work.near_data_bytes);
            }
        }
        READ_BYTES.counter().increment(totals.read.bytes);
        let written = outcome.bytes_written();
        WRITTEN_BYTES.counter().increment(written);
        ENTRIES_READ.counter().increment(outcome.entries_read);
        let entries_written = totals.read.kept;
        ENTRIES_WRITTEN.counter().increment(entries_written);
        FILES_WRITTEN
            .counter()
            .increment(outcome.files.len() as u64);
        if outcome.device_refused.is_some() {
            JOBS_REDONE.counter().increment(1);
        }
        JOB_SECONDS.histogram_of(device).record(outcome.elapsed);
        JOB_CPU_SECONDS.histogram_of(device).record(outcome.cpu);
        JOB_READ_BYTES.histogram().record(totals.read.bytes as f64);
        for stage in &totals.stages {
            let seconds = STAGE_SECONDS.histogram_of(stage.stage);
            seconds.record(stage.seconds);
        }
    });
}

/// Counts a job that went back to RocksDB.
pub fn job_returned(error: &Error) {
    let metric = match error.kind {
        ErrorKind::Declined(_) | ErrorKind::Cancelled => JOBS_DECLINED,
        _ => JOBS_FAILED,
    };
    guarded(|| metric.counter_of(error.kind.code()).increment(1));
}

/// Counts a subcompaction that begins with `held_bytes` of memory, after it `waited`.
pub fn subcompaction_begins(device: &str, held_bytes: u64, waited: Duration) {
    guarded(|| {
        SUBCOMPACTIONS_RUNNING.gauge().increment(1);
        SUBCOMPACTIONS_HELD_BYTES
            .gauge()
            .increment(held_bytes as f64);
        SUBCOMPACTION_WAIT_SECONDS
            .histogram_of(device)
            .record(waited);
    });
}

/// Counts the end of a subcompaction with `bytes` bytes of input, which releases its memory.
pub fn subcompaction_ends(device: &str, bytes: u64, held_bytes: u64, took: Duration) {
    guarded(|| {
        SUBCOMPACTIONS_RUNNING.gauge().decrement(1);
        SUBCOMPACTIONS_HELD_BYTES
            .gauge()
            .decrement(held_bytes as f64);
        BACKLOG_BYTES.gauge().decrement(bytes as f64);
        SUBCOMPACTION_SECONDS.histogram_of(device).record(took);
    });
}

/// Counts a subcompaction that waited for another device and runs on this one.
pub fn subcompaction_moved(device: &str) {
    guarded(|| SUBCOMPACTIONS_MOVED.counter_of(device).increment(1));
}

/// Counts a subcompaction that the CPU has done after the device failed at it.
pub fn subcompaction_redone(device: &str) {
    guarded(|| SUBCOMPACTIONS_REDONE.counter_of(device).increment(1));
}

/// Counts a subcompaction from which the device did not return in time.
pub fn subcompaction_abandoned(device: &str) {
    guarded(|| SUBCOMPACTIONS_ABANDONED.counter_of(device).increment(1));
}

/// Counts a quarantine of the device.
pub fn device_quarantined(device: &str) {
    guarded(|| DEVICE_QUARANTINED.counter_of(device).increment(1));
}

/// Counts a subcompaction whose output did not pass verification.
pub fn verification_failed(device: &str) {
    guarded(|| VERIFICATION_FAILURES.counter_of(device).increment(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/metrics.md");

    impl Metric {
        /// Returns the metric's line in the documentation's table.
        fn line(&self) -> String {
            let label = self.label.map(|label| format!("`{label}`"));
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
        let described: Vec<_> = ALL.iter().map(Metric::line).collect();
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
