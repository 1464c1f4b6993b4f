//! Range tombstones of the inputs for the compaction.

use std::collections::BTreeSet;

use rockmill_core::{DeclineReason, Error, Fragments, InputFile, InputTable, Job, Result};
use rockmill_format::key::{KeyOrder, MAX_SEQUENCE};
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::table::names;
use rockmill_snapshot::Findings;
use rockmill_snapshot::tree::{shared_keys, user_key};

/// Splits the inputs' range tombstones, which have been read, into fragments under `snapshots`.
///
/// # Errors
/// Declined if a border of a file with tombstones lies within a user key, if RocksDB counts such a job differently, or
/// if the fragments take more than `most_bytes`.
pub fn fragments(
    job: &Job,
    order: KeyOrder,
    tables: &[InputTable],
    snapshots: &[u64],
    level_style: bool,
    most_bytes: u64,
) -> Result<Fragments> {
    let inputs = &job.tree.inputs;
    let mut all = Vec::new();
    let shared = sharing_keys(inputs, order);
    for (at, (input, table)) in inputs.iter().zip(tables).enumerate() {
        let Some(own) = table.range_tombstones(MAX_SEQUENCE) else {
            if table.meta.metaindex.contains_key(names::RANGE_DELETIONS) {
                return Err(Error::internal("range tombstones were not read"));
            }
            continue;
        };
        let before = all.len();
        for tombstone in own {
            let clipped = clip(input, order, tombstone)?;
            let sequence = table.global_sequence().unwrap_or(tombstone.sequence);
            all.push(RangeTombstone {
                sequence,
                ..clipped
            });
        }
        if all.len() > before {
            if shared.contains(&at) {
                return Err(declined(input, SHARED_KEY));
            }
            if !level_style && !job.info.is_manual_compaction {
                check_alone(input, order, table, inputs, snapshots)?;
            }
        }
    }
    Fragments::at_most(order, &all, snapshots, most_bytes).ok_or_else(|| {
        let what = format!("fragments of range tombstones take more than {most_bytes} bytes");
        Error::declined(DeclineReason::MemoryBudget, what)
    })
}

const SHARED_KEY: &str =
    "the versions of a key lie in two files, one of which has range tombstones";

/// Requires that jobs can read the range tombstones of a file.
///
/// # Errors
/// Those of [`fragments`].
pub fn check_file(input: &InputFile, order: KeyOrder, own: &[RangeTombstone]) -> Result<()> {
    own.iter()
        .try_for_each(|tombstone| clip(input, order, tombstone).map(drop))
}

/// Notes files with range tombstones that share a key with a neighbour. `have` says which files have some.
pub fn check_neighbours(
    inputs: &[InputFile],
    order: KeyOrder,
    have: &[bool],
    found: &mut Findings,
) {
    let shared = sharing_keys(inputs, order).into_iter();
    for at in shared.filter(|&at| have.get(at) == Some(&true)) {
        found.note(Err(declined(&inputs[at], SHARED_KEY)));
    }
}

fn declined(input: &InputFile, what: &str) -> Error {
    Error::declined(DeclineReason::RangeTombstones, what).in_file(&input.name)
}

/// Clips a tombstone to the keys between the file's bounds.
fn clip<'a>(
    input: &'a InputFile,
    order: KeyOrder,
    tombstone: &'a RangeTombstone,
) -> Result<RangeTombstone<&'a [u8]>> {
    match tombstone.within_file(order, &input.smallest, &input.largest) {
        (within, false) => Ok(within),
        (_, true) => Err(declined(
            input,
            "a range tombstone is cut off within the versions of a key",
        )),
    }
}

/// Positions of the files that share a user key with a neighbour in their level.
fn sharing_keys(inputs: &[InputFile], order: KeyOrder) -> BTreeSet<usize> {
    let files = inputs.iter();
    let files: Vec<_> = files
        .map(|file| (file.level, &file.smallest[..], &file.largest[..]))
        .collect();
    let shared = shared_keys(&files, order).into_iter();
    shared.flat_map(|(_, both)| both).collect()
}

/// Declines a universal compaction that RocksDB picked itself, if an input is a single range tombstone and covers other
/// inputs. RocksDB does not count the entries of these (`compaction.cc:FilterInputsForCompactionIterator`).
fn check_alone(
    input: &InputFile,
    order: KeyOrder,
    table: &InputTable,
    inputs: &[InputFile],
    snapshots: &[u64],
) -> Result<()> {
    let properties = &table.meta.properties;
    let is_alone = properties.num_range_deletions == 1 && properties.num_entries == 1;
    let sequence = input.largest_seqno.unwrap_or(MAX_SEQUENCE);
    let is_seen = snapshots
        .first()
        .is_none_or(|&earliest| sequence <= earliest);
    let covers = |file: &InputFile| {
        file.level > input.level
            && file.largest_seqno.is_none_or(|largest| largest < sequence)
            && !order.is_before(user_key(&file.smallest), user_key(&input.smallest))
            && order.is_before(user_key(&file.largest), user_key(&input.largest))
    };
    match is_alone && is_seen && inputs.iter().any(covers) {
        true => Err(declined(
            input,
            "the file is a single range tombstone, for which RocksDB leaves out files of a universal compaction",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rockmill_format::key::{join, pack_tag};
    use rockmill_format::range_tombstone::END_TAG;

    use super::*;

    const ORDERS: [KeyOrder; 2] = [KeyOrder::Bytewise, KeyOrder::ReverseBytewise];

    /// A file of level 1 with the keys between these, which are swapped in reverse order.
    fn file(order: KeyOrder, first: &[u8], (last, tag): (&[u8], u64)) -> InputFile {
        assert!(order.is_before(first, last));
        InputFile {
            name: format!("{}.sst", first.escape_ascii()),
            size: 0,
            level: 1,
            smallest: join(first, pack_tag(9, 1)),
            largest: join(last, tag),
            epoch_number: 0,
            oldest_ancester_time: 0,
            unique_id: None,
            largest_seqno: None,
        }
    }

    fn tombstone(begin: &[u8], end: &[u8]) -> RangeTombstone {
        RangeTombstone {
            begin: begin.to_vec(),
            end: end.to_vec(),
            sequence: 9,
        }
    }

    #[test]
    fn tombstones_are_cut_off_where_their_file_ends_in_the_order_of_keys() {
        for order in ORDERS {
            let mut keys: [&[u8]; 4] = [b"a", b"c", b"e", b"g"];
            keys.sort_by(|a, b| order.compare(a, b));
            let [first, begin, last, behind] = keys;
            let own = [tombstone(begin, behind)];
            let whole = file(order, first, (last, END_TAG));
            assert!(check_file(&whole, order, &own).is_ok());
            let clipped = clip(&whole, order, &own[0]).expect("it ends before a key");
            assert_eq!((clipped.begin, clipped.end), (begin, last));
            // Other versions of the last key may be in the next file.
            let cut = file(order, first, (last, pack_tag(4, 1)));
            let error = check_file(&cut, order, &own).expect_err("within a key");
            assert!(error.what.contains("within the versions"), "{error:?}");
            assert!(check_file(&cut, order, &[tombstone(begin, last)]).is_ok());
            let (early, own) = (file(order, begin, (last, END_TAG)), tombstone(first, last));
            let clipped = clip(&early, order, &own).expect("inside");
            assert_eq!((clipped.begin, clipped.end), (begin, last));
        }
    }

    #[test]
    fn neighbours_that_share_a_key_are_noted_if_they_have_tombstones() {
        for order in ORDERS {
            let mut keys: [&[u8]; 3] = [b"a", b"c", b"e"];
            keys.sort_by(|a, b| order.compare(a, b));
            let [first, shared, last] = keys;
            let inputs = [
                file(order, shared, (last, pack_tag(1, 1))),
                file(order, first, (shared, pack_tag(4, 1))),
            ];
            for have in [[true, false], [false, true], [true, true], [false, false]] {
                let mut found = Findings::default();
                check_neighbours(&inputs, order, &have, &mut found);
                let noted = have.iter().filter(|has| **has).count();
                assert_eq!(found.into_vec().len(), noted, "{have:?}");
            }
        }
    }
}
