//! Limits how many files the subcompactions of all jobs hold open at once.
//!
//! A process has a limited number of descriptors, and RocksDB treats an open that fails for lack of one as fatal. So
//! subcompactions share a part of the free descriptors. Each takes all that it needs before it begins, in the order of
//! requests. A subcompaction that holds descriptors never waits for more, so there is no deadlock.

use std::collections::VecDeque;
use std::sync::Arc;

use rockmill_core::{CancelToken, DeclineReason, Error, Lock, Result};

use crate::Storage;
use crate::clock::CANCEL_POLL;
use crate::clock::{Clock, Signal};

/// Subcompactions may use 1/`SHARE` of the descriptors that the rest of the process leaves free.
const SHARE: u64 = 4;

/// Approximate number of output files that a subcompaction has open at once. Devices begin all outputs of a
/// subcompaction before they write the first.
pub const OUTPUT_FILES: u64 = 4;

/// Descriptors that subcompactions may hold.
#[derive(Debug)]
pub struct Descriptors {
    state: Lock<State>,
    changed: Signal,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct State {
    most: u64,
    held: u64,
    /// Subcompactions that hold descriptors.
    subcompactions: u64,
    /// Turns of the subcompactions that wait, oldest first.
    waiting: VecDeque<u64>,
    next_turn: u64,
}

impl Descriptors {
    /// Creates an unlimited pool; the limit is set when a job [begins](Self::job_begins). Subcompactions wait in the
    /// time of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Lock::new(State {
                most: u64::MAX,
                held: 0,
                subcompactions: 0,
                waiting: VecDeque::new(),
                next_turn: 0,
            }),
            changed: Signal::default(),
            clock,
        }
    }

    /// Recomputes the limit from the free descriptors: RocksDB opens more files as its databases grow.
    pub fn job_begins(&self, storage: &dyn Storage) {
        let left = storage.descriptors_left();
        let mut state = self.state.lock();
        let all = left.map(|left| left.saturating_add(state.held));
        state.most = all.map_or(u64::MAX, |all| all / SHARE);
    }

    /// Checks that a subcompaction may hold `inputs` input files.
    ///
    /// # Errors
    /// Declined if the limit is lower.
    pub fn require(&self, inputs: u64) -> Result<()> {
        let (most, needed) = (self.state.lock().most, inputs.saturating_add(OUTPUT_FILES));
        if needed <= most {
            return Ok(());
        }
        Err(Error::declined(
            DeclineReason::OpenFiles,
            format!(
                "{needed} files would be open at once, {inputs} of them inputs, and {most} may be: a quarter of what \
                 the limit of open files (ulimit -n) leaves this process"
            ),
        ))
    }

    /// Adds a waiter behind all earlier ones.
    pub fn queue(self: &Arc<Self>) -> Turn {
        let mut state = self.state.lock();
        let turn = state.next_turn;
        state.next_turn += 1;
        state.waiting.push_back(turn);
        drop(state);
        Turn {
            of: Arc::clone(self),
            turn,
        }
    }

    /// Takes one descriptor, if one is free and no subcompaction waits.
    pub fn spare(self: &Arc<Self>) -> Option<DescriptorLease> {
        let mut state = self.state.lock();
        let is_spare = state.waiting.is_empty() && state.held < state.most;
        is_spare.then(|| state.give(1, false, self))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.clock.notify(&self.changed);
    }
}

impl State {
    fn give(
        &mut self,
        count: u64,
        is_subcompaction: bool,
        of: &Arc<Descriptors>,
    ) -> DescriptorLease {
        self.held += count;
        self.subcompactions += u64::from(is_subcompaction);
        DescriptorLease {
            of: Arc::clone(of),
            count,
            is_subcompaction,
        }
    }
}

/// A subcompaction that waits for descriptors.
#[derive(Debug)]
pub struct Turn {
    of: Arc<Descriptors>,
    turn: u64,
}

impl Turn {
    /// Takes `count` descriptors if they are free and this turn is the oldest. If no subcompaction holds any, it always
    /// succeeds, even when abandoned calls still hold descriptors.
    pub fn take(&self, count: u64) -> Option<DescriptorLease> {
        let mut state = self.of.state.lock();
        let is_next = state.waiting.front() == Some(&self.turn);
        let fits = state.held.saturating_add(count) <= state.most || state.subcompactions == 0;
        (is_next && fits).then(|| state.give(count, true, &self.of))
    }

    /// Calls `attempt` at once and after every change, until it returns a value.
    ///
    /// # Errors
    /// Cancelled.
    pub fn wait<T>(
        self,
        cancel: &CancelToken,
        mut attempt: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T> {
        loop {
            let seen = self.of.changed.seen();
            cancel.check()?;
            if let Some(done) = attempt(&self) {
                return Ok(done);
            }
            self.of.clock.wait(&self.of.changed, seen, CANCEL_POLL);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let turn = self.turn;
        self.of
            .change(|state| state.waiting.retain(|&other| other != turn));
    }
}

/// Descriptors that are held until this value is dropped.
#[derive(Debug)]
pub struct DescriptorLease {
    of: Arc<Descriptors>,
    count: u64,
    is_subcompaction: bool,
}

impl DescriptorLease {
    /// Splits off one descriptor, which is given back on its own.
    pub fn split_one(&mut self) -> Self {
        self.count -= 1;
        Self {
            of: Arc::clone(&self.of),
            count: 1,
            is_subcompaction: false,
        }
    }
}

impl Drop for DescriptorLease {
    fn drop(&mut self) {
        let (count, subcompactions) = (self.count, u64::from(self.is_subcompaction));
        self.of.change(|state| {
            state.held -= count;
            state.subcompactions -= subcompactions;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::LocalStorage;
    use crate::clock::SystemClock;

    fn descriptors(most: u64) -> Arc<Descriptors> {
        let all = Descriptors::new(SystemClock::shared());
        all.state.lock().most = most;
        Arc::new(all)
    }

    #[test]
    fn no_more_are_held_than_there_are() {
        let all = descriptors(10);
        let first = all.queue().take(7).expect("they are free");
        assert!(all.queue().take(4).is_none());
        let second = all.queue().take(3).expect("they are left");
        assert!(all.queue().take(1).is_none() && all.spare().is_none());
        drop(first);
        let spare = all.spare().expect("some are left");
        assert_eq!(all.state.lock().held, 4);
        drop((second, spare));
        let state = all.state.lock();
        assert_eq!((state.held, state.subcompactions), (0, 0));
    }

    #[test]
    fn subcompactions_begin_in_their_order() {
        let all = descriptors(10);
        let first = all.queue().take(8).expect("they are free");
        let (large, small) = (all.queue(), all.queue());
        assert!(large.take(9).is_none() && small.take(1).is_none());
        drop(first);
        assert!(small.take(1).is_none(), "the other one came before");
        let held = large.take(9).expect("they are free");
        drop(large);
        assert!(small.take(1).is_some());
        drop(held);
    }

    #[test]
    fn what_is_split_off_stays_held_and_hinders_no_subcompaction_for_ever() {
        let all = descriptors(4);
        let mut subcompaction = all.queue().take(4).expect("they are free");
        let abandoned = subcompaction.split_one();
        assert!(all.queue().take(4).is_none());
        drop(subcompaction);
        assert_eq!(all.state.lock().held, 1);
        let alone = all.queue().take(4).expect("no other subcompaction runs");
        assert!(all.queue().take(1).is_none());
        drop((abandoned, alone));
        assert_eq!(all.state.lock().held, 0);
    }

    #[test]
    fn who_waits_goes_on_when_it_can_and_when_the_job_ends() {
        let all = descriptors(2);
        let held = all.queue().take(2).expect("they are free");
        std::thread::scope(|scope| {
            let waiting = all.queue();
            let stop = CancelToken::new();
            let other = scope.spawn(move || waiting.wait(&stop, |turn| turn.take(1)));
            drop(held);
            let got = other.join().expect("no panic");
            assert_eq!(got.expect("it was not cancelled").count, 1);
        });
        let cancelled = CancelToken::new();
        cancelled.cancel();
        assert!(all.queue().wait(&cancelled, |turn| turn.take(1)).is_err());
        assert!(all.state.lock().waiting.is_empty());
    }

    #[test]
    fn a_quarter_of_what_the_process_has_left_is_for_subcompactions() {
        let all = Arc::new(Descriptors::new(SystemClock::shared()));
        assert!(all.require(u64::MAX).is_ok(), "nobody has counted");
        let files = [(); 8].map(|()| LocalStorage.open(Path::new("/")).expect("it is there"));
        let left = LocalStorage.descriptors_left().expect("Linux tells");
        drop(files);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert!(left + 8 <= limit.current.expect("a limit"));
        all.job_begins(&LocalStorage);
        let most = all.state.lock().most;
        // Other tests open files meanwhile.
        assert!(most >= left / SHARE / 2 && most <= limit.current.expect("a limit") / SHARE);
        assert!(all.require(most - OUTPUT_FILES).is_ok());
        let error = all.require(most).expect_err("too many");
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }
}
