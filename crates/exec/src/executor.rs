//! Runs the tasks of jobs on devices, on pooled threads.
//!
//! A job enters the [`Budget`] and passes its tasks to [`Executor::submit`]. Pooled threads then run one task after
//! another. Each thread waits for a grant of the budget, which names a device, and calls that device's backend. The
//! thread that waits for the [`TaskHandle`] also watches its job's calls of devices.
//!
//! A call into a driver cannot be cancelled from outside, so a call that is late is abandoned. Its thread is replaced,
//! its memory stays counted until it returns, and it can create no more files. The CPU runs a task again if a device
//! failed at it or did not return from it.

mod call;
mod pool;
mod run;
mod task_handle;
mod task_set;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rockmill_core::columns::ColumnCache;
use rockmill_core::{Backend, CancelToken, Error, ErrorKind, InputTable, Result, TaskReport};
use rockmill_cpu::CpuBackend;
use rockmill_storage::clock::Clock;

use crate::TaskDeadline;
use crate::budget::{Budget, JobShare, Work};
use crate::device_registry::{DeviceEntry, DeviceRegistry};
use crate::throughput::{JobSize, Throughputs};
pub use call::Call;
use pool::Pool;
pub use task_handle::{FinishedTask, TaskHandle};

/// Devices, memory and threads that jobs share.
#[derive(Debug)]
pub struct Executor {
    registry: DeviceRegistry,
    budget: Arc<Budget>,
    throughputs: Arc<Throughputs>,
    task_deadline: TaskDeadline,
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    columns: Arc<ColumnCache>,
}

/// The tasks of one job. The executor calls the methods from several threads.
///
/// An abandoned thread keeps its reference until the backend returns. So anything that must end with the job must not
/// be owned here.
pub trait Tasks: Send + Sync + 'static {
    /// Known sizes of the job's tasks before they run.
    fn size(&self) -> &JobSize;

    /// Stored bytes of each task's input.
    fn input_bytes(&self) -> &[u64];

    /// Bytes per second that the rate limit allows all tasks to read and write together; 0 if there is no limit.
    fn bytes_per_second(&self) -> u64;

    /// Whether the CPU can run the tasks. If not, a device runs them even while it is quarantined, because nothing else
    /// can. Then its error is the job's, also if a call does not return within a longer time limit.
    fn may_run_on_cpu(&self) -> bool {
        true
    }

    /// Whether an error of a task that the CPU cannot run counts against the device.
    fn blames_device(&self, error: &Error) -> bool {
        error.kind == ErrorKind::Device
    }

    /// Creates the run of a task that begins on a device.
    fn begin(self: Arc<Self>, start: Start<'_>) -> Arc<dyn TaskRun>;

    /// Removes the files of a failed run of a task before the CPU runs it again.
    ///
    /// # Errors
    /// Storage.
    fn discard(&self, task: usize) -> Result<()>;

    /// Does other work of the job on a thread that finds no more tasks.
    fn help(&self, handle: &TaskHandle);

    /// Counts an event.
    fn on_event(&self, event: Event<'_>);
}

/// A task that begins.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Index of the task.
    pub task: usize,
    /// Name of the device.
    pub device: &'a str,
    /// Time that its thread waited for the grant.
    pub waited: Duration,
    /// Whether the task ran before and failed.
    pub is_again: bool,
}

/// One run of a task. If a device fails at the task, the CPU's run is another object.
pub trait TaskRun: Send + Sync + 'static {
    /// Acquires what the task needs beside the budget, and opens the tables that it reads. Waiting here does not count as
    /// the device's time.
    ///
    /// # Errors
    /// Storage, Cancelled.
    fn prepare(&self) -> Result<Vec<InputTable>>;

    /// Runs the task over these tables on the call's backend. It creates files only within [`Call::while_open`].
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]. The CPU runs the task again after errors that a device may have caused.
    fn run(&self, inputs: Vec<InputTable>, call: &Call) -> Result<TaskReport>;

    /// Processes the report of a run that was not abandoned. [`TaskHandle::verdict`] may follow at once or later.
    ///
    /// # Errors
    /// The errors of [`TaskRun::run`].
    fn complete(&self, report: TaskReport, handle: &TaskHandle) -> Result<()>;

    /// Notifies that the run has succeeded, failed or been abandoned.
    fn end(&self);
}

/// Events of tasks and devices.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A device runs a task that waited for another one.
    Moved {
        /// Name of the device.
        device: &'a str,
    },
    /// The CPU has run a task at which a device had failed.
    Redone {
        /// Index of the task.
        task: usize,
        /// Name of the device that failed.
        device: &'a str,
        /// The device's error.
        error: &'a Error,
    },
    /// A device did not return from a task in time.
    Abandoned {
        /// Name of the device.
        device: &'a str,
    },
    /// A device is quarantined.
    Quarantined {
        /// Name of the device.
        device: &'a str,
    },
    /// The job fails.
    Failed {
        /// The error.
        error: &'a Error,
    },
}

/// Arguments of [`Executor::submit`].
pub struct OwnedTasks {
    /// The tasks.
    pub tasks: Arc<dyn Tasks>,
    /// Devices other than the CPU that support the tasks.
    pub devices: Vec<DeviceEntry>,
    /// Maximum host memory of one task.
    pub task_memory_bytes: u64,
    /// Cancels all tasks once it is set. A failing task sets it.
    pub stop: CancelToken,
}

impl Executor {
    /// Creates an executor for the devices of `registry` and the memory of `budget`.
    pub fn new(
        registry: DeviceRegistry,
        budget: Arc<Budget>,
        task_deadline: TaskDeadline,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            registry,
            budget,
            throughputs: Arc::default(),
            task_deadline,
            pool: Arc::default(),
            clock,
            columns: Arc::default(),
        }
    }

    /// Columns that scans have parsed.
    pub fn columns(&self) -> &Arc<ColumnCache> {
        &self.columns
    }

    /// The devices.
    pub fn registry(&self) -> &DeviceRegistry {
        &self.registry
    }

    /// Slots and memory.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Learned times of tasks on each device.
    pub fn throughputs(&self) -> &Throughputs {
        &self.throughputs
    }

    /// The backend for tasks that no other device runs.
    pub fn cpu(&self) -> &CpuBackend {
        &self.registry.cpu
    }

    /// Starts the tasks of `job`, which has been admitted with the memory of one of them.
    pub fn submit(&self, job: &JobShare, owned: OwnedTasks) -> TaskHandle {
        job.plan(Work {
            tasks: owned.tasks.input_bytes().len() as u64,
            task_bytes: owned.tasks.size().mean().bytes,
        });
        let cpu: Arc<dyn Backend> = Arc::new(self.registry.cpu);
        TaskHandle::begin(task_set::Shared {
            cpu,
            host_shares: owned.tasks.may_run_on_cpu()
                && (self.registry.host_shares || owned.devices.is_empty()),
            job: (**job).clone(),
            throughputs: Arc::clone(&self.throughputs),
            task_deadline: self.task_deadline,
            pool: Arc::clone(&self.pool),
            clock: Arc::clone(&self.clock),
            owned,
        })
    }
}
