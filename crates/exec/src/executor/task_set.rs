//! The tasks of one job while they run, and the threads that run them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rockmill_core::{Backend, Error, Lock, TaskReport};
use rockmill_storage::clock::{Clock, Signal};

use super::call::Call;
use super::pool::Pool;
use super::{Event, OwnedTasks, TaskHandle};
use crate::TaskDeadline;
use crate::budget::{HOST, JobRef};
use crate::device_health::EngineAttempt;
use crate::device_registry::DeviceEntry;
use crate::throughput::Throughputs;

/// Constant data that all threads of the tasks share.
pub struct Shared {
    pub cpu: Arc<dyn Backend>,
    /// Whether the CPU also runs tasks that another device could run.
    pub host_shares: bool,
    pub job: JobRef,
    pub throughputs: Arc<Throughputs>,
    pub task_deadline: TaskDeadline,
    pub pool: Arc<Pool>,
    pub clock: Arc<dyn Clock>,
    pub owned: OwnedTasks,
}

pub struct Set {
    pub shared: Shared,
    pub state: Lock<State>,
    pub threads: Arc<Threads>,
}

#[derive(Default)]
pub struct State {
    pub records: Vec<Record>,
    /// The system refuses to create threads. So the waiting thread runs the tasks, and only on the CPU, which cannot
    /// hang.
    pub is_host_alone: bool,
    pub error: Option<Error>,
    /// The first reason why a device did not do all of the job.
    pub device_refused: Option<String>,
    /// CPU time of threads that have ended.
    pub cpu: Duration,
}

/// State of one task.
#[derive(Default)]
pub struct Record {
    pub phase: Phase,
    /// Number of the device that runs it or ran it.
    pub device: usize,
    /// Reports the task's result to the device's health.
    pub attempt: Option<EngineAttempt>,
    /// The device that failed at the task, and its error, until the CPU has run the task again.
    pub failed: Option<(usize, Error)>,
}

#[derive(Default)]
pub enum Phase {
    #[default]
    Waiting,
    /// The CPU has to run it again.
    Failed,
    Begun,
    /// The backend was called.
    Called(Arc<Call>),
    Made(Box<TaskReport>),
}

/// The threads that run tasks of a job. A thread reports here only after it has released everything of the job, because
/// the devices may be closed right after.
pub struct Threads {
    pub running: AtomicUsize,
    pub changed: Signal,
    pub clock: Arc<dyn Clock>,
}

impl Threads {
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    pub fn thread_ended(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.notify();
    }

    pub fn notify(&self) {
        self.clock.notify(&self.changed);
    }
}

impl Record {
    /// Drops what a failed job no longer needs.
    pub fn release(&mut self) {
        self.phase = Phase::Begun;
        self.attempt = None;
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Failed)
    }

    /// Marks the task as failed: the CPU has to run it again.
    pub fn fails(&mut self, error: Error) {
        self.phase = Phase::Failed;
        self.failed = Some((self.device, error));
    }

    pub fn failed_device(&self) -> usize {
        self.failed.as_ref().map_or(HOST, |(device, _)| *device)
    }
}

impl Set {
    pub fn handle(self: &Arc<Self>) -> TaskHandle {
        TaskHandle(Arc::clone(self))
    }

    pub fn emit(&self, event: Event<'_>) {
        let tasks = &self.shared.owned.tasks;
        // The application's subscriber may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| tasks.on_event(event)));
    }

    /// Returns the device with that number; `None` for the CPU.
    pub fn entry(&self, number: usize) -> Option<&DeviceEntry> {
        let mut devices = self.shared.owned.devices.iter();
        devices.find(|device| device.number == number)
    }

    pub fn name(&self, number: usize) -> &str {
        match self.entry(number) {
            Some(entry) => entry.device.backend.name(),
            None => self.shared.cpu.name(),
        }
    }

    pub fn refused(&self, why: String) {
        self.state.lock().device_refused.get_or_insert(why);
    }

    pub fn fail(&self, error: Error) {
        self.emit(Event::Failed { error: &error });
        self.state.lock().error.get_or_insert(error);
        self.shared.owned.stop.cancel();
        self.shared.job.end();
        self.threads.notify();
    }
}
