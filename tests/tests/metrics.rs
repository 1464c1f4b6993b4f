//! The process's metrics recorder receives the names, labels and units of docs/reference/metrics.md, with the values of
//! `stats()`.

use std::collections::{BTreeMap, BTreeSet};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshot, Snapshotter};
use rockmill::{Device, Service};
use rockmill_cuda::Target;
use rockmill_tests::harness::{
    assert_jobs_add_up, compact_small_database, run_jobs_of_each_outcome, service,
};

const PAGE: &str = include_str!("../../docs/reference/metrics.md");

/// Values by name and label value, which is empty if there is no label.
struct Heard(BTreeMap<(String, String), DebugValue>);

impl Heard {
    /// Checks each metric against its line in the documentation.
    fn new(snapshot: Snapshot) -> Self {
        let documented = documented();
        let mut heard = BTreeMap::new();
        for (key, unit, description, value) in snapshot.into_vec() {
            let name = key.key().name().to_owned();
            let labels: Vec<_> = key.key().labels().collect();
            let names: Vec<_> = labels.iter().map(|label| label.key()).collect();
            let line = Line {
                unit: unit.expect("described").as_str().to_owned(),
                label: names.join(", "),
                what: description.expect("described").to_string(),
            };
            assert_eq!(documented.get(&name), Some(&line), "{name}");
            let label = labels
                .iter()
                .map(|label| label.value().to_owned())
                .collect();
            heard.insert((name, label), value);
        }
        Self(heard)
    }

    fn counter(&self, name: &str, label: &str) -> u64 {
        match self.0.get(&(name.to_owned(), label.to_owned())) {
            Some(DebugValue::Counter(count)) => *count,
            other => panic!("{name} of {label:?} is {other:?}"),
        }
    }

    fn gauge(&self, name: &str, label: &str) -> f64 {
        match self.0.get(&(name.to_owned(), label.to_owned())) {
            Some(DebugValue::Gauge(value)) => value.into_inner(),
            other => panic!("{name} of {label:?} is {other:?}"),
        }
    }

    /// Returns the number of values in a histogram.
    fn samples(&self, name: &str, label: &str) -> u64 {
        match self.0.get(&(name.to_owned(), label.to_owned())) {
            Some(DebugValue::Histogram(values)) => values.len() as u64,
            other => panic!("{name} of {label:?} is {other:?}"),
        }
    }
}

/// Documentation of a metric.
#[derive(Debug, PartialEq)]
struct Line {
    unit: String,
    label: String,
    what: String,
}

fn documented() -> BTreeMap<String, Line> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `rockmill_"));
    let row = |line: &str| {
        let cells: Vec<_> = line
            .split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect();
        let [_, name, _, unit, label, what, _] = cells.try_into().expect("five columns");
        (name, Line { unit, label, what })
    };
    rows.map(row).collect()
}

/// The recorder is global to the process, so this is one test.
#[test]
fn a_recorder_hears_what_the_documentation_lists() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("no other recorder");
    let service = service();
    let heard = Heard::new(snapshotter.snapshot());
    for (metric, label) in [
        ("rockmill_jobs_done_total", ""),
        ("rockmill_jobs_declined_total", "merge-operands"),
        ("rockmill_jobs_failed_total", "corruption"),
        ("rockmill_verification_failures_total", "cpu"),
    ] {
        assert_eq!(heard.counter(metric, label), 0);
    }
    run_jobs_of_each_outcome(&service);

    let stats = service.stats();
    assert_jobs_add_up(&stats);
    let heard = Heard::new(snapshotter.snapshot());
    let names: BTreeSet<_> = heard.0.keys().map(|(name, _)| name.clone()).collect();
    let expected: BTreeSet<_> = documented().into_keys().collect();
    assert_eq!(names, expected);

    let counter = |name: &str| heard.counter(name, "");
    let (done, failed) = (stats.jobs_done, stats.jobs_failed);
    assert!(done > 0 && failed > 0 && stats.jobs_declined > 0, "{stats}");
    assert_eq!(counter("rockmill_jobs_offered_total"), stats.jobs_offered);
    assert_eq!(counter("rockmill_jobs_done_total"), done);
    for (reason, &jobs) in &stats.jobs_declined_by_reason {
        assert_eq!(heard.counter("rockmill_jobs_declined_total", reason), jobs);
    }
    assert_eq!(
        heard.counter("rockmill_jobs_failed_total", "corruption"),
        failed
    );
    assert_eq!(
        heard.counter("rockmill_subcompactions_total", "cpu"),
        stats.subcompactions
    );
    assert_eq!(counter("rockmill_read_bytes_total"), stats.read_bytes);
    assert_eq!(counter("rockmill_written_bytes_total"), stats.written_bytes);
    assert_eq!(counter("rockmill_entries_read_total"), stats.entries_read);
    assert_eq!(
        counter("rockmill_entries_written_total"),
        stats.entries_written
    );
    assert_eq!(counter("rockmill_files_written_total"), stats.files_written);

    assert_eq!(heard.samples("rockmill_job_seconds", "cpu"), done);
    assert_eq!(heard.samples("rockmill_job_cpu_seconds", "cpu"), done);
    assert_eq!(heard.samples("rockmill_job_read_bytes", ""), done);
    let subcompactions = stats.subcompaction_seconds.count();
    assert_eq!(
        heard.samples("rockmill_subcompaction_seconds", "cpu"),
        subcompactions
    );
    assert_eq!(
        heard.samples("rockmill_subcompaction_wait_seconds", "cpu"),
        subcompactions
    );
    for stage in &stats.stages {
        assert_eq!(heard.samples("rockmill_stage_seconds", stage.stage), done);
    }
    for nothing_runs in [
        "jobs_running",
        "subcompactions_running",
        "subcompactions_held_bytes",
        "backlog_bytes",
    ] {
        assert_eq!(
            heard.gauge(&format!("rockmill_{nothing_runs}"), ""),
            0.0,
            "{nothing_runs}"
        );
    }
    drop(service);
    hears_of_caches(&snapshotter);
}

/// The values of columns and files on devices, and of columns on the host.
fn hears_of_caches(snapshotter: &Snapshotter) {
    let service = Service::builder()
        .min_job_bytes(0)
        .device(Device::Kernels(Target::Host))
        .device_cache_bytes(1 << 20)
        .change(|settings| settings.cuda.cache_chunk_bytes = 16 << 10)
        .build();
    let service = service.expect("valid settings");
    service.wait_for_device().expect("kernels on the host");
    compact_small_database(&service, |_| {}, |_| {});
    let stats = service.stats();
    let kinds: Vec<_> = stats.caches.iter().map(|cache| &*cache.kind).collect();
    assert_eq!(kinds, ["columns", "columns", "files"]);
    let heard = Heard::new(snapshotter.snapshot());
    for cache in &stats.caches {
        let label = format!("{}{}", cache.device, cache.kind);
        let bytes = heard.gauge("rockmill_cache_bytes", &label);
        assert_eq!(bytes, cache.bytes as f64, "{label}");
        for (name, count) in [
            ("hit_bytes", cache.hit_bytes),
            ("miss_bytes", cache.miss_bytes),
            ("evicted_bytes", cache.evicted_bytes),
            ("mismatches", cache.mismatches),
        ] {
            let name = format!("rockmill_cache_{name}_total");
            assert_eq!(heard.counter(&name, &label), count, "{label}");
        }
    }
    let files = &stats.caches[2];
    assert!(files.bytes > 0 && files.miss_bytes > 0, "{files:?}");
    let label = format!("{}{}", files.device, files.kind);
    drop(service);
    // The snapshot before has set all values to 0.
    let heard = Heard::new(snapshotter.snapshot());
    let change = heard.gauge("rockmill_cache_bytes", &label);
    assert_eq!(change, -(files.bytes as f64));
}
