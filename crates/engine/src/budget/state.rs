//! Who holds what, who waits, and who is next.

use std::collections::{BTreeMap, VecDeque};

/// A job's number.
pub type JobId = u64;

/// A place in the queue.
pub type Ticket = u64;

/// What somebody waits for.
#[derive(Debug, Clone, Copy)]
pub enum Wish {
    /// To open a job's inputs.
    Enter,
    /// The memory of the job's own slice.
    Admit(JobId),
    /// A slot, and memory.
    Slice(JobId),
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Entered {
        job: JobId,
    },
    Admitted,
    /// A slice may run, with so much memory beside the job's own; 0 if it runs in that.
    Slice {
        more_bytes: u64,
    },
    /// The job has no more slices.
    Ended,
}

/// What a job has.
#[derive(Debug, Default)]
struct Job {
    held_bytes: u64,
    slice_bytes: u64,
    admitted: bool,
    /// A slice runs in the job's own memory.
    own_in_use: bool,
    ended: bool,
}

impl Job {
    /// Memory that the job keeps until it ends.
    fn own_bytes(&self) -> u64 {
        match self.admitted {
            true => self.held_bytes + self.slice_bytes,
            false => self.held_bytes,
        }
    }
}

/// All there is to know of a budget.
#[derive(Debug)]
pub struct State {
    pub slots: usize,
    pub bytes: u64,
    used_slots: usize,
    /// Memory of slices beside that of the jobs themselves.
    more_bytes: u64,
    jobs: BTreeMap<JobId, Job>,
    /// The job that opens its inputs.
    opening: Option<JobId>,
    waiting: VecDeque<(Ticket, Wish)>,
    answers: BTreeMap<Ticket, Answer>,
    /// Number of the next job or ticket.
    next: u64,
}

impl State {
    pub fn new(slots: usize, bytes: u64) -> Self {
        Self {
            slots: slots.max(1),
            bytes,
            used_slots: 0,
            more_bytes: 0,
            jobs: BTreeMap::new(),
            opening: None,
            waiting: VecDeque::new(),
            answers: BTreeMap::new(),
            next: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
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

    /// Says what one of a job's slices takes, at least 1.
    pub fn set_slice_bytes(&mut self, job: JobId, bytes: u64) {
        self.jobs.entry(job).or_default().slice_bytes = bytes.max(1);
    }

    /// How many of a job's slices fit beside what it holds, at least 1.
    pub fn slices_in_memory(&self, job: JobId) -> usize {
        let fitting = self.jobs.get(&job).map_or(0, |job| {
            self.bytes.saturating_sub(job.held_bytes) / job.slice_bytes.max(1)
        });
        usize::try_from(fitting).unwrap_or(usize::MAX).max(1)
    }

    /// Whoever waits for a slice of the job need not.
    pub fn end(&mut self, job: JobId) {
        self.jobs.entry(job).or_default().ended = true;
    }

    /// Forgets a job, of which no slice runs.
    pub fn remove(&mut self, job: JobId) {
        self.jobs.remove(&job);
        if self.opening == Some(job) {
            self.opening = None;
        }
    }

    /// A slice has run.
    pub fn give_back(&mut self, job: JobId, more_bytes: u64) {
        self.used_slots -= 1;
        self.more_bytes -= more_bytes;
        if more_bytes == 0
            && let Some(job) = self.jobs.get_mut(&job)
        {
            job.own_in_use = false;
        }
    }

    pub fn queue(&mut self, wish: Wish) -> Ticket {
        let ticket = self.number();
        self.waiting.push_back((ticket, wish));
        ticket
    }

    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Withdraws a wish that nobody has answered, and serves who stood behind it.
    pub fn leave_queue(&mut self, ticket: Ticket) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        self.serve();
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Answers all who can be, in the order in which they came.
    pub fn serve(&mut self) {
        loop {
            let waiting = std::mem::take(&mut self.waiting);
            let before = waiting.len();
            let mut memory_is_free = true;
            for (ticket, wish) in waiting {
                match self.answer(wish, &mut memory_is_free) {
                    Some(answer) => drop(self.answers.insert(ticket, answer)),
                    None => self.waiting.push_back((ticket, wish)),
                }
            }
            // A job that is admitted lets in the next, which may have come before it asked.
            if self.waiting.len() == before {
                return;
            }
        }
    }

    /// `memory_is_free` says whether nobody further ahead waits for memory.
    fn answer(&mut self, wish: Wish, memory_is_free: &mut bool) -> Option<Answer> {
        match wish {
            Wish::Enter => self.opening.is_none().then(|| {
                let job = self.number();
                self.jobs.insert(job, Job::default());
                self.opening = Some(job);
                Answer::Entered { job }
            }),
            Wish::Admit(id) => {
                let job = self.jobs.get(&id)?;
                // After the budget has shrunk it may be too small for any; then jobs run one by one.
                let alone = self.used_bytes() == job.held_bytes;
                let bytes = job.slice_bytes;
                if !self.takes(bytes, memory_is_free) && !alone {
                    return None;
                }
                self.jobs.get_mut(&id)?.admitted = true;
                self.opening = None;
                Some(Answer::Admitted)
            }
            Wish::Slice(id) => {
                let job = self.jobs.get(&id)?;
                if job.ended {
                    return Some(Answer::Ended);
                }
                if self.used_slots >= self.slots {
                    return None;
                }
                let bytes = job.slice_bytes;
                let more_bytes = match job.own_in_use {
                    false => 0,
                    true if self.takes(bytes, memory_is_free) => bytes,
                    true => return None,
                };
                self.used_slots += 1;
                self.more_bytes += more_bytes;
                if more_bytes == 0 {
                    self.jobs.get_mut(&id)?.own_in_use = true;
                }
                Some(Answer::Slice { more_bytes })
            }
        }
    }

    /// Whether there are `bytes` for somebody. If not, and slices that end will change that, what is free
    /// is kept; but not for one who has to wait until whole jobs end, which would take longer then.
    fn takes(&self, bytes: u64, memory_is_free: &mut bool) -> bool {
        let fits = |used: u64| used.saturating_add(bytes) <= self.bytes;
        if *memory_is_free && fits(self.used_bytes()) {
            return true;
        }
        if fits(self.own_bytes()) {
            *memory_is_free = false;
        }
        false
    }
}
