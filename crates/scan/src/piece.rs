//! The parts of a scan, and their results.

use std::time::Duration;

use rockmill_core::scan::Batch;
use rockmill_core::{KeyRange, borders};
use rockmill_format::key::KeyOrder;
use serde::{Deserialize, Serialize};

use crate::family::FamilySnapshot;
use crate::ranges;

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

impl FamilySnapshot {
    /// Cuts the keys of `ranges` into pieces of about `piece_bytes` stored bytes. They are disjoint, ascend, and have
    /// exactly these keys.
    pub fn pieces(&self, ranges: &[KeyRange], piece_bytes: u64) -> Vec<Piece> {
        const UNDECIDED: &str = "a range tombstone that ends between the versions of a key";
        if !self.remotes.is_empty() {
            return self.remote_pieces(ranges);
        }
        let ranges = ranges::disjoint(ranges);
        if !self.orders_by_bytes {
            let reason = self.unread.clone().unwrap_or_default();
            let piece = |range| Piece {
                range,
                bytes: self.bytes(),
                path: ReadPath::RocksDb(reason.clone()),
            };
            return ranges.into_iter().map(piece).collect();
        }
        let mut pieces = Vec::new();
        for range in &ranges {
            for (part, is_undecided) in ranges::cut(range, &self.deleted.undecided) {
                let through = match &self.unread {
                    Some(reason) => ReadPath::RocksDb(reason.clone()),
                    None if is_undecided => ReadPath::RocksDb(UNDECIDED.to_owned()),
                    None => ReadPath::Files,
                };
                pieces.extend(self.split(&part, piece_bytes, &through));
            }
        }
        pieces
    }

    /// Entries of a range of keys, and bytes of their keys and values, roughly.
    pub(crate) fn raw_size(&self, range: &KeyRange) -> (u64, u64) {
        let mut size = (0_u64, 0_u64);
        for at in borders::overlapping(range, &self.inputs) {
            let input = &self.inputs[at];
            let properties = &input.meta.properties;
            let share = |all| input.share_in_range(range, all);
            size.0 = size.0.saturating_add(share(properties.num_entries));
            size.1 = size.1.saturating_add(share(properties.raw_bytes()));
        }
        size
    }

    /// Cuts a piece into about two halves. The piece stays whole if no key is known at which to cut it.
    pub(crate) fn halves(&self, piece: &Piece) -> Vec<Piece> {
        if !self.orders_by_bytes {
            return vec![piece.clone()];
        }
        self.split(&piece.range, piece.bytes.div_ceil(2), &piece.path)
    }

    fn split(&self, range: &KeyRange, piece_bytes: u64, path: &ReadPath) -> Vec<Piece> {
        let piece = |range: KeyRange| Piece {
            bytes: borders::stored_bytes(&range, &self.inputs),
            range,
            path: path.clone(),
        };
        let ranges = self.split_range(range, piece_bytes);
        ranges.into_iter().map(piece).collect()
    }

    fn split_range(&self, range: &KeyRange, piece_bytes: u64) -> Vec<KeyRange> {
        /// Candidates for a border, per table and piece.
        const GRAINS: u64 = 128;
        if borders::stored_bytes(range, &self.inputs) <= piece_bytes {
            return vec![range.clone()];
        }
        let grains = self.inputs.iter();
        let grains = grains.flat_map(|table| borders::grains(table, range, piece_bytes / GRAINS));
        let mut grains: Vec<_> = grains.collect();
        ranges::split(
            range,
            borders::borders(KeyOrder::Bytewise, range, piece_bytes, &mut grains),
        )
    }
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
