//! Latency of operations.

use std::time::Duration;

use hdrhistogram::Histogram;
use rockmill_core::Lock;
use serde::{Deserialize, Serialize};

/// Longest recorded time. Times are recorded in nanoseconds with an error of one per cent.
const LONGEST: Duration = Duration::from_secs(1000);
const DIGITS: u8 = 2;

const NANOS_PER_MICRO: f64 = 1e3;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

/// Distribution of operation times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Times of operations.
#[derive(Debug, Clone)]
pub struct Times {
    reads: Histogram<u64>,
    writes: Histogram<u64>,
}

impl Default for Times {
    fn default() -> Self {
        let empty = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, DIGITS);
        let empty = empty.expect("bounds and digits are good");
        Self {
            reads: empty.clone(),
            writes: empty,
        }
    }
}

impl Times {
    fn record(&mut self, kind: Kind, took: Duration) {
        let times = match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        };
        times.saturating_record(took.as_nanos() as u64);
    }

    /// Adds the times of `other`.
    pub fn add(&mut self, other: &Self) {
        for (all, more) in [
            (&mut self.reads, &other.reads),
            (&mut self.writes, &other.writes),
        ] {
            all.add(more).expect("all have the same bounds");
        }
    }

    /// Returns the distribution for one kind, if there are any times.
    pub fn of(&self, kind: Kind) -> Option<Latency> {
        let times = match kind {
            Kind::Read => &self.reads,
            Kind::Write => &self.writes,
        };
        let micros = |nanos: f64| nanos / NANOS_PER_MICRO;
        let at = |share| micros(times.value_at_quantile(share) as f64);
        (!times.is_empty()).then(|| Latency {
            count: times.len(),
            mean_us: micros(times.mean()),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(times.max() as f64),
        })
    }
}

/// One client's times since the last [`Recorder::take`].
#[derive(Debug, Default)]
pub struct Recorder(Lock<Times>);

impl Recorder {
    /// Adds an operation.
    pub fn record(&self, kind: Kind, took: Duration) {
        self.0.lock().record(kind, took);
    }

    /// Takes the times; the client is blocked only for an exchange.
    pub fn take(&self) -> Times {
        let mut taken = Times::default();
        let mut times = self.0.lock();
        std::mem::swap(&mut *times, &mut taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_not_counted_again() {
        let recorder = Recorder::default();
        for millis in 1..=1000 {
            recorder.record(Kind::Write, Duration::from_millis(millis));
        }
        let mut all = recorder.take();
        recorder.record(Kind::Read, Duration::from_secs(100_000));
        assert_eq!(all.of(Kind::Read), None);
        all.add(&recorder.take());
        let writes = all.of(Kind::Write).expect("writes");
        assert_eq!(writes.count, 1000);
        for (found, millis) in [
            (writes.mean_us, 500.5),
            (writes.p50_us, 500.0),
            (writes.p99_us, 990.0),
            (writes.p999_us, 999.0),
            (writes.max_us, 1000.0),
        ] {
            assert!(
                (found / (millis * 1e3) - 1.0).abs() < 0.01,
                "{found} {millis}"
            );
        }
        assert_eq!(all.of(Kind::Read).map(|reads| reads.count), Some(1));
        assert_eq!(recorder.take().of(Kind::Read), None);
    }
}
