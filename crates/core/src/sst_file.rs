//! Writes the structure of an SST file around the blocks: blocks one after another, and at the end the blocks that
//! describe the others. Every backend finishes its files here, so that they are alike.
//!
//! ```text
//! data blocks | filter | index | dictionary | range tombstones | properties | metaindex | footer
//! ```
//!
//! Filter and index may each be partitions, with a top-level index behind them.

use std::collections::{BTreeMap, BTreeSet};

use rockmill_format::compression::{CompressionType, Compressor};
use rockmill_format::filter::FilterPartition;
use rockmill_format::footer::{Footer, uses_context_checksum};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard, BlockHandle};
use rockmill_format::index::{IndexBuilder, encode_index};
use rockmill_format::key::{self, KeyOrder};
use rockmill_format::properties::{TableProperties, compression_name, lsm_info_at_creation};
use rockmill_format::range_tombstone::{RangeTombstone, encode_range_tombstones};
use rockmill_format::table::{IndexType, encode_metaindex, encode_properties, names};
use rockmill_format::versions::says_format_version;

use crate::error::{Error, Result};
use crate::hash::{ContentHash, entry_hash, index_hash};
use crate::io::{LeasedBytes, Memory, SstFile};
use crate::plan::OutputPlan;
use crate::plugins::Collected;
use crate::report::OutputFile;

/// Appends blocks to a file.
pub struct BlockWriter {
    number: u64,
    file: Box<dyn SstFile>,
    guard: BlockGuard,
    offset: u64,
    /// CRC-32C of the file so far, if the plan requests it.
    crc: Option<u32>,
}

impl std::fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockWriter")
            .field("number", &self.number)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl BlockWriter {
    /// A writer at the start of the job's file `number`.
    pub fn new(plan: &OutputPlan, number: u64, file: Box<dyn SstFile>) -> Self {
        Self {
            number,
            file,
            guard: block_guard(plan, number),
            offset: 0,
            crc: plan.file_checksum.then_some(0),
        }
    }

    /// Bytes written.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends finished blocks with their trailers.
    ///
    /// # Errors
    /// Storage.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)?;
        if let Some(crc) = &mut self.crc {
            *crc = crc32c::crc32c_append(*crc, bytes);
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// The alignment at which the file is written from leased memory, if the file borrows memory
    /// ([`crate::Borrower::alignment`]).
    pub fn leases_at(&mut self) -> Option<usize> {
        self.file.borrower().map(|borrower| borrower.alignment())
    }

    /// Like [`BlockWriter::append`], from memory that is leased to the file.
    ///
    /// # Errors
    /// Storage; Internal if the file borrows none.
    pub fn append_leased(&mut self, mut blocks: LeasedBytes) -> Result<()> {
        let len = blocks.bytes.len() as u64;
        if let Some(crc) = &mut self.crc {
            let range = blocks.bytes.clone();
            *crc = crc32c::crc32c_append(*crc, &blocks.as_mut()[range]);
        }
        let borrower = self.file.borrower();
        let none = || Error::internal("the file borrows no memory");
        borrower.ok_or_else(none)?.append(blocks)?;
        self.offset += len;
        Ok(())
    }

    /// Takes back memory that was leased ([`crate::Borrower::take_back`]).
    ///
    /// # Errors
    /// Storage.
    pub fn take_back(&mut self) -> Result<Option<Box<dyn Memory>>> {
        match self.file.borrower() {
            Some(borrower) => borrower.take_back(),
            None => Ok(None),
        }
    }

    /// Appends a block: `stored` is the payload, compressed as `kind` says.
    ///
    /// # Errors
    /// Storage.
    pub fn append_block(&mut self, stored: &[u8], kind: CompressionType) -> Result<BlockHandle> {
        let handle = BlockHandle {
            offset: self.offset,
            size: stored.len() as u64,
        };
        let trailer = self.guard.trailer(stored, kind, self.offset);
        self.append(stored)?;
        self.append(&trailer)?;
        Ok(handle)
    }

    /// Writes all that follows the data blocks, finishes the file and describes it.
    ///
    /// # Errors
    /// Storage; Internal if the index cannot be compressed.
    pub fn finish(
        mut self,
        plan: &OutputPlan,
        mut body: FileBody,
        compressor: &mut Compressor,
    ) -> Result<OutputFile> {
        let mut properties = self.properties(plan, &body);
        count_tombstones(&mut properties, &body.range_tombstones);
        let (smallest, largest) = bounds(
            plan.order(),
            &body.first_key,
            &body.last_key,
            &body.range_tombstones,
        );
        properties.data_size = body.data_size;
        properties.tail_start_offset = body.data_size;
        properties.num_filter_entries = body.num_filter_entries;
        properties.user = std::mem::take(&mut body.collected.properties);
        let mut metaindex = BTreeMap::new();
        let full = |handle: BlockHandle| Some((names::FULL_FILTER, handle, handle.size));
        let filter = match &body.filter {
            FilterBlock::None => None,
            FilterBlock::Payload(payload) => {
                full(self.append_block(payload, CompressionType::None)?)
            }
            FilterBlock::Written(handle) => full(*handle),
            FilterBlock::Partitions(partitions) => {
                let user_keys = body.index.has_user_keys();
                let (top, size) = self.append_filter(plan, user_keys, partitions)?;
                Some((names::PARTITIONED_FILTER, top, size))
            }
        };
        if let Some((name, handle, size)) = filter {
            properties.filter_size = size;
            metaindex.insert(name.to_vec(), handle);
        }
        let index = self.append_index(plan, &mut body, compressor)?;
        // RocksDB adds a trailer to the size of the index, which is the uncompressed size.
        properties.index_size = index.payload_size + BLOCK_TRAILER_SIZE as u64;
        properties.index_partitions = index.partitions;
        properties.top_level_index_size = index.top_level_size;
        properties.index_key_is_user_key = u64::from(index.user_keys);
        properties.index_value_is_delta_encoded = u64::from(plan.table.index.delta_values());
        if uses_context_checksum(plan.table.format_version) {
            metaindex.insert(names::INDEX.to_vec(), index.handle);
        }
        if !body.dictionary.is_empty() {
            let handle = self.append_block(&body.dictionary, CompressionType::None)?;
            metaindex.insert(names::DICTIONARY.to_vec(), handle);
        }
        if !body.range_tombstones.is_empty() {
            let block = encode_range_tombstones(&body.range_tombstones);
            let handle = self.append_block(&block, CompressionType::None)?;
            metaindex.insert(names::RANGE_DELETIONS.to_vec(), handle);
        }
        let compression = compression_property(plan, &body.compression_used, compressor);
        properties.compression_name = compression.into_bytes();
        let block = encode_properties(&properties, plan.properties.rocksdb_version);
        let handle = self.append_block(&block, CompressionType::None)?;
        metaindex.insert(names::PROPERTIES.to_vec(), handle);
        let metaindex = self.append_block(&encode_metaindex(&metaindex), CompressionType::None)?;
        let footer = Footer {
            format_version: plan.table.format_version,
            guard: self.guard,
            metaindex,
            index: (!uses_context_checksum(plan.table.format_version)).then_some(index.handle),
        };
        let footer = footer.encode(self.offset);
        self.append(&footer)?;
        self.file.finish()?;
        let oldest_ancester_time = oldest_ancestor(plan, Some((&smallest, &largest)));
        Ok(OutputFile {
            number: self.number,
            size: self.offset,
            smallest,
            largest,
            properties,
            oldest_ancester_time,
            paranoid_hash: body.paranoid_hash,
            file_checksum: self.crc,
            content: body.content,
            index_hash: index.hash,
            marked_for_compaction: body.collected.needs_compaction,
            range_tombstones: body.range_tombstones,
            readable_properties: body.collected.readable,
        })
    }

    fn append_index(
        &mut self,
        plan: &OutputPlan,
        body: &mut FileBody,
        compressor: &mut Compressor,
    ) -> Result<WrittenIndex> {
        let mut append = |block: &[u8]| {
            if !plan.table.compress_index {
                return self.append_block(block, CompressionType::None);
            }
            let compressed = compressor.compress(block);
            let (stored, kind) = compressed.map_err(|e| Error::internal(e.what))?;
            body.compression_used.insert(kind);
            self.append_block(stored, kind)
        };
        let settings = plan.table.index;
        let (mut partitions, mut payload_size) = (Vec::new(), 0);
        let built = match &mut body.index {
            IndexBlock::Entries(entries) => {
                let user_keys = entries.has_user_keys();
                let payload = if settings.partitions.is_some() {
                    for (block, last) in entries.partitions() {
                        payload_size += block.len() as u64;
                        partitions.push((last, append(&block)?));
                    }
                    encode_index(settings, user_keys, partitions.iter().copied())
                } else {
                    entries.finish()
                };
                BuiltIndex {
                    payload,
                    user_keys,
                    hash: index_hash((0..entries.len()).map(|i| entries.block(i))),
                }
            }
            IndexBlock::Built(_) if settings.partitions.is_some() => {
                return Err(Error::internal(
                    "an index without the partitions of the plan",
                ));
            }
            IndexBlock::Built(built) => std::mem::take(built),
        };
        let (partitions, block) = (partitions.len() as u64, built.payload);
        Ok(WrittenIndex {
            handle: append(&block)?,
            payload_size: payload_size + block.len() as u64,
            partitions,
            top_level_size: match settings.partitions {
                Some(_) => block.len() as u64,
                None => 0,
            },
            user_keys: built.user_keys,
            hash: built.hash,
        })
    }

    /// Appends the partitions of a filter and their index. Returns its handle, and the bytes of all of them.
    fn append_filter(
        &mut self,
        plan: &OutputPlan,
        user_keys: bool,
        partitions: &[(FilterPartition, Vec<u8>)],
    ) -> Result<(BlockHandle, u64)> {
        let (mut entries, mut size) = (Vec::new(), 0);
        for (partition, payload) in partitions {
            let handle = self.append_block(payload, CompressionType::None)?;
            entries.push((partition.last_key.as_slice(), handle));
            size += handle.size;
        }
        let block = encode_index(plan.table.index, user_keys, entries.iter().copied());
        let top = self.append_block(&block, CompressionType::None)?;
        Ok((top, size + top.size))
    }

    /// All properties that are known before the meta blocks are written.
    fn properties(&self, plan: &OutputPlan, body: &FileBody) -> TableProperties {
        let (table, names, counts) = (&plan.table, &plan.properties, &body.counts);
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
            num_entries: body.content.entries(),
            num_deletions: counts.deletions,
            num_merge_operands: counts.merge_operands,
            format_version: match says_format_version(names.rocksdb_version) {
                true => u64::from(table.format_version),
                false => 0,
            },
            column_family_id: u64::from(names.column_family_id),
            oldest_ancestor_time: oldest_ancestor(plan, None),
            newest_key_time: names.newest_key_time,
            file_creation_time: names.now,
            user_defined_timestamps_persisted: 1,
            key_largest_seqno: counts.largest_seqno,
            key_smallest_seqno: counts.smallest_seqno.unwrap_or(u64::MAX),
            data_block_restart_interval: table.restart_interval as u64,
            index_block_restart_interval: table.index.restart_interval as u64,
            lsm_info_at_creation: lsm_info_at_creation(names.output_level, names.bottommost),
            db_id: names.db_id.clone(),
            db_session_id: names.session_id.clone().into_bytes(),
            db_host_id: names.host.clone().into_bytes(),
            column_family_name: names.column_family_name.clone(),
            filter_policy_name: names.filter_policy_name.clone().unwrap_or_default().into(),
            comparator_name: match &names.comparator_name {
                Some(name) => name.clone().into_bytes(),
                None => plan.order().comparator().to_vec(),
            },
            merge_operator_name: text(&names.merge_operator_name),
            prefix_extractor_name: text(&names.prefix_extractor_name),
            property_collectors_names: format!("[{}]", names.collector_names.join(","))
                .into_bytes(),
            compression_options: names.compression_options.clone().into_bytes(),
            index_type: Some(match table.index.partitions {
                Some(_) => IndexType::TwoLevel as u32,
                None => IndexType::BinarySearch as u32,
            }),
            whole_key_filtering: Some(names.whole_key_filtering),
            prefix_filtering: Some(names.prefix_extractor_name.is_some()),
            decoupled_partitioned_filters: names.decouple_partitioned_filters.then_some(true),
            ..TableProperties::default()
        }
    }
}

/// Contents of a file once its data blocks are written.
#[derive(Debug)]
pub struct FileBody {
    /// Bytes of the data blocks, trailers included.
    pub data_size: u64,
    /// First internal key of the data blocks; empty if there are none.
    pub first_key: Vec<u8>,
    /// Last internal key of the data blocks.
    pub last_key: Vec<u8>,
    /// Counts for the properties.
    pub counts: FileCounts,
    /// The index.
    pub index: IndexBlock,
    /// The filter.
    pub filter: FilterBlock,
    /// Hashes in the filter.
    pub num_filter_entries: u64,
    /// Compression types of the blocks so far.
    pub compression_used: BTreeSet<CompressionType>,
    /// Dictionary of the data blocks; empty without one.
    pub dictionary: Vec<u8>,
    /// Contents that a reader of the file must find.
    pub content: ContentHash,
    /// RocksDB's hash over all entries, if the plan asks for it, else 0.
    pub paranoid_hash: u64,
    /// The results of collectors for the file.
    pub collected: Collected,
    /// Range tombstones, which ascend by first key and descend by sequence number. They lie in the keys that are the
    /// file's.
    pub range_tombstones: Vec<RangeTombstone>,
}

/// Counts of one file.
#[derive(Debug, Default, Clone, Copy)]
pub struct FileCounts {
    /// Tombstones.
    pub deletions: u64,
    /// Merge operands.
    pub merge_operands: u64,
    /// Bytes of internal keys.
    pub raw_key_bytes: u64,
    /// Bytes of values.
    pub raw_value_bytes: u64,
    /// Bytes of data blocks before compression, without trailers.
    pub uncompressed_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Blocks among them stored uncompressed because compression saved too little.
    pub rejected: u64,
    /// Blocks among these that were not given to a compressor.
    pub bypassed: u64,
    /// `None` without entries.
    pub smallest_seqno: Option<u64>,
    /// Largest sequence number.
    pub largest_seqno: u64,
}

/// Adds range tombstones to a file's counts (`block_based_table_builder.cc:Add`).
fn count_tombstones(properties: &mut TableProperties, tombstones: &[RangeTombstone]) {
    let number = tombstones.len() as u64;
    properties.num_entries += number;
    properties.num_deletions += number;
    properties.num_range_deletions += number;
    for tombstone in tombstones {
        properties.raw_key_size += (tombstone.begin.len() + key::TAG_SIZE) as u64;
        properties.raw_value_size += tombstone.end.len() as u64;
        let [smallest, largest] = [
            &mut properties.key_smallest_seqno,
            &mut properties.key_largest_seqno,
        ];
        *smallest = tombstone.sequence.min(*smallest);
        *largest = tombstone.sequence.max(*largest);
    }
}

/// Smallest and largest internal key of a file with these first and last keys of data blocks, if there are any, and
/// with these range tombstones (`version_edit.h:UpdateBoundariesForRange`).
pub fn bounds(
    order: KeyOrder,
    first: &[u8],
    last: &[u8],
    tombstones: &[RangeTombstone],
) -> (Vec<u8>, Vec<u8>) {
    let is_before = |a: &[u8], b: &[u8]| match (key::split(a), key::split(b)) {
        (Some(a), Some(b)) => order.compare_entries(a, b).is_lt(),
        (a, _) => a.is_some(),
    };
    let (mut smallest, mut largest) = (first.to_vec(), last.to_vec());
    for tombstone in tombstones {
        let (begin, end) = (tombstone.first_key(), tombstone.end_key());
        if is_before(&begin, &smallest) {
            smallest = begin;
        }
        if largest.is_empty() || is_before(&largest, &end) {
            largest = end;
        }
    }
    (smallest, largest)
}

/// A file's filter block.
#[derive(Debug)]
pub enum FilterBlock {
    /// There is none.
    None,
    /// To be written.
    Payload(Vec<u8>),
    /// Already written directly behind the data blocks.
    Written(BlockHandle),
    /// Partitions to be written, of which there is one at least.
    Partitions(Vec<(FilterPartition, Vec<u8>)>),
}

/// A file's index, with one entry a data block.
#[derive(Debug)]
pub enum IndexBlock {
    /// Its entries.
    Entries(Box<IndexBuilder>),
    /// The block, not yet compressed.
    Built(BuiltIndex),
}

impl IndexBlock {
    fn has_user_keys(&self) -> bool {
        match self {
            Self::Entries(entries) => entries.has_user_keys(),
            Self::Built(built) => built.user_keys,
        }
    }
}

/// An index block.
#[derive(Debug, Default)]
pub struct BuiltIndex {
    /// The block, not yet compressed.
    pub payload: Vec<u8>,
    /// Whether its separators are user keys.
    pub user_keys: bool,
    /// Its [`index_hash`].
    pub hash: u64,
}

/// An index that stands in its file.
struct WrittenIndex {
    /// Handle of the only block, or of the index of partitions.
    handle: BlockHandle,
    /// Bytes of all blocks before compression.
    payload_size: u64,
    partitions: u64,
    /// Bytes of the index of partitions before compression; 0 without partitions.
    top_level_size: u64,
    user_keys: bool,
    hash: u64,
}

/// How the checksums of the blocks of the job's file `number` are computed.
pub fn block_guard(plan: &OutputPlan, number: u64) -> BlockGuard {
    BlockGuard {
        checksum: plan.table.checksum,
        base_context_checksum: if uses_context_checksum(plan.table.format_version) {
            base_context_checksum(plan.properties.checksum_seed, number)
        } else {
            0
        },
        is_legacy: false,
    }
}

fn compression_property(
    plan: &OutputPlan,
    used: &BTreeSet<CompressionType>,
    compressor: &Compressor,
) -> String {
    let used: Vec<u8> = used.iter().map(|&kind| kind as u8).collect();
    let preferred = (!compressor.is_stored()).then_some(compressor.kind() as u8);
    compression_name(plan.table.format_version, preferred, &used)
}

/// Base context checksum of file `number`: never 0, and different for each file of an attempt.
fn base_context_checksum(seed: u64, number: u64) -> u32 {
    let hash = entry_hash(seed, number);
    match (hash >> 32) as u32 ^ hash as u32 {
        0 => 1,
        base => base,
    }
}

/// Smallest ancestor time of the inputs that overlap `range` (internal keys), or of all inputs; now if none is known
/// (`compaction.cc:MinInputFileOldestAncestorTime`).
fn oldest_ancestor(plan: &OutputPlan, range: Option<(&[u8], &[u8])>) -> u64 {
    let order = plan.order();
    let overlaps = |smallest: &[u8], largest: &[u8]| {
        let Some((from, to)) = range else { return true };
        match (
            key::split(smallest),
            key::split(largest),
            key::split(from),
            key::split(to),
        ) {
            (Some(smallest), Some(largest), Some(from), Some(to)) => {
                order.compare_entries(largest, from).is_ge()
                    && order.compare_entries(smallest, to).is_le()
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
