//! When the CPU makes a slice again that another device is late with, so that a job does not wait for a straggler.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::pick::Left;
use crate::budget::HOST;

/// A straggler takes that many times as long as it was to, at least.
const TIMES: f64 = 4.0;

/// Whatever was expected, for less nobody is overtaken: a thread may be kept from its processor for so long.
const LEAST: Duration = Duration::from_millis(250);

/// What decides over a slice of a job.
#[derive(Debug)]
pub struct Overtaking<'a> {
    /// For how long the slice's device is waited for in any case.
    pub after: Duration,
    /// The job's slices that have not begun.
    pub left: &'a Left,
    /// Number of the device that makes or has made each slice.
    pub done_by: &'a [AtomicUsize],
    /// Slices that were overtaken.
    pub overtaken: &'a AtomicUsize,
    /// Slices that the CPU makes at most.
    pub host_slices: usize,
}

/// How long a slice is waited for which was to take so many seconds, and which would take the CPU so many: as long again
/// as that, so that it has taken twice as long as the better of both at most.
pub fn after(expected_seconds: f64, cpu_seconds: f64) -> Duration {
    let seconds = (expected_seconds * TIMES).max(expected_seconds + cpu_seconds);
    (Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)).max(LEAST)
}

impl Overtaking<'_> {
    /// Whether a slice that was waited for so long is made again. Then it counts as the CPU's.
    pub fn begins(&self, waited: Duration) -> bool {
        if waited < self.after || !self.left.is_empty() {
            return false;
        }
        let is_hosts = |device: &&AtomicUsize| device.load(Ordering::Acquire) == HOST;
        let by_host = self.done_by.iter().filter(is_hosts).count();
        let one_more = |taken: usize| (by_host + taken < self.host_slices).then_some(taken + 1);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.overtaken.fetch_update(set, fetch, one_more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_has_its_share_and_no_more_once_all_have_begun() {
        let (left, none) = (Left::all(1), Left::all(0));
        let done_by = [HOST, 1, 1, 1].map(AtomicUsize::new);
        let overtaken = AtomicUsize::new(0);
        let of = |left, host_slices| Overtaking {
            after: LEAST,
            left,
            done_by: &done_by,
            overtaken: &overtaken,
            host_slices,
        };
        assert!(!of(&left, 4).begins(LEAST), "one has not begun");
        assert!(!of(&none, 4).begins(LEAST / 2));
        assert!(!of(&none, 1).begins(LEAST), "it has its share");
        assert!(of(&none, 2).begins(LEAST));
        assert!(!of(&none, 2).begins(LEAST));
        assert!(of(&none, 3).begins(2 * LEAST));
    }

    #[test]
    fn a_straggler_is_slower_than_the_cpu_and_than_was_expected() {
        assert_eq!(after(1.0, 2.0), Duration::from_secs(4));
        assert_eq!(after(1.0, 9.0), Duration::from_secs(10));
        assert_eq!(after(1e-3, 1e-3), LEAST);
        assert_eq!(after(f64::INFINITY, 1.0), Duration::MAX);
    }
}
