//! The stages behind the [`Backend`] trait.

use std::time::Instant;

use rockmill_core::{Backend, InputTable, Plan, Resource, Result, SliceReport, SliceWork, SstSink};

use crate::CudaSettings;
use crate::device::{Device, Target};
use crate::extent::Extent;
use crate::input::Input;
use crate::lane::lane_bytes;
use crate::limits;
use crate::output;
use crate::pool::Pool;
use crate::stages::{self, Survivors};
use crate::store;
use crate::stream::STAGING_BYTES;
use crate::timing::{Marks, Stages};
use crate::workspace::Workspace;

/// Compacts slices on one device.
#[derive(Debug)]
pub struct CudaBackend {
    name: String,
    pool: Pool,
    settings: CudaSettings,
}

/// The survivors of a slice, resident on the device.
#[derive(Debug)]
pub struct CudaRun<'a> {
    pub(crate) work: SliceWork<'a>,
    pub(crate) workspace: Box<Workspace>,
    pub(crate) survivors: Survivors,
    pub(crate) marks: Marks,
    pub(crate) stages: Stages,
    /// Bytes read, and entries of each input.
    bytes_read: u64,
    entries_read: Vec<u64>,
    started: Instant,
}

// SAFETY: the pointers in `survivors` are into device memory that the workspace beside them owns.
unsafe impl Send for CudaRun<'_> {}

impl CudaBackend {
    /// A backend on `target`.
    ///
    /// # Errors
    /// Device, with a sentence that says what is missing.
    pub fn new(target: Target, settings: CudaSettings) -> Result<Self> {
        let name = match target {
            Target::Cuda(number) => format!("cuda:{number}"),
            Target::Host | Target::Faulty => "cuda-on-host".to_owned(),
        };
        Ok(Self {
            name,
            pool: Pool::new(Device::open(target)?, &settings)?,
            settings,
        })
    }

    /// Makes what the first slice would wait for: pinned memory, and some of the device's.
    ///
    /// # Errors
    /// Device.
    pub fn warm_up(&self) -> Result<()> {
        let _current = self.device().make_current()?;
        self.pool
            .warm_up(self.settings.io_threads.max(store::WRITERS))
    }

    /// Bytes that were got of the device's memory, and the most that may be.
    pub fn memory_bytes(&self) -> (u64, u64) {
        self.pool.memory_bytes()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.pool.device()
    }
}

impl Backend for CudaBackend {
    type Run<'a> = CudaRun<'a>;

    fn name(&self) -> &str {
        &self.name
    }

    fn slice_memory_bytes(&self, plan: &Plan, inputs: &[InputTable], _: usize) -> u64 {
        /// An index entry and what describes an output block to host and device.
        const BYTES_PER_BLOCK: u64 = 256;
        const WRITERS: u64 = store::WRITERS as u64;
        const MILLIBITS_PER_BYTE: u64 = 8000;
        let sum = |of: fn(&InputTable) -> u64| inputs.iter().map(of).fold(0, u64::saturating_add);
        let bytes = sum(|table| table.meta.properties.data_size);
        let entries = sum(|table| table.meta.properties.num_entries);
        let file = match plan.cutting.single_file {
            true => bytes,
            false => bytes.min(plan.cutting.max_output_file_size),
        };
        // All entries may go into one file.
        let millibits = plan.table.filter.map_or(0, |f| f.millibits_per_key);
        let filter = entries.saturating_mul(u64::from(millibits)) / MILLIBITS_PER_BYTE;
        let largest = inputs.iter().map(InputTable::largest_block_bytes).max();
        // What does not fit a chunk is put together.
        let large = largest.unwrap_or(0).max(filter);
        let chunk_bytes = self.settings.chunk_bytes;
        let lane_bytes = lane_bytes(chunk_bytes);
        let large = if large > chunk_bytes as u64 { large } else { 0 };
        let loading = self.settings.io_threads as u64 * lane_bytes;
        let blocks = file / plan.table.block_size.max(1) * BYTES_PER_BLOCK;
        let storing = lane_bytes.saturating_add(large).saturating_add(blocks);
        (storing.saturating_mul(WRITERS).max(loading)).saturating_add(STAGING_BYTES as u64)
    }

    fn accepts(&self, plan: &Plan, inputs: &[InputTable]) -> Result<()> {
        limits::check(plan, inputs)
    }

    fn survivors<'a>(&'a self, work: SliceWork<'a>) -> Result<CudaRun<'a>> {
        let started = Instant::now();
        let device = self.pool.device();
        let _current = device.make_current()?;
        let input = Input::find(work.inputs, &work.slice.range)?;
        let extent = Extent::foreseen(&input, work.plan, &work.slice.range, work.inputs);
        let mut workspace = self.pool.workspace(&extent, work.cancel)?;
        // That of a slice that has failed.
        workspace.stream.take_traffic();
        let stages = Stages::default();
        let loading = Instant::now();
        input.load(
            &self.pool,
            &self.settings,
            &mut workspace.arena,
            work.cancel,
            &stages,
        )?;
        let seconds = loading.elapsed().as_secs_f64();
        stages.add("load, in all", Resource::Host, seconds, input.bytes);
        if let Some(progress) = work.progress {
            // What is to be written has about as far to go.
            progress.advance(input.bytes / 2);
        }
        work.cancel.check()?;
        let mut marks = Marks::start(device, &workspace.stream)?;
        let ws = &mut *workspace;
        let (plan, slice) = (work.plan, work.slice);
        let survivors =
            stages::survivors(device, ws, plan, slice, work.inputs, &input, &mut marks)?;
        let mut entries_read = vec![0; work.inputs.len()];
        for (&(ordinal, _), &entries) in input.runs.iter().zip(&survivors.entries_by_run) {
            entries_read[ordinal] = entries;
        }
        Ok(CudaRun {
            work,
            workspace,
            survivors,
            marks,
            stages,
            bytes_read: input.bytes,
            entries_read,
            started,
        })
    }

    fn write_ssts<'a>(
        &'a self,
        mut run: CudaRun<'a>,
        sink: &mut dyn SstSink,
    ) -> Result<SliceReport> {
        run.work.cancel.check()?;
        let _current = self.pool.device().make_current()?;
        let files = output::write(&self.pool, &mut run, sink)?;
        // Files are written when the device is done with them; a slice without survivors has none.
        run.workspace.stream.synchronize()?;
        run.marks.add_to(&run.stages)?;
        // Their time is in that of the stages around them.
        let [lists_in, lists_back] = run.workspace.stream.take_traffic();
        let stages = &run.stages;
        stages.add("lists in", Resource::ToDevice, 0.0, lists_in);
        stages.add("lists back", Resource::FromDevice, 0.0, lists_back);
        let seconds = run.started.elapsed().as_secs_f64();
        let bytes = run.bytes_read + files.iter().map(|file| file.size).sum::<u64>();
        run.stages
            .add("slice, in all", Resource::Host, seconds, bytes);
        let (input, totals) = (run.survivors.input, run.survivors.totals);
        let (stages, cpu_elsewhere) = run.stages.take();
        let report = SliceReport {
            files,
            tombstones_read: input.tombstones,
            key_bytes_read: input.key_bytes,
            value_bytes_read: input.value_bytes,
            bytes_read: run.bytes_read,
            entries_replaced: totals.replaced,
            tombstones_dropped: totals.tombstones_dropped,
            entries_written: totals.kept,
            hash_in: input.hash,
            hash_kept: totals.hash_kept,
            hash_dropped: totals.hash_dropped,
            verified: true,
            stages,
            cpu_elsewhere,
            entries_read: run.entries_read,
        };
        Ok(report)
    }
}
