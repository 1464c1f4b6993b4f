//! What is in a database, and the options that it is compacted with.

use rust_rocksdb::{BlockBasedOptions, Options};
use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// Said to the service too, since filters of small databases would not tell.
pub const BLOOM_BITS_PER_KEY: f64 = 10.0;

/// More than any database has.
const ENDLESS_BYTES: u64 = 1 << 40;

/// How keys come from numbers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Keys {
    /// Decimal text: neighbours share most of their bytes.
    Decimal,
    /// Mixed to all bytes, as identifiers are that someone drew: neighbours share few bytes, and
    /// numbers in order give keys without order.
    Mixed,
}

/// What is in the database.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The entries.
    pub workload: Workload,
    /// So many entries for each key, in the mean; with 1, each key is there once.
    pub versions: u64,
    /// Files in level 0 to merge.
    pub runs: u64,
    /// One entry in so many is a Delete.
    pub delete_every: Option<u32>,
    /// How keys come from numbers.
    pub keys: Keys,
    /// Whether the last level holds older entries, above which the runs are compacted, so that nothing may
    /// be forgotten that hides what lies beneath.
    pub above_older: bool,
    /// Whether the database's files pass by the page cache.
    pub direct_io: bool,
    /// Whether each file is hashed entry by entry as it is written, and again as it is read back
    /// (`paranoid_file_checks`).
    pub paranoid: bool,
    /// Threads that write at once. The newest version of each key depends on their number, so it is
    /// not the machine's number of cores.
    pub writers: u64,
    /// Size of the files to write.
    pub target_file_bytes: u64,
}

impl Spec {
    /// All that matters in one line.
    pub fn name(&self) -> String {
        let (versions, runs) = (self.versions, self.runs);
        let mut name = format!("{}, {versions} versions, {runs} runs", self.workload);
        if let Some(every) = self.delete_every {
            name += &format!(", 1 in {every} a Delete");
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

    /// Options to compact with; `subcompactions` is RocksDB's own parallelism.
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
        if self.above_older {
            // Level 0 as a whole goes to level 1, and stays there.
            options.set_level_compaction_dynamic_level_bytes(false);
            options.set_level_zero_file_num_compaction_trigger(1);
            options.set_max_bytes_for_level_base(ENDLESS_BYTES);
        }
        options
    }
}
