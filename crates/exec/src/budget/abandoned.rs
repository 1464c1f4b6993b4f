//! Memory of abandoned calls.

use std::collections::BTreeMap;

/// A job's number.
pub type JobId = u64;

/// Memory that abandoned calls hold.
#[derive(Debug, Default)]
pub struct AbandonedMemory {
    /// Memory of their tasks.
    task_bytes: u64,
    jobs: BTreeMap<JobId, Calls>,
}

/// Calls of a job that have not returned.
#[derive(Debug, Default)]
struct Calls {
    count: u32,
    /// Memory that the job kept until it ended and that these calls still hold. It is 0 while the job runs, because
    /// then it counts as the job's.
    held_bytes: u64,
}

impl AbandonedMemory {
    /// Returns the memory that abandoned calls hold, without memory that counts for running jobs.
    pub fn bytes(&self) -> u64 {
        let held = self.jobs.values().map(|calls| calls.held_bytes);
        held.fold(self.task_bytes, u64::saturating_add)
    }

    /// Adds an abandoned call of a job with the memory of its task.
    pub fn abandon(&mut self, job: JobId, task_bytes: u64) {
        self.task_bytes += task_bytes;
        self.jobs.entry(job).or_default().count += 1;
    }

    /// Records that a job has ended which kept `held_bytes`.
    pub fn job_ends(&mut self, job: JobId, held_bytes: u64) {
        if let Some(calls) = self.jobs.get_mut(&job) {
            calls.held_bytes = held_bytes;
        }
    }

    /// Removes a call that has returned.
    pub fn give_back_abandoned(&mut self, job: JobId, task_bytes: u64) {
        self.task_bytes -= task_bytes;
        if let Some(calls) = self.jobs.get_mut(&job) {
            calls.count -= 1;
            if calls.count == 0 {
                self.jobs.remove(&job);
            }
        }
    }
}
