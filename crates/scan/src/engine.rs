//! Runs pieces of scans on devices.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rockmill_core::scan::ScanPlan;
use rockmill_core::{
    CancelToken, DeclineReason, DynBackend, Error, ErrorKind, Output, Result, Support, borders,
};
use rockmill_cuda::CudaSettings;
use rockmill_exec::Patience;
use rockmill_exec::auto;
use rockmill_exec::budget::{Budget, Entry, HOST, JobShare, Priority};
use rockmill_exec::device::DeviceList;
use rockmill_exec::device_registry::{DeviceEntry, DeviceRegistry};
use rockmill_exec::device_trouble::is_device_trouble;
use rockmill_exec::executor::{Executor, OwnedTasks};
use rockmill_exec::host_memory::default_budget_bytes;
use rockmill_format::compression::Implementation;
use rockmill_storage::clock::Worker;
use rockmill_storage::io::{IoOptions, JobIo};
use rockmill_storage::{LocalStorage, Storage};

use crate::piece::{Piece, PieceOutput, PieceReport, Through};
use crate::table::{TableFolder, Tables, absolute};
use crate::task::{FromTables, PieceTask, Reading, ThroughIterators};
use crate::view::FamilyView;
use crate::waiting_rows::{RowsRoom, WaitingRows};
use crate::{lock, quoted};

/// Settings of an engine. The defaults suit most uses.
#[derive(Debug, Clone, Default)]
pub struct ScanSettings {
    /// Devices that run pieces.
    pub devices: DeviceList,
    /// Settings of GPUs.
    pub cuda: CudaSettings,
    /// Maximum number of pieces at a time on each device. By default, the number of CPUs that this process may use.
    pub max_threads: Option<usize>,
    /// Maximum host memory in bytes. A quarter is for rows that wait until a query takes them. Half of the rest is for
    /// cached indexes and unflushed entries, and the other half for running pieces. The default is the memory budget of
    /// compactions.
    pub memory_bytes: Option<u64>,
}

/// What [`ScanEngine::run_or_cut`] returns.
#[derive(Debug)]
pub enum Ran {
    /// The piece's rows, and the memory that is reserved until they are taken.
    Whole(PieceOutput, RowsRoom),
    /// Parts of the piece, to run one after another: there is too little memory for all of its rows.
    Parts(Vec<Piece>),
}

/// Maximum read-ahead per table in bytes, and the minimum when memory is short.
const READ_AHEAD_BYTES: usize = 64 << 10;
const MIN_READ_AHEAD_BYTES: usize = 16 << 10;
/// The same for direct reads, which the page cache does not merge. With few reads in flight, smaller ones do not keep a
/// disk busy.
const DIRECT_READ_AHEAD_BYTES: usize = 256 << 10;

/// Runs pieces of scans over any number of databases, and keeps opened tables between scans.
#[derive(Debug)]
pub struct ScanEngine {
    pub(crate) executor: Arc<Executor>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) tables: Tables,
    waiting: WaitingRows,
    /// How the files of each directory are read.
    folders: Mutex<HashMap<std::path::PathBuf, (IoOptions, TableFolder)>>,
}

impl ScanEngine {
    /// Creates an engine over the operating system's file system. It opens its devices in the background; see
    /// [`ScanEngine::wait_for_device`].
    ///
    /// # Errors
    /// None now.
    pub fn new(settings: ScanSettings) -> Result<Arc<Self>> {
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage);
        let clock = storage.clock();
        let threads = settings.max_threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        let memory_bytes = settings.memory_bytes.unwrap_or_else(default_budget_bytes);
        let rows_bytes = memory_bytes / WaitingRows::SHARE;
        let registry = DeviceRegistry::open(settings.devices, settings.cuda, &clock);
        let budget = Arc::new(Budget::new(
            threads,
            memory_bytes - rows_bytes,
            Arc::clone(&clock),
        ));
        let executor = Executor::new(registry, budget, Patience::default(), clock);
        Ok(Self::over(Arc::new(executor), storage, rows_bytes))
    }

    /// Creates an engine that shares threads, memory and devices with a compaction service
    /// (`rockmill::Service::executor`). The service's settings apply to both, also when they change. Rows that wait
    /// until a query takes them may have a quarter of the service's memory in addition.
    pub fn sharing(executor: Arc<Executor>) -> Arc<Self> {
        let rows_bytes = executor.budget().all_bytes() / WaitingRows::SHARE;
        Self::over(executor, Arc::new(LocalStorage), rows_bytes)
    }

    fn over(executor: Arc<Executor>, storage: Arc<dyn Storage>, rows_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            tables: Tables::new(executor.budget()),
            waiting: WaitingRows::new(rows_bytes),
            executor,
            storage,
            folders: Mutex::default(),
        })
    }

    /// Waits until the configured devices are open. Before that, or if no device can be used, the CPU does all pieces.
    ///
    /// # Errors
    /// Device, with one sentence, if a device in the settings cannot be used.
    pub fn wait_for_device(&self) -> Result<()> {
        let opened = self.executor.registry().wait();
        opened.map_err(|what| Error::new(ErrorKind::Device, what))
    }

    /// Minimum bytes of a piece that are worth a task. Even a tiny task takes a GPU some milliseconds.
    pub fn min_piece_bytes(&self) -> u64 {
        const ON_CPU: u64 = 1 << 20;
        const ON_DEVICE: u64 = 32 << 20;
        let devices = self.executor.registry().opened();
        match devices.iter().any(|entry| !entry.only_if_sooner) {
            true => ON_DEVICE,
            false => ON_CPU,
        }
    }

    /// The file system, whose clock is the engine's.
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Maximum bytes of the unflushed entries of a view.
    pub fn max_unflushed_bytes(&self) -> usize {
        self.tables.max_unflushed_bytes()
    }

    /// Returns the folder of a database's tables, and how they are read.
    pub(crate) fn folder(&self, path: &Path, options: IoOptions) -> TableFolder {
        let path = absolute(path);
        let mut folders = lock(&self.folders);
        match folders.get(&path) {
            Some((known, folder)) if *known == options => folder.clone(),
            _ => {
                let io = JobIo::new(Arc::clone(&self.storage), CancelToken::new());
                let folder = TableFolder {
                    path: path.clone(),
                    io: Arc::new(io.with_options(options)),
                };
                folders.insert(path, (options, folder.clone()));
                folder
            }
        }
    }

    /// Runs a piece of the view as [`ScanEngine::run`] does, or cuts it if there is too little memory for its rows. A
    /// piece that is small or cannot be cut is run in any case. So no piece waits for the rows of other scans.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]; then there are no rows of it.
    pub fn run_or_cut(
        &self,
        view: &Arc<FamilyView>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        cancel: &CancelToken,
    ) -> Result<Ran> {
        let (rows, bytes) = view.raw_size(&piece.range);
        let bytes = plan.output_bytes(rows, bytes);
        let most = match view.orders_by_bytes() {
            true => self.waiting.most_bytes(self.executor.budget().slots()),
            // Its only piece cannot be cut.
            false => u64::MAX,
        };
        let parts = || Some(view.halves(piece)).filter(|parts| parts.len() > 1);
        if bytes > most
            && let Some(parts) = parts()
        {
            return Ok(Ran::Parts(parts));
        }
        let mut room = self.waiting.take(bytes.min(most));
        let output = match self.run_whole(view, piece, plan, most, cancel) {
            Err(error) if is_too_large(&error) => match parts() {
                Some(parts) => return Ok(Ran::Parts(parts)),
                None => self.run_whole(view, piece, plan, u64::MAX, cancel)?,
            },
            output => output?,
        };
        room.set(output.bytes());
        Ok(Ran::Whole(output, room))
    }

    /// Runs a piece of the view, and waits for it. If a device fails, the CPU runs the piece again.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]; then there are no rows of it.
    pub fn run(
        &self,
        view: &Arc<FamilyView>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        match self.run_whole(view, piece, plan, u64::MAX, cancel) {
            Err(error) if is_too_large(&error) => match view.halves(piece) {
                halves if halves.len() > 1 => self.run_parts(view, &halves, plan, cancel),
                _ => Err(error),
            },
            done => done,
        }
    }

    /// Runs a piece that is not cut. It is declined if the rows from RocksDB's iterators exceed `most_bytes`.
    fn run_whole(
        &self,
        view: &Arc<FamilyView>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        most_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        cancel.check()?;
        let through_iterators = |reason: String| {
            self.run_through_iterators(view, piece, plan, reason, most_bytes, cancel)
        };
        if let Through::Iterators(reason) = &piece.through {
            return through_iterators(reason.clone());
        }
        match self.run_from_tables(view, piece, plan, cancel) {
            Err(error) if is_for_iterators(&error) => through_iterators(error.to_string()),
            done => done,
        }
    }

    /// Runs the parts of a piece that does not fit into memory, one after another.
    fn run_parts(
        &self,
        view: &Arc<FamilyView>,
        parts: &[Piece],
        plan: &Arc<ScanPlan>,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        let mut all = PieceOutput::default();
        for part in parts {
            all.add(self.run(view, part, plan, cancel)?);
        }
        Ok(all)
    }

    fn run_from_tables(
        &self,
        view: &FamilyView,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        let mut tables = Vec::new();
        let mut inputs = Vec::new();
        for at in borders::overlapping(&piece.range, &view.inputs) {
            tables.extend(view.tables.get(at).cloned());
            inputs.push(view.inputs[at].clone());
        }
        let blocks = inputs
            .iter()
            .map(|input| input.blocks_in_range(&piece.range).len() as u64);
        let blocks = blocks.sum();
        let mut reading = FromTables {
            tables,
            inputs,
            range: piece.range.clone(),
            sequence: view.sequence,
            read_ahead_bytes: 0,
            plan: Arc::clone(plan),
        };
        let request = reading.request(&reading.inputs);
        if let Support::No(what) = request.support() {
            return Err(Error::declined(
                DeclineReason::UnsupportedFormat,
                what.to_string(),
            ));
        }
        let mut refused = None;
        let size = reading.size();
        let budget = self.executor.budget();
        let mut devices = self.executor.registry().opened();
        devices.retain(|entry| {
            let queues = auto::Queues {
                device_bytes: budget.queued_bytes(entry.number),
                cpu_bytes: budget.queued_bytes(HOST),
                slots: budget.slots(),
            };
            let name = entry.device.backend.name();
            let is_sooner = !entry.only_if_sooner
                || auto::takes(
                    self.executor.paces(),
                    name,
                    &size,
                    Implementation::Library,
                    queues,
                );
            let trouble = entry.device.backend.supports(&request).check().err();
            let is_able = trouble.is_none();
            refused = refused.take().or(trouble.map(|error| error.to_string()));
            is_sooner && is_able
        });
        let mut fitted = self.fit_memory(view, &reading, &devices);
        if let Err(error) = &fitted
            && !devices.is_empty()
            && is_device_trouble(error)
        {
            refused = refused.or(Some(error.to_string()));
            devices.clear();
            fitted = self.fit_memory(view, &reading, &devices);
        }
        let (read_ahead_bytes, task_bytes) = fitted?;
        reading.read_ahead_bytes = read_ahead_bytes;
        let task = PieceTask::new(Reading::Tables(reading), size);
        let mut output = self.submit(task, devices, task_bytes, cancel)?;
        output.report.blocks = blocks;
        output.report.device_refused = output.report.device_refused.or(refused);
        Ok(output)
    }

    fn run_through_iterators(
        &self,
        view: &Arc<FamilyView>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        reason: String,
        most_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        if view.iterators.is_none() {
            let what = format!(
                "column family {} has keys that only RocksDB's iterators read, and no iterators are available: {reason}",
                quoted(&view.name)
            );
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        }
        let reading = ThroughIterators {
            view: Arc::clone(view),
            range: piece.range.clone(),
            plan: Arc::clone(plan),
            most_bytes,
        };
        let (rows, bytes) = view.raw_size(&piece.range);
        let task_bytes = output_bytes(plan, rows, bytes).min(self.max_task_bytes());
        let task = PieceTask::new(
            Reading::Iterators(reading),
            FromTables::size_of(piece.bytes, 0),
        );
        let mut output = self.submit(task, Vec::new(), task_bytes, cancel)?;
        output.report.through_iterators = Some(reason);
        Ok(output)
    }

    /// Maximum memory of a piece: the budget without the largest amount that may be cached.
    fn max_task_bytes(&self) -> u64 {
        self.executor.budget().max_kept_bytes()
    }

    /// Returns the read-ahead of each table, and the memory of the task.
    fn fit_memory(
        &self,
        view: &FamilyView,
        reading: &FromTables,
        devices: &[DeviceEntry],
    ) -> Result<(usize, u64)> {
        let io = view.tables.first().map(|table| table.io());
        let is_direct = io.is_some_and(|io| io.direct_reads().is_some());
        let mut read_ahead = match is_direct {
            true => DIRECT_READ_AHEAD_BYTES,
            false => READ_AHEAD_BYTES,
        };
        let slots = self.executor.budget().slots() as u64;
        loop {
            let (window, held) =
                io.map_or((read_ahead, read_ahead), |io| io.read_ahead(read_ahead));
            let mut request = reading.request(&reading.inputs);
            request.read_ahead_bytes = held;
            let of = |backend: &dyn DynBackend| backend.footprint(&request).host_bytes;
            let on_devices = devices.iter().map(|entry| of(&*entry.device.backend));
            let bytes = on_devices.fold(of(self.executor.cpu()), u64::max);
            let most = self.max_task_bytes();
            // A larger read-ahead is used only if pieces on all threads can have it.
            let at_once = match read_ahead > READ_AHEAD_BYTES {
                true => slots,
                false => 1,
            };
            if bytes.saturating_mul(at_once) <= most {
                let (rows, raw_bytes) = view.raw_size(&reading.range);
                let output = output_bytes(&reading.plan, rows, raw_bytes);
                return Ok((window, bytes.saturating_add(output).min(most)));
            }
            if read_ahead == MIN_READ_AHEAD_BYTES {
                let what = format!(
                    "a piece of a scan over {} tables needs {bytes} bytes; half of the memory budget is {most}",
                    reading.inputs.len()
                );
                return Err(Error::declined(DeclineReason::MemoryBudget, what));
            }
            read_ahead = (read_ahead / 2).max(MIN_READ_AHEAD_BYTES);
        }
    }

    /// Runs the task as a job of its own.
    fn submit(
        &self,
        task: Arc<PieceTask>,
        devices: Vec<DeviceEntry>,
        task_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        let share = self.enter(cancel)?;
        share.admit(task_bytes, cancel)?;
        let owned = OwnedTasks {
            tasks: Arc::clone(&task) as _,
            devices: devices.clone(),
            task_memory_bytes: task_bytes,
            stop: cancel.child(),
        };
        let handle = Worker::new(&self.storage.clock()).run(|| {
            let handle = self.executor.submit(&share, owned);
            handle.wait()?;
            handle.verdict(0, Ok(()))?;
            Ok(handle)
        })?;
        let made = handle.take().pop();
        let made = made.ok_or_else(|| Error::internal("a piece has no result"))?;
        let read = &made.report.read;
        let Output::Batches(counts) = made.report.output else {
            return Err(Error::internal("a piece has no batches"));
        };
        let device = devices.iter().find(|entry| entry.number == made.device);
        let backend: &dyn DynBackend = match device {
            Some(entry) => &*entry.device.backend,
            None => self.executor.cpu(),
        };
        Ok(PieceOutput {
            batches: task.take(),
            report: PieceReport {
                device: backend.name().to_owned(),
                through_iterators: None,
                device_refused: handle.device_refused(),
                bytes: read.bytes,
                blocks: 0,
                rows: counts.rows,
                hidden: read.entries.iter().sum::<u64>().saturating_sub(counts.rows),
                wanted: counts.wanted,
                malformed: counts.malformed,
            },
        })
    }

    fn enter(&self, cancel: &CancelToken) -> Result<JobShare> {
        let entry = Entry {
            database: None,
            expected_bytes: 0,
        };
        self.executor
            .budget()
            .enter(entry, Priority::Normal, cancel)
    }
}

/// Whether RocksDB's iterators can read a piece that failed with this error.
fn is_for_iterators(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Declined(reason) if reason != DeclineReason::MemoryBudget)
}

fn is_too_large(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget))
}

/// Memory of the batches of a piece of `rows` rows with `bytes` bytes of keys and values.
fn output_bytes(plan: &ScanPlan, rows: u64, bytes: u64) -> u64 {
    match plan.pads() {
        false => plan.output_bytes(rows, bytes),
        // Maximum memory of a piece.
        true => u64::MAX,
    }
}
