//! Collects the keys of a file and builds its full filter
//! (`table/block_based/full_filter_block.cc:FullFilterBlockBuilder`).

use std::num::NonZeroU64;

use super::policy::PolicyKind;
use super::{bloom, legacy};
use crate::key::{ValueType, pack_tag};
use crate::prefix::{CustomPrefixes, PrefixExtractor};
use crate::xxph3::hash64;

/// First format_version whose Bloom filters are FastLocalBloom.
const FIRST_FAST_LOCAL_VERSION: u32 = 5;

/// Format of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterFormat {
    /// FastLocalBloom ([`bloom`]).
    FastLocalBloom,
    /// The legacy Bloom filter ([`legacy`]), with whole bits per key and 32-bit hashes.
    Legacy,
}

impl FilterFormat {
    /// The format for this policy in a file of this format_version
    /// (`filter_policy.cc:BloomFilterPolicy::GetBuilderWithContext`). The Ribbon policy does not depend on the version:
    /// its Bloom filters are FastLocalBloom in every file (`RibbonFilterPolicy::GetBuilderWithContext`).
    #[must_use]
    pub fn of(policy: PolicyKind, format_version: u32) -> Self {
        if policy == PolicyKind::Bloom && format_version < FIRST_FAST_LOCAL_VERSION {
            Self::Legacy
        } else {
            Self::FastLocalBloom
        }
    }
}

/// Contents and density of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterOptions {
    /// Its format.
    pub format: FilterFormat,
    /// Bits for each hash in thousandths, from [`super::FilterPolicy`]; 0 = no filter. A legacy
    /// filter rounds them to whole bits.
    pub millibits_per_key: u32,
    /// Whether whole user keys are added.
    pub whole_key_filtering: bool,
    /// Extractor of the added prefixes.
    pub prefix_extractor: Option<PrefixExtractor>,
    /// Table option; here it only changes the number of probes, and of FastLocalBloom alone.
    pub optimize_filters_for_memory: bool,
    /// Hashes after which a partition ends; `None` for a filter of one block.
    pub hashes_per_partition: Option<NonZeroU64>,
}

impl FilterOptions {
    /// RocksDB's Bloom filter of whole user keys, with the given thousandths of a bit per key.
    #[must_use]
    pub const fn whole_keys(millibits_per_key: u32) -> Self {
        Self {
            format: FilterFormat::FastLocalBloom,
            millibits_per_key,
            whole_key_filtering: true,
            prefix_extractor: None,
            optimize_filters_for_memory: false,
            hashes_per_partition: None,
        }
    }

    /// The same filter in partitions of about `bytes`, if the index of the file has partitions of that size without the free
    /// bytes. It may have prefixes (`partitioned_filter_block.cc:PartitionedFilterBlockBuilder`).
    #[must_use]
    pub fn in_partitions_of(self, bytes: u64, has_prefixes: bool) -> Self {
        /// Where RocksDB gives up to look for a partition with a single hash.
        const MOST_BYTES: u64 = 100_000;
        let bytes = bytes.clamp(1, u64::from(u32::MAX));
        let mut hashes = self.hashes_in(bytes);
        let mut larger = (bytes + 4).max(16);
        while hashes == 0 && larger <= MOST_BYTES {
            hashes = self.hashes_in(larger);
            larger += larger / 4;
        }
        let hashes = NonZeroU64::new(hashes).or(NonZeroU64::new(bytes));
        // The first prefix of the next partition is added too.
        let hashes = hashes.map(|hashes| match has_prefixes {
            true => NonZeroU64::new(hashes.get() - 1).unwrap_or(hashes),
            false => hashes,
        });
        Self {
            hashes_per_partition: hashes,
            ..self
        }
    }

    /// Number of hashes for which a filter of `bytes` suffices (`FilterBitsBuilder::ApproximateNumEntries`).
    fn hashes_in(&self, bytes: u64) -> u64 {
        match self.format {
            FilterFormat::FastLocalBloom => bloom::hashes_in(bytes, self.millibits_per_key),
            FilterFormat::Legacy => {
                let bits = legacy::whole_bits_per_key(self.millibits_per_key);
                legacy::hashes_in(bytes, bits)
            }
        }
    }
}

/// A partition of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPartition {
    /// An internal key at or behind those of all entries of the partition, and before those of the next one.
    pub last_key: Vec<u8>,
    /// Number of hashes in this partition and those before.
    pub end: usize,
}

/// Builds one file's filter.
///
/// Memory: 8 bytes per hash (briefly up to 24 while the list grows), and the payload at the end.
#[derive(Debug, Clone)]
pub struct FilterBuilder {
    options: FilterOptions,
    /// The application's prefix extractor, which takes precedence.
    prefixes: Option<CustomPrefixes>,
    hashes: Vec<u64>,
    prev_prefix_hash: Option<u64>,
    /// Hashes in the current partition.
    in_partition: u64,
    /// The last user key, if there are partitions.
    last_key: Vec<u8>,
    /// The partitions before the current one.
    partitions: Vec<FilterPartition>,
}

impl FilterBuilder {
    /// An empty filter.
    #[must_use]
    pub fn new(options: FilterOptions) -> Self {
        Self {
            options,
            prefixes: None,
            hashes: Vec::new(),
            prev_prefix_hash: None,
            in_partition: 0,
            last_key: Vec::new(),
            partitions: Vec::new(),
        }
    }

    /// The same filter with the prefixes of an application's extractor, if there is one.
    #[must_use]
    pub fn with_prefixes(self, prefixes: Option<CustomPrefixes>) -> Self {
        Self { prefixes, ..self }
    }

    /// Adds a point entry's user key. Call it for every entry of the file in key order, of any type. Versions of one
    /// key and keys of one prefix count once.
    #[inline]
    pub fn add(&mut self, user_key: &[u8]) {
        if self.options.millibits_per_key == 0 {
            return;
        }
        if let Some(most) = self.options.hashes_per_partition {
            if self.in_partition >= most.get() {
                self.end_partition_before(user_key);
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(user_key);
        }
        let prefix = self.prefix_of(user_key);
        match (self.options.whole_key_filtering, prefix) {
            (true, Some(prefix)) => self.add_key_and_prefix(self.hash(user_key), self.hash(prefix)),
            (true, None) => self.add_unless_last(self.hash(user_key)),
            (false, Some(prefix)) => self.add_unless_last(self.hash(prefix)),
            (false, None) => {}
        }
    }

    #[inline]
    fn prefix_of<'k>(&self, user_key: &'k [u8]) -> Option<&'k [u8]> {
        match &self.prefixes {
            Some(custom) => custom.transform(user_key),
            None => self.options.prefix_extractor?.transform(user_key),
        }
    }

    /// Ends a partition. It also has the prefix of the key behind it, which is the first of that prefix that a search finds. The
    /// next partition has the prefix of the key before it, for searches backwards
    /// (`partitioned_filter_block.cc:CutAFilterBlock`).
    #[cold]
    fn end_partition_before(&mut self, next_key: &[u8]) {
        if let Some(hash) = self.prefix_of(next_key).map(|prefix| self.hash(prefix)) {
            match self.options.whole_key_filtering {
                true => self.add_key_and_prefix(hash, hash),
                false => self.add_unless_last(hash),
            }
        }
        let partition = self.current_partition();
        self.partitions.push(partition);
        (self.in_partition, self.prev_prefix_hash) = (0, None);
        let before = self.prefix_of(&self.last_key);
        if let Some(hash) = before.map(|prefix| self.hash(prefix)) {
            self.add_unless_last(hash);
        }
    }

    /// The partition that ends with the last hash and the last key.
    fn current_partition(&self) -> FilterPartition {
        let mut last_key = self.last_key.clone();
        last_key.extend_from_slice(&pack_tag(0, ValueType::Deletion as u8).to_le_bytes());
        FilterPartition {
            last_key,
            end: self.hashes.len(),
        }
    }

    /// The legacy hash has 32 bits.
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        match self.options.format {
            FilterFormat::FastLocalBloom => hash64(key),
            FilterFormat::Legacy => u64::from(legacy::bloom_hash(key)),
        }
    }

    #[inline]
    fn add_unless_last(&mut self, hash: u64) {
        if self.last_hash() != Some(hash) {
            self.push(hash);
        }
    }

    /// `filter_policy.cc:XXPH3FilterBitsBuilder::AddKeyAndAlt`, and the same of `LegacyBloomBitsBuilder`, whose -1 for
    /// "none yet" is not a 32-bit hash. The prefix is added first, so that the last hash is always the previous key's.
    /// The key is compared with the state before this call.
    #[inline]
    fn add_key_and_prefix(&mut self, key: u64, prefix: u64) {
        let prev_key = self.last_hash();
        let prev_prefix = self.prev_prefix_hash.replace(prefix);
        if Some(prefix) != prev_prefix && prefix != key && Some(prefix) != prev_key {
            self.push(prefix);
        }
        if Some(key) != prev_key && Some(key) != prev_prefix {
            self.push(key);
        }
    }

    /// The last hash of the current partition.
    #[inline]
    fn last_hash(&self) -> Option<u64> {
        match self.in_partition {
            0 => None,
            _ => self.hashes.last().copied(),
        }
    }

    #[inline]
    fn push(&mut self, hash: u64) {
        self.hashes.push(hash);
        self.in_partition += 1;
    }

    /// Number of hashes in the filter: the property `rocksdb.num.filter_entries`.
    #[must_use]
    pub fn num_added(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Approximate size of the filter so far, within a line or two.
    #[must_use]
    pub fn estimated_len(&self) -> u64 {
        const MILLIBITS_PER_BYTE: u64 = 8000;
        let millibits = match self.options.format {
            FilterFormat::FastLocalBloom => self.options.millibits_per_key,
            FilterFormat::Legacy => {
                legacy::whole_bits_per_key(self.options.millibits_per_key) * 1000
            }
        };
        self.num_added() * u64::from(millibits) / MILLIBITS_PER_BYTE
    }

    /// The hashes so far, in the order in which they were added.
    #[must_use]
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Removes all hashes except the last, with which the next key is compared, and returns how many are left. It is
    /// for callers that only take hashes, in parts. Afterwards, [`FilterBuilder::finish`] and the counts are wrong.
    pub fn forget(&mut self) -> usize {
        let before_last = self.hashes.len().saturating_sub(1);
        self.hashes.drain(..before_last);
        self.partitions.clear();
        self.hashes.len()
    }

    /// The payload of the filter block, metadata included; `None` if nothing was added, and then
    /// the file has no filter block (`block_based_table_builder.cc:WriteFilterBlock`).
    #[must_use]
    pub fn finish(&self) -> Option<Vec<u8>> {
        (!self.hashes.is_empty()).then(|| self.build(&self.hashes))
    }

    /// The payloads of the partitions of the filter, which has some.
    #[must_use]
    pub fn finish_partitions(&self) -> Vec<(FilterPartition, Vec<u8>)> {
        let last = (self.in_partition > 0).then(|| self.current_partition());
        let all = self.partitions.iter().cloned().chain(last);
        let built = all.scan(0, |start, partition| {
            let payload = self.build(&self.hashes[*start..partition.end]);
            *start = partition.end;
            Some((partition, payload))
        });
        built.collect()
    }

    fn build(&self, hashes: &[u64]) -> Vec<u8> {
        let millibits = self.options.millibits_per_key;
        match self.options.format {
            FilterFormat::FastLocalBloom => {
                bloom::build(hashes, millibits, self.options.optimize_filters_for_memory)
            }
            FilterFormat::Legacy => legacy::build(
                hashes.iter().map(|&hash| hash as u32),
                legacy::whole_bits_per_key(millibits),
            ),
        }
    }
}
