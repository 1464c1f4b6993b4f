//! Time, as far as anything waits for it.

use std::fmt::Debug;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Tells and passes time; a test has its own.
pub trait Clock: Debug + Send + Sync {
    /// Time since some moment before the first call.
    fn now(&self) -> Duration;

    /// Returns when so much time has passed.
    fn pause(&self, time: Duration);
}

/// The system's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        START.elapsed()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
