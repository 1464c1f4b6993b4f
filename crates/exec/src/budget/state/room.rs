//! Whose turn it is for memory.
//!
//! A job that opens its inputs, or waits for its first task's memory, may have to wait until others end. Those that came
//! later, or are less urgent, go on meanwhile as far as that keeps it no longer waiting: what they hold and what it
//! wants must fit together once those that ran before have ended.

use std::collections::BTreeSet;

use super::{Entry, Job, JobId, State, Ticket};

/// What those who were asked further ahead did not get.
#[derive(Debug, Default)]
pub struct Full {
    /// Somebody waits for memory that tasks will give back.
    pub memory: bool,
    /// Jobs for which no device has room.
    pub devices: BTreeSet<JobId>,
    /// Since when somebody waits for memory that others hold until they end.
    since: Option<Ticket>,
    /// What all these want, beside what they hold.
    wanted_bytes: u64,
}

impl Full {
    fn waits(&mut self, ticket: Ticket, bytes: u64) {
        self.since = Some(self.since.map_or(ticket, |since| since.min(ticket)));
        self.wanted_bytes = self.wanted_bytes.saturating_add(bytes);
    }
}

impl State {
    /// Whether a job may open its inputs. One of a database does at a time, so that no file system that takes its time
    /// holds up another's jobs more than by memory.
    pub(super) fn enters(&self, entry: Entry, ticket: Ticket, full: &mut Full) -> bool {
        let opens = |job: &Job| job.opens == Some(entry.database);
        if self.jobs.values().any(opens) {
            return false;
        }
        // What inputs really take nobody knows before: the next one always may.
        let is_next = full.since.is_none() && self.jobs.values().all(|job| job.admitted.is_some());
        let fits = !full.memory && self.has(entry.expected_bytes);
        if is_next || fits && self.lets_pass(entry.expected_bytes, full) {
            return true;
        }
        full.waits(ticket, entry.expected_bytes);
        false
    }

    /// Whether a job may have the memory of its first task. If none has, this one may: what it holds it has, and
    /// after the budget has shrunk that may be too small for any.
    pub(super) fn admits(&self, id: JobId, ticket: Ticket, full: &mut Full) -> bool {
        let bytes = self.jobs.get(&id).map_or(0, |job| job.task_bytes);
        let is_first = self.jobs.values().all(|job| job.admitted.is_none());
        if is_first || self.lets_pass(bytes, full) && self.takes(bytes, full) {
            return true;
        }
        full.waits(ticket, bytes);
        false
    }

    /// Whether there are `bytes` for somebody. If not, and tasks that end will change that, what is free
    /// is kept; but not for one who has to wait until whole jobs end, which would take longer then.
    pub(super) fn takes(&self, bytes: u64, full: &mut Full) -> bool {
        if !full.memory && self.has(bytes) {
            return true;
        }
        if self.own_bytes().saturating_add(bytes) <= self.max_bytes() {
            full.memory = true;
        }
        false
    }

    fn has(&self, bytes: u64) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.max_bytes()
    }

    /// Whether those who wait for jobs to end still fit beside all that has begun since, and `bytes` more.
    fn lets_pass(&self, bytes: u64, full: &Full) -> bool {
        let Some(since) = full.since else {
            return true;
        };
        let ran_before = |job: &&Job| job.admitted.is_some_and(|admitted| admitted < since);
        let others = self.jobs.values().filter(|job| !ran_before(job));
        let kept = others.map(Job::own_bytes).fold(0, u64::saturating_add);
        let all = kept.saturating_add(full.wanted_bytes).saturating_add(bytes);
        all <= self.max_bytes()
    }
}
