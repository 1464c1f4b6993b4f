//! Time, as far as anything waits for it.

use std::fmt::Debug;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod crew;

pub use crew::{Crew, Member};

/// How often whoever waits looks whether the job was cancelled.
pub const CANCEL_POLL: Duration = Duration::from_millis(20);

/// Tells and passes time; a test has its own.
pub trait Clock: Debug + Send + Sync {
    /// Time since some moment before the first call.
    fn now(&self) -> Duration;

    /// Returns when so much time has passed.
    fn pause(&self, time: Duration);

    /// Returns when `signal` is not as it was `seen` any more, or so much time has passed.
    fn wait(&self, signal: &Signal, seen: Seen, time: Duration) {
        signal.wait(seen, time);
    }

    /// Whoever waits for `signal` goes on.
    fn notify(&self, signal: &Signal) {
        signal.raise();
    }

    /// A thread begins to work, or is about to be started: see [`Worker`].
    fn work_begins(&self) {}

    /// The thread has ended its work.
    fn work_ends(&self) {}

    /// Does what a thread does that has begun its work.
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
    /// The one that all share.
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

/// Something that threads wait for. Who looks whether it has come first keeps what was [`Signal::seen`], and then
/// waits only if nobody has notified since.
#[derive(Debug, Default)]
pub struct Signal {
    count: Mutex<u64>,
    changed: Condvar,
}

/// How a [`Signal`] was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(u64);

impl Signal {
    fn count(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is now.
    pub fn seen(&self) -> Seen {
        Seen(*self.count())
    }

    /// Waits in the system's time. Whether the signal came.
    pub fn wait(&self, seen: Seen, time: Duration) -> bool {
        let is_same = |count: &mut u64| *count == seen.0;
        let waited = (self.changed).wait_timeout_while(self.count(), time, is_same);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Tells those who wait in the system's time; for clocks, which others call by [`Clock::notify`].
    pub fn raise(&self) {
        *self.count() += 1;
        self.changed.notify_all();
    }
}

/// A thread for which virtual time stands still until it waits or has ended; made by whoever starts it.
#[derive(Debug)]
pub struct Worker(Arc<dyn Clock>);

impl Worker {
    /// For a thread that is about to be started, or the own one.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        clock.work_begins();
        Self(Arc::clone(clock))
    }

    /// Does the thread's work, on that thread.
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
