//! Numbers of a phase that tables and plots show.

use rockmill_side_by_side::stages;

use super::cell::{Cell, Interval, Phase, Traffic, Work};
use super::latency::Latency;

/// A number of a phase, if the phase has it.
pub struct Metric {
    pub title: &'static str,
    pub decimals: usize,
    pub of: fn(&Cell, &Phase) -> Option<f64>,
}

/// A number of each interval.
pub struct Course {
    pub title: &'static str,
    pub of: fn(&Interval) -> Option<f64>,
}

const THOUSAND: f64 = 1e3;
const MILLION: f64 = 1e6;
const GIGA: f64 = 1e9;
const PERCENT: f64 = 100.0;
/// Three reads and a write.
const TRANSACTION_OPERATIONS: f64 = 4.0;

macro_rules! metric {
    ($name:ident, $title:literal, $decimals:literal, $of:expr) => {
        #[doc = $title]
        pub const $name: Metric = Metric {
            title: $title,
            decimals: $decimals,
            of: $of,
        };
    };
}

metric!(WALL, "run s", 2, |_, phase| Some(phase.wall_s));
metric!(SETTLE, "settle s", 2, |_, phase| Some(phase.settle_s));
metric!(RATE, "kops/s", 1, |_, phase| Some(
    operations(phase) / phase.wall_s / THOUSAND
));
metric!(READ_MEAN, "read mean us", 1, |_, phase| phase
    .reads
    .map(|l| l.mean_us));
metric!(READ_P50, "read p50", 1, |_, phase| phase
    .reads
    .map(|l| l.p50_us));
metric!(READ_P99, "read p99 us", 1, |_, phase| phase
    .reads
    .map(|l| l.p99_us));
metric!(READ_P999, "read p99.9 us", 1, |_, phase| phase
    .reads
    .map(|l| l.p999_us));
metric!(WRITE_MEAN, "write mean us", 1, |_, phase| phase
    .writes
    .map(|l| l.mean_us));
metric!(WRITE_P50, "write p50", 1, |_, phase| phase
    .writes
    .map(|l| l.p50_us));
metric!(WRITE_P99, "write p99 us", 1, |_, phase| phase
    .writes
    .map(|l| l.p99_us));
metric!(WRITE_P999, "write p99.9 us", 1, |_, phase| phase
    .writes
    .map(|l| l.p999_us));
metric!(CPU_USE, "CPU %", 0, |_, phase| {
    Some(share(phase, phase.taken.cpu_s))
});
metric!(BURNT, "load %", 1, |_, phase| {
    (phase.burnt_s > 0.0).then(|| share(phase, phase.burnt_s))
});
metric!(GPU_USE, "GPU %", 0, |_, phase| {
    let known = (phase.timeline.iter()).filter_map(|at| Some((at.gpu_use?, at.seconds)));
    let (used_s, all_s) = known.fold((0.0, 0.0), |(used, all), (share, seconds)| {
        (used + share * seconds, all + seconds)
    });
    (all_s > 0.0).then(|| PERCENT * used_s / all_s)
});
metric!(DEVICE_USE, "GPU kernels %", 1, |_, phase| {
    let device_s = phase.taken.device_s();
    (device_s > 0.0).then(|| PERCENT * device_s / whole_s(phase))
});
metric!(JOULES, "GPU J", 1, |_, phase| phase.taken.joules());
metric!(COMPACTED, "compacted GB", 3, |_, phase| Some(
    compacted(&phase.traffic) / GIGA
));
metric!(STALLED, "stalled s", 2, |_, phase| Some(
    phase.traffic.stalled_s
));
metric!(AMPLIFICATION, "write amp", 2, |_, phase| {
    amplification(&phase.traffic, phase.traffic.written_bytes)
});
metric!(HOST_AMPLIFICATION, "host write amp", 2, |_, phase| {
    let (_, from_device) = stages::link_bytes(&phase.taken.stages);
    let elsewhere = from_device + phase.taken.near_data_bytes;
    let by_host = phase.traffic.written_bytes.saturating_sub(elsewhere);
    amplification(&phase.traffic, by_host)
});
metric!(TRANSACTIONS, "ktx/s", 1, |_, phase| {
    Some(transactions(phase)? / phase.wall_s / THOUSAND)
});
metric!(CPU_PER_TRANSACTION, "CPU us/tx", 2, |_, phase| {
    Some(phase.taken.cpu_s * MILLION / transactions(phase)?)
});
metric!(JOULES_PER_TRANSACTION, "GPU uJ/tx", 1, |_, phase| {
    Some(phase.taken.joules()? * MILLION / transactions(phase)?)
});
metric!(JOB_RATE, "GB/s", 3, |_, phase| Some(
    compacted(&phase.traffic) / GIGA / phase.wall_s
));
metric!(INPUT, "MB each", 1, |cell, phase| match &cell.work {
    Work::Jobs(jobs) => Some(phase.traffic.read_bytes as f64 / MILLION / f64::from(jobs.at_once)),
    Work::Clients(_) => None,
});
metric!(CPU_PER_GB, "CPU s/GB", 3, |_, phase| {
    Some(phase.taken.cpu_s * GIGA / compacted(&phase.traffic))
});
metric!(JOULES_PER_GB, "GPU J/GB", 2, |_, phase| {
    Some(phase.taken.joules()? * GIGA / compacted(&phase.traffic))
});

metric!(HITS, "hit %", 1, |_, phase| {
    let (hits, misses) = (phase.taken.cache_hit_bytes, phase.taken.cache_miss_bytes);
    (hits + misses > 0).then(|| PERCENT * hits as f64 / (hits + misses) as f64)
});
metric!(SIMULATED_HITS, "simulated hit %", 1, |cell, phase| {
    let is_steady = phase.name == "run" && phase.taken.cache_hit_bytes > 0;
    is_steady.then(|| cell.simulated_hit_share().map(|share| PERCENT * share))?
});
metric!(COMPACTION, "compaction s", 2, |_, phase| Some(
    phase.traffic.compacted_s
));

macro_rules! course {
    ($name:ident, $title:literal, $of:expr) => {
        #[doc = $title]
        pub const $name: Course = Course {
            title: $title,
            of: $of,
        };
    };
}

course!(RATE_COURSE, "kops/s", |interval| {
    let count = |latency: Option<Latency>| latency.map_or(0.0, |l| l.count as f64);
    let operations = count(interval.reads) + count(interval.writes);
    Some(operations / interval.seconds / THOUSAND)
});
course!(READ_P99_COURSE, "read p99 us", |interval| interval
    .reads
    .map(|l| l.p99_us));
course!(WRITE_P99_COURSE, "write p99 us", |interval| interval
    .writes
    .map(|l| l.p99_us));
course!(WRITE_P999_COURSE, "write p99.9 us", |interval| interval
    .writes
    .map(|l| l.p999_us));

/// Seconds until compactions were done.
fn whole_s(phase: &Phase) -> f64 {
    phase.wall_s + phase.settle_s
}

/// Percentage of all CPUs' time that `cpu_s` seconds are.
fn share(phase: &Phase, cpu_s: f64) -> f64 {
    PERCENT * cpu_s / whole_s(phase) / f64::from(phase.cores)
}

fn operations(phase: &Phase) -> f64 {
    let count = |latency: &Option<Latency>| latency.map_or(0.0, |l| l.count as f64);
    count(&phase.reads) + count(&phase.writes)
}

/// Transactions per second; `None` if there are no reads.
fn transactions(phase: &Phase) -> Option<f64> {
    phase
        .reads
        .map(|_| operations(phase) / TRANSACTION_OPERATIONS)
}

fn compacted(traffic: &Traffic) -> f64 {
    (traffic.read_bytes + traffic.written_bytes) as f64
}

/// Bytes written by flushes, plus `by_compactions`, per byte that the clients wrote.
fn amplification(traffic: &Traffic, by_compactions: u64) -> Option<f64> {
    let written = (traffic.flushed_bytes + by_compactions) as f64;
    (traffic.user_bytes > 0).then(|| written / traffic.user_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::args::Experiment;
    use crate::system::tests::phase;
    use rockmill_side_by_side::running_system::Consumption;

    fn cell() -> Cell {
        let args = crate::system::tests::args(&[]);
        let cells = Experiment::SecondaryIndex.cells(&args).expect("cells");
        cells[0].clone()
    }

    #[test]
    fn numbers_are_for_the_time_operations_or_bytes_that_they_name() {
        let (cell, phase) = (cell(), phase());
        for (metric, expected) in [
            (RATE, 4.0),
            (TRANSACTIONS, 1.0),
            (CPU_PER_TRANSACTION, 4000.0),
            (JOULES_PER_TRANSACTION, 50_000.0),
            (CPU_USE, 50.0),
            (BURNT, 25.0),
            (DEVICE_USE, 25.0),
            (READ_P999, 4.0),
            (COMPACTED, 1e-6),
            (AMPLIFICATION, 5.5),
            // 300 of 400 bytes were copied back from a GPU, and a drive wrote 40 itself.
            (HOST_AMPLIFICATION, 2.1),
        ] {
            let found = (metric.of)(&cell, &phase).expect(metric.title);
            assert!(
                (found / expected - 1.0).abs() < 1e-9,
                "{} {found}",
                metric.title
            );
        }
    }

    #[test]
    fn a_gpu_is_as_busy_as_in_all_intervals_of_which_that_is_known() {
        let interval = |seconds, gpu_use| Interval {
            seconds,
            until_s: seconds,
            reads: None,
            writes: None,
            cpu_use: 0.5,
            gpu_use,
            traffic: Traffic::default(),
        };
        let phase = Phase {
            timeline: vec![
                interval(1.0, Some(0.8)),
                interval(3.0, Some(0.4)),
                interval(9.0, None),
            ],
            ..phase()
        };
        let found = (GPU_USE.of)(&cell(), &phase).expect("it is known");
        assert!((found - 50.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn what_was_not_done_has_no_number() {
        let phase = Phase {
            reads: None,
            taken: Consumption::default(),
            burnt_s: 0.0,
            traffic: Traffic::default(),
            ..phase()
        };
        for metric in [
            READ_MEAN,
            TRANSACTIONS,
            GPU_USE,
            DEVICE_USE,
            JOULES,
            BURNT,
            AMPLIFICATION,
            INPUT,
        ] {
            assert_eq!((metric.of)(&cell(), &phase), None, "{}", metric.title);
        }
    }
}
