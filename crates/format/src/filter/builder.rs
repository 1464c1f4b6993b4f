//! Collects the keys of a file and builds its full filter
//! (`table/block_based/full_filter_block.cc:FullFilterBlockBuilder`).

use super::bloom;
use crate::prefix::PrefixExtractor;
use crate::xxph3::hash64;

/// What goes into a filter, and how dense it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterOptions {
    /// Bits for each hash in thousandths, from [`super::FilterPolicy`]; 0 = no filter.
    pub millibits_per_key: u32,
    /// Whether whole user keys are added.
    pub whole_key_filtering: bool,
    /// Whose prefixes are added.
    pub prefix_extractor: Option<PrefixExtractor>,
    /// Table option; here it only changes the number of probes.
    pub optimize_filters_for_memory: bool,
}

/// Builds one file's filter.
///
/// Memory: 8 bytes for each hash (up to 24 for an instant while the list grows), and the payload at
/// the end.
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

    /// Adds a point entry's user key. To be called for every entry of the file in key order,
    /// whatever its type; versions of one key and keys of one prefix collapse.
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
            (true, Some(prefix)) => self.add_key_and_prefix(hash64(user_key), hash64(prefix)),
            (true, None) => self.add_unless_last(hash64(user_key)),
            (false, Some(prefix)) => self.add_unless_last(hash64(prefix)),
            (false, None) => {}
        }
    }

    #[inline]
    fn add_unless_last(&mut self, hash: u64) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// `filter_policy.cc:XXPH3FilterBitsBuilder::AddKeyAndAlt`. The prefix goes first, so that the
    /// last hash is always the previous key's; the key is compared with the state before this call.
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

    /// The hashes so far, in the order in which they were added.
    #[must_use]
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The payload of the filter block, metadata included; `None` if nothing was added, and then
    /// the file has no filter block (`block_based_table_builder.cc:WriteFilterBlock`).
    #[must_use]
    pub fn finish(self) -> Option<Vec<u8>> {
        if self.hashes.is_empty() {
            return None;
        }
        let FilterOptions {
            millibits_per_key,
            optimize_filters_for_memory,
            ..
        } = self.options;
        Some(bloom::build(
            &self.hashes,
            millibits_per_key,
            optimize_filters_for_memory,
        ))
    }
}
