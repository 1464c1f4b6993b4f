//! When the CPU makes slices again that another device is late with, so that a job does not wait for stragglers.
//!
//! Late is what takes several times as long as other slices of the same job took: these were read from the same drive, at
//! the same time, by the same machine. What was expected before counts beside it, and does not suffice: rates are those of
//! files in memory, and of a new device nobody knows any.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::budget::HOST;

/// A straggler takes that many times as long as such slices do, at least.
const TIMES: f64 = 4.0;

/// Whatever others took, for less nobody is overtaken: a thread may be kept from its processor for so long.
const LEAST: Duration = Duration::from_millis(250);

/// A job's slices: how many have ended, how quickly, and how many are late.
#[derive(Debug)]
pub struct Stragglers {
    /// Slices of the job that run or have not begun.
    outstanding: AtomicUsize,
    /// Of these, how many calls are late with.
    late: AtomicUsize,
    /// Slices that the CPU makes again.
    overtaken: AtomicUsize,
    /// Slices that the CPU makes at most.
    host_slices: usize,
    /// Seconds and bytes of input of those that were done.
    done: Mutex<(f64, u64)>,
}

impl Stragglers {
    /// Of so many slices, so many of which the CPU may make.
    pub fn new(slices: usize, host_slices: usize) -> Self {
        Self {
            outstanding: AtomicUsize::new(slices),
            late: AtomicUsize::new(0),
            overtaken: AtomicUsize::new(0),
            host_slices,
            done: Mutex::default(),
        }
    }

    /// A slice over so many bytes was done, on any device.
    pub fn was_done(&self, bytes: u64, took: Duration) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0 += took.as_secs_f64();
        done.1 += bytes;
    }

    /// A slice runs no longer, whatever became of it.
    pub fn ended(&self) {
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
    }

    /// What slices over so many bytes took; `None` if none was done.
    fn usual(&self, bytes: u64) -> Option<f64> {
        let (seconds, of) = *self.done.lock().unwrap_or_else(PoisonError::into_inner);
        (of > 0).then(|| seconds * bytes as f64 / of as f64)
    }
}

/// A slice on a device beside the CPU.
#[derive(Debug)]
pub struct Overtaking<'a> {
    pub stragglers: &'a Stragglers,
    /// Number of the device that makes or has made each slice.
    pub done_by: &'a [AtomicUsize],
    /// Input of the slice.
    pub bytes: u64,
    /// What it was expected to take there, and on the CPU.
    pub expected_seconds: f64,
    pub cpu_seconds: f64,
}

/// A call that is late, until it ends.
#[derive(Debug)]
pub struct Late<'a>(&'a Stragglers);

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.late.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<'a> Overtaking<'a> {
    /// Whether the slice, which was waited for so long, is late.
    pub fn is_late(&self, waited: Duration) -> bool {
        let usual = self.stragglers.usual(self.bytes);
        usual.is_some_and(|usual| {
            let times = TIMES * usual.max(self.expected_seconds);
            let seconds = times.max(self.expected_seconds + self.cpu_seconds.max(usual));
            waited >= LEAST && waited.as_secs_f64() >= seconds
        })
    }

    /// Counts it as late.
    pub fn late(&self) -> Late<'a> {
        self.stragglers.late.fetch_add(1, Ordering::AcqRel);
        Late(self.stragglers)
    }

    /// Whether the job waits for nothing but slices that are late, all of which the CPU may make.
    pub fn begins(&self) -> bool {
        let Stragglers {
            outstanding,
            late,
            overtaken,
            host_slices,
            ..
        } = self.stragglers;
        let [outstanding, late, overtaken] =
            [outstanding, late, overtaken].map(|count| count.load(Ordering::Acquire));
        let is_hosts = |device: &&AtomicUsize| device.load(Ordering::Acquire) == HOST;
        let by_host = self.done_by.iter().filter(is_hosts).count();
        late >= outstanding && by_host + overtaken + late <= *host_slices
    }

    /// The CPU is to make it.
    pub fn overtaken(&self) {
        self.stragglers.overtaken.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1000;

    fn overtaking<'a>(stragglers: &'a Stragglers, done_by: &'a [AtomicUsize]) -> Overtaking<'a> {
        Overtaking {
            stragglers,
            done_by,
            bytes: BYTES,
            expected_seconds: 0.1,
            cpu_seconds: 0.5,
        }
    }

    #[test]
    fn late_is_what_takes_much_longer_than_others_of_the_job_did() {
        let stragglers = Stragglers::new(4, 4);
        let slice = overtaking(&stragglers, &[]);
        assert!(!slice.is_late(Duration::from_secs(3600)), "none was done");
        stragglers.was_done(BYTES / 2, Duration::ZERO);
        assert!(
            !slice.is_late(Duration::from_millis(599)) && slice.is_late(Duration::from_millis(601))
        );
        // The drive turns out to be slow.
        stragglers.was_done(BYTES / 2, Duration::from_secs(2));
        assert!(!slice.is_late(Duration::from_secs(7)) && slice.is_late(Duration::from_secs(9)));
        let quick = Overtaking {
            expected_seconds: 0.0,
            cpu_seconds: 0.0,
            ..overtaking(&stragglers, &[])
        };
        let tiny = Overtaking { bytes: 1, ..quick };
        assert!(!tiny.is_late(LEAST / 2) && tiny.is_late(LEAST));
    }

    #[test]
    fn the_cpu_overtakes_once_all_that_is_left_is_late_and_within_its_share() {
        let done_by = [HOST, 1, 1, 1].map(AtomicUsize::new);
        let stragglers = |host_slices| Stragglers::new(4, host_slices);
        let (small, large) = (stragglers(2), stragglers(3));
        for (stragglers, may) in [(&small, false), (&large, true)] {
            let slice = overtaking(stragglers, &done_by);
            stragglers.ended();
            let first = slice.late();
            assert!(!slice.begins(), "two more run");
            stragglers.ended();
            assert!(!slice.begins(), "one more runs");
            let second = slice.late();
            assert_eq!(slice.begins(), may);
            slice.overtaken();
            drop(first);
            stragglers.ended();
            assert_eq!(slice.begins(), may, "the other is late as well");
            drop(second);
        }
    }
}
