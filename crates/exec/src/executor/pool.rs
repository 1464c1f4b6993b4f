//! A pool of threads that are kept for a while after their work.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use rockmill_core::Lock;

use crate::dispatch::carried;
use crate::niceness::niceness;

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// Threads by niceness. The pool has no limit: work that finds no idle thread gets a new one. So a thread that hangs
/// delays no other work.
#[derive(Default)]
pub struct Pool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    /// By niceness, because an unprivileged thread cannot lower its niceness again.
    groups: BTreeMap<i32, Group>,
    is_closed: bool,
}

#[derive(Default)]
struct Group {
    /// Number of threads that wait for work.
    idle: usize,
    work: VecDeque<Work>,
    /// Wakes one idle thread.
    arrived: Arc<Condvar>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

impl Shared {
    /// Does work until none has arrived for [`IDLE`].
    fn serve(&self, niceness: i32, first: Work) {
        let mut next = Some(first);
        while let Some(work) = next {
            work();
            next = self.next(niceness);
        }
    }

    fn next(&self, niceness: i32) -> Option<Work> {
        let mut state = self.state.lock();
        let group = state.groups.entry(niceness).or_default();
        group.idle += 1;
        let arrived = Arc::clone(&group.arrived);
        let is_empty = |state: &mut State| {
            let group = state.groups.entry(niceness).or_default();
            group.work.is_empty() && !state.is_closed
        };
        let waited = arrived.wait_timeout_while(state, IDLE, is_empty);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let group = state.groups.entry(niceness).or_default();
        group.idle -= 1;
        group.work.pop_front()
    }
}

impl Pool {
    /// Does `work` on a thread with the caller's niceness: an idle one, or a new one if none is idle.
    ///
    /// # Errors
    /// The system refuses to create a thread.
    pub fn start(&self, work: Work) -> io::Result<()> {
        let work: Work = Box::new(carried(work));
        let niceness = niceness();
        let mut state = self.0.state.lock();
        let group = state.groups.entry(niceness).or_default();
        if group.idle > group.work.len() {
            group.work.push_back(work);
            group.arrived.notify_one();
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
    /// Ends the idle threads.
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        for group in state.groups.values() {
            group.arrived.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use super::*;
    use crate::niceness::with_niceness;

    /// Returns the thread and the niceness with which the pool does some work.
    fn runs_on(pool: &Pool) -> (ThreadId, i32) {
        let (sender, receiver) = channel();
        let tell = move || {
            sender
                .send((std::thread::current().id(), niceness()))
                .expect("it is waited for");
        };
        pool.start(Box::new(tell)).expect("a thread");
        let found = receiver.recv().expect("the work is done");
        let state = || pool.0.state.lock();
        while state().groups.values().all(|group| group.idle == 0) {
            std::thread::yield_now();
        }
        found
    }

    #[test]
    fn a_thread_serves_again_those_of_its_niceness() {
        let pool = Pool::default();
        let (first, own) = runs_on(&pool);
        assert_eq!((first, niceness()), (runs_on(&pool).0, own));
        let (nice, lower) = with_niceness(3, || Ok(runs_on(&pool))).expect("anyone may be nicer");
        assert_ne!(first, nice);
        assert!(lower > own || own == 19, "{own} {lower}");
    }

    #[test]
    fn work_never_waits_for_a_thread_that_hangs() {
        let pool = Pool::default();
        let (end, hangs) = channel::<()>();
        let hang = move || {
            // Until the sender is dropped.
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
        let state = shared.state.lock();
        assert!(state.groups.values().all(|group| group.idle == 0));
    }
}
