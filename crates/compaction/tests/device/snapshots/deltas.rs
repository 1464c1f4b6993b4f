//! Derived tables have the contents of the latest rows, and do not change other tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use rockmill_core::{InputTable, KeyRange, SnapshotRules, Tombstones};
use rockmill_cuda::{Delta, DeviceTable, LookupResult, TableContents, TableSettings};
use rockmill_format::key::ValueType;

use super::drawn::{self, Run};
use super::resident::{MASKS, get, numbered, place, settings};
use super::{EVERYTHING, device, model};
use crate::common::{self, PUT, config, open};

/// Known contents of keys: their values, or none if RocksDB must be asked.
type Known = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The rules of a reader.
const SEEN: SnapshotRules = SnapshotRules {
    tombstones: Tombstones::Drop,
    ..EVERYTHING
};

fn record_bytes(known: &Known) -> u64 {
    let bytes = known.iter().map(|(key, value)| {
        let value_bytes = value.as_ref().map_or(0, Vec::len);
        DeviceTable::record_bytes(key.len() as u64, value_bytes as u64)
    });
    bytes.sum()
}

fn compare(table: &DeviceTable, known: &Known, keys: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let contents = table.contents();
    prop_assert_eq!(contents.left_over, 0);
    let values = known.values().flatten().count();
    prop_assert_eq!(contents.keys, values as u64);
    prop_assert_eq!(contents.needs_host, (known.len() - values) as u64);
    prop_assert_eq!(
        contents.record_bytes - contents.dead_bytes,
        record_bytes(known)
    );
    let refs: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    for (key, answer) in keys.iter().zip(get(table, &refs)) {
        let meant = match known.get(key) {
            Some(Some(value)) => LookupResult::Found(value.clone()),
            Some(None) => LookupResult::NeedsHost,
            None => LookupResult::NotFound,
        };
        prop_assert_eq!(answer, meant);
    }
    Ok(())
}

/// How the entries of a run are applied.
#[derive(Debug, Clone)]
enum Change {
    /// They were written.
    Written,
    /// A range of keys has only these entries.
    Range([Option<prop::sample::Index>; 2]),
}

fn changes() -> impl Strategy<Value = Vec<(Change, bool)>> {
    let bounds = any::<[Option<prop::sample::Index>; 2]>();
    let change = prop_oneof![Just(Change::Written), bounds.prop_map(Change::Range)];
    prop::collection::vec((change, any::<bool>()), 7)
}

/// The known contents after the entries of a run were written.
fn after_writes(known: &Known, run: &Run) -> Known {
    let mut known = known.clone();
    let runs = std::slice::from_ref(run);
    let (rows, _) = model::read(runs, &KeyRange::default(), &EVERYTHING).expect("marked");
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
    known
}

/// The known contents if a range has the entries of a run and no others.
fn after_reload(known: &Known, run: &Run, range: &KeyRange) -> Known {
    let mut known = known.clone();
    known.retain(|key, _| !range.contains(key));
    let (rows, _) = model::read(std::slice::from_ref(run), range, &SEEN).expect("marked");
    let of_row = |row: common::Entry| (row.key.clone(), (row.kind() == PUT).then_some(row.value));
    known.extend(rows.into_iter().map(of_row));
    known
}

/// A table derived from another by the entries of a run, and its known contents.
fn made(
    (base, known): &(Arc<DeviceTable>, Known),
    (run, input): (&Run, &InputTable),
    range: Option<KeyRange>,
) -> (Arc<DeviceTable>, Known) {
    let inputs = std::slice::from_ref(input);
    let delta = Delta::new(base, &[]).expect("a copy");
    let known = match range {
        None => {
            place(device(), inputs, &KeyRange::default(), EVERYTHING, &delta).expect("placed");
            after_writes(known, run)
        }
        Some(range) => {
            place(device(), inputs, &range, SEEN, &delta).expect("placed");
            delta
                .erase_missing(std::slice::from_ref(&range))
                .expect("taken out");
            after_reload(known, run, &range)
        }
    };
    (delta.finish().expect("a table"), known)
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_table_that_is_made_of_another_has_what_the_newer_rows_say(
        runs in drawn::runs(),
        changes in changes(),
        plan in common::plans::table_plans(),
        seeds: [u64; 2],
        hash_mask in prop::sample::select(MASKS.to_vec()),
    ) {
        let tables = drawn::tables(&runs, &plan);
        let mut keys: Vec<_> = runs.iter().flat_map(|run| run.keys().cloned()).collect();
        keys.push(b"absent".to_vec());
        let given = TableSettings { seed: seeds[0], hash_mask, ..settings(400) };
        let empty = DeviceTable::new(device().device(), &given).expect("a table");
        let mut all = vec![(Arc::new(empty), Known::new())];
        for ((run, input), (change, gets_slots)) in runs.iter().zip(&tables).zip(&changes) {
            let range = match change {
                Change::Written => None,
                Change::Range(bounds) => Some(drawn::range(&runs, *bounds, false)),
            };
            let last = all.last().expect("the empty one");
            let (table, known) = made(last, (run, input), range);
            if *gets_slots {
                let with_slots = table.with_slots(500, seeds[1]).expect("a table");
                all.push((Arc::new(with_slots), known.clone()));
            }
            all.push((table, known));
        }
        for (table, known) in &all {
            compare(table, known, &keys)?;
        }
    }

    #[test]
    fn keys_that_no_row_has_are_counted(
        runs in drawn::runs(),
        plan in common::plans::table_plans(),
        hash_mask in prop::sample::select(MASKS.to_vec()),
    ) {
        let tables = drawn::tables(&runs, &plan);
        let ([old, new, ..], [old_input, new_input, ..]) = (&runs[..], &tables[..]) else {
            return Ok(());
        };
        let all = KeyRange::default();
        let given = TableSettings { hash_mask, ..settings(400) };
        let base = Arc::new(DeviceTable::new(device().device(), &given).expect("a table"));
        place(device(), std::slice::from_ref(old_input), &all, SEEN, &*base).expect("placed");
        let delta = Delta::new(&base, &[]).expect("a copy");
        place(device(), std::slice::from_ref(new_input), &all, EVERYTHING, &delta).expect("placed");
        let unseen = delta.unseen();
        place(device(), std::slice::from_ref(old_input), &all, SEEN, &unseen).expect("counted");
        let known = after_reload(&Known::new(), old, &all);
        let stay = known.keys().filter(|key| !new.keys().any(|other| other == *key));
        prop_assert_eq!(unseen.keys(), stay.count() as u64);
    }
}

fn input(numbers: std::ops::Range<u32>) -> [InputTable; 1] {
    let entries = numbered(numbers);
    [open(common::one_file(&common::plan(), &entries)).expect("sound")]
}

fn table(settings: &TableSettings<'_>, numbers: std::ops::Range<u32>) -> Arc<DeviceTable> {
    let table = DeviceTable::new(device().device(), settings).expect("a table");
    let all = KeyRange::default();
    place(device(), &input(numbers), &all, SEEN, &table).expect("placed");
    Arc::new(table)
}

#[test]
fn slots_that_are_used_up_are_told_and_others_take_their_place() {
    let base = DeviceTable::new(device().device(), &settings(1600)).expect("a table");
    let base = Arc::new(base);
    assert_eq!(base.contents().slot_bytes, 1600 * 10);
    let delta = Delta::new(&base, &[]).expect("a copy");
    assert!(!delta.table().is_nearly_full());
    let all = KeyRange::default();
    place(device(), &input(0..1900), &all, EVERYTHING, &delta).expect("placed");
    assert!(delta.table().is_nearly_full() && !base.is_nearly_full());
    assert_eq!(base.contents().keys, 0);
    let contents = TableContents {
        keys: 1900,
        record_bytes: 1900 * 48,
        slot_bytes: 1600 * 10,
        ..TableContents::default()
    };
    assert_eq!(delta.table().contents(), contents);
    let larger = delta.table().with_slots(3200, 1).expect("a table");
    let slot_bytes = 3200 * 10;
    assert_eq!(
        larger.contents(),
        TableContents {
            slot_bytes,
            ..contents
        }
    );
    assert!(!larger.is_nearly_full());
    let key = numbered(7..8).remove(0);
    assert_eq!(get(&larger, &[&key.key]), [LookupResult::Found(key.value)]);
}

#[test]
fn rows_that_say_the_same_take_no_memory() {
    let base = table(&settings(2000), 0..1000);
    let delta = Delta::new(&base, &[]).expect("a copy");
    let all = KeyRange::default();
    let placed = place(device(), &input(0..1003), &all, EVERYTHING, &delta).expect("placed");
    assert_eq!((placed.rows, placed.bytes), (1003, 3 * 48));
    let contents = delta.finish().expect("a table").contents();
    assert_eq!((contents.keys, contents.dead_bytes), (1003, 0));
    assert_eq!(contents.record_bytes, 1003 * 48);
}

#[test]
fn memory_of_dead_records_is_given_back() {
    // Two chunks, of which one becomes dead and the other one loses a third.
    let base = table(&settings(2000), 0..1000);
    let delta = Delta::new(&base, &[]).expect("a copy");
    let all = KeyRange::default();
    place(device(), &input(1000..1300), &all, EVERYTHING, &delta).expect("placed");
    let both = delta.finish().expect("a table");
    let delta = Delta::new(&both, &[]).expect("a copy");
    let range = |from: u32, to: u32| KeyRange {
        begin: Some(from.to_be_bytes().to_vec()),
        end: Some(to.to_be_bytes().to_vec()),
    };
    let ranges = [range(200, 300), range(1000, 2000)];
    delta.erase_missing(&ranges).expect("taken out");
    let few = delta.finish().expect("a table");
    let contents = few.contents();
    assert_eq!((contents.keys, contents.dead_bytes), (900, 100 * 48));
    assert_eq!(contents.record_bytes, 1000 * 48);
    let delta = Delta::new(&few, &[]).expect("a copy");
    delta.erase_missing(&[range(300, 500)]).expect("taken out");
    let fewer = delta.finish().expect("a table");
    let contents = fewer.contents();
    assert_eq!((contents.keys, contents.dead_bytes), (700, 0));
    assert_eq!(contents.record_bytes, 700 * 48);
    for entry in numbered(0..1300) {
        let number = u32::from_be_bytes(entry.key[..].try_into().expect("four bytes"));
        let answers = [&both, &few, &fewer].map(|table| get(table, &[&entry.key]));
        let is_there = [
            true,
            number < 200 || (300..1000).contains(&number),
            number < 200 || (500..1000).contains(&number),
        ];
        for (answer, is_there) in answers.into_iter().zip(is_there) {
            let meant = match is_there {
                true => LookupResult::Found(entry.value.clone()),
                false => LookupResult::NotFound,
            };
            assert_eq!(answer, [meant], "{number}");
        }
    }
}

#[test]
fn tables_share_the_memory_that_the_first_was_given() {
    let given = TableSettings {
        // Slots of two tables, and memory for the rest.
        memory_bytes: 2 * 16_000 + 1000,
        ..settings(1600)
    };
    let base = Arc::new(DeviceTable::new(device().device(), &given).expect("a table"));
    let delta = Delta::new(&base, &[]).expect("there is room for two");
    let error = Delta::new(delta.table(), &[]).expect_err("there is none for three");
    assert!(error.what.contains("may take 33000"), "{error}");
    drop(delta);
    Delta::new(&base, &[]).expect("there is room again");
    let error = base.with_slots(1700, 1).map(drop).expect_err("too many");
    assert!(error.what.contains("may take 33000"), "{error}");
    base.with_slots(1600, 1).expect("there is room again");
}

#[test]
fn chunks_stay_where_there_is_no_memory_for_what_lives_in_them() {
    const RECORDS: u64 = 1000 * 48;
    let given = TableSettings {
        // Two tables' slots, the records, and a fifth as much again.
        memory_bytes: 2 * 20_000 + RECORDS / 5 * 6,
        ..settings(2000)
    };
    let base = table(&given, 0..1000);
    let delta = Delta::new(&base, &[]).expect("a copy");
    let range = KeyRange {
        begin: Some(700u32.to_be_bytes().to_vec()),
        end: None,
    };
    delta.erase_missing(&[range]).expect("taken out");
    let few = delta.finish().expect("a table");
    let contents = few.contents();
    assert_eq!((contents.keys, contents.dead_bytes), (700, 300 * 48));
    assert_eq!(contents.record_bytes, RECORDS);
    let first = numbered(0..1).remove(0);
    assert_eq!(get(&few, &[&first.key]), [LookupResult::Found(first.value)]);
}
