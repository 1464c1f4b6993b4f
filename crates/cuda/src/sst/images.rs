//! Images of files: their parts, sizes, and places in the device's memory.

use std::ops::Range;

use rockmill_core::{OutputPlan, Result, entry_hash};
use rockmill_format::compression::CompressionType;
use rockmill_format::filter::{FilterFormat, FilterOptions, METADATA_LEN, bloom, legacy};
use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::key::{MAX_SEQUENCE, TAG_SIZE};
use rockmill_format::range_tombstone::RangeTombstone;

use super::buffers::SstBuffers;
use super::compress::compress;
use super::layout::{MAX_FILES, NUM_FILES_AT};
use super::output::Writing;
use crate::driver::ffi::{
    ARENA_PADDING, ERROR_FILTER, FileIndex, FileOffsets, FileTotals, LayoutArgs,
};
use crate::driver::{altered, refused};
use crate::read::{FirstError, ReadState, SelectedRows, download_checked};

/// Alignment of images, and the room between them that decoders may read too far.
pub const IMAGE_ALIGNMENT: u64 = 4096;
pub const PADDING: u64 = ARENA_PADDING;

/// The image of a file.
#[derive(Debug)]
pub struct Image {
    /// Its entries among the selected rows.
    pub entries: Range<usize>,
    /// Number of data blocks, and of those of earlier files.
    pub num_blocks: u64,
    pub first_block: usize,
    /// Where it begins.
    pub at: u64,
    /// Bytes of the data blocks.
    pub data_bytes: u64,
    /// Sums over its entries.
    pub totals: FileTotals,
    /// Maximum tombstones in a window, for each collector.
    pub most_deletions: Vec<u64>,
    /// Its range tombstones.
    pub tombstones: Vec<RangeTombstone>,
    /// Its filter block.
    pub filter: Option<Filter>,
    /// Its index block, behind filter or data blocks.
    pub index: FileIndex,
    /// Place of its first and last internal key among those of all files.
    pub edges: usize,
}

/// A file's filter block, right behind the data blocks.
#[derive(Debug, Clone, Copy)]
pub struct Filter {
    /// Lines of 64 bytes.
    pub num_lines: u32,
    /// Bits set for each key.
    pub num_probes: u32,
    /// Bytes of the payload.
    pub bytes: u64,
    /// The bytes behind the lines.
    pub metadata: [u8; METADATA_LEN],
}

impl Image {
    /// Start of the index in the file.
    pub fn index_at(&self) -> u64 {
        self.data_bytes
            + self
                .filter
                .map_or(0, |f| f.bytes + BLOCK_TRAILER_SIZE as u64)
    }

    /// Bytes of data blocks, filter and index.
    pub fn len(&self) -> u64 {
        self.index_at() + self.index.size + BLOCK_TRAILER_SIZE as u64
    }

    /// The elements of `all` for the file's data blocks; empty if `all` is empty.
    pub fn sums<'s>(&self, all: &'s [u32]) -> &'s [u32] {
        all.get(self.first_block..self.first_block + self.num_blocks as usize)
            .unwrap_or_default()
    }

    /// Bytes of the first and the last internal key.
    pub fn edges_len(&self) -> usize {
        let lens = [self.index.smallest_len, self.index.largest_len];
        lens.iter().map(|&len| len as usize + TAG_SIZE).sum()
    }

    /// The first and the last internal key, of those of all files.
    pub fn edges<'e>(&self, all: &'e [u8]) -> (&'e [u8], &'e [u8]) {
        all[self.edges..][..self.edges_len()].split_at(self.index.smallest_len as usize + TAG_SIZE)
    }
}

/// Measures blocks and files and chooses the place of each file's image.
pub fn plan_images(
    read: &mut ReadState,
    sst: &mut SstBuffers,
    with: Writing<'_>,
    args: &mut LayoutArgs,
    selected_rows: &SelectedRows,
) -> Result<Vec<Image>> {
    let (file_starts, error) = download_checked(&read.ws, &sst.file_starts, NUM_FILES_AT + 1)?;
    if error.is_some() {
        return Err(refused("this number of output files in one task"));
    }
    let num_files = file_starts[NUM_FILES_AT] as usize;
    if !(1..=MAX_FILES).contains(&num_files) {
        return Err(altered("the number of files is not one that was counted"));
    }
    let file_starts = &file_starts[..=num_files];
    let file_blocks = sst
        .file_blocks
        .download(0, num_files + 1, &read.ws.stream)?;
    let num_blocks = file_blocks[num_files] as usize;
    args.num_blocks = num_blocks as u64;
    args.raw_sizes = sst.raw_sizes.room(num_blocks)?;
    args.block_sizes = sst.block_sizes.room(num_blocks + 1)?;
    args.block_offsets = sst.block_offsets.room(num_blocks + 1)?;
    args.blocks = sst.blocks.room(num_blocks)?;
    args.prefix_lens = sst.prefix_lens.room(num_blocks)?;
    if with.plan.table.keys_per_bucket.is_some() {
        args.hash_buckets = sst.hash_buckets.room(num_blocks)?;
    }
    sst.block_sizes.fill(num_blocks, 1, 0, &read.ws.stream)?;
    args.index_sizes = sst.index_sizes.room(num_blocks + 1)?;
    args.index_sums = sst.index_sums.room(num_blocks + 1)?;
    args.indexes = sst.indexes.room(num_files)?;
    sst.index_sizes.fill(num_blocks, 1, 0, &read.ws.stream)?;
    // SAFETY: the block buffers have room for one more than the number of blocks.
    unsafe { read.ws.stages().measure_blocks(args) }?;
    if args.compression.codec != CompressionType::None as u32 {
        compress(read, sst, with, args)?;
    }
    // SAFETY: as above.
    unsafe { read.ws.stages().sum_blocks(args) }?;
    // SAFETY: as above; there is a record of each file.
    unsafe { read.ws.stages().measure_index(args) }?;
    let most_deletions = count_deletions(read, sst, with.plan, args, file_starts)?;
    let (totals, error) = sum_files(read, sst, args, file_starts)?;
    match error {
        None => {}
        Some(FirstError { code, .. }) if code == ERROR_FILTER => {
            return Err(refused("keys with this number of equal hashes"));
        }
        Some(_) => return Err(refused("blocks of 4 GiB")),
    }
    let rows_hash = totals
        .iter()
        .fold(0, |sum: u64, file| sum.wrapping_add(file.rows_hash));
    if rows_hash != selected_rows.totals.rows_hash {
        return Err(altered("files do not have the entries that were kept"));
    }
    let indexes = sst.indexes.download(0, num_files, &read.ws.stream)?;
    if indexes.iter().any(|index| index.check != check_of(index)) {
        return Err(altered("the sizes of a file changed on the way back"));
    }
    let mut images = Vec::with_capacity(num_files);
    let (mut at, mut edges) = (IMAGE_ALIGNMENT, 0);
    let collectors = with.plan.compact_on_deletion.len();
    for (f, (totals, index)) in totals.into_iter().zip(indexes).enumerate() {
        let filter = with.plan.table.filter;
        let image = Image {
            entries: file_starts[f] as usize..file_starts[f + 1] as usize,
            num_blocks: u64::from(file_blocks[f + 1] - file_blocks[f]),
            first_block: file_blocks[f] as usize,
            at,
            data_bytes: index.data_size,
            totals,
            most_deletions: most_deletions[f * collectors..][..collectors].to_vec(),
            tombstones: Vec::new(),
            filter: filter.and_then(|options| filter_of(options, totals.filter_entries)),
            index,
            edges,
        };
        at = (at + image.len() + PADDING).next_multiple_of(IMAGE_ALIGNMENT);
        edges += image.edges_len();
        images.push(image);
    }
    sst.images.room(at as usize)?;
    args.edges = sst.edges.room(edges)?;
    args.places = place_files(read, sst, &images)?;
    Ok(images)
}

/// Copies the files' places to the device.
fn place_files(
    read: &ReadState,
    sst: &mut SstBuffers,
    images: &[Image],
) -> Result<*const FileOffsets> {
    // Words at the ends of each part are read whole.
    for image in images {
        let ends = [0, image.data_bytes, image.index_at(), image.len()];
        for (i, end) in ends.into_iter().enumerate() {
            let gap = image.at + end - if i == 0 { PADDING } else { 0 };
            sst.images
                .fill(gap as usize, PADDING as usize, 0, &read.ws.stream)?;
        }
    }
    let places: Vec<_> = (images.iter())
        .map(|image| FileOffsets {
            image: image.at,
            index: image.at + image.index_at(),
            edges: image.edges as u64,
        })
        .collect();
    Ok(sst.file_places.upload(&places, &read.ws.stream)?)
}

/// `index.hpp:check_of`.
fn check_of(index: &FileIndex) -> u64 {
    let pair = |low, high| u64::from(low) | u64::from(high) << 32;
    let words = [
        index.data_size,
        index.raw_size,
        index.size,
        pair(index.prefix_len, index.internal_keys),
        pair(index.smallest_len, index.largest_len),
    ];
    words.into_iter().fold(0, entry_hash)
}

/// The filter over `hashes` hashes; `None` without any.
fn filter_of(options: FilterOptions, hashes: u64) -> Option<Filter> {
    let millibits = options.millibits_per_key;
    if hashes == 0 || millibits == 0 {
        return None;
    }
    let (len, num_probes, metadata) = match options.format {
        FilterFormat::FastLocalBloom => {
            let (len, probes) =
                bloom::shape(hashes, millibits, options.optimize_filters_for_memory);
            (len, probes, bloom::metadata(probes))
        }
        FilterFormat::Legacy => {
            let (len, probes) = legacy::shape(hashes, legacy::whole_bits_per_key(millibits));
            (len, probes, legacy::metadata(len, probes))
        }
    };
    Some(Filter {
        num_lines: (len / bloom::LINE_LEN as u64) as u32,
        num_probes,
        bytes: len + METADATA_LEN as u64,
        metadata,
    })
}

/// Totals of nothing.
pub fn empty_totals() -> FileTotals {
    FileTotals {
        smallest_seqno: MAX_SEQUENCE,
        ..FileTotals::default()
    }
}

/// Maximum tombstones in a window of each file, for one collector after another.
fn count_deletions(
    read: &ReadState,
    sst: &mut SstBuffers,
    plan: &OutputPlan,
    args: &LayoutArgs,
    file_starts: &[u32],
) -> Result<Vec<u64>> {
    let rules = &plan.compact_on_deletion;
    let counts = (file_starts.len() - 1) * rules.len();
    if counts == 0 {
        return Ok(Vec::new());
    }
    let mut most = sst.most_deletions.room(counts)?;
    sst.most_deletions.fill(0, counts, 0, &read.ws.stream)?;
    for file in file_starts.windows(2) {
        let (start, len) = (u64::from(file[0]), u64::from(file[1] - file[0]));
        for rule in rules {
            let (stages, bucket) = (read.ws.stages(), rule.bucket_size());
            // SAFETY: the file's entries lie within the surviving entries, whose sums were computed; there is a count
            // for each file and rule.
            unsafe { stages.most_deletions(args, start, len, bucket, most) }?;
            most = most.wrapping_add(1);
        }
    }
    sst.most_deletions.download(0, counts, &read.ws.stream)
}

fn sum_files(
    read: &ReadState,
    sst: &mut SstBuffers,
    args: &LayoutArgs,
    file_starts: &[u32],
) -> Result<(Vec<FileTotals>, Option<FirstError>)> {
    let files = file_starts.len() - 1;
    let totals = sst
        .file_totals
        .upload(&vec![empty_totals(); files], &read.ws.stream)?;
    for (i, file) in file_starts.windows(2).enumerate() {
        let (start, len) = (u64::from(file[0]), u64::from(file[1] - file[0]));
        let total = totals.wrapping_add(i);
        // SAFETY: the file's entries lie within the surviving entries; `total` is one of the records above.
        unsafe { read.ws.stages().sum_file(args, start, len, total) }?;
    }
    download_checked(&read.ws, &sst.file_totals, files)
}
