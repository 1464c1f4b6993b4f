//! Slots and memory that all jobs of an engine share.
//!
//! - [`Budget::enter`]: One job per database at a time opens its inputs. Several databases do so in parallel if memory
//!   suffices.
//! - [`JobRef::hold`]: The memory of the opened inputs is counted until the job ends.
//! - [`JobRef::admit`]: The job waits for the memory of one task, which it keeps until it ends.
//! - [`Budget::reserve`]: Memory that no job holds is subtracted from the budget until it is dropped.
//! - `JobRef::grant`: Each task waits for a device with a free slot, and for the job's own memory or the same amount of
//!   further memory.
//!
//! A task is assigned to a device only when it begins. So a free device takes a task that would wait longer for another
//! device; see `running`. Waiters are served in order, those with a higher priority first. After eight of these, one
//! with a lower priority gets its turn. An admitted job never needs memory that another job holds, so jobs cannot wait
//! for each other. Small tasks cannot overtake a waiting large task forever, because free memory is reserved for it.

mod abandoned;
mod fair_queue;
mod reservation;
mod running;
mod share;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;

use std::sync::Arc;

use rockmill_core::{CancelToken, Error, Lock, Result};

use rockmill_storage::clock::{CANCEL_POLL, Clock, Signal};

pub use fair_queue::Priority;
pub use reservation::Reservation;
pub(crate) use running::Candidate;
pub use running::HOST;
pub(crate) use share::{Abandoned, TaskGrant};
pub use share::{JobRef, JobShare};
pub use state::Entry;
pub(crate) use state::Work;
use state::{Grant, Request, State};

/// Slots for tasks, and memory, that jobs share.
#[derive(Debug)]
pub struct Budget {
    state: Lock<State>,
    changed: Signal,
    clock: Arc<dyn Clock>,
}

impl Budget {
    /// Creates a budget of `slots` parallel tasks on each device and `bytes` bytes of host memory.
    pub fn new(slots: usize, bytes: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Lock::new(State::new(slots, bytes)),
            changed: Signal::default(),
            clock,
        }
    }

    /// Memory of the budget in bytes, without what is kept and the memory of abandoned calls.
    pub fn bytes(&self) -> u64 {
        self.state.lock().max_bytes()
    }

    /// Memory of the budget in bytes. A job that fits into it is done even if some of it is kept, or held by abandoned
    /// calls, because it may never be released. Then the job runs alone.
    pub fn all_bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Bytes in use or promised to jobs, including what is kept and the memory of abandoned calls.
    pub fn taken_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.used_bytes() + state.reserved_bytes + state.abandoned_bytes()
    }

    /// Number of parallel tasks on each device.
    pub fn slots(&self) -> usize {
        self.state.lock().slots
    }

    /// Input bytes of all jobs' tasks that run on a device, or that have not begun and may run there.
    pub fn queued_bytes(&self, device: usize) -> u64 {
        self.state.lock().queued_bytes(device)
    }

    /// Changes the limits. Running tasks continue. If they hold more than the new limits, no further tasks begin until
    /// enough is released, except one at a time of each job.
    pub fn resize(&self, slots: usize, bytes: u64) {
        self.change(|state| {
            state.slots = slots.max(1);
            state.bytes = bytes;
        });
    }

    /// Waits until the job may open its inputs.
    ///
    /// # Errors
    /// Cancelled.
    pub fn enter(
        self: &Arc<Self>,
        entry: Entry,
        priority: Priority,
        cancel: &CancelToken,
    ) -> Result<JobShare> {
        match self.wait(Request::Enter(entry), priority, cancel)? {
            Grant::Entered { job } => Ok(JobShare::new(Arc::clone(self), job, priority)),
            _ => Err(Error::internal(
                "unexpected answer to a job that waits for its turn",
            )),
        }
    }

    fn now(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }

    /// Changes the state and serves the waiters that can then be served.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        state.now = self.now();
        let result = change(&mut state);
        state.serve();
        drop(state);
        self.clock.notify(&self.changed);
        result
    }

    fn wait(&self, request: Request, priority: Priority, cancel: &CancelToken) -> Result<Grant> {
        let ticket = self.change(|state| state.queue(request, priority));
        loop {
            let seen = self.changed.seen();
            let mut state = self.state.lock();
            if let Some(answer) = state.take_grant(ticket) {
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
            // The estimates depend on the time: a device that is late is worth less waiting. One of the waiters serves
            // for all.
            let now = self.now();
            let mut state = self.state.lock();
            if now - state.now >= CANCEL_POLL.as_secs_f64() {
                state.now = now;
                state.serve();
                drop(state);
                self.clock.notify(&self.changed);
            }
        }
    }
}
