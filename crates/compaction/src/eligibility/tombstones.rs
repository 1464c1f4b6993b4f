//! Range tombstones of the inputs for the compaction.

use std::collections::BTreeSet;

use rockmill_core::{DeclineReason, Error, Fragments, InputFile, InputTable, Job, Result};
use rockmill_format::key::{self, KeyOrder, MAX_SEQUENCE};
use rockmill_format::range_tombstone::{END_TAG, RangeTombstone};
use rockmill_format::table::names;
use rockmill_snapshot::tree::user_key;

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
                return Err(declined(
                    input,
                    "the versions of a key lie in two files, one of which has range tombstones",
                ));
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

fn declined(input: &InputFile, what: &str) -> Error {
    Error::declined(DeclineReason::RangeTombstones, what).in_file(&input.name)
}

/// Clips a tombstone to the keys between the file's bounds. A file may have tombstones that extend beyond; other files
/// then have the rest (`range_del_aggregator.cc:TruncatedRangeDelIterator`).
fn clip(input: &InputFile, order: KeyOrder, tombstone: &RangeTombstone) -> Result<RangeTombstone> {
    let begin = order.last(&tombstone.begin, user_key(&input.smallest));
    let mut end = tombstone.end.as_slice();
    if let Some((largest, tag)) = key::split(&input.largest)
        && order.is_before(largest, end)
    {
        if tag != END_TAG {
            return Err(declined(
                input,
                "a range tombstone is cut off within the versions of a key",
            ));
        }
        end = largest;
    }
    Ok(RangeTombstone {
        begin: begin.to_vec(),
        end: end.to_vec(),
        sequence: tombstone.sequence,
    })
}

/// Positions of the files of a level that share a user key with a neighbour, which also has versions of it. A tombstone
/// then covers only the versions in its own file.
fn sharing_keys(inputs: &[InputFile], order: KeyOrder) -> BTreeSet<usize> {
    let mut files: Vec<_> = (0..inputs.len())
        .filter(|&at| inputs[at].level > 0)
        .collect();
    let compare = |a: &[u8], b: &[u8]| order.compare(user_key(a), user_key(b));
    files.sort_by(|&a, &b| {
        let (a, b) = (&inputs[a], &inputs[b]);
        let by_level = a.level.cmp(&b.level);
        by_level
            .then_with(|| compare(&a.smallest, &b.smallest))
            .then_with(|| compare(&a.largest, &b.largest))
    });
    let shares = |[before, behind]: [usize; 2]| {
        let (before, behind) = (&inputs[before], &inputs[behind]);
        let largest = key::split(&before.largest);
        before.level == behind.level
            && largest.is_some_and(|(own, tag)| tag != END_TAG && own == user_key(&behind.smallest))
    };
    let pairs = files.windows(2).filter(|pair| shares([pair[0], pair[1]]));
    pairs.flatten().copied().collect()
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
