//! RocksDB's own collector of table properties. It marks files with many tombstones for another compaction
//! (`utilities/table_properties_collectors/compact_on_deletion_collector.cc`).

/// Buckets of the window.
const BUCKETS: usize = 128;

/// The rule by which RocksDB's `CompactOnDeletionCollector` marks files for another compaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactOnDeletion {
    /// Successive entries of a window; 0 for none.
    pub window_size: u64,
    /// Minimum number of tombstones in a window that marks the file.
    pub deletion_trigger: u64,
    /// Minimum share of tombstones among a file's entries that marks the file; a value outside of (0, 1] marks none.
    pub deletion_ratio: f64,
    /// Minimum bytes of data blocks of a marked file.
    pub min_file_size: u64,
}

/// The entries of one file, in order.
#[derive(Debug)]
pub struct DeletionWindow {
    rule: CompactOnDeletion,
    bucket_size: u64,
    /// Tombstones in each bucket.
    buckets: [u64; BUCKETS],
    at: usize,
    in_bucket: u64,
    in_window: u64,
    most_in_window: u64,
    entries: u64,
    tombstones: u64,
    last_size: u64,
    is_triggered: bool,
}

impl DeletionWindow {
    /// A file without entries.
    pub fn new(rule: CompactOnDeletion) -> Self {
        Self {
            rule,
            bucket_size: rule.window_size.div_ceil(BUCKETS as u64),
            buckets: [0; BUCKETS],
            at: 0,
            in_bucket: 0,
            in_window: 0,
            most_in_window: 0,
            entries: 0,
            tombstones: 0,
            last_size: 0,
            is_triggered: false,
        }
    }

    /// The next entry. `file_size` is the size of the data blocks before the entry's. Range tombstones come last, and count
    /// as entries.
    pub fn add(&mut self, is_tombstone: bool, file_size: u64) {
        self.entries += 1;
        self.tombstones += u64::from(is_tombstone);
        self.last_size = file_size;
        if self.bucket_size == 0 {
            return;
        }
        if self.in_bucket == self.bucket_size {
            self.at = (self.at + 1) % BUCKETS;
            self.in_window -= self.buckets[self.at];
            self.buckets[self.at] = 0;
            self.in_bucket = 0;
        }
        self.in_bucket += 1;
        self.in_window += u64::from(is_tombstone);
        self.buckets[self.at] += u64::from(is_tombstone);
        self.most_in_window = self.most_in_window.max(self.in_window);
        self.is_triggered |= self.most_in_window >= self.rule.deletion_trigger
            && file_size >= self.rule.min_file_size;
    }

    /// Whether the file is marked for another compaction.
    pub fn needs_compaction(&self) -> bool {
        let ratio = self.rule.deletion_ratio;
        let has_ratio = ratio > 0.0 && ratio <= 1.0 && self.entries > 0;
        self.is_triggered
            || (has_ratio
                && self.last_size >= self.rule.min_file_size
                && self.tombstones as f64 / self.entries as f64 >= ratio)
    }
}
