//! How much may run at once: tasks and their memory, over all jobs of an engine.
//!
//! ```text
//!   enter   one job of a database at a time opens its inputs, of several if there is memory
//!   hold    what they take is counted until the job ends
//!   admit   waits for the memory of one task, which then is the job's until it ends
//!   task   waits for a device with room and for that memory, or for as much again
//! ```
//!
//! A task is bound to a device when it begins and no earlier, so that whoever is free takes what would otherwise
//! wait longer for another: see `running`. Who waits is
//! served in order, the more urgent before the others, of whom one goes after every eight of them. A job that was
//! admitted never needs memory that another one holds, so jobs cannot wait for each other; and a large task that waits
//! is not overtaken for ever by small ones, since what is free is kept for it.

mod abandoned;
mod fair_queue;
mod running;
mod share;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rockmill_core::{CancelToken, Error, Result};

use rockmill_storage::clock::{CANCEL_POLL, Clock, Signal};

pub use fair_queue::Priority;
pub(crate) use running::Candidate;
pub use running::HOST;
pub(crate) use share::{Abandoned, Grant};
pub use share::{JobRef, JobShare};
pub use state::Entry;
pub(crate) use state::Work;
use state::{Answer, State, Wish};

/// Slots for tasks, and bytes, that jobs share.
#[derive(Debug)]
pub struct Budget {
    state: Mutex<State>,
    changed: Signal,
    clock: Arc<dyn Clock>,
}

impl Budget {
    /// A budget of `slots` tasks on each device and `bytes` bytes.
    pub fn new(slots: usize, bytes: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::new(State::new(slots, bytes)),
            changed: Signal::default(),
            clock,
        }
    }

    /// Bytes in all, but for those that calls hold which were abandoned.
    pub fn bytes(&self) -> u64 {
        self.state().max_bytes()
    }

    /// Bytes in all. A job that fits these is done, alone, even if calls that were abandoned hold some: they may
    /// never give them back.
    pub fn all_bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Bytes that are taken, those included that calls hold which were abandoned.
    pub fn taken_bytes(&self) -> u64 {
        let state = self.state();
        state.used_bytes() + state.abandoned_bytes()
    }

    /// Tasks at once on each device.
    pub fn slots(&self) -> usize {
        self.state().slots
    }

    /// Bytes of input of tasks that run on a device, or that have not begun and may go there, of all jobs.
    pub fn queued_bytes(&self, device: usize) -> u64 {
        self.state().queued_bytes(device)
    }

    /// Makes the budget another one. Tasks that run go on; where they hold more than there is, no
    /// further ones begin, but for one of each job, until enough is given back.
    pub fn resize(&self, slots: usize, bytes: u64) {
        self.change(|state| {
            state.slots = slots.max(1);
            state.bytes = bytes;
        });
    }

    /// Waits for the turn to open inputs.
    ///
    /// # Errors
    /// Cancelled.
    pub fn enter(
        self: &Arc<Self>,
        entry: Entry,
        priority: Priority,
        cancel: &CancelToken,
    ) -> Result<JobShare> {
        match self.wait(Wish::Enter(entry), priority, cancel)? {
            Answer::Entered { job } => Ok(JobShare::new(Arc::clone(self), job, priority)),
            _ => Err(Error::internal("a job waits for its turn alone")),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }

    /// Changes the state, and serves who waited for that.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        state.now = self.now();
        let result = change(&mut state);
        state.serve();
        drop(state);
        self.clock.notify(&self.changed);
        result
    }

    fn wait(&self, wish: Wish, priority: Priority, cancel: &CancelToken) -> Result<Answer> {
        let ticket = self.change(|state| state.queue(wish, priority));
        loop {
            let seen = self.changed.seen();
            let mut state = self.state();
            if let Some(answer) = state.take_answer(ticket) {
                return Ok(answer);
            }
            if cancel.is_cancelled() {
                state.leave_queue(ticket);
                drop(state);
                self.clock.notify(&self.changed);
                return Err(Error::cancelled());
            }
            drop(state);
            self.clock.wait(&self.changed, seen, CANCEL_POLL);
            // A device that is late is worth less waiting; one of all who wait looks.
            let now = self.now();
            let mut state = self.state();
            if now - state.now >= CANCEL_POLL.as_secs_f64() {
                state.now = now;
                state.serve();
                drop(state);
                self.clock.notify(&self.changed);
            }
        }
    }
}
