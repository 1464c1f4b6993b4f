//! Survivors to images of files: the device lays out, writes and seals them, then decodes them again and
//! compares while the host copies them back.

use std::ops::Range;
use std::ptr::null_mut;

use rockmill_core::{Cutting, Error, ErrorKind, OutputFile, Plan, Result, SstSink, block_guard};
use rockmill_format::filter::{FilterFormat, FilterOptions, METADATA_LEN, bloom, legacy};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard};
use rockmill_format::key::MAX_SEQUENCE;

use crate::backend::CudaRun;
use crate::device::Device;
use crate::ffi::{self, FileTotals, FilterArgs, Key, KeyBytes, Layout, LayoutArgs, OutBlock};
use crate::limits::{KEY_PADDING, Spans, filter_rules, may_lack_prefix, refused};
use crate::out_blocks::OutBlocks;
use crate::pool::Pool;
use crate::stages::{FirstError, Survivors, clear_errors, download_checked, key_memory};
use crate::store::store;
use crate::verify::Verification;
use crate::workspace::Workspace;

/// Files of one slice at most; all of them are open at once.
pub const MOST_FILES: usize = 256;

/// The number of files stands behind room for the files' starts, to be read with them.
const NUM_FILES_AT: usize = MOST_FILES + 1;

/// Images begin on multiples of this, with as much room between them as decoders may read too far.
pub const IMAGE_ALIGNMENT: u64 = 4096;
const PADDING: u64 = 64;

/// A file as it lies in the images.
#[derive(Debug)]
pub struct Image {
    /// Survivors.
    pub entries: Range<usize>,
    /// Positions among the slice's data blocks.
    pub blocks: Range<usize>,
    /// Where it begins.
    pub at: u64,
    /// Bytes of the data blocks.
    pub data_bytes: u64,
    /// Sums over its entries.
    pub totals: FileTotals,
    /// Its filter block.
    pub filter: Option<Filter>,
}

/// A file's filter block, right behind the data blocks.
#[derive(Debug, Clone, Copy)]
pub struct Filter {
    /// Lines of 64 bytes.
    pub num_lines: u32,
    /// Bits that are set for a key.
    pub num_probes: u32,
    /// Bytes of the payload.
    pub bytes: u64,
    /// What stands behind the lines.
    pub metadata: [u8; METADATA_LEN],
}

impl Image {
    /// Bytes of data blocks and filter.
    pub fn len(&self) -> u64 {
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
    let images = plan_images(device, ws, plan, &mut args, &run.survivors)?;
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
    check_shape(&images, &blocks)?;
    let verify = Verification::start(device, run, &args, &images)?;
    let ws = &*run.workspace;
    let files = store(pool, run, &images, &blocks, files)?;
    // The files are synced by now; the device was done with comparing long before.
    verify.finish(ws, &images, &blocks)?;
    Ok(files)
}

/// What came back from the device is not taken for granted: data blocks follow one another and fill their
/// file.
fn check_shape(images: &[Image], blocks: &OutBlocks) -> Result<()> {
    if !blocks.are_whole() {
        return Err(altered("a block's keys are not where they should be"));
    }
    let blocks = &blocks.blocks;
    let is_sound = |image: &Image| {
        let mut end = 0;
        let follow = blocks.get(image.blocks.clone()).is_some_and(|blocks| {
            !blocks.is_empty()
                && blocks.iter().all(|block| {
                    let follows = block.file_offset == end;
                    end += u64::from(block.size) + BLOCK_TRAILER_SIZE as u64;
                    follows
                })
        });
        follow && end == image.data_bytes
    };
    match images.iter().all(is_sound) {
        true => Ok(()),
        false => Err(altered("blocks do not fill their files")),
    }
}

/// An error of what the device has made or sent back.
pub fn altered(what: &str) -> Error {
    Error::new(ErrorKind::Verification, format!("on the GPU: {what}"))
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
    let filter = filter_rules(plan.table.filter);
    let cutting = upload_cutting(ws, &plan.cutting)?;
    let file_starts = ws.file_starts.room(NUM_FILES_AT + 1)?;
    ws.file_starts.fill(0, NUM_FILES_AT + 1, 0, &ws.stream)?;
    // `keep` and `places` are of the size that these need, and no longer in use.
    let args = LayoutArgs {
        arena: ws.arena.as_ptr(),
        survivors: survivors.keys,
        n: n as u64,
        key_bytes: key_bytes(ws, survivors.wide),
        values: ws.values.as_ptr(),
        hashes: ws.hashes.as_ptr(),
        layout: Layout {
            block_size: plan.table.block_size.max(1),
            restart_interval: narrow(plan.table.restart_interval),
            delta_keys: u32::from(plan.table.delta_keys),
            common_prefix: u32::from(plan.table.common_prefix),
            checksum: plan.table.checksum as u32,
        },
        cutting,
        filter,
        shared: ws.shared.room(n + 1)?,
        sizes: ws.sizes.room(n + 1)?,
        prefix: ws.prefix.room(n + 1)?,
        begins: ws.keep.room(n + 1)?,
        before: ws.places.room(n + 1)?,
        block_starts: ws.block_starts.room(n + 1)?,
        key_sums: match survivors.wide {
            true => ws.survivor_key_sums.room(n + 1)?,
            false => null_mut(),
        },
        last_with_prefix: match may_lack_prefix(&filter) {
            true => ws.last_with_prefix.room(n)?,
            false => null_mut(),
        },
        grandparent_places: ws.grandparent_places.as_ptr(),
        prefix_lens: null_mut(),
        block_sizes: null_mut(),
        block_offsets: null_mut(),
        edge_sizes: null_mut(),
        edge_starts: null_mut(),
        edges: null_mut(),
        blocks: null_mut(),
        num_blocks: 0,
        file_starts,
        num_files: file_starts.wrapping_add(NUM_FILES_AT),
        file_blocks: ws.file_blocks.room(MOST_FILES + 1)?,
        file_offsets: ws.file_offsets.room(MOST_FILES + 1)?,
        most_files: MOST_FILES as u32,
        unused: 0,
        errors: ws.errors.as_ptr().cast(),
    };
    for counts in [&ws.sizes, &ws.keep] {
        counts.fill(n, 1, 0, &ws.stream)?;
    }
    // SAFETY: all buffers have room for n + 1 items, and survivors name decoded entries.
    let code = unsafe { (device.table().cut)(&ws.exec(), &raw const args) };
    device.check(code, "cut files and blocks")?;
    Ok(args)
}

/// The bytes of the entries' keys.
fn key_bytes(ws: &Workspace, wide: bool) -> KeyBytes {
    let at = ws.key_at.as_ptr().cast_const();
    KeyBytes {
        bytes: key_memory(ws),
        at: if wide { at } else { std::ptr::null() },
    }
}

/// Where files end, with the grandparents on the device.
fn upload_cutting(ws: &mut Workspace, cutting: &Cutting) -> Result<ffi::Cutting> {
    let spans = match cutting.single_file {
        true => Spans::default(),
        false => Spans::grandparents(&cutting.grandparents),
    };
    let (stored, uncompressed) = cutting.compression_ratio;
    ws.grandparent_places.room(2 * spans.len())?;
    Ok(ffi::Cutting {
        file_size: uncompressed_file_size(cutting),
        num_grandparents: spans.len() as u64,
        grandparents: spans.upload(&mut ws.grandparents, &mut ws.grandparent_bytes, &ws.stream)?,
        target_file_size: cutting.target_file_size,
        max_compaction_bytes: cutting.max_compaction_bytes,
        stored,
        uncompressed,
        level_style: u32::from(cutting.level_style),
        unused: 0,
    })
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
    survivors: &Survivors,
) -> Result<Vec<Image>> {
    let (file_starts, error) = download_checked(ws, &ws.file_starts, NUM_FILES_AT + 1)?;
    if error.is_some() {
        return Err(refused("so many output files in one slice"));
    }
    let num_files = file_starts[NUM_FILES_AT] as usize;
    if !(1..=MOST_FILES).contains(&num_files) {
        return Err(altered("the number of files is not one that was counted"));
    }
    let file_starts = &file_starts[..=num_files];
    let file_blocks = ws.file_blocks.download(0, num_files + 1, &ws.stream)?;
    let num_blocks = file_blocks[num_files] as usize;
    args.num_blocks = num_blocks as u64;
    args.block_sizes = ws.block_sizes.room(num_blocks + 1)?;
    args.block_offsets = ws.block_offsets.room(num_blocks + 1)?;
    args.blocks = ws.out_blocks.room(num_blocks)?;
    args.prefix_lens = ws.prefix_lens.room(num_blocks)?;
    ws.block_sizes.fill(num_blocks, 1, 0, &ws.stream)?;
    if survivors.wide {
        args.edge_sizes = ws.edge_sizes.room(num_blocks + 1)?;
        args.edge_starts = ws.edge_starts.room(num_blocks + 1)?;
        ws.edge_sizes.fill(num_blocks, 1, 0, &ws.stream)?;
    }
    // SAFETY: the block buffers have room for one more than there are blocks.
    let code = unsafe { (device.table().measure_blocks)(&ws.exec(), &raw const *args) };
    device.check(code, "measure blocks")?;
    let (totals, error) = sum_files(device, ws, args, file_starts)?;
    if error.is_some() {
        return Err(refused("blocks of 4 GiB"));
    }
    let kv_hash = totals
        .iter()
        .fold(0, |sum: u64, file| sum.wrapping_add(file.kv_hash));
    if kv_hash != survivors.totals.kv_kept {
        return Err(altered("files do not hold the entries that were kept"));
    }
    let offsets = ws.file_offsets.download(0, num_files + 1, &ws.stream)?;
    if survivors.wide {
        let bytes = ws.edge_starts.download(num_blocks, 1, &ws.stream)?[0] as usize;
        args.edges = room_for_edges(ws, bytes)?;
    }
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
    ws.images.room(at as usize)?;
    // Words at the ends of an image are read whole.
    for image in &images {
        let ends = [0, image.data_bytes + PADDING, image.len() + PADDING];
        for gap in ends.map(|end| image.at + end - PADDING) {
            ws.images
                .fill(gap as usize, PADDING as usize, 0, &ws.stream)?;
        }
    }
    Ok(images)
}

/// Room for the keys at the blocks' ends, cleared where only whole words reach.
fn room_for_edges(ws: &mut Workspace, bytes: usize) -> Result<*mut u8> {
    let memory = ws.edges.room(bytes.saturating_add(2 * KEY_PADDING))?;
    for at in [0, KEY_PADDING + bytes] {
        ws.edges.fill(at, KEY_PADDING, 0, &ws.stream)?;
    }
    Ok(memory.wrapping_add(KEY_PADDING))
}

/// The filter over so many hashes; `None` without any.
fn filter_of(options: FilterOptions, hashes: u64) -> Option<Filter> {
    let millibits = options.millibits_per_key;
    if hashes == 0 || millibits == 0 {
        return None;
    }
    let (len, num_probes, metadata) = match options.format {
        FilterFormat::FastLocalBloom => {
            let (len, probes) =
                bloom::shape(hashes, millibits, options.optimize_filters_for_memory);
            (len, probes, bloom::metadata(probes))
        }
        FilterFormat::Legacy => {
            let (len, probes) = legacy::shape(hashes, legacy::whole_bits_per_key(millibits));
            (len, probes, legacy::metadata(len, probes))
        }
    };
    Some(Filter {
        num_lines: (len / bloom::LINE_LEN as u64) as u32,
        num_probes,
        bytes: len + METADATA_LEN as u64,
        metadata,
    })
}

/// Totals of nothing.
pub fn empty_totals() -> FileTotals {
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
) -> Result<(Vec<FileTotals>, Option<FirstError>)> {
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
    download_checked(ws, &ws.file_totals, files)
}

/// Writes the images and returns their data blocks.
fn encode(
    device: &Device,
    run: &mut CudaRun<'_>,
    args: &LayoutArgs,
    images: &[Image],
    guards: &[BlockGuard],
) -> Result<OutBlocks> {
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
            args.layout.checksum,
            image_memory,
        )
    };
    device.check(code, "seal blocks")?;
    run.marks.end(device, &ws.stream, "seal blocks", bytes)?;
    write_filters(device, ws, args, images)?;
    run.marks.end(device, &ws.stream, "filters", bytes / 64)?;
    let num_blocks = args.num_blocks as usize;
    let edges = match run.survivors.wide {
        true => {
            let bytes = ws.edge_starts.download(num_blocks, 1, &ws.stream)?[0] as usize;
            Some(ws.edges.download(KEY_PADDING, bytes, &ws.stream)?)
        }
        false => None,
    };
    let blocks = ws.out_blocks.download(0, num_blocks, &ws.stream)?;
    Ok(OutBlocks::new(blocks, edges))
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
        ws.filter_lines
            .fill(0, len / size_of::<u32>(), 0, &ws.stream)?;
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
        let mut metadata = filter.metadata.to_vec();
        // The trailer shares words with the metadata.
        metadata.resize(METADATA_LEN + BLOCK_TRAILER_SIZE, 0);
        // SAFETY: the image has room for the filter behind its data blocks.
        unsafe { ws.stream.copy_inside(to.cast(), lines.cast(), len)? };
        ws.images.write(at as usize + len, &metadata, &ws.stream)?;
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
    let code = unsafe {
        let (n, checksum) = (blocks.len() as u64, args.layout.checksum);
        (table.seal_blocks)(&ws.exec(), refs, n, bases, checksum, memory)
    };
    device.check(code, "seal filters")
}
