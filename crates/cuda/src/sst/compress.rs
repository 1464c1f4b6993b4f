//! From raw images of data blocks to stored blocks: compressed by Rockmill's own code on the device, or by a library on
//! threads of the host, which receive raw blocks and send back compressed ones.

use std::collections::VecDeque;

use rockmill_core::{Error, Lock, Resource, Result};
use rockmill_format::compression::Compressor;
use rockmill_format::handle::BLOCK_TRAILER_SIZE;

use super::buffers::SstBuffers;
use super::images::PADDING;
use super::output::Writing;
use super::parts::{Block, parts_of};
use super::size::CompressScratch;
use super::store::WRITERS;
use crate::driver::ffi::LayoutArgs;
use crate::driver::{altered, refused};
use crate::memory::{CHUNKS, DeviceSlice, DeviceSliceMut};
use crate::read::{ReadState, error_in};

/// Host memory of compression there, for each block: its place, its offset, its stored size and its codec.
pub const HOST_COMPRESSION_BYTES_PER_BLOCK: u64 =
    (size_of::<Block>() + size_of::<u64>() + 2 * size_of::<u32>()) as u64;

/// Writes raw images of all blocks and compresses them.
pub fn compress(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    with: Writing<'_>,
    args: &mut LayoutArgs,
) -> Result<()> {
    let num_blocks = args.num_blocks as usize;
    args.raw_offsets = sst.raw_offsets.room(num_blocks + 1)?;
    // SAFETY: the block buffers have room for one more than the number of blocks.
    unsafe { read.ws.stages().place_raw(args) }?;
    let (offsets, [word, _]) =
        (sst.raw_offsets).download_with(num_blocks, 1, &read.ws.errors, &read.ws.stream)?;
    // Such blocks have sizes other than the bytes that would be written.
    if error_in(word).is_some() {
        return Err(refused("blocks of 4 GiB"));
    }
    let bytes = offsets[0];
    let room = bytes.saturating_add(2 * PADDING) as usize;
    args.stored_sizes = sst.stored_sizes.room(num_blocks)?;
    args.codecs = sst.codecs.room(num_blocks)?;
    args.raw_sums = sst.raw_sums.room(num_blocks)?;
    args.raw = sst.raw.room(room)?;
    args.packed = sst.packed.room(room)?;
    let processors = read.device.properties().multiprocessors;
    let scratch = CompressScratch::new(with.plan, bytes, args.num_blocks, processors);
    if scratch.bytes > 0 {
        args.compress_scratch = sst.compress_scratch.room(scratch.bytes as usize)?;
        args.compress_groups = scratch.groups;
        args.compress_group_bytes = scratch.group_bytes;
        args.compress_usual = scratch.usual_block;
    }
    for gap in [0, (PADDING + bytes) as usize] {
        sst.raw.fill(gap, PADDING as usize, 0, &read.ws.stream)?;
    }
    // Words at the ends of each compressed block are read whole.
    sst.packed.fill(0, room, 0, &read.ws.stream)?;
    // SAFETY: there is room for all blocks as they were measured, twice, with padding around them.
    unsafe { read.ws.stages().compress_blocks(args) }?;
    read.mark("compress", 2 * bytes)?;
    if with.plan.table.compression.is_by_library() {
        compress_on_host(read, sst, with, num_blocks, bytes)?;
        read.marks.end_wait(&read.ws.stream)?;
    }
    Ok(())
}

/// Consecutive blocks that fit into a chunk.
#[derive(Debug)]
struct Batch<'a> {
    raw: DeviceSlice<'a, u8>,
    packed: DeviceSliceMut<'a, u8>,
    /// Starts of the blocks, and the end of the last one's trailer.
    offsets: &'a [u64],
    stored_sizes: &'a mut [u32],
    codecs: &'a mut [u32],
}

/// Compresses all blocks of `bytes` bytes, trailers included, by a library on some threads of the task. Each waits for
/// a ring, so all tasks together use as many threads as there are rings.
fn compress_on_host(
    read: &ReadState,
    sst: &mut SstBuffers,
    with: Writing<'_>,
    num_blocks: usize,
    bytes: u64,
) -> Result<()> {
    let stream = &read.ws.stream;
    // Raw images are complete after this.
    let offsets = sst.raw_offsets.download(0, num_blocks + 1, stream)?;
    let blocks = blocks_between(&offsets, bytes)?;
    let mut stored_sizes: Vec<u32> = blocks.iter().map(|block| block.payload as u32).collect();
    let mut codecs = vec![0; num_blocks];
    let mut large = Vec::new();
    let mut batches = VecDeque::new();
    let (start, end) = (PADDING as usize, (PADDING + bytes) as usize);
    let raw = sst.raw.view(start..end);
    let mut packed = sst.packed.room_view(end)?;
    packed.take(start);
    let (mut sizes_left, mut codecs_left) = (&mut *stored_sizes, &mut *codecs);
    for part in parts_of(&blocks, with.pool.chunk_bytes() as u64) {
        let n = part.blocks.len();
        let len = (part.bytes.end - part.bytes.start) as usize;
        let batch = Batch {
            raw: raw.part(part.bytes.start as usize..part.bytes.end as usize),
            packed: packed.take(len),
            offsets: &offsets[part.blocks.start..=part.blocks.end],
            stored_sizes: sizes_left.split_off_mut(..n).unwrap_or_default(),
            codecs: codecs_left.split_off_mut(..n).unwrap_or_default(),
        };
        match part.is_whole {
            true => batches.push_back(batch),
            false => large.extend(part.blocks),
        }
    }
    let workers = Workers {
        with,
        waiting: Lock::new(batches),
    };
    workers.run()?;
    let mut compressor = compressor(with)?;
    // Blocks that are larger than a chunk.
    for block in large {
        with.cancel.check()?;
        let at = start + offsets[block] as usize;
        let len = stored_sizes[block] as usize;
        let mut bytes = sst.raw.download(at, len, stream)?;
        let compressed = compressor.compress_over(&mut bytes);
        let (stored, kind) = compressed.map_err(|e| Error::internal(e.what))?;
        sst.packed.write(at, &bytes[..stored], stream)?;
        (stored_sizes[block], codecs[block]) = (stored as u32, kind as u32);
    }
    sst.stored_sizes.upload(&stored_sizes, stream)?;
    sst.codecs.upload(&codecs, stream)?;
    Ok(())
}

/// The blocks that end at these offsets from the device.
fn blocks_between(offsets: &[u64], bytes: u64) -> Result<Vec<Block>> {
    let block = |ends: &[u64]| {
        let payload = (ends[1].checked_sub(ends[0])?).checked_sub(BLOCK_TRAILER_SIZE as u64)?;
        u32::try_from(payload).ok()?;
        Some(Block {
            offset: ends[0],
            payload,
            metadata: None,
        })
    };
    let blocks: Option<Vec<_>> = offsets.windows(2).map(block).collect();
    let ends = (offsets.first(), offsets.last());
    let blocks = blocks.filter(|_| ends == (Some(&0), Some(&bytes)));
    blocks.ok_or_else(|| altered("the sizes of blocks changed on their way back"))
}

fn compressor(with: Writing<'_>) -> Result<Compressor> {
    Compressor::new(&with.plan.table.compression).map_err(|e| Error::internal(e.what))
}

/// State shared by the compressing threads.
struct Workers<'a> {
    with: Writing<'a>,
    waiting: Lock<VecDeque<Batch<'a>>>,
}

impl<'a> Workers<'a> {
    fn run(&self) -> Result<()> {
        let threads = WRITERS.min(self.waiting.lock().len());
        (self.with.stages).on_threads(threads, "rockmill-pack", || self.work())
    }

    /// Compresses batches until none is left.
    fn work(&self) -> Result<()> {
        let _current = self.with.pool.device().make_current()?;
        let mut compressor = compressor(self.with)?;
        loop {
            let batches = self.next();
            if batches.is_empty() {
                return Ok(());
            }
            let done = self.compress(batches, &mut compressor);
            if done.is_err() {
                // The other threads may stop.
                self.waiting.lock().clear();
                return done;
            }
        }
    }

    /// At most as many batches as a ring has chunks, and fewer if the other threads would have none.
    fn next(&self) -> Vec<Batch<'a>> {
        let mut waiting = self.waiting.lock();
        let share = (waiting.len() / WRITERS).clamp(1, CHUNKS);
        let n = share.min(waiting.len());
        waiting.drain(..n).collect()
    }

    /// Keeps a ring only during this call, so other tasks get one soon.
    fn compress(&self, mut batches: Vec<Batch<'_>>, compressor: &mut Compressor) -> Result<()> {
        let (stages, cancel) = (self.with.stages, self.with.cancel);
        let mut ring = self.with.pool.ring(cancel)?;
        for (turn, batch) in batches.iter().enumerate() {
            // SAFETY: the raw images stay unchanged until the task is done.
            unsafe { ring.fetch(turn, 0, batch.raw)? };
        }
        for (turn, batch) in batches.iter_mut().enumerate() {
            cancel.check()?;
            let len = batch.raw.len();
            let bytes = stages.time("raw blocks back", Resource::FromDevice, len as u64, || {
                ring.bytes(turn, 0..len)
            })?;
            stages.time("compress on host", Resource::Host, len as u64, || {
                batch.compress(bytes, compressor)
            })?;
            // SAFETY: no other code has this part, and the ring is waited for below, or before it is leased again.
            unsafe { ring.send(turn, &mut batch.packed)? };
        }
        let bytes = batches.iter().map(|batch| batch.raw.len() as u64).sum();
        stages.time("compressed blocks in", Resource::ToDevice, bytes, || {
            ring.stream.synchronize()
        })
    }
}

impl Batch<'_> {
    /// Compresses each block in place.
    fn compress(&mut self, bytes: &mut [u8], compressor: &mut Compressor) -> Result<()> {
        let stored = self.stored_sizes.iter_mut().zip(&mut *self.codecs);
        for ((size, codec), ends) in stored.zip(self.offsets.windows(2)) {
            let start = (ends[0] - self.offsets[0]) as usize;
            let block = &mut bytes[start..start + *size as usize];
            let (stored, kind) =
                (compressor.compress_over(block)).map_err(|e| Error::internal(e.what))?;
            (*size, *codec) = (stored as u32, kind as u32);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::{CancelToken, ErrorKind, KeyRange, OutputPlan};
    use rockmill_format::compression::{CompressionType, Implementation};

    use super::*;
    use crate::driver::ffi::{InputTotals, Key, RetainTotals, ValueRef};
    use crate::driver::{Device, Marks, MemoryUser, Stages, test_target};
    use crate::memory::Pool;
    use crate::read::{ReadBuffers, SelectedRows, Side};
    use crate::settings::CudaSettings;
    use crate::sst::images::plan_images;
    use crate::sst::layout::lay_out;

    /// The values have a size, but no bytes: a refused block is not written.
    #[test]
    fn a_block_of_4_gib_is_refused_before_it_is_compressed() {
        const VALUE_BYTES: u64 = 3 << 30;
        const TASK_BYTES: u64 = 1 << 20;
        let device = Device::open(test_target()).expect("the device opens");
        let pool = Pool::new(device.clone(), &CudaSettings::default()).expect("a pool");
        let (stages, cancel) = (Stages::default(), CancelToken::new());
        for implementation in [Implementation::Library, Implementation::Rockmill1] {
            let mut plan = OutputPlan::default();
            plan.table.block_size = u64::MAX;
            plan.splitting.single_file = true;
            plan.table.compression.kind = CompressionType::Lz4;
            plan.table.compression.implementation = implementation;
            let ws = pool
                .workspace(MemoryUser::Tasks, TASK_BYTES, &cancel)
                .expect("memory");
            let mut read = ReadState {
                marks: Marks::start(&ws.stream).expect("an event"),
                device: device.clone(),
                buffers: ReadBuffers::new(&ws.arena),
                arena_end: 0,
                num_fragments: 0,
                made_bytes: 0,
                ws,
            };
            read.ws.make_scratch(&device, 100).expect("memory");
            let keys = [0, 1].map(|entry| Key {
                hi: u64::from(entry),
                entry,
                len: 8,
                ..Key::default()
            });
            let values = [ValueRef {
                at: 0,
                len: VALUE_BYTES,
            }; 2];
            let stream = &read.ws.stream;
            read.buffers.keys.upload(&keys, stream).expect("memory");
            read.buffers.values.upload(&values, stream).expect("memory");
            read.buffers.hashes.upload(&[0; 2], stream).expect("memory");
            let selected_rows = SelectedRows {
                side: Side::Keys,
                len: keys.len(),
                input: InputTotals::default(),
                totals: RetainTotals::default(),
                entries_by_run: Vec::new(),
                wide: false,
                types: 0,
            };
            let sst = &mut SstBuffers::new(&read.ws.arena);
            let with = Writing {
                pool: &pool,
                plan: &plan,
                stages: &stages,
                cancel: &cancel,
            };
            let range = KeyRange::default();
            let mut args =
                lay_out(&mut read, sst, &plan, &range, &selected_rows, 0).expect("it is measured");
            let planned = plan_images(&mut read, sst, with, &mut args, &selected_rows);
            let error = planned.expect_err("too large");
            assert!(error.what.contains("blocks of 4 GiB"), "{error}");
        }
    }

    #[test]
    fn offsets_that_are_not_those_of_blocks_are_noticed() {
        const OFFSETS: [u64; 4] = [0, 105, 110, 310];
        let blocks = blocks_between(&OFFSETS, 310).expect("sound");
        let payloads: Vec<_> = blocks.iter().map(|block| block.payload).collect();
        assert_eq!(payloads, [100, 0, 195]);
        for (at, other) in [(0, 1), (1, 106), (1, 311), (2, 104), (3, 309), (3, 1 << 40)] {
            let mut offsets = OFFSETS;
            offsets[at] = other;
            let error = blocks_between(&offsets, 310).expect_err("altered");
            assert_eq!(error.kind, ErrorKind::Verification, "{at} {other}");
        }
    }
}
