//! RocksDB's own collector of table properties, which has files with many tombstones compacted again
//! (`utilities/table_properties_collectors/compact_on_deletion_collector.cc`).

/// Buckets of the window.
const BUCKETS: usize = 128;

/// The rule by which RocksDB's `CompactOnDeletionCollector` marks files for another compaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactOnDeletion {
    /// Successive entries of a window; 0 for none.
    pub window_size: u64,
    /// Tombstones in a window that are enough.
    pub deletion_trigger: u64,
    /// Share of a file's entries that is enough if they are tombstones; outside of (0, 1] none is.
    pub deletion_ratio: f64,
    /// Bytes of data blocks that a file has at least.
    pub min_file_size: u64,
}

/// What a rule looks at in a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DeletionCounts {
    /// Entries and range tombstones.
    pub entries: u64,
    /// Entries that are tombstones.
    pub tombstones: u64,
    /// The most tombstones in a window of [`CompactOnDeletion::bucket_size`]; 0 without windows.
    pub most_in_window: u64,
    /// Bytes of the data blocks in front of the last one.
    pub bytes_before_last: u64,
}

impl CompactOnDeletion {
    /// Entries of a bucket, of which a window has 128; 0 if there are no windows.
    pub fn bucket_size(&self) -> u64 {
        self.window_size.div_ceil(BUCKETS as u64)
    }

    /// Whether a file is marked for another compaction. RocksDB asks after each entry; the size and the most tombstones of a
    /// window only grow.
    pub fn marks(&self, file: &DeletionCounts) -> bool {
        let ratio = self.deletion_ratio;
        let has_window = self.window_size > 0 && file.most_in_window >= self.deletion_trigger;
        let has_ratio =
            ratio > 0.0 && ratio <= 1.0 && file.tombstones as f64 / file.entries as f64 >= ratio;
        file.entries > 0
            && file.bytes_before_last >= self.min_file_size
            && (has_window || has_ratio)
    }
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
    counts: DeletionCounts,
}

impl DeletionWindow {
    /// A file without entries.
    pub fn new(rule: CompactOnDeletion) -> Self {
        Self {
            rule,
            bucket_size: rule.bucket_size(),
            buckets: [0; BUCKETS],
            at: 0,
            in_bucket: 0,
            in_window: 0,
            counts: DeletionCounts::default(),
        }
    }

    /// The next entry. `file_size` is the size of the data blocks before the entry's. Range tombstones come last, and count
    /// as entries.
    pub fn add(&mut self, is_tombstone: bool, file_size: u64) {
        self.counts.entries += 1;
        self.counts.tombstones += u64::from(is_tombstone);
        self.counts.bytes_before_last = file_size;
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
        self.counts.most_in_window = self.counts.most_in_window.max(self.in_window);
    }

    /// Whether the file is marked for another compaction.
    pub fn needs_compaction(&self) -> bool {
        self.rule.marks(&self.counts)
    }
}
