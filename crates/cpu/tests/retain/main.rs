//! The stage `retain` against RocksDB's rules: their closed form, their sequential form, and their promises to readers.

use rockmill_testkit::cases as common;
mod forms;
mod histories;
mod readers;

use std::sync::Arc;

use common::{DELETE, Entry, PUT, SINGLE_DELETE, VecSink, VecSource, config, hash_sum};
use forms::{closed_form, sequential};
use histories::{histories, in_some_order};
use proptest::prelude::*;
use rockmill_core::{
    CompactionFilter, CompactionRules, CreateFilter, Decision, DeclineReason, DeeperLevels, Error,
    ErrorKind, FilteredKind, JobFilter, Merging,
};
use rockmill_cpu::retain::{RetainTotals, retain};
use rockmill_format::key::{MAX_SEQUENCE, ValueType};

fn run(entries: &[Entry], rules: &CompactionRules) -> Result<(Vec<Entry>, RetainTotals), Error> {
    let mut sink = VecSink::default();
    let totals = retain(rules, &mut VecSource::new(entries), &mut sink)?;
    Ok((sink.0, totals))
}

proptest! {
    #![proptest_config(config(15_000))]

    #[test]
    fn puts_and_deletes_follow_the_closed_form(
        (entries, rules) in in_some_order(histories(vec![PUT, DELETE])),
    ) {
        let (out, _) = run(&entries, &rules)?;
        prop_assert_eq!(out, closed_form(&entries, &rules));
    }

    #[test]
    fn single_deletes_follow_the_sequential_rules(
        (entries, rules) in
            in_some_order(histories(vec![PUT, PUT, DELETE, SINGLE_DELETE, SINGLE_DELETE])),
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
            above: 0,
            kept: out.len() as u64,
            dropped: (entries.len() - out.len()) as u64,
            hash_kept: kept,
            hash_dropped: hash_sum(&entries).wrapping_sub(kept),
            ..RetainTotals::default()
        });
    }

    #[test]
    fn survivors_are_strictly_ordered_and_zeroed_once(
        (entries, mut rules) in in_some_order(histories(vec![PUT, PUT, DELETE, SINGLE_DELETE])),
    ) {
        rules.enforce_single_del_contracts = false;
        let (out, totals) = run(&entries, &rules)?;
        for pair in out.windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(|entry| (&entry.key[..], entry.tag));
            prop_assert!(rules.order.compare_entries(before, after).is_lt(), "{pair:?}");
            prop_assert!(pair[0].key != pair[1].key || pair[0].seq() > pair[1].seq(), "{pair:?}");
        }
        prop_assert_eq!(entries.len() as u64, totals.kept + totals.dropped);
        prop_assert!(totals.replaced + totals.tombstones_dropped <= totals.dropped);
        prop_assert_eq!(
            totals.hash_kept.wrapping_add(totals.hash_dropped),
            hash_sum(&entries)
        );
    }
}

fn put(seq: u64) -> Entry {
    Entry::new(b"k", seq, PUT, b"v")
}

fn single_delete(seq: u64) -> Entry {
    Entry::new(b"k", seq, SINGLE_DELETE, b"")
}

fn bottom(snapshots: &[u64]) -> CompactionRules {
    CompactionRules {
        snapshots: snapshots.to_vec(),
        bottommost: true,
        deeper: DeeperLevels::Nothing,
        enforce_single_del_contracts: true,
        tombstones: Default::default(),
        merging: None,
        filter: None,
        ..CompactionRules::default()
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
fn a_snapshot_with_number_0_still_sees_what_was_ingested_into_a_new_database() {
    let merge = |seq| Entry::new(b"k", seq, ValueType::Merge as u8, b"m");
    let rules = CompactionRules {
        merging: Some(Merging::Append {
            delimiter: b",".to_vec(),
            partial: true,
        }),
        ..bottom(&[0])
    };
    let delete = Entry::new(b"k", 1, DELETE, b"");
    for newer in [delete, single_delete(1), merge(1)] {
        let entries = [newer, put(0)];
        let (out, _) = run(&entries, &rules).expect("runs");
        assert_eq!(out, entries);
    }
}

#[test]
fn rocksdb_does_not_count_a_delete_at_the_bottom_that_some_snapshot_does_not_see() {
    let delete = |seq| Entry::new(b"k", seq, DELETE, b"");
    for (snapshots, counted) in [(&[][..], 1), (&[9], 1), (&[8], 0), (&[5], 0)] {
        let (out, totals) = run(&[delete(9), put(7)], &bottom(snapshots)).expect("runs");
        let below = out.first().map(|entry| entry.kind());
        match snapshots {
            // The snapshot still sees the Put.
            [8] => assert_eq!((out.len(), below), (2, Some(DELETE))),
            _ => assert_eq!(out, []),
        }
        let found = (totals.tombstones_dropped, totals.replaced);
        assert_eq!(found, (counted, counted), "{snapshots:?}");
    }
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

#[test]
fn operands_without_bytes_take_memory_as_well() {
    let rules = |delimiter: &[u8]| CompactionRules {
        merging: Some(Merging::Append {
            delimiter: delimiter.to_vec(),
            partial: true,
        }),
        ..bottom(&[])
    };
    let operands = |number: u64| -> Vec<_> {
        let sequences = (1..=number).rev();
        sequences
            .map(|seq| Entry::new(b"k", seq, ValueType::Merge as u8, b""))
            .collect()
    };
    let declined = ErrorKind::Declined(DeclineReason::MemoryBudget);
    let kind = |all: &[Entry], delimiter: &[u8]| run(all, &rules(delimiter)).map_err(|e| e.kind);
    assert!(kind(&operands(1_000), b"").is_ok());
    assert_eq!(kind(&operands(200_000), b""), Err(declined));
    assert_eq!(kind(&operands(1_000), &[b','; 10_000]), Err(declined));
}

#[test]
fn a_timed_put_becomes_a_put_with_the_sequence_number_behind_its_value() {
    let timed = |seq, preferred: u64| {
        let value = [&b"v"[..], &preferred.to_le_bytes()].concat();
        Entry::new(b"k", seq, ValueType::ValuePreferredSeqno as u8, &value)
    };
    let rules = CompactionRules {
        bottommost: false,
        ..bottom(&[])
    };
    for (own, preferred, expected) in [(9, 4, 4), (9, 12, 12), (0, 4, 0)] {
        let (out, _) = run(&[timed(own, preferred)], &rules).expect("runs");
        assert_eq!(out, [put(expected)], "{own} {preferred}");
    }
    let failed = run(&[timed(9, MAX_SEQUENCE + 1)], &rules);
    assert_eq!(failed.map_err(|e| e.kind), Err(ErrorKind::Corruption));
}

/// Decides by the bytes of an entry.
#[derive(Debug, Clone)]
struct ByBytes;

impl CreateFilter for ByBytes {
    fn create(&self) -> Result<Option<Box<dyn CompactionFilter>>, Error> {
        Ok(Some(Box::new(self.clone())))
    }
}

impl CompactionFilter for ByBytes {
    fn filter(&mut self, key: &[u8], _: FilteredKind, value: &[u8]) -> Result<Decision, Error> {
        let bytes = key.iter().chain(value);
        let sum: u32 = bytes.map(|&byte| u32::from(byte)).sum();
        Ok(match sum % 5 {
            0 => Decision::Remove,
            1 => Decision::ChangeValue(b"changed".to_vec()),
            2 => Decision::SkipUntil([key, b"x"].concat()),
            3 => Decision::SkipUntil(Vec::new()),
            _ => Decision::Keep,
        })
    }
}

fn filtering(rules: CompactionRules) -> CompactionRules {
    CompactionRules {
        filter: Some(JobFilter::new(Arc::new(ByBytes))),
        ..rules
    }
}

proptest! {
    #![proptest_config(config(5_000))]

    #[test]
    fn every_entry_that_a_filter_sees_is_kept_or_dropped(
        (entries, rules) in in_some_order(histories(vec![PUT, PUT, DELETE])),
    ) {
        let (out, totals) = run(&entries, &filtering(rules))?;
        let accounted = totals.hash_kept.wrapping_add(totals.hash_dropped);
        prop_assert_eq!(accounted.wrapping_add(totals.hash_consumed), hash_sum(&entries));
        let taken = totals.kept + totals.dropped + totals.consumed;
        prop_assert_eq!((taken, totals.kept + totals.made), (entries.len() as u64, out.len() as u64));
    }
}

#[test]
fn a_filter_sees_the_newest_entry_of_each_key() {
    // The sums of bytes modulo 5 are 1, 2 and 3.
    let entry =
        |key: &str, seq, value: &str| Entry::new(key.as_bytes(), seq, PUT, value.as_bytes());
    let entries = [
        entry("a", 9, "c"),
        entry("a", 3, "old"),
        entry("b", 9, "c"),
        entry("b", 3, "old"),
        entry("bw", 1, "skipped"),
        entry("c", 9, "c"),
    ];
    let rules = filtering(bottom(&[5]));
    let decisions: Vec<_> = [0, 2, 5]
        .map(|at| ByBytes.filter(&entries[at].key, FilteredKind::Value, &entries[at].value))
        .into();
    assert_eq!(decisions[0], Ok(Decision::ChangeValue(b"changed".to_vec())));
    assert_eq!(decisions[1], Ok(Decision::SkipUntil(b"bx".to_vec())));
    assert_eq!(decisions[2], Ok(Decision::SkipUntil(Vec::new())));
    let (out, _) = run(&entries, &rules).expect("runs");
    let expected = [
        entry("a", 9, "changed"),
        entry("a", 0, "old"),
        entry("c", 9, "c"),
    ];
    assert_eq!(out, expected);
    // A second filter would see them again.
    let declined = ErrorKind::Declined(DeclineReason::PluginFailed);
    assert_eq!(run(&entries, &rules).map_err(|e| e.kind), Err(declined));
}

#[test]
fn before_7_10_a_filter_does_not_see_the_value_beneath_operands_that_stay() {
    let merge = Entry::new(b"a", 9, ValueType::Merge as u8, b"a");
    let value = |seq, value: &str| Entry::new(b"a", seq, PUT, value.as_bytes());
    for (filters_beneath_operands, expected) in [(true, "changed"), (false, "c")] {
        let rules = CompactionRules {
            merging: Some(Merging::Append {
                delimiter: b",".to_vec(),
                partial: true,
            }),
            filters_beneath_operands,
            ..filtering(bottom(&[5]))
        };
        let (out, _) = run(&[merge.clone(), value(3, "c")], &rules).expect("runs");
        assert_eq!(out, [merge.clone(), value(0, expected)]);
    }
}
