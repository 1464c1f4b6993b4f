//! What became of a task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rockmill_format::properties::TableProperties;
use rockmill_format::range_tombstone::RangeTombstone;
use serde::{Deserialize, Serialize};

use crate::file_identity::CachedOutput;
use crate::hash::ContentHash;

/// The result of a task: of reading, and of its operator.
#[derive(Debug, Default, Clone)]
pub struct TaskReport {
    /// What was read, and what visibility has left.
    pub read: ReadReport,
    /// The operator's output.
    pub output: Output,
    /// Time of each stage, in order; empty if the backend does not measure.
    pub stages: Vec<StageTime>,
    /// Processor time of threads other than the caller's that worked on the task.
    pub cpu_elsewhere: Duration,
}

/// What was read, and what visibility has left.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ReadReport {
    /// Entries read inside the range, by input.
    pub entries: Vec<u64>,
    /// Tombstones among these entries.
    pub tombstones: u64,
    /// Bytes of internal keys read.
    pub key_bytes: u64,
    /// Bytes of values read.
    pub value_bytes: u64,
    /// Bytes read from input files.
    pub bytes: u64,
    /// Bytes of these that were in the device's memory already.
    pub cached_bytes: u64,
    /// Bytes of kept groups and columns that were used in place of files.
    pub kept_bytes: u64,
    /// Number of these columns.
    pub kept_columns: u64,
    /// Entries dropped because a newer one hides them.
    pub replaced: u64,
    /// Tombstones dropped because they no longer hide anything, as far as RocksDB counts them.
    pub tombstones_dropped: u64,
    /// Entries skipped because a snapshot does not see them.
    pub above_snapshot: u64,
    /// Entries that are rows.
    pub kept: u64,
    /// Dropped entries.
    pub dropped: u64,
    /// Entries that were combined into rows: merge operands and the value beneath them.
    pub consumed: u64,
    /// Rows that were combined from consumed entries.
    pub made: u64,
    /// Sum of [`crate::entry_hash`] over all entries read. A scan may leave out keys and values, whose hash then counts
    /// as 0: such sums cover only sequence numbers and types.
    pub hash_in: u64,
    /// Sum over kept entries, as they were read.
    pub hash_kept: u64,
    /// Sum over dropped entries.
    pub hash_dropped: u64,
    /// Sum over consumed entries.
    pub hash_consumed: u64,
}

impl ReadReport {
    /// Adds the sums of another part of the same job, except entries by input.
    pub fn add(&mut self, part: &Self) {
        self.tombstones += part.tombstones;
        self.key_bytes += part.key_bytes;
        self.value_bytes += part.value_bytes;
        self.bytes += part.bytes;
        self.cached_bytes += part.cached_bytes;
        self.kept_bytes += part.kept_bytes;
        self.kept_columns += part.kept_columns;
        self.replaced += part.replaced;
        self.tombstones_dropped += part.tombstones_dropped;
        self.above_snapshot += part.above_snapshot;
        self.kept += part.kept;
        self.dropped += part.dropped;
        self.consumed += part.consumed;
        self.made += part.made;
        self.hash_in = self.hash_in.wrapping_add(part.hash_in);
        self.hash_kept = self.hash_kept.wrapping_add(part.hash_kept);
        self.hash_dropped = self.hash_dropped.wrapping_add(part.hash_dropped);
        self.hash_consumed = self.hash_consumed.wrapping_add(part.hash_consumed);
    }

    /// The rows: entries that were kept, and rows made of consumed entries.
    pub fn rows(&self) -> u64 {
        self.kept + self.made
    }

    /// Whether every entry read was kept, dropped or consumed, by the counts and sums of hashes.
    pub fn is_balanced(&self) -> bool {
        let hash = self.hash_kept.wrapping_add(self.hash_dropped);
        self.entries.iter().sum::<u64>() == self.kept + self.dropped + self.consumed
            && self.hash_in == hash.wrapping_add(self.hash_consumed)
    }
}

/// The operator's output.
#[derive(Debug, Clone)]
pub enum Output {
    /// SST files.
    Ssts(SstOutput),
    /// Rows passed on.
    Rows(RowOutput),
    /// Batches passed on.
    Batches(BatchOutput),
}

/// No files.
impl Default for Output {
    fn default() -> Self {
        Self::Ssts(SstOutput::default())
    }
}

impl Output {
    /// The SST files, if the task has written files.
    pub fn ssts(&self) -> Option<&SstOutput> {
        match self {
            Self::Ssts(ssts) => Some(ssts),
            Self::Rows(_) | Self::Batches(_) => None,
        }
    }

    /// The SST files, if the task has written files.
    pub fn ssts_mut(&mut self) -> Option<&mut SstOutput> {
        match self {
            Self::Ssts(ssts) => Some(ssts),
            Self::Rows(_) | Self::Batches(_) => None,
        }
    }
}

impl TaskReport {
    /// The SST files in key order; empty for a task without files.
    pub fn files(&self) -> &[OutputFile] {
        self.output.ssts().map_or(&[], |ssts| &ssts.files)
    }

    /// [`SstOutput::verified`]; false for a task without files.
    pub fn is_verified(&self) -> bool {
        self.output.ssts().is_some_and(|ssts| ssts.verified)
    }
}

/// Rows that a task has passed on, or put into a table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RowOutput {
    /// Rows.
    pub rows: u64,
    /// Bytes of their user keys and values.
    pub bytes: u64,
}

/// Totals of the batches that a scan has passed on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BatchOutput {
    /// Rows that the filter was applied to: those that a reader finds.
    pub rows: u64,
    /// Rows among these that the filter has selected.
    pub selected: u64,
    /// Rows, of all that were read, in which a counted check fails.
    pub malformed: u64,
}

/// SST files that a task has written.
#[derive(Debug, Default, Clone)]
pub struct SstOutput {
    /// The files, in key order.
    pub files: Vec<OutputFile>,
    /// Whether the backend has verified the files itself: code other than the writer's decoded the finished data blocks
    /// again and found the expected content. The host checked each block checksum of the bytes that went to the sink.
    /// If false, the caller reads the files back.
    pub verified: bool,
    /// Sizes of some data blocks, if Rockmill's own code compressed them.
    pub size_sample: SizeSample,
    /// The files that the device has cached, in any order.
    pub cached: Vec<Arc<dyn CachedOutput>>,
}

/// Sizes of some data blocks as Rockmill's own code has compressed them, and as a library would have. Both are stored
/// sizes of payloads.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeSample {
    /// Bytes of the blocks as written.
    pub rockmill_bytes: u64,
    /// Bytes of the blocks as compressed by the library.
    pub library_bytes: u64,
}

impl SizeSample {
    /// Percentage by which the blocks are larger than the library's; `None` without blocks.
    pub fn percent_larger(self) -> Option<f64> {
        let (rockmill, library) = (self.rockmill_bytes as f64, self.library_bytes as f64);
        (self.library_bytes > 0).then(|| (rockmill / library - 1.0) * 100.0)
    }

    /// Adds the blocks of another sample.
    pub fn add(&mut self, other: Self) {
        self.rockmill_bytes += other.rockmill_bytes;
        self.library_bytes += other.library_bytes;
    }
}

/// Time and bytes of one stage, of one or many tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTime {
    /// Name of the stage.
    pub stage: &'static str,
    /// What it used.
    pub resource: Resource,
    /// Seconds from its start to its end, waiting for the resource included, summed over the threads
    /// that took part.
    pub seconds: f64,
    /// Bytes that the stage moved.
    pub bytes: u64,
}

impl StageTime {
    /// Adds stage by stage, by name.
    pub fn add_all(sums: &mut Vec<Self>, stages: &[Self]) {
        for stage in stages {
            match sums.iter_mut().find(|sum| sum.stage == stage.stage) {
                Some(sum) => {
                    sum.seconds += stage.seconds;
                    sum.bytes += stage.bytes;
                }
                None => sums.push(*stage),
            }
        }
    }
}

/// The resource that a stage uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Host processors and page cache.
    Host,
    /// The link to the device.
    ToDevice,
    /// The link back.
    FromDevice,
    /// The device's memory and processors.
    Device,
}

impl Resource {
    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::ToDevice => "to device",
            Self::FromDevice => "from device",
            Self::Device => "device",
        }
    }
}

/// A finished output file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutputFile {
    /// Number within the job; see [`crate::SstSink::create`].
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// Smallest internal key: the first one, or the start of a range tombstone.
    pub smallest: Vec<u8>,
    /// Largest internal key: the last one, or the end of a range tombstone.
    pub largest: Vec<u8>,
    /// As stored in the file.
    pub properties: TableProperties,
    /// Oldest ancestor time in seconds since 1970.
    pub oldest_ancester_time: u64,
    /// RocksDB's hash over all entries, if the plan requests it, else 0.
    pub paranoid_hash: u64,
    /// Unmasked CRC-32C of the file, if the plan requests it.
    pub file_checksum: Option<u32>,
    /// Contents that a reader of the file must find.
    pub content: ContentHash,
    /// [`crate::index_hash`] of the index.
    pub index_hash: u64,
    /// Whether RocksDB is to compact the file again soon.
    pub marked_for_compaction: bool,
    /// Its range tombstones, which a reader of the file must find.
    pub range_tombstones: Vec<RangeTombstone>,
    /// Properties for people that the application has collected; they are not in the file.
    pub readable_properties: BTreeMap<Vec<u8>, Vec<u8>>,
}
