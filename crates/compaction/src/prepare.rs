//! Preparation of a job: opens the inputs, plans, splits into subcompactions and reserves memory.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rockmill_core::{
    DeclineReason, Error, FileEstimate, InputFile, InputTable, Job, Plan, ReadAt, Request,
    Resource, Result, StageTime, Subcompaction, Support, borders, open_table, range_tombstones,
};
use rockmill_format::compression::{CompressionSettings, Implementation};
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::table::names;
use rockmill_format::unique_id::internal_unique_id;
use twox_hash::XxHash3_64;

use crate::eligibility::{self, EligibleJob, LearnedFilter};
use crate::run_context::RunContext;
use crate::settings::MIN_READ_AHEAD_BYTES;
use crate::subcompactions;
use rockmill_exec::admit::{Admitted, Footprint, Need};
use rockmill_exec::budget::{Budget, Entry, JobShare};
use rockmill_exec::device_health::Circuit;
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::pace::{JobSize, TaskSize};
use rockmill_exec::parallel;
use rockmill_snapshot::tree::user_key;
use rockmill_storage::io::{ClosedInput, JobInput, JobIo};

/// A job that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    /// The inputs, which are closed: each subcompaction [opens](crate::job::Inputs) those that it reads.
    pub tables: Vec<InputTable>,
    /// The files of `tables`, in the same order.
    pub closed: Vec<Arc<ClosedInput>>,
    /// The plan.
    pub plan: Plan,
    /// How the filter's size was found.
    pub learned_filter: LearnedFilter,
    /// The subcompactions in key order.
    pub subcompactions: Vec<Subcompaction>,
    /// Stored bytes of each subcompaction's data blocks. A block that two subcompactions share counts for both.
    pub subcompaction_bytes: Vec<u64>,
    /// Known sizes of the subcompactions.
    pub size: JobSize,
    /// Bytes of each input that are read ahead.
    pub read_ahead_bytes: usize,
    /// Maximum memory of a subcompaction.
    pub subcompaction_memory_bytes: u64,
    /// Numbers of the devices other than the CPU that run the job.
    pub devices: Vec<usize>,
    /// Why a device does not run the job, if one does not.
    pub device_refused: Option<Error>,
    /// CPU time of threads other than the caller's.
    pub cpu_elsewhere: Duration,
    /// Times of opening and planning.
    pub stages: [StageTime; 2],
}

/// Returns the job's request to enter the budget, before it opens the files in `dir`.
pub fn entry(job: &Job, dir: &Path) -> Entry {
    /// Bytes of data per byte of index in memory: an index entry of some 64 bytes per block of 4 KiB.
    const DATA_PER_INDEX: u64 = 64;
    let sizes = job.tree.inputs.iter().map(|input| input.size);
    let bytes = sizes.fold(0, u64::saturating_add);
    Entry {
        database: Some(XxHash3_64::oneshot(dir.as_os_str().as_bytes())),
        expected_bytes: bytes / DATA_PER_INDEX,
    }
}

/// Opens the inputs in `dir`, plans and splits into subcompactions. The indexes count towards the job's `share` of the
/// budget.
///
/// # Errors
/// Declined, or Corruption or Storage if an input cannot be read.
pub fn prepare(
    context: &RunContext<'_>,
    files: &Arc<JobIo>,
    share: &JobShare,
    eligible: &EligibleJob,
    dir: &Path,
) -> Result<Prepared> {
    let budget = context.executor.budget();
    let opening = Instant::now();
    context.descriptors.job_begins(&**context.storage);
    let (inputs, cpu_of_opening) = open_inputs(context, files, share, &eligible.job, dir)?;
    let (tables, closed): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
    let opened = host_stage("open inputs", opening);
    let planning = Instant::now();
    let room = budget.all_bytes().saturating_sub(share.held_bytes());
    let mut planned = eligibility::with_inputs(eligible, &tables, room, context.cancel)?;
    share.hold(planned.plan.rules.tombstones.memory_bytes())?;
    let threads = budget.slots();
    let (subcompactions, cpu_of_splitting) =
        subcompactions::split(&planned.plan, &tables, threads, context.cancel)?;
    let inputs = |subcompaction: &Subcompaction| {
        borders::overlapping(&subcompaction.range, &tables).count() as u64
    };
    let max_inputs = subcompactions.iter().map(inputs).max();
    context.descriptors.require(max_inputs.unwrap_or(0))?;
    let bytes =
        |subcompaction: &Subcompaction| borders::stored_bytes(&subcompaction.range, &tables);
    let subcompaction_bytes: Vec<u64> = subcompactions.iter().map(bytes).collect();
    let job_size = |plan: &Plan| JobSize::new(input_size(plan, &tables), &subcompaction_bytes);
    let size = job_size(&planned.plan);
    let own = own_compression(context, &eligible.job, &planned.plan);
    let on_device = (own.as_ref()).map_or(Implementation::Library, |own| own.implementation);
    let devices = (context.executor).sooner(context.devices.clone(), &size, on_device);
    let library = planned.plan.output.table.compression.clone();
    if let Some(own) = own {
        let is_chosen = eligible.job.compressed_by.is_some();
        planned.plan.output.table.compression = own;
        if !is_chosen && !is_of_use(context, &devices, &planned.plan, &tables) {
            planned.plan.output.table.compression = library.clone();
        }
    }
    let mut need = Subcompacting {
        read_ahead_bytes: context.read_ahead_bytes,
        budget,
        files,
        indexes: share.held_bytes(),
        on_cpu: eligible.job.compressed_by.is_none().then_some(library),
        plan: &mut planned.plan,
        tables: &tables,
    };
    let Admitted {
        devices,
        refused,
        read_ahead_bytes,
        task_bytes: subcompaction_memory_bytes,
    } = context.executor.admit(devices, &mut need)?;
    let checks = (context.sync_threads as u64).saturating_mul(check_bytes(&planned.plan, &tables));
    let needed = share
        .held_bytes()
        .saturating_add(subcompaction_memory_bytes);
    if needed.saturating_add(checks) <= budget.bytes() {
        share.hold(checks)?;
    } else {
        // Subcompactions verify their files themselves, in their own memory.
        files.finishing.close();
    }
    let size = job_size(&planned.plan);
    Ok(Prepared {
        devices: devices.iter().map(|entry| entry.number).collect(),
        device_refused: refused,
        plan: planned.plan,
        learned_filter: planned.learned_filter,
        subcompactions,
        subcompaction_bytes,
        size,
        read_ahead_bytes,
        subcompaction_memory_bytes,
        cpu_elsewhere: cpu_of_opening + cpu_of_splitting,
        stages: [opened, host_stage("plan", planning)],
        tables,
        closed,
    })
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
        None => context.device_compression,
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
        let is_sound = entry.device.health.circuit(now) == Circuit::Closed;
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

/// Returns the time of a stage of the host that began at `since`.
pub fn host_stage(stage: &'static str, since: Instant) -> StageTime {
    StageTime {
        stage,
        resource: Resource::Host,
        seconds: since.elapsed().as_secs_f64(),
        bytes: 0,
    }
}

/// A closed input, with everything that was read while it was open.
type Input = (InputTable, Arc<ClosedInput>);

/// Reads the footers and indexes of all inputs. Also returns the CPU time of other threads.
fn open_inputs(
    context: &RunContext<'_>,
    files: &Arc<JobIo>,
    share: &JobShare,
    job: &Job,
    dir: &Path,
) -> Result<(Vec<Input>, Duration)> {
    let open = |input: &InputFile| {
        context.cancel.check()?;
        let path = dir.join(&input.name);
        let reader = open_input(files, input, &path)?;
        let narrowed = files.narrow_outputs(&path);
        narrowed.map_err(|e| cannot_open(input, &e))?;
        let closed = Arc::new(reader.closed(path));
        let table = with_tombstones(open_table(Box::new(reader))?, share)?
            .read_through(Arc::clone(&closed) as _)
            .beginning_at(user_key(&input.smallest));
        check_identity(input, &table)?;
        let table = with_sequence(input, table)?;
        share.hold(table.index_memory_bytes())?;
        Ok((table, closed))
    };
    let (inputs, threads) = (&job.tree.inputs, context.executor.budget().slots());
    parallel::map_in(&context.clock, inputs, threads, open)
}

/// Opens the file of an input and checks its size.
///
/// # Errors
/// Declined if the file is missing; Corruption if it has another size; Storage.
pub fn open_input(files: &Arc<JobIo>, input: &InputFile, path: &Path) -> Result<JobInput> {
    let reader = JobInput::open(files, path).map_err(|e| cannot_open(input, &e))?;
    if reader.len() != input.size {
        return Err(Error::corruption(
            &input.name,
            reader.len(),
            format!("the MANIFEST says that the file has {} bytes", input.size),
        ));
    }
    Ok(reader)
}

/// Returns the error of an input that cannot be opened. A missing file may be in another path.
fn cannot_open(input: &InputFile, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::declined(
            DeclineReason::InputMissing,
            "the file is not in the database's directory; files in other db_paths or cf_paths are not found",
        )
        .in_file(&input.name),
        _ => Error::storage(&input.name, "open it", error),
    }
}

/// Requires that the file is the one that the MANIFEST describes. Otherwise another valid file could be used in its
/// place.
fn check_identity(input: &InputFile, table: &InputTable) -> Result<()> {
    let properties = &table.meta.properties;
    let found = internal_unique_id(
        &properties.db_id,
        &properties.db_session_id,
        properties.orig_file_number,
    );
    match input.unique_id {
        Some(expected) if expected != [0, 0] && expected != found => Err(Error::corruption(
            &input.name,
            table.meta.file_size,
            "the unique id differs from the one in the MANIFEST",
        )),
        _ => Ok(()),
    }
}

/// Reads the table's range tombstones, if it has any. They count towards the job's `share`, before they are read and
/// afterwards: once as they are, once clipped to the file, and once while they are cut into fragments.
fn with_tombstones(table: InputTable, share: &JobShare) -> Result<InputTable> {
    const TIMES: u64 = 3;
    let Some(block) = table.meta.metaindex.get(names::RANGE_DELETIONS) else {
        return Ok(table);
    };
    let number = table.meta.properties.num_range_deletions;
    let stated = number.saturating_mul(size_of::<RangeTombstone>() as u64);
    let expected = stated.saturating_add(block.size).saturating_mul(TIMES);
    share.hold(expected)?;
    let tombstones = range_tombstones(&table)?;
    let bytes =
        |one: &RangeTombstone| size_of::<RangeTombstone>() + one.begin.len() + one.end.len();
    let found = TIMES * tombstones.iter().map(bytes).sum::<usize>() as u64;
    share.hold(found.saturating_sub(expected))?;
    Ok(table.with_range_tombstones(tombstones))
}

/// Gives the entries of an ingested file the sequence number that is in the MANIFEST alone.
fn with_sequence(input: &InputFile, table: InputTable) -> Result<InputTable> {
    match input.largest_seqno {
        Some(largest) => table.with_largest_sequence(largest),
        None if table.was_ingested() => {
            let what = "the record of the job lacks the sequence number of the ingested file";
            let error = Error::declined(DeclineReason::GlobalSequenceNumber, what);
            Err(error.in_file(&input.name))
        }
        None => Ok(table),
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

/// A job whose subcompactions are to fit into the budget, together with the `indexes` of the inputs, which stay in memory
/// while the job runs.
struct Subcompacting<'a> {
    read_ahead_bytes: usize,
    budget: &'a Budget,
    files: &'a JobIo,
    indexes: u64,
    /// How the CPU alone compresses, if that may be another code than that of devices.
    on_cpu: Option<CompressionSettings>,
    plan: &'a mut Plan,
    tables: &'a [InputTable],
}

impl Need for Subcompacting<'_> {
    fn request(&self, read_ahead_bytes: usize) -> Request<'_> {
        (self.plan).request(self.tables, &self.plan.range, read_ahead_bytes)
    }

    fn read_ahead_bytes(&self) -> (usize, usize) {
        let least = MIN_READ_AHEAD_BYTES;
        (self.read_ahead_bytes.max(least), least)
    }

    fn window(&self, read_ahead_bytes: usize) -> (usize, usize) {
        self.files.read_ahead(read_ahead_bytes)
    }

    /// What scans keep and the memory of abandoned calls is not available to devices; for the CPU alone it only reduces the
    /// read-ahead.
    fn room(&self, footprint: &Footprint) -> Result<u64> {
        let (bytes, indexes) = (
            (footprint.host_bytes).saturating_add(self.files.written_file_bytes()),
            self.indexes,
        );
        let most = match footprint.is_last {
            true => self.budget.all_bytes(),
            false => self.budget.bytes(),
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
