//! Grants of memory to jobs that wait until others end.
//!
//! A job that is to open its inputs, or that waits for its first task's memory, may have to wait until other jobs end.
//! So may memory that is kept. Later jobs, and jobs with a lower priority, may overtake it meanwhile if they do not
//! delay it. That is the case if the memory that they hold and the memory that it needs fit together once the jobs that
//! ran before have ended.

use std::collections::BTreeSet;

use super::{Entry, Job, JobId, State, Ticket};

/// Requests of waiters further ahead in the queue that were not granted in this pass.
#[derive(Debug, Default)]
pub struct Unserved {
    /// Whether a waiter needs memory that running tasks will release.
    pub memory: bool,
    /// Jobs for which no device has a free slot.
    pub devices: BTreeSet<JobId>,
    /// Ticket of the earliest waiter that needs memory that other jobs hold until they end.
    since: Option<Ticket>,
    /// Memory that these waiters need in addition to what they hold.
    wanted_bytes: u64,
}

impl Unserved {
    fn add_waiter(&mut self, ticket: Ticket, bytes: u64) {
        self.since = Some(self.since.map_or(ticket, |since| since.min(ticket)));
        self.wanted_bytes = self.wanted_bytes.saturating_add(bytes);
    }
}

impl State {
    /// Whether a job may open its inputs. Each database opens one job's inputs at a time. So a slow file system delays
    /// other databases' jobs only by the memory that its own job holds.
    pub(super) fn may_enter(&self, entry: Entry, ticket: Ticket, unserved: &mut Unserved) -> bool {
        let opens = |job: &Job| entry.database.is_some() && job.opens == entry.database;
        if self.jobs.values().any(opens) {
            return false;
        }
        // The actual size of the indexes is unknown until they are read, so the next job may always enter.
        let is_next =
            unserved.since.is_none() && self.jobs.values().all(|job| job.admitted.is_some());
        let fits = !unserved.memory && self.has_free(entry.expected_bytes);
        if is_next || fits && self.leaves_room(entry.expected_bytes, unserved) {
            return true;
        }
        unserved.add_waiter(ticket, entry.expected_bytes);
        false
    }

    /// Whether a job may have the memory of its first task. If no job has been admitted, this one always may: its
    /// indexes are in memory already, and after the budget has shrunk, no job might fit.
    pub(super) fn may_admit(&self, id: JobId, ticket: Ticket, unserved: &mut Unserved) -> bool {
        let bytes = self.jobs.get(&id).map_or(0, |job| job.task_bytes);
        let is_first = self.jobs.values().all(|job| job.admitted.is_none());
        is_first || self.may_have(bytes, ticket, unserved)
    }

    /// Whether a waiter may have `bytes` beside the jobs that were admitted.
    pub(super) fn may_have(&self, bytes: u64, ticket: Ticket, unserved: &mut Unserved) -> bool {
        if self.leaves_room(bytes, unserved) && self.may_take(bytes, unserved) {
            return true;
        }
        unserved.add_waiter(ticket, bytes);
        false
    }

    /// Whether `bytes` are free. If not, but running tasks will release enough, the free memory is reserved for this
    /// waiter. Nothing is reserved for a waiter that needs whole jobs to end, because that would delay their end.
    pub(super) fn may_take(&self, bytes: u64, unserved: &mut Unserved) -> bool {
        if !unserved.memory && self.has_free(bytes) {
            return true;
        }
        if self.own_bytes().saturating_add(bytes) <= self.max_bytes() {
            unserved.memory = true;
        }
        false
    }

    fn has_free(&self, bytes: u64) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.max_bytes()
    }

    /// Whether the jobs that wait for others to end still fit beside everything that was admitted since, and `bytes`
    /// more.
    fn leaves_room(&self, bytes: u64, unserved: &Unserved) -> bool {
        let Some(since) = unserved.since else {
            return true;
        };
        let ran_before = |job: &&Job| job.admitted.is_some_and(|admitted| admitted < since);
        let others = self.jobs.values().filter(|job| !ran_before(job));
        let kept = others.map(Job::own_bytes).fold(0, u64::saturating_add);
        let all = kept
            .saturating_add(unserved.wanted_bytes)
            .saturating_add(bytes);
        all <= self.max_bytes()
    }
}
