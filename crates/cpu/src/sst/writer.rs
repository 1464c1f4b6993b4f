//! From surviving entries to SST files: splits files and data blocks, compresses, filters, indexes, and finishes each
//! file with its meta blocks.
//!
//! Data blocks are split by prefix sum: with `Q` the bytes of the file's entries so far, each encoded against its
//! predecessor, an entry goes into block `Q / block_size`. The rule depends on no block's contents, so any number of
//! threads can split alike.

use std::collections::BTreeSet;

use rockmill_core::{
    BlockWriter, Collected, Collector, CompactionRules, ContentHash, DeclineReason, DeletionWindow,
    Error, FileBody, FileCounts, FilterBlock, IndexBlock, KeyRange, MAX_PROPERTY_BYTES, OutputFile,
    OutputPlan, Result, Row, SstFile, SstSink, entry_hash,
};
use rockmill_format::block::{BlockBuilder, BlockLayout, ValueForm, common_prefix_len};
use rockmill_format::coding::{put_bytes, varint_len};
use rockmill_format::compression::{CompressionType, Compressor};
use rockmill_format::filter::FilterBuilder;
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockHandle};
use rockmill_format::index::IndexBuilder;
use rockmill_format::key::{self, ValueType};
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::xxph3;

use super::checked::CheckedBlocks;
use super::dictionary::{WaitingBlock, WaitingBlocks};
use super::split::FileSplitter;
use crate::read::retain::Sink;

/// Writes a task's surviving entries.
pub struct SstWriter<'a> {
    plan: &'a OutputPlan,
    sink: &'a mut dyn SstSink,
    splitter: FileSplitter<'a>,
    compressor: Compressor,
    file: Option<OpenFile>,
    files: Vec<OutputFile>,
    tombstones: Option<RangeTombstones<'a>>,
}

/// Range tombstones to be written. The keys from the start of a file to the start of the next one belong to that file,
/// so that no tombstone loses a key between files.
struct RangeTombstones<'a> {
    rules: &'a CompactionRules,
    /// The task's keys from the current file on.
    range: KeyRange,
    /// Position of the first fragment whose beginning the splitter has not received.
    next: usize,
    /// Whether a fragment begins in the current file.
    any_begun: bool,
}

impl std::fmt::Debug for SstWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SstWriter")
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

impl<'a> SstWriter<'a> {
    /// A writer without an open file.
    ///
    /// # Errors
    /// Declined if the plan's compression cannot be written.
    pub fn new(plan: &'a OutputPlan, sink: &'a mut dyn SstSink) -> Result<Self> {
        let compressor = Compressor::new(&plan.table.compression)
            .map_err(|e| Error::declined(DeclineReason::Compression, e.what))?;
        Ok(Self {
            plan,
            sink,
            splitter: FileSplitter::new(plan.order(), &plan.splitting),
            compressor,
            file: None,
            files: Vec::new(),
            tombstones: None,
        })
    }

    /// The same writer for a task's range, which also writes the range tombstones of `rules` in it.
    #[must_use]
    pub fn in_range(self, rules: Option<&'a CompactionRules>, range: &KeyRange) -> Self {
        let rules = rules.filter(|rules| !rules.tombstones.is_empty());
        let tombstones = rules.map(|rules| RangeTombstones {
            rules,
            range: range.clone(),
            next: (range.begin.as_deref())
                .map_or(0, |begin| rules.tombstones.ending_behind(begin, 0)),
            any_begun: false,
        });
        Self {
            tombstones,
            splitter: self.splitter.in_range(range),
            ..self
        }
    }

    /// Closes the last file and returns all of them.
    ///
    /// # Errors
    /// Storage if writing fails.
    pub fn finish(mut self) -> Result<Vec<OutputFile>> {
        self.begin_tombstones(None)?;
        self.close_file(None)?;
        Ok(self.files)
    }

    fn open_file(&mut self) -> Result<()> {
        let level = self.plan.properties.output_level;
        let made = (self.plan.collectors.iter()).map(|factory| factory.0.create(level));
        let collectors = made.collect::<Result<Vec<_>>>()?;
        let (number, out) = self.sink.create()?;
        self.file = Some(OpenFile {
            collectors: collectors.into_iter().flatten().collect(),
            ..OpenFile::new(number, out, self.plan)
        });
        Ok(())
    }

    /// Ends the current file before the key `next`, with which the next one begins.
    fn close_file(&mut self, next: Option<&[u8]>) -> Result<()> {
        let kept = self
            .tombstones
            .as_mut()
            .map(|tombstones| tombstones.cut(next));
        let kept = kept.unwrap_or_default();
        if self.file.is_none() && !kept.is_empty() {
            self.open_file()?;
        }
        if let Some(file) = self.file.take() {
            let finished = file.finish(self.plan, &mut self.compressor, kept)?;
            self.files.push(finished);
        }
        Ok(())
    }

    /// Bytes of the current file for the decision to split; `None` if there is none.
    fn file_size(&self) -> Option<u64> {
        let begun = self
            .tombstones
            .as_ref()
            .is_some_and(|tombstones| tombstones.any_begun);
        match &self.file {
            Some(file) => Some(file.expected_size(self.plan)),
            None => begun.then_some(0),
        }
    }

    /// Passes the beginnings of fragments before a user key to the splitter, as keys without bytes
    /// (`compaction_outputs.cc:AddToOutput`), so that a file with hardly more than tombstones ends at grandparents too.
    /// At the bottom there are none.
    fn begin_tombstones(&mut self, before: Option<&[u8]>) -> Result<()> {
        while let Some(tombstones) = self.tombstones.as_mut()
            && let Some(begin) = tombstones.next_begin(before)
        {
            let begin = begin.to_vec();
            tombstones.next += 1;
            let size = self.file_size();
            if self.splitter.ends_before(&begin, size) {
                self.close_file(Some(&begin))?;
            }
            if let Some(tombstones) = self.tombstones.as_mut() {
                tombstones.any_begun = true;
            }
        }
        Ok(())
    }
}

impl RangeTombstones<'_> {
    /// Beginning of the next fragment, if it is before a key of the task.
    fn next_begin(&self, before: Option<&[u8]>) -> Option<&[u8]> {
        if self.rules.bottommost {
            return None;
        }
        let begin = self.rules.tombstones.get(self.next)?.begin;
        let order = self.rules.order;
        let first = self.range.begin.as_deref();
        let begin = first.map_or(begin, |first| order.last(begin, first));
        let end = before.or(self.range.end.as_deref());
        end.is_none_or(|end| order.is_before(begin, end))
            .then_some(begin)
    }

    /// Skips fragments that begin at or before a key that the splitter has received.
    fn pass(&mut self, user_key: &[u8]) {
        let rules = self.rules;
        let has_begun = |at| {
            let next = rules.tombstones.get(at);
            next.is_some_and(|next| !rules.order.is_before(user_key, next.begin))
        };
        while has_begun(self.next) {
            self.next += 1;
        }
    }

    /// The tombstones of the current file, if the next one begins with the key `next`.
    fn cut(&mut self, next: Option<&[u8]>) -> Vec<RangeTombstone> {
        let next = next.map(<[u8]>::to_vec);
        let range = KeyRange {
            begin: self.range.begin.take(),
            end: next.clone().or_else(|| self.range.end.clone()),
        };
        self.range.begin = next;
        self.any_begun = false;
        self.rules.kept_tombstones(&range)
    }
}

impl Sink for SstWriter<'_> {
    #[inline]
    fn emit(
        &mut self,
        user_key: &[u8],
        tag: u64,
        value: &[u8],
        kv_hash: u64,
        first_of_key: bool,
    ) -> Result<()> {
        if first_of_key {
            if self.tombstones.is_some() {
                self.begin_tombstones(Some(user_key))?;
            }
            let size = self.file_size();
            if self.splitter.ends_before(user_key, size) {
                self.close_file(Some(user_key))?;
            }
            if let Some(tombstones) = &mut self.tombstones {
                tombstones.pass(user_key);
            }
        }
        if self.file.is_none() {
            self.open_file()?;
        }
        let Some(file) = self.file.as_mut() else {
            return Err(Error::internal("no file is open"));
        };
        file.add(self.plan, &mut self.compressor, user_key, tag, value)?;
        file.content.push(entry_hash(kv_hash, tag));
        Ok(())
    }
}

/// A data block that is finished.
enum Pending {
    /// It was written.
    Written(BlockHandle),
    /// It waits for a dictionary, not compressed.
    Waiting(Vec<u8>),
}

struct OpenFile {
    out: BlockWriter,
    block: BlockBuilder,
    /// First `Q` of a later block.
    block_end: u64,
    /// `Q`: bytes of the entries so far, each encoded against its predecessor in the file.
    encoded_bytes: u64,
    first_key: Vec<u8>,
    /// Current internal key.
    key: Vec<u8>,
    /// Previous internal key, empty if there is none.
    last_key: Vec<u8>,
    /// A data block that waits for the next block's first key, which its separator needs; its last key is the one added
    /// last.
    pending: Option<Pending>,
    /// Data blocks that wait for the file's dictionary, until there is one.
    waiting: Option<WaitingBlocks>,
    /// The dictionary, and the compressor with it.
    dictionary: Option<(Vec<u8>, Compressor)>,
    blocks: CheckedBlocks,
    index: IndexBuilder,
    filter: Option<FilterBuilder>,
    used_compression: BTreeSet<CompressionType>,
    counts: FileCounts,
    content: ContentHash,
    paranoid_hash: u64,
    /// One for each of RocksDB's collectors in the plan.
    windows: Vec<DeletionWindow>,
    /// The application's collectors.
    collectors: Vec<Box<dyn Collector>>,
    /// Bytes of the data blocks so far, trailers included.
    data_bytes: u64,
}

impl OpenFile {
    fn new(number: u64, out: Box<dyn SstFile>, plan: &OutputPlan) -> Self {
        let table = &plan.table;
        Self {
            out: BlockWriter::new(plan, number, out),
            block: BlockBuilder::new(BlockLayout {
                restart_interval: table.restart_interval,
                delta_keys: table.delta_keys,
                values: ValueForm::Sized,
                common_prefix: table.common_prefix,
                user_keys: false,
                keys_per_bucket: table.keys_per_bucket,
            }),
            block_end: table.block_size,
            encoded_bytes: 0,
            first_key: Vec::new(),
            key: Vec::new(),
            last_key: Vec::new(),
            pending: None,
            waiting: WaitingBlocks::new(plan),
            dictionary: None,
            blocks: CheckedBlocks::new(plan, number),
            index: IndexBuilder::new(table.index),
            filter: (table.filter)
                .map(|options| FilterBuilder::new(options).with_prefixes(table.prefixes.clone())),
            used_compression: BTreeSet::new(),
            counts: FileCounts::default(),
            content: ContentHash::default(),
            paranoid_hash: 0,
            windows: (plan.compact_on_deletion.iter())
                .map(|&rule| DeletionWindow::new(rule))
                .collect(),
            collectors: Vec::new(),
            data_bytes: 0,
        }
    }

    /// Expected bytes of the file for the decision to split.
    fn expected_size(&self, plan: &OutputPlan) -> u64 {
        let mut size = plan.splitting.stored_size(self.encoded_bytes);
        if plan.splitting.size_is_upper_bound {
            size += self.index.estimated_len() as u64 + TAIL_BYTES;
            size += self.filter.as_ref().map_or(0, FilterBuilder::estimated_len);
        }
        size
    }

    #[inline]
    fn add(
        &mut self,
        plan: &OutputPlan,
        compressor: &mut Compressor,
        user_key: &[u8],
        tag: u64,
        value: &[u8],
    ) -> Result<()> {
        std::mem::swap(&mut self.key, &mut self.last_key);
        self.key.clear();
        put_bytes(&mut self.key, user_key);
        self.key.extend_from_slice(&tag.to_le_bytes());
        let common = common_prefix_len(&self.last_key, &self.key);
        if self.encoded_bytes >= self.block_end {
            let block_number = self.encoded_bytes / plan.table.block_size;
            self.block_end = (block_number + 1).saturating_mul(plan.table.block_size);
            if !self.block.is_empty() {
                self.flush_block(compressor)?;
            }
        }
        match self.pending.take() {
            None => {}
            Some(Pending::Written(handle)) => {
                self.index.add(&self.last_key, Some(&self.key), handle);
                self.pass_full(plan)?;
            }
            Some(Pending::Waiting(payload)) => {
                self.wait(payload, self.last_key.clone(), Some(self.key.clone()));
                if self.waiting.as_ref().is_some_and(WaitingBlocks::are_enough) {
                    self.write_waiting(plan)?;
                }
            }
        }
        let shared = if plan.table.delta_keys { common } else { 0 };
        let non_shared = self.key.len() - shared;
        let header = varint_len(shared as u64)
            + varint_len(non_shared as u64)
            + varint_len(value.len() as u64);
        self.encoded_bytes += (header + non_shared + value.len()) as u64;
        self.block.add_with_common(&self.key, common, value);
        if let Some(filter) = &mut self.filter {
            filter.add(user_key);
        }
        if plan.paranoid_hash {
            self.paranoid_hash = xxph3::hash64_seeded(&self.key, self.paranoid_hash);
            self.paranoid_hash = xxph3::hash64_seeded(value, self.paranoid_hash);
        }
        self.count(tag, value.len());
        if !self.collectors.is_empty() {
            self.collect(user_key, tag, value)?;
        }
        if self.first_key.is_empty() {
            self.first_key.extend_from_slice(&self.key);
        }
        Ok(())
    }

    fn count(&mut self, tag: u64, value_len: usize) {
        let counts = &mut self.counts;
        let sequence = key::tag_sequence(tag);
        let kind = ValueType::from_code(key::tag_type(tag));
        let is_tombstone = kind.is_some_and(ValueType::is_tombstone);
        counts.deletions += u64::from(is_tombstone);
        counts.merge_operands += u64::from(kind == Some(ValueType::Merge));
        for window in &mut self.windows {
            window.add(is_tombstone, self.data_bytes);
        }
        counts.raw_key_bytes += self.key.len() as u64;
        counts.raw_value_bytes += value_len as u64;
        counts.largest_seqno = counts.largest_seqno.max(sequence);
        let smallest = counts.smallest_seqno.get_or_insert(sequence);
        *smallest = sequence.min(*smallest);
    }

    #[cold]
    fn collect(&mut self, user_key: &[u8], tag: u64, value: &[u8]) -> Result<()> {
        let value_type = ValueType::from_code(key::tag_type(tag));
        let row = Row {
            user_key,
            sequence: key::tag_sequence(tag),
            value_type: value_type.ok_or_else(|| Error::internal("an entry of no type"))?,
            value,
        };
        let mut all = self.collectors.iter_mut();
        all.try_for_each(|collector| collector.add(row, self.data_bytes))
    }

    /// Ends the collectors. The first one that names a property counts (`table/meta_blocks.cc`).
    fn collected(&mut self) -> Result<Collected> {
        let mut all = Collected {
            needs_compaction: self.windows.iter().any(DeletionWindow::needs_compaction),
            ..Collected::default()
        };
        for collector in std::mem::take(&mut self.collectors) {
            let one = collector.finish()?;
            all.needs_compaction |= one.needs_compaction;
            for (name, value) in one.properties {
                all.properties.entry(name).or_insert(value);
            }
            for (name, value) in one.readable {
                all.readable.entry(name).or_insert(value);
            }
        }
        match all.bytes() {
            0..=MAX_PROPERTY_BYTES => Ok(all),
            _ => Err(Error::too_many_properties()),
        }
    }

    /// Ends the current data block, which is not empty.
    fn flush_block(&mut self, compressor: &mut Compressor) -> Result<()> {
        let start = self.block.finish_in_place();
        let image = self.block.buffer();
        self.counts.blocks += 1;
        let uncompressed_bytes = (image.len() - start) as u64;
        self.counts.uncompressed_bytes += uncompressed_bytes;
        for collector in &mut self.collectors {
            collector.block(uncompressed_bytes)?;
        }
        if self.waiting.is_some() {
            // All before it wait as well.
            self.pending = Some(Pending::Waiting(image.split_off(start)));
            return Ok(());
        }
        let handle = self.store(start, compressor)?;
        self.pending = Some(Pending::Written(handle));
        Ok(())
    }

    /// Compresses and seals the data block that begins at `start` of the image.
    fn store(&mut self, start: usize, compressor: &mut Compressor) -> Result<BlockHandle> {
        let compressor = match &mut self.dictionary {
            Some((_, own)) => own,
            None => compressor,
        };
        let image = self.block.buffer();
        let compresses = !compressor.is_stored();
        let kind = compressor
            .compress_in_place(image, start)
            .map_err(|e| Error::internal(e.what))?;
        if kind == CompressionType::None {
            self.counts.rejected += u64::from(compresses);
            self.counts.bypassed += u64::from(!compresses);
        }
        self.used_compression.insert(kind);
        let handle = self.blocks.seal(image, start, kind, &self.out);
        self.data_bytes = handle.offset + handle.size + BLOCK_TRAILER_SIZE as u64;
        Ok(handle)
    }

    /// Checks and appends the blocks of the image, if it is full.
    fn pass_full(&mut self, plan: &OutputPlan) -> Result<()> {
        let image = self.block.buffer();
        if !CheckedBlocks::is_full(image) {
            return Ok(());
        }
        let filter = self.filter.as_ref();
        let passed = (self.blocks).pass(image, &self.index, filter, &mut self.out, false);
        check_prefixes(plan).and(passed)
    }

    fn wait(&mut self, payload: Vec<u8>, last_key: Vec<u8>, next_key: Option<Vec<u8>>) {
        if let Some(waiting) = &mut self.waiting {
            waiting.push(WaitingBlock {
                payload,
                last_key,
                next_key,
            });
        }
    }

    /// Makes the dictionary, and writes the blocks that wait for it. The current block is empty.
    fn write_waiting(&mut self, plan: &OutputPlan) -> Result<()> {
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        let dictionary = waiting.dictionary();
        let mut compressor = Compressor::with_dictionary(&plan.table.compression, &dictionary)
            .map_err(|e| Error::internal(e.what))?;
        self.blocks.read_with(&dictionary);
        for block in waiting.blocks {
            let image = self.block.buffer();
            let start = image.len();
            image.extend_from_slice(&block.payload);
            let handle = self.store(start, &mut compressor)?;
            self.index
                .add(&block.last_key, block.next_key.as_deref(), handle);
            self.pass_full(plan)?;
        }
        self.dictionary = Some((dictionary, compressor));
        Ok(())
    }

    fn finish(
        mut self,
        plan: &OutputPlan,
        compressor: &mut Compressor,
        range_tombstones: Vec<RangeTombstone>,
    ) -> Result<OutputFile> {
        for tombstone in &range_tombstones {
            for window in &mut self.windows {
                window.add(false, self.data_bytes);
            }
            let row = Row {
                user_key: &tombstone.begin,
                sequence: tombstone.sequence,
                value_type: ValueType::RangeDeletion,
                value: &tombstone.end,
            };
            for collector in &mut self.collectors {
                collector.add(row, self.data_bytes)?;
            }
        }
        if !self.block.is_empty() {
            self.flush_block(compressor)?;
        }
        match self.pending.take() {
            None => {}
            Some(Pending::Written(handle)) => self.index.add(&self.key, None, handle),
            Some(Pending::Waiting(payload)) => self.wait(payload, self.key.clone(), None),
        }
        self.write_waiting(plan)?;
        let image = self.block.buffer();
        let filter = self.filter.as_ref();
        let passed = (self.blocks).pass(image, &self.index, filter, &mut self.out, true);
        check_prefixes(plan).and(passed)?;
        let collected = self.collected()?;
        let filter = self.filter.as_ref();
        let num_filter_entries = filter.map_or(0, FilterBuilder::num_added);
        let is_partitioned = (plan.table.filter.as_ref())
            .is_some_and(|options| options.hashes_per_partition.is_some());
        let filter_block = match filter {
            Some(filter) if is_partitioned => match filter.finish_partitions() {
                none if none.is_empty() => FilterBlock::None,
                partitions => FilterBlock::Partitions(partitions),
            },
            filter => filter
                .and_then(FilterBuilder::finish)
                .map_or(FilterBlock::None, FilterBlock::Payload),
        };
        let body = FileBody {
            data_size: self.out.offset(),
            first_key: self.first_key,
            last_key: self.key,
            counts: self.counts,
            index: IndexBlock::Entries(Box::new(self.index)),
            filter: filter_block,
            num_filter_entries,
            compression_used: self.used_compression,
            dictionary: self.dictionary.map(|(own, _)| own).unwrap_or_default(),
            content: self.content,
            paranoid_hash: self.paranoid_hash,
            collected,
            range_tombstones,
        };
        let hashes = filter.map_or(&[][..], FilterBuilder::hashes);
        let blocks = self.blocks.finish(&body, hashes);
        check_prefixes(plan).and(blocks)?;
        self.out.finish(plan, body, compressor)
    }
}

/// Declines a job whose prefix extractor has failed: blocks then differ from the filter, because it is asked again.
fn check_prefixes(plan: &OutputPlan) -> Result<()> {
    match &plan.table.prefixes {
        Some(prefixes) if prefixes.0.has_failed() => Err(Error::declined(
            DeclineReason::PluginFailed,
            "the prefix extractor failed, or returned what is not the beginning of the key",
        )),
        _ => Ok(()),
    }
}

/// Approximate bytes of properties, metaindex and footer.
const TAIL_BYTES: u64 = 3 * 1024;
