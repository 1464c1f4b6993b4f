//! Who holds what, who waits, and who is next.

mod room;

use std::collections::BTreeMap;

use super::abandoned::AbandonedMemory;
pub use super::abandoned::JobId;
use super::fair_queue::{FairQueue, Priority};
use super::running::{Candidate, InFlight, Offer};
use room::Full;

/// A place in the queue.
pub type Ticket = u64;

/// A job that has not opened its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Tells databases apart.
    pub database: u64,
    /// What the inputs' indexes will take, about.
    pub expected_bytes: u64,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy)]
pub enum Wish {
    /// To open a job's inputs.
    Enter(Entry),
    /// The memory of the job's own task.
    Admit(JobId),
    /// A device with room for a task, and memory.
    Task(JobId),
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    Entered {
        job: JobId,
    },
    Admitted,
    /// A task may run.
    Task(Place),
    /// The job has no more tasks.
    Ended,
}

/// Where a task runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    pub number: u64,
    /// Memory that it takes beside the job's own; 0 if it runs in that.
    pub more_bytes: u64,
    pub device: usize,
    /// Whether it waited for another device, and this one took it since it would end it sooner.
    pub moved: bool,
}

/// What a job has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Tasks that have not begun.
    pub tasks: u64,
    /// Bytes of input of one, about.
    pub task_bytes: u64,
}

/// What a job has.
#[derive(Debug, Default)]
struct Job {
    held_bytes: u64,
    /// What it is going to hold, about, while it opens its inputs.
    expected_bytes: u64,
    task_bytes: u64,
    /// The database whose files it opens.
    opens: Option<u64>,
    /// When it got the memory of its first task.
    admitted: Option<Ticket>,
    /// A task runs in the job's own memory.
    own_in_use: bool,
    ended: bool,
    work: Option<Work>,
    /// Who may take its tasks.
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

    /// Bytes of input of tasks that have not begun.
    fn left_bytes(&self) -> u64 {
        let left = |work: Work| work.tasks.saturating_mul(work.task_bytes);
        self.work.map_or(0, left)
    }
}

/// Somebody in the queue.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    wish: Wish,
    /// The device that a task waits for although another had room.
    waits_for: Option<usize>,
}

/// All there is to know of a budget.
#[derive(Debug)]
pub struct State {
    pub slots: usize,
    pub bytes: u64,
    /// What calls hold which nobody waits for any more: so much less there is for others.
    behind: AbandonedMemory,
    /// Seconds since some moment.
    pub now: f64,
    in_flight: InFlight,
    /// Memory of tasks beside that of the jobs themselves.
    more_bytes: u64,
    jobs: BTreeMap<JobId, Job>,
    waiting: FairQueue<Waiting>,
    answers: BTreeMap<Ticket, Answer>,
    /// Number of the next job or ticket.
    next: u64,
}

impl State {
    pub fn new(slots: usize, bytes: u64) -> Self {
        Self {
            slots: slots.max(1),
            bytes,
            behind: AbandonedMemory::default(),
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

    /// Memory that there is for jobs.
    pub fn max_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.abandoned_bytes())
    }

    /// Memory that calls hold which were abandoned.
    pub fn abandoned_bytes(&self) -> u64 {
        self.behind.bytes()
    }

    /// A call of a job is abandoned, with the memory of its task.
    pub fn abandon(&mut self, job: JobId, task_bytes: u64) {
        self.behind.leave(job, task_bytes);
    }

    /// It has come back.
    pub fn give_back_abandoned(&mut self, job: JobId, task_bytes: u64) {
        self.behind.give_back_abandoned(job, task_bytes);
    }

    /// Memory that jobs keep until they end.
    fn own_bytes(&self) -> u64 {
        self.jobs.values().map(Job::own_bytes).sum()
    }

    /// Memory that is in use or promised to a job.
    pub fn used_bytes(&self) -> u64 {
        self.own_bytes() + self.more_bytes
    }

    /// Counts `bytes` to a job; returns what it holds now.
    pub fn hold(&mut self, job: JobId, bytes: u64) -> u64 {
        let job = self.jobs.entry(job).or_default();
        job.held_bytes = job.held_bytes.saturating_add(bytes);
        job.held_bytes
    }

    /// What is counted to a job, without its tasks.
    pub fn held_bytes(&self, job: JobId) -> u64 {
        self.jobs.get(&job).map_or(0, |job| job.held_bytes)
    }

    /// A job has opened its inputs; one of its tasks takes so much, at least 1.
    pub fn set_task_bytes(&mut self, job: JobId, bytes: u64) {
        let job = self.jobs.entry(job).or_default();
        job.task_bytes = bytes.max(1);
        job.expected_bytes = 0;
        job.opens = None;
    }

    /// Says what a job has to do.
    pub fn set_work(&mut self, job: JobId, work: Work) {
        self.jobs.entry(job).or_default().work = Some(work);
    }

    /// One of a job's tasks is to run again.
    pub fn add_task(&mut self, job: JobId) {
        if let Some(work) = self.jobs.get_mut(&job).and_then(|job| job.work.as_mut()) {
            work.tasks += 1;
        }
    }

    /// Says who may take a job's tasks.
    pub fn set_candidates(&mut self, job: JobId, candidates: &[Candidate]) {
        let kept = &mut self.jobs.entry(job).or_default().candidates;
        kept.clear();
        kept.extend_from_slice(candidates);
    }

    /// How many of a job's tasks fit beside what it holds, at least 1.
    pub fn tasks_in_memory(&self, job: JobId) -> usize {
        let fitting = self.jobs.get(&job).map_or(0, |job| {
            self.max_bytes().saturating_sub(job.held_bytes) / job.task_bytes.max(1)
        });
        usize::try_from(fitting).unwrap_or(usize::MAX).max(1)
    }

    /// Bytes of input of tasks that run on a device, or that have not begun and may go there.
    pub fn queued_bytes(&self, device: usize) -> u64 {
        let may_go = |job: &&Job| job.candidates.iter().any(|c| c.device == device);
        let left = self.jobs.values().filter(may_go).map(Job::left_bytes);
        left.fold(self.in_flight.running_bytes(device), u64::saturating_add)
    }

    /// Whoever waits for a task of the job need not.
    pub fn end(&mut self, job: JobId) {
        self.jobs.entry(job).or_default().ended = true;
    }

    /// Forgets a job, of which no task runs.
    pub fn remove(&mut self, job: JobId) {
        let held_bytes = self.jobs.remove(&job).map_or(0, |job| job.held_bytes);
        self.behind.job_ends(job, held_bytes);
    }

    /// A task has run, or was not begun.
    pub fn give_back(&mut self, job: JobId, place: &Place, begun: bool) {
        self.in_flight.end(place.device, place.number);
        self.more_bytes -= place.more_bytes;
        let Some(job) = self.jobs.get_mut(&job) else {
            return;
        };
        if place.more_bytes == 0 {
            job.own_in_use = false;
        }
        if let Some(work) = job.work.as_mut().filter(|_| !begun) {
            work.tasks += 1;
        }
    }

    pub fn queue(&mut self, wish: Wish, priority: Priority) -> Ticket {
        let ticket = self.number();
        let waiting = Waiting {
            ticket,
            wish,
            waits_for: None,
        };
        self.waiting.come(priority, waiting);
        ticket
    }

    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Withdraws a wish that nobody has answered, and serves who stood behind it.
    pub fn leave_queue(&mut self, ticket: Ticket) {
        self.waiting.retain(|waiting| waiting.ticket != ticket);
        self.serve();
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Answers all who can be, in their order.
    pub fn serve(&mut self) {
        loop {
            let mut waiting = std::mem::take(&mut self.waiting);
            let before = waiting.len();
            let mut full = Full::default();
            waiting.retain(|waiting| match self.answer(waiting, &mut full) {
                Some(answer) => {
                    self.answers.insert(waiting.ticket, answer);
                    false
                }
                None => true,
            });
            self.waiting = waiting;
            // A job that is admitted lets in the next, which may have come before it asked.
            if self.waiting.len() == before {
                return;
            }
        }
    }

    fn answer(&mut self, waiting: &mut Waiting, full: &mut Full) -> Option<Answer> {
        match waiting.wish {
            Wish::Enter(entry) => self.enters(entry, waiting.ticket, full).then(|| {
                let id = self.number();
                let job = Job {
                    expected_bytes: entry.expected_bytes,
                    opens: Some(entry.database),
                    ..Job::default()
                };
                self.jobs.insert(id, job);
                Answer::Entered { job: id }
            }),
            Wish::Admit(id) => {
                if !self.admits(id, waiting.ticket, full) {
                    return None;
                }
                let now = self.number();
                self.jobs.get_mut(&id)?.admitted = Some(now);
                Some(Answer::Admitted)
            }
            Wish::Task(id) if self.jobs.get(&id)?.is_done() => Some(Answer::Ended),
            Wish::Task(id) => {
                // What others have got since leaves no more for those that got nothing.
                let chosen = match full.devices.contains(&id) {
                    true => None,
                    false => self.choose(id),
                };
                let Some(chosen) = chosen else {
                    full.devices.insert(id);
                    // Where all are full, it waits for whichever is first.
                    waiting.waits_for = self.waited_for(id);
                    return None;
                };
                self.place(id, chosen, waiting.waits_for, full)
            }
        }
    }

    /// The device that should take a job's next task now.
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

    /// The device that a task waits for although another one has room.
    fn waited_for(&self, id: JobId) -> Option<usize> {
        let candidates = &self.jobs.get(&id)?.candidates;
        let has_room = |c: &Candidate| self.in_flight.running(c.device) < self.slots;
        let waits = candidates.iter().any(has_room);
        InFlight::favourite(candidates).filter(|_| waits)
    }

    /// Lets a task begin, if there is memory.
    fn place(
        &mut self,
        id: JobId,
        chosen: Candidate,
        waited_for: Option<usize>,
        full: &mut Full,
    ) -> Option<Answer> {
        let job = self.jobs.get(&id)?;
        let bytes = job.task_bytes;
        let input_bytes = job.work.map_or(0, |work| work.task_bytes);
        let more_bytes = match job.own_in_use {
            false => 0,
            true if self.takes(bytes, full) => bytes,
            true => return None,
        };
        let (device, number) = (chosen.device, self.number());
        let place = Place {
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
        Some(Answer::Task(place))
    }
}
