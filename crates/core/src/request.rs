//! The request for a backend, and its answers before anything is read.

use std::fmt;

use rockmill_format::table::{names, orders_by_bytes};

use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{CompactionRules, KeyRange, OutputPlan, Plan};
use crate::progress::Progress;
use crate::scan::ScanPlan;
use crate::table::InputTable;

/// Which rows of which tables, and what for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The tables, newest or oldest first alike: sequence numbers decide. Equal internal keys occur only in damaged
    /// trees; the first table's comes first.
    pub tables: &'a [InputTable],
    /// Which user keys.
    pub range: &'a KeyRange,
    /// Which entries of a user key are rows.
    pub visibility: Visibility<'a>,
    /// Bytes of each table to hold ahead at most, unless a single block is larger.
    pub read_ahead_bytes: usize,
    /// Use of the rows.
    pub purpose: Purpose<'a>,
}

impl Request<'_> {
    /// Whether the request can be done exactly, as far as that is the same on every backend. The plan of a compaction
    /// has already checked what its inputs must not have.
    pub fn support(&self) -> Support {
        let Visibility::Snapshot(rules) = self.visibility else {
            return match self.purpose {
                Purpose::Scan(_) | Purpose::Resident => Support::No(Unsupported::Purpose),
                Purpose::WriteSst(_) | Purpose::Inspect => Support::Yes,
            };
        };
        let scans = matches!(self.purpose, Purpose::Scan(_));
        if scans && (rules.undecided, rules.tombstones) != (Undecided::Error, Tombstones::Drop) {
            return Support::No(Unsupported::Purpose);
        }
        let writes = self.purpose.output_plan().is_some();
        if writes && rules.undecided == Undecided::Mark {
            return Support::No(Unsupported::UndecidedInFiles);
        }
        let refused = |table| unsupported_snapshot(table, self.range, rules.sequence);
        let refused = self.tables.iter().find_map(refused);
        refused.map_or(Support::Yes, Support::No)
    }
}

impl Plan {
    /// The request to compact what of `tables` lies in `range`, which is the job's or a part of it.
    pub fn request<'a>(
        &'a self,
        tables: &'a [InputTable],
        range: &'a KeyRange,
        read_ahead_bytes: usize,
    ) -> Request<'a> {
        Request {
            tables,
            range,
            visibility: Visibility::Compaction(&self.rules),
            read_ahead_bytes,
            purpose: Purpose::WriteSst(&self.output),
        }
    }
}

/// Why a table alone does not tell what a snapshot sees of a range.
fn unsupported_snapshot(
    table: &InputTable,
    range: &KeyRange,
    snapshot: u64,
) -> Option<Unsupported> {
    let properties = &table.meta.properties;
    let is_ordered_by_bytes = orders_by_bytes(&properties.comparator_name)
        && properties.user_defined_timestamps_persisted != 0;
    let has_range_tombstones = match table.range_tombstones(snapshot) {
        Some(mut seen) => seen.any(|tombstone| range.meets(tombstone)),
        None => {
            properties.num_range_deletions > 0
                || (table.meta.metaindex).contains_key(names::RANGE_DELETIONS)
        }
    };
    if !is_ordered_by_bytes {
        Some(Unsupported::Comparator)
    } else if has_range_tombstones {
        Some(Unsupported::RangeTombstones)
    } else if table.was_ingested() && table.global_sequence().is_none() {
        Some(Unsupported::UnknownSequence)
    } else {
        None
    }
}

/// Which entries of a user key are rows.
#[derive(Debug, Clone, Copy)]
pub enum Visibility<'a> {
    /// Those that a compaction keeps.
    Compaction(&'a CompactionRules),
    /// Those that a reader at a snapshot finds: of each user key one at most.
    Snapshot(SnapshotRules),
}

/// What a reader at a snapshot finds. The newest entry of a user key at or below the sequence number decides alone;
/// those above it are passed over, older ones are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRules {
    /// The snapshot's sequence number.
    pub sequence: u64,
    /// What becomes of keys that were deleted.
    pub tombstones: Tombstones,
    /// Treatment of keys whose entry does not decide alone.
    pub undecided: Undecided,
}

/// What becomes of a Delete or SingleDelete that decides over its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstones {
    /// It is no row.
    Drop,
    /// It is a row: the rows go on to where older entries may lie.
    Keep,
}

/// What becomes of an entry that decides over its key and does not do so alone: a merge operand, a wide-column
/// entity, a reference to a blob file and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// It is an error: Declined, with the reason.
    Error,
    /// It is a row ([`crate::Row::is_undecided`]).
    Mark,
}

/// Use of the rows: the memory of the operator is reserved together with that of reading.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    /// SST files as the plan says ([`crate::Operator::WriteSst`]).
    WriteSst(&'a OutputPlan),
    /// To be handed over one by one ([`crate::Operator::Inspect`]).
    Inspect,
    /// Columns as the plan says ([`crate::Operator::Scan`]). Every row is one that a reader finds. So the request must
    /// drop tombstones, and make an entry that does not decide alone an error.
    Scan(&'a ScanPlan),
    /// To be put into a table that stays on the device ([`crate::Operator::Resident`]). A tombstone that is kept takes its
    /// key out of the table.
    Resident,
}

impl<'a> Purpose<'a> {
    /// How files are to be written, if files are what the rows are for.
    pub fn output_plan(self) -> Option<&'a OutputPlan> {
        match self {
            Self::WriteSst(plan) => Some(plan),
            Self::Inspect | Self::Scan(_) | Self::Resident => None,
        }
    }
}

/// A request that is to be done now.
#[derive(Debug, Clone, Copy)]
pub struct ReadTask<'a> {
    /// What is asked for.
    pub request: Request<'a>,
    /// Checked at least once a block.
    pub cancel: &'a CancelToken,
    /// Told how far the task is, if someone wants to know.
    pub progress: Option<&'a Progress>,
}

/// Memory that a task holds at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of host memory.
    pub host_bytes: u64,
    /// Bytes of device memory; 0 if the device is the host.
    pub device_bytes: u64,
}

/// Whether a backend does what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Yes,
    /// It does not, or not yet.
    No(Unsupported),
}

impl Support {
    /// Nothing, or the error of a backend that was asked nevertheless.
    ///
    /// # Errors
    /// Device, with the sentence of what is not supported.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Yes => Ok(()),
            Self::No(what) => Err(Error::new(ErrorKind::Device, what.to_string())),
        }
    }
}

/// A part of a request that a backend does not support. Another backend may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unsupported {
    /// To write blocks of this compression.
    Compression,
    /// To count filter and index towards the size at which a file ends.
    SizeIsUpperBound,
    /// To read keys that are ordered by something else than bytes.
    Comparator,
    /// To read a range in which a table has range tombstones, or may have some ([`InputTable::with_range_tombstones`]).
    RangeTombstones,
    /// To read a table whose entries all have a sequence number that is not given ([`InputTable::with_global_sequence`]).
    UnknownSequence,
    /// To read a table of format_version 0 or 1, which may not say how large it is.
    OldTable,
    /// To write rows as SST files that do not decide alone.
    UndecidedInFiles,
    /// To do with rows what they are for.
    Purpose,
    /// To compact beside a kernel that may put.
    Held,
    /// To merge operands under these snapshots.
    MergeOperands,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compression => "the device does not write blocks of this compression",
            Self::SizeIsUpperBound => "the device does not do target_file_size_is_upper_bound yet",
            Self::Comparator => "keys are ordered by something else than bytes",
            Self::RangeTombstones => "a table has range tombstones there",
            Self::UnknownSequence => {
                "the sequence number of a table that was ingested is not known"
            }
            Self::OldTable => "a table has format_version 0 or 1",
            Self::UndecidedInFiles => "files take no entries that do not decide alone",
            Self::Purpose => "the device does not do what the rows are for",
            Self::MergeOperands => "the device does not merge operands under a snapshot with number 0",
            Self::Held => {
                "a kernel on the device may fill it and wait for RocksDB to take writes, which may wait for the compaction"
            }
        })
    }
}
