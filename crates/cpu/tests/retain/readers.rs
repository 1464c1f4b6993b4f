//! The rules' promises to readers, through two compactions and the writes between.

use proptest::prelude::*;
use rockmill_core::{CompactionRules, DeeperLevels};
use rockmill_format::key::MAX_SEQUENCE;

use crate::common::{DELETE, Entry, PUT, SINGLE_DELETE, config};
use crate::histories::KEYS;
use crate::run;

/// The value of `key` for a reader at `snapshot`.
fn read<'a>(layers: &[&'a [Entry]], key: &[u8], snapshot: u64) -> Option<&'a [u8]> {
    let newest = layers
        .iter()
        .copied()
        .flatten()
        .filter(|entry| entry.key == key && entry.seq() <= snapshot)
        .max_by_key(|entry| entry.tag)?;
    (newest.kind() == PUT).then_some(newest.value.as_slice())
}

/// Writes of an application that keeps the contracts: keys `a\0` and `b` are put once and then single-deleted, in
/// turns; others are put and deleted at will. Each key's history is divided into the part beneath the compaction, its
/// input, and later writes.
#[derive(Debug, Clone)]
struct Lives {
    deeper: Vec<Entry>,
    input: Vec<Entry>,
    later: Vec<Entry>,
}

const FIRST_SINGLE_DELETED: usize = 2;

fn lives() -> impl Strategy<Value = Lives> {
    let op = (0..KEYS.len(), any::<bool>());
    let cuts = proptest::array::uniform4((0usize..8, 0usize..8));
    (proptest::collection::vec(op, 0..20), cuts, any::<bool>()).prop_map(
        |(ops, cuts, nothing_deeper)| {
            let (mut deeper, mut input, mut later) = (vec![], vec![], vec![]);
            let mut written = [0usize; KEYS.len()];
            for (i, &(key, delete)) in ops.iter().enumerate() {
                let kind = match (key >= FIRST_SINGLE_DELETED, written[key] % 2, delete) {
                    (true, 0, _) | (false, _, false) => PUT,
                    (true, _, _) => SINGLE_DELETE,
                    (false, _, true) => DELETE,
                };
                // Entries of a file that is ingested into a new database have sequence number 0.
                let seq = i as u64;
                let value = if kind == PUT {
                    format!("v{seq}")
                } else {
                    String::new()
                };
                let entry = Entry::new(KEYS[key], seq, kind, value.as_bytes());
                let (start, len) = cuts[key];
                let start = if nothing_deeper { 0 } else { start };
                match written[key] {
                    at if at < start => deeper.push(entry),
                    at if at < start + len => input.push(entry),
                    _ => later.push(entry),
                }
                written[key] += 1;
            }
            for layer in [&mut deeper, &mut input, &mut later] {
                layer.sort_by_key(Entry::order);
            }
            Lives {
                deeper,
                input,
                later,
            }
        },
    )
}

/// CompactionRules that fit the part beneath; `choice` picks among them.
fn fitting_rules(deeper: &[Entry], snapshots: Vec<u64>, choice: u8) -> CompactionRules {
    let files = deeper
        .chunk_by(|a, b| a.key == b.key)
        .map(|group| (group[0].key.clone(), group[0].key.clone()))
        .collect();
    let (bottommost, deeper) = match choice % 4 {
        0 => (false, DeeperLevels::Unknown),
        1 => (false, DeeperLevels::Files(vec![files])),
        2 if deeper.is_empty() => (false, DeeperLevels::Nothing),
        _ if deeper.is_empty() => (true, DeeperLevels::Nothing),
        _ => (false, DeeperLevels::Files(vec![vec![], files])),
    };
    CompactionRules {
        snapshots,
        bottommost,
        deeper,
        enforce_single_del_contracts: true,
        tombstones: Default::default(),
        merging: None,
        filter: None,
        ..CompactionRules::default()
    }
}

fn check_reads(
    before: &[&[Entry]],
    after: &[&[Entry]],
    snapshots: &[u64],
) -> Result<(), TestCaseError> {
    for key in KEYS {
        for &snapshot in snapshots.iter().chain(&[MAX_SEQUENCE]) {
            prop_assert_eq!(
                read(before, key, snapshot),
                read(after, key, snapshot),
                "key {:?} at {}",
                key,
                snapshot
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(15_000))]

    #[test]
    fn no_snapshot_reads_anything_else(
        lives in lives(),
        first in proptest::collection::btree_set(0u64..22, 0..5),
        kept in any::<u32>(),
        second in proptest::collection::btree_set(0u64..22, 0..3),
        choices in any::<(u8, u8)>(),
    ) {
        let Lives { deeper, input, later } = &lives;
        let first: Vec<_> = first.into_iter().collect();
        let rules = fitting_rules(deeper, first.clone(), choices.0);
        let (out, _) = run(input, &rules)?;
        check_reads(&[deeper, input], &[deeper, &out], &first)?;
        check_reads(&[deeper, input, later], &[deeper, &out, later], &first)?;

        // Later some snapshots are gone, others are new, and newer writes meet the surviving entries.
        let newest = input.iter().map(Entry::seq).max().unwrap_or(0);
        let mut snapshots: Vec<_> = first
            .iter()
            .copied()
            .filter(|&snapshot| kept >> snapshot & 1 == 1)
            .chain(second.into_iter().filter(|&snapshot| snapshot >= newest))
            .collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let rules = fitting_rules(deeper, snapshots.clone(), choices.1);
        let mut input_again = [out.as_slice(), later].concat();
        input_again.sort_by_key(Entry::order);
        let (again, _) = run(&input_again, &rules)?;
        check_reads(&[deeper, input, later], &[deeper, &again], &snapshots)?;
    }
}
