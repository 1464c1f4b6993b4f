//! State of the budget: holders, waiters, and the order of grants.

mod room;

use std::collections::BTreeMap;

use super::abandoned::AbandonedMemory;
pub use super::abandoned::JobId;
use super::fair_queue::{FairQueue, Priority};
use super::running::{Candidate, InFlight, Offer};
use room::Unserved;

/// Number of a waiter, in the order of requests.
pub type Ticket = u64;

/// A job that has not opened its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Identifies the database; `None` if the job has no inputs to open.
    pub database: Option<u64>,
    /// Estimated memory of the inputs' indexes.
    pub expected_bytes: u64,
}

/// A waiter's request.
#[derive(Debug, Clone, Copy)]
pub enum Request {
    /// To open a job's inputs.
    Enter(Entry),
    /// Memory for one task, which becomes the job's own.
    Admit(JobId),
    /// A device with a free slot, and memory for a task.
    Task(JobId),
    /// Memory that no job holds.
    Reserve(u64),
}

/// Grant to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Grant {
    Entered {
        job: JobId,
    },
    Admitted,
    /// A task may run.
    Task(Placement),
    /// The job has no more tasks.
    Ended,
    Reserved,
    /// More must not be reserved.
    OutOfBudget,
}

/// Device and memory of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placement {
    pub number: u64,
    /// Memory beyond the job's own; 0 if the task runs in the job's own memory.
    pub more_bytes: u64,
    pub device: usize,
    /// Whether the task waited for another device and then was given to this one, because it ends sooner here.
    pub moved: bool,
}

/// Remaining work of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Tasks that have not begun.
    pub tasks: u64,
    /// Mean input bytes of a task.
    pub task_bytes: u64,
}

/// State of a job.
#[derive(Debug, Default)]
struct Job {
    held_bytes: u64,
    /// Estimated memory of the indexes, while the job opens its inputs.
    expected_bytes: u64,
    task_bytes: u64,
    /// The database whose files it is opening.
    opens: Option<u64>,
    /// Set when it got the memory of its first task.
    admitted: Option<Ticket>,
    /// Whether a task uses the job's own memory.
    own_in_use: bool,
    ended: bool,
    work: Option<Work>,
    /// Devices that may run its tasks.
    candidates: Vec<Candidate>,
}

impl Job {
    /// Memory that the job keeps until it ends.
    fn own_bytes(&self) -> u64 {
        match self.admitted {
            Some(_) => self.held_bytes + self.task_bytes,
            None => self.held_bytes.max(self.expected_bytes),
        }
    }

    fn is_done(&self) -> bool {
        self.ended || self.work.is_none_or(|work| work.tasks == 0)
    }

    /// Input bytes of tasks that have not begun.
    fn left_bytes(&self) -> u64 {
        let left = |work: Work| work.tasks.saturating_mul(work.task_bytes);
        self.work.map_or(0, left)
    }
}

/// A waiter in the queue.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    request: Request,
    /// The device that a task waits for although another one has a free slot.
    waits_for: Option<usize>,
}

/// The whole state of a budget.
#[derive(Debug)]
pub struct State {
    pub slots: usize,
    pub bytes: u64,
    /// Memory of abandoned calls, which is subtracted from the budget.
    abandoned: AbandonedMemory,
    /// Memory that no job holds, which is subtracted from the budget.
    pub reserved_bytes: u64,
    /// Time in seconds, from the clock.
    pub now: f64,
    in_flight: InFlight,
    /// Memory of tasks beyond the jobs' own memory.
    more_bytes: u64,
    jobs: BTreeMap<JobId, Job>,
    waiting: FairQueue<Waiting>,
    answers: BTreeMap<Ticket, Grant>,
    /// The last number given to a job or a ticket.
    next: u64,
}

impl State {
    pub fn new(slots: usize, bytes: u64) -> Self {
        Self {
            slots: slots.max(1),
            bytes,
            abandoned: AbandonedMemory::default(),
            reserved_bytes: 0,
            now: 0.0,
            in_flight: InFlight::default(),
            more_bytes: 0,
            jobs: BTreeMap::new(),
            waiting: FairQueue::default(),
            answers: BTreeMap::new(),
            next: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Memory for jobs: the budget without what is kept and the memory of abandoned calls.
    pub fn max_bytes(&self) -> u64 {
        let taken = self.reserved_bytes.saturating_add(self.abandoned_bytes());
        self.bytes.saturating_sub(taken)
    }

    /// Memory of abandoned calls.
    pub fn abandoned_bytes(&self) -> u64 {
        self.abandoned.bytes()
    }

    /// Adds an abandoned call of a job with the memory of its task.
    pub fn abandon(&mut self, job: JobId, task_bytes: u64) {
        self.abandoned.abandon(job, task_bytes);
    }

    /// Removes an abandoned call that has returned.
    pub fn give_back_abandoned(&mut self, job: JobId, task_bytes: u64) {
        self.abandoned.give_back_abandoned(job, task_bytes);
    }

    /// Memory that jobs hold until they end.
    fn own_bytes(&self) -> u64 {
        self.jobs.values().map(Job::own_bytes).sum()
    }

    /// Memory that is in use or promised to a job.
    pub fn used_bytes(&self) -> u64 {
        self.own_bytes() + self.more_bytes
    }

    /// Adds `bytes` to a job's held memory and returns the sum.
    pub fn hold(&mut self, job: JobId, bytes: u64) -> u64 {
        let job = self.jobs.entry(job).or_default();
        job.held_bytes = job.held_bytes.saturating_add(bytes);
        job.held_bytes
    }

    /// Subtracts `bytes` from a job's held memory.
    pub fn release(&mut self, job: JobId, bytes: u64) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.held_bytes = job.held_bytes.saturating_sub(bytes);
        }
    }

    /// Memory that a job holds, without that of its tasks.
    pub fn held_bytes(&self, job: JobId) -> u64 {
        self.jobs.get(&job).map_or(0, |job| job.held_bytes)
    }

    /// Records that a job has opened its inputs, and the memory of one of its tasks, at least 1.
    pub fn set_task_bytes(&mut self, job: JobId, bytes: u64) {
        let job = self.jobs.entry(job).or_default();
        job.task_bytes = bytes.max(1);
        job.expected_bytes = 0;
        job.opens = None;
    }

    /// Sets the work of a job.
    pub fn set_work(&mut self, job: JobId, work: Work) {
        self.jobs.entry(job).or_default().work = Some(work);
    }

    /// Adds a task that has to run again.
    pub fn add_task(&mut self, job: JobId) {
        if let Some(work) = self.jobs.get_mut(&job).and_then(|job| job.work.as_mut()) {
            work.tasks += 1;
        }
    }

    /// Sets the devices that may run a job's tasks.
    pub fn set_candidates(&mut self, job: JobId, candidates: &[Candidate]) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.candidates.clear();
            job.candidates.extend_from_slice(candidates);
        }
    }

    /// Number of a job's tasks that fit into the budget beside what the job holds, at least 1.
    pub fn tasks_in_memory(&self, job: JobId) -> usize {
        let fitting = self.jobs.get(&job).map_or(0, |job| {
            self.max_bytes().saturating_sub(job.held_bytes) / job.task_bytes.max(1)
        });
        usize::try_from(fitting).unwrap_or(usize::MAX).max(1)
    }

    /// Input bytes of tasks that run on a device, or that have not begun and may run there.
    pub fn queued_bytes(&self, device: usize) -> u64 {
        let may_go = |job: &&Job| job.candidates.iter().any(|c| c.device == device);
        let left = self.jobs.values().filter(may_go).map(Job::left_bytes);
        left.fold(self.in_flight.running_bytes(device), u64::saturating_add)
    }

    /// Ends a job: threads that wait for one of its tasks get no more.
    pub fn end(&mut self, job: JobId) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.ended = true;
        }
    }

    /// Removes a job that has no running task.
    pub fn remove(&mut self, job: JobId) {
        let held_bytes = self.jobs.remove(&job).map_or(0, |job| job.held_bytes);
        self.abandoned.job_ends(job, held_bytes);
    }

    /// Releases the slot and memory of a task that has run, or that did not begin.
    pub fn give_back(&mut self, job: JobId, placement: &Placement, begun: bool) {
        self.in_flight.end(placement.device, placement.number);
        self.more_bytes -= placement.more_bytes;
        let Some(job) = self.jobs.get_mut(&job) else {
            return;
        };
        if placement.more_bytes == 0 {
            job.own_in_use = false;
        }
        if let Some(work) = job.work.as_mut().filter(|_| !begun) {
            work.tasks += 1;
        }
    }

    pub fn queue(&mut self, request: Request, priority: Priority) -> Ticket {
        let ticket = self.number();
        let waiting = Waiting {
            ticket,
            request,
            waits_for: None,
        };
        self.waiting.push(priority, waiting);
        ticket
    }

    pub fn take_grant(&mut self, ticket: Ticket) -> Option<Grant> {
        self.answers.remove(&ticket)
    }

    /// Withdraws a request that has no answer yet, and serves the waiters behind it.
    pub fn leave_queue(&mut self, ticket: Ticket) {
        self.waiting.retain(|waiting| waiting.ticket != ticket);
        self.serve();
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Answers all requests that can be granted, in their order.
    pub fn serve(&mut self) {
        loop {
            let mut waiting = std::mem::take(&mut self.waiting);
            let before = waiting.len();
            let mut unserved = Unserved::default();
            waiting.retain(|waiting| match self.answer(waiting, &mut unserved) {
                Some(answer) => {
                    self.answers.insert(waiting.ticket, answer);
                    false
                }
                None => true,
            });
            self.waiting = waiting;
            // An admitted job allows another one to enter, and that one may stand ahead of it in the queue.
            if self.waiting.len() == before {
                return;
            }
        }
    }

    fn answer(&mut self, waiting: &mut Waiting, unserved: &mut Unserved) -> Option<Grant> {
        match waiting.request {
            Request::Enter(entry) => self.may_enter(entry, waiting.ticket, unserved).then(|| {
                let id = self.number();
                let job = Job {
                    expected_bytes: entry.expected_bytes,
                    opens: entry.database,
                    ..Job::default()
                };
                self.jobs.insert(id, job);
                Grant::Entered { job: id }
            }),
            Request::Admit(id) => {
                if !self.may_admit(id, waiting.ticket, unserved) {
                    return None;
                }
                let now = self.number();
                self.jobs.get_mut(&id)?.admitted = Some(now);
                Some(Grant::Admitted)
            }
            Request::Reserve(bytes) if bytes > self.room_for_reservations() => {
                Some(Grant::OutOfBudget)
            }
            Request::Reserve(bytes) => self.may_have(bytes, waiting.ticket, unserved).then(|| {
                self.reserved_bytes += bytes;
                Grant::Reserved
            }),
            Request::Task(id) if self.jobs.get(&id)?.is_done() => Some(Grant::Ended),
            Request::Task(id) => {
                // If no device had room for this job earlier in this pass, none has now.
                let chosen = match unserved.devices.contains(&id) {
                    true => None,
                    false => self.choose(id),
                };
                let Some(chosen) = chosen else {
                    unserved.devices.insert(id);
                    // `None` if all devices are full: then it takes the first free slot.
                    waiting.waits_for = self.awaited_device(id);
                    return None;
                };
                self.start_task(id, chosen, waiting.waits_for, unserved)
            }
        }
    }

    /// Returns the device that should run a job's next task now.
    fn choose(&self, id: JobId) -> Option<Candidate> {
        let job = self.jobs.get(&id)?;
        let work = job.work?;
        let wants = |device| move |c: &Candidate| c.device == device;
        let competes = |other: &&Job| {
            let mut theirs = other.candidates.iter();
            theirs.any(|c| job.candidates.iter().any(wants(c.device)))
        };
        let competing = self.jobs.values().filter(competes);
        let left_bytes = competing.map(Job::left_bytes).fold(0, u64::saturating_add);
        let offer = Offer {
            candidates: &job.candidates,
            left: (left_bytes / work.task_bytes.max(1)).max(work.tasks),
        };
        self.in_flight.choose(&offer, self.slots, self.now)
    }

    /// Returns the device that a task waits for although another one has a free slot.
    fn awaited_device(&self, id: JobId) -> Option<usize> {
        let candidates = &self.jobs.get(&id)?.candidates;
        let has_room = |c: &Candidate| self.in_flight.running(c.device) < self.slots;
        let waits = candidates.iter().any(has_room);
        InFlight::fastest(candidates).filter(|_| waits)
    }

    /// Begins a task on the chosen device if memory suffices.
    fn start_task(
        &mut self,
        id: JobId,
        chosen: Candidate,
        waited_for: Option<usize>,
        unserved: &mut Unserved,
    ) -> Option<Grant> {
        let job = self.jobs.get(&id)?;
        let bytes = job.task_bytes;
        let input_bytes = job.work.map_or(0, |work| work.task_bytes);
        let more_bytes = match job.own_in_use {
            false => 0,
            true if self.may_take(bytes, unserved) => bytes,
            true => return None,
        };
        let (device, number) = (chosen.device, self.number());
        let placement = Placement {
            number,
            more_bytes,
            device,
            moved: waited_for.is_some_and(|other| other != device),
        };
        self.in_flight.begin(&chosen, number, self.now, input_bytes);
        self.more_bytes += more_bytes;
        let job = self.jobs.get_mut(&id)?;
        job.own_in_use |= more_bytes == 0;
        if let Some(work) = &mut job.work {
            work.tasks -= 1;
        }
        Some(Grant::Task(placement))
    }
}
