//! Random runs of entries of all types, and requests.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rockmill_core::{InputTable, KeyRange, NeedsMerge, SnapshotRules, TablePlan, Tombstones};
use rockmill_format::key::{MAX_SEQUENCE, ValueType, pack_tag};
use rockmill_format::range_tombstone::RangeTombstone;

use super::cases;
use crate::common::{self, Entry};

/// Maximum sequence number of entries, small so that tables have equal ones and snapshots lie among them.
const MAX_DRAWN_SEQUENCE: u64 = 40;

/// A table's stored entries, and the common sequence number of an ingested one.
#[derive(Debug, Clone)]
pub struct Run {
    stored: Vec<Entry>,
    global_sequence: Option<u64>,
}

impl Run {
    /// The entries as a reader sees them.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.stored.iter().map(|entry| Entry {
            tag: match self.global_sequence {
                Some(sequence) => pack_tag(sequence, entry.kind()),
                None => entry.tag,
            },
            ..entry.clone()
        })
    }

    /// A table of the entries.
    pub fn file(&self) -> Vec<u8> {
        common::one_file(&common::plan(), &self.stored)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.stored.iter().map(|entry| &entry.key)
    }
}

/// The runs as tables.
pub fn tables(runs: &[Run], plan: &TablePlan) -> Vec<InputTable> {
    let stored: Vec<_> = runs.iter().map(|run| run.stored.clone()).collect();
    let tables = cases::tables(&stored, plan).into_iter().zip(runs);
    let given = |(table, run): (InputTable, &Run)| match run.global_sequence {
        Some(sequence) => table.with_global_sequence(sequence).expect("it is one"),
        None => table,
    };
    tables.map(given).collect()
}

fn types() -> impl Strategy<Value = ValueType> {
    prop_oneof![
        8 => Just(ValueType::Value),
        3 => Just(ValueType::Deletion),
        2 => Just(ValueType::SingleDeletion),
        1 => prop::sample::select(vec![
            ValueType::Merge,
            ValueType::RangeDeletion,
            ValueType::BlobIndex,
            ValueType::DeletionWithTimestamp,
            ValueType::WideColumnEntity,
            ValueType::ValuePreferredSeqno,
        ]),
    ]
}

/// An entry before its key is known.
type Drawn = (prop::sample::Index, u64, ValueType, Vec<u8>);

/// A run of entries with keys of a pool; no internal key occurs twice in it.
fn run(drawn: Vec<Drawn>, pool: &[Vec<u8>], global_sequence: Option<u64>) -> Run {
    let mut stored = BTreeMap::new();
    for (key, sequence, kind, value) in drawn {
        let key = &pool[key.index(pool.len())];
        let stored_sequence = global_sequence.map_or(sequence, |_| 0);
        let entry = Entry::new(key, stored_sequence, kind as u8, &value);
        // An ingested file has each user key once.
        let place = match global_sequence {
            Some(_) => (key.clone(), 0),
            None => (key.clone(), u64::MAX - entry.tag),
        };
        stored.insert(place, entry);
    }
    Run {
        stored: stored.into_values().collect(),
        global_sequence,
    }
}

/// Tables that overlap, some of them ingested.
pub fn runs() -> impl Strategy<Value = Vec<Run>> {
    let entry = (
        any::<prop::sample::Index>(),
        0..=MAX_DRAWN_SEQUENCE,
        types(),
        common::values(),
    );
    let sequence = proptest::option::weighted(0.3, 0..=MAX_DRAWN_SEQUENCE);
    let drawn = (proptest::collection::vec(entry, 1..60), sequence);
    let runs = proptest::collection::vec(drawn, 0..7);
    (cases::key_pools(), runs).prop_map(|(pool, runs)| {
        let of_pool = |(entries, sequence)| run(entries, &pool, sequence);
        runs.into_iter().map(of_pool).collect()
    })
}

pub fn rules() -> impl Strategy<Value = SnapshotRules<'static>> {
    let sequence = prop_oneof![8 => 0..=MAX_DRAWN_SEQUENCE + 1, 1 => Just(MAX_SEQUENCE)];
    let tombstones = prop::sample::select(vec![Tombstones::Drop, Tombstones::Keep]);
    let needs_merge = prop_oneof![1 => Just(NeedsMerge::Error), 3 => Just(NeedsMerge::Mark)];
    (sequence, tombstones, needs_merge).prop_map(|(sequence, tombstones, needs_merge)| {
        SnapshotRules {
            sequence,
            tombstones,
            needs_merge,
            deleted: None,
        }
    })
}

/// Range tombstones before their keys are known.
pub type DrawnTombstones = Vec<([prop::sample::Index; 2], u64)>;

pub fn tombstones() -> impl Strategy<Value = DrawnTombstones> {
    let tombstone = (any::<[prop::sample::Index; 2]>(), 0..=MAX_DRAWN_SEQUENCE);
    prop::collection::vec(tombstone, 0..8)
}

/// Range tombstones between keys of the runs; some are empty.
pub fn tombstones_of(runs: &[Run], drawn: DrawnTombstones) -> Vec<RangeTombstone> {
    let keys: Vec<_> = runs.iter().flat_map(Run::keys).collect();
    if keys.is_empty() {
        return Vec::new();
    }
    let tombstone = |(ends, sequence): ([prop::sample::Index; 2], u64)| {
        let [begin, end] = ends.map(|at| keys[at.index(keys.len())].clone());
        RangeTombstone {
            begin,
            end,
            sequence,
        }
    };
    drawn.into_iter().map(tombstone).collect()
}

/// A range between two keys of the runs, or one that is shorter than them, as separators are.
pub fn range(runs: &[Run], bounds: [Option<prop::sample::Index>; 2], is_cut: bool) -> KeyRange {
    let keys: Vec<_> = runs.iter().flat_map(Run::keys).collect();
    let bound = |at: prop::sample::Index| match keys.is_empty() {
        true => Vec::new(),
        false => keys[at.index(keys.len())].clone(),
    };
    let mut bounds = bounds.map(|at| at.map(bound));
    if is_cut {
        bounds.iter_mut().flatten().for_each(|key| key.truncate(3));
    }
    bounds.sort();
    let [begin, end] = bounds;
    KeyRange { begin, end }
}
