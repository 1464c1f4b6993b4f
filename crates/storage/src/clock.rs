//! The clock that all waiting goes through, so that tests can replace it.

use rockmill_core::Lock;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, LazyLock, PoisonError};
use std::time::{Duration, Instant};

mod thread_group;

pub use thread_group::{Member, ThreadGroup};

/// Interval at which a waiting thread checks whether its job was cancelled.
pub const CANCEL_POLL: Duration = Duration::from_millis(20);

/// Source of the current time and of waiting. Tests use their own implementation.
pub trait Clock: Debug + Send + Sync {
    /// Time since a fixed moment before the first call.
    fn now(&self) -> Duration;

    /// Returns after `time` has passed.
    fn pause(&self, time: Duration);

    /// Returns when `signal` has changed since `seen`, or after `time` has passed.
    fn wait(&self, signal: &Signal, seen: Seen, time: Duration) {
        signal.wait(seen, time);
    }

    /// Wakes the threads that wait for `signal`.
    fn notify(&self, signal: &Signal) {
        signal.raise();
    }

    /// Called when a thread begins to work or is about to be started; see [`Worker`].
    fn work_begins(&self) {}

    /// Called when the thread has ended its work.
    fn work_ends(&self) {}

    /// Runs `work` on a thread that has begun to work.
    fn work(&self, work: &mut dyn FnMut()) {
        work();
    }
}

/// The system's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

static SYSTEM: LazyLock<Arc<SystemClock>> = LazyLock::new(Arc::default);

impl SystemClock {
    /// Returns the instance that all callers share.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::clone(&*SYSTEM) as Arc<dyn Clock>
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        START.elapsed()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// An event that threads wait for. A thread first stores the result of [`Signal::seen`], then checks its condition, and
/// then waits. The wait returns at once if a notification came after `seen`.
#[derive(Debug, Default)]
pub struct Signal {
    count: Lock<u64>,
    changed: Condvar,
}

/// State of a [`Signal`] at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(u64);

impl Signal {
    /// Returns the current state.
    pub fn seen(&self) -> Seen {
        Seen(*self.count.lock())
    }

    /// Waits in the system's time. Returns whether the signal came before the timeout.
    pub fn wait(&self, seen: Seen, time: Duration) -> bool {
        let is_same = |count: &mut u64| *count == seen.0;
        let waited = (self.changed).wait_timeout_while(self.count.lock(), time, is_same);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Wakes threads that wait in the system's time. Only clocks call it; other code calls [`Clock::notify`].
    pub fn raise(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }
}

/// A working thread: virtual time stands still until it waits or ends. The thread that starts it creates this value.
#[derive(Debug)]
pub struct Worker(Arc<dyn Clock>);

impl Worker {
    /// Registers the current thread, or a thread that is about to be started.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        clock.work_begins();
        Self(Arc::clone(clock))
    }

    /// Runs the thread's work on that thread.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        let mut work = Some(work);
        let mut done = None;
        self.0.work(&mut || done = work.take().map(|work| work()));
        done.expect("a clock lets the work be done")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.work_ends();
    }
}
