//! Parts of random jobs.

use proptest::prelude::*;
use rockmill_core::{
    CompactOnDeletion, CompactionRules, DeeperLevels, Fragments, Grandparent, InputTable, Merging,
    OutputSplitting, Plan, TablePlan,
};
use rockmill_format::compression::{CompressionSettings, CompressionType, DEFAULT_LEVEL};
use rockmill_format::key::KeyOrder;
use rockmill_format::range_tombstone::RangeTombstone;

use crate::common::{self, Entry};

/// A pool of user keys: all of one short length, short ones of various lengths, or arbitrary ones.
pub fn key_pools() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one_length =
        (4usize..=16, 1u32..200).prop_map(|(len, n)| (0..n).map(|i| key_of(i, len)).collect());
    let byte = || prop::sample::select(vec![0u8, 1, 0x7f, 0xff]);
    let short = proptest::collection::vec(proptest::collection::vec(byte(), 0..=16), 1..100);
    let around_words = (byte(), proptest::collection::vec(byte(), 0..4), 14usize..19).prop_map(
        |(first, last, len)| {
            let mut key = vec![first; len];
            key.extend(last);
            key
        },
    );
    prop_oneof![
        2 => one_length,
        1 => short,
        1 => proptest::collection::vec(around_words, 1..60),
        2 => proptest::collection::vec(common::keys(), 1..60),
    ]
}

/// Runs of entries of all kinds.
pub fn runs() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let value = prop_oneof![
        8 => common::values(),
        1 => (any::<u64>(), 230usize..260).prop_map(|(seed, len)| common::noise(seed, len)),
        1 => (any::<u64>(), 1000usize..1100).prop_map(|(seed, len)| common::noise(seed, len)),
    ];
    let entry = (
        any::<prop::sample::Index>(),
        0u8..20,
        value,
        any::<prop::sample::Index>(),
        prop::bool::weighted(0.02),
    );
    (
        key_pools(),
        1usize..9,
        any::<bool>(),
        proptest::collection::vec(entry, 1..250),
    )
        .prop_map(|(keys, runs, with_single_deletes, entries)| {
            let mut out = vec![Vec::new(); runs];
            let mut zeroed = std::collections::BTreeSet::new();
            for (i, (key, kind, value, run, zero)) in entries.into_iter().enumerate() {
                let key = key.get(&keys);
                let (kind, value) = match kind {
                    0..=15 => (common::PUT, value),
                    16 if with_single_deletes => (common::SINGLE_DELETE, Vec::new()),
                    _ => (common::DELETE, Vec::new()),
                };
                // At most one version has the sequence number of older compactions.
                let sequence = match zero && zeroed.insert(key.clone()) {
                    true => 0,
                    false => i as u64 + 1,
                };
                out[run.index(runs)].push(Entry::new(key, sequence, kind, &value));
            }
            out.retain(|run| !run.is_empty());
            for run in &mut out {
                run.sort_by_key(Entry::order);
            }
            out
        })
}

/// Keys that differ early, late, or in between.
pub fn key_of(n: u32, len: usize) -> Vec<u8> {
    let mut key = vec![(n % 3) as u8 * 0x7f; len];
    let at = (n as usize / 3) % (len - 3);
    key[at..at + 4].copy_from_slice(&n.to_be_bytes());
    key
}

/// Compressions that the device writes.
pub const COMPRESSIONS: [CompressionType; 5] = [
    CompressionType::None,
    CompressionType::Snappy,
    CompressionType::Lz4,
    CompressionType::Lz4hc,
    CompressionType::Zstd,
];

/// Levels; negative ones are accelerations of LZ4.
pub const LEVELS: [i32; 8] = [DEFAULT_LEVEL, -8, -1, 0, 1, 3, 6, 12];

/// Plans of tables that the device writes: compressed by Rockmill's own code, by a library, or not at all.
pub fn table_plans() -> impl Strategy<Value = TablePlan> {
    (
        common::plans::table_plans(),
        prop::sample::select(COMPRESSIONS.to_vec()),
        prop::sample::select(LEVELS.to_vec()),
        any::<bool>(),
    )
        .prop_map(|(mut plan, kind, level, is_own)| {
            let settings = CompressionSettings {
                kind,
                level,
                ..plan.compression
            };
            let own = settings.with_rockmill().filter(|_| is_own);
            plan.compression = own.unwrap_or(settings);
            plan
        })
}

pub fn mergings() -> impl Strategy<Value = Merging> {
    let append = (proptest::collection::vec(any::<u8>(), 0..4), any::<bool>());
    prop_oneof![
        2 => Just(Merging::UInt64Add),
        1 => Just(Merging::Put),
        1 => Just(Merging::Max),
        1 => Just(Merging::BytesXor),
        2 => append.prop_map(|(delimiter, partial)| Merging::Append { delimiter, partial }),
    ]
}

/// The same runs with merge operands in place of most values, of which some are numbers, and without SingleDeletes.
pub fn with_operands(runs: &[Vec<Entry>]) -> Vec<Vec<Entry>> {
    let changed = |entry: &Entry| {
        let draw = entry.seq() % 7;
        let kind = match entry.kind() {
            common::PUT if draw < 5 => common::MERGE,
            common::SINGLE_DELETE => common::DELETE,
            kind => kind,
        };
        let value = match kind {
            common::DELETE => Vec::new(),
            _ if draw.is_multiple_of(2) => (u64::MAX / (1 + entry.seq())).to_le_bytes().to_vec(),
            _ => entry.value.clone(),
        };
        Entry::new(&entry.key, entry.seq(), kind, &value)
    };
    let of_run = |run: &Vec<Entry>| run.iter().map(changed).collect();
    runs.iter().map(of_run).collect()
}

fn collectors() -> impl Strategy<Value = CompactOnDeletion> {
    (
        prop::sample::select(vec![0u64, 1, 5, 128, 129, 300, 1000, u64::MAX]),
        0u64..30,
        prop::sample::select(vec![0.0, 0.1, 0.3, 1.0, 2.0]),
        prop::sample::select(vec![0u64, 1000, 10_000]),
    )
        .prop_map(
            |(window_size, deletion_trigger, deletion_ratio, min_file_size)| CompactOnDeletion {
                window_size,
                deletion_trigger,
                deletion_ratio,
                min_file_size,
            },
        )
}

/// Ends of range tombstones, as positions among keys, bytes that are cut off them, and a sequence number.
pub type DrawnTombstone = ([prop::sample::Index; 2], [usize; 2], u64);

pub fn tombstones() -> impl Strategy<Value = Vec<DrawnTombstone>> {
    let ends = any::<[prop::sample::Index; 2]>();
    let cut = [0usize..3, 0usize..3];
    prop_oneof![
        2 => Just(Vec::new()),
        3 => proptest::collection::vec((ends, cut, 1u64..310), 1..14),
    ]
}

/// Range tombstones that begin and end at keys of entries or near them.
pub fn fragments(drawn: &[DrawnTombstone], runs: &[Vec<Entry>], snapshots: &[u64]) -> Fragments {
    let all = runs.concat();
    let tombstone = |(ends, cut, sequence): &DrawnTombstone| {
        let mut ends = [0, 1].map(|i| {
            let mut key = ends[i].get(&all).key.clone();
            key.truncate(key.len().saturating_sub(cut[i]));
            key
        });
        ends.sort();
        let [begin, end] = ends;
        RangeTombstone {
            begin,
            end,
            sequence: *sequence,
        }
    };
    let all: Vec<_> = drawn.iter().map(tombstone).collect();
    Fragments::new(KeyOrder::Bytewise, &all, snapshots)
}

pub fn plans() -> impl Strategy<Value = Plan> {
    let rules = (
        proptest::collection::btree_set(0u64..310, 0..4),
        any::<bool>(),
        prop_oneof![Just(DeeperLevels::Nothing), Just(DeeperLevels::Unknown)],
        any::<bool>(),
    );
    let splitting = (
        prop::sample::select(vec![1u64, 100, 3000, 100_000, u64::MAX]),
        prop::sample::select(vec![(1u64, 1u64), (2, 3), (0, 0)]),
        prop::sample::select(vec![2000u64, 6000, u64::MAX]),
        any::<[bool; 4]>(),
        prop::sample::select(vec![None, None, None, Some(0), Some(2), Some(5), Some(20)]),
    );
    let collectors = proptest::collection::vec(collectors(), 0..3);
    (rules, table_plans(), splitting, collectors).prop_map(
        |(rules, table, splitting, collectors)| {
            let (snapshots, bottommost, deeper, enforce_single_del_contracts) = rules;
            let (file_size, ratio, max_compaction_bytes, switches, partition_bytes) = splitting;
            let [single_file, level_style, file_checksum, paranoid_hash] = switches;
            let mut plan = common::plan();
            plan.rules = CompactionRules {
                snapshots: snapshots.into_iter().collect(),
                bottommost,
                deeper: if bottommost {
                    DeeperLevels::Nothing
                } else {
                    deeper
                },
                enforce_single_del_contracts,
                tombstones: Default::default(),
                merging: None,
                filter: None,
                ..CompactionRules::default()
            };
            plan.output.table = table;
            plan.output.splitting = OutputSplitting {
                single_file,
                level_style,
                compression_ratio: ratio,
                max_compaction_bytes,
                partition_bytes,
                ..common::splitting(file_size)
            };
            plan.output.compact_on_deletion = collectors;
            plan.output.file_checksum = file_checksum;
            plan.output.paranoid_hash = paranoid_hash;
            plan
        },
    )
}

pub fn tables(runs: &[Vec<Entry>], table: &TablePlan) -> Vec<InputTable> {
    let mut plan = common::plan();
    plan.output.table = table.clone();
    common::tables(&plan, runs)
}

/// User keys of every third entry, ascending.
fn some_keys(runs: &[Vec<Entry>]) -> Vec<Vec<u8>> {
    let entries = runs.concat();
    let mut keys: Vec<_> = entries.into_iter().step_by(3).map(|e| e.key).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Files beneath the output, whose ends are keys of entries.
pub fn deeper_files(runs: &[Vec<Entry>]) -> DeeperLevels {
    let keys = some_keys(runs);
    let files = |keys: &[Vec<u8>]| -> Vec<_> {
        keys.chunks_exact(2)
            .map(|ends| (ends[0].clone(), ends[1].clone()))
            .collect()
    };
    let (near, deep) = keys.split_at(keys.len() / 2);
    DeeperLevels::Files(vec![files(near), Vec::new(), files(deep)])
}

/// Files of the level below the output. With `touching`, one ends on the key with which the next begins.
pub fn grandparents(runs: &[Vec<Entry>], touching: bool) -> Vec<Grandparent> {
    let keys = some_keys(runs);
    let step = if touching { 1 } else { 2 };
    let ends = keys.windows(2).step_by(step);
    (0u64..)
        .zip(ends)
        .map(|(i, ends)| Grandparent {
            smallest: ends[0].clone(),
            largest: ends[1].clone(),
            size: i * 7919 % 3000,
        })
        .collect()
}
