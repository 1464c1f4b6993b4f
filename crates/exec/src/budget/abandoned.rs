//! Memory that calls hold which nobody waits for any more.

use std::collections::BTreeMap;

/// A job's number.
pub type JobId = u64;

/// What such calls hold.
#[derive(Debug, Default)]
pub struct AbandonedMemory {
    /// Of their tasks.
    task_bytes: u64,
    jobs: BTreeMap<JobId, Calls>,
}

/// Calls of a job that have not come back.
#[derive(Debug, Default)]
struct Calls {
    count: u32,
    /// What the job kept until it ended, and they still do; 0 before, since it is counted as the job's.
    held_bytes: u64,
}

impl AbandonedMemory {
    /// All that they hold, what their jobs are counted for left out.
    pub fn bytes(&self) -> u64 {
        let held = self.jobs.values().map(|calls| calls.held_bytes);
        held.fold(self.task_bytes, u64::saturating_add)
    }

    /// A call of a job is abandoned, with the memory of its task.
    pub fn leave(&mut self, job: JobId, task_bytes: u64) {
        self.task_bytes += task_bytes;
        self.jobs.entry(job).or_default().count += 1;
    }

    /// A job has ended that kept so much.
    pub fn job_ends(&mut self, job: JobId, held_bytes: u64) {
        if let Some(calls) = self.jobs.get_mut(&job) {
            calls.held_bytes = held_bytes;
        }
    }

    /// One of the calls has come back.
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
