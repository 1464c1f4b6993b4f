//! Chooses devices, compressor, read-ahead and memory for the subcompactions of a job.

use rockmill_core::{
    DeclineReason, Error, FileEstimate, InputTable, Job, Plan, Request, Result, Support,
};
use rockmill_exec::admit::{Admitted, Need, TaskMemory};
use rockmill_exec::budget::JobShare;
use rockmill_exec::device_health::Circuit;
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::throughput::{JobSize, TaskSize};
use rockmill_format::compression::{CompressionSettings, Implementation};
use rockmill_storage::io::JobIo;

use crate::run_context::RunContext;
use crate::settings::MIN_READ_AHEAD_BYTES;

/// A planned job. A subcompaction must fit into the budget, together with the indexes of the inputs, which stay in memory
/// while the job runs.
pub struct PlannedJob<'a> {
    pub context: &'a RunContext<'a>,
    pub files: &'a JobIo,
    pub share: &'a JobShare,
    pub job: &'a Job,
    pub tables: &'a [InputTable],
    pub subcompaction_bytes: &'a [u64],
    pub plan: &'a mut Plan,
    /// Compression on the CPU without devices, if it may be other code than that of devices. `admit` sets it.
    pub on_cpu: Option<CompressionSettings>,
}

impl PlannedJob<'_> {
    /// Known sizes of the subcompactions.
    pub fn size(&self) -> JobSize {
        let all = input_size(self.plan, self.tables);
        JobSize::new(all, self.subcompaction_bytes)
    }

    /// Admits the job, sets the plan's compressor, and reserves memory for checking files beside the subcompactions.
    ///
    /// # Errors
    /// Declined if a subcompaction does not fit into the budget.
    pub fn admit(&mut self) -> Result<Admitted> {
        let (context, tables) = (self.context, self.tables);
        let budget = context.executor.budget();
        let size = self.size();
        let own = own_compression(context, self.job, self.plan);
        let on_device = (own.as_ref()).map_or(Implementation::Library, |own| own.implementation);
        let devices = (context.executor).sooner(context.devices.clone(), &size, on_device);
        let library = self.plan.output.table.compression.clone();
        let is_chosen = self.job.compressed_by.is_some();
        if let Some(own) = own {
            self.plan.output.table.compression = own;
            if !is_chosen && !is_of_use(context, &devices, self.plan, tables) {
                self.plan.output.table.compression = library.clone();
            }
        }
        self.on_cpu = (!is_chosen).then_some(library);
        let admitted = context.executor.admit(devices, self)?;
        let checks = (context.sync_threads as u64).saturating_mul(check_bytes(self.plan, tables));
        let needed = (self.share.held_bytes()).saturating_add(admitted.task_bytes);
        if needed.saturating_add(checks) <= budget.bytes() {
            self.share.hold(checks)?;
        } else {
            // Subcompactions verify their files themselves, in their own memory.
            self.files.finishing.close();
        }
        Ok(admitted)
    }
}

/// Returns the plan's compression by Rockmill's own code, if there is some and the job or the settings say that it may be
/// used. It is used if one of the devices can do the job with it, and what the CPU then does of the job, it does with the
/// same code.
fn own_compression(
    context: &RunContext<'_>,
    job: &Job,
    plan: &Plan,
) -> Option<CompressionSettings> {
    let is_allowed = match job.compressed_by {
        Some(chosen) => chosen == Implementation::Rockmill1,
        None => context.settings.device_compression,
    };
    let own = is_allowed.then(|| plan.output.table.compression.with_rockmill());
    own.flatten()
}

/// Whether one of the `devices` that is not quarantined can do the job.
fn is_of_use(
    context: &RunContext<'_>,
    devices: &[DeviceEntry],
    plan: &Plan,
    tables: &[InputTable],
) -> bool {
    let request = plan.request(tables, &plan.range, 0);
    let now = context.clock.now();
    devices.iter().any(|entry| {
        let is_sound = entry.health.circuit(now) == Circuit::Closed;
        is_sound && entry.device.backend.supports(&request) == Support::Yes
    })
}

/// Returns the size of all inputs together.
fn input_size(plan: &Plan, tables: &[InputTable]) -> TaskSize {
    let sum = |of: fn(&InputTable) -> u64| tables.iter().map(of).fold(0, u64::saturating_add);
    TaskSize {
        bytes: sum(|table| table.meta.properties.data_size),
        entries: sum(|table| table.meta.properties.num_entries),
        compression: {
            let settings = &plan.output.table.compression;
            Some((settings.kind, settings.implementation))
        },
    }
}

/// Memory for verifying the tail of an output file in addition to the subcompactions' memory: its filter, and its index
/// in stored and in decoded form.
fn check_bytes(plan: &Plan, tables: &[InputTable]) -> u64 {
    const MILLIBITS_PER_BYTE: u64 = 8 * 1000;
    const INDEX_TIMES: u64 = 2;
    let file = FileEstimate::new(&plan.output, tables);
    let millibits =
        (plan.output.table.filter).map_or(0, |filter| u64::from(filter.millibits_per_key));
    let filter = file.entries.saturating_mul(millibits) / MILLIBITS_PER_BYTE;
    filter.saturating_add(file.index_bytes.saturating_mul(INDEX_TIMES))
}

impl Need for PlannedJob<'_> {
    fn request(&self, read_ahead_bytes: usize) -> Request<'_> {
        (self.plan).request(self.tables, &self.plan.range, read_ahead_bytes)
    }

    fn read_ahead_bytes(&self) -> (usize, usize) {
        let least = MIN_READ_AHEAD_BYTES;
        (self.context.settings.read_ahead_bytes.max(least), least)
    }

    fn window(&self, read_ahead_bytes: usize) -> (usize, usize) {
        self.files.read_ahead(read_ahead_bytes)
    }

    /// Memory of scans and of abandoned calls is not available to devices; for the CPU alone it only reduces the
    /// read-ahead.
    fn room(&self, memory: &TaskMemory) -> Result<u64> {
        let (bytes, indexes) = (
            (memory.host_bytes).saturating_add(self.files.written_file_bytes()),
            self.share.held_bytes(),
        );
        let budget = self.context.executor.budget();
        let most = match memory.is_last {
            true => budget.all_bytes(),
            false => budget.bytes(),
        };
        if bytes.saturating_add(indexes) <= most {
            return Ok(bytes);
        }
        Err(Error::declined(
            DeclineReason::MemoryBudget,
            format!(
                "a subcompaction over {} inputs needs {bytes} bytes and their indexes {indexes}; the budget is {most}",
                self.tables.len()
            ),
        ))
    }

    fn leave_to_cpu(&mut self) {
        if let Some(compression) = self.on_cpu.take() {
            self.plan.output.table.compression = compression;
        }
    }
}
