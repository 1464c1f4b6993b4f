//! Rate limit in bytes per second, for reads and writes of all jobs of an engine together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rockmill_core::{CancelToken, Lock, Result};

use crate::clock::CANCEL_POLL;
use crate::clock::Clock;

/// Unused time that may be used up at once, in nanoseconds: waiting threads wake up late.
const BURST_NANOS: u64 = 20_000_000;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A token bucket. A request that finds no debt continues at once and adds its bytes to the debt. Other requests wait
/// until the debt is paid. So a request of any size goes through, and the next ones wait for it.
#[derive(Debug)]
pub struct RateLimiter {
    /// Bytes per second; 0 means no limit.
    bytes_per_second: AtomicU64,
    account: Lock<Account>,
}

#[derive(Debug, Default)]
struct Account {
    /// Debt in bytes times nanoseconds per second; negative while a burst is allowed.
    owed: i128,
    /// Time of the last update of `owed`.
    at: Duration,
}

impl RateLimiter {
    /// Creates a limiter; 0 means no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: AtomicU64::new(bytes_per_second),
            account: Lock::default(),
        }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.rate() != 0
    }

    /// Changes the limit, also for requests that wait already; 0 means no limit.
    pub fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second
            .store(bytes_per_second, Ordering::Relaxed);
    }

    /// Bytes per second; 0 means no limit.
    pub fn rate(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Relaxed)
    }

    /// Waits until `bytes` may be read or written.
    ///
    /// # Errors
    /// Cancelled.
    pub fn wait(&self, bytes: u64, clock: &dyn Clock, cancel: &CancelToken) -> Result<()> {
        while let Some(time) = self.try_take(bytes, clock) {
            cancel.check()?;
            // The limit may change during the pause.
            clock.pause(time.min(CANCEL_POLL));
        }
        Ok(())
    }

    /// Takes the bytes, or returns the time after which to try again.
    fn try_take(&self, bytes: u64, clock: &dyn Clock) -> Option<Duration> {
        let rate = i128::from(self.rate());
        if rate == 0 {
            return None;
        }
        let mut account = self.account.lock();
        let now = clock.now();
        let passed = now.saturating_sub(account.at).as_nanos() as i128;
        let burst = -rate * i128::from(BURST_NANOS);
        account.owed = account.owed.saturating_sub(rate.saturating_mul(passed));
        account.owed = account.owed.max(burst);
        account.at = now.max(account.at);
        if account.owed <= 0 {
            account.owed += i128::from(bytes) * NANOS_PER_SECOND;
            return None;
        }
        let nanos = (account.owed / rate).saturating_add(1);
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock whose time passes only in `pause`.
    #[derive(Debug, Default)]
    struct Waited(Lock<Duration>);

    impl Clock for Waited {
        fn now(&self) -> Duration {
            *self.0.lock()
        }

        fn pause(&self, time: Duration) {
            assert!(time <= CANCEL_POLL);
            *self.0.lock() += time;
        }
    }

    #[test]
    fn bytes_take_the_time_that_the_limit_gives_them() {
        let (clock, cancel) = (Waited::default(), CancelToken::new());
        let limiter = RateLimiter::new(1_000_000);
        for bytes in [500_000, 1, 1_499_999, 1_000_000] {
            limiter.wait(bytes, &clock, &cancel).expect("not cancelled");
        }
        limiter.wait(1, &clock, &cancel).expect("not cancelled");
        // The last request waits for the three million bytes before it.
        let late = clock.now() - Duration::from_secs(3);
        assert!(late < Duration::from_micros(1), "{late:?}");
    }

    #[test]
    fn unused_time_is_good_for_a_small_burst_alone() {
        let (clock, cancel) = (Waited::default(), CancelToken::new());
        let limiter = RateLimiter::new(1_000_000);
        let take = |bytes| limiter.wait(bytes, &clock, &cancel).expect("not cancelled");
        take(1);
        *clock.0.lock() += Duration::from_secs(60);
        let before = clock.now();
        take(20_000);
        take(1_000_000);
        assert_eq!(clock.now(), before);
        take(1);
        assert!(clock.now() > before + Duration::from_millis(999));
    }

    #[test]
    fn a_limit_may_change_or_end_while_somebody_waits() {
        let cancel = CancelToken::new();
        let clock = Waited::default();
        let limiter = RateLimiter::new(1);
        limiter.wait(1 << 30, &clock, &cancel).expect("the first");
        assert!(limiter.try_take(1, &clock) > Some(Duration::from_secs(1 << 29)));
        limiter.set(1 << 30);
        assert!(limiter.try_take(1, &clock) < Some(Duration::from_secs(2)));
        limiter.set(0);
        assert!(!limiter.is_limited());
        limiter.wait(u64::MAX, &clock, &cancel).expect("no limit");
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let (clock, cancel) = (Waited::default(), CancelToken::new());
        let limiter = RateLimiter::new(1);
        limiter.wait(100, &clock, &cancel).expect("the first");
        cancel.cancel();
        assert!(limiter.wait(1, &clock, &cancel).is_err());
        assert_eq!(clock.now(), Duration::ZERO);
    }
}
