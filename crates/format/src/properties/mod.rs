//! The properties of an SST file (`include/rocksdb/table_properties.h`).
//!
//! In the file they are the entries of one block, with names ascending bytewise. Integers are varint64, texts are raw
//! bytes, and the block-based table adds a few in its own forms (fixed32, `0`/`1`). In a `CompactionService` result
//! they are a struct under the C++ member names. One table of rows defines both forms.

mod compression;
mod fields;
#[cfg(test)]
mod tests;

pub use compression::{
    CompressionOptions, compression_name, compression_types, is_uncompressed, may_use_compression,
    type_name as compression_type_name,
};

use crate::error::{Error, Result};
use crate::versions::writes;
use crate::wire::PropertyValue;
pub(crate) use fields::EXTERNAL_GLOBAL_SEQNO;
use fields::{BYTES, INTS};
use std::collections::BTreeMap;

const COMPARATOR: &str = "rocksdb.comparator";

/// An unknown sequence number.
pub const UNKNOWN_SEQNO: u64 = u64::MAX;
/// The id of an unknown column family (`TablePropertiesCollectorFactory::Context::kUnknownColumnFamily`).
pub const UNKNOWN_COLUMN_FAMILY: u64 = i32::MAX as u64;

/// Every property that RocksDB 11.12 knows, under the C++ member's name; defaults are RocksDB's.
///
/// Sizes are bytes, times are seconds since 1970 with 0 for unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableProperties {
    /// File number at creation, part of the unique id; 0 = unknown.
    pub orig_file_number: u64,
    /// All data blocks as stored, with their trailers.
    pub data_size: u64,
    /// All data blocks before compression, without trailers.
    pub uncompressed_data_size: u64,
    /// The index before compression plus one trailer; for two levels all partitions and the top.
    pub index_size: u64,
    /// Partitions of a two-level index, else 0.
    pub index_partitions: u64,
    /// The top of a two-level index.
    pub top_level_index_size: u64,
    /// 1 if index keys are user keys, 0 if internal keys. Wrong values make lookups miss.
    pub index_key_is_user_key: u64,
    /// 1 if index values are delta encoded.
    pub index_value_is_delta_encoded: u64,
    /// 1 if a user-defined index is the primary one.
    pub udi_is_primary_index: u64,
    /// Filter payloads, without trailers.
    pub filter_size: u64,
    /// Sum over entries of internal keys.
    pub raw_key_size: u64,
    /// Sum over entries of values.
    pub raw_value_size: u64,
    /// Number of data blocks.
    pub num_data_blocks: u64,
    /// Data blocks stored uncompressed because compression did not pay.
    pub num_data_blocks_compression_rejected: u64,
    /// Data blocks stored uncompressed because compression was not tried.
    pub num_data_blocks_compression_bypassed: u64,
    /// Index blocks with evenly spread keys.
    pub num_uniform_blocks: u64,
    /// All entries, range tombstones included.
    pub num_entries: u64,
    /// Hashes in the filter.
    pub num_filter_entries: u64,
    /// Point and range tombstones.
    pub num_deletions: u64,
    /// Merge operands.
    pub num_merge_operands: u64,
    /// Range tombstones.
    pub num_range_deletions: u64,
    /// `format_version` of the footer.
    pub format_version: u64,
    /// 0: keys are of variable length.
    pub fixed_key_len: u64,
    /// Column family, or [`UNKNOWN_COLUMN_FAMILY`].
    pub column_family_id: u64,
    /// Oldest time of the data that went into the file; stored as `rocksdb.creation.time`,
    /// `creation_time` in results.
    pub oldest_ancestor_time: u64,
    /// Time of the earliest key.
    pub oldest_key_time: u64,
    /// Time of the newest key.
    pub newest_key_time: u64,
    /// Time at which the file was made.
    pub file_creation_time: u64,
    /// Estimate of `data_size` under a slow compression; 0 = not sampled.
    pub slow_compression_estimated_data_size: u64,
    /// Estimate of `data_size` under a fast compression; 0 = not sampled.
    pub fast_compression_estimated_data_size: u64,
    /// End of the data blocks.
    pub tail_start_offset: u64,
    /// 0 if user-defined timestamps were stripped.
    pub user_defined_timestamps_persisted: u64,
    /// Largest sequence number of all entries, or [`UNKNOWN_SEQNO`].
    pub key_largest_seqno: u64,
    /// Smallest sequence number of all entries, or [`UNKNOWN_SEQNO`].
    pub key_smallest_seqno: u64,
    /// Entries between restart points of data blocks; 0 = unknown.
    pub data_block_restart_interval: u64,
    /// Entries between restart points of index blocks; 0 = unknown.
    pub index_block_restart_interval: u64,
    /// 1 if data blocks have separate sections for keys and values.
    pub separate_key_value_in_data_block: u64,
    /// Level at creation, and whether it was bottommost, see [`lsm_info_at_creation`]; 0 = unknown.
    pub lsm_info_at_creation: u64,

    /// Identity of the database.
    pub db_id: Vec<u8>,
    /// Session that made the file, part of the unique id.
    pub db_session_id: Vec<u8>,
    /// Host that made the file.
    pub db_host_id: Vec<u8>,
    /// Column family.
    pub column_family_name: Vec<u8>,
    /// The filter policy's name; empty = none.
    pub filter_policy_name: Vec<u8>,
    /// The comparator's name.
    pub comparator_name: Vec<u8>,
    /// The merge operator's name, or `nullptr`.
    pub merge_operator_name: Vec<u8>,
    /// The prefix extractor's name with its length, or `nullptr`.
    pub prefix_extractor_name: Vec<u8>,
    /// `[NAME,NAME]`.
    pub property_collectors_names: Vec<u8>,
    /// See [`compression_name`].
    pub compression_name: Vec<u8>,
    /// See [`CompressionOptions::text`].
    pub compression_options: Vec<u8>,
    /// Times of sequence numbers, delta encoded.
    pub seqno_to_time_mapping: Vec<u8>,

    /// 0 binary search, 1 hash, 2 two-level, 3 binary search with first keys. A file without it
    /// cannot be opened.
    pub index_type: Option<u32>,
    /// Whether the filter has whole keys; readers treat `None` as true.
    pub whole_key_filtering: Option<bool>,
    /// Whether a prefix extractor was set; readers treat `None` as true.
    pub prefix_filtering: Option<bool>,
    /// The table option; RocksDB writes it only if it is true.
    pub decoupled_partitioned_filters: Option<bool>,
    /// 1 or 2 in files made for ingestion.
    pub external_sst_file_version: Option<u32>,
    /// Sequence number of all entries of an ingested file of version 2; if it is 0, the MANIFEST's largest one applies.
    pub external_sst_file_global_seqno: Option<u64>,
    /// Present if the file contains blobs.
    pub embedded_blob_stats: Option<Vec<u8>>,

    /// All other properties, by name.
    pub user: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl TableProperties {
    /// Bytes of all keys and values.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_key_size.saturating_add(self.raw_value_size)
    }

    /// Reads the entries of a properties block (`table/meta_blocks.cc:ParsePropertiesBlock`).
    ///
    /// # Errors
    /// Corruption if the names are not strictly ascending, or a known property is malformed
    /// (RocksDB would skip it). The error's offset is 0, its text names the property.
    pub fn from_entries<K, V>(entries: impl IntoIterator<Item = (K, V)>) -> Result<Self>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut properties = Self::default();
        let mut previous: Option<K> = None;
        for (name, value) in entries {
            let unsorted = |last: &K| last.as_ref() >= name.as_ref();
            if previous.as_ref().is_some_and(unsorted) {
                return Err(Error::corruption(0, "properties unsorted"));
            }
            properties.set(name.as_ref(), value.as_ref())?;
            previous = Some(name);
        }
        Ok(properties)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        if let Some(row) = INTS.iter().find(|row| row.name.as_bytes() == name) {
            *(row.get_mut)(self) = fields::parse_varint(row.name, value)?;
        } else if name == COMPARATOR.as_bytes() {
            // RocksDB 4.9 to 4.13 named the order of internal keys.
            let user_order = value.strip_prefix(b"rocksdb.InternalKeyComparator:");
            self.comparator_name = user_order.unwrap_or(value).to_vec();
        } else if let Some(row) = BYTES.iter().find(|row| row.name.as_bytes() == name) {
            *(row.get_mut)(self) = value.to_vec();
        } else if !fields::set_user_collected(self, name, value)? {
            self.user.insert(name.to_vec(), value.to_vec());
        }
        Ok(())
    }

    /// The entries of the properties block, in its order: exactly those that RocksDB of this version, or 11.12 for
    /// zeros, writes for these values (`table/meta_blocks.cc:PropertyBlockBuilder::AddTableProperty`).
    #[must_use]
    pub fn to_entries(&self, rocksdb_version: [u32; 3]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut entries = self.user_collected();
        for row in INTS {
            let is_known = writes(|release| release.file_properties, row.name, rocksdb_version);
            if is_known && row.written.holds((row.get)(self), self) {
                let mut value = Vec::new();
                crate::coding::put_varint(&mut value, (row.get)(self));
                entries.insert(row.name.into(), value);
            }
        }
        for row in BYTES {
            let value = (row.get)(self);
            if !value.is_empty() {
                entries.insert(row.name.into(), value.clone());
            }
        }
        entries.into_iter().collect()
    }

    /// The C++ member `user_collected_properties` after the file was built: the block-based table's own properties and
    /// those of [`TableProperties::user`].
    fn user_collected(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = self.user.clone();
        all.extend(fields::user_collected(self));
        all
    }

    /// All fields of `table_properties` in a `CompactionService` result, under their C++ member names
    /// (`table/table_properties.cc:table_properties_type_info`). Their order is free.
    #[must_use]
    pub fn result_fields(&self) -> Vec<(&'static str, PropertyValue)> {
        let ints = INTS
            .iter()
            .map(|row| (row.member, PropertyValue::Int((row.get)(self))));
        let bytes = BYTES
            .iter()
            .map(|row| (row.member, PropertyValue::Bytes((row.get)(self).clone())));
        let user = self.user_collected().into_iter().collect();
        ints.chain(bytes)
            .chain([
                ("user_collected_properties", PropertyValue::Map(user)),
                ("readable_properties", PropertyValue::Map(Vec::new())),
            ])
            .collect()
    }
}

/// The property `rocksdb.lsm.info.at.creation` of a file made by a flush or compaction: level in bits 0 to 7 (255 if it
/// does not fit); bits 8 and 9 are 2 for bottommost, else 1 (`table_properties.cc:LsmInfoAtCreation::Encode`).
#[must_use]
pub fn lsm_info_at_creation(level: u32, bottommost: bool) -> u64 {
    const UNKNOWN_LEVEL: u32 = 0xff;
    let state = if bottommost { 2 } else { 1 };
    u64::from(level.min(UNKNOWN_LEVEL)) | state << 8
}
