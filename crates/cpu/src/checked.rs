//! Finished data blocks on their way to a file: each is opened and decoded again before it goes.
//!
//! ```text
//!   block --seal--> image --verify checksum, decompress, decode--> Contents
//!                     |                                              | compared in the end with
//!                     +--> file                                      | what was meant
//! ```
//!
//! What is checked are the very bytes that are handed to the system, while they are in the processor's
//! cache: a block that does not hold what it should never reaches a file that anybody is told of.

use rockmill_core::{
    BlockPlace, BlockWriter, ContentsReader, Error, FileBody, FilterBlock, Plan, Result,
    block_guard,
};
use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::filter::{FilterBuilder, FilterReader};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard, BlockHandle};
use rockmill_format::index::IndexBuilder;

/// Bytes of blocks after which they are checked and handed on: few enough to be still in the second-level
/// cache.
const IMAGE_BYTES: usize = 64 << 10;

/// Collects sealed data blocks, checks them, and appends them to the file.
#[derive(Debug)]
pub struct CheckedBlocks {
    name: String,
    guard: BlockGuard,
    restart_interval: u32,
    /// Sealed blocks that were not handed on yet.
    image: Vec<u8>,
    /// Blocks that were handed on.
    passed: usize,
    decompressor: Decompressor,
    payload: Vec<u8>,
    reader: ContentsReader,
    /// Hashes of what the blocks hold, as a filter over them has.
    filter: Option<FilterBuilder>,
}

impl CheckedBlocks {
    /// For the job's file `number`.
    pub fn new(plan: &Plan, number: u64) -> Self {
        Self {
            name: format!("output file {number}"),
            guard: block_guard(plan, number),
            restart_interval: u32::try_from(plan.table.restart_interval).unwrap_or(u32::MAX),
            image: Vec::with_capacity(IMAGE_BYTES + IMAGE_BYTES / 2),
            passed: 0,
            decompressor: Decompressor::new(Vec::new()),
            payload: Vec::new(),
            reader: ContentsReader::default(),
            filter: plan.table.filter.map(FilterBuilder::new),
        }
    }

    /// Takes a block in, whose payload is `stored`, compressed as `kind` says; `out` is the file.
    pub fn push(&mut self, stored: &[u8], kind: CompressionType, out: &BlockWriter) -> BlockHandle {
        let handle = BlockHandle {
            offset: out.offset() + self.image.len() as u64,
            size: stored.len() as u64,
        };
        self.image.extend_from_slice(stored);
        self.guard
            .put_trailer(stored, kind, handle.offset, &mut self.image);
        handle
    }

    /// Whether there are enough blocks for [`CheckedBlocks::pass`] to be worth while.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.image.len() >= IMAGE_BYTES
    }

    /// Checks the blocks at hand, all of which are in `index`, and appends them to the file.
    ///
    /// # Errors
    /// Verification if a block does not read as one; Storage.
    pub fn pass(&mut self, index: &IndexBuilder, out: &mut BlockWriter) -> Result<()> {
        let image_at = out.offset();
        while self.passed < index.len() {
            self.check(index, image_at)
                .map_err(Error::as_verification)?;
            self.passed += 1;
        }
        out.append(&self.image)?;
        self.image.clear();
        Ok(())
    }

    /// Decodes the block behind those that were passed; the image begins at `image_at` in the file.
    fn check(&mut self, index: &IndexBuilder, image_at: u64) -> Result<()> {
        let (separator, handle) = index.block(self.passed);
        let start = (handle.offset - image_at) as usize;
        let end = start + handle.size as usize + BLOCK_TRAILER_SIZE;
        let stored = &self.image[start..end];
        let fail = |e| Error::format(&self.name, e);
        let (mut payload, kind) = self.guard.open(stored, handle.offset).map_err(fail)?;
        if kind != CompressionType::None {
            self.decompressor
                .decompress(kind, payload, &mut self.payload)
                .map_err(|e| fail(e.at(handle.offset)))?;
            payload = &self.payload;
        }
        let before = self.passed.checked_sub(1).map(|i| index.block(i).0);
        let place = BlockPlace {
            file: &self.name,
            offset: handle.offset,
            before,
            separator,
            user_keys: index.has_user_keys(),
            restart_interval: self.restart_interval,
        };
        let filter = &mut self.filter;
        self.reader.block(payload, &place, |user_key, _, _| {
            if let Some(filter) = filter {
                filter.add(user_key);
            }
            Ok(())
        })
    }

    /// Compares what the blocks hold, all of which were passed, with what was meant, and asks the filter for
    /// every key.
    ///
    /// # Errors
    /// Verification.
    pub fn finish(self, meant: &FileBody) -> Result<()> {
        let hashes = self.filter.as_ref().map_or(&[][..], FilterBuilder::hashes);
        let all_in_filter = match &meant.filter {
            FilterBlock::Payload(payload) => {
                let reader = FilterReader::parse(payload)
                    .map_err(|e| Error::format(&self.name, e).as_verification())?;
                hashes.iter().all(|&hash| reader.may_contain_hash(hash))
            }
            FilterBlock::None | FilterBlock::Written(_) => hashes.is_empty(),
        };
        let found = self.reader.contents();
        let counts = &meant.counts;
        let checks = [
            (found.content == meant.content, "entries"),
            (found.smallest == meant.first_key, "smallest key"),
            (found.largest == meant.last_key, "largest key"),
            (found.blocks == counts.blocks, "number of blocks"),
            (found.deletions == counts.deletions, "number of tombstones"),
            (
                found.uncompressed_bytes == counts.uncompressed_bytes
                    && found.key_bytes == counts.raw_key_bytes
                    && found.value_bytes == counts.raw_value_bytes,
                "bytes",
            ),
            (
                counts.smallest_seqno == Some(found.smallest_seqno)
                    && counts.largest_seqno == found.largest_seqno,
                "sequence numbers",
            ),
            (all_in_filter, "filter"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, what)) => {
                let what = format!("the finished blocks differ from what was meant: {what}");
                Err(Error::corruption(&self.name, 0, what).as_verification())
            }
        }
    }
}
