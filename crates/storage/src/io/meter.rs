//! Measures the time that a job spends on its files.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rockmill_core::{Resource, StageTime};

/// Measured stages, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A subcompaction waits for threads and memory that others hold.
    WaitForBudget,
    /// A read or write waits for the rate limit.
    WaitForLimit,
    /// Input is read; for input that was read ahead, only the remaining wait.
    Read,
    /// Everything else on a subcompaction's thread: decoding, merging, encoding.
    Compute,
    /// Output is handed to the operating system.
    Write,
    /// A finished file is made durable.
    Sync,
    /// A finished file is checked against its report.
    Verify,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::WaitForBudget,
        Self::WaitForLimit,
        Self::Read,
        Self::Compute,
        Self::Write,
        Self::Sync,
        Self::Verify,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::WaitForBudget => "wait for budget",
            Self::WaitForLimit => "wait for limit",
            Self::Read => "read",
            Self::Compute => "compute",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Verify => "verify",
        }
    }

    /// Whether a backend that measures itself reports this stage.
    fn is_backends(self) -> bool {
        matches!(self, Self::Read | Self::Compute | Self::Write)
    }
}

#[derive(Debug, Default)]
struct Sum {
    nanos: AtomicU64,
    bytes: AtomicU64,
}

thread_local! {
    /// Time that this thread has added to meters; a subcompaction subtracts it to get the rest of its time.
    static MEASURED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Time that the calling thread has added to any meter.
pub fn measured_by_this_thread() -> Duration {
    MEASURED.get()
}

/// Sums over the threads of a job.
#[derive(Debug, Default)]
pub struct Meter([Sum; Stage::ALL.len()]);

impl Meter {
    /// Adds time and bytes of the calling thread to a stage.
    pub fn add(&self, stage: Stage, time: Duration, bytes: u64) {
        MEASURED.set(MEASURED.get().saturating_add(time));
        let sum = &self.0[stage as usize];
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        sum.nanos.fetch_add(nanos, Ordering::Relaxed);
        sum.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Runs `work` and adds its time to a stage.
    pub fn time<T>(&self, stage: Stage, bytes: u64, work: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let done = work();
        self.add(stage, since.elapsed(), bytes);
        done
    }

    /// Stages that took time, without those that a measuring backend reports itself.
    pub fn stages(&self, backend_measures: bool) -> Vec<StageTime> {
        let shown = Stage::ALL.into_iter();
        let shown = shown.filter(|stage| !(backend_measures && stage.is_backends()));
        let times = shown.map(|stage| {
            let sum = &self.0[stage as usize];
            let nanos = Duration::from_nanos(sum.nanos.load(Ordering::Relaxed));
            StageTime {
                stage: stage.name(),
                resource: Resource::Host,
                seconds: nanos.as_secs_f64(),
                bytes: sum.bytes.load(Ordering::Relaxed),
            }
        });
        times.filter(|time| time.seconds > 0.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_shown_in_their_order_if_they_took_time() {
        let meter = Meter::default();
        let names = |measures| -> Vec<_> {
            let stages = meter.stages(measures);
            stages.iter().map(|s| (s.stage, s.bytes)).collect()
        };
        assert_eq!(names(false), []);
        let time = Duration::from_millis(1);
        meter.add(Stage::Sync, time, 5);
        meter.add(Stage::Read, time, 1);
        meter.add(Stage::Sync, time, 6);
        assert_eq!(names(false), [("read", 1), ("sync", 11)]);
        assert_eq!(names(true), [("sync", 11)]);
        assert_eq!(meter.stages(false)[1].seconds, 0.002);
    }
}
