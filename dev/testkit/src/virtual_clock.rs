//! A clock whose time passes only while all working threads wait, and then jumps to the next event.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use rockmill_core::Lock;
use rockmill_storage::clock::{Clock, Seen, Signal};

/// Virtual time, for tests. Clones share it.
///
/// A [`Worker`](rockmill_storage::clock::Worker) must wait through its clock, and is registered with one clock only. If
/// it waits for threads in another way, these threads must not wait for time.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<Lock<State>>);

#[derive(Debug, Default)]
struct State {
    now: Duration,
    /// Number of threads that work and do not wait.
    at_work: usize,
    /// Waiting threads by wake-up time and a number.
    sleepers: BTreeMap<(Duration, u64), Sleeper>,
    next: u64,
}

#[derive(Debug)]
struct Sleeper {
    thread: Thread,
    /// Whether the thread is a worker.
    works: bool,
    /// Address of the signal that wakes it earlier.
    signal: Option<usize>,
}

thread_local! {
    /// Whether this thread is counted as a worker.
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

fn address(signal: &Signal) -> usize {
    std::ptr::from_ref(signal).addr()
}

impl State {
    /// Lets time pass if no thread works.
    fn go_on(&mut self) {
        if self.at_work > 0 {
            return;
        }
        let Some((&(until, _), _)) = self.sleepers.first_key_value() else {
            return;
        };
        self.now = self.now.max(until);
        while let Some(first) = self.sleepers.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let sleeper = first.remove();
            self.wake(&sleeper);
        }
    }

    fn wake(&mut self, sleeper: &Sleeper) {
        self.at_work += usize::from(sleeper.works);
        sleeper.thread.unpark();
    }

    fn wake_all_of(&mut self, signal: usize) {
        let of_it = |(_, sleeper): &(&(Duration, u64), &Sleeper)| sleeper.signal == Some(signal);
        let keys: Vec<_> = self
            .sleepers
            .iter()
            .filter(of_it)
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            if let Some(sleeper) = self.sleepers.remove(&key) {
                self.wake(&sleeper);
            }
        }
    }

    fn stop_work(&mut self) {
        self.at_work -= 1;
        self.go_on();
    }
}

impl VirtualClock {
    /// Whether time stands still while this thread does not wait.
    pub fn counts_this_thread(&self) -> bool {
        WORKS.get()
    }

    /// Sleeps for `time`, or until the signal has changed since it was seen.
    fn sleep(&self, time: Duration, signal: Option<(&Signal, Seen)>) {
        let mut state = self.0.lock();
        if signal.is_some_and(|(signal, seen)| signal.seen() != seen) {
            return;
        }
        let key = (state.now.saturating_add(time), state.next);
        state.next += 1;
        let works = WORKS.get();
        let sleeper = Sleeper {
            thread: std::thread::current(),
            works,
            signal: signal.map(|(signal, _)| address(signal)),
        };
        state.sleepers.insert(key, sleeper);
        if works {
            state.stop_work();
        } else {
            state.go_on();
        }
        while state.sleepers.contains_key(&key) {
            drop(state);
            std::thread::park();
            state = self.0.lock();
        }
        if !works {
            // This thread is not a worker, so its next wait or its end would not let time pass.
            state.go_on();
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        self.0.lock().now
    }

    fn pause(&self, time: Duration) {
        self.sleep(time, None);
    }

    fn wait(&self, signal: &Signal, seen: Seen, time: Duration) {
        self.sleep(time, Some((signal, seen)));
    }

    fn notify(&self, signal: &Signal) {
        // A thread that has checked its condition and does not sleep yet sees the raised signal.
        let mut state = self.0.lock();
        signal.raise();
        state.wake_all_of(address(signal));
    }

    fn work_begins(&self) {
        self.0.lock().at_work += 1;
    }

    fn work_ends(&self) {
        self.0.lock().stop_work();
    }

    fn work(&self, work: &mut dyn FnMut()) {
        /// Restores the counts, also when the work panics.
        struct Before<'a>(&'a VirtualClock, bool);
        impl Drop for Before<'_> {
            fn drop(&mut self) {
                WORKS.set(self.1);
                self.0.0.lock().at_work += usize::from(self.1);
            }
        }
        let before = Before(self, WORKS.replace(true));
        // A thread that is a worker already counts once.
        self.0.lock().at_work -= usize::from(before.1);
        work();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use rockmill_storage::clock::{ThreadGroup, Worker};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn those_who_wait_at_the_same_time_wait_for_the_longest() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let ends = Lock::new(Vec::new());
        std::thread::scope(|scope| {
            let workers = [3, 1, 2].map(|seconds| (seconds, Worker::new(&clock)));
            for (seconds, worker) in workers {
                let (clock, ends) = (&clock, &ends);
                let work = move || {
                    clock.pause(seconds * SECOND);
                    clock.pause(seconds * SECOND);
                    ends.lock().push(clock.now());
                };
                scope.spawn(move || worker.run(work));
            }
        });
        let ends = ends.into_inner();
        assert_eq!(ends, [2 * SECOND, 4 * SECOND, 6 * SECOND]);
    }

    #[test]
    fn time_stands_still_while_somebody_works() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let [busy, waiting] = [0, 1].map(|_| Worker::new(&clock));
            scope.spawn(|| {
                busy.run(|| {
                    for _ in 0..1000 {
                        std::thread::yield_now();
                    }
                    assert_eq!(clock.now(), Duration::ZERO);
                    is_done.store(true, Ordering::Release);
                });
            });
            scope.spawn(|| {
                waiting.run(|| clock.pause(SECOND));
                assert!(is_done.load(Ordering::Acquire));
            });
        });
        assert_eq!(clock.now(), SECOND);
    }

    #[test]
    fn a_thread_counts_once_however_often_it_begins_to_work() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        Worker::new(&clock).run(|| {
            Worker::new(&clock).run(|| clock.pause(SECOND));
            clock.pause(SECOND);
        });
        clock.pause(SECOND);
        assert_eq!(clock.now(), 3 * SECOND);
    }

    #[test]
    fn a_signal_comes_before_its_time() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let signal = Signal::default();
        std::thread::scope(|scope| {
            let [sender, receiver] = [0, 1].map(|_| Worker::new(&clock));
            let seen = signal.seen();
            let (clock, signal) = (&clock, &signal);
            scope.spawn(move || {
                receiver.run(|| {
                    clock.wait(signal, seen, 60 * SECOND);
                    assert_eq!(clock.now(), SECOND);
                    // The signal has come, so there is no sleep.
                    clock.wait(signal, seen, 60 * SECOND);
                    assert_eq!(clock.now(), SECOND);
                    clock.wait(signal, signal.seen(), SECOND);
                    assert_eq!(clock.now(), 2 * SECOND);
                });
            });
            scope.spawn(move || {
                sender.run(|| {
                    clock.pause(SECOND);
                    clock.notify(signal);
                });
            });
        });
    }

    #[test]
    fn time_stands_still_between_the_end_of_a_group_and_the_return_of_its_starter() {
        for _ in 0..200 {
            let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
            let group = ThreadGroup::new(&clock);
            let [leader, other] = [0, 1].map(|_| Worker::new(&clock));
            let (clock, group) = (&clock, &group);
            std::thread::scope(|scope| {
                scope.spawn(|| other.run(|| clock.pause(3600 * SECOND)));
                leader.run(|| {
                    for seconds in 1..=3 {
                        let member = group.add();
                        scope.spawn(move || member.run(|| clock.pause(seconds * SECOND)));
                    }
                    drop(group.add());
                    group.wait();
                    assert_eq!(clock.now(), 3 * SECOND);
                });
            });
        }
    }
}
