//! A job's plan: its keys, the entries that it keeps, the layout of its files and their ends.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::CompressionSettings;
use rockmill_format::filter::FilterOptions;
use rockmill_format::index::{IndexSettings, IndexShortening};
use rockmill_format::key::{KeyOrder, MAX_SEQUENCE};
use rockmill_format::prefix::CustomPrefixes;
use rockmill_format::range_tombstone::RangeTombstone;
use serde::{Deserialize, Serialize};

use crate::checked_order::CheckedOrder;
use crate::collector::CompactOnDeletion;
use crate::fragments::Fragments;
use crate::keys::{key_prefix, prefix_mask};
use crate::merging::Merging;
use crate::plugins::{CustomCollectors, JobFilter};

/// A range of user keys: begin inclusive, end exclusive, either open. In the order of bytes, unless a method takes another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key, or from the start.
    pub begin: Option<Vec<u8>>,
    /// Key behind the last, or to the end.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Whether `user_key` lies in the range.
    pub fn contains(&self, user_key: &[u8]) -> bool {
        self.contains_in(KeyOrder::Bytewise, user_key)
    }

    /// Whether `user_key` lies in the range, in this order.
    pub fn contains_in(&self, order: KeyOrder, user_key: &[u8]) -> bool {
        !self.is_behind(order, user_key) && !self.is_before(order, user_key)
    }

    /// Whether the whole range comes behind `user_key`.
    #[inline]
    pub fn is_behind(&self, order: KeyOrder, user_key: &[u8]) -> bool {
        (self.begin.as_deref()).is_some_and(|begin| order.is_before(user_key, begin))
    }

    /// Whether the whole range comes before `user_key`.
    #[inline]
    pub fn is_before(&self, order: KeyOrder, user_key: &[u8]) -> bool {
        (self.end.as_deref()).is_some_and(|end| !order.is_before(user_key, end))
    }

    /// Whether both ranges may have a key in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let is_before = |one: &Self, other: &Self| match (&one.end, &other.begin) {
            (Some(end), Some(begin)) => end <= begin,
            _ => false,
        };
        !is_before(self, other) && !is_before(other, self)
    }

    /// Whether all keys of `other` lie in this range.
    pub fn covers(&self, other: &Self) -> bool {
        let begins = self.begin.is_none() || self.begin <= other.begin;
        let ends = match (&self.end, &other.end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(other)) => other <= end,
        };
        begins && ends
    }

    /// Whether a tombstone deletes a key of the range, if there is one.
    pub fn meets(&self, tombstone: &RangeTombstone) -> bool {
        let RangeTombstone { begin, end, .. } = tombstone;
        let ends_behind = self.begin.as_ref().is_none_or(|first| first < end);
        let begins_before = self.end.as_ref().is_none_or(|last| begin < last);
        begin < end && ends_behind && begins_before
    }

    /// [`key_prefix`] of begin and end, with the [`prefix_mask`] of the order. A key whose prefix with the mask is between
    /// the two lies in the range.
    #[inline]
    pub fn prefixes(&self, order: KeyOrder) -> (u128, u128) {
        let prefix = |key: &[u8]| key_prefix(key) ^ prefix_mask(order);
        (
            self.begin.as_deref().map_or(0, prefix),
            self.end.as_deref().map_or(u128::MAX, prefix),
        )
    }
}

/// A subcompaction: it starts and ends between user keys and owns whole output files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subcompaction {
    /// Position in key order, from 0.
    pub index: usize,
    /// Its keys.
    pub range: KeyRange,
}

/// All that a job requests; each part has a default.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Keys that the job covers.
    pub range: KeyRange,
    /// The rules for the entries that are kept.
    pub rules: CompactionRules,
    /// The files that are written of them.
    pub output: OutputPlan,
}

impl Plan {
    /// Whether objects of the application are called. Only the CPU backend does that.
    pub fn has_plugins(&self) -> bool {
        self.rules.has_plugins()
            || !self.output.collectors.is_empty()
            || self.output.table.prefixes.is_some()
    }

    /// Whether the same can be done twice: a filter sees each key once, and a collector each file.
    pub fn is_repeatable(&self) -> bool {
        self.rules.filter.is_none() && self.output.collectors.is_empty()
    }
}

/// How rows are written as SST files; by default that of each part.
#[derive(Debug, Clone, Default)]
pub struct OutputPlan {
    /// How files are laid out.
    pub table: TablePlan,
    /// Where files end.
    pub splitting: OutputSplitting,
    /// The contents of the files' properties beside counts.
    pub properties: PropertiesPlan,
    /// Whether RocksDB compares a hash over all entries (`paranoid_file_checks`).
    pub paranoid_hash: bool,
    /// Whether the MANIFEST records a CRC32c of each file.
    pub file_checksum: bool,
    /// The rules that mark files for another compaction because of their tombstones.
    pub compact_on_deletion: Vec<CompactOnDeletion>,
    /// Factories of the application's collectors. Only the CPU backend calls them.
    pub collectors: Vec<CustomCollectors>,
}

/// The rules for the entries that a compaction keeps (`db/compaction/compaction_iterator.cc`).
#[derive(Debug, Clone)]
pub struct CompactionRules {
    /// Order of user keys.
    pub order: KeyOrder,
    /// The same order, if the comparator of the application has to agree to it. Only the CPU backend asks it.
    pub checked_order: Option<Arc<CheckedOrder>>,
    /// Sequence numbers of the snapshots, strictly ascending.
    pub snapshots: Vec<u64>,
    /// Whether no deeper level overlaps the inputs.
    pub bottommost: bool,
    /// Contents of the levels deeper than the output.
    pub deeper: DeeperLevels,
    /// Whether a SingleDelete that meets a Delete is an error.
    pub enforce_single_del_contracts: bool,
    /// Range tombstones of all inputs.
    pub tombstones: Arc<Fragments>,
    /// The merge function for operands; without it, they are an error.
    pub merging: Option<Merging>,
    /// The compaction filter. A job with one is a single subcompaction.
    pub filter: Option<JobFilter>,
    /// Whether the filter is also asked about the first entry beneath merge operands that stay operands.
    pub filters_beneath_operands: bool,
}

/// No snapshots, and deeper levels may hold anything.
impl Default for CompactionRules {
    fn default() -> Self {
        Self {
            order: KeyOrder::Bytewise,
            checked_order: None,
            snapshots: Vec::new(),
            bottommost: false,
            deeper: DeeperLevels::Unknown,
            enforce_single_del_contracts: true,
            tombstones: Arc::default(),
            merging: None,
            filter: None,
            filters_beneath_operands: true,
        }
    }
}

impl CompactionRules {
    /// Whether a merge operator, a filter or the comparator of the application is called.
    pub fn has_plugins(&self) -> bool {
        self.filter.is_some()
            || self.checked_order.is_some()
            || matches!(self.merging, Some(Merging::Custom(_)))
    }

    /// The oldest snapshot, or the largest sequence number if there is none.
    #[inline]
    pub fn earliest(&self) -> u64 {
        self.snapshots.first().copied().unwrap_or(MAX_SEQUENCE)
    }

    /// The oldest snapshot that sees `sequence`. Entries of one key that have the same one form a stripe
    /// (`findEarliestVisibleSnapshot`).
    #[inline]
    pub fn visible_to(&self, sequence: u64) -> u64 {
        let at = self.snapshots.partition_point(|&s| s < sequence);
        self.snapshots.get(at).copied().unwrap_or(MAX_SEQUENCE)
    }

    /// The newest snapshot that does not see `sequence`. It may have number 0.
    #[inline]
    pub fn snapshot_below(&self, sequence: u64) -> Option<u64> {
        let at = self.snapshots.partition_point(|&s| s < sequence);
        Some(self.snapshots[at.checked_sub(1)?])
    }
}

/// Key ranges of the files in levels deeper than the output.
#[derive(Debug, Clone)]
pub enum DeeperLevels {
    /// There are none: the output is bottommost.
    Nothing,
    /// They may contain any key (universal style, level 0).
    Unknown,
    /// Per level the files' smallest and largest user keys, in their order.
    Files(Vec<Vec<(Vec<u8>, Vec<u8>)>>),
}

impl DeeperLevels {
    /// Whether no file of a deeper level can have `user_key` (`compaction.cc:KeyNotExistsBeyondOutputLevel`).
    pub fn absent(&self, order: KeyOrder, user_key: &[u8]) -> bool {
        match self {
            Self::Nothing => true,
            Self::Unknown => false,
            Self::Files(levels) => levels.iter().all(|files| {
                files
                    .binary_search_by(|(smallest, largest)| {
                        if order.is_before(largest, user_key) {
                            Ordering::Less
                        } else if order.is_before(user_key, smallest) {
                            Ordering::Greater
                        } else {
                            Ordering::Equal
                        }
                    })
                    .is_err()
            }),
        }
    }
}

impl DeeperLevels {
    /// Whether no file of a deeper level can have a key from `begin` to before `end`
    /// (`compaction.cc:KeyRangeNotExistsBeyondOutputLevel`).
    pub fn absent_range(&self, order: KeyOrder, begin: &[u8], end: &[u8]) -> bool {
        match self {
            Self::Nothing => true,
            Self::Unknown => false,
            Self::Files(levels) => levels.iter().all(|files| {
                let at = files.partition_point(|(_, largest)| order.is_before(largest, begin));
                let next = files.get(at);
                next.is_none_or(|(smallest, _)| !order.is_before(smallest, end))
            }),
        }
    }
}

/// How output files are laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct TablePlan {
    /// format_version.
    pub format_version: u32,
    /// Checksum function of blocks.
    pub checksum: ChecksumType,
    /// Mean uncompressed bytes of entries in a data block.
    pub block_size: u64,
    /// Entries from one restart point to the next in data blocks.
    pub restart_interval: usize,
    /// Whether keys are stored as differences.
    pub delta_keys: bool,
    /// Whether data blocks store their common prefix once.
    pub common_prefix: bool,
    /// Keys for each bucket of the hash index in data blocks; `None` without one.
    pub keys_per_bucket: Option<f64>,
    /// The index.
    pub index: IndexSettings,
    /// Compression of data blocks.
    pub compression: CompressionSettings,
    /// Whether index blocks are compressed as well.
    pub compress_index: bool,
    /// The filter, if one is written.
    pub filter: Option<FilterPlan>,
    /// The application's prefix extractor, if the filter needs one. Only the CPU backend calls it.
    pub prefixes: Option<CustomPrefixes>,
}

/// The plan of RocksDB's default options, except that there is no compression and no filter.
impl Default for TablePlan {
    fn default() -> Self {
        const FORMAT_VERSION: u32 = 7;
        Self {
            format_version: FORMAT_VERSION,
            checksum: ChecksumType::Xxh3,
            block_size: 4096,
            restart_interval: 16,
            delta_keys: true,
            common_prefix: false,
            keys_per_bucket: None,
            index: IndexSettings {
                format_version: FORMAT_VERSION,
                restart_interval: 1,
                shortening: IndexShortening::Separators,
                common_prefix: false,
                partitions: None,
                order: KeyOrder::Bytewise,
            },
            compression: CompressionSettings::none(),
            compress_index: false,
            filter: None,
            prefixes: None,
        }
    }
}

/// How filters are built.
pub type FilterPlan = FilterOptions;

/// A file of the level below the output, at whose borders output files are split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grandparent {
    /// Smallest user key.
    pub smallest: Vec<u8>,
    /// Largest user key.
    pub largest: Vec<u8>,
    /// Bytes.
    pub size: u64,
}

/// Where output files end (`compaction_outputs.cc:ShouldStopBefore`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSplitting {
    /// Everything goes into one file: output level 0.
    pub single_file: bool,
    /// Target size in bytes as the options give it.
    pub target_file_size: u64,
    /// Size at which a file ends, in stored bytes.
    pub max_output_file_size: u64,
    /// Whether filter and index count towards the size.
    pub size_is_upper_bound: bool,
    /// Stored and uncompressed bytes of the inputs' data blocks: the compression ratio by which
    /// uncompressed output is counted.
    pub compression_ratio: (u64, u64),
    /// Files of the first deeper level that overlaps, ascending.
    pub grandparents: Vec<Grandparent>,
    /// Maximum bytes of grandparents that one file may overlap.
    pub max_compaction_bytes: u64,
    /// Whether the compaction style is level.
    pub level_style: bool,
    /// Leading bytes by which a partitioner separates keys. The keys of a file agree in them, or have the same shorter
    /// key.
    pub partition_bytes: Option<usize>,
    /// Keys from which on no file ends because of its size, by the end of their subcompaction: only a small file would
    /// be left for the rest.
    pub tails: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything in one file, whatever its size.
impl Default for OutputSplitting {
    fn default() -> Self {
        Self {
            single_file: false,
            target_file_size: u64::MAX,
            max_output_file_size: u64::MAX,
            size_is_upper_bound: false,
            compression_ratio: (1, 1),
            grandparents: Vec::new(),
            max_compaction_bytes: u64::MAX,
            level_style: true,
            partition_bytes: None,
            tails: BTreeMap::new(),
        }
    }
}

impl OutputPlan {
    /// Order of user keys.
    pub fn order(&self) -> KeyOrder {
        self.table.index.order
    }
}

impl OutputSplitting {
    /// The key of a subcompaction of the range from which on no file ends because of its size; `None` if there is none.
    pub fn tail_of(&self, range: &KeyRange) -> Option<&[u8]> {
        let tail = self.tails.get(range.end.as_ref()?);
        tail.map(Vec::as_slice)
    }

    /// Expected stored bytes of `uncompressed` bytes.
    pub fn stored_size(&self, uncompressed: u64) -> u64 {
        let (stored, raw) = self.compression_ratio;
        if raw == 0 || stored >= raw {
            return uncompressed;
        }
        match uncompressed.checked_mul(stored) {
            Some(product) => product / raw,
            None => (u128::from(uncompressed) * u128::from(stored) / u128::from(raw)) as u64,
        }
    }
}

/// Contents of output files' properties beside the counts made while writing; nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PropertiesPlan {
    /// Version of the database's RocksDB, or zeros. Only properties that it knows are written.
    pub rocksdb_version: [u32; 3],
    /// Id of the database.
    pub db_id: Vec<u8>,
    /// Session id of this attempt.
    pub session_id: String,
    /// Host name.
    pub host: String,
    /// Seed of base context checksums.
    pub checksum_seed: u64,
    /// Column family.
    pub column_family_id: u32,
    /// Its name.
    pub column_family_name: Vec<u8>,
    /// Output level.
    pub output_level: u32,
    /// Whether the files are the bottommost of their keys ([`CompactionRules::bottommost`]).
    pub bottommost: bool,
    /// `Name()` of the configured filter policy.
    pub filter_policy_name: Option<String>,
    /// `rocksdb.FixedPrefix.N` or a similar name.
    pub prefix_extractor_name: Option<String>,
    /// Whether the options set whole keys in filters.
    pub whole_key_filtering: bool,
    /// Whether the options set decoupled partitioned filters; informational.
    pub decouple_partitioned_filters: bool,
    /// Name of the comparator, if it is not RocksDB's of the keys' order.
    pub comparator_name: Option<String>,
    /// Name of the merge operator.
    pub merge_operator_name: Option<String>,
    /// Names of the factories of table properties collectors.
    pub collector_names: Vec<String>,
    /// Text of `rocksdb.compression_options`.
    pub compression_options: String,
    /// Seconds since 1970: the outputs' creation time.
    pub now: u64,
    /// The inputs' key ranges (internal keys) and ancestor times, for the outputs' own.
    pub ancestors: Vec<(Vec<u8>, Vec<u8>, u64)>,
    /// Largest `rocksdb.newest.key.time` of the inputs.
    pub newest_key_time: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(smallest: &str, largest: &str) -> (Vec<u8>, Vec<u8>) {
        (smallest.into(), largest.into())
    }

    #[test]
    fn a_key_is_absent_only_if_no_level_covers_it() {
        let deeper = DeeperLevels::Files(vec![
            vec![range("b", "d"), range("f", "g")],
            vec![],
            vec![range("k", "k")],
        ]);
        for (key, absent) in [
            ("a", true),
            ("b", false),
            ("c", false),
            ("d", false),
            ("e", true),
            ("g", false),
            ("k", false),
            ("z", true),
        ] {
            assert_eq!(
                deeper.absent(KeyOrder::Bytewise, key.as_bytes()),
                absent,
                "{key}"
            );
        }
        assert!(DeeperLevels::Nothing.absent(KeyOrder::Bytewise, b"b"));
        assert!(!DeeperLevels::Unknown.absent(KeyOrder::Bytewise, b"a"));
    }

    /// The files of a level that have these borders: each pair is one file.
    fn files(order: KeyOrder, borders: &std::collections::BTreeSet<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut borders: Vec<_> = borders.iter().map(|&border| vec![border]).collect();
        borders.sort_by(|a, b| order.compare(a, b));
        let pairs = borders.chunks(2);
        pairs
            .map(|pair| (pair[0].clone(), pair[pair.len() - 1].clone()))
            .collect()
    }

    proptest! {
        #[test]
        fn a_range_is_absent_only_if_all_its_keys_are(
            levels in proptest::collection::vec(proptest::collection::btree_set(0u8..30, 0..8), 0..3),
            begin in 0u8..30,
            end in 0u8..30,
            order in prop::sample::select(vec![KeyOrder::Bytewise, KeyOrder::ReverseBytewise]),
        ) {
            let levels: Vec<_> = levels.iter().map(|borders| files(order, borders)).collect();
            let deeper = DeeperLevels::Files(levels.clone());
            let is_in_file = |key: u8| {
                levels.iter().flatten().any(|(smallest, largest)| {
                    let (low, high) = match order {
                        KeyOrder::Bytewise => (smallest[0], largest[0]),
                        KeyOrder::ReverseBytewise => (largest[0], smallest[0]),
                    };
                    (low..=high).contains(&key)
                })
            };
            let keys: Vec<u8> = match order {
                KeyOrder::Bytewise => (begin..end).collect(),
                KeyOrder::ReverseBytewise => (end..begin).map(|key| key + 1).collect(),
            };
            // No tombstone has an empty range.
            if !keys.is_empty() {
                let absent = !keys.iter().any(|&key| is_in_file(key));
                prop_assert_eq!(deeper.absent_range(order, &[begin], &[end]), absent);
            }
            for key in 0..30 {
                prop_assert_eq!(deeper.absent(order, &[key]), !is_in_file(key), "{}", key);
            }
        }
    }

    #[test]
    fn snapshots_cut_sequences_into_stripes() {
        let rules = |snapshots: &[u64]| CompactionRules {
            snapshots: snapshots.to_vec(),
            ..CompactionRules::default()
        };
        let some = rules(&[5, 9]);
        let stripes = [1, 5, 6, 9, 10].map(|s| (some.visible_to(s), some.snapshot_below(s)));
        let newest = (MAX_SEQUENCE, Some(9));
        let (first, second) = ((5, None), (9, Some(5)));
        assert_eq!(stripes, [first, first, second, second, newest]);
        assert_eq!(
            [0, 1].map(|s| rules(&[0]).snapshot_below(s)),
            [None, Some(0)]
        );
        assert_eq!((some.earliest(), rules(&[]).earliest()), (5, MAX_SEQUENCE));
        assert_eq!(rules(&[]).visible_to(3), MAX_SEQUENCE);
    }

    #[test]
    fn ranges_include_begin_and_exclude_end() {
        let range = KeyRange {
            begin: Some(b"b".to_vec()),
            end: Some(b"d".to_vec()),
        };
        let inside: Vec<_> = ["a", "b", "c", "d"]
            .iter()
            .map(|key| range.contains(key.as_bytes()))
            .collect();
        assert_eq!(inside, [false, true, true, false]);
        assert!(KeyRange::default().contains(b""));
    }
}
