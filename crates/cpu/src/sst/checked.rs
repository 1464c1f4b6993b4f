//! Finished data blocks on their way to a file: each is opened and decoded again before it goes.
//!
//! ```text
//!   block --seal--> image --verify checksum, decompress, decode--> Contents
//!                     |                                              | compared in the end with
//!                     +--> file                                      | what was meant
//! ```
//!
//! The check reads the very bytes that are handed to the system, while they are in the processor's cache. A wrong block
//! never reaches a file that is reported.

use rockmill_core::{
    BlockPlace, BlockWriter, ContentsReader, Error, FileBody, FilterBlock, OutputPlan, Result,
    block_guard,
};
use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::filter::{FilterBuilder, FilterReader};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard, BlockHandle};
use rockmill_format::index::IndexBuilder;

/// Bytes of blocks after which they are checked and handed on: few enough to be still in the second-level
/// cache.
const IMAGE_BYTES: usize = 128 << 10;

/// The page cache holds whole pages, and takes those quickest that are written at once.
const PAGE_BYTES: usize = 4096;

/// Seals data blocks, checks them, and appends them to the file. The image, where they lie one after another,
/// is the builder's buffer.
#[derive(Debug)]
pub struct CheckedBlocks {
    name: String,
    guard: BlockGuard,
    restart_interval: u32,
    /// Blocks that were handed on.
    passed: usize,
    decompressor: Decompressor,
    payload: Vec<u8>,
    reader: ContentsReader,
    filter: Option<FilterHashes>,
}

/// What blocks hold, as hashes of the filter over them.
#[derive(Debug)]
struct FilterHashes {
    /// Those of the block at hand, behind `kept` of the one before.
    found: FilterBuilder,
    kept: usize,
    /// How many were compared, and their sum, which notices one that is altered: the list they were compared with lies
    /// in memory until the filter is built, for which their order does not matter.
    compared: usize,
    sum: u64,
}

impl FilterHashes {
    /// Whether those of the block at hand are the next of what is `meant`.
    fn go_on_in(&mut self, meant: &[u64]) -> bool {
        let found = &self.found.hashes()[self.kept..];
        let go_on = meant[self.compared.min(meant.len())..].starts_with(found);
        self.compared += found.len();
        self.sum = found.iter().fold(self.sum, |sum, &h| sum.wrapping_add(h));
        self.kept = self.found.forget();
        go_on
    }

    /// Whether `meant` is what was compared, still, and `is_in` says yes to all of it.
    fn are_all(&self, meant: &[u64], is_in: impl Fn(u64) -> bool) -> bool {
        let mut sum = 0_u64;
        let all_are_in = meant.iter().all(|&hash| {
            sum = sum.wrapping_add(hash);
            is_in(hash)
        });
        all_are_in && self.compared == meant.len() && self.sum == sum
    }
}

impl CheckedBlocks {
    /// For the job's file `number`.
    pub fn new(plan: &OutputPlan, number: u64) -> Self {
        Self {
            name: format!("output file {number}"),
            guard: block_guard(plan, number),
            restart_interval: u32::try_from(plan.table.restart_interval).unwrap_or(u32::MAX),
            passed: 0,
            decompressor: Decompressor::new(Vec::new()),
            payload: Vec::new(),
            reader: ContentsReader::default(),
            filter: plan.table.filter.map(|options| FilterHashes {
                found: FilterBuilder::new(options),
                kept: 0,
                compared: 0,
                sum: 0,
            }),
        }
    }

    /// Seals the block that begins at `start` of the image and is compressed as `kind` says; `out` is the file.
    pub fn seal(
        &self,
        image: &mut Vec<u8>,
        start: usize,
        kind: CompressionType,
        out: &BlockWriter,
    ) -> BlockHandle {
        let stored = &image[start..];
        let handle = BlockHandle {
            offset: out.offset() + start as u64,
            size: stored.len() as u64,
        };
        let trailer = self.guard.trailer(stored, kind, handle.offset);
        image.extend_from_slice(&trailer);
        handle
    }

    /// Whether there are enough blocks for [`CheckedBlocks::pass`] to be worth while.
    #[inline]
    pub fn is_full(image: &[u8]) -> bool {
        image.len() >= IMAGE_BYTES
    }

    /// Checks the blocks at hand, all of which are in `index` and their keys in `filter`, and appends whole pages of
    /// them to the file; the rest goes with the next ones. The last call appends everything.
    ///
    /// # Errors
    /// Verification if a block does not read as one; Storage.
    pub fn pass(
        &mut self,
        image: &mut Vec<u8>,
        index: &IndexBuilder,
        filter: Option<&FilterBuilder>,
        out: &mut BlockWriter,
        are_last: bool,
    ) -> Result<()> {
        self.check_all(image, index, filter, out)?;
        let end = out.offset() as usize + image.len();
        let rest = if are_last { 0 } else { end % PAGE_BYTES };
        let len = image.len().saturating_sub(rest);
        out.append(&image[..len])?;
        image.drain(..len);
        Ok(())
    }

    fn check_all(
        &mut self,
        image: &[u8],
        index: &IndexBuilder,
        filter: Option<&FilterBuilder>,
        out: &BlockWriter,
    ) -> Result<()> {
        let image_at = out.offset();
        let meant = filter.map_or(&[][..], FilterBuilder::hashes);
        while self.passed < index.len() {
            self.check(image, index, image_at)
                .map_err(Error::as_verification)?;
            self.passed += 1;
            let go_on = |found: &mut FilterHashes| found.go_on_in(meant);
            if !self.filter.as_mut().is_none_or(go_on) {
                return Err(self.differ("hashes for the filter"));
            }
        }
        Ok(())
    }

    /// The error where the finished blocks differ from what was meant in `what`.
    fn differ(&self, what: &str) -> Error {
        let what = format!("the finished blocks differ from what was meant: {what}");
        Error::corruption(&self.name, 0, what).as_verification()
    }

    /// Decodes the block behind those that were passed; the image begins at `image_at` in the file.
    fn check(&mut self, image: &[u8], index: &IndexBuilder, image_at: u64) -> Result<()> {
        let (separator, handle) = index.block(self.passed);
        let start = (handle.offset - image_at) as usize;
        let end = start + handle.size as usize + BLOCK_TRAILER_SIZE;
        let stored = &image[start..end];
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
                filter.found.add(user_key);
            }
            Ok(())
        })
    }

    /// Compares what the blocks hold, all of which were passed, with what was meant, and asks the filter for
    /// every one of `hashes`, from which it was built.
    ///
    /// # Errors
    /// Verification.
    pub fn finish(self, meant: &FileBody, hashes: &[u64]) -> Result<()> {
        let all_in_filter = match (&self.filter, &meant.filter) {
            (Some(found), FilterBlock::Payload(payload)) => {
                let reader = FilterReader::parse(payload)
                    .map_err(|e| Error::format(&self.name, e).as_verification())?;
                found.are_all(hashes, |hash| reader.may_contain_hash(hash))
            }
            (None, FilterBlock::Payload(_)) => false,
            (found, FilterBlock::None | FilterBlock::Written(_)) => {
                hashes.is_empty() && found.as_ref().is_none_or(|found| found.compared == 0)
            }
        };
        let found = self.reader.contents();
        let counts = &meant.counts;
        let checks = [
            (found.content == meant.content, "entries"),
            (found.smallest == meant.first_key, "smallest key"),
            (found.largest == meant.last_key, "largest key"),
            (found.blocks == counts.blocks, "number of blocks"),
            (found.uniform_blocks == 0, "flags of blocks"),
            (found.deletions == counts.deletions, "number of tombstones"),
            (
                found.merge_operands == counts.merge_operands,
                "number of merge operands",
            ),
            (
                found.uncompressed_bytes == counts.uncompressed_bytes
                    && found.key_bytes == counts.raw_key_bytes
                    && found.value_bytes == counts.raw_value_bytes,
                "bytes",
            ),
            (
                counts.smallest_seqno.unwrap_or(u64::MAX) == found.smallest_seqno
                    && counts.largest_seqno == found.largest_seqno,
                "sequence numbers",
            ),
            (all_in_filter, "filter"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, what)) => Err(self.differ(what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rockmill_format::filter::FilterOptions;

    use super::*;

    #[test]
    fn filters_hashes_are_held_against_those_of_decoded_keys() {
        let of = |keys: &[&[u8]]| {
            let mut builder = FilterBuilder::new(FilterOptions::whole_keys(10_000));
            keys.iter().for_each(|key| builder.add(key));
            builder
        };
        let goes_on_in = |meant: &FilterBuilder| {
            let mut hashes = FilterHashes {
                found: of(&[b"a", b"b"]),
                kept: 0,
                compared: 0,
                sum: 0,
            };
            let first = hashes.go_on_in(meant.hashes());
            // A block that begins with another version of the key before.
            [b"b", b"c"].iter().for_each(|&key| hashes.found.add(key));
            let second = hashes.go_on_in(meant.hashes());
            let later = meant.hashes().to_vec();
            let altered = (0..later.len()).any(|at| {
                let mut later = later.clone();
                later[at] ^= 1 << 63;
                hashes.are_all(&later, |_| true)
            });
            (first, second, hashes.are_all(&later, |_| true), altered)
        };
        let of_goes_on = |keys| goes_on_in(&of(keys));
        assert_eq!(of_goes_on(&[b"a", b"b", b"c"]), (true, true, true, false));
        let more = of_goes_on(&[b"a", b"b", b"c", b"d"]);
        assert_eq!(more, (true, true, false, false));
        assert_eq!(of_goes_on(&[b"a", b"b", b"d"]), (true, false, false, false));
        // Order is each block's matter.
        assert_eq!(of_goes_on(&[b"b", b"a", b"c"]), (false, true, true, false));
        assert_eq!(of_goes_on(&[b"a"]), (false, false, false, false));
    }
}
