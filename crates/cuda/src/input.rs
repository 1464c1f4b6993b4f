//! Input to the device: the byte ranges of a slice's blocks, copied into one arena.
//!
//! Several threads read pieces of the ranges into pinned memory, from where the device copies them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rockmill_core::{CancelToken, Error, InputTable, KeyRange, ReadAt, Resource, Result};

use crate::CudaSettings;
use crate::buffer::DeviceBuffer;
use crate::ffi::BlockRef;
use crate::lane::Lane;
use crate::limits::refused;
use crate::pool::Pool;
use crate::timing::Stages;

/// Bytes of a piece at most: enough that threads seldom come for the next one.
const PIECE_BYTES: u64 = 32 << 20;

/// Bytes in front of and behind every range (`types.hpp:ARENA_PADDING`), and its alignment.
const PADDING: u64 = 64;

/// Sizes of entries are 32-bit words on the device, also when an entry is stored in a longer form.
const MAX_BLOCK_BYTES: u32 = 1 << 31;

/// A range of a file and where it goes in the arena.
#[derive(Debug)]
struct Piece<'a> {
    file: &'a dyn ReadAt,
    offset: u64,
    len: u64,
    at: u64,
}

/// The blocks of a slice.
#[derive(Debug, Default)]
pub struct Input<'a> {
    pieces: Vec<Piece<'a>>,
    /// All blocks, run after run.
    pub blocks: Vec<BlockRef>,
    /// For each run that has blocks: its position in the job's inputs, and its end among the blocks.
    pub runs: Vec<(usize, usize)>,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes read from files.
    pub bytes: u64,
    /// Parts of the arena that no piece fills.
    pub gaps: Vec<Range<u64>>,
}

impl<'a> Input<'a> {
    /// Finds the blocks of `inputs` that may hold keys of `range`.
    ///
    /// # Errors
    /// Corruption if an index names bytes outside its file.
    pub fn find(inputs: &'a [InputTable], range: &KeyRange) -> Result<Self> {
        let mut input = Self {
            arena_bytes: PADDING,
            ..Self::default()
        };
        for (ordinal, table) in inputs.iter().enumerate() {
            let entries = &table.meta.index[table.blocks_in_range(range)];
            if !entries.is_empty() {
                input.add(ordinal, table, entries)?;
            }
        }
        Ok(input)
    }

    fn add(
        &mut self,
        ordinal: usize,
        table: &'a InputTable,
        entries: &[rockmill_format::index::IndexEntry],
    ) -> Result<()> {
        let file: &dyn ReadAt = &*table.file;
        // Decoding the index has checked that offsets ascend.
        let offset = entries[0].handle.offset;
        let mut end = offset;
        let guard = table.meta.footer.guard;
        let interval = table.meta.properties.data_block_restart_interval;
        let restart_interval = u32::try_from(interval).unwrap_or(u32::MAX);
        for entry in entries {
            let handle = entry.handle;
            let len = handle
                .stored_len(table.meta.file_size)
                .map_err(|e| Error::format(file.name(), e))?;
            end = end.max(handle.offset + len as u64);
            self.blocks.push(BlockRef {
                at: self.arena_bytes + (handle.offset - offset),
                file_offset: handle.offset,
                size: u32::try_from(handle.size)
                    .ok()
                    .filter(|&size| size <= MAX_BLOCK_BYTES)
                    .ok_or_else(|| refused("blocks of more than 2 GiB"))?,
                checksum_base: guard.base_context_checksum,
                checksum: guard.checksum as u32,
                restart_interval,
            });
        }
        self.runs.push((ordinal, self.blocks.len()));
        self.add_range(file, offset, end);
        Ok(())
    }

    fn add_range(&mut self, file: &'a dyn ReadAt, offset: u64, end: u64) {
        let mut at = self.arena_bytes;
        self.gaps.push(at - PADDING..at);
        let mut from = offset;
        while from < end {
            let to = (from + PIECE_BYTES).min(end);
            self.pieces.push(Piece {
                file,
                offset: from,
                len: to - from,
                at,
            });
            at += to - from;
            from = to;
        }
        self.bytes += end - offset;
        self.arena_bytes = (at + 2 * PADDING).next_multiple_of(PADDING);
        self.gaps.push(at..self.arena_bytes - PADDING);
    }

    /// File and offset of a block, for errors.
    pub fn place(&self, inputs: &'a [InputTable], block: usize) -> (&'a str, u64) {
        let run = self.runs.partition_point(|&(_, end)| end <= block);
        let (ordinal, _) = self.runs[run];
        (inputs[ordinal].file.name(), self.blocks[block].file_offset)
    }

    /// Copies all ranges to the device and waits for them.
    ///
    /// # Errors
    /// Storage, Corruption, Device, Cancelled.
    pub fn load(
        &self,
        pool: &Pool,
        settings: &CudaSettings,
        arena: &mut DeviceBuffer<u8>,
        cancel: &CancelToken,
        stages: &Stages,
    ) -> Result<()> {
        let loader = Loader {
            pool,
            pieces: &self.pieces,
            next: AtomicUsize::new(0),
            arena: Address(arena.room(self.arena_bytes as usize)?),
            cancel,
            stages,
        };
        let threads = settings.io_threads.min(self.pieces.len()).max(1);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .filter_map(|_| {
                    let builder = std::thread::Builder::new().name("rockmill-in".to_owned());
                    builder
                        .spawn_scoped(scope, || stages.count_cpu(|| loader.work()))
                        .ok()
                })
                .collect();
            let mut done = loader.work();
            for other in others {
                let result = other
                    .join()
                    .unwrap_or_else(|_| Err(Error::internal("a loading thread panicked")));
                done = done.and(result);
            }
            done
        })
    }
}

/// Device memory that several threads fill, each its own pieces.
#[derive(Debug, Clone, Copy)]
struct Address(*mut u8);

// SAFETY: the address is only handed to copies, and pieces do not overlap.
unsafe impl Sync for Address {}

/// What the loading threads share.
struct Loader<'a> {
    pool: &'a Pool,
    pieces: &'a [Piece<'a>],
    next: AtomicUsize,
    arena: Address,
    cancel: &'a CancelToken,
    stages: &'a Stages,
}

impl Loader<'_> {
    /// Takes pieces until none is left.
    fn work(&self) -> Result<()> {
        let _current = self.pool.device().make_current()?;
        let mut lane = self.pool.lane(self.cancel)?;
        let done = self.work_with(&mut lane);
        if done.is_err() {
            // The others need not go on.
            self.next.store(self.pieces.len(), Ordering::Relaxed);
        }
        done.and(lane.stream.synchronize())
    }

    fn work_with(&self, lane: &mut Lane) -> Result<()> {
        let mut turn = 0;
        while let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.cancel.check()?;
            self.copy(piece, lane, &mut turn)?;
        }
        Ok(())
    }

    /// Reads into pinned memory and copies from there; the next chunks are read meanwhile.
    fn copy(&self, piece: &Piece<'_>, lane: &mut Lane, turn: &mut usize) -> Result<()> {
        let mut done = 0;
        while done < piece.len {
            self.cancel.check()?;
            let len = (piece.len - done).min(lane.chunk_bytes() as u64) as usize;
            let bytes = self
                .stages
                .time("copy in", Resource::ToDevice, len as u64, || {
                    lane.bytes(*turn, 0..len)
                })?;
            self.stages.time("read", Resource::Host, len as u64, || {
                piece.file.read_exact_at(bytes, piece.offset + done)
            })?;
            let to = self.arena.0.wrapping_add((piece.at + done) as usize);
            // SAFETY: the arena has room for every piece, and whoever decodes it waits for the lane.
            unsafe { lane.send(*turn, to, len)? };
            done += len as u64;
            *turn += 1;
        }
        Ok(())
    }
}
