//! One job's part of the budget.

use std::cell::Cell;

use rockmill_core::{CancelToken, DeclineReason, Error, Result};

use super::Budget;
use super::fair_queue::Urgency;
use super::running::Candidate;
use super::state::{Answer, JobId, Place, Wish, Work};

/// What a job holds; given back when dropped.
#[derive(Debug)]
pub struct JobShare<'a> {
    budget: &'a Budget,
    job: JobId,
    urgency: Urgency,
}

impl<'a> JobShare<'a> {
    pub(super) fn new(budget: &'a Budget, job: JobId, urgency: Urgency) -> Self {
        Self {
            budget,
            job,
            urgency,
        }
    }

    fn wait(&self, wish: Wish, cancel: &CancelToken) -> Result<Answer> {
        self.budget.wait(wish, self.urgency, cancel)
    }

    /// Counts `bytes` that the job has taken and keeps until it ends. It does not wait: what other jobs' slices
    /// hold now, they give back.
    ///
    /// # Errors
    /// Declined if the job holds more then than there would be if no call were left behind.
    pub fn hold(&self, bytes: u64) -> Result<()> {
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
        Ok(())
    }

    /// What the job has taken so far and keeps until it ends, without the memory of its slices.
    pub fn held_bytes(&self) -> u64 {
        self.budget.state().held_bytes(self.job)
    }

    /// Waits for the memory of one slice, which is the job's until it ends. The inputs are open: the database's next job
    /// may enter.
    ///
    /// # Errors
    /// Cancelled.
    pub fn admit(&self, slice_bytes: u64, cancel: &CancelToken) -> Result<()> {
        self.budget
            .change(|state| state.set_slice_bytes(self.job, slice_bytes));
        match self.wait(Wish::Admit(self.job), cancel)? {
            Answer::Admitted => Ok(()),
            _ => Err(Error::internal("a job waits for its memory alone")),
        }
    }

    /// Says what the job has to do; before, and once all of it has begun, it gets no slices.
    pub fn plan(&self, work: Work) {
        self.budget.change(|state| state.set_work(self.job, work));
    }

    /// How many of the job's slices the memory suffices for at the same time, if no other job takes any.
    pub fn slices_in_memory(&self) -> usize {
        self.budget.state().slices_in_memory(self.job)
    }

    /// Waits until a slice may run, on one of `candidates`. There is none once all have begun or the job has
    /// ended.
    ///
    /// # Errors
    /// Cancelled.
    pub fn slice(
        &self,
        candidates: &[Candidate],
        cancel: &CancelToken,
    ) -> Result<Option<Grant<'a>>> {
        self.budget
            .change(|state| state.set_candidates(self.job, candidates));
        match self.wait(Wish::Slice(self.job), cancel)? {
            Answer::Slice(place) => Ok(Some(Grant {
                budget: self.budget,
                job: self.job,
                place,
                begun: true,
                is_left_behind: Cell::new(false),
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
    place: Place,
    begun: bool,
    is_left_behind: Cell<bool>,
}

impl Grant<'_> {
    /// Where the slice runs.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The device does not take the slice after all, which is there for others again.
    pub fn put_back(mut self) {
        self.begun = false;
    }

    /// Counts the slice's memory to a call that nobody waits for any more, in the same moment in which the slice gives
    /// it back. Returns the job.
    pub(super) fn leave_behind(&self, slice_bytes: u64) -> JobId {
        self.is_left_behind.set(true);
        self.budget.change(|state| {
            state.give_back(self.job, &self.place, self.begun);
            state.leave_behind(self.job, slice_bytes);
        });
        self.job
    }

    /// Whether a call went on with the slice's memory: it is not to be made again in that.
    pub fn is_left_behind(&self) -> bool {
        self.is_left_behind.get()
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if !self.is_left_behind() {
            self.budget
                .change(|state| state.give_back(self.job, &self.place, self.begun));
        }
    }
}
