//! Number and times of the jobs that Rockmill has done. RocksDB decides their number, and works between them.

use std::fmt;

use rockmill::Stats;
use serde::{Deserialize, Serialize};

/// Number and times of jobs and of their subcompactions; 0 for RocksDB alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct JobTimes {
    /// Number of jobs done.
    pub jobs: u64,
    /// Wall times of these jobs, summed. RocksDB installs the files and removes the inputs afterwards.
    pub job_s: f64,
    /// Number of subcompactions, including those that a device failed to do.
    pub subcompactions: u64,
    /// Wall times of the subcompactions, summed. Divided by `job_s`, it is the mean number of those that ran at a time.
    pub subcompaction_s: f64,
}

impl JobTimes {
    /// The jobs between two moments.
    pub fn since(before: &Stats, after: &Stats) -> Self {
        let of = |stats: &Stats| Self {
            jobs: stats.job_seconds.count(),
            job_s: stats.job_seconds.sum().as_secs_f64(),
            subcompactions: stats.subcompaction_seconds.count(),
            subcompaction_s: stats.subcompaction_seconds.sum().as_secs_f64(),
        };
        let (before, after) = (of(before), of(after));
        Self {
            jobs: after.jobs - before.jobs,
            job_s: after.job_s - before.job_s,
            subcompactions: after.subcompactions - before.subcompactions,
            subcompaction_s: after.subcompaction_s - before.subcompaction_s,
        }
    }
}

impl fmt::Display for JobTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            jobs,
            job_s,
            subcompactions,
            subcompaction_s,
        } = self;
        write!(
            f,
            "jobs {jobs}, {job_s:.3} s; subcompactions {subcompactions}, {subcompaction_s:.3} s"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_times_are_those_of_the_jobs_between_two_moments() {
        let mut before = Stats::default();
        before.job_seconds.record(Duration::from_secs(7));
        let mut after = before.clone();
        for ms in [200, 300] {
            after.job_seconds.record(Duration::from_millis(ms));
        }
        for _ in 0..6 {
            (after.subcompaction_seconds).record(Duration::from_millis(250));
        }
        let times = JobTimes::since(&before, &after);
        assert_eq!(
            times.to_string(),
            "jobs 2, 0.500 s; subcompactions 6, 1.500 s"
        );
    }
}
