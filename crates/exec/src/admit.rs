//! Admission of a job: chooses the devices that run its tasks, their read-ahead and the memory of each.
//!
//! ```text
//!   devices of the engine
//!     - those on which the job would end later than on the CPU      sooner
//!     - those that do not support its request                       able
//!   read-ahead, halved until a task fits                            admit
//!     if it does not fit with devices, once more without them
//! ```

use rockmill_core::{Backend, Error, Request, Result};
use rockmill_format::compression::Implementation;

use crate::auto;
use crate::budget::HOST;
use crate::device_registry::DeviceEntry;
use crate::device_trouble::is_device_trouble;
use crate::executor::Executor;
use crate::throughput::JobSize;

/// Needs of a job's tasks.
pub trait Need {
    /// The request of all tasks together, with the given read-ahead of each table in bytes.
    fn request(&self, read_ahead_bytes: usize) -> Request<'_>;

    /// Read-ahead of each table in bytes: the first one to try, and the minimum.
    fn read_ahead_bytes(&self) -> (usize, usize);

    /// Bytes that are read at a time, and bytes that are held ahead, for that read-ahead.
    fn window(&self, read_ahead_bytes: usize) -> (usize, usize);

    /// Returns the memory of a task, or the reason why it does not fit.
    ///
    /// # Errors
    /// Declined.
    fn room(&self, memory: &TaskMemory) -> Result<u64>;

    /// Whether the CPU can run the tasks: alone, or those at which a device fails.
    fn may_run_on_cpu(&self) -> bool {
        true
    }

    /// Removes the parts that only devices do, before the job is admitted without them.
    fn leave_to_cpu(&mut self) {}
}

/// Memory of a task with one read-ahead, as the backends state it.
#[derive(Debug, Clone, Copy)]
pub struct TaskMemory {
    /// The maximum of the backends' host memory.
    pub host_bytes: u64,
    /// Read-ahead in bytes.
    pub read_ahead_bytes: usize,
    /// Whether neither less read-ahead nor the CPU alone is left to try.
    pub is_last: bool,
}

/// How a job is run.
#[derive(Debug)]
pub struct Admitted {
    /// Devices other than the CPU that run its tasks.
    pub devices: Vec<DeviceEntry>,
    /// The reason why a device does not run them, if one does not.
    pub refused: Option<Error>,
    /// Bytes of each table that are read at a time.
    pub read_ahead_bytes: usize,
    /// Maximum host memory of a task.
    pub task_bytes: u64,
}

impl Executor {
    /// Removes the devices that only get jobs that end sooner there than on the CPU, if a job of this size would not.
    /// On a device, `compressed_by` would compress its output.
    pub fn sooner(
        &self,
        mut devices: Vec<DeviceEntry>,
        size: &JobSize,
        compressed_by: Implementation,
    ) -> Vec<DeviceEntry> {
        let budget = self.budget();
        devices.retain(|entry| {
            let queues = auto::Queues {
                device_bytes: budget.queued_bytes(entry.number),
                cpu_bytes: budget.queued_bytes(HOST),
                slots: budget.slots(),
            };
            let name = entry.device.backend.name();
            !entry.only_if_sooner
                || auto::takes(self.throughputs(), name, size, compressed_by, queues)
        });
        devices
    }

    /// Admits a job to those of `devices` that support it, or to the CPU alone.
    ///
    /// # Errors
    /// Declined if a task does not fit into memory on the CPU alone either.
    pub fn admit(&self, mut devices: Vec<DeviceEntry>, need: &mut impl Need) -> Result<Admitted> {
        let mut refused = None;
        devices.retain(|entry| {
            let trouble = entry
                .device
                .backend
                .supports(&need.request(0))
                .check()
                .err();
            let is_able = trouble.is_none();
            refused = refused.take().or(trouble);
            is_able
        });
        let fitted = match self.fit(&devices, need) {
            Err(error) if !devices.is_empty() && is_device_trouble(&error) => {
                devices.clear();
                refused = Some(error);
                need.leave_to_cpu();
                self.fit(&devices, need)
            }
            fitted => fitted,
        };
        let (read_ahead_bytes, task_bytes) = fitted?;
        Ok(Admitted {
            devices,
            refused,
            read_ahead_bytes,
            task_bytes,
        })
    }

    /// Returns the bytes that are read at a time and the memory of a task. Halves the read-ahead until a task fits.
    fn fit(&self, devices: &[DeviceEntry], need: &impl Need) -> Result<(usize, u64)> {
        let (mut read_ahead_bytes, least) = need.read_ahead_bytes();
        loop {
            let (window, held) = need.window(read_ahead_bytes);
            let request = need.request(held);
            let of = |backend: &dyn Backend| backend.footprint(&request).host_bytes;
            // The CPU runs tasks again at which a device fails.
            let on_cpu = match need.may_run_on_cpu() {
                true => of(self.cpu()),
                false => 0,
            };
            let on_devices = devices.iter().map(|entry| of(&*entry.device.backend));
            let is_least = read_ahead_bytes <= least;
            let room = need.room(&TaskMemory {
                host_bytes: on_devices.fold(on_cpu, u64::max),
                read_ahead_bytes,
                is_last: is_least && devices.is_empty(),
            });
            match room {
                Ok(task_bytes) => return Ok((window, task_bytes)),
                Err(error) if is_least => return Err(error),
                Err(_) => read_ahead_bytes = (read_ahead_bytes / 2).max(least),
            }
        }
    }
}
