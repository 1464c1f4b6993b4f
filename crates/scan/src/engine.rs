//! Runs pieces of scans on devices.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::columns::ColumnCache;
use rockmill_core::scan::{ScanOutput, ScanPlan};
use rockmill_core::{
    Backend, CancelToken, DeclineReason, Error, ErrorKind, Lock, Output, Request, Result, Support,
};
use rockmill_cuda::CudaSettings;
use rockmill_exec::TaskDeadline;
use rockmill_exec::admit::{Admitted, Need, TaskMemory};
use rockmill_exec::budget::{Budget, Entry, JobShare, Priority};
use rockmill_exec::device::DeviceList;
use rockmill_exec::device_registry::{DeviceEntry, DeviceRegistry};
use rockmill_exec::executor::{Executor, OwnedTasks};
use rockmill_exec::host_memory::default_budget_bytes;
use rockmill_format::compression::Implementation;
use rockmill_format::manifest::Tree;
use rockmill_snapshot::tree::unique_ids;
use rockmill_storage::clock::Worker;
use rockmill_storage::io::{IoOptions, JobIo};
use rockmill_storage::{LocalStorage, Storage};

use crate::family::FamilySnapshot;
use crate::piece::{Piece, PieceOutput, PieceReport, ReadPath, ScanTotals};
use crate::quoted;
use crate::table::{TableFolder, Tables, absolute};
use crate::task::{FromIterators, FromTables, Goal, PieceTask, Reading};
use crate::waiting_rows::{RowsRoom, WaitingRows};

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
    /// Host memory in bytes for parsed columns, in addition to `memory_bytes`. The CPU keeps there what it has parsed of
    /// tables for later scans. By default it keeps none.
    pub cache_bytes: u64,
}

/// The result of [`ScanEngine::run_or_cut`].
#[derive(Debug)]
pub enum PieceResult {
    /// The piece's rows, and the memory that is reserved until they are taken.
    Whole(PieceOutput, RowsRoom),
    /// Parts of the piece, to run one after another: there is too little memory for all of its rows.
    Parts(Vec<Piece>),
}

/// Maximum read-ahead per table in bytes, and the minimum when memory is short.
pub(crate) const READ_AHEAD_BYTES: usize = 64 << 10;
pub(crate) const MIN_READ_AHEAD_BYTES: usize = 16 << 10;
/// The same for direct reads, which the page cache does not merge. With few reads in flight, smaller ones do not keep a
/// disk busy.
pub(crate) const DIRECT_READ_AHEAD_BYTES: usize = 256 << 10;

/// Runs pieces of scans over any number of databases, and keeps opened tables between scans.
#[derive(Debug)]
pub struct ScanEngine {
    pub(crate) executor: Arc<Executor>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) tables: Tables,
    waiting: WaitingRows,
    /// How the files of each directory are read.
    folders: Lock<HashMap<std::path::PathBuf, (IoOptions, TableFolder)>>,
    totals: Lock<ScanTotals>,
}

impl ScanEngine {
    /// Creates an engine over the operating system's file system. It opens its devices in the background; see
    /// [`ScanEngine::wait_for_device`].
    ///
    /// # Errors
    /// None now.
    pub fn new(settings: ScanSettings) -> Result<Arc<Self>> {
        Self::with_storage(settings, Arc::new(LocalStorage))
    }

    /// Creates an engine that reads files through `storage`.
    ///
    /// # Errors
    /// None now.
    pub fn with_storage(settings: ScanSettings, storage: Arc<dyn Storage>) -> Result<Arc<Self>> {
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
        let executor = Executor::new(registry, budget, TaskDeadline::default(), clock);
        let engine = Self::over(Arc::new(executor), storage, rows_bytes);
        engine.columns().set_limit(settings.cache_bytes);
        Ok(engine)
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
            tables: Tables::new(executor.budget(), executor.columns()),
            waiting: WaitingRows::new(rows_bytes),
            executor,
            storage,
            folders: Lock::default(),
            totals: Lock::default(),
        })
    }

    /// Lets the caches of devices drop files that a database no longer has.
    #[doc(hidden)]
    pub fn database_has(&self, path: &Path, tree: &Tree) {
        (self.executor.registry()).database_has(path, unique_ids(tree));
    }

    /// Waits until the configured devices are open. Before that, or if no device can be used, the CPU does all pieces.
    ///
    /// # Errors
    /// Device, with one sentence, if a device in the settings cannot be used.
    pub fn wait_for_device(&self) -> Result<()> {
        let opened = self.executor.registry().wait();
        opened.map_err(|what| Error::new(ErrorKind::Device, what))
    }

    /// Minimum and maximum bytes of a piece. Smaller ones are not worth a task: even a tiny task takes a GPU some
    /// milliseconds, and the threads of tasks wait for each other while they queue kernels. Batches in flight of larger ones
    /// would take much memory.
    pub fn piece_bytes(&self) -> RangeInclusive<u64> {
        let devices = self.executor.registry().opened();
        match devices.iter().any(|entry| !entry.only_if_sooner) {
            true => 32 << 20..=256 << 20,
            false => 1 << 20..=64 << 20,
        }
    }

    /// The parsed columns that it keeps, and their limit, which may change at any time.
    pub fn columns(&self) -> &ColumnCache {
        self.tables.columns()
    }

    /// Whether it or a device keeps something for later scans.
    pub fn has_cache(&self) -> bool {
        self.columns().is_on() || !self.executor.registry().file_caches().is_empty()
    }

    /// Sums over all pieces so far.
    pub fn totals(&self) -> ScanTotals {
        *self.totals.lock()
    }

    /// The file system, whose clock is the engine's.
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Maximum bytes of the unflushed entries of a snapshot.
    pub fn max_unflushed_bytes(&self) -> usize {
        self.tables.max_unflushed_bytes()
    }

    /// Returns the folder of a database's tables, and how they are read.
    pub(crate) fn folder(&self, path: &Path, options: IoOptions) -> TableFolder {
        let path = absolute(path);
        let mut folders = self.folders.lock();
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

    /// Runs a piece of the snapshot as [`ScanEngine::run`] does, or cuts it if there is too little memory for its rows. A
    /// piece that is small or cannot be cut is run in any case. So no piece waits for the rows of other scans. The number
    /// of groups is not known before, so a piece is cut once its groups take too much memory. `has_many_groups`: those of
    /// a piece before did; then the piece is cut as if each row were a group.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]; then there are no rows of it.
    pub fn run_or_cut(
        &self,
        snapshot: &Arc<FamilySnapshot>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        has_many_groups: bool,
        cancel: &CancelToken,
    ) -> Result<PieceResult> {
        let (rows, bytes) = snapshot.raw_size(&piece.range);
        let bytes = plan.output_bytes(rows, bytes);
        let most = match snapshot.orders_by_bytes() {
            true => self.waiting.most_bytes(self.executor.budget().slots()),
            // Its only piece cannot be cut.
            false => u64::MAX,
        };
        let parts = || Some(snapshot.halves(piece)).filter(|parts| parts.len() > 1);
        let is_known = has_many_groups || matches!(plan.output, ScanOutput::Rows(_));
        if bytes > most
            && is_known
            && let Some(parts) = parts()
        {
            return Ok(PieceResult::Parts(parts));
        }
        let mut room = self.waiting.take(bytes.min(most));
        let output = match self.run_whole(snapshot, piece, plan, most, cancel) {
            Err(error) if error.kind.is_out_of_memory() => match parts() {
                Some(parts) => return Ok(PieceResult::Parts(parts)),
                None => self.run_whole(snapshot, piece, plan, u64::MAX, cancel)?,
            },
            output => output?,
        };
        room.set(output.bytes());
        Ok(PieceResult::Whole(output, room))
    }

    /// Runs a piece of the snapshot, and waits for it. If a device fails, the CPU runs the piece again.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]; then there are no rows of it.
    pub fn run(
        &self,
        snapshot: &Arc<FamilySnapshot>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        match self.run_whole(snapshot, piece, plan, u64::MAX, cancel) {
            Err(error) if error.kind.is_out_of_memory() => match snapshot.halves(piece) {
                halves if halves.len() > 1 => self.run_parts(snapshot, &halves, plan, cancel),
                _ => Err(error),
            },
            done => done,
        }
    }

    /// Runs a piece that is not cut. It is declined if groups or the rows from RocksDB's iterators exceed `most_bytes`.
    fn run_whole(
        &self,
        snapshot: &Arc<FamilySnapshot>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        most_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        cancel.check()?;
        let through_iterators = |reason: String| {
            self.run_through_iterators(snapshot, piece, plan, reason, most_bytes, cancel)
        };
        if let ReadPath::RocksDb(reason) = &piece.path {
            return through_iterators(reason.clone());
        }
        // Another process that could read its tables has made the piece.
        if let Some(reason) = snapshot.unread() {
            return through_iterators(reason.to_owned());
        }
        match self.run_from_tables(snapshot, piece, plan, most_bytes, cancel) {
            Err(error) if is_for_iterators(&error) => through_iterators(error.to_string()),
            done => done,
        }
    }

    /// Runs the parts of a piece that does not fit into memory, one after another.
    fn run_parts(
        &self,
        snapshot: &Arc<FamilySnapshot>,
        parts: &[Piece],
        plan: &Arc<ScanPlan>,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        let mut all = PieceOutput::default();
        for part in parts {
            all.add(self.run(snapshot, part, plan, cancel)?);
        }
        Ok(all)
    }

    fn run_from_tables(
        &self,
        snapshot: &FamilySnapshot,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        most_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        let goal = Goal::Scan(Arc::clone(plan));
        let mut reading = FromTables::new(snapshot, piece.range.clone(), goal);
        let blocks = (reading.inputs)
            .iter()
            .map(|input| input.blocks_in_range(&piece.range).len() as u64);
        let blocks = blocks.sum();
        let request = reading.request(&reading.inputs);
        if let Support::No(what) = request.support() {
            return Err(Error::declined(
                DeclineReason::UnsupportedFormat,
                what.to_string(),
            ));
        }
        let size = reading.size();
        let devices = self.executor.registry().opened();
        let devices = (self.executor).sooner(devices, &size, Implementation::Library);
        let most_bytes = match plan.output {
            ScanOutput::Groups(_) => most_bytes,
            ScanOutput::Rows(_) => u64::MAX,
        };
        let (rows, raw_bytes) = snapshot.raw_size(&reading.range);
        let mut need = ReadPiece {
            engine: self,
            output_bytes: output_bytes(plan, rows, raw_bytes).min(most_bytes),
            reading: &reading,
        };
        let Admitted {
            devices,
            refused,
            read_ahead_bytes,
            task_bytes,
        } = self.executor.admit(devices, &mut need)?;
        reading.read_ahead_bytes = read_ahead_bytes;
        let task = PieceTask::new(Reading::Tables(reading), size, most_bytes);
        let mut output = self.submit(task, devices, task_bytes, cancel)?;
        output.report.blocks = blocks;
        let refused = refused.map(|error| error.to_string());
        output.report.device_refused = output.report.device_refused.or(refused);
        Ok(output)
    }

    fn run_through_iterators(
        &self,
        snapshot: &Arc<FamilySnapshot>,
        piece: &Piece,
        plan: &Arc<ScanPlan>,
        reason: String,
        most_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        if snapshot.iterators.is_none() {
            let what = format!(
                "column family {} has keys that only RocksDB's iterators read, and no iterators are available: {reason}",
                quoted(&snapshot.name)
            );
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        }
        let reading = FromIterators {
            snapshot: Arc::clone(snapshot),
            range: piece.range.clone(),
            plan: Arc::clone(plan),
            most_bytes,
        };
        let (rows, bytes) = snapshot.raw_size(&piece.range);
        let task_bytes = output_bytes(plan, rows, bytes).min(self.max_task_bytes());
        let task = PieceTask::new(
            Reading::Iterators(reading),
            FromTables::size_of(piece.bytes, 0),
            u64::MAX,
        );
        let mut output = self.submit(task, Vec::new(), task_bytes, cancel)?;
        output.report.through_iterators = Some(reason);
        Ok(output)
    }

    /// Maximum memory of a piece: the budget without the largest amount that may be cached.
    pub(crate) fn max_task_bytes(&self) -> u64 {
        self.executor.budget().max_reserved_bytes()
    }

    /// Runs the task as a job of its own.
    fn submit(
        &self,
        task: Arc<PieceTask>,
        devices: Vec<DeviceEntry>,
        task_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<PieceOutput> {
        let clock = self.storage.clock();
        let began = clock.now();
        let share = self.enter(cancel)?;
        share.admit(task_bytes, cancel)?;
        let owned = OwnedTasks {
            tasks: Arc::clone(&task) as _,
            devices: devices.clone(),
            task_memory_bytes: task_bytes,
            stop: cancel.child(),
        };
        let handle = Worker::new(&clock).run(|| {
            let handle = self.executor.submit(&share, owned);
            handle.wait()?;
            handle.verdict(0, Ok(()))?;
            Ok(handle)
        });
        let handle = handle.map_err(|error| task.exceeded().unwrap_or(error))?;
        let made = handle.take().pop();
        let made = made.ok_or_else(|| Error::internal("a piece has no result"))?;
        let read = &made.report.read;
        let Output::Batches(counts) = made.report.output else {
            return Err(Error::internal("a piece has no batches"));
        };
        let device = devices.iter().find(|entry| entry.number == made.device);
        let backend: &dyn Backend = match device {
            Some(entry) => &*entry.device.backend,
            None => self.executor.cpu(),
        };
        let report = PieceReport {
            device: backend.name().to_owned(),
            through_iterators: None,
            device_refused: handle.device_refused(),
            bytes: read.bytes - read.cached_bytes,
            cached_bytes: read.kept_bytes + read.cached_bytes,
            cached_columns: read.kept_columns,
            blocks: 0,
            rows: counts.rows,
            hidden: read.entries.iter().sum::<u64>().saturating_sub(counts.rows),
            selected: counts.selected,
            malformed: counts.malformed,
        };
        let elapsed = clock.now().saturating_sub(began);
        self.totals.lock().add(&report, elapsed);
        Ok(PieceOutput {
            batches: task.take(),
            report,
        })
    }

    pub(crate) fn enter(&self, cancel: &CancelToken) -> Result<JobShare> {
        let entry = Entry {
            database: None,
            expected_bytes: 0,
        };
        self.executor
            .budget()
            .enter(entry, Priority::Normal, cancel)
    }
}

/// A piece whose task must fit into the memory of pieces.
struct ReadPiece<'a> {
    engine: &'a ScanEngine,
    reading: &'a FromTables,
    /// Memory of its batches.
    output_bytes: u64,
}

impl Need for ReadPiece<'_> {
    fn request(&self, read_ahead_bytes: usize) -> Request<'_> {
        self.reading.request_ahead(read_ahead_bytes)
    }

    fn read_ahead_bytes(&self) -> (usize, usize) {
        self.reading.usual_read_ahead()
    }

    fn window(&self, read_ahead_bytes: usize) -> (usize, usize) {
        self.reading.window(read_ahead_bytes)
    }

    fn room(&self, memory: &TaskMemory) -> Result<u64> {
        let (bytes, most) = (memory.host_bytes, self.engine.max_task_bytes());
        // A larger read-ahead is used only if pieces on all threads can have it.
        let at_once = match memory.read_ahead_bytes > READ_AHEAD_BYTES {
            true => self.engine.executor.budget().slots() as u64,
            false => 1,
        };
        if bytes.saturating_mul(at_once) <= most {
            return Ok(bytes.saturating_add(self.output_bytes).min(most));
        }
        let what = format!(
            "a piece of a scan over {} tables needs {bytes} bytes; half of the memory budget is {most}",
            self.reading.inputs.len()
        );
        Err(Error::declined(DeclineReason::MemoryBudget, what))
    }
}

/// Whether RocksDB's iterators can read a piece that failed with this error.
fn is_for_iterators(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Declined(_)) && !error.kind.is_out_of_memory()
}

/// Memory of the batches of a piece of `rows` rows with `bytes` bytes of keys and values.
fn output_bytes(plan: &ScanPlan, rows: u64, bytes: u64) -> u64 {
    match plan.pads() {
        false => plan.output_bytes(rows, bytes),
        // Maximum memory of a piece.
        true => u64::MAX,
    }
}
