//! Threads that one waits for, in the time of a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Clock, Signal, Worker};

/// Threads that whoever starts them waits for before joining them: a join waits outside of the clock's time, which
/// would go on between the end of the last of them and the return of the one that waits.
#[derive(Debug)]
pub struct Crew {
    clock: Arc<dyn Clock>,
    left: AtomicUsize,
    changed: Signal,
}

/// A thread of a [`Crew`] that is about to be started.
#[derive(Debug)]
pub struct Member<'a> {
    // Dropped before the worker: whoever waits is back at work before this one has ended.
    place: Place<'a>,
    worker: Worker,
}

#[derive(Debug)]
struct Place<'a>(&'a Crew);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_sub(1, Ordering::AcqRel);
        self.0.clock.notify(&self.0.changed);
    }
}

impl Crew {
    /// Nobody so far.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            left: AtomicUsize::new(0),
            changed: Signal::default(),
        }
    }

    /// One more thread, made by whoever starts it. If it is dropped it has ended.
    pub fn enlist(&self) -> Member<'_> {
        self.left.fetch_add(1, Ordering::AcqRel);
        Member {
            place: Place(self),
            worker: Worker::new(&self.clock),
        }
    }

    /// Waits until all have ended.
    pub fn wait(&self) {
        /// Each end is told.
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
    /// Does the thread's work, on that thread.
    pub fn run(self, work: impl FnOnce()) {
        let Self { place, worker } = self;
        worker.run(|| {
            let _place = place;
            work();
        });
    }
}
