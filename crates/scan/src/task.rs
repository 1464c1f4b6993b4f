//! A piece as a task of the executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rockmill_core::scan::{Batch, BatchSink, ScanPlan};
use rockmill_core::{
    DeclineReason, Error, ErrorKind, InputTable, KeyRange, Lock, NeedsMerge, Operator, Output,
    Purpose, ReadTask, Request, Result, SnapshotRules, TaskReport, Tombstones, Visibility, borders,
};
use rockmill_cpu::scan::Scanner;
use rockmill_exec::executor::{Call, Event, Start, TaskHandle, TaskRun, Tasks};
use rockmill_exec::throughput::{JobSize, TaskSize};
use rockmill_storage::io::JobIo;

use crate::deleted::Deleted;
use crate::engine::{DIRECT_READ_AHEAD_BYTES, MIN_READ_AHEAD_BYTES, READ_AHEAD_BYTES};
use crate::family::FamilySnapshot;
use crate::iterators::RowFn;
use crate::table::SnapshotTable;

/// One piece, which is all of its job.
#[derive(Debug)]
pub struct PieceTask {
    reading: Reading,
    size: JobSize,
    bytes: [u64; 1],
    /// Maximum bytes of the batches.
    most_bytes: u64,
    /// Whether they have had more.
    has_more: AtomicBool,
    /// The batches, once they are all there.
    done: Lock<Vec<Batch>>,
}

/// How a piece is read.
#[derive(Debug)]
pub enum Reading {
    Tables(FromTables),
    Iterators(FromIterators),
}

/// A piece that is read from tables. It keeps no snapshot, because an abandoned call may keep the piece long after the scan
/// has ended.
#[derive(Debug)]
pub struct FromTables {
    /// Tables that are opened for the piece: the first ones of `inputs`.
    pub tables: Vec<SnapshotTable>,
    pub inputs: Vec<InputTable>,
    pub range: KeyRange,
    pub sequence: u64,
    /// What range tombstones delete in the version. An abandoned call keeps the memory of these as well.
    pub deleted: Deleted,
    pub read_ahead_bytes: usize,
    pub goal: Goal,
}

/// The purpose of the rows of a piece.
#[derive(Debug, Clone)]
pub enum Goal {
    Scan(Arc<ScanPlan>),
    /// They are stored in a table that stays on a device.
    Resident(Tombstones),
}

impl FromTables {
    /// The keys of a range of a version.
    pub fn new(snapshot: &FamilySnapshot, range: KeyRange, goal: Goal) -> Self {
        let mut tables = Vec::new();
        let mut inputs = Vec::new();
        for at in borders::overlapping(&range, &snapshot.inputs) {
            tables.extend(snapshot.tables.get(at).cloned());
            inputs.push(snapshot.inputs[at].clone());
        }
        Self {
            tables,
            inputs,
            range,
            sequence: snapshot.sequence,
            deleted: snapshot.deleted.clone(),
            read_ahead_bytes: 0,
            goal,
        }
    }

    /// The tables, with their files open.
    ///
    /// # Errors
    /// Storage.
    pub fn open(&self) -> Result<Vec<InputTable>> {
        let (opened, in_memory) = (self.tables.iter(), &self.inputs[self.tables.len()..]);
        let opened = opened
            .map(|table| table.open())
            .collect::<Result<Vec<_>>>()?;
        Ok([&opened, in_memory].concat())
    }

    /// The request to a device, over the opened `inputs`.
    pub fn request<'a>(&'a self, inputs: &'a [InputTable]) -> Request<'a> {
        let (tombstones, needs_merge, purpose) = match &self.goal {
            Goal::Scan(plan) => (Tombstones::Drop, NeedsMerge::Error, Purpose::Scan(plan)),
            Goal::Resident(tombstones) => (*tombstones, NeedsMerge::Mark, Purpose::Resident),
        };
        let reading = rockmill_core::Reading {
            tables: inputs,
            range: &self.range,
            visibility: Visibility::Snapshot(SnapshotRules {
                sequence: self.sequence,
                tombstones,
                needs_merge,
                deleted: Some(&self.deleted.fragments),
            }),
            read_ahead_bytes: self.read_ahead_bytes,
        };
        Request { reading, purpose }
    }

    /// The same over closed inputs, with another read-ahead.
    pub fn request_ahead(&self, read_ahead_bytes: usize) -> Request<'_> {
        let mut request = self.request(&self.inputs);
        request.reading.read_ahead_bytes = read_ahead_bytes;
        request
    }

    /// Read-ahead of each table in bytes: the first one to try, and the minimum.
    pub fn usual_read_ahead(&self) -> (usize, usize) {
        let is_direct = self.io().is_some_and(|io| io.direct_reads().is_some());
        let usual = match is_direct {
            true => DIRECT_READ_AHEAD_BYTES,
            false => READ_AHEAD_BYTES,
        };
        (usual, MIN_READ_AHEAD_BYTES)
    }

    /// Bytes that are read at a time, and bytes that are held ahead, for that read-ahead.
    pub fn window(&self, read_ahead_bytes: usize) -> (usize, usize) {
        let both = (read_ahead_bytes, read_ahead_bytes);
        self.io().map_or(both, |io| io.read_ahead(read_ahead_bytes))
    }

    /// Options for reading the files, if there are some.
    fn io(&self) -> Option<&JobIo> {
        self.tables.first().map(|table| table.io())
    }

    /// The size of the piece.
    pub fn size(&self) -> JobSize {
        let of = |input: &InputTable| {
            let entries = input.share_in_range(&self.range, input.meta.properties.num_entries);
            (input.stored_bytes(&self.range), entries)
        };
        let sizes = self.inputs.iter().map(of);
        let (bytes, entries) = sizes.fold((0u64, 0u64), |sum, size| {
            (sum.0.saturating_add(size.0), sum.1.saturating_add(size.1))
        });
        Self::size_of(bytes, entries)
    }

    /// The size of tasks over `inputs` that read the given stored bytes.
    pub fn size_of_tasks(inputs: &[InputTable], bytes: &[u64]) -> JobSize {
        let sum = |of: fn(&InputTable) -> u64| inputs.iter().map(of).fold(0, u64::saturating_add);
        let all = TaskSize {
            bytes: sum(|input| input.meta.properties.data_size),
            entries: sum(|input| input.meta.properties.num_entries),
            compression: None,
        };
        JobSize::new(all, bytes)
    }

    /// The size of a piece with `bytes` stored bytes and `entries` entries.
    pub fn size_of(bytes: u64, entries: u64) -> JobSize {
        let all = TaskSize {
            bytes,
            entries,
            compression: None,
        };
        JobSize::new(all, &[bytes])
    }
}

/// A piece that RocksDB's iterators read.
#[derive(Debug)]
pub struct FromIterators {
    pub snapshot: Arc<FamilySnapshot>,
    pub range: KeyRange,
    pub plan: Arc<ScanPlan>,
    /// Maximum bytes of the rows. Files do not contain the size of the rows: values may be in blobs.
    pub most_bytes: u64,
}

impl PieceTask {
    /// A piece whose batches have at most `most_bytes` bytes.
    pub fn new(reading: Reading, size: JobSize, most_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            reading,
            bytes: [size.bytes()],
            size,
            most_bytes,
            has_more: AtomicBool::new(false),
            done: Lock::default(),
        })
    }

    /// The error of a piece that has failed because its batches have more bytes.
    pub fn exceeded(&self) -> Option<Error> {
        let what = || format!("the groups of a piece exceed {} bytes", self.most_bytes);
        let error = || Error::declined(DeclineReason::MemoryBudget, what());
        self.has_more.load(Ordering::Relaxed).then(error)
    }

    /// Takes the batches.
    pub fn take(&self) -> Vec<Batch> {
        std::mem::take(&mut self.done.lock())
    }
}

impl Tasks for PieceTask {
    fn size(&self) -> &JobSize {
        &self.size
    }

    fn input_bytes(&self) -> &[u64] {
        &self.bytes
    }

    fn bytes_per_second(&self) -> u64 {
        0
    }

    fn begin(self: Arc<Self>, _: Start<'_>) -> Arc<dyn TaskRun> {
        Arc::new(PieceRun {
            of: self,
            batches: Lock::default(),
        })
    }

    fn discard(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn help(&self, _: &TaskHandle) {}

    fn on_event(&self, event: Event<'_>) {
        match event {
            Event::Redone { device, error, .. } => {
                tracing::warn!(device, %error, "the CPU has done the piece of a scan instead");
            }
            Event::Quarantined { device } => tracing::warn!(device, "quarantined for a while"),
            Event::Moved { .. } | Event::Abandoned { .. } | Event::Failed { .. } => {}
        }
    }
}

/// One run of a piece.
#[derive(Debug)]
struct PieceRun {
    of: Arc<PieceTask>,
    /// Its batches, until it is complete.
    batches: Lock<Vec<Batch>>,
}

impl TaskRun for PieceRun {
    fn prepare(&self) -> Result<Vec<InputTable>> {
        match &self.of.reading {
            Reading::Tables(from) => from.open(),
            Reading::Iterators(_) => Ok(Vec::new()),
        }
    }

    fn run(&self, inputs: Vec<InputTable>, call: &Call) -> Result<TaskReport> {
        let mut batches = Collected {
            of: &self.of,
            batches: Vec::new(),
            bytes: 0,
        };
        let report = match &self.of.reading {
            Reading::Tables(from) => {
                let Request { reading, purpose } = from.request(&inputs);
                let Purpose::Scan(plan) = purpose else {
                    return Err(Error::internal("a piece of a load is scanned"));
                };
                let task = ReadTask {
                    reading,
                    cancel: call.stop(),
                    progress: None,
                };
                let operator = Operator::Scan {
                    plan,
                    batches: &mut batches,
                };
                call.backend().run(task, operator)?
            }
            Reading::Iterators(through) => through.run(call, &mut batches)?,
        };
        *self.batches.lock() = batches.batches;
        Ok(report)
    }

    fn complete(&self, report: TaskReport, _: &TaskHandle) -> Result<()> {
        if !report.read.is_balanced() {
            let what = "entries read do not equal entries kept and dropped";
            return Err(Error::new(ErrorKind::Verification, what));
        }
        *self.of.done.lock() = std::mem::take(&mut *self.batches.lock());
        Ok(())
    }

    fn end(&self) {}
}

impl FromIterators {
    fn run(&self, call: &Call, batches: &mut Collected<'_>) -> Result<TaskReport> {
        let mut scanner = Scanner::new(&self.plan, batches)?;
        let has_bytes = self.plan.output_bytes(0, 1) > 0;
        let mut bytes = 0;
        let row: RowFn<'_> = &mut |key, value| {
            if has_bytes {
                bytes += (key.len() + value.len()) as u64;
            }
            if bytes > self.most_bytes {
                let what = format!(
                    "rows from RocksDB's iterators do not fit into {} bytes",
                    self.most_bytes
                );
                return Err(Error::declined(DeclineReason::MemoryBudget, what));
            }
            scanner.row(key, value)
        };
        (self.snapshot).read_through_iterators(&self.range, call.stop(), row)?;
        Ok(TaskReport {
            output: Output::Batches(scanner.finish()?),
            ..TaskReport::default()
        })
    }
}

/// Keeps batches.
#[derive(Debug)]
struct Collected<'a> {
    of: &'a PieceTask,
    batches: Vec<Batch>,
    bytes: u64,
}

impl BatchSink for Collected<'_> {
    fn batch(&mut self, batch: Batch) -> Result<()> {
        self.bytes += batch.bytes();
        if self.bytes > self.of.most_bytes {
            self.of.has_more.store(true, Ordering::Relaxed);
            // After an error of this kind, no other device tries.
            return Err(Error::new(ErrorKind::OutOfRange, "too many groups"));
        }
        self.batches.push(batch);
        Ok(())
    }
}
