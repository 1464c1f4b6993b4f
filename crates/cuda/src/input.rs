//! Input to the device: the byte ranges of a slice's blocks, copied into one arena.
//!
//! Ranges are read into pinned memory, by default. Or what lies in the page cache is mapped, populated,
//! registered, and copied to the device straight from there: half the processor time, but registering is one
//! after another whatever the threads. Rockmill's host code never looks at mapped bytes, but the driver
//! copies small pieces by itself, which would raise SIGBUS if the file were truncated meanwhile; so those are
//! read. So is what would register more at a time than the settings allow. docs/design/gpu-spike.md has the
//! numbers.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rockmill_core::{CancelToken, Error, InputTable, KeyRange, ReadAt, Resource, Result};
use rockmill_sysio::has_disk;

use crate::CudaSettings;
use crate::buffer::DeviceBuffer;
use crate::ffi::BlockRef;
use crate::lane::Lane;
use crate::limits::refused;
use crate::mapped::{Mapping, Registered, is_resident};
use crate::pool::Pool;
use crate::stream::Stream;
use crate::timing::Stages;

/// How input gets to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputPath {
    /// Mapped and registered where it is resident, read where it is not.
    Mapped,
    /// For hosts that are short of processors rather than of time: mapped so on file systems with a disk, which takes a fifth of
    /// the processor time or more off, and up to two fifths more time; read on those in memory, where little is to be gained.
    Auto,
    /// Mapped and registered wherever the system allows it; for measurements.
    MappedAlways,
    /// Always read into pinned memory.
    Read,
}

/// Bytes in front of and behind every range (`types.hpp:ARENA_PADDING`), and its alignment.
const PADDING: u64 = 64;

/// Sizes of entries are 32-bit words on the device, also when an entry is stored in a longer form.
const MAX_BLOCK_BYTES: u32 = 1 << 31;

/// Smaller pieces are read: the driver copies small ones (12 KiB were seen, 32 were not) by the processor rather
/// than by the device.
pub const MIN_MAPPED_BYTES: u64 = 1 << 20;

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
    /// Bytes of a piece at most.
    piece_bytes: u64,
    /// Parts of the arena that no piece fills.
    pub gaps: Vec<Range<u64>>,
}

impl<'a> Input<'a> {
    /// Finds the blocks of `inputs` that may hold keys of `range`.
    ///
    /// # Errors
    /// Corruption if an index names bytes outside its file.
    pub fn find(inputs: &'a [InputTable], range: &KeyRange, piece_bytes: u64) -> Result<Self> {
        let mut input = Self {
            arena_bytes: PADDING,
            piece_bytes,
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

    /// The whole of each file, without blocks.
    pub fn whole(files: &'a [Box<dyn ReadAt>], piece_bytes: u64) -> Self {
        let mut input = Self {
            arena_bytes: PADDING,
            piece_bytes,
            ..Self::default()
        };
        for file in files {
            input.add_range(&**file, 0, file.len());
        }
        input
    }

    fn add_range(&mut self, file: &'a dyn ReadAt, offset: u64, end: u64) {
        let mut at = self.arena_bytes;
        self.gaps.push(at - PADDING..at);
        let mut from = offset;
        while from < end {
            // Pieces end on multiples of their size in the file, so that no page is mapped twice.
            let to = ((from / self.piece_bytes + 1) * self.piece_bytes).min(end);
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
            settings,
            held: Mutex::default(),
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
            let held = loader
                .held
                .lock()
                .map(|mut held| std::mem::take(&mut *held));
            let held = held.unwrap_or_default();
            if !held.is_empty() {
                let bytes = self.bytes;
                loader.unmap(held, bytes)?;
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
    settings: &'a CudaSettings,
    /// What was mapped and waits to be unmapped with the rest; unregistering waits for the device.
    held: Mutex<Vec<Registered<'a>>>,
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
            if !self.copy_mapped(piece, &lane.stream)? {
                self.copy_read(piece, lane, &mut turn)?;
            }
        }
        Ok(())
    }

    /// Copies from the page cache. False if that cannot be done.
    fn copy_mapped(&self, piece: &Piece<'_>, stream: &Stream) -> Result<bool> {
        let Some(fd) = piece.file.as_fd() else {
            return Ok(false);
        };
        if piece.len < MIN_MAPPED_BYTES {
            return Ok(false);
        }
        let is_resident = || is_resident(fd, piece.offset, piece.len);
        let is_wanted = match self.settings.input_path {
            InputPath::Read => false,
            InputPath::MappedAlways => true,
            InputPath::Mapped => is_resident(),
            InputPath::Auto => has_disk(fd) && is_resident(),
        };
        let bytes = piece.len;
        let Some(share) = is_wanted
            .then(|| self.pool.mappings().take(bytes))
            .flatten()
        else {
            return Ok(false);
        };
        let Some(mapping) = self.stages.time("map", Resource::Host, bytes, || {
            Ok(Mapping::populated(fd, piece.offset, bytes))
        })?
        else {
            return Ok(false);
        };
        let device = self.pool.device();
        let Some(registered) = self.stages.time("register", Resource::Host, bytes, || {
            Ok(Registered::new(device, mapping, share))
        })?
        else {
            return Ok(false);
        };
        self.stages.time("copy in", Resource::ToDevice, bytes, || {
            let from = registered.bytes();
            let to = self.arena.0.wrapping_add(piece.at as usize);
            // SAFETY: the arena has room for every piece; the piece is registered, and this waits.
            unsafe { stream.copy_to_device(to.cast(), from, bytes as usize)? };
            stream.synchronize()
        })?;
        if self.settings.unmap_together {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push(registered);
        } else {
            self.unmap(vec![registered], bytes)?;
        }
        Ok(true)
    }

    fn unmap(&self, pieces: Vec<Registered<'_>>, bytes: u64) -> Result<()> {
        let mappings: Vec<_> = self.stages.time("unregister", Resource::Host, bytes, || {
            Ok(pieces.into_iter().map(Registered::unregister).collect())
        })?;
        self.stages.time("unmap", Resource::Host, bytes, || {
            drop(mappings);
            Ok(())
        })
    }

    /// Reads into pinned memory and copies from there; the next chunks are read meanwhile.
    fn copy_read(&self, piece: &Piece<'_>, lane: &mut Lane, turn: &mut usize) -> Result<()> {
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
