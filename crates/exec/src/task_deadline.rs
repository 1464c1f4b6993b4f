//! Time limits of tasks on devices.

use std::time::Duration;

/// Minimum time limits of a task on a device. The limit is twenty times the expected time if that is more. After it,
/// the CPU runs the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskDeadline {
    /// If a task of this compression has run on the device.
    pub known: Duration,
    /// If none has run there.
    pub unknown: Duration,
}

impl TaskDeadline {
    /// Creates the same minimum for both cases.
    pub const fn at_least(least: Duration) -> Self {
        Self {
            known: least,
            unknown: least,
        }
    }

    /// Returns the time limit of a task.
    ///
    /// - `expected_seconds`: the time that the task is expected to take.
    /// - `moved_bytes`: the bytes that it and the tasks in parallel with it read and write.
    /// - `is_known`: whether a task of its compression has run on the device.
    pub fn limit(&self, expected_seconds: f64, moved_bytes: u64, is_known: bool) -> Duration {
        /// An estimate may be wrong by a factor of ten; another factor of two covers delays.
        const TIMES: f64 = 20.0;
        const MAX: Duration = Duration::from_secs(24 * 60 * 60);
        /// Earlier tasks may have had their files in memory, and the next database may be on a slow drive: a hard disk
        /// or a small network volume. Its slowness is not the device's fault.
        const SLOW_DRIVE: f64 = 100e6;
        let least = match is_known {
            true => (self.known).saturating_add(seconds(moved_bytes as f64 / SLOW_DRIVE)),
            false => self.unknown,
        };
        seconds(expected_seconds * TIMES).max(least).min(MAX)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Default for TaskDeadline {
    /// A minute as long as the storage's speed is unknown. After that ten seconds, for delays that are unrelated to the
    /// task: a driver that loads kernels in a new process or resets a device, a file system that flushes its journal, a
    /// busy host. Each may take some seconds, and two may coincide.
    fn default() -> Self {
        Self {
            known: Duration::from_secs(10),
            unknown: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_follow_what_is_expected_above_a_least() {
        const SECOND: Duration = Duration::from_secs(1);
        let task_deadline = TaskDeadline::default();
        assert_eq!(task_deadline.limit(1.0, 0, true), 20 * SECOND);
        assert_eq!(task_deadline.limit(1.0, 0, false), task_deadline.unknown);
        assert_eq!(task_deadline.limit(0.1, 0, true), task_deadline.known);
        assert!(task_deadline.known < task_deadline.unknown);
        assert_eq!(task_deadline.limit(100.0, 0, false), 2000 * SECOND);
        let on_a_slow_drive = task_deadline.limit(0.1, 500_000_000, true);
        assert_eq!(on_a_slow_drive, task_deadline.known + 5 * SECOND);
        let day = 24 * 60 * 60 * SECOND;
        assert_eq!(task_deadline.limit(f64::INFINITY, u64::MAX, true), day);
        let most = TaskDeadline::at_least(Duration::MAX);
        assert_eq!(most.limit(0.0, 1, true), day);
    }
}
