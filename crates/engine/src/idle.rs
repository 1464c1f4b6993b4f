//! Work that gives way to jobs: it is done in pieces, while no job runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_core::{CancelToken, Error, ErrorKind, Result};

use crate::clock::{Clock, Signal};

/// A job does not wait longer for a piece that gives way, whose driver may not answer.
const MOMENT: Duration = Duration::from_millis(50);

/// How often whoever waits looks again.
const POLL: Duration = Duration::from_millis(20);

/// When an engine is idle, and what is done then.
#[derive(Debug)]
pub struct Idle {
    state: Mutex<State>,
    changed: Signal,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs that run.
    jobs: usize,
    /// Set when the piece that runs is to give way.
    piece: Option<CancelToken>,
    /// Time of all pieces that ended.
    spent: Duration,
    is_stopped: bool,
}

impl State {
    /// Cancelled once all is stopped.
    fn check(&self) -> Result<()> {
        match self.is_stopped {
            true => Err(Error::cancelled()),
            false => Ok(()),
        }
    }
}

/// A job that runs; it has ended when this is dropped.
#[derive(Debug)]
pub struct JobRuns<'a>(&'a Idle);

impl Drop for JobRuns<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.jobs -= 1);
    }
}

/// A piece that runs; it has ended when this is dropped, also by a panic.
struct PieceRuns<'a>(&'a Idle);

impl Drop for PieceRuns<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.piece = None);
    }
}

impl Idle {
    /// An engine that has no job yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::default(),
            changed: Signal::default(),
            clock,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.clock.notify(&self.changed);
        changed
    }

    /// A job begins: the piece that runs, if any, gives back what it has, and then the job may go on.
    pub fn job(&self) -> JobRuns<'_> {
        self.change(|state| {
            state.jobs += 1;
            state.piece.iter().for_each(CancelToken::cancel);
        });
        let runs = JobRuns(self);
        let until = self.clock.now() + MOMENT;
        loop {
            let seen = self.changed.seen();
            let left = until.saturating_sub(self.clock.now());
            if left.is_zero() || self.state().piece.is_none() {
                return runs;
            }
            self.clock.wait(&self.changed, seen, left);
        }
    }

    /// No piece is begun any more, and the one that runs gives up.
    pub fn stop(&self) {
        self.change(|state| {
            state.is_stopped = true;
            state.piece.iter().for_each(CancelToken::cancel);
        });
    }

    /// Its time.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Time that pieces have taken. Those that gave way do not count: they have come to nothing.
    pub fn spent(&self) -> Duration {
        self.state().spent
    }

    /// Waits until no job runs, and does `work`, which ends as Cancelled once its token is set. That is when a job
    /// begins meanwhile; then all of it is done again when that has ended. One piece at a time.
    ///
    /// # Errors
    /// Those of the work; Cancelled once all is stopped.
    pub fn piece<T>(&self, mut work: impl FnMut(&CancelToken) -> Result<T>) -> Result<T> {
        loop {
            let give_way = self.begin()?;
            let (runs, began) = (PieceRuns(self), self.clock.now());
            let done = work(&give_way);
            drop(runs);
            match done {
                Err(error) if error.kind == ErrorKind::Cancelled && !self.is_stopped() => {}
                done => {
                    self.state().spent += self.clock.now().saturating_sub(began);
                    return done;
                }
            }
        }
    }

    /// Lets so much time go by, in which jobs may run.
    ///
    /// # Errors
    /// Cancelled once all is stopped.
    pub fn pause(&self, time: Duration) -> Result<()> {
        let until = self.clock.now() + time;
        loop {
            let seen = self.changed.seen();
            self.state().check()?;
            let left = until.saturating_sub(self.clock.now());
            if left.is_zero() {
                return Ok(());
            }
            self.clock.wait(&self.changed, seen, left);
        }
    }

    fn begin(&self) -> Result<CancelToken> {
        let give_way = CancelToken::new();
        loop {
            let seen = self.changed.seen();
            let mut state = self.state();
            state.check()?;
            if state.jobs == 0 {
                state.piece = Some(give_way.clone());
                return Ok(give_way);
            }
            drop(state);
            self.clock.wait(&self.changed, seen, POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::{SystemClock, VirtualClock, Worker};

    const MS: Duration = Duration::from_millis(1);

    /// Works for 30 ms and looks each whether it is to give way; counts how often it began.
    fn thirty_ms(clock: &Arc<dyn Clock>, begun: &AtomicUsize, token: &CancelToken) -> Result<()> {
        begun.fetch_add(1, Ordering::Relaxed);
        (0..30).try_for_each(|_| {
            token.check()?;
            clock.pause(MS);
            Ok(())
        })
    }

    #[test]
    fn a_job_comes_first_and_what_gave_way_is_done_when_it_has_ended() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let idle = Idle::new(Arc::clone(&clock));
        let begun = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let [calibration, job] = [0, 1].map(|_| Worker::new(&clock));
            let (idle, clock, begun) = (&idle, &clock, &begun);
            scope.spawn(move || {
                calibration.run(|| {
                    let done = idle.piece(|token| thirty_ms(clock, begun, token));
                    done.expect("nobody stops it");
                    assert_eq!(clock.now().as_millis() / 10, 41, "after the job");
                });
            });
            scope.spawn(move || {
                job.run(|| {
                    clock.pause(10 * MS);
                    let runs = idle.job();
                    assert!(clock.now() <= 11 * MS, "it waited for one look");
                    assert!(idle.state().piece.is_none());
                    // Another one begins and ends beside it.
                    drop(idle.job());
                    clock.pause(370 * MS);
                    assert_eq!(begun.load(Ordering::Relaxed), 1);
                    drop(runs);
                });
            });
        });
        assert_eq!(begun.into_inner(), 2);
        assert_eq!(idle.spent(), 30 * MS, "what gave way does not count");
    }

    #[test]
    fn a_job_does_not_wait_for_a_piece_that_does_not_answer() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let idle = Idle::new(Arc::clone(&clock));
        std::thread::scope(|scope| {
            let [stuck, job] = [0, 1].map(|_| Worker::new(&clock));
            let (idle, clock) = (&idle, &clock);
            scope.spawn(move || {
                stuck.run(|| {
                    idle.piece(|_| {
                        clock.pause(3_600_000 * MS);
                        Ok(())
                    })
                })
            });
            scope.spawn(move || {
                job.run(|| {
                    clock.pause(MS);
                    let _runs = idle.job();
                    assert_eq!(clock.now(), MS + MOMENT);
                });
            });
        });
    }

    #[test]
    fn a_pause_lasts_as_long_as_it_is_to_and_counts_for_nothing() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let idle = Idle::new(Arc::clone(&clock));
        std::thread::scope(|scope| {
            let [calibration, job] = [0, 1].map(|_| Worker::new(&clock));
            let (idle, clock) = (&idle, &clock);
            scope.spawn(move || calibration.run(|| idle.pause(100 * MS).expect("nobody stops it")));
            scope.spawn(move || {
                job.run(|| {
                    clock.pause(10 * MS);
                    drop(idle.job());
                    assert_eq!(clock.now(), 10 * MS, "nothing gives way");
                });
            });
        });
        assert_eq!((clock.now(), idle.spent()), (100 * MS, Duration::ZERO));
    }

    #[test]
    fn what_is_stopped_neither_begins_nor_goes_on() {
        let idle = Idle::new(SystemClock::shared());
        let runs = idle.job();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| idle.piece(|_| Ok(())));
            idle.stop();
            let error = waits.join().expect("no panic").expect_err("it was stopped");
            assert_eq!(error.kind, ErrorKind::Cancelled);
        });
        drop(runs);
        assert!(idle.piece(|_| Ok(())).is_err());
        assert!(idle.pause(3_600_000 * MS).is_err());
        let idle = Idle::new(SystemClock::shared());
        let stopped = idle.piece(|token| {
            idle.stop();
            token.check()
        });
        assert_eq!(stopped.expect_err("it gave up").kind, ErrorKind::Cancelled);
    }
}
