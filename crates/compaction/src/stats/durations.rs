//! A histogram of times.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Buckets per doubling of the time. The first buckets are a microsecond wide.
const BUCKETS_PER_OCTAVE: u64 = 4;
/// Binary logarithm of [`BUCKETS_PER_OCTAVE`].
const OCTAVE_BITS: u32 = BUCKETS_PER_OCTAVE.ilog2();

/// Sum, maximum and histogram of times. A bucket's width is at most a quarter of its times, or a microsecond. So
/// quantiles are at most that much too large.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Durations {
    /// Counts by bucket, up to the last bucket that is not empty.
    buckets: Vec<u64>,
    count: u64,
    sum: Duration,
    longest: Duration,
}

impl Durations {
    /// Adds a time.
    pub fn record(&mut self, time: Duration) {
        let bucket = bucket(micros(time));
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.longest = self.longest.max(time);
    }

    /// Adds all times of `other`.
    pub fn add(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the times.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest time; `None` if there are none.
    pub fn longest(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.longest)
    }

    /// The mean; `None` if there are no times.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum.div_f64(self.count as f64))
    }

    /// Returns a time that the fraction `part` (0 to 1) of the times did not exceed; `None` if there are none.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let rank = (part * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen >= rank
        };
        let bucket = self.buckets.iter().position(reaches)?;
        Some(Duration::from_micros(end_micros(bucket)).min(self.longest))
    }
}

impl Serialize for Durations {
    /// Serialises a summary in seconds, with the non-empty buckets as pairs of end and count.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const MEDIAN: f64 = 0.5;
        const P99: f64 = 0.99;
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let counts = self.buckets.iter().enumerate();
        let buckets: Vec<(f64, u64)> = counts
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, &count)| (end_micros(bucket) as f64 / 1e6, count))
            .collect();
        let mut fields = serializer.serialize_struct("Durations", 7)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("sum_s", &self.sum.as_secs_f64())?;
        fields.serialize_field("mean_s", &seconds(self.mean()))?;
        fields.serialize_field("p50_s", &seconds(self.quantile(MEDIAN)))?;
        fields.serialize_field("p99_s", &seconds(self.quantile(P99)))?;
        fields.serialize_field("longest_s", &seconds(self.longest()))?;
        fields.serialize_field("buckets", &buckets)?;
        fields.end()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the bucket of a time, given by its octave and the bits after the highest one.
fn bucket(micros: u64) -> usize {
    if micros < BUCKETS_PER_OCTAVE {
        return micros as usize;
    }
    let shift = micros.ilog2() - OCTAVE_BITS;
    (u64::from(shift) * BUCKETS_PER_OCTAVE + (micros >> shift)) as usize
}

/// Returns the first whole microsecond after a bucket.
fn end_micros(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < BUCKETS_PER_OCTAVE {
        return bucket + 1;
    }
    let shift = bucket / BUCKETS_PER_OCTAVE - 1;
    let end = u128::from(bucket % BUCKETS_PER_OCTAVE + BUCKETS_PER_OCTAVE + 1) << shift;
    u64::try_from(end).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_has_no_quantiles() {
        let none = Durations::default();
        assert_eq!(
            (none.mean(), none.quantile(0.5), none.longest()),
            (None, None, None)
        );
    }

    #[test]
    fn one_time_is_all_its_quantiles() {
        let mut one = Durations::default();
        let time = Duration::from_micros(1_234_567);
        one.record(time);
        for part in [0.0, 0.5, 0.99, 1.0] {
            assert_eq!(one.quantile(part), Some(time), "{part}");
        }
        assert_eq!((one.mean(), one.sum(), one.count()), (Some(time), time, 1));
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_times_and_is_a_quarter_wide(micros in any::<u64>()) {
            let end = end_micros(bucket(micros));
            prop_assert!(micros < end || end == u64::MAX);
            if let Some(begin) = bucket(micros).checked_sub(1).map(end_micros) {
                prop_assert!(begin <= micros);
                prop_assert!(end - begin <= (begin / BUCKETS_PER_OCTAVE).max(1));
            }
        }

        #[test]
        fn quantiles_are_too_large_by_a_quarter_at_most(
            mut all in proptest::collection::vec(1..10_000_000u64, 1..200),
            part in 0.0..=1.0f64,
        ) {
            let mut times = Durations::default();
            all.iter().for_each(|&micros| times.record(Duration::from_micros(micros)));
            all.sort_unstable();
            let rank = (part * all.len() as f64).ceil() as usize;
            let exact = all[rank.max(1) - 1];
            let said = times.quantile(part).expect("some").as_micros() as u64;
            prop_assert!(exact <= said && said <= exact + exact / BUCKETS_PER_OCTAVE + 1, "{exact} {said}");
        }
    }
}
