//! The stages behind the [`Backend`] trait.

use std::sync::Arc;
use std::time::Instant;

use rockmill_core::scan::{BatchSink, ScanPlan};
use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, Footprint, InputTable, Operator, Output, OutputPlan,
    Purpose, ReadReport, ReadTask, Request, ResidentTable, Resource, Result, RowSink, SstSink,
    Support, TaskReport, Unsupported,
};

use crate::cache::FileCache;
use crate::driver::{Device, Marks, MemoryUser, STAGING_BYTES, Stages, Target};
use crate::inspect::{self, InspectBuffers, inspect};
use crate::memory::{Allocation, Pool, Workspace, ring_bytes};
use crate::read::{
    Again, Grouping, Input, ReadBuffers, ReadSize, ReadState, SelectedRows, host_blocks,
    keep_read_again, select_rows, verify,
};
use crate::resident::{InsertBuffers, insert};
use crate::ring;
use crate::scan::{self, Encoded, Encodings, ScanBuffers, ScanSize, scan};
use crate::settings::{CudaSettings, IO_THREADS};
use crate::sst::{self, SstBuffers, SstSize, Writing};
use crate::support;

/// Runs tasks on one device.
#[derive(Debug)]
pub struct CudaBackend {
    name: String,
    pool: Pool,
    settings: CudaSettings,
    encodings: Encodings,
}

/// The rows of a task, resident on the device.
#[derive(Debug)]
struct CudaRows<'a> {
    request: Request<'a>,
    cancel: &'a CancelToken,
    read: Box<ReadState>,
    /// Groups that the rows refer to.
    groups: Vec<Arc<Allocation>>,
    selected_rows: SelectedRows,
    stages: Stages,
    /// Bytes read, those of them that the device had already, and entries of each input.
    bytes_read: u64,
    bytes_cached: u64,
    entries_read: Vec<u64>,
    started: Instant,
}

impl CudaBackend {
    /// A backend on `target`.
    ///
    /// # Errors
    /// Device, with a sentence that names what is missing.
    pub fn new(target: Target, settings: CudaSettings) -> Result<Self> {
        let name = match target {
            Target::Cuda(number) => format!("cuda:{number}"),
            Target::Host | Target::Faulty => "cuda-on-host".to_owned(),
        };
        Ok(Self {
            name,
            pool: Pool::new(Device::open(target)?, &settings)?,
            settings,
            encodings: Encodings::default(),
        })
    }

    /// Allocates what the first task would wait for: pinned memory, and some of the device's.
    ///
    /// # Errors
    /// Device.
    pub fn warm_up(&self) -> Result<()> {
        let _current = self.device().make_current()?;
        self.pool.warm_up(IO_THREADS.max(sst::WRITERS))
    }

    /// Bytes allocated on the device, and the maximum.
    pub fn memory_bytes(&self) -> (u64, u64) {
        self.pool.memory_bytes()
    }

    /// Limits the device memory of tasks to `bytes`; `None`: to the usual share of the device's memory.
    pub fn limit_memory(&self, bytes: Option<u64>) {
        self.pool.limit_memory(bytes);
    }

    /// Files that stay on the device.
    pub fn cache(&self) -> &Arc<FileCache> {
        self.pool.cache()
    }

    /// Frees memory that no task uses, without that of cached files.
    pub fn give_back_idle(&self) {
        self.pool.give_back_idle();
    }

    /// Frees what the cache has beyond its limit, and beyond the memory limit beside what tasks hold. The device may wait for
    /// all kernels that run.
    pub fn trim(&self) {
        self.pool.trim();
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.pool.device()
    }

    /// How a task uses groups, if it does: a scan with a cache, unless its memory has no room for whole groups.
    fn grouping(&self, request: &Request<'_>) -> Option<Grouping> {
        let grouping = Grouping::of(request, self.pool.cache());
        let (_, most) = self.memory_bytes();
        grouping.filter(|_| self.device_bytes(request, grouping) <= most)
    }

    /// Device memory of a task, including its operator.
    fn device_bytes(&self, request: &Request<'_>, grouping: Option<Grouping>) -> u64 {
        let read = ReadSize::estimate(request, grouping);
        let applying = match request.purpose {
            Purpose::WriteSst(plan) => {
                let processors = self.device().properties().multiprocessors;
                SstBuffers::bytes(&SstSize::estimate(&read, plan, processors))
            }
            Purpose::Inspect => InspectBuffers::bytes(&read),
            Purpose::Resident => InsertBuffers::bytes(&read),
            Purpose::Scan(plan) => self.encodings.of(plan).map_or(0, |encoded| {
                ScanBuffers::bytes(&ScanSize::estimate(&read, request, plan, &encoded))
            }),
        };
        Workspace::bytes(self.device(), read.blocks, read.entries)
            .saturating_add(ReadBuffers::bytes(&read))
            .saturating_add(applying)
    }

    /// Host memory for data on its way to the device.
    fn loading_bytes(&self) -> u64 {
        IO_THREADS as u64 * ring_bytes(self.settings.chunk_bytes)
    }

    /// Host memory for files on their way from the device.
    fn storing_bytes(&self, plan: &OutputPlan, inputs: &[InputTable]) -> u64 {
        /// An index entry and the descriptions of an output block on host and device.
        const BYTES_PER_BLOCK: u64 = 256;
        const WRITERS: u64 = sst::WRITERS as u64;
        const MILLIBITS_PER_BYTE: u64 = 8000;
        let sum = |of: fn(&InputTable) -> u64| inputs.iter().map(of).fold(0, u64::saturating_add);
        let bytes = sum(|table| {
            let properties = &table.meta.properties;
            properties.uncompressed_data_size.max(properties.data_size)
        });
        let entries = sum(|table| table.meta.properties.num_entries);
        let file = bytes.min(sst::uncompressed_file_size(&plan.splitting));
        // All entries may go into one file.
        let millibits = plan.table.filter.map_or(0, |f| f.millibits_per_key);
        let filter = entries.saturating_mul(u64::from(millibits)) / MILLIBITS_PER_BYTE;
        let largest = inputs.iter().map(InputTable::largest_block_bytes).max();
        // A block that does not fit into a chunk is assembled first.
        let large = largest.unwrap_or(0).max(filter).max(plan.table.block_size);
        let chunk_bytes = self.settings.chunk_bytes;
        let large = if large > chunk_bytes as u64 { large } else { 0 };
        let blocks = file / plan.table.block_size.max(1) * BYTES_PER_BLOCK;
        let of_file = ring_bytes(chunk_bytes)
            .saturating_add(large)
            .saturating_add(blocks);
        // For all blocks if the host's threads compress, because they finish before any file is written.
        let lists = match plan.table.compression.is_by_library() {
            true => bytes / plan.table.block_size.max(1) * sst::HOST_COMPRESSION_BYTES_PER_BLOCK,
            false => 0,
        };
        of_file.saturating_mul(WRITERS).saturating_add(lists)
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn supports(&self, request: &Request<'_>) -> Support {
        let is_compaction = matches!(request.purpose, Purpose::WriteSst(_));
        if is_compaction && ring::is_held(self.pool.device()) {
            return Support::No(Unsupported::Held);
        }
        support::support(request, &self.encodings)
    }

    fn footprint(&self, request: &Request<'_>) -> Footprint {
        let applying = match request.purpose {
            Purpose::WriteSst(plan) => self.storing_bytes(plan, request.tables),
            Purpose::Scan(plan) => {
                scan::host_bytes(request, plan, self.encodings.of(plan).as_deref())
            }
            Purpose::Inspect => {
                let blocks = request.tables.iter().map(InputTable::largest_block_bytes);
                inspect::HOST_BYTES.saturating_add(blocks.max().unwrap_or(0))
            }
            Purpose::Resident => 0,
        };
        Footprint {
            host_bytes: (self.loading_bytes().max(applying))
                .saturating_add(ReadSize::estimate(request, None).host_bytes)
                .saturating_add(STAGING_BYTES as u64),
            device_bytes: self.device_bytes(request, self.grouping(request)),
        }
    }

    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        let _current = self.pool.device().make_current()?;
        let done = self.run_task(&task, operator);
        // A limit may have changed while the task used chunks.
        self.trim();
        done
    }
}

impl CudaBackend {
    fn run_task(&self, task: &ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        let request = Request {
            reading: task.reading,
            purpose: operator.purpose(),
        };
        let mut rows = self.read_or_again(request, task)?;
        rows.cancel.check()?;
        match operator {
            Operator::WriteSst { plan, sink } => rows.write_ssts(&self.pool, plan, sink),
            Operator::Inspect { rows: sink } => rows.inspect(sink),
            Operator::Scan { plan, batches } => {
                let encoded = self.encodings.of(plan);
                let encoded = encoded.ok_or_else(|| {
                    Error::internal("a scan that the device does not support was not refused")
                })?;
                rows.scan(plan, &encoded, batches)
            }
            Operator::Resident { table } => rows.insert(table),
        }
    }

    /// Reads a task. If cached bytes are not those of a file, the caller lets the CPU do the task from the files; only the
    /// device can load a view, so it reads the files itself. If cached groups have changed, the device decodes the blocks.
    fn read_or_again<'a>(&self, request: Request<'a>, task: &ReadTask<'a>) -> Result<CudaRows<'a>> {
        let cache = self.pool.cache();
        let cache = cache.is_on().then_some(&**cache);
        let grouping = self.grouping(&request);
        match self.read(request, task, cache, grouping) {
            Err((_, Again::WithoutGroups)) => self.read(request, task, cache, None),
            Err((_, Again::WithoutCache)) if matches!(request.purpose, Purpose::Resident) => {
                self.read(request, task, None, None)
            }
            read => read,
        }
        .map_err(|(error, _)| error)
    }

    /// The rows of a task. An error comes with whether it may be one of cached bytes, which are not cached any more then.
    fn read<'a>(
        &self,
        request: Request<'a>,
        task: &ReadTask<'a>,
        cache: Option<&FileCache>,
        grouping: Option<Grouping>,
    ) -> std::result::Result<CudaRows<'a>, (Error, Again)> {
        let not_cached = |error| (error, Again::No);
        let (threads, stages) = (IO_THREADS, Stages::default());
        let on_host = host_blocks(request.tables, request.range, threads, task.cancel, &stages);
        let on_host = on_host.map_err(not_cached)?;
        let bytes = self.device_bytes(&request, grouping);
        let user = match request.purpose {
            Purpose::Resident => MemoryUser::Views,
            Purpose::WriteSst(_) | Purpose::Inspect | Purpose::Scan(_) => MemoryUser::Tasks,
        };
        // Cached chunks are looked up after this wait. If the task held some while it waits, they could not make room for it.
        let ws = stages.time("wait for device memory", Resource::Host, 0, || {
            self.pool.workspace(user, bytes, task.cancel)
        });
        let ws = ws.map_err(|error| match grouping {
            // Whole groups need more memory than the blocks of the range.
            Some(_) if error.kind.is_out_of_memory() => (error, Again::WithoutGroups),
            _ => not_cached(error),
        })?;
        let input = Input::find(request.tables, request.range, &on_host, cache, grouping);
        let input = input.map_err(not_cached)?;
        if let Some(cache) = cache {
            verify(&ws, cache, &input.used).map_err(|error| match error.kind {
                ErrorKind::Verification => (error, Again::WithoutGroups),
                kind if kind.is_out_of_memory() => (error, Again::WithoutGroups),
                _ => {
                    // As for chunks below.
                    (input.used.iter()).for_each(|used| cache.forget(&used.of.identity));
                    not_cached(error)
                }
            })?;
        }
        self.read_input(request, task, cache, &input, ws, stages)
            .map_err(|error| {
                let again = cache.map_or(Again::No, |cache| Again::after(&error, cache, &input));
                (error, again)
            })
    }

    fn read_input<'a>(
        &self,
        request: Request<'a>,
        task: &ReadTask<'a>,
        cache: Option<&FileCache>,
        input: &Input<'_>,
        ws: Workspace,
        stages: Stages,
    ) -> Result<CudaRows<'a>> {
        let started = Instant::now();
        let device = self.pool.device();
        // Drops the counts of an earlier task that has failed.
        ws.stream.take_traffic();
        let mut buffers = ReadBuffers::new(&ws.arena);
        let size = ReadSize::estimate(&request, None);
        let made = size.made_in_arena_bytes();
        let arena = (buffers.arena).room(input.arena_bytes.saturating_add(made) as usize)?;
        if let Err(error) = input.copy_cached(&mut buffers.arena, &ws.stream) {
            // Without this, a later task would fail at the same chunks.
            if let Some(cache) = cache {
                (input.cacheable.iter()).for_each(|range| cache.forget(&range.of.identity));
            }
            return Err(error);
        }
        let loading = Instant::now();
        input.load(&self.pool, &mut buffers.arena, task.cancel, &stages)?;
        let seconds = loading.elapsed().as_secs_f64();
        let loaded = input.bytes - input.cached_bytes();
        stages.add("load, in all", Resource::Host, seconds, loaded);
        if let Some(progress) = task.progress {
            // The output has about as many bytes still to be written.
            progress.advance(input.bytes / 2);
        }
        task.cancel.check()?;
        let mut read = Box::new(ReadState {
            marks: Marks::start(&ws.stream)?,
            device: device.clone(),
            ws,
            buffers,
            arena_end: 0,
            num_fragments: 0,
            made_bytes: size.made_bytes as usize,
        });
        let selected_rows = select_rows(&mut read, &request, input, cache)?;
        match cache {
            Some(cache) if matches!(request.purpose, Purpose::WriteSst(_)) => {
                for range in input
                    .cacheable
                    .iter()
                    .filter(|range| range.cached_bytes > 0)
                {
                    cache.was_compacted(&range.of.identity, range.range.clone());
                }
            }
            Some(cache) => {
                // The task needs no cache, and a device that has failed fails again.
                let _ = keep_read_again(cache, input, arena, &read.ws.stream);
            }
            None => {}
        }
        let mut entries_read = vec![0; request.tables.len()];
        for (&(ordinal, _), &entries) in input.runs.iter().zip(&selected_rows.entries_by_run) {
            entries_read[ordinal] = entries;
        }
        let groups = input.used.iter().map(|used| &used.group.memory);
        Ok(CudaRows {
            groups: groups.cloned().collect(),
            request,
            cancel: task.cancel,
            read,
            selected_rows,
            stages,
            bytes_read: input.bytes,
            bytes_cached: input.cached_bytes(),
            entries_read,
            started,
        })
    }
}

impl CudaRows<'_> {
    fn write_ssts(
        &mut self,
        pool: &Pool,
        plan: &OutputPlan,
        sink: &mut dyn SstSink,
    ) -> Result<TaskReport> {
        let writing = Writing {
            pool,
            plan,
            stages: &self.stages,
            cancel: self.cancel,
        };
        let output = sst::write(
            &mut self.read,
            &self.selected_rows,
            &self.request,
            writing,
            sink,
        )?;
        let bytes = output.files.iter().map(|file| file.size).sum();
        self.finish(Output::Ssts(output), bytes)
    }

    fn inspect(&mut self, sink: &mut dyn RowSink) -> Result<TaskReport> {
        let rows = inspect(&self.read, &self.selected_rows, self.cancel, sink)?;
        self.finish(Output::Rows(rows), rows.bytes)
    }

    fn scan(
        &mut self,
        plan: &ScanPlan,
        encoded: &Encoded,
        batches: &mut dyn BatchSink,
    ) -> Result<TaskReport> {
        let (read, selected_rows) = (&mut self.read, &self.selected_rows);
        let (output, bytes) = scan(read, selected_rows, plan, encoded, self.cancel, batches)?;
        self.finish(Output::Batches(output), bytes)
    }

    fn insert(&mut self, table: &dyn ResidentTable) -> Result<TaskReport> {
        let rows = insert(&mut self.read, &self.selected_rows, table)?;
        self.finish(Output::Rows(rows), rows.bytes)
    }

    /// Waits for the device, and reports the task and its `output_bytes`.
    fn finish(&mut self, output: Output, output_bytes: u64) -> Result<TaskReport> {
        // Files are written only after the device is done with them; a task without rows has none.
        self.read.ws.stream.synchronize()?;
        self.read.marks.add_to(&self.stages, &self.read.ws.stream)?;
        // The time of these copies is part of the stages around them.
        let [lists_in, lists_back] = self.read.ws.stream.take_traffic();
        let all = &self.stages;
        all.add("lists in", Resource::ToDevice, 0.0, lists_in);
        all.add("lists back", Resource::FromDevice, 0.0, lists_back);
        let seconds = self.started.elapsed().as_secs_f64();
        let bytes = self.bytes_read + output_bytes;
        all.add("task, in all", Resource::Host, seconds, bytes);
        let (stages, cpu_elsewhere) = all.take();
        Ok(TaskReport {
            read: self.report(),
            output,
            stages,
            cpu_elsewhere,
        })
    }

    fn report(&self) -> ReadReport {
        let (input, totals) = (self.selected_rows.input, self.selected_rows.totals);
        ReadReport {
            entries: self.entries_read.clone(),
            tombstones: input.tombstones,
            key_bytes: input.key_bytes,
            value_bytes: input.value_bytes,
            bytes: self.bytes_read,
            cached_bytes: self.bytes_cached,
            kept_bytes: self.groups.iter().map(|group| group.len()).sum(),
            kept_columns: self.groups.len() as u64,
            replaced: totals.replaced,
            tombstones_dropped: totals.tombstones_dropped,
            above_snapshot: totals.above,
            kept: totals.kept,
            dropped: totals.dropped,
            consumed: totals.consumed,
            made: totals.made,
            hash_in: input.hash,
            hash_kept: totals.hash_kept,
            hash_dropped: totals.hash_dropped,
            hash_consumed: totals.hash_consumed,
        }
    }
}
