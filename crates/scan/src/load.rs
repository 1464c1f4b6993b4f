//! Loads rows of a version into a table that stays on a device.

use std::sync::Arc;

use rockmill_core::{
    CancelToken, Error, ErrorKind, InputTable, Operator, Output, ReadTask, Request, ResidentTable,
    Result, RowOutput, TaskReport, Tombstones,
};
use rockmill_exec::admit::{Admitted, Need, TaskMemory};
use rockmill_exec::budget::JobShare;
use rockmill_exec::device_runtime::DeviceRuntime;
use rockmill_exec::executor::{Call, Event, OwnedTasks, Start, TaskHandle, TaskRun, Tasks};
use rockmill_exec::throughput::JobSize;
use rockmill_storage::clock::Worker;

use crate::engine::{MIN_READ_AHEAD_BYTES, ScanEngine};
use crate::family::FamilySnapshot;
use crate::piece::Piece;
use crate::task::{FromTables, Goal};

/// A load: each piece is a task. The pieces are read from tables ([`crate::ReadPath::Files`]).
#[derive(Debug, Clone)]
pub struct Load {
    /// The version.
    pub family: Arc<FamilySnapshot>,
    /// Its pieces.
    pub pieces: Vec<Piece>,
    /// Whether a tombstone is a row, which removes its key from the table.
    pub tombstones: Tombstones,
}

impl Load {
    fn reading(&self, piece: &Piece) -> FromTables {
        let goal = Goal::Resident(self.tombstones);
        FromTables::new(&self.family, piece.range.clone(), goal)
    }

    /// Maximum device memory of a task.
    pub fn task_bytes(&self, device: &DeviceRuntime) -> u64 {
        let of = |piece: &Piece| {
            let reading = self.reading(piece);
            let request = reading.request(&reading.inputs);
            device.backend.footprint(&request).device_bytes
        };
        self.pieces.iter().map(of).max().unwrap_or(0)
    }
}

/// Loads that run one after another, and their host memory.
#[derive(Debug)]
pub struct LoadShare {
    /// `None` for a load without pieces.
    loads: Vec<(Load, Option<Admitted>)>,
    /// `None` for loads without pieces.
    share: Option<JobShare>,
    device: Arc<DeviceRuntime>,
}

impl ScanEngine {
    /// Waits for the host memory of `loads`, which the caller runs one after another. The caller reserves device memory
    /// only after this, because reserved memory is of no use to others meanwhile.
    ///
    /// # Errors
    /// The errors of [`ScanEngine::load`].
    pub fn admit_loads(
        &self,
        loads: impl IntoIterator<Item = Load>,
        device: &Arc<DeviceRuntime>,
    ) -> Result<LoadShare> {
        let admit = |load: Load| {
            let admitted = self.admit_load(&load, device)?;
            Ok((load, admitted))
        };
        let loads = loads.into_iter().map(admit).collect::<Result<Vec<_>>>()?;
        let admitted = loads.iter().filter_map(|(_, admitted)| admitted.as_ref());
        let most_bytes = admitted.map(|admitted| admitted.task_bytes).max();
        let most_bytes = most_bytes.unwrap_or(0);
        let mut share = None;
        if most_bytes > 0 {
            let cancel = CancelToken::new();
            let entered = share.insert(self.enter(&cancel)?);
            entered.admit(most_bytes, &cancel)?;
        }
        Ok(LoadShare {
            loads,
            share,
            device: Arc::clone(device),
        })
    }

    /// Chooses the read-ahead and the memory of a load's tasks; `None` for a load without pieces.
    fn admit_load(&self, load: &Load, device: &Arc<DeviceRuntime>) -> Result<Option<Admitted>> {
        let Some(largest) = load.pieces.iter().max_by_key(|piece| piece.bytes) else {
            return Ok(None);
        };
        let mut need = ReadLargest {
            most_bytes: self.max_task_bytes(),
            reading: load.reading(largest),
        };
        let entry = self.executor.registry().entry_of(device);
        let mut admitted = self.executor.admit(vec![entry], &mut need)?;
        match admitted.refused.take() {
            Some(error) => Err(error),
            None => Ok(Some(admitted)),
        }
    }

    /// Stores the rows of the load at a position in a table of the share's device. Returns their number, and the bytes of their records.
    /// If it fails, the table may contain some of the rows.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]. No other device can do it, so a device's failure is an error here.
    pub fn load(
        &self,
        share: &LoadShare,
        at: usize,
        table: Arc<dyn ResidentTable>,
    ) -> Result<RowOutput> {
        let LoadShare {
            loads,
            share,
            device,
        } = share;
        let none = || Error::internal("a load that was not admitted");
        let (load, admitted) = loads.get(at).ok_or_else(none)?;
        let Some(admitted) = admitted else {
            return Ok(RowOutput::default());
        };
        let share = share.as_ref().ok_or_else(none)?;
        let bytes: Vec<_> = load.pieces.iter().map(|piece| piece.bytes).collect();
        let owned = OwnedTasks {
            tasks: Arc::new(LoadTasks {
                size: FromTables::size_of_tasks(&load.family.inputs, &bytes),
                bytes,
                load: load.clone(),
                device: Arc::clone(device),
                table,
                read_ahead_bytes: admitted.read_ahead_bytes,
            }),
            devices: admitted.devices.clone(),
            task_memory_bytes: admitted.task_bytes,
            stop: CancelToken::new(),
        };
        let handle = Worker::new(&self.storage.clock()).run(|| {
            let handle = self.executor.submit(share, owned);
            handle.wait().map(|()| handle).map_err(of_device)
        })?;
        let mut all = RowOutput::default();
        for made in handle.take() {
            let Output::Rows(rows) = made.report.output else {
                return Err(Error::internal("a task of a load has no rows"));
            };
            all.rows += rows.rows;
            all.bytes += rows.bytes;
        }
        Ok(all)
    }
}

/// An error of a load, where lack of device memory is one of the device.
fn of_device(error: Error) -> Error {
    let kind = match error.kind.is_out_of_memory() {
        true => ErrorKind::Device,
        false => error.kind,
    };
    Error { kind, ..error }
}

/// The largest piece of a load. If its task does not fit into the memory of pieces, it may have all of that.
struct ReadLargest {
    most_bytes: u64,
    reading: FromTables,
}

impl Need for ReadLargest {
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
        let (bytes, most) = (memory.host_bytes, self.most_bytes);
        if bytes > most && memory.read_ahead_bytes > MIN_READ_AHEAD_BYTES {
            return Err(Error::internal("less read-ahead is left to try"));
        }
        Ok(bytes.min(most))
    }

    fn may_run_on_cpu(&self) -> bool {
        false
    }
}

/// The tasks of a load.
#[derive(Debug)]
struct LoadTasks {
    load: Load,
    bytes: Vec<u64>,
    size: JobSize,
    device: Arc<DeviceRuntime>,
    table: Arc<dyn ResidentTable>,
    read_ahead_bytes: usize,
}

impl Tasks for LoadTasks {
    fn size(&self) -> &JobSize {
        &self.size
    }

    fn input_bytes(&self) -> &[u64] {
        &self.bytes
    }

    fn bytes_per_second(&self) -> u64 {
        0
    }

    fn may_run_on_cpu(&self) -> bool {
        false
    }

    /// A load may fail because a view exceeds its memory limit, which is not the device's fault.
    fn blames_device(&self, error: &Error) -> bool {
        error.kind == ErrorKind::Device && !self.device.works()
    }

    fn begin(self: Arc<Self>, start: Start<'_>) -> Arc<dyn TaskRun> {
        let mut reading = self.load.reading(&self.load.pieces[start.task]);
        reading.read_ahead_bytes = self.read_ahead_bytes;
        Arc::new(LoadRun { reading, of: self })
    }

    fn discard(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn help(&self, _: &TaskHandle) {}

    fn on_event(&self, event: Event<'_>) {
        if let Event::Quarantined { device } = event {
            tracing::warn!(device, "quarantined for a while");
        }
    }
}

/// One run of a task.
#[derive(Debug)]
struct LoadRun {
    of: Arc<LoadTasks>,
    reading: FromTables,
}

impl TaskRun for LoadRun {
    fn prepare(&self) -> Result<Vec<InputTable>> {
        self.reading.open()
    }

    fn run(&self, inputs: Vec<InputTable>, call: &Call) -> Result<TaskReport> {
        let task = ReadTask {
            reading: self.reading.request(&inputs).reading,
            cancel: call.stop(),
            progress: None,
        };
        let table = &*self.of.table;
        call.backend().run(task, Operator::Resident { table })
    }

    fn complete(&self, report: TaskReport, _: &TaskHandle) -> Result<()> {
        match report.read.is_balanced() {
            true => Ok(()),
            false => {
                let what = "entries read do not equal entries kept and dropped";
                Err(Error::new(ErrorKind::Verification, what))
            }
        }
    }

    fn end(&self) {}
}
