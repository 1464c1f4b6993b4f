//! The stage `retain` against RocksDB's rules: their closed form, their sequential form, and what
//! they promise to readers.

mod common;

use common::{DELETE, Entry, PUT, SINGLE_DELETE, VecSink, VecSource, config, hash_sum};
use proptest::prelude::*;
use rockmill_core::{DeclineReason, Error, ErrorKind, RangesBeneath, Rules};
use rockmill_cpu::retain::{RetainTotals, retain};
use rockmill_format::key::{MAX_SEQUENCE, pack_tag};

fn run(entries: &[Entry], rules: &Rules) -> Result<(Vec<Entry>, RetainTotals), Error> {
    let mut sink = VecSink::default();
    let totals = retain(rules, &mut VecSource::new(entries), &mut sink)?;
    Ok((sink.0, totals))
}

/// The oldest snapshot at or above `seq`.
fn vis(rules: &Rules, seq: u64) -> u64 {
    let seeing = rules.snapshots.iter().filter(|&&s| s >= seq).min();
    seeing.copied().unwrap_or(MAX_SEQUENCE)
}

/// The newest snapshot below `seq`, or 0.
fn below(rules: &Rules, seq: u64) -> u64 {
    let unseeing = rules.snapshots.iter().filter(|&&s| s < seq).max();
    unseeing.copied().unwrap_or(0)
}

fn earliest(rules: &Rules) -> u64 {
    rules
        .snapshots
        .iter()
        .min()
        .copied()
        .unwrap_or(MAX_SEQUENCE)
}

fn absent(rules: &Rules, key: &[u8]) -> bool {
    match &rules.beneath {
        RangesBeneath::Nothing => true,
        RangesBeneath::Unknown => false,
        RangesBeneath::Files(levels) => !levels
            .iter()
            .flatten()
            .any(|(from, to)| from.as_slice() <= key && key <= to.as_slice()),
    }
}

/// Whether an emitted entry gets sequence number 0.
fn zeroes(rules: &Rules, seq: u64) -> bool {
    rules.bottommost && seq <= earliest(rules) && seq < MAX_SEQUENCE
}

/// The closed form for keys without SingleDelete.
fn closed_form(entries: &[Entry], rules: &Rules) -> Vec<Entry> {
    let mut out = Vec::new();
    for group in entries.chunk_by(|a, b| a.key == b.key) {
        let stripes: Vec<_> = group
            .chunk_by(|a, b| vis(rules, a.seq()) == vis(rules, b.seq()))
            .collect();
        for (i, stripe) in stripes.iter().enumerate() {
            let newest = &stripe[0];
            let oldest_stripe = i + 1 == stripes.len();
            let unneeded = newest.seq() <= earliest(rules) && absent(rules, &newest.key);
            if newest.kind() == DELETE && (unneeded || rules.bottommost && oldest_stripe) {
                continue;
            }
            let seq = if newest.kind() == PUT && zeroes(rules, newest.seq()) {
                0
            } else {
                newest.seq()
            };
            out.push(Entry::new(&newest.key, seq, newest.kind(), &newest.value));
        }
    }
    out
}

/// What the sequential form gives.
#[derive(Debug, Default, PartialEq)]
struct Sequential {
    out: Vec<Entry>,
    /// Positions in the input of the entries in `out`.
    kept: Vec<usize>,
    replaced: u64,
    tombstones_dropped: u64,
}

/// The sequential rules with the oldest snapshot as the write-conflict snapshot. `None` if a
/// SingleDelete meets a Delete and that is an error.
fn sequential(entries: &[Entry], rules: &Rules) -> Option<Sequential> {
    let mut result = Sequential::default();
    let (mut prev_vis, mut emitted, mut zeroed, mut clear_next) = (None, false, false, false);
    let mut i = 0;
    let emit =
        |i: usize, empty: bool, emitted: &mut bool, zeroed: &mut bool, r: &mut Sequential| {
            let mut entry = entries[i].clone();
            if empty {
                entry = Entry::new(&entry.key, entry.seq(), PUT, b"");
            }
            if zeroes(rules, entry.seq()) {
                entry.tag = pack_tag(0, entry.kind());
                *zeroed = true;
            }
            *emitted = true;
            r.out.push(entry);
            r.kept.push(i);
        };
    while i < entries.len() {
        let e = &entries[i];
        let s = e.seq();
        if i == 0 || entries[i - 1].key != e.key {
            (prev_vis, emitted, zeroed) = (None, false, false);
        }
        let pv = prev_vis.replace(vis(rules, s));
        let next = entries.get(i + 1).filter(|f| f.key == e.key);
        let in_stripe = |f: &Entry| below(rules, s) == 0 || f.seq() > below(rules, s);
        if clear_next {
            clear_next = false;
            emit(i, true, &mut emitted, &mut zeroed, &mut result);
            i += 1;
        } else if e.kind() == SINGLE_DELETE {
            let Some(f) = next else {
                if s <= earliest(rules) && absent(rules, &e.key) || zeroed {
                    result.tombstones_dropped += 1;
                } else {
                    emit(i, false, &mut emitted, &mut zeroed, &mut result);
                }
                i += 1;
                continue;
            };
            if zeroed {
                result.tombstones_dropped += 1;
                result.replaced += 1;
                i += 2;
            } else if !in_stripe(f) {
                emit(i, false, &mut emitted, &mut zeroed, &mut result);
                i += 1;
            } else if f.kind() == SINGLE_DELETE || f.kind() == DELETE {
                if f.kind() == DELETE && rules.enforce_single_del_contracts {
                    return None;
                }
                result.tombstones_dropped += 1;
                i += 1;
            } else if emitted || s <= earliest(rules) {
                result.tombstones_dropped += 1;
                result.replaced += 1;
                i += 2;
            } else {
                emit(i, false, &mut emitted, &mut zeroed, &mut result);
                clear_next = true;
                i += 1;
            }
        } else if pv.is_some_and(|pv| pv <= vis(rules, s)) {
            result.replaced += 1;
            i += 1;
        } else if e.kind() == DELETE && s <= earliest(rules) && absent(rules, &e.key) {
            result.tombstones_dropped += 1;
            i += 1;
        } else if e.kind() == DELETE && rules.bottommost {
            let rest = &entries[i + 1..];
            let skipped = rest
                .iter()
                .take_while(|f| f.key == e.key && in_stripe(f))
                .count();
            if rest.get(skipped).is_some_and(|f| f.key == e.key) {
                emit(i, false, &mut emitted, &mut zeroed, &mut result);
            } else {
                result.tombstones_dropped += 1;
            }
            i += 1 + skipped;
        } else {
            emit(i, false, &mut emitted, &mut zeroed, &mut result);
            i += 1;
        }
    }
    Some(result)
}

const KEYS: [&[u8]; 4] = [b"", b"a", b"a\0", b"b"];

/// Sequence numbers are small so that snapshots fall between, on and around them.
fn seqs() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 0u64..12, 1 => Just(MAX_SEQUENCE), 1 => Just(MAX_SEQUENCE - 1)]
}

fn histories(kinds: Vec<u8>) -> impl Strategy<Value = Vec<Entry>> {
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
fn files_beneath() -> impl Strategy<Value = RangesBeneath> {
    let level = (any::<[bool; 4]>(), any::<bool>()).prop_map(|(present, one_file)| {
        let keys: Vec<_> = (0..KEYS.len()).filter(|&i| present[i]).collect();
        let file = |from: usize, to: usize| (KEYS[from].to_vec(), KEYS[to].to_vec());
        match (keys.first(), keys.last()) {
            (Some(&first), Some(&last)) if one_file => vec![file(first, last)],
            _ => keys.iter().map(|&key| file(key, key)).collect(),
        }
    });
    proptest::collection::vec(level, 0..3).prop_map(RangesBeneath::Files)
}

fn rules() -> impl Strategy<Value = Rules> {
    let place = prop_oneof![
        3 => Just((true, RangesBeneath::Nothing)),
        1 => Just((true, RangesBeneath::Files(vec![Vec::new()]))),
        1 => Just((false, RangesBeneath::Nothing)),
        1 => Just((false, RangesBeneath::Unknown)),
        2 => files_beneath().prop_map(|files| (false, files)),
    ];
    (snapshots(), place, any::<bool>()).prop_map(|(snapshots, place, enforce)| Rules {
        snapshots,
        bottommost: place.0,
        beneath: place.1,
        enforce_single_del_contracts: enforce,
    })
}

proptest! {
    #![proptest_config(config(15_000))]

    #[test]
    fn puts_and_deletes_follow_the_closed_form(
        entries in histories(vec![PUT, DELETE]),
        mut rules in rules(),
    ) {
        // Where a snapshot of the empty database meets an entry with sequence number 0, RocksDB
        // takes the two for one stripe; that cannot come about.
        if entries.iter().any(|entry| entry.seq() == 0) {
            rules.snapshots.retain(|&snapshot| snapshot != 0);
        }
        let (out, _) = run(&entries, &rules)?;
        prop_assert_eq!(out, closed_form(&entries, &rules));
    }

    #[test]
    fn single_deletes_follow_the_sequential_rules(
        entries in histories(vec![PUT, PUT, DELETE, SINGLE_DELETE, SINGLE_DELETE]),
        rules in rules(),
    ) {
        let Some(expected) = sequential(&entries, &rules) else {
            let declined = ErrorKind::Declined(DeclineReason::SingleDeleteContract);
            prop_assert_eq!(run(&entries, &rules).map_err(|e| e.kind), Err(declined));
            return Ok(());
        };
        let (out, totals) = run(&entries, &rules)?;
        prop_assert_eq!(&out, &expected.out);
        let kept = hash_sum(expected.kept.iter().map(|&i| &entries[i]));
        prop_assert_eq!(totals, RetainTotals {
            replaced: expected.replaced,
            tombstones_dropped: expected.tombstones_dropped,
            written: out.len() as u64,
            hash_kept: kept,
            hash_dropped: hash_sum(&entries).wrapping_sub(kept),
        });
    }

    #[test]
    fn survivors_are_strictly_ordered_and_zeroed_once(
        entries in histories(vec![PUT, PUT, DELETE, SINGLE_DELETE]),
        mut rules in rules(),
    ) {
        rules.enforce_single_del_contracts = false;
        let (out, totals) = run(&entries, &rules)?;
        for pair in out.windows(2) {
            prop_assert!(pair[0].order() < pair[1].order(), "{pair:?}");
            prop_assert!(pair[0].key != pair[1].key || pair[0].seq() > pair[1].seq(), "{pair:?}");
        }
        let hidden = entries.len() as u64 - totals.written;
        prop_assert!(totals.replaced + totals.tombstones_dropped <= hidden);
        prop_assert_eq!(
            totals.hash_kept.wrapping_add(totals.hash_dropped),
            hash_sum(&entries)
        );
    }
}

/// What a reader at `snapshot` finds under `key`.
fn read<'a>(layers: &[&'a [Entry]], key: &[u8], snapshot: u64) -> Option<&'a [u8]> {
    let newest = layers
        .iter()
        .copied()
        .flatten()
        .filter(|entry| entry.key == key && entry.seq() <= snapshot)
        .max_by_key(|entry| entry.tag)?;
    (newest.kind() == PUT).then_some(newest.value.as_slice())
}

/// Writes of an application that keeps the contracts: keys `a\0` and `b` are put once and then
/// single-deleted, in turns; others are put and deleted at will. Each key's history is cut into what
/// lies beneath the compaction, its input, and what is written later.
#[derive(Debug, Clone)]
struct Lives {
    beneath: Vec<Entry>,
    input: Vec<Entry>,
    later: Vec<Entry>,
}

const FIRST_SINGLE_DELETED: usize = 2;

fn lives() -> impl Strategy<Value = Lives> {
    let op = (0..KEYS.len(), any::<bool>());
    let cuts = proptest::array::uniform4((0usize..8, 0usize..8));
    (proptest::collection::vec(op, 0..20), cuts, any::<bool>()).prop_map(
        |(ops, cuts, nothing_beneath)| {
            let (mut beneath, mut input, mut later) = (vec![], vec![], vec![]);
            let mut written = [0usize; KEYS.len()];
            for (i, &(key, delete)) in ops.iter().enumerate() {
                let kind = match (key >= FIRST_SINGLE_DELETED, written[key] % 2, delete) {
                    (true, 0, _) | (false, _, false) => PUT,
                    (true, _, _) => SINGLE_DELETE,
                    (false, _, true) => DELETE,
                };
                let seq = i as u64 + 1;
                let value = if kind == PUT {
                    format!("v{seq}")
                } else {
                    String::new()
                };
                let entry = Entry::new(KEYS[key], seq, kind, value.as_bytes());
                let (start, len) = cuts[key];
                let start = if nothing_beneath { 0 } else { start };
                match written[key] {
                    at if at < start => beneath.push(entry),
                    at if at < start + len => input.push(entry),
                    _ => later.push(entry),
                }
                written[key] += 1;
            }
            for layer in [&mut beneath, &mut input, &mut later] {
                layer.sort_by_key(Entry::order);
            }
            Lives {
                beneath,
                input,
                later,
            }
        },
    )
}

/// Rules that fit what lies beneath; `choice` picks among them.
fn fitting_rules(beneath: &[Entry], snapshots: Vec<u64>, choice: u8) -> Rules {
    let files = beneath
        .chunk_by(|a, b| a.key == b.key)
        .map(|group| (group[0].key.clone(), group[0].key.clone()))
        .collect();
    let (bottommost, beneath) = match choice % 4 {
        0 => (false, RangesBeneath::Unknown),
        1 => (false, RangesBeneath::Files(vec![files])),
        2 if beneath.is_empty() => (false, RangesBeneath::Nothing),
        _ if beneath.is_empty() => (true, RangesBeneath::Nothing),
        _ => (false, RangesBeneath::Files(vec![vec![], files])),
    };
    Rules {
        snapshots,
        bottommost,
        beneath,
        enforce_single_del_contracts: true,
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
        let Lives { beneath, input, later } = &lives;
        let first: Vec<_> = first.into_iter().collect();
        let rules = fitting_rules(beneath, first.clone(), choices.0);
        let (out, _) = run(input, &rules)?;
        check_reads(&[beneath, input], &[beneath, &out], &first)?;
        check_reads(&[beneath, input, later], &[beneath, &out, later], &first)?;

        // Later some snapshots are gone, others are new, and newer writes meet the survivors.
        let newest = input.iter().map(Entry::seq).max().unwrap_or(0);
        let mut snapshots: Vec<_> = first
            .iter()
            .copied()
            .filter(|&snapshot| kept >> snapshot & 1 == 1)
            .chain(second.into_iter().filter(|&snapshot| snapshot >= newest))
            .collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let rules = fitting_rules(beneath, snapshots.clone(), choices.1);
        let mut input_again = [out.as_slice(), later].concat();
        input_again.sort_by_key(Entry::order);
        let (again, _) = run(&input_again, &rules)?;
        check_reads(&[beneath, input, later], &[beneath, &again], &snapshots)?;
    }
}

fn put(seq: u64) -> Entry {
    Entry::new(b"k", seq, PUT, b"v")
}

fn single_delete(seq: u64) -> Entry {
    Entry::new(b"k", seq, SINGLE_DELETE, b"")
}

fn bottom(snapshots: &[u64]) -> Rules {
    Rules {
        snapshots: snapshots.to_vec(),
        bottommost: true,
        beneath: RangesBeneath::Nothing,
        enforce_single_del_contracts: true,
    }
}

#[test]
fn a_pair_above_the_oldest_snapshot_stays_without_the_value() {
    let (out, _) = run(&[single_delete(9), put(8), put(2)], &bottom(&[5])).expect("runs");
    let cleared = Entry::new(b"k", 8, PUT, b"");
    assert_eq!(out, [single_delete(9), cleared, put(0)]);
}

#[test]
fn a_pair_that_no_snapshot_separates_goes() {
    let (out, totals) = run(&[single_delete(9), put(8)], &bottom(&[])).expect("runs");
    assert_eq!(out, []);
    assert_eq!((totals.tombstones_dropped, totals.replaced), (1, 1));
}

#[test]
fn errors_of_source_and_sink_come_through() {
    struct Full;
    impl rockmill_cpu::retain::Sink for Full {
        fn emit(&mut self, _: &[u8], _: u64, _: &[u8], _: u64, _: bool) -> Result<(), Error> {
            Err(Error::new(ErrorKind::Storage, "full"))
        }
    }
    let entries = [put(9)];
    let failed = retain(&bottom(&[]), &mut VecSource::new(&entries), &mut Full);
    assert_eq!(failed.map_err(|e| e.kind), Err(ErrorKind::Storage));
}
