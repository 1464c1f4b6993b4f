//! Images to files: copied back in chunks of whole blocks, each block's checksum verified, the tail appended,
//! synced; a few files at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rockmill_core::{
    BlockWriter, CancelToken, ContentHash, Error, ErrorKind, FileBody, FileCounts, FilterBlock,
    OutputFile, Plan, Resource, Result, SstFile, block_guard,
};
use rockmill_format::compression::{CompressionType, Compressor};
use rockmill_format::filter::METADATA_LEN;
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard, BlockHandle};
use rockmill_format::index::IndexBuilder;

use crate::backend::CudaRun;
use crate::ffi::OutBlock;
use crate::lane::{CHUNKS, Lane};
use crate::out_blocks::OutBlocks;
use crate::output::Image;
use crate::pool::Pool;
use crate::timing::Stages;

/// Files of a slice that are written at once. A slice is two target files before anything is dropped.
pub const WRITERS: usize = 3;

/// A file that was begun, and its number.
pub type NewFile = (u64, Box<dyn SstFile>);

/// Copies all images back and writes the files, a few at a time.
pub fn store(
    pool: &Pool,
    run: &CudaRun<'_>,
    images: &[Image],
    blocks: &OutBlocks,
    files: Vec<NewFile>,
) -> Result<Vec<OutputFile>> {
    let started = Instant::now();
    let context = Store {
        pool,
        plan: run.work.plan,
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
    images: Images,
    stages: &'a Stages,
    cancel: &'a CancelToken,
    /// Of all images.
    blocks: &'a OutBlocks,
    waiting: Mutex<VecDeque<(&'a Image, NewFile)>>,
    /// Files that are done, or the first error.
    done: Mutex<Result<Vec<OutputFile>>>,
}

/// A block of a file: where it lies and how many bytes of payload it has.
#[derive(Debug, Clone, Copy)]
struct Stored {
    offset: u64,
    payload: u64,
    /// What the payload ends with, if it is a filter.
    metadata: Option<[u8; METADATA_LEN]>,
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
        let blocks = &self.blocks.blocks[image.blocks.clone()];
        let device = self.pool.device();
        let _current = device.make_current()?;
        let mut lane = self.pool.lane(self.cancel)?;
        let mut writer = BlockWriter::new(self.plan, number, file);
        let guard = block_guard(self.plan, number);
        let data = blocks.iter().map(|block| Stored {
            offset: block.file_offset,
            payload: u64::from(block.size),
            metadata: None,
        });
        let filter = image.filter.map(|filter| Stored {
            offset: image.data_bytes,
            payload: filter.bytes,
            metadata: Some(filter.metadata),
        });
        let stored: Vec<Stored> = data.chain(filter).collect();
        self.copy_back(image, &stored, guard, &mut writer, &mut lane)?;
        drop(lane);
        let body = self
            .stages
            .time("index", Resource::Host, 0, || self.body(image, blocks))?;
        let mut compressor =
            Compressor::new(&self.plan.table.compression).map_err(|e| Error::internal(e.what))?;
        let size = image.len();
        self.stages.time("tail", Resource::Host, size, || {
            writer.finish(self.plan, body, &mut compressor)
        })
    }

    /// Copies the image back in chunks of whole blocks, checks and appends each while the next is on
    /// its way. A block that is larger than a chunk is put together first.
    fn copy_back(
        &self,
        image: &Image,
        blocks: &[Stored],
        guard: BlockGuard,
        writer: &mut BlockWriter,
        lane: &mut Lane,
    ) -> Result<()> {
        let parts = parts_of(blocks, lane.chunk_bytes() as u64);
        let mut large = Vec::new();
        for (turn, part) in parts.iter().enumerate().take(CHUNKS) {
            self.start_copy(image, &part.bytes, lane, turn)?;
        }
        for (turn, part) in parts.iter().enumerate() {
            self.cancel.check()?;
            let len = part.bytes.end - part.bytes.start;
            let mut bytes = &*self
                .stages
                .time("copy back", Resource::FromDevice, len, || {
                    lane.bytes(turn, len as usize)
                })?;
            if !part.is_whole {
                large.extend_from_slice(bytes);
                bytes = &large;
            }
            if !part.blocks.is_empty() {
                let (blocks, len) = (&blocks[part.blocks.clone()], bytes.len() as u64);
                self.stages.time("check blocks", Resource::Host, len, || {
                    check_blocks(blocks, guard, bytes)
                })?;
                self.stages
                    .time("write", Resource::Host, len, || writer.append(bytes))?;
                large.clear();
            }
            // Nobody looks at this chunk any more.
            if let Some(next) = parts.get(turn + CHUNKS) {
                self.start_copy(image, &next.bytes, lane, turn)?;
            }
        }
        Ok(())
    }

    fn start_copy(
        &self,
        image: &Image,
        bytes: &Range<u64>,
        lane: &mut Lane,
        turn: usize,
    ) -> Result<()> {
        let at = (image.at + bytes.start) as usize;
        let from = self.images.0.wrapping_add(at);
        // SAFETY: the part lies in its image, which stays as it is until the slice is done.
        unsafe { lane.fetch(turn, from, (bytes.end - bytes.start) as usize) }
    }

    fn body(&self, image: &Image, blocks: &[OutBlock]) -> Result<FileBody> {
        let Some(first) = blocks.first() else {
            return Err(Error::internal("a file without blocks"));
        };
        let mut index = IndexBuilder::new(self.plan.table.index);
        let (mut last_key, mut next_key) = (Vec::new(), Vec::new());
        for (i, block) in blocks.iter().enumerate() {
            let next = blocks.get(i + 1).map(|next| {
                self.blocks.put_first_key(next, &mut next_key);
                next_key.as_slice()
            });
            self.blocks.put_last_key(block, &mut last_key);
            let handle = BlockHandle {
                offset: block.file_offset,
                size: u64::from(block.size),
            };
            index.add(&last_key, next, handle);
        }
        let mut first_key = Vec::new();
        self.blocks.put_first_key(first, &mut first_key);
        let (totals, entries) = (&image.totals, image.entries.len() as u64);
        let num_blocks = blocks.len() as u64;
        Ok(FileBody {
            data_size: image.data_bytes,
            first_key,
            last_key,
            counts: FileCounts {
                deletions: totals.deletions,
                raw_key_bytes: totals.key_bytes,
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

/// What is copied back at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// Of the file, as many as a chunk holds at most.
    bytes: Range<u64>,
    /// The blocks that end here.
    blocks: Range<usize>,
    /// Whether these begin here too; if not, there is one, and it begins some parts before.
    is_whole: bool,
}

/// Consecutive blocks, as many as a chunk holds; larger ones in several parts.
fn parts_of(blocks: &[Stored], chunk: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        let end = block.end();
        match parts.last_mut() {
            Some(part) if part.is_whole && end - part.bytes.start <= chunk => {
                part.bytes.end = end;
                part.blocks.end = i + 1;
            }
            _ => {
                let is_whole = end - block.offset <= chunk;
                let starts = (block.offset..end).step_by(chunk as usize);
                parts.extend(starts.map(|start| Part {
                    bytes: start..end.min(start + chunk),
                    blocks: if start + chunk < end { i..i } else { i..i + 1 },
                    is_whole,
                }));
            }
        }
    }
    parts
}

/// Verifies the checksum of each block of what came back.
fn check_blocks(blocks: &[Stored], guard: BlockGuard, bytes: &[u8]) -> Result<()> {
    let start = blocks.first().map_or(0, |block| block.offset);
    for block in blocks {
        let stored = &bytes[(block.offset - start) as usize..(block.end() - start) as usize];
        let fail = |what: &str| {
            let what = format!("a block that came back from the device: {what}");
            Error {
                offset: Some(block.offset),
                ..Error::new(ErrorKind::Verification, what)
            }
        };
        let (payload, _) = guard
            .open(stored, block.offset)
            .map_err(|e| fail(&e.what))?;
        if block
            .metadata
            .is_some_and(|metadata| !payload.ends_with(&metadata))
        {
            return Err(fail("a filter with other metadata than was meant"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockmill_format::checksum::ChecksumType;
    use rockmill_format::filter::bloom;

    const GUARD: BlockGuard = BlockGuard {
        checksum: ChecksumType::Xxh3,
        base_context_checksum: 7,
    };

    /// Two blocks, of which the second is a filter, and where they lie.
    fn stored() -> (Vec<u8>, Vec<Stored>) {
        let metadata = bloom::metadata(6);
        let payloads = [vec![1; 100], [&[0; 64][..], &metadata].concat()];
        let (mut bytes, mut blocks) = (Vec::new(), Vec::new());
        for (payload, metadata) in payloads.iter().zip([None, Some(metadata)]) {
            let offset = bytes.len() as u64;
            bytes.extend_from_slice(payload);
            GUARD.put_trailer(payload, CompressionType::None, offset, &mut bytes);
            blocks.push(Stored {
                offset,
                payload: payload.len() as u64,
                metadata,
            });
        }
        (bytes, blocks)
    }

    #[test]
    fn a_flipped_bit_in_what_came_back_is_noticed() {
        let (bytes, blocks) = stored();
        assert_eq!(check_blocks(&blocks, GUARD, &bytes), Ok(()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let error = check_blocks(&blocks, GUARD, &damaged).expect_err("damaged");
            assert_eq!(error.kind, ErrorKind::Verification);
        }
    }

    #[test]
    fn a_filter_that_says_another_number_of_probes_is_noticed() {
        let (bytes, mut blocks) = stored();
        blocks[1].metadata = Some(bloom::metadata(7));
        let error = check_blocks(&blocks, GUARD, &bytes).expect_err("other metadata");
        assert!(error.what.contains("metadata"), "{error}");
    }

    fn blocks_of(sizes: &[u64]) -> Vec<Stored> {
        let mut end = 0;
        let block = |&size: &u64| {
            let offset = end;
            end += size;
            Stored {
                offset,
                payload: size - BLOCK_TRAILER_SIZE as u64,
                metadata: None,
            }
        };
        sizes.iter().map(block).collect()
    }

    #[test]
    fn parts_are_all_of_the_bytes_and_end_where_blocks_do() {
        const CHUNK: u64 = 1 << 20;
        for sizes in [
            &[100; 10][..],
            &[CHUNK, 100, 100],
            &[100, 2 * CHUNK + 1, 100],
            &[CHUNK - 100, 100, 100, CHUNK + 1],
            &[2 * CHUNK],
            &[],
        ] {
            let blocks = blocks_of(sizes);
            let (mut byte, mut block) = (0, 0);
            for part in parts_of(&blocks, CHUNK) {
                assert_eq!((part.bytes.start, part.blocks.start), (byte, block));
                (byte, block) = (part.bytes.end, part.blocks.end);
                assert!(part.bytes.end - part.bytes.start <= CHUNK);
                if let Some(last) = part.blocks.clone().next_back() {
                    assert_eq!(blocks[last].end(), byte);
                }
                let begins = blocks[part.blocks.start].offset == part.bytes.start;
                assert_eq!(part.is_whole, begins && !part.blocks.is_empty());
            }
            assert_eq!((byte, block), (sizes.iter().sum(), sizes.len()));
        }
        assert_eq!(parts_of(&blocks_of(&[100; 10]), CHUNK).len(), 1);
        assert_eq!(parts_of(&blocks_of(&[CHUNK / 2; 10]), CHUNK).len(), 5);
    }
}
