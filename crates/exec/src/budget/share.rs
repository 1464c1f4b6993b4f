//! One job's share of the budget.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rockmill_core::{CancelToken, DeclineReason, Error, Result};

use super::Budget;
use super::fair_queue::Priority;
use super::running::Candidate;
use super::state::{Grant, JobId, Placement, Request, Work};

/// A job that has entered the budget. Dropping it releases everything that it holds.
#[derive(Debug)]
pub struct JobShare(JobRef);

/// A reference to a job in the budget, for the threads that work on it.
#[derive(Debug, Clone)]
pub struct JobRef {
    budget: Arc<Budget>,
    job: JobId,
    priority: Priority,
}

impl JobShare {
    pub(super) fn new(budget: Arc<Budget>, job: JobId, priority: Priority) -> Self {
        Self(JobRef {
            budget,
            job,
            priority,
        })
    }
}

impl Deref for JobShare {
    type Target = JobRef;

    fn deref(&self) -> &JobRef {
        &self.0
    }
}

impl Drop for JobShare {
    fn drop(&mut self) {
        self.budget.change(|state| state.remove(self.job));
    }
}

impl JobRef {
    /// The budget.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn wait(&self, request: Request, cancel: &CancelToken) -> Result<Grant> {
        self.budget.wait(request, self.priority, cancel)
    }

    /// Counts `bytes` that the job has allocated and keeps until it ends. It does not wait: tasks of other jobs release
    /// theirs as they end.
    ///
    /// # Errors
    /// Declined if the job then holds more than the whole budget.
    pub fn hold(&self, bytes: u64) -> Result<()> {
        let (held, most) = self
            .budget
            .change(|state| (state.hold(self.job, bytes), state.bytes));
        if held > most {
            return Err(Error::declined(
                DeclineReason::MemoryBudget,
                format!(
                    "the inputs' indexes take at least {held} bytes; the memory budget is {most} bytes"
                ),
            ));
        }
        Ok(())
    }

    /// Takes back some of what [`JobRef::hold`] has counted.
    pub fn release(&self, bytes: u64) {
        self.budget.change(|state| state.release(self.job, bytes));
    }

    /// Bytes that the job has allocated so far and keeps until it ends, without the memory of its tasks.
    pub fn held_bytes(&self) -> u64 {
        self.budget.state.lock().held_bytes(self.job)
    }

    /// Waits for the memory of one task, which the job then keeps until it ends. The caller has opened the inputs, so
    /// the database's next job may enter.
    ///
    /// # Errors
    /// Cancelled.
    pub fn admit(&self, task_bytes: u64, cancel: &CancelToken) -> Result<()> {
        self.budget
            .change(|state| state.set_task_bytes(self.job, task_bytes));
        match self.wait(Request::Admit(self.job), cancel)? {
            Grant::Admitted => Ok(()),
            _ => Err(Error::internal(
                "unexpected answer to a job that waits for its memory",
            )),
        }
    }

    /// Sets the number of the job's tasks. Before this call, and after that many tasks have begun, it gets no grants.
    pub(crate) fn plan(&self, work: Work) {
        self.budget.change(|state| state.set_work(self.job, work));
    }

    /// Adds a task that has begun and has to run again.
    pub(crate) fn add_task(&self) {
        self.budget.change(|state| state.add_task(self.job));
    }

    /// Number of the job's tasks that fit into memory at once if no other job holds any.
    pub(crate) fn tasks_in_memory(&self) -> usize {
        self.budget.state.lock().tasks_in_memory(self.job)
    }

    /// Waits until a task may run on one of `candidates`. Returns `None` if all tasks have begun or the job has ended.
    ///
    /// # Errors
    /// Cancelled.
    pub(crate) fn grant(
        &self,
        candidates: &[Candidate],
        cancel: &CancelToken,
    ) -> Result<Option<TaskGrant>> {
        self.budget
            .change(|state| state.set_candidates(self.job, candidates));
        match self.wait(Request::Task(self.job), cancel)? {
            Grant::Task(placement) => Ok(Some(TaskGrant {
                job: self.clone(),
                placement,
                begun: true,
                is_abandoned: AtomicBool::new(false),
            })),
            _ => Ok(None),
        }
    }

    /// Ends the job: it begins no more tasks.
    pub(crate) fn end(&self) {
        self.budget.change(|state| state.end(self.job));
    }
}

/// Slot and memory of a running task, released when dropped.
#[derive(Debug)]
pub(crate) struct TaskGrant {
    job: JobRef,
    placement: Placement,
    begun: bool,
    is_abandoned: AtomicBool,
}

impl TaskGrant {
    /// Device and memory of the task.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Releases the slot and memory of a task that has not begun. It still has to be run.
    pub fn put_back(mut self) {
        self.begun = false;
    }

    /// Counts `task_bytes` of the running task, and the memory that its job keeps until it ends, as lost until the
    /// returned value is dropped. The slot and the granted memory are released at once.
    pub fn abandon(&self, task_bytes: u64) -> Abandoned {
        self.is_abandoned.store(true, Ordering::Release);
        let job = self.job.job;
        self.job.budget.change(|state| {
            state.give_back(job, &self.placement, self.begun);
            state.abandon(job, task_bytes);
        });
        Abandoned {
            budget: Arc::clone(&self.job.budget),
            job,
            task_bytes,
        }
    }
}

impl Drop for TaskGrant {
    fn drop(&mut self) {
        if !self.is_abandoned.load(Ordering::Acquire) {
            self.job
                .budget
                .change(|state| state.give_back(self.job.job, &self.placement, self.begun));
        }
    }
}

/// Memory of an abandoned task, counted until the task returns and drops this value.
#[derive(Debug)]
pub(crate) struct Abandoned {
    budget: Arc<Budget>,
    job: JobId,
    task_bytes: u64,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let (job, task_bytes) = (self.job, self.task_bytes);
        self.budget
            .change(|state| state.give_back_abandoned(job, task_bytes));
    }
}
