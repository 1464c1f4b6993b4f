//! Collects the keys of a file and builds its full filter
//! (`table/block_based/full_filter_block.cc:FullFilterBlockBuilder`).

use super::policy::PolicyKind;
use super::{bloom, legacy};
use crate::prefix::PrefixExtractor;
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
    /// Which filter.
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
        }
    }
}

/// Builds one file's filter.
///
/// Memory: 8 bytes per hash (briefly up to 24 while the list grows), and the payload at the end.
#[derive(Debug, Clone)]
pub struct FilterBuilder {
    options: FilterOptions,
    hashes: Vec<u64>,
    prev_prefix_hash: Option<u64>,
}

impl FilterBuilder {
    /// An empty filter.
    #[must_use]
    pub fn new(options: FilterOptions) -> Self {
        Self {
            options,
            hashes: Vec::new(),
            prev_prefix_hash: None,
        }
    }

    /// Adds a point entry's user key. Call it for every entry of the file in key order, of any type. Versions of one
    /// key and keys of one prefix count once.
    #[inline]
    pub fn add(&mut self, user_key: &[u8]) {
        if self.options.millibits_per_key == 0 {
            return;
        }
        let prefix = self
            .options
            .prefix_extractor
            .and_then(|extractor| extractor.transform(user_key));
        match (self.options.whole_key_filtering, prefix) {
            (true, Some(prefix)) => self.add_key_and_prefix(self.hash(user_key), self.hash(prefix)),
            (true, None) => self.add_unless_last(self.hash(user_key)),
            (false, Some(prefix)) => self.add_unless_last(self.hash(prefix)),
            (false, None) => {}
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
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// `filter_policy.cc:XXPH3FilterBitsBuilder::AddKeyAndAlt`, and the same of `LegacyBloomBitsBuilder`, whose -1 for
    /// "none yet" is not a 32-bit hash. The prefix is added first, so that the last hash is always the previous key's.
    /// The key is compared with the state before this call.
    #[inline]
    fn add_key_and_prefix(&mut self, key: u64, prefix: u64) {
        let prev_key = self.hashes.last().copied();
        let prev_prefix = self.prev_prefix_hash.replace(prefix);
        if Some(prefix) != prev_prefix && prefix != key && Some(prefix) != prev_key {
            self.hashes.push(prefix);
        }
        if Some(key) != prev_key && Some(key) != prev_prefix {
            self.hashes.push(key);
        }
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
        self.hashes.len()
    }

    /// The payload of the filter block, metadata included; `None` if nothing was added, and then
    /// the file has no filter block (`block_based_table_builder.cc:WriteFilterBlock`).
    #[must_use]
    pub fn finish(&self) -> Option<Vec<u8>> {
        if self.hashes.is_empty() {
            return None;
        }
        let millibits = self.options.millibits_per_key;
        Some(match self.options.format {
            FilterFormat::FastLocalBloom => bloom::build(
                &self.hashes,
                millibits,
                self.options.optimize_filters_for_memory,
            ),
            FilterFormat::Legacy => legacy::build(
                self.hashes.iter().map(|&hash| hash as u32),
                legacy::whole_bits_per_key(millibits),
            ),
        })
    }
}
