//! Survivors to images of files: the device lays out, writes and seals them, then decodes them again and
//! compares while the host copies them back.

use rockmill_core::{CancelToken, OutputPlan, Result, SstOutput, SstSink, block_guard};
use rockmill_format::filter::{METADATA_LEN, bloom};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard};

use super::buffers::SstBuffers;
use super::images::{Image, plan_images};
use super::layout::lay_out;
use super::store::store;
use super::verify::Verification;
use crate::driver::ffi::{FilterArgs, Key, LayoutArgs, OutBlock};
use crate::driver::{CopyKind, Stages, refused};
use crate::memory::Pool;
use crate::read::{ReadState, Survivors};

/// How rows are written.
#[derive(Debug, Clone, Copy)]
pub struct Writing<'a> {
    pub pool: &'a Pool,
    pub plan: &'a OutputPlan,
    pub stages: &'a Stages,
    pub cancel: &'a CancelToken,
}

/// Encodes the rows, verifies the images and writes the files.
///
/// # Errors
/// Any of [`rockmill_core::ErrorKind`]. Files in `sink` are invalid then.
pub fn write(
    read: &mut ReadState,
    survivors: &Survivors,
    with: Writing<'_>,
    sink: &mut dyn SstSink,
) -> Result<SstOutput> {
    let mut output = SstOutput {
        verified: true,
        ..SstOutput::default()
    };
    if survivors.len == 0 {
        return Ok(output);
    }
    let (plan, sst) = (with.plan, &mut SstBuffers::new(&read.ws.arena));
    let mut args = lay_out(read, sst, plan, survivors)?;
    let entry_bytes = (survivors.len * size_of::<Key>()) as u64;
    read.mark("lay out", 4 * entry_bytes)?;
    let images = plan_images(read, sst, with, &mut args, survivors)?;
    read.mark("measure", 2 * entry_bytes)?;
    let mut files = Vec::new();
    for _ in &images {
        files.push(sink.create()?);
    }
    let guards: Vec<BlockGuard> = files
        .iter()
        .map(|&(number, _)| block_guard(plan, number))
        .collect();
    let edges = encode(read, sst, &args, &images, &guards)?;
    // Before the device is busy with verifying.
    let sums = match args.raw_sums.is_null() {
        true => Vec::new(),
        false => sst
            .raw_sums
            .download(0, args.num_blocks as usize, &read.ws.stream)?,
    };
    let verify = Verification::start(read, sst, survivors, &args, &images)?;
    let end = images.last().map_or(0, |image| image.at + image.len());
    let memory = sst.images.view(0..end as usize);
    let files = store(with, &images, memory, &edges, &sums, files)?;
    // The files are synced by now; the device was done with comparing long before.
    verify.finish(&read.ws, sst, &images, &files)?;
    for stored in files {
        output.files.push(stored.file);
        output.size_sample.add(stored.size_sample);
    }
    Ok(output)
}

/// Writes the images and returns the internal keys at the files' ends.
fn encode(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    args: &LayoutArgs,
    images: &[Image],
    guards: &[BlockGuard],
) -> Result<Vec<u8>> {
    let table = read.device.table();
    let bases: Vec<u32> = guards.iter().map(|g| g.base_context_checksum).collect();
    sst.bases.upload(&bases, &read.ws.stream)?;
    let bytes: u64 = images.iter().map(Image::len).sum();
    let image_memory = sst.images.as_ptr();
    // SAFETY: every file's image has room for the measured blocks; there are as many blocks, places and bases as blocks
    // and files.
    let code = unsafe {
        let exec = read.ws.exec();
        let placed = (table.place_blocks)(&raw const exec, args, images.len() as u32);
        read.device.check(placed, "place blocks")?;
        (table.write_blocks)(&raw const exec, args, image_memory)
    };
    read.device.check(code, "write blocks")?;
    read.mark("encode", 2 * bytes)?;
    seal(read, sst, args, args.blocks, args.num_blocks)?;
    read.mark("seal blocks", bytes)?;
    let mut parts = write_filters(read, sst, args, images)?;
    read.mark("filters", bytes / 64)?;
    // SAFETY: as above, with room for each file's index behind the preceding parts.
    let code = unsafe { (table.write_index)(&read.ws.exec(), args, image_memory) };
    read.device.check(code, "write the index")?;
    for (file, image) in images.iter().enumerate() {
        parts.push(part(image, file, image.index_at(), image.index.size)?);
    }
    let refs = sst.parts.upload(&parts, &read.ws.stream)?;
    seal(read, sst, args, refs, parts.len() as u64)?;
    let index_bytes = images.iter().map(|image| image.index.size).sum();
    read.mark("write index", index_bytes)?;
    let edges = images.iter().map(Image::edges_len).sum();
    sst.edges.download(0, edges, &read.ws.stream)
}

/// A block of a file that is not a data block.
fn part(image: &Image, file: usize, file_offset: u64, size: u64) -> Result<OutBlock> {
    let size = u32::try_from(size).map_err(|_| refused("filters of 4 GiB"))?;
    Ok(OutBlock {
        at: image.at + file_offset,
        file_offset,
        size,
        raw_size: size,
        file: file as u32,
        ..OutBlock::default()
    })
}

/// Writes the trailers of `n` blocks.
fn seal(
    read: &ReadState,
    sst: &SstBuffers,
    args: &LayoutArgs,
    blocks: *const OutBlock,
    n: u64,
) -> Result<()> {
    let (bases, memory) = (sst.bases.as_ptr(), sst.images.as_ptr());
    let (seal, checksum) = (read.device.table().seal_blocks, args.layout.checksum);
    // SAFETY: each block lies in its file's image with room for the trailer.
    let code = unsafe { seal(&read.ws.exec(), blocks, n, bases, checksum, memory) };
    read.device.check(code, "seal blocks")
}

/// Writes the filters and returns their blocks.
fn write_filters(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    args: &LayoutArgs,
    images: &[Image],
) -> Result<Vec<OutBlock>> {
    let table = read.device.table();
    let mut parts = Vec::new();
    for (file, image) in images.iter().enumerate() {
        let Some(filter) = image.filter else { continue };
        let len = filter.num_lines as usize * bloom::LINE_LEN;
        let lines = sst.filter_lines.room(len / size_of::<u32>())?;
        sst.filter_lines
            .fill(0, len / size_of::<u32>(), 0, &read.ws.stream)?;
        let filter_args = FilterArgs {
            file_start: image.entries.start as u64,
            num_entries: image.entries.len() as u64,
            num_lines: filter.num_lines,
            num_probes: filter.num_probes,
            lines,
        };
        // SAFETY: the lines exist and were cleared; the entries lie within the surviving entries.
        let code = unsafe { (table.build_filter)(&read.ws.exec(), args, &raw const filter_args) };
        read.device.check(code, "build filters")?;
        // Bits are set in whole words, but the place behind the data blocks is not aligned.
        let at = image.at + image.data_bytes;
        let to = sst.images.as_ptr().wrapping_add(at as usize);
        let mut metadata = filter.metadata.to_vec();
        // The trailer shares words with the metadata.
        metadata.resize(METADATA_LEN + BLOCK_TRAILER_SIZE, 0);
        // SAFETY: the image has room for the filter behind its data blocks.
        unsafe {
            read.ws
                .stream
                .copy(CopyKind::Inside, to, lines.cast(), len)?
        };
        sst.images
            .write(at as usize + len, &metadata, &read.ws.stream)?;
        parts.push(part(image, file, image.data_bytes, filter.bytes)?);
    }
    Ok(parts)
}
