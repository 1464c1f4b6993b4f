//! Copies a task's input to the device: the byte ranges of its blocks, into one arena.
//!
//! Several threads read segments of the ranges into pinned memory, from which the device copies them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use rockmill_core::{
    Cacheable, CancelToken, Error, InputTable, KeyRange, Lock, ReadAt, Resource, Result,
};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::CompressionType;
use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::index::IndexEntry;

use super::groups::{BlockSource, Grouping, NewGroup, UsedGroup, block_sources};
use super::host_blocks::{HostBlocks, is_for_host};
use super::size::may_be_compressed;
use crate::cache::{FileCache, Part};
use crate::driver::ffi::{
    ARENA_PADDING, BlockRef, CODEC_IN_TRAILER, MAX_BLOCK_BYTES, STORED_SEQUENCE,
};
use crate::driver::{CopyKind, Stages, Stream, refused};
use crate::memory::{Allocation, CopyRing, DeviceBuffer, DeviceSliceMut, Pool};
use crate::settings::IO_THREADS;

/// Maximum bytes of a segment: large enough that threads seldom fetch the next one.
const SEGMENT_BYTES: u64 = 32 << 20;

/// Bytes in front of and behind every range (`types.hpp:ARENA_PADDING`), and its alignment.
pub const PADDING: u64 = ARENA_PADDING;

/// Start of an arena's first range.
pub const ARENA_START: u64 = PADDING;

/// Start of the next range behind one of `len` bytes that begins at `at`, and the possible end of the arena.
pub fn arena_end(at: u64, len: u64) -> u64 {
    at.saturating_add(len)
        .saturating_add(2 * PADDING)
        .checked_next_multiple_of(PADDING)
        .unwrap_or(u64::MAX)
}

/// A range of a file and its place in the arena.
#[derive(Debug)]
struct Segment<'a> {
    file: &'a dyn ReadAt,
    offset: u64,
    len: u64,
    at: u64,
}

/// A part of a file that is on the device already, and its place in the arena.
#[derive(Debug)]
struct CachedSegment {
    chunk: Arc<Allocation>,
    from: u64,
    len: u64,
    at: u64,
}

/// A range of a file that may be cached, and its place in the arena.
#[derive(Debug)]
pub struct CacheableRange<'a> {
    /// Name of the file.
    pub name: &'a str,
    pub of: Cacheable,
    /// End of the file's last data block.
    pub data_bytes: u64,
    pub range: Range<u64>,
    pub at: u64,
    /// Bytes of it that were found on the device.
    pub cached_bytes: u64,
}

/// The blocks of a task.
#[derive(Debug, Default)]
pub struct Input<'a> {
    segments: Vec<Segment<'a>>,
    cached: Vec<CachedSegment>,
    /// The ranges of files that may be cached.
    pub cacheable: Vec<CacheableRange<'a>>,
    /// All blocks to decode, run after run.
    pub blocks: Vec<BlockRef>,
    /// For each run that has blocks or cached groups: its position in the job's inputs, and its end among the blocks.
    pub runs: Vec<(usize, usize)>,
    /// The cached groups that take the place of blocks, run after run.
    pub used: Vec<UsedGroup>,
    /// The groups that may be kept.
    pub new_groups: Vec<NewGroup>,
    /// Whether these groups have the bytes of all keys.
    pub has_wide_groups: bool,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes read from files.
    pub bytes: u64,
    /// Whether some of the blocks can be compressed.
    pub is_compressed: bool,
    /// Parts of the arena that no segment fills.
    pub gaps: Vec<Range<u64>>,
}

impl<'a> Input<'a> {
    /// Finds the blocks of `inputs` that may have keys of `range`. Those `on_host` are taken from there, and those in
    /// `cache`, if there is one, from the device; if there is a `grouping`, also as decoded groups.
    ///
    /// # Errors
    /// Corruption if an index names bytes outside its file.
    pub fn find(
        inputs: &'a [InputTable],
        range: &KeyRange,
        on_host: &'a [HostBlocks],
        cache: Option<&FileCache>,
        grouping: Option<Grouping>,
    ) -> Result<Self> {
        let mut input = Self {
            has_wide_groups: grouping.is_some_and(|grouping| grouping.is_wide),
            arena_bytes: ARENA_START,
            is_compressed: inputs.iter().any(may_be_compressed),
            ..Self::default()
        };
        for (ordinal, table) in inputs.iter().enumerate() {
            if !table.overlaps(range) {
                continue;
            }
            if is_for_host(table) {
                for part in on_host.iter().filter(|part| part.ordinal == ordinal) {
                    input.add_part(table, part)?;
                }
                input.bytes += table.stored_bytes(range);
            } else {
                input.add_sources(table, range, cache, grouping)?;
            }
            input.runs.push((ordinal, input.blocks.len()));
        }
        Ok(input)
    }

    /// The blocks of a table, and groups in place of some.
    fn add_sources(
        &mut self,
        table: &'a InputTable,
        range: &KeyRange,
        cache: Option<&FileCache>,
        grouping: Option<Grouping>,
    ) -> Result<()> {
        let mut sources = block_sources(table, range, cache.zip(grouping))
            .into_iter()
            .peekable();
        while let Some(source) = sources.next() {
            let (mut blocks, mut name) = match source {
                BlockSource::Cached { of, name, group } => {
                    self.used.push(UsedGroup {
                        of,
                        name,
                        group,
                        run: self.runs.len(),
                        before: self.blocks.len(),
                    });
                    continue;
                }
                BlockSource::Blocks { blocks, name } => (blocks, name),
            };
            // Neighbours are read together.
            let (first, mut start) = (self.blocks.len(), blocks.start);
            let begin = start;
            loop {
                let place = first + start - begin..first + blocks.end - begin;
                let new = name.and_then(|name| NewGroup::new(table, name, place));
                self.new_groups.extend(new);
                let is_blocks = |next: &BlockSource| matches!(next, BlockSource::Blocks { .. });
                let Some(BlockSource::Blocks {
                    blocks: next,
                    name: of_next,
                }) = sources.next_if(is_blocks)
                else {
                    break;
                };
                (start, blocks.end, name) = (next.start, next.end, of_next);
            }
            self.bytes += self.add(table, &table.meta.index[blocks], cache)?;
        }
        Ok(())
    }

    /// Blocks in the host's memory, which have been checked there.
    fn add_part(&mut self, table: &InputTable, part: &'a HostBlocks) -> Result<()> {
        let mut at = 0;
        for &(file_offset, size) in &part.blocks {
            let block = self.block(table, file_offset, at, size)?;
            self.blocks.push(BlockRef {
                checksum: ChecksumType::None as u32,
                ..block
            });
            at += size + BLOCK_TRAILER_SIZE as u64;
        }
        let len = part.len();
        self.add_range(part, 0, vec![Part::InFile { len }]);
        Ok(())
    }

    /// A block of `size` bytes, `from_range` bytes behind the beginning of the next range.
    fn block(
        &self,
        table: &InputTable,
        file_offset: u64,
        from_range: u64,
        size: u64,
    ) -> Result<BlockRef> {
        let guard = table.meta.footer.guard;
        let interval = table.meta.properties.data_block_restart_interval;
        let size = u32::try_from(size).ok();
        let size = size.filter(|&size| size <= MAX_BLOCK_BYTES);
        let size = size.ok_or_else(|| refused("blocks of more than 2 GiB"))?;
        Ok(BlockRef {
            at: self.arena_bytes + from_range,
            file_offset,
            stored_size: size,
            raw_size: size,
            codec: match self.is_compressed {
                true => CODEC_IN_TRAILER,
                false => CompressionType::None as u32,
            },
            checksum_base: guard.base_context_checksum,
            checksum: guard.checksum as u32,
            restart_interval: u32::try_from(interval).unwrap_or(u32::MAX),
            sequence: table.global_sequence().unwrap_or(STORED_SEQUENCE),
        })
    }

    /// Returns how many bytes of the file are read.
    fn add(
        &mut self,
        table: &'a InputTable,
        entries: &[IndexEntry],
        cache: Option<&FileCache>,
    ) -> Result<u64> {
        let file: &dyn ReadAt = &*table.file;
        // Decoding the index has checked that offsets ascend.
        let offset = entries[0].handle.offset;
        let mut end = offset;
        for entry in entries {
            let handle = entry.handle;
            let len = handle
                .stored_len(table.meta.file_size)
                .map_err(|e| Error::format(file.name(), e))?;
            end = end.max(handle.offset + len as u64);
            let block = self.block(table, handle.offset, handle.offset - offset, handle.size)?;
            self.blocks.push(block);
        }
        let parts = match (cache, table.cacheable()) {
            (Some(cache), Some(&of)) => self.find_cached(cache, of, table, offset..end),
            _ => vec![Part::InFile { len: end - offset }],
        };
        self.add_range(file, offset, parts);
        Ok(end - offset)
    }

    /// The parts of the next range, which is one of a file that may be cached.
    fn find_cached(
        &mut self,
        cache: &FileCache,
        of: Cacheable,
        table: &'a InputTable,
        range: Range<u64>,
    ) -> Vec<Part> {
        let parts = cache.find(&of, range.clone());
        let cached = parts.iter().map(|part| match part {
            Part::Cached { len, .. } => *len,
            Part::InFile { .. } => 0,
        });
        let last = table.meta.index.last();
        self.cacheable.push(CacheableRange {
            name: table.file.name(),
            of,
            data_bytes: last.map_or(0, |last| last.handle.checked_end().unwrap_or(0)),
            range,
            at: self.arena_bytes,
            cached_bytes: cached.sum(),
        });
        parts
    }

    fn add_range(&mut self, file: &'a dyn ReadAt, offset: u64, parts: Vec<Part>) {
        let (mut at, mut from) = (self.arena_bytes, offset);
        self.gaps.push(at - PADDING..at);
        for part in parts {
            match part {
                Part::Cached {
                    chunk,
                    from: place,
                    len,
                } => {
                    self.cached.push(CachedSegment {
                        chunk,
                        from: place,
                        len,
                        at,
                    });
                    (at, from) = (at + len, from + len);
                }
                Part::InFile { len } => {
                    let end = from + len;
                    while from < end {
                        let len = SEGMENT_BYTES.min(end - from);
                        self.segments.push(Segment {
                            file,
                            offset: from,
                            len,
                            at,
                        });
                        (at, from) = (at + len, from + len);
                    }
                }
            }
        }
        self.arena_bytes = arena_end(self.arena_bytes, from - offset);
        self.gaps.push(at..self.arena_bytes - PADDING);
    }

    /// Bytes that the device has already.
    pub fn cached_bytes(&self) -> u64 {
        self.cacheable.iter().map(|range| range.cached_bytes).sum()
    }

    /// Queues the copies of what the device has already. The chunks live as long as `self`.
    ///
    /// # Errors
    /// Device.
    pub fn copy_cached(&self, arena: &mut DeviceBuffer<u8>, stream: &Stream) -> Result<()> {
        let to = arena.room(self.arena_bytes as usize)?;
        for segment in &self.cached {
            // One copy must not span two allocations of the device, even if their addresses touch.
            let from = segment.chunk.as_ptr().wrapping_add(segment.from as usize);
            let to = to.wrapping_add(segment.at as usize);
            // SAFETY: the chunk has these bytes, which no code changes, and the arena has room for them. The caller keeps both
            // until the stream has been waited for.
            unsafe { stream.copy(CopyKind::Inside, to, from, segment.len as usize)? };
        }
        Ok(())
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
        arena: &mut DeviceBuffer<u8>,
        cancel: &CancelToken,
        stages: &Stages,
    ) -> Result<()> {
        let mut room = arena.room_view(self.arena_bytes as usize)?;
        let mut at = 0;
        let mut places = VecDeque::with_capacity(self.segments.len());
        for segment in &self.segments {
            room.take((segment.at - at) as usize);
            places.push_back((segment, room.take(segment.len as usize)));
            at = segment.at + segment.len;
        }
        let loader = Loader {
            pool,
            waiting: Lock::new(places),
            cancel,
            stages,
        };
        if self.segments.is_empty() {
            return Ok(());
        }
        let threads = IO_THREADS.min(self.segments.len());
        stages.on_threads(threads, "rockmill-in", || loader.work())
    }
}

/// State shared by the loading threads.
struct Loader<'a> {
    pool: &'a Pool,
    /// Segments, and the place of each.
    waiting: Lock<VecDeque<(&'a Segment<'a>, DeviceSliceMut<'a, u8>)>>,
    cancel: &'a CancelToken,
    stages: &'a Stages,
}

impl<'a> Loader<'a> {
    /// Loads segments until none is left.
    fn work(&self) -> Result<()> {
        let _current = self.pool.device().make_current()?;
        let mut ring = self.pool.ring(self.cancel)?;
        let done = self.work_with(&mut ring);
        if done.is_err() {
            // The other threads may stop.
            self.waiting.lock().clear();
        }
        done.and(ring.stream.synchronize())
    }

    fn work_with(&self, ring: &mut CopyRing) -> Result<()> {
        let mut turn = 0;
        while let Some((segment, place)) = self.next() {
            self.cancel.check()?;
            self.copy(segment, place, ring, &mut turn)?;
        }
        Ok(())
    }

    fn next(&self) -> Option<(&'a Segment<'a>, DeviceSliceMut<'a, u8>)> {
        self.waiting.lock().pop_front()
    }

    /// Reads into pinned memory and copies from there; the next chunks are read meanwhile.
    fn copy(
        &self,
        segment: &Segment<'_>,
        mut place: DeviceSliceMut<'_, u8>,
        ring: &mut CopyRing,
        turn: &mut usize,
    ) -> Result<()> {
        let mut done = 0;
        while done < segment.len {
            self.cancel.check()?;
            let len = (segment.len - done).min(ring.chunk_bytes() as u64) as usize;
            let bytes = self
                .stages
                .time("copy in", Resource::ToDevice, len as u64, || {
                    ring.bytes(*turn, 0..len)
                })?;
            self.stages.time("read", Resource::Host, len as u64, || {
                segment.file.read_exact_at(bytes, segment.offset + done)
            })?;
            // SAFETY: the code that decodes the arena waits for the ring first.
            unsafe { ring.send(*turn, &mut place.take(len))? };
            done += len as u64;
            *turn += 1;
        }
        Ok(())
    }
}
