//! Finished data blocks before they are written: each is opened and decoded again.
//!
//! ```text
//!   block --seal--> image --verify checksum, decompress, decode--> Contents
//!                     |                                              | compared in the end with
//!                     +--> file                                      | what was meant
//! ```
//!
//! The check reads the very bytes that are passed to the system, while they are in the processor's cache. No reported
//! file has a wrong block.

use rockmill_core::{
    BlockContext, BlockWriter, ContentsReader, Error, FileBody, FilterBlock, OutputPlan, Result,
    block_guard,
};
use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::filter::{FilterBuilder, FilterReader};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard, BlockHandle};
use rockmill_format::index::IndexBuilder;

/// Bytes of blocks after which they are checked and written: few enough to be still in the second-level cache.
const IMAGE_BYTES: usize = 128 << 10;

/// The page cache consists of whole pages, and it is fastest to write them at once.
const PAGE_BYTES: usize = 4096;

/// Seals data blocks, checks them, and appends them to the file. The image, in which they are contiguous, is the
/// builder's buffer.
#[derive(Debug)]
pub struct CheckedBlocks {
    name: String,
    guard: BlockGuard,
    restart_interval: u32,
    /// Blocks that were written.
    passed: usize,
    decompressor: Decompressor,
    payload: Vec<u8>,
    reader: ContentsReader,
    filter: Option<FilterHashes>,
}

/// Contents of blocks, as the filter's hashes of them.
#[derive(Debug)]
struct FilterHashes {
    /// Those of the current block, behind `kept` hashes of the previous one.
    found: FilterBuilder,
    kept: usize,
    /// Number of compared hashes, and their sum, which shows that none was altered: the list stays in memory until the
    /// filter is built, which does not depend on their order.
    compared: usize,
    sum: u64,
}

impl FilterHashes {
    /// Whether the hashes of the current block are the next ones of `meant`.
    fn go_on_in(&mut self, meant: &[u64]) -> bool {
        let found = &self.found.hashes()[self.kept..];
        let go_on = meant[self.compared.min(meant.len())..].starts_with(found);
        self.compared += found.len();
        self.sum = found.iter().fold(self.sum, |sum, &h| sum.wrapping_add(h));
        self.kept = self.found.forget();
        go_on
    }

    /// Whether `meant` still equals the compared hashes, and `is_in` is true for all of them and their positions.
    fn are_all(&self, meant: &[u64], mut is_in: impl FnMut(usize, u64) -> bool) -> bool {
        let mut sum = 0_u64;
        let all_are_in = meant.iter().enumerate().all(|(at, &hash)| {
            sum = sum.wrapping_add(hash);
            is_in(at, hash)
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
            reader: ContentsReader::new(plan.order()),
            filter: plan.table.filter.map(|options| FilterHashes {
                found: FilterBuilder::new(options).with_prefixes(plan.table.prefixes.clone()),
                kept: 0,
                compared: 0,
                sum: 0,
            }),
        }
    }

    /// Reads blocks with this dictionary from now on.
    pub fn read_with(&mut self, dictionary: &[u8]) {
        self.decompressor = Decompressor::new(dictionary.to_vec());
    }

    /// Seals the block that begins at `start` of the image with compression `kind`; `out` is the file.
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

    /// Whether there are enough blocks for a [`CheckedBlocks::pass`].
    #[inline]
    pub fn is_full(image: &[u8]) -> bool {
        image.len() >= IMAGE_BYTES
    }

    /// Checks the current blocks, all of which are in `index` and their keys in `filter`, and appends whole pages of
    /// them to the file; the rest is appended with the next ones. The last call appends everything.
    ///
    /// # Errors
    /// Verification if a block cannot be decoded; Storage.
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

    /// The error for finished blocks that differ from the intended ones in `what`.
    fn differ(&self, what: &str) -> Error {
        let what = format!("the finished blocks differ from the intended ones: {what}");
        Error::corruption(&self.name, 0, what).as_verification()
    }

    /// Decodes the next block behind the written ones; the image begins at `image_at` in the file.
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
        let place = BlockContext {
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

    fn reader_of<'f>(&self, payload: &'f [u8]) -> Result<FilterReader<'f>> {
        FilterReader::parse(payload).map_err(|e| Error::format(&self.name, e).as_verification())
    }

    /// Compares the contents of the blocks, all of which were written, with the intended ones, and looks up each of
    /// `hashes` in the filter that was built from them.
    ///
    /// # Errors
    /// Verification.
    pub fn finish(self, meant: &FileBody, hashes: &[u64]) -> Result<()> {
        let all_in_filter = match (&self.filter, &meant.filter) {
            (Some(found), FilterBlock::Payload(payload)) => {
                let reader = self.reader_of(payload)?;
                found.are_all(hashes, |_, hash| reader.may_contain_hash(hash))
            }
            (Some(found), FilterBlock::Partitions(partitions)) => {
                let readers = partitions.iter().map(|(partition, payload)| {
                    let reader = self.reader_of(payload)?;
                    Ok((partition.end, reader))
                });
                let readers = readers.collect::<Result<Vec<_>>>()?;
                let mut rest = readers.iter().peekable();
                found.are_all(hashes, |at, hash| {
                    while rest.next_if(|(end, _)| *end <= at).is_some() {}
                    rest.peek()
                        .is_some_and(|(_, reader)| reader.may_contain_hash(hash))
                })
            }
            (None, FilterBlock::Payload(_) | FilterBlock::Partitions(_)) => false,
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
            // A block that begins with another version of the previous key.
            [b"b", b"c"].iter().for_each(|&key| hashes.found.add(key));
            let second = hashes.go_on_in(meant.hashes());
            let later = meant.hashes().to_vec();
            let altered = (0..later.len()).any(|at| {
                let mut later = later.clone();
                later[at] ^= 1 << 63;
                hashes.are_all(&later, |_, _| true)
            });
            (first, second, hashes.are_all(&later, |_, _| true), altered)
        };
        let of_goes_on = |keys| goes_on_in(&of(keys));
        assert_eq!(of_goes_on(&[b"a", b"b", b"c"]), (true, true, true, false));
        let more = of_goes_on(&[b"a", b"b", b"c", b"d"]);
        assert_eq!(more, (true, true, false, false));
        assert_eq!(of_goes_on(&[b"a", b"b", b"d"]), (true, false, false, false));
        // The order is checked in each block separately.
        assert_eq!(of_goes_on(&[b"b", b"a", b"c"]), (false, true, true, false));
        assert_eq!(of_goes_on(&[b"a"]), (false, false, false, false));
    }
}
