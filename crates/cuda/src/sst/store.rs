//! From images to files: first the index with the places of blocks, then the blocks in chunks of whole ones, each
//! block's checksum verified; the tail appended, synced; a few files at a time.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Instant;

use rockmill_core::{
    BlockWriter, Collected, ContentHash, DeletionCounts, Error, FileBody, FileCounts, FilterBlock,
    IndexBlock, Lock, OutputFile, Resource, Result, SizeSample, SstFile, block_guard,
};
use rockmill_format::compression::{CompressionType, Compressor};
use rockmill_format::filter::FilterBuilder;
use rockmill_format::handle::{BlockGuard, BlockHandle};
use rockmill_format::index::IndexBuilder;
use rockmill_format::range_tombstone::RangeTombstone;

use super::data_check::DataCheck;
use super::images::Image;
use super::index::ReadIndex;
use super::output::Writing;
use super::parts::{Block, Part, check_blocks, parts_of};
use super::verify::edges_hash;
use crate::memory::{CHUNKS, CopyRing, DeviceSlice};

/// Number of files of a task that are written at once. A task is two target files before any entry is dropped.
pub const WRITERS: usize = 3;

/// A new file, and its number.
pub type NewFile = (u64, Box<dyn SstFile>);

/// A finished file.
#[derive(Debug)]
pub struct Stored {
    pub file: OutputFile,
    /// Hashes of its index's tags, and of its first and last key (`types.hpp:FoundFile`).
    pub tags_hash: u64,
    pub edges_hash: u64,
    /// Sizes of some of its blocks.
    pub size_sample: SizeSample,
}

/// Copies all images back from `memory` and writes the files, a few at a time. `edges` are the internal keys at the
/// files' ends, `raw_sums` the checksums of all data blocks before compression, if they were compressed.
///
/// # Errors
/// Storage, Verification, Device, Cancelled.
pub fn store(
    with: Writing<'_>,
    images: &[Image],
    memory: DeviceSlice<'_, u8>,
    edges: &[u8],
    raw_sums: &[u32],
    files: Vec<NewFile>,
) -> Result<Vec<Stored>> {
    let started = Instant::now();
    let context = Store {
        with,
        memory,
        edges,
        raw_sums,
        waiting: Lock::new(images.iter().zip(files).collect()),
        done: Lock::default(),
    };
    let threads = images.len().min(WRITERS);
    (with.stages).on_threads(threads, "rockmill-out", || context.work())?;
    let mut files = context.done.into_inner();
    if files.len() != images.len() {
        return Err(Error::internal("a file was left out"));
    }
    files.sort_by_key(|stored| stored.file.number);
    let bytes = files.iter().map(|stored| stored.file.size).sum();
    let seconds = started.elapsed().as_secs_f64();
    (with.stages).add("store, in all", Resource::Host, seconds, bytes);
    Ok(files)
}

/// Writes a file with only range tombstones.
///
/// # Errors
/// Storage.
pub fn store_tombstones(
    with: Writing<'_>,
    (number, file): NewFile,
    tombstones: Vec<RangeTombstone>,
) -> Result<OutputFile> {
    let table = &with.plan.table;
    let filter = table.filter.map(FilterBuilder::new);
    let payload = filter.and_then(|filter| filter.finish());
    let counts = DeletionCounts {
        entries: tombstones.len() as u64,
        ..DeletionCounts::default()
    };
    let body = FileBody {
        data_size: 0,
        first_key: Vec::new(),
        last_key: Vec::new(),
        counts: FileCounts::default(),
        index: IndexBlock::Entries(Box::new(IndexBuilder::new(table.index))),
        filter: payload.map_or(FilterBlock::None, FilterBlock::Payload),
        num_filter_entries: 0,
        compression_used: BTreeSet::new(),
        dictionary: Vec::new(),
        content: ContentHash::default(),
        paranoid_hash: 0,
        collected: Collected {
            needs_compaction: (with.plan.compact_on_deletion.iter())
                .any(|rule| rule.marks(&counts)),
            ..Collected::default()
        },
        range_tombstones: tombstones,
    };
    let mut compressor =
        Compressor::new(&table.compression).map_err(|e| Error::internal(e.what))?;
    BlockWriter::new(with.plan, number, file).finish(with.plan, body, &mut compressor)
}

/// State shared by the writing threads.
struct Store<'a> {
    with: Writing<'a>,
    /// The images on the device.
    memory: DeviceSlice<'a, u8>,
    /// First and last internal keys of all files.
    edges: &'a [u8],
    /// Checksums of all data blocks before compression; empty if they were not compressed.
    raw_sums: &'a [u32],
    waiting: Lock<VecDeque<(&'a Image, NewFile)>>,
    /// Finished files.
    done: Lock<Vec<Stored>>,
}

/// How parts move from their chunks into the file.
#[derive(Debug, Clone, Copy)]
enum CopyMode {
    Copied,
    /// The file is written from the chunks. Parts have the same remainder by the alignment in their chunks as in the
    /// file.
    LeasedBytes {
        alignment: usize,
    },
}

impl CopyMode {
    /// Number of parts that are copied to the host ahead of the one that is checked, itself included.
    fn ahead(self) -> usize {
        match self {
            Self::Copied => CHUNKS,
            // The other half is being written.
            Self::LeasedBytes { .. } => CHUNKS / 2,
        }
    }

    /// Bytes of a part that fit into a chunk wherever it begins.
    fn part_bytes(self, chunk_bytes: usize) -> u64 {
        match self {
            Self::Copied => chunk_bytes as u64,
            Self::LeasedBytes { alignment } => (chunk_bytes - alignment) as u64,
        }
    }

    /// Place of a part in its chunk.
    fn place(self, part: &Part) -> Range<usize> {
        let start = match self {
            Self::Copied => 0,
            Self::LeasedBytes { alignment } => (part.bytes.start % alignment as u64) as usize,
        };
        start..start + (part.bytes.end - part.bytes.start) as usize
    }
}

/// Waits until the file has returned the chunk of this turn, if it has it.
fn take_back(writer: &mut BlockWriter, ring: &mut CopyRing, turn: usize) -> Result<()> {
    while ring.is_leased(turn) {
        match writer.take_back()? {
            Some(memory) => ring.take_back(memory),
            None => return Err(Error::internal("a file keeps memory that it borrowed")),
        }
    }
    Ok(())
}

impl Store<'_> {
    /// Writes files until none is left or an error occurs.
    fn work(&self) -> Result<()> {
        loop {
            let Some((image, file)) = self.waiting.lock().pop_front() else {
                return Ok(());
            };
            let stored = (self.with.cancel.check()).and_then(|()| self.store_file(image, file));
            // After an error, the other threads may stop.
            let stored = stored.inspect_err(|_| self.waiting.lock().clear())?;
            self.done.lock().push(stored);
        }
    }

    fn store_file(&self, image: &Image, (number, mut file): NewFile) -> Result<Stored> {
        // The index may be compressed, and a file must not get more bytes than it has.
        file.expect(image.data_bytes);
        let device = self.with.pool.device();
        let _current = device.make_current()?;
        let mut ring = self.with.pool.ring(self.with.cancel)?;
        let mut writer = BlockWriter::new(self.with.plan, number, file);
        let guard = block_guard(self.with.plan, number);
        let index = self.index(image, guard, &mut ring)?;
        let filter = image.filter.map(|filter| Block {
            offset: image.data_bytes,
            payload: filter.bytes,
            metadata: Some(filter.metadata),
        });
        let stored: Vec<Block> = index.blocks().chain(filter).collect();
        let sums = image.sums(self.raw_sums);
        let mut check = DataCheck::new(self.with.plan, guard, sums)?;
        let copied = self.copy_back(image, &stored, &mut writer, &mut ring, &mut check);
        let back = (0..CHUNKS).try_for_each(|chunk| take_back(&mut writer, &mut ring, chunk));
        copied.and(back)?;
        drop(ring);
        let (tags_hash, size_sample) = (index.tags_hash(), check.size_sample);
        let edges_hash = edges_hash(image.edges(self.edges));
        let body = self.body(image, index, check);
        let mut compressor = Compressor::new(&self.with.plan.table.compression)
            .map_err(|e| Error::internal(e.what))?;
        let size = image.len();
        let file = self.with.stages.time("tail", Resource::Host, size, || {
            writer.finish(self.with.plan, body, &mut compressor)
        })?;
        Ok(Stored {
            file,
            tags_hash,
            edges_hash,
            size_sample,
        })
    }

    /// Copies the image's index back, verifies and reads it.
    fn index(&self, image: &Image, guard: BlockGuard, ring: &mut CopyRing) -> Result<ReadIndex> {
        let block = Block {
            offset: image.index_at(),
            payload: image.index.size,
            metadata: None,
        };
        let parts = parts_of(&[block], ring.chunk_bytes() as u64);
        let mut bytes = Vec::with_capacity((block.end() - block.offset) as usize);
        let mode = CopyMode::Copied;
        self.fetch(image, &parts, ring, mode, |part, ring, turn| {
            bytes.extend_from_slice(ring.bytes(turn, mode.place(part))?);
            Ok(())
        })?;
        let len = bytes.len() as u64;
        self.with
            .stages
            .time("check index", Resource::Host, len, || {
                check_blocks(&[block], guard, &bytes, |_, _, _| Ok(()))?;
                ReadIndex::read(bytes, image, &self.with.plan.table.index)
            })
    }

    /// Copies data blocks and filter back in chunks of whole blocks; checks and appends each while the next is being
    /// copied. A block that is larger than a chunk is assembled first. If the file is written from borrowed memory, it
    /// borrows the chunks.
    fn copy_back(
        &self,
        image: &Image,
        blocks: &[Block],
        writer: &mut BlockWriter,
        ring: &mut CopyRing,
        check: &mut DataCheck<'_>,
    ) -> Result<()> {
        let leases_at = writer.leases_at().filter(|&at| at < ring.chunk_bytes());
        let mode = leases_at.map_or(CopyMode::Copied, |alignment| CopyMode::LeasedBytes {
            alignment,
        });
        let parts = parts_of(blocks, mode.part_bytes(ring.chunk_bytes()));
        let mut large = Vec::new();
        self.fetch(image, &parts, ring, mode, |part, ring, turn| {
            let range = mode.place(part);
            let bytes = ring.bytes(turn, range.clone())?;
            if !part.is_whole {
                large.extend_from_slice(bytes);
            }
            let mut leased = None;
            if !part.blocks.is_empty() {
                let whole = if part.is_whole { &*bytes } else { &large };
                let (blocks, len) = (&blocks[part.blocks.clone()], whole.len() as u64);
                self.with
                    .stages
                    .time("check blocks", Resource::Host, len, || {
                        check.blocks(blocks, whole)
                    })?;
                match mode {
                    CopyMode::LeasedBytes { .. } if part.is_whole => {
                        leased = Some(ring.lease(turn, range))
                    }
                    _ => (self.with.stages)
                        .time("write", Resource::Host, len, || writer.append(whole))?,
                }
                large.clear();
            }
            if let CopyMode::LeasedBytes { .. } = mode {
                let len = leased
                    .as_ref()
                    .map_or(0, |leased| leased.bytes.len() as u64);
                self.with.stages.time("write", Resource::Host, len, || {
                    leased.map_or(Ok(()), |leased| writer.append_leased(leased))?;
                    take_back(writer, ring, turn + mode.ahead())
                })?;
            }
            Ok(())
        })
    }

    /// Copies parts of the image back and calls `each` once one has arrived, while the next ones are being copied.
    fn fetch(
        &self,
        image: &Image,
        parts: &[Part],
        ring: &mut CopyRing,
        mode: CopyMode,
        mut each: impl FnMut(&Part, &mut CopyRing, usize) -> Result<()>,
    ) -> Result<()> {
        for (turn, part) in parts.iter().enumerate().take(mode.ahead()) {
            self.start_copy(image, part, ring, mode, turn)?;
        }
        for (turn, part) in parts.iter().enumerate() {
            self.with.cancel.check()?;
            let len = part.bytes.end - part.bytes.start;
            self.with
                .stages
                .time("copy back", Resource::FromDevice, len, || {
                    ring.bytes(turn, mode.place(part)).map(drop)
                })?;
            each(part, ring, turn)?;
            // No code uses that chunk any more.
            let next = turn + mode.ahead();
            if let Some(part) = parts.get(next) {
                self.start_copy(image, part, ring, mode, next)?;
            }
        }
        Ok(())
    }

    fn start_copy(
        &self,
        image: &Image,
        part: &Part,
        ring: &mut CopyRing,
        mode: CopyMode,
        turn: usize,
    ) -> Result<()> {
        let at = (image.at + part.bytes.start) as usize;
        let place = mode.place(part);
        let from = self.memory.part(at..at + place.len());
        // SAFETY: the image stays unchanged until the task is done.
        unsafe { ring.fetch(turn, place.start, from) }
    }

    fn body(&self, image: &Image, index: ReadIndex, check: DataCheck<'_>) -> FileBody {
        let (first_key, last_key) = image.edges(self.edges);
        let (totals, entries) = (&image.totals, image.entries.len() as u64);
        let compresses = self.with.plan.table.compression.kind != CompressionType::None;
        let bytes_before_last = index.blocks().last().map_or(0, |block| block.offset);
        FileBody {
            data_size: image.data_bytes,
            first_key: first_key.to_vec(),
            last_key: last_key.to_vec(),
            counts: FileCounts {
                deletions: totals.deletions,
                merge_operands: totals.merge_operands,
                raw_key_bytes: totals.key_bytes,
                raw_value_bytes: totals.value_bytes,
                uncompressed_bytes: image.index.raw_size,
                blocks: image.num_blocks,
                rejected: if compresses { check.stored_raw } else { 0 },
                bypassed: if compresses { 0 } else { check.stored_raw },
                smallest_seqno: Some(totals.smallest_seqno),
                largest_seqno: totals.largest_seqno,
            },
            index: IndexBlock::Built(index.into_built()),
            filter: image.filter.map_or(FilterBlock::None, |filter| {
                FilterBlock::Written(BlockHandle {
                    offset: image.data_bytes,
                    size: filter.bytes,
                })
            }),
            num_filter_entries: match self.with.plan.table.filter {
                Some(options) if options.millibits_per_key > 0 => totals.filter_entries,
                _ => 0,
            },
            content: ContentHash::from_sum(totals.content_hash, entries),
            paranoid_hash: check.paranoid_hash(),
            compression_used: check.used,
            dictionary: Vec::new(),
            collected: Collected {
                needs_compaction: (self.with.plan.compact_on_deletion.iter())
                    .zip(&image.most_deletions)
                    .any(|(rule, &most_in_window)| {
                        rule.marks(&DeletionCounts {
                            entries: entries + image.tombstones.len() as u64,
                            tombstones: totals.deletions,
                            most_in_window,
                            bytes_before_last,
                        })
                    }),
                ..Collected::default()
            },
            range_tombstones: image.tombstones.clone(),
        }
    }
}
