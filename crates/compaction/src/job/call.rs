//! A subcompaction on a device that may never answer: on a thread of its own, which can be abandoned.
//!
//! Nothing ends a call into a driver from outside. So the thread owns all that it works with, and its files are
//! made through a gate: once that is closed, no file appears any more where others make the subcompaction anew. What
//! it holds of memory stays counted until it comes back. It is told to stop, which one that is only slow does at its
//! next look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rockmill_core::{
    CancelToken, Error, ErrorKind, InputTable, Operator, Progress, ReadTask, Result, SstFile,
    SstSink, TaskReport, thread_cpu,
};
use tracing::Span;

use crate::prepare::Prepared;
use crate::staging::StagingSink;
use crate::stats::StatsCell;
use rockmill_exec::budget::{Abandoned, Budget, Grant};
use rockmill_exec::device_health::Attempt;
use rockmill_exec::device_registry::OpenDevice;
use rockmill_storage::clock::CANCEL_POLL;
use rockmill_storage::clock::{Clock, Signal, Worker};
use rockmill_storage::io::{SubcompactionFiles, measured_by_this_thread};

/// All that the thread works with.
#[derive(Debug)]
pub struct Call {
    pub device: Arc<OpenDevice>,
    pub job: Arc<Prepared>,
    /// Position of the subcompaction.
    pub subcompaction: usize,
    /// The job's inputs, those open that the subcompaction reads.
    pub inputs: Vec<InputTable>,
    pub sink: StagingSink,
    /// Set when the job ends early.
    pub stop: CancelToken,
    pub span: Span,
}

/// What a call came to.
#[derive(Debug)]
pub struct Answer {
    pub report: Result<TaskReport>,
    pub files: Arc<SubcompactionFiles>,
    /// Time without that of reading and writing.
    pub computed: Duration,
    /// Processor time of the thread.
    pub cpu: Duration,
}

/// How long to wait, and what is at stake.
#[derive(Debug)]
pub struct Terms<'a> {
    pub at_most: Duration,
    pub clock: &'a Arc<dyn Clock>,
    pub budget: &'a Arc<Budget>,
    pub counters: &'a StatsCell,
    /// What the subcompaction holds of the budget.
    pub grant: &'a Grant<'a>,
    /// Memory that the call holds beside what it shares with the job.
    pub subcompaction_bytes: u64,
    /// What it tells of its device.
    pub attempt: &'a Attempt<'a>,
}

/// Why a call is waited for no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenUp {
    /// It takes longer than any call may.
    Late,
    /// Its job was cancelled.
    WithItsJob,
}

/// A call that looks whether the job was cancelled has ended by then.
const GRACE: Duration = Duration::from_secs(2);

/// Closed once it holds what a call took with it.
type Gate = Arc<Mutex<Option<Abandoned>>>;

fn lock(gate: &Gate) -> MutexGuard<'_, Option<Abandoned>> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets files be made as long as the gate is open.
struct Gated<'a> {
    sink: &'a mut StagingSink,
    gate: &'a Gate,
}

impl SstSink for Gated<'_> {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let gate = lock(self.gate);
        match *gate {
            None => self.sink.create(),
            Some(_) => Err(Error::cancelled()),
        }
    }
}

impl Call {
    /// Makes the call and waits for its answer, but not longer than `terms` say; tells `progress` how far
    /// it is.
    ///
    /// # Errors
    /// Device if the call is abandoned; Internal if it panicked.
    pub fn run(self, progress: &Progress<'_>, terms: &Terms<'_>) -> Result<Answer> {
        let (device, job) = (Arc::clone(&self.device), self.stop.clone());
        let stop = job.child();
        let gate = Gate::default();
        let passed = Arc::new(AtomicU64::new(0));
        let (sender, answers) = channel();
        let came = Arc::new(Signal::default());
        let home = Return {
            gate: Arc::clone(&gate),
            device: Arc::downgrade(&device),
            came: Arc::clone(&came),
            clock: Arc::clone(terms.clock),
        };
        let (theirs, to_stop) = (Arc::clone(&passed), stop.clone());
        let worker = Worker::new(terms.clock);
        let call = move || {
            // When it has answered it holds nothing, and the device may be closed.
            let answer = self.work(&home.gate, &theirs, &to_stop);
            // Nobody may be there any more.
            let _ = sender.send(answer);
            drop((sender, home));
        };
        let work = move || worker.run(call);
        let thread = std::thread::Builder::new().name("rockmill-call".to_owned());
        let spawned = thread.spawn(work);
        spawned.map_err(|e| trouble(format!("no thread for a subcompaction: {e}")))?;
        let clock = terms.clock;
        let late = clock.now() + terms.at_most;
        let mut until = late;
        let mut seen = 0;
        loop {
            let before = came.seen();
            match answers.try_recv() {
                Ok(answer) => return Ok(answer),
                Err(TryRecvError::Disconnected) => return Err(panicked()),
                Err(TryRecvError::Empty) => {
                    let now = passed.load(Ordering::Relaxed);
                    progress.advance(now - seen);
                    seen = now;
                }
            }
            let now = clock.now();
            // The first look counts.
            if job.is_cancelled() {
                until = until.min(now + GRACE);
            }
            let given_up = if now >= late {
                Some(GivenUp::Late)
            } else if now >= until {
                Some(GivenUp::WithItsJob)
            } else {
                None
            };
            if let Some(why) = given_up {
                return leave(&gate, &answers, &stop, &device, terms, why);
            }
            clock.wait(&came, before, CANCEL_POLL);
        }
    }

    fn work(mut self, gate: &Gate, passed: &AtomicU64, stop: &CancelToken) -> Answer {
        let (started, measured) = (Instant::now(), measured_by_this_thread());
        let subcompaction = &self.job.subcompactions[self.subcompaction];
        let progress = Progress::new(self.job.subcompaction_bytes[self.subcompaction], passed);
        let (plan, read_ahead_bytes) = (&self.job.plan, self.job.read_ahead_bytes);
        let task = ReadTask {
            request: plan.request(&self.inputs, &subcompaction.range, read_ahead_bytes),
            cancel: stop,
            progress: Some(&progress),
        };
        let sink = &mut Gated {
            sink: &mut self.sink,
            gate,
        };
        let backend = &self.device.backend;
        let report = self
            .span
            .in_scope(|| backend.run(task, Operator::WriteSst { sink }));
        let moved = measured_by_this_thread().saturating_sub(measured);
        drop(progress);
        Answer {
            report,
            files: self.sink.into_files(),
            computed: started.elapsed().saturating_sub(moved),
            cpu: thread_cpu(),
        }
    }
}

/// The end of a call, in any way, with all that it held.
struct Return {
    gate: Gate,
    device: Weak<OpenDevice>,
    /// Who waits for the answer is told.
    came: Arc<Signal>,
    clock: Arc<dyn Clock>,
}

impl Drop for Return {
    fn drop(&mut self) {
        let abandoned = lock(&self.gate).take();
        if let (Some(_), Some(device)) = (&abandoned, self.device.upgrade()) {
            device.health.returned();
        }
        self.clock.notify(&self.came);
    }
}

/// Gives a call up, unless it has answered in this moment. One that is not late says nothing of the device but that this
/// has to answer first.
fn leave(
    gate: &Gate,
    answers: &Receiver<Answer>,
    stop: &CancelToken,
    device: &OpenDevice,
    terms: &Terms<'_>,
    why: GivenUp,
) -> Result<Answer> {
    let mut gate = lock(gate);
    if let Ok(answer) = answers.try_recv() {
        return Ok(answer);
    }
    *gate = Some(Abandoned::leave(
        terms.budget,
        terms.grant,
        terms.subcompaction_bytes,
    ));
    // Not before its answer would be too late: this would end the job.
    stop.cancel();
    let error = trouble(match why {
        GivenUp::Late => format!(
            "a subcompaction has not come back in {:.1} s",
            terms.at_most.as_secs_f64()
        ),
        GivenUp::WithItsJob => {
            "a subcompaction was given up with its job and has not come back".to_owned()
        }
    });
    let is_late = why == GivenUp::Late;
    let name = device.backend.name();
    terms.counters.subcompaction_abandoned(name);
    let is_news = (terms.attempt).abandoned(terms.clock.now(), is_late, &error);
    if is_news && is_late {
        terms.counters.device_quarantined(name);
    }
    Err(error)
}

fn trouble(what: String) -> Error {
    Error::new(ErrorKind::Device, what)
}

fn panicked() -> Error {
    Error::internal("the thread of a subcompaction panicked")
}
