//! Scans of tables whose columns are kept: their batches are those of a scan that keeps none.

use std::sync::Arc;

use proptest::prelude::*;
use rockmill_core::columns::{ColumnCache, TableColumns, TableIdentity};
use rockmill_core::scan::{
    Batch, BatchSink, Check, ColumnType, Comparison, Instruction, IntegerRange, Literal, Number,
    NumberFormat, Operation, OutputColumn, Register, ScanOutput, ScanPlan,
};
use rockmill_core::{
    Backend, BatchOutput, CancelToken, InputTable, KeyRange, Operator, Plan, ReadReport, ReadTask,
    Result,
};
use rockmill_cpu::CpuBackend;
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::CompressionType;

use super::common::{self, Entry, PUT, config};
use super::drawn_plan;
use super::tables::{request, rules, runs, scan_reported};

/// Blocks of a few entries.
fn small_blocks() -> Plan {
    let mut plan = common::plan();
    plan.output.table.block_size = 64;
    plan
}

/// The same tables, of which a cache keeps columns.
fn kept(tables: &[InputTable], cache: &Arc<ColumnCache>) -> Vec<InputTable> {
    let table = |(number, table): (usize, &InputTable)| {
        let identity = TableIdentity::of(table, [1 + number as u64, 7]);
        table.clone().with_columns(TableColumns {
            cache: Arc::clone(cache),
            identity,
        })
    };
    tables.iter().enumerate().map(table).collect()
}

/// Something that happens to the cache before a scan.
#[derive(Debug, Clone)]
enum Event {
    Nothing,
    Limit(u64),
    Flip(usize),
    FlipKeys(usize),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Nothing),
        2 => (0u64..3000).prop_map(Event::Limit),
        2 => Just(Event::Limit(1 << 30)),
        1 => any::<usize>().prop_map(Event::Flip),
        1 => any::<usize>().prop_map(Event::FlipKeys),
    ]
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn scans_find_the_same_whatever_is_kept(
        runs in runs(),
        plans in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 2),
        group_bytes in prop::sample::select(vec![1u64, 100, 300, 1 << 20]),
        unnamed in 0usize..5,
        steps in proptest::collection::vec(
            (
                any::<bool>(),
                0u64..100,
                any::<[Option<prop::sample::Index>; 2]>(),
                events(),
            ),
            1..8,
        ),
    ) {
        let plain = common::tables(&small_blocks(), &runs);
        let plans = [drawn_plan(&plans[0]), drawn_plan(&plans[1])];
        let cache = Arc::new(ColumnCache::with_groups_of(group_bytes));
        cache.set_limit(1 << 30);
        let mut tables = kept(&plain, &cache);
        // One table may have no name, as entries that are not flushed have none.
        if let Some(table) = tables.get_mut(unnamed) {
            *table = plain[unnamed].clone();
        }
        let all = runs.concat();
        for (is_first, sequence, bounds, event) in steps {
            match event {
                Event::Nothing => {}
                Event::Limit(bytes) => cache.set_limit(bytes),
                Event::Flip(bit) => {
                    cache.flip(bit);
                }
                Event::FlipKeys(bit) => {
                    cache.flip_keys(bit);
                }
            }
            let plan = &plans[usize::from(is_first)];
            let [begin, end] = bounds.map(|at| at.map(|at| all[at.index(all.len())].key.clone()));
            let range = KeyRange { begin, end };
            let rules = rules(sequence);
            let expected = scan_reported(request(&plain, &range, plan, rules));
            let found = scan_reported(request(&tables, &range, plan, rules));
            let rows = |(batches, output, _): (_, _, ReadReport)| (batches, output);
            let text = |error: rockmill_core::Error| error.to_string();
            prop_assert_eq!(found.map(rows).map_err(text), expected.map(rows).map_err(text));
        }
    }
}

fn load(at: i128) -> [Instruction; 3] {
    [
        Instruction::Value,
        Instruction::Constant(Literal::Integer(at)),
        Instruction::Load {
            from: 0,
            at: 1,
            number: Number {
                bytes: 4,
                is_big_endian: false,
                format: NumberFormat::Signed,
            },
        },
    ]
}

/// A number at an offset of the value.
fn number_at(at: i128) -> ScanPlan {
    ScanPlan {
        instructions: load(at).to_vec(),
        output: ScanOutput::Rows(vec![OutputColumn {
            register: 2,
            stored: ColumnType::Integer { bytes: 4 },
        }]),
        ..ScanPlan::default()
    }
}

fn rows(first: u32) -> Vec<Entry> {
    let row = |number: u32| {
        let value = [number.to_le_bytes(), (7 * number).to_le_bytes()].concat();
        Entry::new(&number.to_be_bytes(), 5, PUT, &value)
    };
    (first..first + 500).map(row).collect()
}

fn read(tables: &[InputTable], plan: &ScanPlan) -> (Vec<u8>, ReadReport) {
    let range = KeyRange::default();
    let (mut batches, _, report) =
        scan_reported(request(tables, &range, plan, rules(9))).expect("it is sound");
    (batches.remove(0).columns.remove(0).values, report)
}

fn cache_of(bytes: u64) -> Arc<ColumnCache> {
    let cache = Arc::new(ColumnCache::with_groups_of(1000));
    cache.set_limit(bytes);
    cache
}

#[test]
fn the_second_scan_reads_no_file_and_another_column_is_parsed_once() {
    let cache = cache_of(1 << 20);
    let tables = kept(&common::tables(&small_blocks(), &[rows(0)]), &cache);
    let (first, cold) = read(&tables, &number_at(0));
    assert!(cold.bytes > 0 && cold.kept_bytes == 0, "{cold:?}");
    let (second, warm) = read(&tables, &number_at(0));
    assert_eq!(first, second);
    assert!(warm.bytes == 0 && warm.kept_columns > 5, "{warm:?}");
    let (other, cold) = read(&tables, &number_at(4));
    assert!(other != first && cold.bytes > 0, "{cold:?}");
    assert_eq!(read(&tables, &number_at(4)).1.bytes, 0);
    assert_eq!(read(&tables, &number_at(0)).1.bytes, 0);
    let accounts = cache.accounts();
    assert!(accounts.bytes > 0 && accounts.hit_bytes > 0 && accounts.miss_bytes > 0);
    assert_eq!((accounts.mismatches, accounts.evicted_bytes), (0, 0));
    cache.set_limit(0);
    assert_eq!(cache.accounts().bytes, 0);
    assert_eq!(cache.accounts().evicted_bytes, accounts.bytes);
    let (last, off) = read(&tables, &number_at(0));
    assert!(last == first && off.bytes > 0 && off.kept_bytes == 0);
}

#[test]
fn changed_bytes_are_found_before_their_rows() {
    let cache = cache_of(1 << 20);
    let tables = kept(&common::tables(&small_blocks(), &[rows(0)]), &cache);
    let (sound, _) = read(&tables, &number_at(0));
    for bit in 0..64 {
        for is_key in [false, true] {
            let before = cache.accounts().mismatches;
            let flipped = match is_key {
                true => cache.flip_keys(bit),
                false => cache.flip(bit),
            };
            assert!(flipped > 5);
            let (found, report) = read(&tables, &number_at(0));
            assert_eq!(found, sound, "bit {bit}");
            assert_eq!(cache.accounts().mismatches - before, flipped as u64);
            assert!(report.bytes > 0 && report.kept_bytes == 0);
            assert_eq!(read(&tables, &number_at(0)).1.bytes, 0);
        }
    }
}

#[test]
fn a_cache_that_is_too_small_keeps_a_part_that_stays() {
    let cache = cache_of(8 << 10);
    let tables = kept(&common::tables(&small_blocks(), &[rows(0)]), &cache);
    let (sound, cold) = read(&tables, &number_at(0));
    for _ in 0..5 {
        let (found, report) = read(&tables, &number_at(0));
        assert_eq!(found, sound);
        assert!(report.kept_bytes > 0 && report.bytes > 0 && report.bytes < cold.bytes);
        assert!(cache.accounts().bytes <= 8 << 10);
    }
    cache.set_limit(1);
    assert_eq!(read(&tables, &number_at(0)).0, sound);
    assert_eq!(cache.accounts().bytes, 0);
}

#[test]
fn other_tables_make_room_once_a_table_is_not_used() {
    let cache = cache_of(16 << 10);
    let [old, new] = [0, 10_000].map(|first| common::tables(&small_blocks(), &[rows(first)]));
    let old = kept(&old, &cache);
    read(&old, &number_at(0));
    let named = TableIdentity::of(&new[0], [99, 99]);
    let new = vec![new[0].clone().with_columns(TableColumns {
        cache: Arc::clone(&cache),
        identity: named,
    })];
    for _ in 0..20 {
        read(&new, &number_at(0));
    }
    assert!(cache.accounts().evicted_bytes > 0);
    assert!(read(&new, &number_at(0)).1.kept_bytes > 0);
}

#[test]
fn columns_that_no_scan_uses_make_room_in_groups_that_are_used() {
    let plain = common::tables(&small_blocks(), &[rows(0)]);
    let full = |limit: u64| {
        let cache = cache_of(limit);
        let tables = kept(&plain, &cache);
        for at in [0, 4] {
            read(&tables, &number_at(at));
        }
        (cache, tables)
    };
    let limit = full(1 << 20).0.accounts().bytes;
    let (cache, tables) = full(limit);
    assert_eq!(read(&tables, &number_at(2)).1.kept_bytes, 0);
    assert_eq!(cache.accounts().evicted_bytes, 0);
    for _ in 0..20 {
        for at in [0, 2] {
            read(&tables, &number_at(at));
            assert!(cache.accounts().bytes <= limit);
        }
    }
    assert!(read(&tables, &number_at(0)).1.kept_bytes > 0);
    assert!(read(&tables, &number_at(2)).1.kept_bytes > 0);
    assert!(cache.accounts().evicted_bytes > 0);
}

#[test]
fn another_file_in_the_place_of_one_shares_nothing() {
    let cache = cache_of(1 << 20);
    let of = |first| {
        let table = common::tables(&small_blocks(), &[rows(first)]).remove(0);
        let identity = TableIdentity::of(&table, [3, 4]);
        vec![table.with_columns(TableColumns {
            cache: Arc::clone(&cache),
            identity,
        })]
    };
    // With the same unique id and size, as after a restored backup.
    let (one, other) = (of(1024), of(1280));
    assert_eq!(one[0].file.len(), other[0].file.len());
    let (first, _) = read(&one, &number_at(0));
    let (second, report) = read(&other, &number_at(0));
    assert!(first != second && report.kept_bytes == 0);
    // The same file has another sequence number in another column family.
    let ingested = one[0].clone().with_global_sequence(8).expect("it is one");
    assert_ne!(
        TableIdentity::of(&ingested, [3, 4]),
        TableIdentity::of(&one[0], [3, 4])
    );
}

#[test]
fn tables_without_checksums_or_names_are_not_kept() {
    let table = common::tables(&small_blocks(), &[rows(0)]).remove(0);
    assert!(TableIdentity::of(&table, [0, 0]).is_none());
    assert!(TableIdentity::of(&table, [0, 1]).is_some());
    let mut plan = small_blocks();
    plan.output.table.checksum = ChecksumType::None;
    let table = common::tables(&plan, &[rows(0)]).remove(0);
    assert!(TableIdentity::of(&table, [0, 1]).is_none());
}

/// Bytes of each value of [`compressible`].
const VALUE_BYTES: usize = 64 << 10;

/// A row whose value has one byte over and over, or noise.
fn compressible(number: u32, is_so: bool) -> Entry {
    let value = match is_so {
        true => vec![7; VALUE_BYTES],
        false => common::noise(u64::from(number), VALUE_BYTES),
    };
    Entry::new(&number.to_be_bytes(), 5, PUT, &value)
}

#[test]
fn blocks_that_compress_far_better_than_others_are_parsed_one_by_one() {
    const VALUES: u32 = 200;
    let mut plan = common::plan();
    plan.output.table.compression.kind = CompressionType::Lz4;
    let row = |number| compressible(number, number < VALUES);
    let rows: Vec<_> = (0..2 * VALUES).map(row).collect();
    let plain = common::tables(&plan, &[rows]);
    let cache = Arc::new(ColumnCache::default());
    cache.set_limit(1 << 30);
    let tables = kept(&plain, &cache);
    let values = ScanPlan {
        instructions: vec![Instruction::Value],
        output: ScanOutput::Rows(vec![OutputColumn {
            register: 0,
            stored: ColumnType::Bytes,
        }]),
        ..ScanPlan::default()
    };
    let range = KeyRange::default();
    let scan = |tables| scan_reported(request(tables, &range, &values, rules(9))).expect("sound");
    let (expected, counts, _) = scan(&plain);
    for _ in 0..2 {
        let (found, found_counts, report) = scan(&tables);
        assert!(found == expected && found_counts == counts);
        assert_eq!(report.entries, [u64::from(2 * VALUES)]);
    }
    // Only the blocks that do not compress are kept.
    let bytes = u64::from(VALUES) * VALUE_BYTES as u64;
    let kept = cache.accounts().bytes;
    assert!(
        (bytes / 2..bytes * 3 / 2).contains(&kept),
        "{kept} of {bytes}"
    );
    assert!(scan(&tables).2.kept_bytes > bytes / 2);
}

/// Counts rows. With the first batch, other scans keep the columns that this one wants.
struct Counts<'a> {
    rows: usize,
    others: Option<(&'a [InputTable], [&'a ScanPlan; 2])>,
}

impl BatchSink for Counts<'_> {
    fn batch(&mut self, batch: Batch) -> Result<()> {
        self.rows += batch.rows;
        if let Some((tables, plans)) = self.others.take() {
            let range = KeyRange::default();
            for plan in plans {
                scan_reported(request(tables, &range, plan, rules(9)))?;
            }
        }
        Ok(())
    }
}

#[test]
fn a_group_that_others_keep_meanwhile_is_not_read_again() {
    const SLICE_BYTES: usize = 16 << 10;
    // Each slice of all these values fits a parsed group, and both together do not.
    const VALUES: u32 = 200;
    const OTHERS: u32 = 60;
    // So many that a batch ends within the group.
    const COPIES: usize = 20;
    let mut plan = common::plan();
    plan.output.table.compression.kind = CompressionType::Lz4;
    let row = |number| compressible(number, number < VALUES);
    let rows: Vec<_> = (0..VALUES + OTHERS).map(row).collect();
    let cache = Arc::new(ColumnCache::default());
    cache.set_limit(1 << 30);
    let tables = kept(&common::tables(&plan, &[rows]), &cache);
    let slices = |registers: &[Register]| {
        let integer = |number: usize| Instruction::Constant(Literal::Integer(number as i128));
        let slice = |at| Instruction::Slice {
            from: 0,
            at,
            length: 2,
        };
        let column = |register: &Register| OutputColumn {
            register: *register,
            stored: ColumnType::Bytes,
        };
        ScanPlan {
            instructions: vec![
                Instruction::Value,
                integer(0),
                integer(SLICE_BYTES),
                slice(1),
                slice(2),
            ],
            output: ScanOutput::Rows(registers.iter().map(column).collect()),
            ..ScanPlan::default()
        }
    };
    let (first, second) = (slices(&[3]), slices(&[4]));
    let both = slices(&[3, 4].repeat(COPIES));
    let mut counts = Counts {
        rows: 0,
        others: Some((&tables, [&first, &second])),
    };
    let range = KeyRange::default();
    let task = ReadTask {
        reading: request(&tables, &range, &both, rules(9)).reading,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let operator = Operator::Scan {
        plan: &both,
        batches: &mut counts,
    };
    CpuBackend.run(task, operator).expect("it is sound");
    assert_eq!(counts.rows, (VALUES + OTHERS) as usize);
    // The others have kept the group of the values that compress.
    assert!(counts.others.is_none());
    let found = scan_reported(request(&tables, &range, &first, rules(9))).expect("it is sound");
    assert!(found.2.kept_bytes > u64::from(VALUES) * SLICE_BYTES as u64);
}

/// A plan that returns the number at 4 of rows whose number at 0 fulfils the conditions of a filter.
fn filtered(
    conditions: &[(Comparison, i128)],
    change: impl FnOnce(&mut Vec<Instruction>, Register) -> Register,
) -> ScanPlan {
    let mut instructions = load(0).to_vec();
    let mut add = |instruction| {
        instructions.push(instruction);
        instructions.len() as Register - 1
    };
    let [_, four, other] = load(4);
    add(four);
    let number = match other {
        Instruction::Load { number, .. } => number,
        other => panic!("{other:?}"),
    };
    add(Instruction::Load {
        from: 0,
        at: 3,
        number,
    });
    let mut filter = None;
    for (comparison, constant) in conditions {
        let right = add(Instruction::Constant(Literal::Integer(*constant)));
        let condition = add(Instruction::Compare {
            comparison: *comparison,
            left: 2,
            right,
        });
        filter = Some(filter.map_or(condition, |filter| add(Instruction::And(filter, condition))));
    }
    let filter = filter.map(|filter| change(&mut instructions, filter));
    ScanPlan {
        instructions,
        filter,
        output: ScanOutput::Rows(vec![OutputColumn {
            register: 4,
            stored: ColumnType::Integer { bytes: 4 },
        }]),
        ..ScanPlan::default()
    }
}

const NUMBERS: [(Comparison, i128); 2] =
    [(Comparison::GreaterOrEqual, 100), (Comparison::Less, 110)];

#[test]
fn groups_in_which_a_filter_selects_nothing_are_passed_without_other_columns() {
    let plan = filtered(&NUMBERS, |_, filter| filter);
    let cache = cache_of(1 << 20);
    let tables = kept(&common::tables(&small_blocks(), &[rows(0)]), &cache);
    let (first, cold) = read(&tables, &plan);
    let (second, warm) = read(&tables, &plan);
    let expected: Vec<u8> = (100..110u32)
        .flat_map(|row| (7 * row).to_le_bytes())
        .collect();
    assert!(first == expected && second == expected);
    assert_eq!((cold.kept, warm.kept, warm.bytes), (500, 500, 0));
    // Two columns of one or two groups, and one of each other group.
    let (_, all) = read(
        &tables,
        &filtered(&[(Comparison::Less, 500)], |_, filter| filter),
    );
    let groups = all.kept_columns / 2;
    assert!(
        groups > 5 && (groups + 1..=groups + 2).contains(&warm.kept_columns),
        "{warm:?}"
    );
    // A column that only passed groups lack is not parsed.
    let other = |plan: &mut ScanPlan| {
        let six = plan.instructions.len() as Register;
        plan.instructions
            .push(Instruction::Constant(Literal::Integer(2)));
        let Instruction::Load { number, .. } = plan.instructions[4] else {
            panic!("it loads");
        };
        plan.instructions.push(Instruction::Load {
            from: 0,
            at: six,
            number,
        });
        plan.output = ScanOutput::Rows(vec![OutputColumn {
            register: six + 1,
            stored: ColumnType::Integer { bytes: 4 },
        }]);
    };
    let mut plan = plan;
    other(&mut plan);
    let (_, report) = read(&tables, &plan);
    assert!(
        report.bytes > 0 && report.bytes < cold.bytes / 3,
        "{report:?}"
    );
    // Changed bytes are found in the columns that decide, and in keys and tags.
    cache.flip_keys(3);
    assert_eq!(read(&tables, &plan).1.kept_bytes, 0);
    cache.flip(5);
    let before = cache.accounts().mismatches;
    read(&tables, &plan);
    assert_eq!(cache.accounts().mismatches, before + groups);
}

#[test]
fn rows_of_groups_in_which_a_filter_selects_nothing_hide_older_ones() {
    let version = |number: i32, sequence, kind| {
        let row = move |key: u32| {
            let value = [number.to_le_bytes(), number.to_le_bytes()].concat();
            let value = if kind == PUT { &value[..] } else { &[] };
            Entry::new(&key.to_be_bytes(), sequence, kind, value)
        };
        (0..500).map(row).collect::<Vec<_>>()
    };
    let plan = filtered(&[(Comparison::Equal, 5)], |_, filter| filter);
    for hiding in [version(6, 7, PUT), version(0, 7, common::DELETE)] {
        let cache = cache_of(1 << 20);
        let plain = common::tables(&small_blocks(), &[hiding, version(5, 3, PUT)]);
        let tables = kept(&plain, &cache);
        let range = KeyRange::default();
        for _ in 0..3 {
            for (sequence, selected) in [(9, 0), (6, 500), (2, 0)] {
                let request = request(&tables, &range, &plan, rules(sequence));
                let (_, output, _) = scan_reported(request).expect("it is sound");
                assert_eq!(output.selected, selected, "at {sequence}");
            }
        }
        assert!(cache.accounts().hit_bytes > 0);
    }
}

#[test]
fn errors_of_rows_that_a_filter_does_not_select_stay() {
    let mut last = rows(0);
    last[400] = Entry::new(&400u32.to_be_bytes(), 5, PUT, &[1, 2, 3]);
    let malformed = common::tables(&small_blocks(), &[last]);
    let sound = common::tables(&small_blocks(), &[rows(0)]);
    // A number is there in each row, or counted where it is not.
    let checked = |counts| {
        let mut plan = filtered(&NUMBERS, |_, filter| filter);
        let is_null = plan.instructions.len() as Register;
        plan.instructions.push(Instruction::IsNull(2));
        plan.instructions.push(Instruction::Not(is_null));
        plan.checks.push(Check {
            holds: is_null + 1,
            what: "it is short".to_owned(),
            counts,
        });
        plan
    };
    // The square of a number exceeds 128 bits in some rows before they are not selected.
    let exceeding = filtered(&NUMBERS, |instructions, filter| {
        let huge = instructions.len() as Register;
        let times = |left, right| Instruction::Arithmetic {
            operation: Operation::Multiply,
            left,
            right,
            range: IntegerRange::Exact,
        };
        instructions.extend([
            Instruction::Constant(Literal::Integer(i128::MAX / 300)),
            times(huge, 2),
            Instruction::IsNull(huge + 1),
            Instruction::Not(huge + 2),
            Instruction::And(huge + 3, filter),
        ]);
        huge + 4
    });
    let range = KeyRange::default();
    for (plain, plan, malformed) in [
        (&malformed, checked(false), None),
        (&malformed, checked(true), Some(1)),
        (&sound, checked(true), Some(0)),
        (&sound, exceeding, None),
    ] {
        let tables = kept(plain, &cache_of(1 << 20));
        let scan = |tables| scan_reported(request(tables, &range, &plan, rules(9)));
        let text = |error: rockmill_core::Error| error.to_string();
        let counts =
            |(batches, output, _): (Vec<Batch>, BatchOutput, ReadReport)| (batches, output);
        let expected = scan(plain).map(counts).map_err(text);
        let found_malformed = expected.as_ref().map(|(_, output)| output.malformed);
        assert_eq!(found_malformed.ok(), malformed, "{expected:?}");
        for _ in 0..2 {
            assert_eq!(scan(&tables).map(counts).map_err(text), expected);
        }
    }
}

/// A filter over two numbers: the first ascends with the keys, the second is a float of any bits.
fn filters() -> impl Strategy<Value = Filter> {
    let comparison = prop::sample::select(vec![
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ]);
    let number = || prop_oneof![4 => -10i128..1000, 1 => any::<i32>().prop_map(i128::from)];
    let leaf = prop_oneof![
        6 => (comparison, any::<bool>(), number())
            .prop_map(|(comparison, is_first, number)| Filter::Compare(comparison, is_first, number)),
        1 => proptest::collection::btree_set(number(), 0..4)
            .prop_map(|numbers| Filter::OneOf(numbers.into_iter().collect())),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            3 => two.clone().prop_map(|(a, b)| Filter::And(Box::new([a, b]))),
            2 => two.prop_map(|(a, b)| Filter::Or(Box::new([a, b]))),
            1 => inner.prop_map(|a| Filter::Not(Box::new(a))),
        ]
    })
}

#[derive(Debug, Clone)]
enum Filter {
    Compare(Comparison, bool, i128),
    OneOf(Vec<i128>),
    And(Box<[Filter; 2]>),
    Or(Box<[Filter; 2]>),
    Not(Box<Filter>),
}

impl Filter {
    fn add(&self, to: &mut Vec<Instruction>) -> Register {
        let column = |is_first| if is_first { 2 } else { 4 };
        let instruction = match self {
            Self::Compare(comparison, is_first, number) => {
                to.push(Instruction::Constant(Literal::Integer(*number)));
                Instruction::Compare {
                    comparison: *comparison,
                    left: column(*is_first),
                    right: to.len() as Register - 1,
                }
            }
            Self::OneOf(numbers) => Instruction::OneOf {
                of: column(true),
                values: numbers.iter().copied().map(Literal::Integer).collect(),
            },
            Self::And(both) => Instruction::And(both[0].add(to), both[1].add(to)),
            Self::Or(both) => Instruction::Or(both[0].add(to), both[1].add(to)),
            Self::Not(of) => Instruction::Not(of.add(to)),
        };
        to.push(instruction);
        to.len() as Register - 1
    }
}

/// Versions of some keys in three tables. Some values are too short for a number.
fn versions() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let kind = prop_oneof![6 => Just(PUT), 1 => Just(common::DELETE)];
    let float = prop_oneof![any::<f32>(), Just(f32::NAN), Just(-0.0f32), 0f32..9.0];
    let version = (0u32..250, kind, float, 0u32..8, 0usize..3, 0u8..12);
    proptest::collection::vec(version, 1..400).prop_map(|versions| {
        let mut runs = vec![Vec::new(); 3];
        for (at, (key, kind, float, more, run, bytes)) in versions.into_iter().enumerate() {
            let value = [(4 * key + more).to_le_bytes(), float.to_le_bytes()].concat();
            let bytes = if kind == PUT {
                bytes.max(2) as usize
            } else {
                0
            };
            let value = &value[..bytes.min(value.len())];
            let sequence = at as u64 + 1;
            runs[run].push(Entry::new(&key.to_be_bytes(), sequence, kind, value));
        }
        runs.retain(|run: &Vec<Entry>| !run.is_empty());
        runs.iter_mut()
            .for_each(|run| run.sort_by_key(Entry::order));
        runs
    })
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn filters_select_the_same_rows_whatever_the_columns_of_a_group_show(
        runs in versions(),
        filters in proptest::collection::vec(filters(), 1..4),
        group_bytes in prop::sample::select(vec![1u64, 300, 1000]),
        sequences in proptest::collection::vec(0u64..500, 1..4),
    ) {
        let plain = common::tables(&small_blocks(), &runs);
        let cache = Arc::new(ColumnCache::with_groups_of(group_bytes));
        cache.set_limit(1 << 30);
        let tables = kept(&plain, &cache);
        let range = KeyRange::default();
        for filter in &filters {
            let plan = filtered(&NUMBERS[..1], |instructions, _| {
                if let Instruction::Load { number, .. } = &mut instructions[4] {
                    number.format = NumberFormat::Float;
                }
                filter.add(instructions)
            });
            for sequence in &sequences {
                let scan = |tables| {
                    let scan = scan_reported(request(tables, &range, &plan, rules(*sequence)));
                    scan.map(|(batches, output, _)| (batches, output)).map_err(|e| e.to_string())
                };
                let expected = scan(&plain);
                prop_assert_eq!(scan(&tables), expected.clone());
                prop_assert_eq!(scan(&tables), expected);
            }
        }
    }
}
