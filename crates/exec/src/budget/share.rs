//! One job's part of the budget.

use std::cell::Cell;

use rockmill_core::{CancelToken, DeclineReason, Error, Result};

use super::Budget;
use super::fair_queue::Priority;
use super::running::Candidate;
use super::state::{Answer, JobId, Place, Wish, Work};

/// What a job holds; given back when dropped.
#[derive(Debug)]
pub struct JobShare<'a> {
    budget: &'a Budget,
    job: JobId,
    priority: Priority,
}

impl<'a> JobShare<'a> {
    pub(super) fn new(budget: &'a Budget, job: JobId, priority: Priority) -> Self {
        Self {
            budget,
            job,
            priority,
        }
    }

    fn wait(&self, wish: Wish, cancel: &CancelToken) -> Result<Answer> {
        self.budget.wait(wish, self.priority, cancel)
    }

    /// Counts `bytes` that the job has taken and keeps until it ends. It does not wait: what other jobs' tasks
    /// hold now, they give back.
    ///
    /// # Errors
    /// Declined if the job holds more then than there would be if no call were abandoned.
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

    /// What the job has taken so far and keeps until it ends, without the memory of its tasks.
    pub fn held_bytes(&self) -> u64 {
        self.budget.state().held_bytes(self.job)
    }

    /// Waits for the memory of one task, which is the job's until it ends. The inputs are open: the database's next job
    /// may enter.
    ///
    /// # Errors
    /// Cancelled.
    pub fn admit(&self, task_bytes: u64, cancel: &CancelToken) -> Result<()> {
        self.budget
            .change(|state| state.set_task_bytes(self.job, task_bytes));
        match self.wait(Wish::Admit(self.job), cancel)? {
            Answer::Admitted => Ok(()),
            _ => Err(Error::internal("a job waits for its memory alone")),
        }
    }

    /// Says what the job has to do; before, and once all of it has begun, it gets no tasks.
    pub fn plan(&self, work: Work) {
        self.budget.change(|state| state.set_work(self.job, work));
    }

    /// How many of the job's tasks the memory suffices for at the same time, if no other job takes any.
    pub fn tasks_in_memory(&self) -> usize {
        self.budget.state().tasks_in_memory(self.job)
    }

    /// Waits until a task may run, on one of `candidates`. There is none once all have begun or the job has
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
        match self.wait(Wish::Task(self.job), cancel)? {
            Answer::Task(place) => Ok(Some(Grant {
                budget: self.budget,
                job: self.job,
                place,
                begun: true,
                is_abandoned: Cell::new(false),
            })),
            _ => Ok(None),
        }
    }

    /// Says that the job begins no more tasks.
    pub fn end(&self) {
        self.budget.change(|state| state.end(self.job));
    }
}

impl Drop for JobShare<'_> {
    fn drop(&mut self) {
        self.budget.change(|state| state.remove(self.job));
    }
}

/// What a running task holds; given back when dropped.
#[derive(Debug)]
pub struct Grant<'a> {
    budget: &'a Budget,
    job: JobId,
    place: Place,
    begun: bool,
    is_abandoned: Cell<bool>,
}

impl Grant<'_> {
    /// Where the task runs.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The device does not take the task after all, which is there for others again.
    pub fn put_back(mut self) {
        self.begun = false;
    }

    /// Counts the task's memory to a call that nobody waits for any more, in the same moment in which the task gives
    /// it back. Returns the job.
    pub(super) fn abandon(&self, task_bytes: u64) -> JobId {
        self.is_abandoned.set(true);
        self.budget.change(|state| {
            state.give_back(self.job, &self.place, self.begun);
            state.abandon(self.job, task_bytes);
        });
        self.job
    }

    /// Whether a call went on with the task's memory: it is not to be made again in that.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if !self.is_abandoned() {
            self.budget
                .change(|state| state.give_back(self.job, &self.place, self.begun));
        }
    }
}
