//! Contents of a database, and the options for compacting it.

use rust_rocksdb::compaction_filter::Decision;
use rust_rocksdb::{BlockBasedOptions, Options};
use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// Also a setting of the service, because filters of small databases are ambiguous.
pub const BLOOM_BITS_PER_KEY: f64 = 10.0;

/// Name of the filter that keeps every entry.
pub const KEEPING_FILTER: &str = "keeps-every-entry";

/// More than any database has.
pub const ENDLESS_BYTES: u64 = 1 << 40;

/// How keys are made from numbers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Keys {
    /// Decimal text: neighbours share most of their bytes.
    Decimal,
    /// Mixed over all bytes, like random identifiers: neighbours share few bytes, and consecutive numbers give
    /// unordered keys.
    Mixed,
}

/// Contents of a database.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DatabaseSpec {
    /// The entries.
    pub workload: Workload,
    /// Mean number of entries per key; with 1, each key occurs once.
    pub versions: u64,
    /// Files in level 0 to merge.
    pub runs: u64,
    /// One entry in `delete_every` is a Delete.
    pub delete_every: Option<u32>,
    /// One entry in `delete_range_every` is a range tombstone over some neighbouring keys.
    pub delete_range_every: Option<u32>,
    /// Whether values are merge operands of RocksDB's operator `uint64add`.
    pub operands: bool,
    /// Whether compactions call a filter that keeps every entry.
    pub filtered: bool,
    /// How keys are made from numbers.
    pub keys: Keys,
    /// Whether the last level has older entries below the runs, so that tombstones and sequence numbers must be kept.
    pub above_older: bool,
    /// Whether the database uses direct I/O.
    pub direct_io: bool,
    /// Whether each file is hashed entry by entry when it is written, and again when it is read back
    /// (`paranoid_file_checks`).
    pub paranoid: bool,
    /// Number of writing threads. It determines the newest version of each key, so it does not depend on the machine's
    /// number of cores.
    pub writers: u64,
    /// Size of the files to write.
    pub target_file_bytes: u64,
}

impl DatabaseSpec {
    /// Describes the parameters in one line.
    pub fn name(&self) -> String {
        let (versions, runs) = (self.versions, self.runs);
        let mut name = format!("{}, {versions} versions, {runs} runs", self.workload);
        if let Some(every) = self.delete_every {
            name += &format!(", 1 in {every} a Delete");
        }
        if let Some(every) = self.delete_range_every {
            name += &format!(", 1 in {every} a range tombstone");
        }
        if self.operands {
            name += ", merge operands";
        }
        if self.filtered {
            name += ", a filter";
        }
        if self.above_older {
            name += ", not bottommost";
        }
        if self.direct_io {
            name += ", direct I/O";
        }
        if self.paranoid {
            name += ", paranoid file checks";
        }
        name
    }

    /// Returns the options for compacting; `subcompactions` is RocksDB's own parallelism.
    pub fn options(&self, subcompactions: u32) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.set_compression_type(self.workload.compression.of_rocksdb());
        options.set_disable_auto_compactions(true);
        options.set_target_file_size_base(self.target_file_bytes);
        options.set_max_subcompactions(subcompactions);
        options.set_use_direct_reads(self.direct_io);
        options.set_use_direct_io_for_flush_and_compaction(self.direct_io);
        options.set_paranoid_file_checks(self.paranoid);
        if self.operands {
            options.set_uint64add_merge_operator();
        }
        if self.filtered {
            options.set_compaction_filter(KEEPING_FILTER, |_, _, _| Decision::Keep);
        }
        if self.above_older {
            // All of level 0 is compacted to level 1, and stays there.
            options.set_level_compaction_dynamic_level_bytes(false);
            options.set_level_zero_file_num_compaction_trigger(1);
            options.set_max_bytes_for_level_base(ENDLESS_BYTES);
        }
        options
    }
}
