//! The request to a backend, and the backend's answers before anything is read.

use std::fmt;
use std::ops::Deref;

use rockmill_format::table::{names, orders_by_bytes};

use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::fragments::Fragments;
use crate::plan::{CompactionRules, KeyRange, OutputPlan, Plan};
use crate::progress::Progress;
use crate::scan::ScanPlan;
use crate::table::InputTable;

/// The tables to read, and the rules for their rows.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The tables, in any order of age, because sequence numbers decide. Equal internal keys occur only in damaged
    /// trees; the first table's entry then comes first.
    pub tables: &'a [InputTable],
    /// The user keys.
    pub range: &'a KeyRange,
    /// The rule for the entries of a user key that are rows.
    pub visibility: Visibility<'a>,
    /// Maximum bytes of each table to read ahead, unless a single block is larger.
    pub read_ahead_bytes: usize,
}

/// The rows to read and their purpose. A backend must know both before it reads.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The rows.
    pub reading: Reading<'a>,
    /// Use of the rows.
    pub purpose: Purpose<'a>,
}

impl<'a> Deref for Request<'a> {
    type Target = Reading<'a>;

    fn deref(&self) -> &Reading<'a> {
        &self.reading
    }
}

impl Request<'_> {
    /// Whether the request can be done exactly, as far as the answer is the same on every backend. The plan of a
    /// compaction has already checked its inputs.
    pub fn support(&self) -> Support {
        let Visibility::Snapshot(rules) = self.visibility else {
            return match self.purpose {
                Purpose::Scan(_) | Purpose::Resident => Support::No(Unsupported::Purpose),
                Purpose::WriteSst(_) | Purpose::Inspect => Support::Yes,
            };
        };
        let scans = matches!(self.purpose, Purpose::Scan(_));
        if scans && (rules.needs_merge, rules.tombstones) != (NeedsMerge::Error, Tombstones::Drop) {
            return Support::No(Unsupported::Purpose);
        }
        let writes = self.purpose.output_plan().is_some();
        if writes && rules.needs_merge == NeedsMerge::Mark {
            return Support::No(Unsupported::NeedsMergeInFiles);
        }
        // A row of a deleted key would have to remove it, and it may have no entry.
        let keeps = rules.tombstones == Tombstones::Keep;
        if keeps
            && rules
                .deleted
                .is_some_and(|deleted| deleted.meets(self.range))
        {
            return Support::No(Unsupported::RangeTombstones);
        }
        let refused = |table| unsupported_snapshot(table, self.range, &rules);
        let refused = self.tables.iter().find_map(refused);
        refused.map_or(Support::Yes, Support::No)
    }
}

impl Plan {
    /// The rows of a compaction of the part of `tables` in `range`, which is the job's range or a part of it.
    pub fn reading<'a>(
        &'a self,
        tables: &'a [InputTable],
        range: &'a KeyRange,
        read_ahead_bytes: usize,
    ) -> Reading<'a> {
        Reading {
            tables,
            range,
            visibility: Visibility::Compaction(&self.rules),
            read_ahead_bytes,
        }
    }

    /// The request to write these rows as files.
    pub fn request<'a>(
        &'a self,
        tables: &'a [InputTable],
        range: &'a KeyRange,
        read_ahead_bytes: usize,
    ) -> Request<'a> {
        Request {
            reading: self.reading(tables, range, read_ahead_bytes),
            purpose: Purpose::WriteSst(&self.output),
        }
    }
}

/// The reason why a table alone does not determine what a snapshot sees of a range.
fn unsupported_snapshot(
    table: &InputTable,
    range: &KeyRange,
    rules: &SnapshotRules<'_>,
) -> Option<Unsupported> {
    let properties = &table.meta.properties;
    let is_ordered_by_bytes = orders_by_bytes(&properties.comparator_name)
        && properties.user_defined_timestamps_persisted != 0;
    let has_range_tombstones = match table.range_tombstones(rules.sequence) {
        Some(_) if rules.deleted.is_some() => false,
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

/// The rule for the entries of a user key that are rows.
#[derive(Debug, Clone, Copy)]
pub enum Visibility<'a> {
    /// Those that a compaction keeps.
    Compaction(&'a CompactionRules),
    /// Those that a reader at a snapshot finds: at most one of each user key.
    Snapshot(SnapshotRules<'a>),
}

/// The entries that a reader at a snapshot finds. The newest entry of a user key at or below the sequence number counts;
/// newer ones are skipped, older ones are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRules<'a> {
    /// The snapshot's sequence number.
    pub sequence: u64,
    /// Treatment of deleted keys.
    pub tombstones: Tombstones,
    /// Treatment of keys whose newest entry alone does not contain the value.
    pub needs_merge: NeedsMerge,
    /// Fragments of the range tombstones that the snapshot sees, without a division by snapshots. They are of all tables
    /// that may have keys of the range, also of those that are not read because they have no entries there. `None` if they
    /// are not known. Then ranges in which a table has range tombstones are not read.
    pub deleted: Option<&'a Fragments>,
}

impl SnapshotRules<'_> {
    /// Whether a range tombstone deletes an entry with this sequence number of a user key. `from` is for
    /// [`Fragments::covering`].
    pub fn deletes(&self, user_key: &[u8], sequence: u64, from: &mut usize) -> bool {
        let covering = (self.deleted).and_then(|fragments| fragments.covering(user_key, from));
        let newest = covering.and_then(|fragment| fragment.sequences.first());
        newest.is_some_and(|&newest| newest > sequence)
    }
}

/// Treatment of a Delete or SingleDelete that decides over its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstones {
    /// It is no row.
    Drop,
    /// It is a row, because the rows go to a place that may have older entries.
    Keep,
}

/// Treatment of a key whose newest entry alone does not contain the value: a merge operand, a wide-column entity, a
/// reference to a blob file and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedsMerge {
    /// It is an error: Declined, with the reason.
    Error,
    /// It is a row ([`crate::Row::needs_merge`]).
    Mark,
}

/// Use of the rows: an [`Operator`](crate::Operator) without the target of its results. The operator's memory is reserved
/// together with that of reading.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    /// SST files by this plan.
    WriteSst(&'a OutputPlan),
    /// Passed on one by one.
    Inspect,
    /// Columns by this plan. Every row is one that a reader finds. So the request must drop
    /// tombstones, and make an entry that does not determine the value alone an error.
    Scan(&'a ScanPlan),
    /// Stored in a table that stays on the device. A kept tombstone removes its key
    /// from the table.
    Resident,
}

impl<'a> Purpose<'a> {
    /// How files are to be written, if the purpose is files.
    pub fn output_plan(self) -> Option<&'a OutputPlan> {
        match self {
            Self::WriteSst(plan) => Some(plan),
            Self::Inspect | Self::Scan(_) | Self::Resident => None,
        }
    }
}

/// Rows that are read now. The operator that is given with them has their purpose.
#[derive(Debug, Clone, Copy)]
pub struct ReadTask<'a> {
    /// The rows.
    pub reading: Reading<'a>,
    /// Checked at least once a block.
    pub cancel: &'a CancelToken,
    /// Receives the task's progress, if set.
    pub progress: Option<&'a Progress>,
}

/// Maximum memory of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of host memory.
    pub host_bytes: u64,
    /// Bytes of device memory; 0 if the device is the host.
    pub device_bytes: u64,
}

/// Whether a backend supports a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Yes,
    /// It does not, or not yet.
    No(Unsupported),
}

impl Support {
    /// Succeeds if the request is supported.
    ///
    /// # Errors
    /// Unsupported, with a sentence that names what it is.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Yes => Ok(()),
            Self::No(what) => Err(Error::new(ErrorKind::Unsupported, what.to_string())),
        }
    }
}

/// A part of a request that a backend does not support. Another backend may support it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unsupported {
    /// Writing blocks with this compression.
    Compression,
    /// Counting filter and index towards the size at which a file ends.
    SizeIsUpperBound,
    /// Writing indexes and filters in partitions.
    Partitions,
    /// Reading keys that are not ordered by bytes.
    Comparator,
    /// Reading a range in which a table has range tombstones, or may have some ([`SnapshotRules::deleted`],
    /// [`InputTable::with_range_tombstones`]).
    RangeTombstones,
    /// Reading a table whose entries all have one unknown sequence number ([`InputTable::with_global_sequence`]).
    UnknownSequence,
    /// Reading a table of format_version 0 or 1, whose size may be unknown.
    OldTable,
    /// Writing rows that do not determine the value alone as SST files.
    NeedsMergeInFiles,
    /// The purpose of the rows.
    Purpose,
    /// Compacting while a kernel that may put holds the table.
    Held,
    /// To call objects of the application.
    Plugins,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compression => "the device does not write blocks of this compression",
            Self::SizeIsUpperBound => "the device does not support target_file_size_is_upper_bound yet",
            Self::Partitions => "the device does not write indexes and filters in partitions",
            Self::Comparator => "keys are not ordered by bytes",
            Self::RangeTombstones => "a table has range tombstones there",
            Self::UnknownSequence => {
                "the sequence number of a table that was ingested is not known"
            }
            Self::OldTable => "a table has format_version 0 or 1",
            Self::NeedsMergeInFiles => "files cannot have entries that do not determine the value alone",
            Self::Purpose => "the device does not support the purpose of the rows",
            Self::Plugins => "the CPU does jobs that call objects of the program",
            Self::Held => {
                "a kernel on the device may fill it and wait for RocksDB to take writes, which may wait for the compaction"
            }
        })
    }
}
