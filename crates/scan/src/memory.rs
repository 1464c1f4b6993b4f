//! Memory that scans keep beyond single tasks: indexes of opened tables, and tables of unflushed entries.

use std::sync::{Arc, Mutex};

use rockmill_core::{CancelToken, DeclineReason, Error, Result};
use rockmill_exec::budget::{Budget, Entry, JobShare, Priority};

use crate::lock;

/// Of the budget, 1/`SHARE` may be kept, so that tasks never wait for memory that no task gives back.
const SHARE: u64 = 2;

/// What is kept, as one job of the budget that never ends.
#[derive(Debug)]
pub struct KeptMemory {
    budget: Arc<Budget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    share: Option<JobShare>,
    bytes: u64,
}

/// Some bytes that are kept until this value is dropped.
#[derive(Debug)]
pub struct Kept {
    of: Arc<KeptMemory>,
    bytes: u64,
}

impl KeptMemory {
    /// Nothing is kept of `budget` yet.
    pub fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::clone(budget),
            state: Mutex::default(),
        })
    }

    /// Bytes that may be kept more.
    pub fn room(&self) -> u64 {
        self.most().saturating_sub(lock(&self.state).bytes)
    }

    /// Bytes that may be kept at most.
    pub fn most(&self) -> u64 {
        self.budget.bytes() / SHARE
    }

    /// Bytes that a task may take, whatever is kept.
    pub fn task_bytes(&self) -> u64 {
        self.budget.bytes() - self.most()
    }

    /// Counts bytes that are kept.
    ///
    /// # Errors
    /// Declined if there is no room for them; Cancelled.
    pub fn keep(self: &Arc<Self>, bytes: u64, cancel: &CancelToken) -> Result<Kept> {
        let mut state = lock(&self.state);
        let all = state.bytes.saturating_add(bytes);
        let most = self.most();
        if all > most {
            let what = format!(
                "indexes and unflushed entries take {all} bytes; half of the memory budget, which is for them, is {most}"
            );
            return Err(Error::declined(DeclineReason::MemoryBudget, what));
        }
        if state.share.is_none() {
            let entry = Entry {
                database: u64::MAX,
                expected_bytes: 0,
            };
            let share = self.budget.enter(entry, Priority::Normal, cancel)?;
            share.admit(0, cancel)?;
            state.share = Some(share);
        }
        if let Some(share) = &state.share {
            share.hold(bytes)?;
        }
        state.bytes += bytes;
        drop(state);
        Ok(Kept {
            of: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = lock(&self.of.state);
        state.bytes -= self.bytes;
        if let Some(share) = &state.share {
            share.release(self.bytes);
        }
    }
}
