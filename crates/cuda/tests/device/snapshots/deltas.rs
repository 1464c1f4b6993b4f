//! Tables that are made one of another have what the last rows say, and none of them changes another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use rockmill_core::{KeyRange, SnapshotRules, Tombstones};
use rockmill_cuda::{Answer, Delta, DeviceTable, TableContents, TableSettings};
use rockmill_format::key::ValueType;

use super::resident::{MASKS, get, place, settings};
use super::{EVERYTHING, device, drawn, model};
use crate::common::{PUT, config};

/// What is known of keys: their values, or none if RocksDB has to be asked.
type Known = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn record_bytes(known: &Known) -> u64 {
    let values = known
        .iter()
        .filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let bytes = values.map(|(key, v)| DeviceTable::record_bytes(key.len() as u64, v.len() as u64));
    bytes.sum()
}

fn compare(table: &DeviceTable, known: &Known, keys: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let contents = table.contents();
    prop_assert_eq!(contents.left_over, 0);
    let values = known.values().flatten().count() as u64;
    prop_assert_eq!(contents.keys, values);
    prop_assert_eq!(
        contents.record_bytes - contents.dead_bytes,
        record_bytes(known)
    );
    let refs: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    for (key, answer) in keys.iter().zip(get(table, &refs)) {
        match known.get(key) {
            Some(Some(value)) => prop_assert_eq!(answer, Answer::Found(value.clone())),
            Some(None) => prop_assert_eq!(answer, Answer::Ask),
            // A slot that asks stays.
            None if answer == Answer::Ask => prop_assert!(contents.ask > 0),
            None => prop_assert_eq!(answer, Answer::NotFound),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_table_that_is_made_of_another_has_what_the_newer_rows_say(
        runs in drawn::runs(),
        plan in crate::common::plans::table_plans(),
        seed: u64,
        hash_mask in prop::sample::select(MASKS.to_vec()),
    ) {
        let tables = drawn::tables(&runs, &plan);
        let mut keys: Vec<_> = runs.iter().flat_map(|run| run.keys().cloned()).collect();
        keys.push(b"absent".to_vec());
        let all = KeyRange::default();
        let given = TableSettings { seed, hash_mask, ..settings(400) };
        let empty = DeviceTable::new(device().device(), &given).expect("a table");
        let mut made = vec![(Arc::new(empty), Known::new())];
        for (run, input) in runs.iter().zip(&tables) {
            let (base, known) = made.last().expect("the empty one");
            let mut known = known.clone();
            let delta = Delta::new(base).expect("a copy");
            let inputs = std::slice::from_ref(input);
            place(device(), inputs, &all, EVERYTHING, &delta).expect("placed");
            let (rows, _) = model::read(std::slice::from_ref(run), &all, &EVERYTHING).expect("marked");
            for row in rows {
                let is_deleted = [ValueType::Deletion, ValueType::SingleDeletion]
                    .iter()
                    .any(|kind| *kind as u8 == row.kind());
                match row.kind() {
                    PUT => known.insert(row.key, Some(row.value)),
                    _ if is_deleted => known.remove(&row.key),
                    _ => known.insert(row.key, None),
                };
            }
            // Keys of the run before whose values are those of the base.
            let seen = SnapshotRules { tombstones: Tombstones::Drop, ..EVERYTHING };
            let count = |input| {
                let unchanged = delta.unchanged();
                let counted = place(device(), std::slice::from_ref(input), &all, seen, &unchanged);
                counted.map(|_| unchanged.keys())
            };
            prop_assert_eq!(count(input).expect("counted"), 0);
            if let Some(before) = made.len().checked_sub(2) {
                let is_new = |key: &&Vec<u8>| run.keys().any(|other| other == *key);
                let base = &made[before + 1].1;
                let old: BTreeSet<_> = runs[before].keys().filter(|key| !is_new(key)).collect();
                let stay = old.into_iter().filter(|key| matches!(base.get(*key), Some(Some(_))));
                prop_assert_eq!(count(&tables[before]).expect("counted"), stay.count() as u64);
            }
            made.push((Arc::clone(delta.table()), known));
        }
        for (table, known) in &made {
            compare(table, known, &keys)?;
        }
    }
}

#[test]
fn slots_that_are_used_up_are_told() {
    let entries = super::resident::numbered(0..1900);
    let input = crate::common::open(crate::common::one_file(&crate::common::plan(), &entries));
    let (input, all) = ([input.expect("sound")], KeyRange::default());
    let given = settings(1600);
    let base = DeviceTable::new(device().device(), &given).expect("a table");
    assert_eq!(base.contents().slot_bytes, 1600 * 10);
    let base = Arc::new(base);
    let delta = Delta::new(&base).expect("a copy");
    assert!(!delta.table().is_crowded());
    place(device(), &input, &all, EVERYTHING, &delta).expect("placed");
    assert!(delta.table().is_crowded() && !base.is_crowded());
    assert_eq!(base.contents().keys, 0);
    let contents = TableContents {
        keys: 1900,
        record_bytes: 1900 * 48,
        slot_bytes: 1600 * 10,
        ..TableContents::default()
    };
    assert_eq!(delta.table().contents(), contents);
}

#[test]
fn tables_share_the_memory_that_the_first_was_given() {
    let given = TableSettings {
        memory_bytes: 2 * 16_000,
        ..settings(1600)
    };
    let base = Arc::new(DeviceTable::new(device().device(), &given).expect("a table"));
    let other = base.beside(&given).expect("there is room for two");
    let error = Delta::new(&base).expect_err("there is none for three");
    assert!(error.what.contains("needs 48000 bytes"), "{error}");
    drop(other);
    Delta::new(&base).expect("there is room again");
}
