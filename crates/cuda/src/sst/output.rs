//! From surviving entries to images of files: the device lays out, writes and seals them, then decodes them again and
//! compares while the host copies them back.

use std::sync::Arc;

use rockmill_core::{
    CachedOutput, CancelToken, FileIdentity, OutputFile, OutputPlan, Request, Resource, Result,
    SstOutput, SstSink, Visibility, block_guard,
};
use rockmill_format::filter::{METADATA_LEN, bloom};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard};
use rockmill_format::key;
use rockmill_format::range_tombstone::RangeTombstone;

use super::buffers::SstBuffers;
use super::cuts::{Planned, plan_files};
use super::images::{Image, plan_images};
use super::layout::lay_out;
use super::store::{NewFile, store, store_tombstones};
use super::verify::Verification;
use crate::driver::ffi::{FilterArgs, Key, LayoutArgs, OutBlock};
use crate::driver::{CopyKind, Stages, altered, refused};
use crate::memory::Pool;
use crate::read::{ReadState, SelectedRows};

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
    selected_rows: &SelectedRows,
    request: &Request<'_>,
    with: Writing<'_>,
    sink: &mut dyn SstSink,
) -> Result<SstOutput> {
    let mut output = SstOutput {
        verified: true,
        ..SstOutput::default()
    };
    if selected_rows.len == 0 && read.num_fragments == 0 {
        return Ok(output);
    }
    let sst = &mut SstBuffers::new(&read.ws.arena);
    let rules = match request.visibility {
        Visibility::Compaction(rules) => Some(rules),
        Visibility::Snapshot(_) => None,
    };
    // At the bottom, files do not end where range tombstones begin.
    let num_fragments = match rules {
        Some(rules) if !rules.bottommost => read.num_fragments,
        _ => 0,
    };
    let mut args = lay_out(
        read,
        sst,
        with.plan,
        request.range,
        selected_rows,
        num_fragments,
    )?;
    let entry_bytes = (selected_rows.len * size_of::<Key>()) as u64;
    read.mark("lay out", 4 * entry_bytes)?;
    let planned = match rules {
        Some(rules) if read.num_fragments > 0 => {
            Some(plan_files(read, sst, selected_rows, rules, request.range)?)
        }
        _ => None,
    };
    let mut images = match selected_rows.len {
        0 => Vec::new(),
        _ => plan_images(read, sst, with, &mut args, selected_rows)?,
    };
    read.mark("measure", 2 * entry_bytes)?;
    let planned =
        planned.unwrap_or_else(|| images.iter().map(Planned::without_tombstones).collect());
    let (files, without_entries) = create(&mut images, planned, sink)?;
    if !images.is_empty() {
        write_images(
            read,
            sst,
            selected_rows,
            &args,
            &images,
            with,
            files,
            &mut output,
        )?;
    }
    for (file, tombstones) in without_entries {
        output.files.push(store_tombstones(with, file, tombstones)?);
    }
    output.files.sort_by_key(|file| file.number);
    Ok(output)
}

/// A file with entries, and its first user key if it was read.
type NewImage = (NewFile, Option<Vec<u8>>);

/// A file with nothing but range tombstones.
type TombstoneFile = (NewFile, Vec<RangeTombstone>);

/// Begins all files in the order of their keys: those of images, which get their range tombstones, and those with only
/// range tombstones.
fn create(
    images: &mut [Image],
    planned: Vec<Planned>,
    sink: &mut dyn SstSink,
) -> Result<(Vec<NewImage>, Vec<TombstoneFile>)> {
    let (mut with_entries, mut without) = (Vec::new(), Vec::new());
    let mut images = images.iter_mut();
    for planned in planned {
        let file = sink.create()?;
        if planned.entries.is_empty() {
            without.push((file, planned.tombstones));
            continue;
        }
        match images.next() {
            Some(image) if image.entries == planned.entries => {
                image.tombstones = planned.tombstones;
            }
            _ => return Err(altered("files have other entries than their keys")),
        }
        with_entries.push((file, planned.first_key));
    }
    match images.next() {
        None => Ok((with_entries, without)),
        Some(_) => Err(altered("a file has no keys")),
    }
}

/// Encodes, verifies and stores the files that have entries.
#[expect(clippy::too_many_arguments, reason = "the state of one task")]
fn write_images(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    selected_rows: &SelectedRows,
    args: &LayoutArgs,
    images: &[Image],
    with: Writing<'_>,
    files: Vec<NewImage>,
    output: &mut SstOutput,
) -> Result<()> {
    let guards: Vec<BlockGuard> = files
        .iter()
        .map(|&((number, _), _)| block_guard(with.plan, number))
        .collect();
    let edges = encode(read, sst, args, images, &guards)?;
    // Range tombstones were split at these keys.
    let is_first = |(image, (_, first)): (&Image, &NewImage)| {
        let smallest = key::split(image.edges(&edges).0).map(|(user_key, _)| user_key);
        first.is_none() || first.as_deref() == smallest
    };
    if !images.iter().zip(&files).all(is_first) {
        return Err(altered("a file begins with another key than was read"));
    }
    // Before the device begins to verify.
    let sums = match args.raw_sums.is_null() {
        true => Vec::new(),
        false => sst
            .raw_sums
            .download(0, args.num_blocks as usize, &read.ws.stream)?,
    };
    let verify = Verification::start(read, sst, selected_rows, args, images)?;
    let end = images.last().map_or(0, |image| image.at + image.len());
    let memory = sst.images.view(0..end as usize);
    let files = files.into_iter().map(|(file, _)| file).collect();
    let files = store(with, images, memory, &edges, &sums, files)?;
    // The files are synced; the device has finished comparing long before.
    verify.finish(&read.ws, sst, images, &files)?;
    let cache = with.pool.cache();
    if cache.is_on() {
        let bytes = images.iter().map(|image| image.data_bytes).sum();
        with.stages
            .time("keep on device", Resource::Host, bytes, || {
                for (image, stored) in images.iter().zip(&files) {
                    // The files need no cache, and a device that has failed fails again.
                    let kept = keep(read, sst, with, image, &stored.file);
                    output.cached.extend(kept.ok().flatten());
                }
                Ok(())
            })?;
    }
    for stored in files {
        output.files.push(stored.file);
        output.size_sample.add(stored.size_sample);
    }
    Ok(())
}

/// Caches a file's data blocks, which are verified. None if there is no room.
fn keep(
    read: &ReadState,
    sst: &SstBuffers,
    with: Writing<'_>,
    image: &Image,
    file: &OutputFile,
) -> Result<Option<Arc<dyn CachedOutput>>> {
    let table = &with.plan.table;
    let Some(identity) = FileIdentity::of_output(file, table) else {
        return Ok(None);
    };
    let level = with.plan.properties.output_level;
    let from = sst.images.as_ptr().wrapping_add(image.at as usize);
    let (cache, stream) = (with.pool.cache(), &read.ws.stream);
    // SAFETY: the image begins with the file's data blocks, and nothing changes images any more.
    unsafe { cache.keep_output(identity, level, image.data_bytes, from, stream) }
}

/// Writes the images and returns the internal keys at the files' ends.
fn encode(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    args: &LayoutArgs,
    images: &[Image],
    guards: &[BlockGuard],
) -> Result<Vec<u8>> {
    let bases: Vec<u32> = guards.iter().map(|g| g.base_context_checksum).collect();
    sst.bases.upload(&bases, &read.ws.stream)?;
    let bytes: u64 = images.iter().map(Image::len).sum();
    let image_memory = sst.images.as_ptr();
    // SAFETY: every file's image has room for the measured blocks; there are as many blocks, places and bases as blocks
    // and files.
    unsafe {
        read.ws.stages().place_blocks(args, images.len() as u32)?;
        read.ws.stages().write_blocks(args, image_memory)?;
    }
    read.mark("encode", 2 * bytes)?;
    seal(read, sst, args, args.blocks, args.num_blocks)?;
    read.mark("seal blocks", bytes)?;
    let mut parts = write_filters(read, sst, args, images)?;
    read.mark("filters", bytes / 64)?;
    // SAFETY: as above, with room for each file's index behind the preceding parts.
    unsafe { read.ws.stages().write_index(args, image_memory) }?;
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
    let (stages, checksum) = (read.ws.stages(), args.layout.checksum);
    // SAFETY: each block lies in its file's image with room for the trailer.
    unsafe { stages.seal_blocks(blocks, n, bases, checksum, memory) }
}

/// Writes the filters and returns their blocks.
fn write_filters(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    args: &LayoutArgs,
    images: &[Image],
) -> Result<Vec<OutBlock>> {
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
        unsafe { read.ws.stages().build_filter(args, &filter_args) }?;
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
