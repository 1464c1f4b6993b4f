//! Memory that outlives jobs, such as the indexes of tables that scans keep open.
//!
//! It is subtracted from the budget, as the memory of abandoned calls is. A job for which the rest is too small runs alone.
//! If it were counted as a job that never ends, such a job would wait forever.

use std::sync::Arc;

use rockmill_core::{CancelToken, DeclineReason, Error, Result};

use super::Budget;
use super::fair_queue::Priority;
use super::state::{Grant, Request, State};

/// All users together may reserve 1/`SHARE` of the budget.
const SHARE: u64 = 2;

/// Some bytes that are kept until this value is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl State {
    /// Bytes that may be kept at most.
    pub fn max_reserved_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.abandoned_bytes()) / SHARE
    }

    /// Bytes that may be kept in addition.
    pub fn room_for_reservations(&self) -> u64 {
        self.max_reserved_bytes()
            .saturating_sub(self.reserved_bytes)
    }
}

impl Budget {
    /// Bytes that may be kept at most: half of the budget.
    pub fn max_reserved_bytes(&self) -> u64 {
        self.state.lock().max_reserved_bytes()
    }

    /// Bytes that may be kept in addition.
    pub fn room_for_reservations(&self) -> u64 {
        self.state.lock().room_for_reservations()
    }

    /// Reserves `bytes` if they are free now. Jobs may call this.
    pub fn try_reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let has_room = self.change(|state| {
            let taken = state.used_bytes() + state.reserved_bytes + state.abandoned_bytes();
            let is_free = taken.saturating_add(bytes) <= state.bytes;
            let has_room = is_free && bytes <= state.room_for_reservations();
            if has_room {
                state.reserved_bytes += bytes;
            }
            has_room
        });
        has_room.then(|| Reservation {
            budget: Arc::clone(self),
            bytes,
        })
    }

    /// Waits until jobs have released enough memory, and keeps `bytes` of it. A job must not wait for this, since it
    /// might wait for its own memory.
    ///
    /// # Errors
    /// Declined if there is no room for them; Cancelled.
    pub fn reserve(self: &Arc<Self>, bytes: u64, cancel: &CancelToken) -> Result<Reservation> {
        match self.wait(Request::Reserve(bytes), Priority::Normal, cancel)? {
            Grant::Reserved => Ok(Reservation {
                budget: Arc::clone(self),
                bytes,
            }),
            _ => {
                let state = self.state.lock();
                let (all, most) = (
                    state.reserved_bytes.saturating_add(bytes),
                    state.max_reserved_bytes(),
                );
                let what = format!(
                    "indexes and unflushed entries take {all} bytes; half of the memory budget, which is for them, is {most}"
                );
                Err(Error::declined(DeclineReason::MemoryBudget, what))
            }
        }
    }
}

impl Reservation {
    /// Keeps at most `bytes` of it.
    pub fn shrink(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.budget.change(|state| state.reserved_bytes -= less);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget
            .change(|state| state.reserved_bytes -= self.bytes);
    }
}
