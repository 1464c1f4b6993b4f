//! A part of a scan, and its result.

use std::time::Duration;

use rockmill_core::KeyRange;
use rockmill_core::scan::Batch;
use serde::{Deserialize, Serialize};

/// A range of keys that one task reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The keys.
    pub range: KeyRange,
    /// Stored bytes of the blocks that may have them.
    pub bytes: u64,
    /// The path on which they are read.
    pub path: ReadPath,
}

/// The path on which a piece is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadPath {
    /// From the SST files. If an entry does not determine the value alone, RocksDB's iterators read the piece after all.
    Files,
    /// Through RocksDB's iterators, for this reason.
    RocksDb(String),
}

/// Result of a piece.
#[derive(Debug, Clone, Default)]
pub struct PieceOutput {
    /// The batches, in the order of the keys.
    pub batches: Vec<Batch>,
    /// How they were computed.
    pub report: PieceReport,
}

impl PieceOutput {
    /// Bytes of the batches.
    pub(crate) fn bytes(&self) -> u64 {
        self.batches.iter().map(Batch::bytes).sum()
    }

    /// Adds the results of the keys behind these.
    pub(crate) fn add(&mut self, next: Self) {
        self.batches.extend(next.batches);
        let (report, next) = (&mut self.report, next.report);
        if report.device.is_empty() {
            report.device = next.device;
        }
        report.through_iterators = report.through_iterators.take().or(next.through_iterators);
        report.device_refused = report.device_refused.take().or(next.device_refused);
        report.bytes += next.bytes;
        report.cached_bytes += next.cached_bytes;
        report.cached_columns += next.cached_columns;
        report.blocks += next.blocks;
        report.rows += next.rows;
        report.hidden += next.hidden;
        report.selected += next.selected;
        report.malformed += next.malformed;
    }
}

/// Sums over all pieces that an engine has run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanTotals {
    /// Pieces that were read.
    pub pieces: u64,
    /// Bytes read from tables.
    pub bytes: u64,
    /// Bytes of keys and columns that were parsed before, which were used in place of tables.
    pub cached_bytes: u64,
    /// Rows that a reader finds.
    pub rows: u64,
    /// Time of the pieces. It includes their wait for memory and for a thread.
    pub time: Duration,
}

impl ScanTotals {
    /// Adds a piece.
    pub(crate) fn add(&mut self, report: &PieceReport, time: Duration) {
        self.pieces += 1;
        self.bytes += report.bytes;
        self.cached_bytes += report.cached_bytes;
        self.rows += report.rows;
        self.time += time;
    }
}

/// How a piece was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PieceReport {
    /// Name of the device that ran it.
    pub device: String,
    /// Reason why RocksDB's iterators read it, if they did.
    pub through_iterators: Option<String>,
    /// Reason why the CPU ran it instead of a device, if it did.
    pub device_refused: Option<String>,
    /// Bytes read from tables; 0 through iterators.
    pub bytes: u64,
    /// Bytes of keys and columns that were parsed before, which were used in place of tables.
    pub cached_bytes: u64,
    /// Number of these columns, counted for each group of blocks.
    pub cached_columns: u64,
    /// Data blocks whose rows were taken, from tables or from the cache; 0 through iterators.
    pub blocks: u64,
    /// Rows that a reader finds.
    pub rows: u64,
    /// Entries that a reader does not find: older ones, deleted ones, and those after the snapshot; 0 through iterators.
    pub hidden: u64,
    /// Rows that the plan wants.
    pub selected: u64,
    /// Rows in which a counted check of the plan fails.
    pub malformed: u64,
}
