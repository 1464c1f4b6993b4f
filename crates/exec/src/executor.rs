//! Runs the tasks of jobs on devices, on threads that are kept for the next job.
//!
//! A job enters the [`Budget`] and hands its tasks over with [`Executor::submit`]. Pooled threads then take one task after
//! another: each waits for a grant of the budget, which names a device, and calls that device's backend. The thread
//! that waits for the [`TaskHandle`] also watches the calls of its job. A call into a driver cannot be ended from
//! outside, so a call that is late is abandoned: its thread is left alone and replaced, its memory stays counted until
//! it returns, and it creates no more files. The CPU runs again what a device failed at or did not return from.

mod call;
mod pool;
mod task_handle;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{CancelToken, DynBackend, Error, Result, TaskReport};
use rockmill_cpu::CpuBackend;
use rockmill_storage::clock::Clock;

use crate::Patience;
use crate::budget::{Budget, JobShare, Work};
use crate::device_registry::{DeviceEntry, DeviceRegistry};
use crate::pace::{JobSize, Paces};
pub use call::Call;
use pool::Pool;
pub use task_handle::{MadeTask, TaskHandle};

/// Devices, memory and threads that jobs share.
#[derive(Debug)]
pub struct Executor {
    registry: DeviceRegistry,
    budget: Arc<Budget>,
    paces: Arc<Paces>,
    patience: Patience,
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
}

/// The tasks of one job. The executor calls it from several threads.
///
/// A thread that is abandoned keeps its reference until the backend returns, so whatever ends with the job must not be
/// owned here.
pub trait Tasks: Send + Sync + 'static {
    /// What is known of the job's tasks before they run.
    fn size(&self) -> &JobSize;

    /// Stored bytes of each task's input.
    fn input_bytes(&self) -> &[u64];

    /// Bytes per second that a limiter lets all tasks read and write together; 0 if there is no limit.
    fn bytes_per_second(&self) -> u64;

    /// A task begins on a device.
    fn begin(self: Arc<Self>, start: Start<'_>) -> Arc<dyn TaskRun>;

    /// Removes what a failed run of a task has left, before the CPU runs it again.
    ///
    /// # Errors
    /// Storage.
    fn discard(&self, task: usize) -> Result<()>;

    /// Does other work of the job on a thread that finds no more tasks.
    fn help(&self, handle: &TaskHandle);

    /// Counts what has happened.
    fn on_event(&self, event: Event<'_>);
}

/// A task that begins.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Its index.
    pub task: usize,
    /// Name of the device.
    pub device: &'a str,
    /// How long its thread waited for the grant.
    pub waited: Duration,
    /// Whether it ran before and failed.
    pub is_again: bool,
}

/// One run of a task. If a device fails at it, the CPU's run is another one.
pub trait TaskRun: Send + Sync + 'static {
    /// Runs the task on the call's backend. It creates files within [`Call::while_open`] alone.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]. The CPU runs the task again after errors that a device may be to blame for.
    fn run(&self, call: &Call) -> Result<TaskReport>;

    /// Takes in the report of a run that was not abandoned. [`TaskHandle::verdict`] may follow at once or later.
    ///
    /// # Errors
    /// As [`TaskRun::run`].
    fn complete(&self, report: TaskReport, handle: &TaskHandle) -> Result<()>;

    /// The run has ended, failed or was abandoned.
    fn end(&self);
}

/// What happens to tasks and devices.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A device takes a task that waited for another one.
    Moved {
        /// Name of the device.
        device: &'a str,
    },
    /// The CPU has run a task that a device had failed at.
    Redone {
        /// Its index.
        task: usize,
        /// Name of the device that failed.
        device: &'a str,
        /// Why it failed.
        error: &'a Error,
    },
    /// A device did not return from a task in time.
    Abandoned {
        /// Name of the device.
        device: &'a str,
    },
    /// A device gets no tasks for a while.
    Quarantined {
        /// Name of the device.
        device: &'a str,
    },
    /// The job fails.
    Failed {
        /// Why.
        error: &'a Error,
    },
}

/// What [`Executor::submit`] takes.
pub struct OwnedTasks {
    /// The tasks.
    pub tasks: Arc<dyn Tasks>,
    /// Devices beside the CPU that support them.
    pub devices: Vec<DeviceEntry>,
    /// Host memory that one of them holds at most.
    pub task_memory_bytes: u64,
    /// Ends all of them once it is set. A failing task sets it.
    pub stop: CancelToken,
}

impl Executor {
    /// Shares the devices of `registry` and the memory of `budget` among jobs.
    pub fn new(
        registry: DeviceRegistry,
        budget: Arc<Budget>,
        patience: Patience,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            registry,
            budget,
            paces: Arc::default(),
            patience,
            pool: Arc::default(),
            clock,
        }
    }

    /// The devices.
    pub fn registry(&self) -> &DeviceRegistry {
        &self.registry
    }

    /// Slots and memory.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// How long tasks take on each device.
    pub fn paces(&self) -> &Paces {
        &self.paces
    }

    /// What runs tasks that no device takes.
    pub fn cpu(&self) -> &CpuBackend {
        &self.registry.cpu
    }

    /// Begins to run the tasks of `job`, which has been admitted with the memory of one of them.
    pub fn submit(&self, job: &JobShare, owned: OwnedTasks) -> TaskHandle {
        job.plan(Work {
            tasks: owned.tasks.input_bytes().len() as u64,
            task_bytes: owned.tasks.size().mean().bytes,
        });
        let cpu: Arc<dyn DynBackend> = Arc::new(self.registry.cpu);
        TaskHandle::begin(task_handle::Shared {
            cpu,
            host_shares: self.registry.host_shares || owned.devices.is_empty(),
            job: (**job).clone(),
            paces: Arc::clone(&self.paces),
            patience: self.patience,
            pool: Arc::clone(&self.pool),
            clock: Arc::clone(&self.clock),
            owned,
        })
    }
}
