//! Random entries of a few keys, and rules.

use proptest::prelude::*;
use rockmill_core::{CompactionRules, DeeperLevels};
use rockmill_format::key::{KeyOrder, MAX_SEQUENCE};

use crate::common::{Entry, PUT};

pub const KEYS: [&[u8]; 4] = [b"", b"a", b"a\0", b"b"];

/// Sequence numbers are small so that snapshots fall between, on and around them.
fn seqs() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 0u64..12, 1 => Just(MAX_SEQUENCE), 1 => Just(MAX_SEQUENCE - 1)]
}

pub fn histories(kinds: Vec<u8>) -> impl Strategy<Value = Vec<Entry>> {
    let key = prop_oneof![4 => Just(1usize), 1 => 0..KEYS.len()];
    let entry = (key, seqs(), prop::sample::select(kinds));
    proptest::collection::vec(entry, 0..14).prop_map(|all| {
        let mut entries: Vec<_> = all
            .iter()
            .map(|&(key, seq, kind)| {
                let value = if kind == PUT {
                    format!("{seq}").into_bytes()
                } else {
                    Vec::new()
                };
                Entry::new(KEYS[key], seq, kind, &value)
            })
            .collect();
        entries.sort_by_key(Entry::order);
        entries.dedup_by(|a, b| a.key == b.key && a.seq() == b.seq());
        entries
    })
}

fn snapshots() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        1 => Just(Vec::new()),
        4 => proptest::collection::btree_set(seqs(), 0..5).prop_map(Vec::from_iter),
    ]
}

/// Files of single keys or of ranges of keys, per level.
fn deeper_files() -> impl Strategy<Value = DeeperLevels> {
    let level = (any::<[bool; 4]>(), any::<bool>()).prop_map(|(present, one_file)| {
        let keys: Vec<_> = (0..KEYS.len()).filter(|&i| present[i]).collect();
        let file = |from: usize, to: usize| (KEYS[from].to_vec(), KEYS[to].to_vec());
        match (keys.first(), keys.last()) {
            (Some(&first), Some(&last)) if one_file => vec![file(first, last)],
            _ => keys.iter().map(|&key| file(key, key)).collect(),
        }
    });
    proptest::collection::vec(level, 0..3).prop_map(DeeperLevels::Files)
}

fn rules() -> impl Strategy<Value = CompactionRules> {
    let place = prop_oneof![
        3 => Just((true, DeeperLevels::Nothing)),
        1 => Just((true, DeeperLevels::Files(vec![Vec::new()]))),
        1 => Just((false, DeeperLevels::Nothing)),
        1 => Just((false, DeeperLevels::Unknown)),
        2 => deeper_files().prop_map(|files| (false, files)),
    ];
    (snapshots(), place, any::<bool>()).prop_map(|(snapshots, place, enforce)| CompactionRules {
        snapshots,
        bottommost: place.0,
        deeper: place.1,
        enforce_single_del_contracts: enforce,
        tombstones: Default::default(),
        merging: None,
        filter: None,
        ..CompactionRules::default()
    })
}

/// Entries and rules in the order of bytes, or in reverse order.
pub fn in_some_order(
    entries: impl Strategy<Value = Vec<Entry>>,
) -> impl Strategy<Value = (Vec<Entry>, CompactionRules)> {
    (entries, rules(), any::<bool>()).prop_map(|(mut entries, mut rules, is_reverse)| {
        if is_reverse {
            rules.order = KeyOrder::ReverseBytewise;
            entries.sort_by(|a, b| {
                rules
                    .order
                    .compare_entries((&a.key, a.tag), (&b.key, b.tag))
            });
            if let DeeperLevels::Files(levels) = &mut rules.deeper {
                for files in levels {
                    files.reverse();
                    for (smallest, largest) in files {
                        std::mem::swap(smallest, largest);
                    }
                }
            }
        }
        (entries, rules)
    })
}
