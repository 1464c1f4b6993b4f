//! Survivors to SST files: cuts files and data blocks, compresses, filters, indexes, and closes each
//! file with its meta blocks.
//!
//! Data blocks are cut by prefix sum: with `Q` the bytes of the file's entries so far, each encoded
//! against its predecessor, an entry goes into block `Q / block_size`. The rule looks at no block's
//! contents, so any number of threads can cut alike.

use std::collections::{BTreeMap, BTreeSet};

use rockmill_core::{ContentHash, Error, OutputFile, Plan, Result, SstFile, SstSink, entry_hash};
use rockmill_format::block::{BlockBuilder, BlockLayout, ValueForm, common_prefix_len};
use rockmill_format::coding::varint_len;
use rockmill_format::compression::{CompressionType, Compressor};
use rockmill_format::filter::FilterBuilder;
use rockmill_format::footer::{Footer, uses_context_checksum};
use rockmill_format::handle::{BlockGuard, BlockHandle};
use rockmill_format::index::IndexBuilder;
use rockmill_format::key::{self, ValueType};
use rockmill_format::properties::{TableProperties, compression_name, lsm_info_at_creation};
use rockmill_format::table::{IndexType, encode_metaindex, encode_properties, names};
use rockmill_format::xxph3;

use crate::cut::FileCutter;
use crate::retain::Sink;

/// Writes a slice's survivors.
pub struct SstWriter<'a> {
    plan: &'a Plan,
    sink: &'a mut dyn SstSink,
    cutter: FileCutter<'a>,
    compressor: Compressor,
    file: Option<OpenFile>,
    files: Vec<OutputFile>,
}

impl std::fmt::Debug for SstWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SstWriter")
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

impl<'a> SstWriter<'a> {
    /// A writer that has no file open.
    ///
    /// # Errors
    /// Declined if the plan's compression cannot be written.
    pub fn new(plan: &'a Plan, sink: &'a mut dyn SstSink) -> Result<Self> {
        let compressor = Compressor::new(&plan.table.compression)
            .map_err(|e| Error::declined(rockmill_core::DeclineReason::Compression, e.what))?;
        Ok(Self {
            plan,
            sink,
            cutter: FileCutter::new(&plan.cutting),
            compressor,
            file: None,
            files: Vec::new(),
        })
    }

    /// Closes the last file and returns all of them.
    ///
    /// # Errors
    /// Storage if writing fails.
    pub fn finish(mut self) -> Result<Vec<OutputFile>> {
        self.close_file()?;
        Ok(self.files)
    }

    fn close_file(&mut self) -> Result<()> {
        if let Some(file) = self.file.take() {
            let finished = file.finish(self.plan, &mut self.compressor)?;
            self.files.push(finished);
        }
        Ok(())
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
            let size = self.file.as_ref().map(|file| file.expected_size(self.plan));
            if self.cutter.ends_before(user_key, size) {
                self.close_file()?;
            }
        }
        if self.file.is_none() {
            let (number, out) = self.sink.create()?;
            self.file = Some(OpenFile::new(number, out, self.plan));
        }
        let Some(file) = self.file.as_mut() else {
            return Err(Error::internal("no file is open"));
        };
        file.add(self.plan, &mut self.compressor, user_key, tag, value)?;
        file.content.push(entry_hash(kv_hash, tag));
        Ok(())
    }
}

/// Counts of one file.
#[derive(Debug, Default)]
struct Counts {
    deletions: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    uncompressed_bytes: u64,
    blocks: u64,
    rejected: u64,
    bypassed: u64,
    smallest_seqno: Option<u64>,
    largest_seqno: u64,
}

/// A data block that was written and waits for the next block's first key, which its separator needs.
#[derive(Debug)]
struct PendingBlock {
    last_key: Vec<u8>,
    handle: BlockHandle,
}

struct OpenFile {
    number: u64,
    out: Box<dyn SstFile>,
    offset: u64,
    guard: BlockGuard,
    block: BlockBuilder,
    /// `Q / block_size` of the block at hand.
    block_number: u64,
    /// `Q`: bytes of the entries so far, each encoded against its predecessor in the file.
    encoded_bytes: u64,
    first_key: Vec<u8>,
    /// Internal key added last.
    last_key: Vec<u8>,
    key: Vec<u8>,
    pending: Option<PendingBlock>,
    index: IndexBuilder,
    filter: Option<FilterBuilder>,
    used_compression: BTreeSet<CompressionType>,
    counts: Counts,
    content: ContentHash,
    paranoid_hash: u64,
    /// Of the whole file, if it is wanted.
    crc: Option<u32>,
    /// Payload and trailer of the block on its way out.
    stored: Vec<u8>,
}

impl OpenFile {
    fn new(number: u64, out: Box<dyn SstFile>, plan: &Plan) -> Self {
        let table = &plan.table;
        Self {
            number,
            out,
            offset: 0,
            guard: BlockGuard {
                checksum: table.checksum,
                base_context_checksum: if uses_context_checksum(table.format_version) {
                    base_context_checksum(plan.properties.checksum_seed, number)
                } else {
                    0
                },
            },
            block: BlockBuilder::new(BlockLayout {
                restart_interval: table.restart_interval,
                delta_keys: table.delta_keys,
                values: ValueForm::Sized,
                common_prefix: table.common_prefix,
                user_keys: false,
            }),
            block_number: 0,
            encoded_bytes: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            key: Vec::new(),
            pending: None,
            index: IndexBuilder::new(table.index),
            filter: table.filter.map(FilterBuilder::new),
            used_compression: BTreeSet::new(),
            counts: Counts::default(),
            content: ContentHash::default(),
            paranoid_hash: 0,
            crc: plan.file_checksum.then_some(0),
            stored: Vec::new(),
        }
    }

    /// Bytes that the file has come to, as far as cutting is concerned.
    fn expected_size(&self, plan: &Plan) -> u64 {
        let mut size = plan.cutting.stored_size(self.encoded_bytes);
        if plan.cutting.size_is_upper_bound {
            size += self.index.estimated_len() as u64 + TAIL_BYTES;
            size += self.filter.as_ref().map_or(0, FilterBuilder::estimated_len);
        }
        size
    }

    #[inline]
    fn add(
        &mut self,
        plan: &Plan,
        compressor: &mut Compressor,
        user_key: &[u8],
        tag: u64,
        value: &[u8],
    ) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(user_key);
        self.key.extend_from_slice(&tag.to_le_bytes());
        let common = common_prefix_len(&self.last_key, &self.key);
        let block_number = self.encoded_bytes / plan.table.block_size;
        if block_number != self.block_number && !self.block.is_empty() {
            self.flush_block(compressor)?;
        }
        self.block_number = block_number;
        if let Some(pending) = self.pending.take() {
            self.index
                .add(&pending.last_key, Some(&self.key), pending.handle);
        }
        let shared = if plan.table.delta_keys { common } else { 0 };
        let non_shared = self.key.len() - shared;
        let header = varint_len(shared as u64)
            + varint_len(non_shared as u64)
            + varint_len(value.len() as u64);
        self.encoded_bytes += (header + non_shared + value.len()) as u64;
        self.block.add_with_common(&self.key, common, value, value);
        if let Some(filter) = &mut self.filter {
            filter.add(user_key);
        }
        if plan.paranoid_hash {
            self.paranoid_hash = xxph3::hash64_seeded(&self.key, self.paranoid_hash);
            self.paranoid_hash = xxph3::hash64_seeded(value, self.paranoid_hash);
        }
        self.count(tag, value.len());
        if self.first_key.is_empty() {
            self.first_key.extend_from_slice(&self.key);
        }
        std::mem::swap(&mut self.last_key, &mut self.key);
        Ok(())
    }

    fn count(&mut self, tag: u64, value_len: usize) {
        let counts = &mut self.counts;
        let sequence = key::tag_sequence(tag);
        counts.deletions += u64::from(key::tag_type(tag) != ValueType::Value as u8);
        counts.raw_key_bytes += self.key.len() as u64;
        counts.raw_value_bytes += value_len as u64;
        counts.largest_seqno = counts.largest_seqno.max(sequence);
        let smallest = counts.smallest_seqno.get_or_insert(sequence);
        *smallest = sequence.min(*smallest);
    }

    /// Ends the data block at hand, which is not empty.
    fn flush_block(&mut self, compressor: &mut Compressor) -> Result<()> {
        let payload = self.block.finish();
        let compresses = !compressor.is_stored();
        let (stored, kind) = compressor
            .compress(payload)
            .map_err(|e| Error::internal(e.what))?;
        self.counts.blocks += 1;
        self.counts.uncompressed_bytes += payload.len() as u64;
        if kind == CompressionType::None {
            self.counts.rejected += u64::from(compresses);
            self.counts.bypassed += u64::from(!compresses);
        }
        self.used_compression.insert(kind);
        self.stored.clear();
        self.stored.extend_from_slice(stored);
        let handle = self.append_block(kind)?;
        self.pending = Some(PendingBlock {
            last_key: self.last_key.clone(),
            handle,
        });
        Ok(())
    }

    /// Writes `self.stored` as a block.
    fn append_block(&mut self, kind: CompressionType) -> Result<BlockHandle> {
        let handle = BlockHandle {
            offset: self.offset,
            size: self.stored.len() as u64,
        };
        let checksum = self.guard.checksum(&self.stored, kind as u8, self.offset);
        self.stored.push(kind as u8);
        self.stored.extend_from_slice(&checksum.to_le_bytes());
        let stored = std::mem::take(&mut self.stored);
        self.append(&stored)?;
        self.stored = stored;
        Ok(handle)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.append(bytes)?;
        if let Some(crc) = &mut self.crc {
            *crc = crc32c::crc32c_append(*crc, bytes);
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn append_payload(&mut self, payload: &[u8]) -> Result<BlockHandle> {
        self.stored.clear();
        self.stored.extend_from_slice(payload);
        self.append_block(CompressionType::None)
    }

    fn finish(mut self, plan: &Plan, compressor: &mut Compressor) -> Result<OutputFile> {
        if !self.block.is_empty() {
            self.flush_block(compressor)?;
        }
        if let Some(pending) = self.pending.take() {
            self.index.add(&pending.last_key, None, pending.handle);
        }
        let mut properties = self.properties(plan);
        properties.data_size = self.offset;
        properties.tail_start_offset = self.offset;
        let mut metaindex = BTreeMap::new();
        if let Some(filter) = self.filter.take() {
            properties.num_filter_entries = filter.num_added();
            if let Some(payload) = filter.finish() {
                properties.filter_size = payload.len() as u64;
                let handle = self.append_payload(&payload)?;
                metaindex.insert(names::FULL_FILTER.to_vec(), handle);
            }
        }
        let index_handle = self.append_index(plan, compressor, &mut properties)?;
        if uses_context_checksum(plan.table.format_version) {
            metaindex.insert(names::INDEX.to_vec(), index_handle);
        }
        let compression = self.compression_property(plan, compressor);
        properties.compression_name = compression.into_bytes();
        let handle = self.append_payload(&encode_properties(&properties))?;
        metaindex.insert(names::PROPERTIES.to_vec(), handle);
        let metaindex = self.append_payload(&encode_metaindex(&metaindex))?;
        let footer = Footer {
            format_version: plan.table.format_version,
            guard: self.guard,
            metaindex,
            index: (!uses_context_checksum(plan.table.format_version)).then_some(index_handle),
        };
        let footer = footer.encode(self.offset);
        self.append(&footer)?;
        self.out.finish()?;
        let oldest_ancester_time = oldest_ancestor(plan, Some((&self.first_key, &self.last_key)));
        Ok(OutputFile {
            number: self.number,
            size: self.offset,
            smallest: self.first_key,
            largest: self.last_key,
            properties,
            oldest_ancester_time,
            paranoid_hash: self.paranoid_hash,
            file_checksum: self.crc,
            content: self.content,
        })
    }

    fn append_index(
        &mut self,
        plan: &Plan,
        compressor: &mut Compressor,
        properties: &mut TableProperties,
    ) -> Result<BlockHandle> {
        /// RocksDB counts a trailer into the size of the index.
        const TRAILER: u64 = rockmill_format::handle::BLOCK_TRAILER_SIZE as u64;
        let index = self.index.finish();
        properties.index_size = index.block.len() as u64 + TRAILER;
        properties.index_key_is_user_key = u64::from(index.key_is_user_key);
        properties.index_value_is_delta_encoded = u64::from(index.value_is_delta_encoded);
        if !plan.table.compress_index {
            return self.append_payload(&index.block);
        }
        let (stored, kind) = compressor
            .compress(&index.block)
            .map_err(|e| Error::internal(e.what))?;
        self.used_compression.insert(kind);
        self.stored.clear();
        self.stored.extend_from_slice(stored);
        self.append_block(kind)
    }

    fn compression_property(&self, plan: &Plan, compressor: &Compressor) -> String {
        let used: Vec<u8> = self
            .used_compression
            .iter()
            .map(|&kind| kind as u8)
            .collect();
        let preferred = (!compressor.is_stored()).then_some(compressor.kind() as u8);
        compression_name(plan.table.format_version, preferred, &used)
    }

    /// All properties that are known before the meta blocks are written.
    fn properties(&self, plan: &Plan) -> TableProperties {
        let (table, names, counts) = (&plan.table, &plan.properties, &self.counts);
        let text = |name: &Option<String>| match name {
            Some(name) => name.clone().into_bytes(),
            None => b"nullptr".to_vec(),
        };
        TableProperties {
            orig_file_number: self.number,
            uncompressed_data_size: counts.uncompressed_bytes,
            raw_key_size: counts.raw_key_bytes,
            raw_value_size: counts.raw_value_bytes,
            num_data_blocks: counts.blocks,
            num_data_blocks_compression_rejected: counts.rejected,
            num_data_blocks_compression_bypassed: counts.bypassed,
            num_entries: self.content.entries(),
            num_deletions: counts.deletions,
            format_version: u64::from(table.format_version),
            column_family_id: u64::from(names.column_family_id),
            oldest_ancestor_time: oldest_ancestor(plan, None),
            newest_key_time: names.newest_key_time,
            file_creation_time: names.now,
            user_defined_timestamps_persisted: 1,
            key_largest_seqno: counts.largest_seqno,
            key_smallest_seqno: counts.smallest_seqno.unwrap_or(0),
            data_block_restart_interval: table.restart_interval as u64,
            index_block_restart_interval: table.index.restart_interval as u64,
            lsm_info_at_creation: lsm_info_at_creation(names.output_level, plan.rules.bottommost),
            db_id: names.db_id.clone(),
            db_session_id: names.session_id.clone().into_bytes(),
            db_host_id: names.host.clone().into_bytes(),
            column_family_name: names.column_family_name.clone(),
            filter_policy_name: names.filter_policy_name.clone().unwrap_or_default().into(),
            comparator_name: b"leveldb.BytewiseComparator".to_vec(),
            merge_operator_name: text(&names.merge_operator_name),
            prefix_extractor_name: text(&names.prefix_extractor_name),
            property_collectors_names: b"[]".to_vec(),
            compression_options: names.compression_options.clone().into_bytes(),
            index_type: Some(IndexType::BinarySearch as u32),
            whole_key_filtering: Some(names.whole_key_filtering),
            prefix_filtering: Some(names.prefix_extractor_name.is_some()),
            decoupled_partitioned_filters: names.decouple_partitioned_filters.then_some(true),
            ..TableProperties::default()
        }
    }
}

/// Bytes of properties, metaindex and footer, roughly.
const TAIL_BYTES: u64 = 3 * 1024;

/// Base context checksum of file `number`: never 0, and different for each file of an attempt.
fn base_context_checksum(seed: u64, number: u64) -> u32 {
    let hash = entry_hash(seed, number);
    match (hash >> 32) as u32 ^ hash as u32 {
        0 => 1,
        base => base,
    }
}

/// Smallest ancestor time of the inputs that overlap `range` (internal keys), or of all; now if none
/// is known (`compaction.cc:MinInputFileOldestAncestorTime`).
fn oldest_ancestor(plan: &Plan, range: Option<(&[u8], &[u8])>) -> u64 {
    let overlaps = |smallest: &[u8], largest: &[u8]| {
        let Some((from, to)) = range else { return true };
        match (
            key::split(smallest),
            key::split(largest),
            key::split(from),
            key::split(to),
        ) {
            (Some(smallest), Some(largest), Some(from), Some(to)) => {
                key::compare(largest, from).is_ge() && key::compare(smallest, to).is_le()
            }
            _ => true,
        }
    };
    let times = plan
        .properties
        .ancestors
        .iter()
        .filter(|(smallest, largest, time)| *time != 0 && overlaps(smallest, largest))
        .map(|&(_, _, time)| time);
    times.min().unwrap_or(match range {
        Some(_) => oldest_ancestor(plan, None),
        None => plan.properties.now,
    })
}
