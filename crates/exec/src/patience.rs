//! How long a task on a device is waited for.

use std::time::Duration;

/// How long a task is waited for, even if it was expected to take no time. It gets twenty times what was
/// expected if that is more. Then the CPU makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Where it is known how long such tasks take on the device.
    pub known: Duration,
    /// Where none has run there.
    pub unknown: Duration,
}

impl Patience {
    /// The same whether that is known or not.
    pub const fn at_least(least: Duration) -> Self {
        Self {
            known: least,
            unknown: least,
        }
    }

    /// How long a task is waited for that is expected to take so many seconds, with those beside which it may run
    /// moves so many bytes, and whether that is known.
    pub fn at_most(&self, expected_seconds: f64, moved_bytes: u64, is_known: bool) -> Duration {
        /// What is right within a factor of ten may be late twice over.
        const TIMES: f64 = 20.0;
        const MOST: Duration = Duration::from_secs(24 * 60 * 60);
        /// What ran may have had its files in memory, and the next database may lie elsewhere: a drive so slow, a hard disk
        /// or a small volume over a network, is no fault of the device.
        const SLOW_DRIVE: f64 = 100e6;
        let least = match is_known {
            true => (self.known).saturating_add(seconds(moved_bytes as f64 / SLOW_DRIVE)),
            false => self.unknown,
        };
        seconds(expected_seconds * TIMES).max(least).min(MOST)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Default for Patience {
    /// A minute where nobody knows yet how slow the storage is. Then ten seconds, for what stops a call once and has
    /// nothing to do with its task: a driver that loads kernels in a new process or resets a device, a file system that
    /// flushes its journal, a host on which the call's threads get no processor. Each may take some seconds; two may meet.
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
    fn patience_follows_what_is_expected_above_a_least() {
        const SECOND: Duration = Duration::from_secs(1);
        let patience = Patience::default();
        assert_eq!(patience.at_most(1.0, 0, true), 20 * SECOND);
        assert_eq!(patience.at_most(1.0, 0, false), patience.unknown);
        assert_eq!(patience.at_most(0.1, 0, true), patience.known);
        assert!(patience.known < patience.unknown);
        assert_eq!(patience.at_most(100.0, 0, false), 2000 * SECOND);
        let on_a_slow_drive = patience.at_most(0.1, 500_000_000, true);
        assert_eq!(on_a_slow_drive, patience.known + 5 * SECOND);
        let day = 24 * 60 * 60 * SECOND;
        assert_eq!(patience.at_most(f64::INFINITY, u64::MAX, true), day);
        let most = Patience::at_least(Duration::MAX);
        assert_eq!(most.at_most(0.0, 1, true), day);
    }
}
