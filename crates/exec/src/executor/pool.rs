//! Threads that are kept for a while for the next work.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::niceness::niceness;

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// Threads by niceness. There are as many as work at once: a thread that hangs is never handed out again, and the next
/// work gets another one.
#[derive(Default)]
pub struct Pool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// An unprivileged thread cannot lower its niceness again, so a thread serves the niceness that it has.
    shelves: BTreeMap<i32, Shelf>,
    is_closed: bool,
}

#[derive(Default)]
struct Shelf {
    /// Threads that wait for work.
    idle: usize,
    work: VecDeque<Work>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until there has been nothing to do for a while.
    fn serve(&self, niceness: i32, first: Work) {
        let mut next = Some(first);
        while let Some(work) = next {
            work();
            next = self.next(niceness);
        }
    }

    fn next(&self, niceness: i32) -> Option<Work> {
        let mut state = self.state();
        state.shelves.entry(niceness).or_default().idle += 1;
        let is_empty = |state: &mut State| {
            let shelf = state.shelves.entry(niceness).or_default();
            shelf.work.is_empty() && !state.is_closed
        };
        let waited = self.changed.wait_timeout_while(state, IDLE, is_empty);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let shelf = state.shelves.entry(niceness).or_default();
        shelf.idle -= 1;
        shelf.work.pop_front()
    }
}

impl Pool {
    /// Does `work` on a thread of the caller's niceness: an idle one, or a new one if there is none.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(&self, work: Work) -> io::Result<()> {
        let niceness = niceness();
        let mut state = self.0.state();
        let shelf = state.shelves.entry(niceness).or_default();
        if shelf.idle > shelf.work.len() {
            shelf.work.push_back(work);
            drop(state);
            self.0.changed.notify_all();
            return Ok(());
        }
        drop(state);
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("rockmill".to_owned());
        // A new thread inherits the caller's niceness.
        thread.spawn(move || shared.serve(niceness, work)).map(drop)
    }
}

impl Drop for Pool {
    /// Idle threads end.
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use super::*;
    use crate::niceness::nicer;

    /// The thread and the niceness that some work has.
    fn runs_on(pool: &Pool) -> (ThreadId, i32) {
        let (sender, receiver) = channel();
        let tell = move || {
            sender
                .send((std::thread::current().id(), niceness()))
                .expect("it is waited for");
        };
        pool.start(Box::new(tell)).expect("a thread");
        let found = receiver.recv().expect("the work is done");
        while pool.0.state().shelves.values().all(|shelf| shelf.idle == 0) {
            std::thread::yield_now();
        }
        found
    }

    #[test]
    fn a_thread_serves_again_those_of_its_niceness() {
        let pool = Pool::default();
        let (first, own) = runs_on(&pool);
        assert_eq!((first, niceness()), (runs_on(&pool).0, own));
        let (nice, lower) = nicer(3, || Ok(runs_on(&pool))).expect("anyone may be nicer");
        assert_ne!(first, nice);
        assert!(lower > own || own == 19, "{own} {lower}");
    }

    #[test]
    fn work_never_waits_for_a_thread_that_hangs() {
        let pool = Pool::default();
        let (end, hangs) = channel::<()>();
        let hang = move || {
            // Until the other end is dropped.
            let _ = hangs.recv();
        };
        pool.start(Box::new(hang)).expect("a thread");
        runs_on(&pool);
        drop(end);
    }

    #[test]
    fn idle_threads_end_with_the_pool() {
        let pool = Pool::default();
        runs_on(&pool);
        let shared = Arc::clone(&pool.0);
        drop(pool);
        while Arc::strong_count(&shared) > 1 {
            std::thread::yield_now();
        }
        assert_eq!(
            shared
                .state()
                .shelves
                .values()
                .map(|shelf| shelf.idle)
                .sum::<usize>(),
            0
        );
    }
}
