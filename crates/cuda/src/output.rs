//! Survivors to images of files: the device lays out, writes and seals them, then decodes them again and
//! compares while the host copies them back.

use rockmill_core::{Error, ErrorKind, OutputFile, Result, SstSink, block_guard};
use rockmill_format::filter::{METADATA_LEN, bloom};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard};

use crate::backend::CudaRun;
use crate::device::Device;
use crate::ffi::{FilterArgs, Key, LayoutArgs, OutBlock};
use crate::images::{Image, plan_images};
use crate::layout::lay_out;
use crate::limits::refused;
use crate::pool::Pool;
use crate::store::store;
use crate::verify::Verification;
use crate::workspace::Workspace;

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
    let edges = encode(device, run, &args, &images, &guards)?;
    let verify = Verification::start(device, run, &args, &images)?;
    let ws = &*run.workspace;
    let files = store(pool, run, &images, &edges, files)?;
    // The files are synced by now; the device was done with comparing long before.
    verify.finish(ws, &images, &files)?;
    Ok(files.into_iter().map(|stored| stored.file).collect())
}

/// An error of what the device has made or sent back.
pub fn altered(what: &str) -> Error {
    Error::new(ErrorKind::Verification, format!("on the GPU: {what}"))
}

/// Writes the images and returns the internal keys at the files' ends.
fn encode(
    device: &Device,
    run: &mut CudaRun<'_>,
    args: &LayoutArgs,
    images: &[Image],
    guards: &[BlockGuard],
) -> Result<Vec<u8>> {
    let (ws, table) = (&mut *run.workspace, device.table());
    let bases: Vec<u32> = guards.iter().map(|g| g.base_context_checksum).collect();
    ws.bases.upload(&bases, &ws.stream)?;
    let bytes: u64 = images.iter().map(Image::len).sum();
    let image_memory = ws.images.as_ptr();
    // SAFETY: every file's image has room for the blocks that were measured; blocks, places and
    // bases are as many as blocks and files.
    let code = unsafe {
        let exec = ws.exec();
        let placed = (table.place_blocks)(&raw const exec, args, images.len() as u32);
        device.check(placed, "place blocks")?;
        (table.write_blocks)(&raw const exec, args, image_memory)
    };
    device.check(code, "write blocks")?;
    run.marks.end(device, &ws.stream, "encode", 2 * bytes)?;
    seal(device, ws, args, args.blocks, args.num_blocks)?;
    run.marks.end(device, &ws.stream, "seal blocks", bytes)?;
    let mut parts = write_filters(device, ws, args, images)?;
    run.marks.end(device, &ws.stream, "filters", bytes / 64)?;
    // SAFETY: as above, with room for each file's index behind what stands before it.
    let code = unsafe { (table.write_index)(&ws.exec(), args, image_memory) };
    device.check(code, "write the index")?;
    for (file, image) in images.iter().enumerate() {
        parts.push(part(image, file, image.index_at(), image.index.size)?);
    }
    let refs = ws.parts.upload(&parts, &ws.stream)?;
    seal(device, ws, args, refs, parts.len() as u64)?;
    let index_bytes = images.iter().map(|image| image.index.size).sum();
    (run.marks).end(device, &ws.stream, "write index", index_bytes)?;
    let edges = images.iter().map(Image::edges_len).sum();
    ws.edges.download(0, edges, &ws.stream)
}

/// A block of a file that is not a data block.
fn part(image: &Image, file: usize, file_offset: u64, size: u64) -> Result<OutBlock> {
    Ok(OutBlock {
        at: image.at + file_offset,
        file_offset,
        size: u32::try_from(size).map_err(|_| refused("filters of 4 GiB"))?,
        file: file as u32,
        ..OutBlock::default()
    })
}

/// Writes the trailers of `n` blocks.
fn seal(
    device: &Device,
    ws: &Workspace,
    args: &LayoutArgs,
    blocks: *const OutBlock,
    n: u64,
) -> Result<()> {
    let (bases, memory) = (ws.bases.as_ptr(), ws.images.as_ptr());
    let (seal, checksum) = (device.table().seal_blocks, args.layout.checksum);
    // SAFETY: each block lies in its file's image with room for the trailer.
    let code = unsafe { seal(&ws.exec(), blocks, n, bases, checksum, memory) };
    device.check(code, "seal blocks")
}

/// Writes the filters and says where they are.
fn write_filters(
    device: &Device,
    ws: &mut Workspace,
    args: &LayoutArgs,
    images: &[Image],
) -> Result<Vec<OutBlock>> {
    let table = device.table();
    let mut parts = Vec::new();
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
        parts.push(part(image, file, image.data_bytes, filter.bytes)?);
    }
    Ok(parts)
}
