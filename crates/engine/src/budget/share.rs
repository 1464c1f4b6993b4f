//! One job's part of the budget.

use rockmill_core::{CancelToken, DeclineReason, Error, Result};

use super::Budget;
use super::state::{Answer, JobId, Wish};

/// What a job holds; given back when dropped.
#[derive(Debug)]
pub struct JobShare<'a> {
    budget: &'a Budget,
    job: JobId,
}

impl<'a> JobShare<'a> {
    pub(super) fn new(budget: &'a Budget, job: JobId) -> Self {
        Self { budget, job }
    }

    /// Counts `bytes` that the job has taken and keeps until it ends, and returns what it has taken in
    /// all. It does not wait: what other jobs' slices hold now, they give back.
    ///
    /// # Errors
    /// Declined if that is more than there is.
    pub fn hold(&self, bytes: u64) -> Result<u64> {
        let (held, most) = self
            .budget
            .change(|state| (state.hold(self.job, bytes), state.bytes));
        if held > most {
            return Err(Error::declined(
                DeclineReason::MemoryBudget,
                format!(
                    "the inputs' indexes take {held} bytes and more; the memory budget is {most}"
                ),
            ));
        }
        Ok(held)
    }

    /// Waits for the memory of one slice, which is the job's until it ends. The next job may enter then.
    ///
    /// # Errors
    /// Cancelled.
    pub fn admit(&self, slice_bytes: u64, cancel: &CancelToken) -> Result<()> {
        self.budget
            .change(|state| state.set_slice_bytes(self.job, slice_bytes));
        match self.budget.wait(Wish::Admit(self.job), cancel)? {
            Answer::Admitted => Ok(()),
            _ => Err(Error::internal("a job waits for its memory alone")),
        }
    }

    /// How many of the job's slices the memory suffices for at the same time, if no other job takes any.
    pub fn slices_in_memory(&self) -> usize {
        self.budget.state().slices_in_memory(self.job)
    }

    /// Waits until a slice may run. There is none once the job has ended.
    ///
    /// # Errors
    /// Cancelled.
    pub fn slice(&self, cancel: &CancelToken) -> Result<Option<Grant<'a>>> {
        match self.budget.wait(Wish::Slice(self.job), cancel)? {
            Answer::Slice { more_bytes } => Ok(Some(Grant {
                budget: self.budget,
                job: self.job,
                more_bytes,
            })),
            _ => Ok(None),
        }
    }

    /// Says that the job begins no more slices.
    pub fn end(&self) {
        self.budget.change(|state| state.end(self.job));
    }
}

impl Drop for JobShare<'_> {
    fn drop(&mut self) {
        self.budget.change(|state| state.remove(self.job));
    }
}

/// What a running slice holds; given back when dropped.
#[derive(Debug)]
pub struct Grant<'a> {
    budget: &'a Budget,
    job: JobId,
    more_bytes: u64,
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.budget
            .change(|state| state.give_back(self.job, self.more_bytes));
    }
}
