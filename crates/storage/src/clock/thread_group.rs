//! A group of threads that another thread waits for, in the time of a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Clock, Signal, Worker};

/// Threads that their starter waits for before it joins them. A join waits outside of the clock's time. Without this
/// wait, virtual time would pass between the end of the last thread and the return of the join.
#[derive(Debug)]
pub struct ThreadGroup {
    clock: Arc<dyn Clock>,
    left: AtomicUsize,
    changed: Signal,
}

/// A thread of a [`ThreadGroup`] that is about to be started.
#[derive(Debug)]
pub struct Member<'a> {
    // Dropped before the worker, so that the waiting thread is back at work before this thread ends.
    ending: Ending<'a>,
    worker: Worker,
}

#[derive(Debug)]
struct Ending<'a>(&'a ThreadGroup);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_sub(1, Ordering::AcqRel);
        self.0.clock.notify(&self.0.changed);
    }
}

impl ThreadGroup {
    /// Creates an empty group.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            left: AtomicUsize::new(0),
            changed: Signal::default(),
        }
    }

    /// Adds a thread. Its starter calls this; dropping the member marks the thread as ended.
    pub fn add(&self) -> Member<'_> {
        self.left.fetch_add(1, Ordering::AcqRel);
        Member {
            ending: Ending(self),
            worker: Worker::new(&self.clock),
        }
    }

    /// Waits until all threads have ended.
    pub fn wait(&self) {
        /// Longest wait between two checks; each ending thread notifies, so this is only a safety net.
        const LOOK: Duration = Duration::from_secs(60);
        loop {
            let seen = self.changed.seen();
            if self.left.load(Ordering::Acquire) == 0 {
                return;
            }
            self.clock.wait(&self.changed, seen, LOOK);
        }
    }
}

impl Member<'_> {
    /// Runs the thread's work on that thread.
    pub fn run(self, work: impl FnOnce()) {
        let Self { ending, worker } = self;
        worker.run(|| {
            let _ending = ending;
            work();
        });
    }
}
