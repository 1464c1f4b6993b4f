//! A job that asks a comparator has the rows that the comparator gives, or is declined.

use rockmill_testkit::cases as common;

use std::cmp::Ordering;
use std::sync::Arc;

use common::{Entry, MemFile, PUT, config, one_file, task};
use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, CheckedOrder, CompactionFilter, Compare, CreateFilter, CustomComparator,
    Decision, DeclineReason, Error, ErrorKind, FilteredKind, InputTable, JobFilter, KeyRange,
    Operator, Plan, Result, Row, RowSink, open_table_in,
};
use rockmill_cpu::CpuBackend;
use rockmill_format::index::IndexShortening;
use rockmill_format::key::KeyOrder;

/// Number of keys that there are.
const KEYS: usize = 12;

fn key(number: usize) -> Vec<u8> {
    vec![b'a' + number as u8, b'-']
}

/// The place of each key.
#[derive(Debug, Clone)]
struct Places(Vec<usize>);

impl Places {
    /// The order of bytes or its reverse, in which some pairs of keys have changed places.
    fn new(order: KeyOrder, swaps: &[(usize, usize)]) -> Self {
        let mut places: Vec<_> = (0..KEYS).collect();
        if order == KeyOrder::ReverseBytewise {
            places.reverse();
        }
        for &(one, other) in swaps {
            places.swap(one, other);
        }
        Self(places)
    }

    fn of(&self, key: &[u8]) -> usize {
        self.0[usize::from(key[0] - b'a')]
    }

    fn has(&self, range: &KeyRange, key: &[u8]) -> bool {
        let begin = range.begin.as_deref().map_or(0, |begin| self.of(begin));
        let end = range.end.as_deref().map_or(KEYS, |end| self.of(end));
        (begin..end).contains(&self.of(key))
    }
}

impl Compare for Places {
    fn compare(&self, a: &[u8], b: &[u8]) -> Result<Ordering> {
        Ok(self.of(a).cmp(&self.of(b)))
    }
}

/// The keys of rows.
#[derive(Default)]
struct Keys(Vec<Vec<u8>>);

impl RowSink for Keys {
    fn row(&mut self, row: Row<'_>) -> Result<()> {
        self.0.push(row.user_key.to_vec());
        Ok(())
    }
}

/// Files with these keys, as far as both orders agree on them: others are declined before they are merged.
fn files(order: KeyOrder, places: &Places, runs: &[Vec<bool>]) -> Vec<Vec<Vec<u8>>> {
    let of_run = |run: &Vec<bool>| {
        let mut all: Vec<_> = (0..KEYS).filter(|&number| run[number]).map(key).collect();
        all.sort_by_key(|key| places.of(key));
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for key in all {
            if kept.last().is_none_or(|last| order.is_before(last, &key)) {
                kept.push(key);
            }
        }
        kept
    };
    let files = runs.iter().map(of_run);
    files.filter(|keys| !keys.is_empty()).collect()
}

/// The plan of a job, and its tables, whose blocks have this size.
fn opened(
    order: KeyOrder,
    checked: CheckedOrder,
    files: &[Vec<Vec<u8>>],
    block_size: u64,
) -> Result<(Plan, Vec<InputTable>)> {
    let mut plan = common::plan();
    plan.rules.order = order;
    plan.output.table.block_size = block_size;
    plan.output.table.index.order = order;
    plan.output.table.index.shortening = IndexShortening::None;
    plan.output.properties.comparator_name = Some("mine".to_owned());
    let tables = (1..).zip(files).map(|(sequence, keys)| {
        let entries = keys.iter().map(|key| Entry::new(key, sequence, PUT, b"v"));
        let file = one_file(&plan, &entries.collect::<Vec<_>>());
        let table = open_table_in(Box::new(MemFile(file)), checked.order())?;
        Ok(table.beginning_at(&keys[0]))
    });
    let tables = tables.collect::<Result<_>>()?;
    plan.rules.order = checked.order();
    plan.rules.checked_order = Some(Arc::new(checked));
    Ok((plan, tables))
}

/// The keys of the rows of a job that is divided at a border, if it lies in the job's range.
fn rows(
    plan: &Plan,
    tables: &[InputTable],
    range: &KeyRange,
    border: Option<Vec<u8>>,
) -> Result<Vec<Vec<u8>>> {
    let mut keys = Keys::default();
    let order = plan.rules.order;
    let border = border.filter(|border| {
        let begin = range.begin.as_deref().unwrap_or_default();
        range.contains_in(order, border) && *border != begin
    });
    let first = KeyRange {
        end: border.clone().or_else(|| range.end.clone()),
        ..range.clone()
    };
    let second = border.map(|border| KeyRange {
        begin: Some(border),
        ..range.clone()
    });
    for part in [first].iter().chain(&second) {
        let cancel = CancelToken::new();
        let task = task(tables, plan, part, &cancel);
        CpuBackend.run(task, Operator::Inspect { rows: &mut keys })?;
    }
    Ok(keys.0)
}

fn is_other_order(error: &Error) -> bool {
    error.kind == ErrorKind::Declined(DeclineReason::Comparator)
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn rows_are_those_of_the_comparator(
        is_reverse: bool,
        swaps in proptest::collection::vec((0..KEYS, 0..KEYS), 0..3),
        runs in proptest::collection::vec(proptest::collection::vec(any::<bool>(), KEYS), 1..4),
        [begin, end] in [(); 2].map(|()| proptest::option::of((0..KEYS).prop_map(key))),
        border: Option<prop::sample::Index>,
        block_size in prop::sample::select(vec![1u64, 40, 4096]),
    ) {
        let order = match is_reverse {
            true => KeyOrder::ReverseBytewise,
            false => KeyOrder::Bytewise,
        };
        let places = Places::new(order, &swaps);
        let range = KeyRange { begin, end };
        if let (Some(begin), Some(end)) = (&range.begin, &range.end) {
            prop_assume!(places.of(begin) < places.of(end));
        }
        let files = files(order, &places, &runs);
        // Borders are separators of a file.
        let all = files.concat();
        let border = border.and_then(|at| (!all.is_empty()).then(|| all[at.index(all.len())].clone()));
        let bounds = files.iter().flat_map(|keys| [keys[0].clone(), keys[keys.len() - 1].clone()]);
        let bounds = bounds.chain(range.begin.clone()).chain(range.end.clone()).collect();
        let comparator = CustomComparator(Arc::new(places.clone()));
        let done = CheckedOrder::find(comparator, bounds)
            .and_then(|checked| opened(order, checked, &files, block_size))
            .and_then(|(plan, tables)| rows(&plan, &tables, &range, border));
        let mut expected = all;
        expected.retain(|key| places.has(&range, key));
        expected.sort_by_key(|key| places.of(key));
        expected.dedup();
        match done {
            Ok(keys) => prop_assert_eq!(keys, expected),
            Err(error) => prop_assert!(is_other_order(&error) && !swaps.is_empty(), "{error}"),
        }
    }
}

/// The comparator has the second key inside the range, and its bytes are outside.
#[test]
fn keys_outside_a_range_are_compared_as_well() {
    let places = Places::new(KeyOrder::Bytewise, &[(3, 4)]);
    for (keys, range) in [
        (
            [1, 3, 7],
            KeyRange {
                begin: Some(key(4)),
                end: None,
            },
        ),
        (
            [1, 4, 7],
            KeyRange {
                begin: None,
                end: Some(key(3)),
            },
        ),
    ] {
        for block_size in [1, 4096] {
            let files = [keys.map(key).to_vec()];
            let bounds = vec![key(1), key(7)];
            let checked = CheckedOrder::find(CustomComparator(Arc::new(places.clone())), bounds);
            let checked = checked.expect("both orders have these bounds");
            let opened = opened(KeyOrder::Bytewise, checked, &files, block_size);
            let (plan, tables) = opened.expect("the file is sound");
            let error = rows(&plan, &tables, &range, None).expect_err("they differ");
            assert!(is_other_order(&error), "{error}");
        }
    }
}

/// Skips from the first key on.
#[derive(Debug, Clone)]
struct Skips(Vec<u8>);

impl CompactionFilter for Skips {
    fn filter(&mut self, _: &[u8], _: FilteredKind, _: &[u8]) -> Result<Decision> {
        Ok(Decision::SkipUntil(self.0.clone()))
    }
}

impl CreateFilter for Skips {
    fn create(&self) -> Result<Option<Box<dyn CompactionFilter>>> {
        Ok(Some(Box::new(self.clone())))
    }
}

/// The comparator is also asked about a key up to which a filter skips, which is in no file.
#[test]
fn keys_that_a_filter_names_are_compared_as_well() {
    let files = [[2, 3, 6].map(key).to_vec()];
    // Keys 1 and 5 have changed places: one is behind the others by bytes alone, one by the comparator alone.
    for (swaps, end, expected) in [
        (&[][..], 5, Some(vec![key(6)])),
        (&[], 1, Some(files[0].clone())),
        (&[(1, 5)], 5, None),
        (&[(1, 5)], 1, None),
    ] {
        let places = Places::new(KeyOrder::Bytewise, swaps);
        let bounds = vec![key(2), key(6)];
        let checked = CheckedOrder::find(CustomComparator(Arc::new(places)), bounds);
        let checked = checked.expect("both orders have these bounds");
        let opened = opened(KeyOrder::Bytewise, checked, &files, 4096);
        let (mut plan, tables) = opened.expect("the file is sound");
        plan.rules.filter = Some(JobFilter::new(Arc::new(Skips(key(end)))));
        let found = rows(&plan, &tables, &KeyRange::default(), None);
        match expected {
            Some(expected) => assert_eq!(found, Ok(expected)),
            None => assert!(is_other_order(&found.expect_err("they differ"))),
        }
    }
}
