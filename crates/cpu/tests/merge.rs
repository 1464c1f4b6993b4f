//! `Merge` is a sort, and tasks are parts of the whole.

use rockmill_testkit::cases as common;

use common::{Entry, config, entry_of, hash_sum, kinds, open, plan};
use proptest::prelude::*;
use rockmill_core::{CancelToken, ErrorKind, InputTable, KeyRange, Plan, Result};
use rockmill_cpu::decode::{Accepted, RunReader, RunTotals};
use rockmill_cpu::merge::Merge;

const MAX_RUNS: usize = 20;

/// Keys that agree in their first 16 bytes, differ by trailing zeros, or differ early.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop::sample::select(vec![0u8, 1, 0xff]);
    prop_oneof![
        3 => proptest::collection::vec(byte(), 0..5),
        2 => (12usize..18, proptest::collection::vec(byte(), 0..3)).prop_map(|(len, suffix)| {
            let mut key = vec![9; len];
            key.extend(suffix);
            key
        }),
    ]
}

/// Up to 20 sorted runs of at least one entry, whose keys may all begin alike. An internal key may occur in several
/// runs, as only in damaged trees, but not twice in one.
fn runs() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let entry = (keys(), 0u64..30, kinds(), 0usize..60);
    let run = proptest::collection::vec(entry, 1..25);
    let runs = proptest::collection::vec(run, 1..=MAX_RUNS);
    let common = prop_oneof![3 => Just(0usize), 2 => 1usize..40];
    (common, runs).prop_map(|(common, runs)| {
        let common = vec![5; common];
        let mut out = Vec::new();
        for (at, run) in runs.into_iter().enumerate() {
            let mut entries: Vec<_> = run
                .into_iter()
                .map(|(key, seq, kind, len)| {
                    let key = [&common[..], &key].concat();
                    Entry::new(&key, seq, kind, &vec![at as u8; len])
                })
                .collect();
            entries.sort_by_key(Entry::order);
            entries.dedup_by_key(|entry| entry.order());
            out.push(entries);
        }
        out
    })
}

fn tables(runs: &[Vec<Entry>], block_size: u64) -> Vec<InputTable> {
    let mut plan: Plan = plan();
    plan.output.table.block_size = block_size;
    let bytes = runs.iter().map(|run| common::one_file(&plan, run));
    bytes
        .map(|bytes| open(bytes).expect("a file just written opens"))
        .collect()
}

fn merge(tables: &[InputTable], range: &KeyRange) -> Result<(Vec<Entry>, Vec<RunTotals>)> {
    const READ_AHEAD: usize = 100;
    let cancel = CancelToken::new();
    let runs = tables
        .iter()
        .map(|table| RunReader::open(table, range, Accepted::Compacted, READ_AHEAD, &cancel))
        .collect::<Result<_>>()?;
    let mut merge = Merge::new(runs);
    let mut out = Vec::new();
    while let Some(head) = merge.head() {
        out.push(entry_of(&head));
        merge.advance()?;
    }
    let totals = merge.runs().iter().map(RunReader::totals).collect();
    Ok((out, totals))
}

/// All entries in one order; equal internal keys by the runs' order.
fn sorted(runs: &[Vec<Entry>]) -> Vec<Entry> {
    let mut all = runs.concat();
    all.sort_by_key(Entry::order);
    all
}

/// Adjacent ranges that cover everything, split at `bounds`.
fn ranges(bounds: &std::collections::BTreeSet<Vec<u8>>) -> Vec<KeyRange> {
    let mut begins: Vec<_> = bounds.iter().cloned().map(Some).collect();
    let ends: Vec<_> = begins.iter().cloned().chain([None]).collect();
    begins.insert(0, None);
    begins
        .into_iter()
        .zip(ends)
        .map(|(begin, end)| KeyRange { begin, end })
        .collect()
}

/// Long keys whose common beginning gets shorter, longer and shorter again while thousands are merged, and short ones.
#[test]
fn what_keys_begin_with_may_change() {
    let keys = |run: u64| {
        let of = move |table: &'static str, i: u64| {
            let key = format!("warehouse/{table}/{:012}", 7 * i + run);
            Entry::new(key.as_bytes(), i % 5, common::PUT, b"value")
        };
        let short = [Entry::new(b"ware", run, common::PUT, b"short")];
        let first = (0..900 + run).map(move |i| of("customers", i));
        let second = (0..2500 - 100 * run).map(move |i| of("orders", i));
        short.into_iter().chain(first).chain(second)
    };
    let runs: Vec<Vec<Entry>> = (0..7).map(|run| keys(run).collect()).collect();
    let (out, _) = merge(&tables(&runs, 4096), &KeyRange::default()).expect("all is sound");
    assert_eq!(out, sorted(&runs));
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn merging_is_sorting(runs in runs(), block_size in prop::sample::select(vec![1u64, 100, 4096])) {
        let (out, totals) = merge(&tables(&runs, block_size), &KeyRange::default())?;
        prop_assert_eq!(out, sorted(&runs));
        for (run, totals) in runs.iter().zip(&totals) {
            prop_assert_eq!(totals.entries, run.len() as u64);
            prop_assert_eq!(totals.hash, hash_sum(run));
            let count = |selected: fn(&Entry) -> u64| run.iter().map(selected).sum::<u64>();
            prop_assert_eq!(totals.tombstones, count(|e| u64::from(e.kind() != common::PUT)));
            prop_assert_eq!(totals.key_bytes, count(|e| e.key.len() as u64 + 8));
            prop_assert_eq!(totals.value_bytes, count(|e| e.value.len() as u64));
        }
    }

    #[test]
    fn tasks_make_up_the_whole(
        runs in runs(),
        block_size in prop::sample::select(vec![1u64, 100, 4096]),
        bounds in proptest::collection::btree_set(keys(), 0..6),
    ) {
        let tables = tables(&runs, block_size);
        let (mut out, mut counts, mut hash) = (Vec::new(), vec![0; runs.len()], 0u64);
        for range in ranges(&bounds) {
            let (task, totals) = merge(&tables, &range)?;
            prop_assert!(task.iter().all(|entry| range.contains(&entry.key)));
            prop_assert_eq!(
                totals.iter().fold(0, |sum: u64, run| sum.wrapping_add(run.hash)),
                hash_sum(&task)
            );
            for (count, run) in counts.iter_mut().zip(&totals) {
                *count += run.entries;
                hash = hash.wrapping_add(run.hash);
            }
            out.extend(task);
        }
        prop_assert_eq!(out, sorted(&runs));
        prop_assert_eq!(hash, hash_sum(runs.iter().flatten()));
        prop_assert!(counts.into_iter().eq(runs.iter().map(|run| run.len() as u64)));
    }

    #[test]
    fn a_range_reads_its_own_entries(
        run in common::entries(40),
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
        block_size in prop::sample::select(vec![1u64, 300]),
        read_ahead in prop::sample::select(vec![0usize, 1, 5000, usize::MAX / 4]),
    ) {
        let [begin, end] = bounds.map(|at| at.map(|at| run[at.index(run.len())].key.clone()));
        let range = KeyRange { begin, end };
        let table = tables(std::slice::from_ref(&run), block_size).remove(0);
        let (found, totals) = common::read(&table, &range, read_ahead)?;
        let expected: Vec<_> = run.into_iter().filter(|e| range.contains(&e.key)).collect();
        prop_assert_eq!(totals.entries, expected.len() as u64);
        prop_assert_eq!(totals.hash, hash_sum(&expected));
        prop_assert_eq!(found, expected);
        let blocks = table.blocks_in_range(&range);
        let stored: u64 = table.meta.index[blocks]
            .iter()
            .map(|entry| entry.handle.size + 5)
            .sum();
        prop_assert!(totals.bytes_read <= stored, "blocks outside the range are read");
    }
}

#[test]
fn no_runs_merge_to_nothing() {
    assert!(Merge::new(Vec::new()).head().is_none());
}

#[test]
fn a_cancelled_run_stops_at_the_next_block() {
    let run: Vec<_> = (0..100u8)
        .map(|i| Entry::new(&[i], 1, common::PUT, b"value"))
        .collect();
    let table = tables(&[run], 1).remove(0);
    let (range, cancel) = (KeyRange::default(), CancelToken::new());
    let mut run = RunReader::open(&table, &range, Accepted::Compacted, 10, &cancel).expect("opens");
    cancel.cancel();
    let error = run.advance().expect_err("cancelled");
    assert_eq!(error.kind, ErrorKind::Cancelled);
}
