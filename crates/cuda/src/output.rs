//! Survivors to files: the device lays out, writes and seals images of the files; the host copies them back
//! chunk by chunk, checks every block's checksum, appends the tail and syncs. Meanwhile the device decodes
//! the images again and compares.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rockmill_core::{
    BlockWriter, CancelToken, ContentHash, Cutting, Error, ErrorKind, FileBody, FileCounts,
    FilterBlock, OutputFile, Plan, Resource, Result, SstFile, SstSink, block_guard,
};
use rockmill_format::compression::{CompressionType, Compressor};
use rockmill_format::filter::{FilterOptions, METADATA_LEN, bloom};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard, BlockHandle};
use rockmill_format::index::IndexBuilder;
use rockmill_format::key::{MAX_SEQUENCE, TAG_SIZE};

use crate::backend::CudaRun;
use crate::device::{Device, PinnedBuffer};
use crate::ffi::{
    DecodeArgs, FileTotals, FilterArgs, Key, Layout, LayoutArgs, OutBlock, VerifyArgs,
};
use crate::limits::refused;
use crate::stages::{Survivors, clear_errors, error_word};
use crate::timing::Stages;
use crate::workspace::{CHUNK_BYTES, Lane, Pool, Workspace};

/// Files of one slice at most; all of them are open at once.
const MOST_FILES: usize = 256;

/// Files of a slice that are written at once. A slice is two target files before anything is dropped.
pub const WRITERS: usize = 3;

/// A file that was begun, and its number.
type NewFile = (u64, Box<dyn SstFile>);

/// The number of files stands behind room for the files' starts, to be read with them.
const NUM_FILES_AT: usize = MOST_FILES + 1;

/// Images begin on multiples of this, with as much room between them as decoders may read too far.
const IMAGE_ALIGNMENT: u64 = 4096;
const PADDING: u64 = 64;

/// A file as it lies in the images.
#[derive(Debug)]
struct Image {
    /// Survivors.
    entries: Range<usize>,
    /// Positions among the slice's data blocks.
    blocks: Range<usize>,
    /// Where it begins.
    at: u64,
    /// Bytes of the data blocks.
    data_bytes: u64,
    totals: FileTotals,
    filter: Option<Filter>,
}

/// A file's filter block, right behind the data blocks.
#[derive(Debug, Clone, Copy)]
struct Filter {
    num_lines: u32,
    num_probes: u32,
    /// Of the payload.
    bytes: u64,
}

impl Image {
    /// Bytes of data blocks and filter.
    fn len(&self) -> u64 {
        self.data_bytes
            + self
                .filter
                .map_or(0, |f| f.bytes + BLOCK_TRAILER_SIZE as u64)
    }
}

/// Encodes the run's survivors, verifies the images and writes the files.
///
/// # Errors
/// Any of [`ErrorKind`]. Files begun in `sink` are of no use then.
pub fn write(
    pool: &Pool,
    run: &mut CudaRun<'_>,
    sink: &mut dyn SstSink,
) -> Result<Vec<OutputFile>> {
    if run.survivors.len == 0 {
        return Ok(Vec::new());
    }
    let device = pool.device();
    let (plan, ws) = (run.work.plan, &mut *run.workspace);
    let mut args = lay_out(device, ws, plan, &run.survivors)?;
    let entry_bytes = (run.survivors.len * size_of::<Key>()) as u64;
    run.marks
        .end(device, &ws.stream, "lay out", 4 * entry_bytes)?;
    let images = plan_images(device, ws, plan, &mut args)?;
    run.marks
        .end(device, &ws.stream, "measure", 2 * entry_bytes)?;
    let mut files = Vec::new();
    for _ in &images {
        files.push(sink.create()?);
    }
    let guards: Vec<BlockGuard> = files
        .iter()
        .map(|&(number, _)| block_guard(plan, number))
        .collect();
    let blocks = encode(device, run, &args, &images, &guards)?;
    let verify = start_verification(device, run, &args, &images)?;
    let ws = &*run.workspace;
    let files = store(pool, run, &images, &blocks, files)?;
    // The files are synced by now; the device was done with comparing long before.
    verify.finish(ws, &images)?;
    Ok(files)
}

/// Cuts files and blocks.
fn lay_out(
    device: &Device,
    ws: &mut Workspace,
    plan: &Plan,
    survivors: &Survivors,
) -> Result<LayoutArgs> {
    let n = survivors.len;
    let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    clear_errors(ws)?;
    let file_starts = ws.file_starts.room(NUM_FILES_AT + 1)?;
    let file_starts_bytes = (NUM_FILES_AT + 1) * size_of::<u32>();
    ws.stream.fill(file_starts.cast(), 0, file_starts_bytes)?;
    // `keep` and `places` are of the size that these need, and no longer in use.
    let args = LayoutArgs {
        arena: ws.arena.as_ptr(),
        survivors: survivors.keys,
        n: n as u64,
        values: ws.values.as_ptr(),
        hashes: ws.hashes.as_ptr(),
        layout: Layout {
            block_size: plan.table.block_size.max(1),
            file_size: uncompressed_file_size(&plan.cutting),
            restart_interval: narrow(plan.table.restart_interval),
            key_bytes: survivors.key_bytes,
            delta_keys: u32::from(plan.table.delta_keys),
            unused: 0,
        },
        shared: ws.shared.room(n + 1)?,
        sizes: ws.sizes.room(n + 1)?,
        prefix: ws.prefix.room(n + 1)?,
        begins: ws.keep.room(n + 1)?,
        before: ws.places.room(n + 1)?,
        block_starts: ws.block_starts.room(n + 1)?,
        block_sizes: std::ptr::null_mut(),
        block_offsets: std::ptr::null_mut(),
        blocks: std::ptr::null_mut(),
        num_blocks: 0,
        file_starts,
        num_files: file_starts.wrapping_add(NUM_FILES_AT),
        file_blocks: ws.file_blocks.room(MOST_FILES + 1)?,
        file_offsets: ws.file_offsets.room(MOST_FILES + 1)?,
        most_files: MOST_FILES as u32,
        unused: 0,
        errors: ws.errors.as_ptr(),
    };
    for last in [args.sizes, args.begins] {
        let last = last.wrapping_add(n);
        ws.stream.fill(last.cast(), 0, size_of::<u32>())?;
    }
    // SAFETY: all buffers have room for n + 1 items, and survivors name decoded entries.
    let code = unsafe { (device.table().cut)(&ws.exec(), &raw const args) };
    device.check(code, "cut files and blocks")?;
    Ok(args)
}

/// The uncompressed size at which a file ends: the smallest whose stored size reaches the target.
fn uncompressed_file_size(cutting: &Cutting) -> u64 {
    if cutting.single_file {
        return u64::MAX;
    }
    let (mut from, mut to) = (0, u64::MAX);
    while from < to {
        let middle = from + (to - from) / 2;
        if cutting.stored_size(middle) >= cutting.max_output_file_size {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}

/// Measures blocks and files and says where each file's image goes.
fn plan_images(
    device: &Device,
    ws: &mut Workspace,
    plan: &Plan,
    args: &mut LayoutArgs,
) -> Result<Vec<Image>> {
    let file_starts = ws.file_starts.download(0, NUM_FILES_AT + 1, &ws.stream)?;
    if error_word(ws)?.is_some() {
        return Err(refused("so many output files in one slice"));
    }
    let num_files = file_starts[NUM_FILES_AT] as usize;
    let file_starts = &file_starts[..=num_files];
    let file_blocks = ws.file_blocks.download(0, num_files + 1, &ws.stream)?;
    let num_blocks = file_blocks[num_files] as usize;
    args.num_blocks = num_blocks as u64;
    args.block_sizes = ws.block_sizes.room(num_blocks + 1)?;
    args.block_offsets = ws.block_offsets.room(num_blocks + 1)?;
    args.blocks = ws.out_blocks.room(num_blocks)?;
    let last = args.block_sizes.wrapping_add(num_blocks);
    ws.stream.fill(last.cast(), 0, size_of::<u32>())?;
    // SAFETY: the block buffers have room for one more than there are blocks.
    let code = unsafe { (device.table().measure_blocks)(&ws.exec(), &raw const *args) };
    device.check(code, "measure blocks")?;
    let totals = sum_files(device, ws, args, file_starts)?;
    if error_word(ws)?.is_some() {
        return Err(refused("blocks of 4 GiB"));
    }
    let offsets = ws.file_offsets.download(0, num_files + 1, &ws.stream)?;
    let mut images = Vec::with_capacity(num_files);
    let mut at = IMAGE_ALIGNMENT;
    for (f, totals) in totals.into_iter().enumerate() {
        let image = Image {
            entries: file_starts[f] as usize..file_starts[f + 1] as usize,
            blocks: file_blocks[f] as usize..file_blocks[f + 1] as usize,
            at,
            data_bytes: offsets[f + 1] - offsets[f],
            totals,
            filter: plan
                .table
                .filter
                .and_then(|options| filter_of(options, totals.filter_entries)),
        };
        at = (at + image.len() + PADDING).next_multiple_of(IMAGE_ALIGNMENT);
        images.push(image);
    }
    let memory = ws.images.room(at as usize)?;
    // Words at the ends of an image are read whole.
    for image in &images {
        let ends = [0, image.data_bytes + PADDING, image.len() + PADDING];
        for gap in ends.map(|end| image.at + end - PADDING) {
            let gap = memory.wrapping_add(gap as usize);
            ws.stream.fill(gap.cast(), 0, PADDING as usize)?;
        }
    }
    Ok(images)
}

/// The filter over so many hashes; `None` without any.
fn filter_of(options: FilterOptions, hashes: u64) -> Option<Filter> {
    let millibits = options.millibits_per_key;
    if hashes == 0 || millibits == 0 {
        return None;
    }
    let (len, num_probes) = bloom::shape(hashes, millibits, options.optimize_filters_for_memory);
    Some(Filter {
        num_lines: (len / bloom::LINE_LEN as u64) as u32,
        num_probes,
        bytes: len + METADATA_LEN as u64,
    })
}

fn empty_totals() -> FileTotals {
    FileTotals {
        smallest_seqno: MAX_SEQUENCE,
        ..FileTotals::default()
    }
}

fn sum_files(
    device: &Device,
    ws: &mut Workspace,
    args: &LayoutArgs,
    file_starts: &[u32],
) -> Result<Vec<FileTotals>> {
    let files = file_starts.len() - 1;
    let totals = ws
        .file_totals
        .upload(&vec![empty_totals(); files], &ws.stream)?;
    for (i, file) in file_starts.windows(2).enumerate() {
        let (start, len) = (u64::from(file[0]), u64::from(file[1] - file[0]));
        let total = totals.wrapping_add(i);
        // SAFETY: the file's entries lie within the survivors; `total` is one of the records above.
        let code =
            unsafe { (device.table().sum_file)(&ws.exec(), &raw const *args, start, len, total) };
        device.check(code, "sum files")?;
    }
    ws.file_totals.download(0, files, &ws.stream)
}

/// Writes the images and returns their data blocks.
fn encode(
    device: &Device,
    run: &mut CudaRun<'_>,
    args: &LayoutArgs,
    images: &[Image],
    guards: &[BlockGuard],
) -> Result<Vec<OutBlock>> {
    let (ws, table) = (&mut *run.workspace, device.table());
    let starts: Vec<u64> = images.iter().map(|image| image.at).collect();
    let starts = ws.image_starts.upload(&starts, &ws.stream)?;
    let bases: Vec<u32> = guards.iter().map(|g| g.base_context_checksum).collect();
    let bases = ws.bases.upload(&bases, &ws.stream)?;
    let bytes: u64 = images.iter().map(Image::len).sum();
    let image_memory = ws.images.as_ptr();
    // SAFETY: every file's image has room for the blocks that were measured; blocks, starts and bases are
    // as many as files and blocks.
    let code = unsafe {
        let exec = ws.exec();
        let placed = (table.place_blocks)(&raw const exec, args, images.len() as u32, starts);
        device.check(placed, "place blocks")?;
        (table.write_blocks)(&raw const exec, args, image_memory)
    };
    device.check(code, "write blocks")?;
    run.marks.end(device, &ws.stream, "encode", 2 * bytes)?;
    // SAFETY: as above.
    let code = unsafe {
        (table.seal_blocks)(
            &ws.exec(),
            args.blocks,
            args.num_blocks,
            bases,
            image_memory,
        )
    };
    device.check(code, "seal blocks")?;
    run.marks.end(device, &ws.stream, "seal blocks", bytes)?;
    write_filters(device, ws, args, images)?;
    run.marks.end(device, &ws.stream, "filters", bytes / 64)?;
    ws.out_blocks
        .download(0, args.num_blocks as usize, &ws.stream)
}

fn write_filters(
    device: &Device,
    ws: &mut Workspace,
    args: &LayoutArgs,
    images: &[Image],
) -> Result<()> {
    let table = device.table();
    let mut blocks = Vec::new();
    for (file, image) in images.iter().enumerate() {
        let Some(filter) = image.filter else { continue };
        let len = filter.num_lines as usize * bloom::LINE_LEN;
        let lines = ws.filter_lines.room(len / size_of::<u32>())?;
        ws.stream.fill(lines.cast(), 0, len)?;
        let filter_args = FilterArgs {
            file_start: image.entries.start as u64,
            num_entries: image.entries.len() as u64,
            num_lines: filter.num_lines,
            num_probes: filter.num_probes,
            lines,
        };
        // SAFETY: the lines are as many as said and were cleared; the entries lie within the survivors.
        let code = unsafe { (table.build_filter)(&ws.exec(), args, &raw const filter_args) };
        device.check(code, "build filters")?;
        // Bits are set in words, for which the place behind the data blocks is not aligned.
        let at = image.at + image.data_bytes;
        let to = ws.images.as_ptr().wrapping_add(at as usize);
        let mut metadata = bloom::metadata(filter.num_probes).to_vec();
        // The trailer shares words with the metadata.
        metadata.resize(METADATA_LEN + BLOCK_TRAILER_SIZE, 0);
        ws.stream.copy_inside(to.cast(), lines.cast(), len)?;
        let behind = to.wrapping_add(len);
        ws.stream
            .copy_to_device(behind.cast(), metadata.as_ptr().cast(), metadata.len())?;
        blocks.push(OutBlock {
            at,
            file_offset: image.data_bytes,
            size: u32::try_from(filter.bytes).map_err(|_| refused("filters of 4 GiB"))?,
            file: file as u32,
            ..OutBlock::default()
        });
    }
    if blocks.is_empty() {
        return Ok(());
    }
    let refs = ws.filter_blocks.upload(&blocks, &ws.stream)?;
    let (bases, memory) = (ws.bases.as_ptr(), ws.images.as_ptr());
    // SAFETY: each filter lies in its file's image with room for the trailer.
    let code = unsafe { (table.seal_blocks)(&ws.exec(), refs, blocks.len() as u64, bases, memory) };
    device.check(code, "seal filters")
}

/// A comparison that the device is at work on.
struct Verification;

/// Queues decoding the images and comparing what is found.
fn start_verification(
    device: &Device,
    run: &mut CudaRun<'_>,
    args: &LayoutArgs,
    images: &[Image],
) -> Result<Verification> {
    let (ws, table) = (&mut *run.workspace, device.table());
    let (n, num_blocks) = (run.survivors.len, args.num_blocks as usize);
    clear_errors(ws)?;
    // Entries of the inputs are not needed any more: what is decoded now takes their place.
    let refs = ws.blocks.room(num_blocks)?;
    let decode = DecodeArgs {
        arena: ws.images.as_ptr(),
        blocks: refs,
        num_blocks: num_blocks as u64,
        key_bytes: run.survivors.key_bytes,
        unused: 0,
        counts: ws.counts.room(num_blocks + 1)?,
        starts: ws.starts.room(num_blocks + 1)?,
        keys: run.survivors.spare_keys,
        values: ws.values.as_ptr(),
        hashes: ws.hashes.as_ptr(),
        errors: ws.errors.as_ptr(),
    };
    let verify = VerifyArgs {
        images: ws.images.as_ptr(),
        blocks: ws.out_blocks.as_ptr(),
        num_blocks: num_blocks as u64,
        num_entries: n as u64,
        bases: ws.bases.as_ptr(),
        refs,
        decode,
    };
    let totals = ws
        .file_totals
        .upload(&vec![empty_totals(); images.len()], &ws.stream)?;
    // SAFETY: buffers have room for all blocks and for as many entries as survived, which are no more than
    // were decoded before; the decoder writes no more than that whatever the images hold.
    let code = unsafe { (table.decode_images)(&ws.exec(), &raw const verify) };
    device.check(code, "decode the files again")?;
    for (i, image) in images.iter().enumerate() {
        let lines = image.at + image.data_bytes;
        let lines = ws.images.as_ptr().wrapping_add(lines as usize);
        let (num_lines, num_probes) = image.filter.map_or((0, 0), |f| (f.num_lines, f.num_probes));
        // SAFETY: entries, lines and totals of the file were laid out above.
        let code = unsafe {
            (table.verify_file)(
                &ws.exec(),
                &raw const verify,
                image.entries.start as u64,
                image.entries.len() as u64,
                lines,
                num_lines,
                num_probes,
                totals.wrapping_add(i),
            )
        };
        device.check(code, "compare the files")?;
    }
    let bytes: u64 = images.iter().map(Image::len).sum();
    run.marks.end(device, &ws.stream, "verify", 3 * bytes)?;
    Ok(Verification)
}

impl Verification {
    /// Waits, and compares what was found with what was meant.
    fn finish(self, ws: &Workspace, images: &[Image]) -> Result<()> {
        let found = ws.file_totals.download(0, images.len(), &ws.stream)?;
        let word = error_word(ws)?;
        let equal = found.iter().zip(images).all(|(found, image)| {
            let meant = FileTotals {
                filter_entries: found.filter_entries,
                ..image.totals
            };
            *found == meant
        });
        if equal && word.is_none() {
            return Ok(());
        }
        let what = match word {
            Some(word) => format!("the finished image does not decode as meant (code {word:#x})"),
            None => "the finished image holds other entries than were meant".to_owned(),
        };
        Err(Error::new(ErrorKind::Verification, what))
    }
}

/// Copies all images back and writes the files, a few at a time.
fn store(
    pool: &Pool,
    run: &CudaRun<'_>,
    images: &[Image],
    blocks: &[OutBlock],
    files: Vec<NewFile>,
) -> Result<Vec<OutputFile>> {
    let started = Instant::now();
    let context = Store {
        pool,
        plan: run.work.plan,
        key_bytes: run.survivors.key_bytes,
        images: Images(run.workspace.images.as_ptr()),
        stages: &run.stages,
        cancel: run.work.cancel,
        blocks,
        waiting: Mutex::new(images.iter().zip(files).collect()),
        done: Mutex::new(Ok(Vec::new())),
    };
    std::thread::scope(|scope| {
        for _ in 1..images.len().min(WRITERS) {
            let builder = std::thread::Builder::new().name("rockmill-out".to_owned());
            let spawned = builder.spawn_scoped(scope, || {
                context.stages.count_cpu(|| context.work());
            });
            if spawned.is_err() {
                break;
            }
        }
        context.work();
    });
    let done = context.done.into_inner();
    let mut files = done.unwrap_or_else(PoisonError::into_inner)?;
    if files.len() != images.len() {
        return Err(Error::internal("a file was left out"));
    }
    files.sort_by_key(|file| file.number);
    let bytes = files.iter().map(|file| file.size).sum();
    let seconds = started.elapsed().as_secs_f64();
    run.stages
        .add("store, in all", Resource::Host, seconds, bytes);
    Ok(files)
}

/// Device memory that several threads copy from.
#[derive(Debug, Clone, Copy)]
struct Images(*const u8);

// SAFETY: the address is only handed to copies, and nothing writes there meanwhile.
unsafe impl Sync for Images {}

/// What the writing threads share.
struct Store<'a> {
    pool: &'a Pool,
    plan: &'a Plan,
    key_bytes: u32,
    images: Images,
    stages: &'a Stages,
    cancel: &'a CancelToken,
    /// Of all images.
    blocks: &'a [OutBlock],
    waiting: Mutex<VecDeque<(&'a Image, NewFile)>>,
    /// Files that are done, or the first error.
    done: Mutex<Result<Vec<OutputFile>>>,
}

/// A block of a file: where it lies and how many bytes of payload it has.
#[derive(Debug, Clone, Copy)]
struct Stored {
    offset: u64,
    payload: u64,
}

impl Stored {
    fn end(self) -> u64 {
        self.offset + self.payload + BLOCK_TRAILER_SIZE as u64
    }
}

impl Store<'_> {
    /// Takes files until none is left or something has failed.
    fn work(&self) {
        loop {
            let next = self.waiting.lock().map(|mut waiting| waiting.pop_front());
            let Ok(Some((image, file))) = next else {
                return;
            };
            let stored = self
                .cancel
                .check()
                .and_then(|()| self.store_file(image, file));
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            match (stored, &mut *done) {
                (Ok(file), Ok(files)) => files.push(file),
                (Err(error), Ok(_)) => *done = Err(error),
                (_, Err(_)) => {}
            }
            if done.is_err() {
                return;
            }
        }
    }

    fn store_file(&self, image: &Image, (number, file): NewFile) -> Result<OutputFile> {
        let blocks = &self.blocks[image.blocks.clone()];
        let device = self.pool.device();
        device.make_current()?;
        let mut lane = self.pool.lane()?;
        let mut writer = BlockWriter::new(self.plan, number, file);
        let guard = block_guard(self.plan, number);
        let data = blocks.iter().map(|block| Stored {
            offset: block.file_offset,
            payload: u64::from(block.size),
        });
        let filter = image.filter.map(|filter| Stored {
            offset: image.data_bytes,
            payload: filter.bytes,
        });
        let stored: Vec<Stored> = data.chain(filter).collect();
        let done = self.copy_back(image, &stored, guard, &mut writer, &mut lane);
        done.and(lane.stream.synchronize())?;
        self.pool.put_lane(lane);
        let body = self
            .stages
            .time("index", Resource::Host, 0, || self.body(image, blocks))?;
        let mut compressor =
            Compressor::new(&self.plan.table.compression).map_err(|e| Error::internal(e.what))?;
        let size = image.len();
        self.stages.time("tail + sync", Resource::Host, size, || {
            writer.finish(self.plan, body, &mut compressor)
        })
    }

    /// Copies the image back in chunks of whole blocks, checks and appends each while the next is on
    /// its way.
    fn copy_back(
        &self,
        image: &Image,
        blocks: &[Stored],
        guard: BlockGuard,
        writer: &mut BlockWriter,
        lane: &mut Lane,
    ) -> Result<()> {
        let largest = blocks.iter().map(|b| b.end() - b.offset).max().unwrap_or(0);
        if largest > CHUNK_BYTES as u64 {
            let device = self.pool.device();
            for chunk in &mut lane.chunks {
                if (chunk.bytes().len() as u64) < largest {
                    *chunk = PinnedBuffer::new(device, largest as usize)?;
                }
            }
        }
        let chunks = chunks_of(blocks, largest.max(CHUNK_BYTES as u64));
        let mut turn = 0;
        if let Some(first) = chunks.first() {
            self.start_copy(image, &blocks[first.clone()], lane, turn)?;
        }
        for (i, chunk) in chunks.iter().enumerate() {
            let part = &blocks[chunk.clone()];
            let len = bytes_of(part);
            self.stages
                .time("copy back", Resource::FromDevice, len, || {
                    lane.stream.synchronize()
                })?;
            if let Some(next) = chunks.get(i + 1) {
                self.start_copy(image, &blocks[next.clone()], lane, 1 - turn)?;
            }
            let bytes = &lane.chunks[turn].bytes()[..len as usize];
            self.stages.time("check blocks", Resource::Host, len, || {
                check_blocks(part, guard, bytes)
            })?;
            self.stages
                .time("write", Resource::Host, len, || writer.append(bytes))?;
            turn = 1 - turn;
        }
        Ok(())
    }

    fn start_copy(&self, image: &Image, part: &[Stored], lane: &Lane, turn: usize) -> Result<()> {
        let from = image.at + part[0].offset;
        let from = self.images.0.wrapping_add(from as usize);
        let to = lane.chunks[turn].as_ptr();
        lane.stream
            .copy_from_device(to.cast(), from.cast(), bytes_of(part) as usize)
    }

    fn body(&self, image: &Image, blocks: &[OutBlock]) -> Result<FileBody> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Err(Error::internal("a file without blocks"));
        };
        let key = |key: &Key| internal_key(key, self.key_bytes);
        let mut index = IndexBuilder::new(self.plan.table.index);
        for (i, block) in blocks.iter().enumerate() {
            let next = blocks.get(i + 1).map(|next| key(&next.first_key));
            let handle = BlockHandle {
                offset: block.file_offset,
                size: u64::from(block.size),
            };
            index.add(&key(&block.last_key), next.as_deref(), handle);
        }
        let (totals, entries) = (&image.totals, image.entries.len() as u64);
        let num_blocks = blocks.len() as u64;
        let key_len = u64::from(self.key_bytes) + TAG_SIZE as u64;
        Ok(FileBody {
            data_size: image.data_bytes,
            first_key: key(&first.first_key),
            last_key: key(&last.last_key),
            counts: FileCounts {
                deletions: totals.deletions,
                raw_key_bytes: entries * key_len,
                raw_value_bytes: totals.value_bytes,
                uncompressed_bytes: image.data_bytes - num_blocks * BLOCK_TRAILER_SIZE as u64,
                blocks: num_blocks,
                rejected: 0,
                bypassed: num_blocks,
                smallest_seqno: Some(totals.smallest_seqno),
                largest_seqno: totals.largest_seqno,
            },
            index,
            filter: image.filter.map_or(FilterBlock::None, |filter| {
                FilterBlock::Written(BlockHandle {
                    offset: image.data_bytes,
                    size: filter.bytes,
                })
            }),
            num_filter_entries: match self.plan.table.filter {
                Some(options) if options.millibits_per_key > 0 => totals.filter_entries,
                _ => 0,
            },
            compression_used: [CompressionType::None].into(),
            content: ContentHash::from_sum(totals.content_hash, entries),
            paranoid_hash: 0,
        })
    }
}

fn internal_key(key: &Key, key_bytes: u32) -> Vec<u8> {
    let prefix = u128::from(key.hi) << 64 | u128::from(key.lo);
    let mut out = prefix.to_be_bytes()[..key_bytes as usize].to_vec();
    out.extend_from_slice(&key.tag.to_le_bytes());
    out
}

fn bytes_of(blocks: &[Stored]) -> u64 {
    match (blocks.first(), blocks.last()) {
        (Some(first), Some(last)) => last.end() - first.offset,
        _ => 0,
    }
}

/// Ranges of consecutive blocks of at most `chunk_bytes`, which is as large as the largest block.
fn chunks_of(blocks: &[Stored], chunk_bytes: u64) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    let mut first = 0;
    for (i, block) in blocks.iter().enumerate() {
        if block.end() - blocks[first].offset > chunk_bytes {
            chunks.push(first..i);
            first = i;
        }
    }
    if first < blocks.len() {
        chunks.push(first..blocks.len());
    }
    chunks
}

/// Verifies the checksum of each block of what came back.
fn check_blocks(blocks: &[Stored], guard: BlockGuard, bytes: &[u8]) -> Result<()> {
    let start = blocks.first().map_or(0, |block| block.offset);
    for block in blocks {
        let stored = &bytes[(block.offset - start) as usize..(block.end() - start) as usize];
        guard.open(stored, block.offset).map_err(|e| {
            let what = format!("a block that came back from the device: {}", e.what);
            Error {
                offset: Some(block.offset),
                ..Error::new(ErrorKind::Verification, what)
            }
        })?;
    }
    Ok(())
}
