//! Groups are the same on the CPU and by the kernels, whether the kernels or the host form them.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rockmill_core::scan::{
    Aggregate, Aggregation, BATCH_ROWS, ColumnType, Comparison, Instruction, IntegerRange, Literal,
    Number, NumberFormat, OutputColumn, Prefix, Register, ScanOutput, ScanPlan,
};
use rockmill_core::{ErrorKind, KeyRange};
use rockmill_cpu::CpuBackend;

use super::{ALL, Scanned, device, scan, scan_in_stages, table};
use crate::common::{Entry, PUT, config};

/// Where groups were formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BitAddress {
    Device,
    /// On the host, after the device has tried.
    GivenUp,
    /// On the host. The device has not tried, or there was an error.
    Host,
}

/// The CPU's groups of entries, which must equal the device's, and where that forms them.
fn groups(entries: &[Entry], plan: &ScanPlan) -> (Scanned, BitAddress) {
    let (tables, range) = (table(entries), KeyRange::default());
    let meant = scan(&CpuBackend, &tables, &range, ALL, plan);
    let (found, stages) = scan_in_stages(device(), &tables, &range, ALL, plan);
    let has = |name| stages.contains(&name);
    let place = match (has("put groups together"), has("give groups up")) {
        (true, false) => BitAddress::Device,
        (false, true) => BitAddress::GivenUp,
        (false, false) => BitAddress::Host,
        (true, true) => panic!("groups were put together twice"),
    };
    assert!(found == meant, "{plan:#?}\n{found:?}\n{meant:?}");
    (meant, place)
}

/// Names of the registers of [`plan`].
const LOW: Register = 5;
const WIDE: Register = 6;
const STRING: Register = 7;
const IS_NEGATIVE: Register = 8;
const FLOAT: Register = 9;

/// Values are an integer of 8 bytes, one of 16 bytes, and a string behind its length.
fn value(low: i64, wide: i128, string: &[u8]) -> Vec<u8> {
    let mut value = low.to_le_bytes().to_vec();
    value.extend(wide.to_le_bytes());
    value.push(string.len() as u8);
    value.extend(string);
    value
}

fn plan(keys: &[OutputColumn], aggregates: &[Aggregate], max_groups: u32) -> ScanPlan {
    let int = |integer| Instruction::Constant(Literal::Integer(integer));
    let number = |bytes, format| Number {
        bytes,
        is_big_endian: false,
        format,
    };
    let load = |at, number| Instruction::Load {
        from: 1,
        at,
        number,
    };
    ScanPlan {
        checks: Vec::new(),
        instructions: vec![
            Instruction::Key,
            Instruction::Value,
            int(0),
            int(8),
            int(24),
            load(2, number(8, NumberFormat::Signed)),
            load(3, number(16, NumberFormat::Signed)),
            Instruction::Prefixed {
                from: 1,
                at: 4,
                prefix: Prefix::Number(number(1, NumberFormat::Unsigned)),
            },
            Instruction::Compare {
                comparison: Comparison::Less,
                left: LOW,
                right: 2,
            },
            load(2, number(8, NumberFormat::Float)),
        ],
        filter: None,
        output: ScanOutput::Groups(Aggregation {
            keys: keys.to_vec(),
            aggregates: aggregates.to_vec(),
            max_groups,
        }),
    }
}

/// Groups with as many words as the device allows. Each row is a group, which are too many: so the host needs this
/// memory as well.
pub fn plan_of_most_memory() -> ScanPlan {
    let mut plan = plan(&[], &[], 4096);
    let bytes = 16;
    let number = Number {
        bytes,
        is_big_endian: true,
        format: NumberFormat::Signed,
    };
    let ScanOutput::Groups(aggregation) = &mut plan.output else {
        panic!("{plan:?}");
    };
    let (from, at) = (0, 2);
    let of_key = Number { bytes: 4, ..number };
    aggregation
        .keys
        .push(integer(plan.instructions.len() as Register, 4));
    plan.instructions.push(Instruction::Load {
        from,
        at,
        number: of_key,
    });
    for at in [2, 3, 4].repeat(4) {
        let (from, of) = (1, plan.instructions.len() as Register);
        plan.instructions
            .push(Instruction::Load { from, at, number });
        aggregation.aggregates.extend([
            sum(of, IntegerRange::WrapSigned { bytes }),
            Aggregate::Min(integer(of, bytes)),
            Aggregate::Max(integer(of, bytes)),
        ]);
    }
    plan
}

fn column(register: Register, stored: ColumnType) -> OutputColumn {
    OutputColumn { register, stored }
}

fn integer(register: Register, bytes: u8) -> OutputColumn {
    column(register, ColumnType::Integer { bytes })
}

fn sum(of: Register, range: IntegerRange) -> Aggregate {
    let stored = ColumnType::Integer { bytes: 16 };
    Aggregate::Sum { of, range, stored }
}

fn entries(values: impl IntoIterator<Item = Vec<u8>>) -> Vec<Entry> {
    let entry = |(n, value): (u32, Vec<u8>)| Entry::new(&n.to_be_bytes(), 1, PUT, &value);
    (0..).zip(values).map(entry).collect()
}

fn keys() -> impl Strategy<Value = Vec<OutputColumn>> {
    let key = prop::sample::select(vec![
        integer(LOW, 8),
        integer(LOW, 1),
        integer(WIDE, 16),
        column(STRING, ColumnType::Bytes),
        column(IS_NEGATIVE, ColumnType::Boolean),
        column(FLOAT, ColumnType::Float { bytes: 8 }),
    ]);
    prop::collection::vec(key, 0..4)
}

fn aggregates() -> impl Strategy<Value = Vec<Aggregate>> {
    let range = prop::sample::select(vec![
        IntegerRange::WrapSigned { bytes: 8 },
        IntegerRange::WrapUnsigned { bytes: 4 },
        IntegerRange::WrapSigned { bytes: 16 },
        IntegerRange::Exact,
    ]);
    let extreme = prop::sample::select(vec![
        integer(LOW, 8),
        integer(WIDE, 16),
        column(IS_NEGATIVE, ColumnType::Boolean),
        column(FLOAT, ColumnType::Float { bytes: 8 }),
        column(STRING, ColumnType::Bytes),
    ]);
    let of = prop::sample::select(vec![LOW, WIDE, STRING, IS_NEGATIVE]);
    let aggregate = prop_oneof![
        Just(Aggregate::Count(None)),
        of.prop_map(|of| Aggregate::Count(Some(of))),
        (prop::sample::select(vec![LOW, WIDE]), range).prop_map(|(of, range)| sum(of, range)),
        extreme.clone().prop_map(Aggregate::Min),
        // Minimum and maximum strings are rare, because with them the host forms groups.
        extreme.prop_filter_map("a string", |column| {
            (column.register != STRING).then_some(Aggregate::Max(column))
        }),
    ];
    prop::collection::vec(aggregate, 0..5)
}

/// Few kinds, so that rows fall into groups; some are truncated, so that numbers are null.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let low = prop_oneof![
        8 => -2i64..3,
        1 => any::<i64>(),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX]),
    ];
    let wide = prop_oneof![
        8 => -2i128..3,
        2 => any::<i128>(),
        1 => prop::sample::select(vec![i128::MIN, i128::MAX, 1 << 64, -1 << 64]),
    ];
    let string = prop_oneof![
        12 => prop::sample::select(vec![&b""[..], b"\0", b"\0\0", b"a", b"ab", b"sevenby"]),
        1 => prop::sample::select(vec![&[b'l'; 39][..], &[b'l'; 40], &[b'l'; 41], &[b'l'; 255]]),
    ];
    let cut = prop_oneof![9 => Just(usize::MAX), 1 => 0usize..30];
    (low, wide, string, cut).prop_map(|(low, wide, string, cut)| {
        let mut value = value(low, wide, string);
        value.truncate(cut);
        value
    })
}

#[test]
fn any_groups_are_the_same_wherever_they_are_put_together() {
    let drawn = (
        prop::collection::vec(values(), 1..120),
        keys(),
        aggregates(),
        prop_oneof![Just(4096), Just(u32::MAX), 1u32..30],
    );
    let mut counts = [0usize; 3];
    let mut errors = 0;
    let counted = std::cell::RefCell::new((&mut counts, &mut errors));
    // A fortieth of the cases is out of range, so that a share of them could have none.
    let cases = config(3000).cases.max(1000);
    let mut runner = TestRunner::new(ProptestConfig {
        source_file: Some(file!()),
        cases,
        ..config(3000)
    });
    let result = runner.run(&drawn, |(values, keys, aggregates, max_groups)| {
        let (scanned, place) = groups(&entries(values), &plan(&keys, &aggregates, max_groups));
        let (counts, errors) = &mut *counted.borrow_mut();
        counts[place as usize] += 1;
        **errors += u32::from(scanned == Err(ErrorKind::OutOfRange));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let cases = cases as usize / 100;
    println!("on the device, given up, on the host: {counts:?}; {errors} errors");
    assert!(
        counts[BitAddress::Device as usize] > 20 * cases,
        "{counts:?}"
    );
    assert!(
        counts[BitAddress::GivenUp as usize] > 5 * cases,
        "{counts:?}"
    );
    assert!(counts[BitAddress::Host as usize] > 5 * cases, "{counts:?}");
    assert!(errors > 0);
}

#[test]
fn as_many_groups_as_there_may_be_are_put_together_on_the_device_and_one_more_on_the_host() {
    let all = [
        Aggregate::Count(None),
        sum(WIDE, IntegerRange::Exact),
        Aggregate::Min(integer(WIDE, 16)),
        Aggregate::Max(integer(LOW, 8)),
    ];
    // More groups than the device has room for count as too many as well.
    for (groups_of_plan, most) in [(1, 1), (7, 7), (4096, 4096), (5000, 4096)] {
        for (more, place) in [(0, BitAddress::Device), (1, BitAddress::GivenUp)] {
            let number = most + more;
            let of = |n: i64| value(n % number, i128::from(n) << 70, b"");
            let entries = entries((0..2 * number + 3).map(of));
            for keys in [
                &[integer(LOW, 8)][..],
                &[integer(WIDE, 16), integer(LOW, 4)],
            ] {
                let is_wide = keys.len() > 1;
                let plan = plan(keys, &all, groups_of_plan);
                let (meant, found) = groups(&entries, &plan);
                let rows: usize = meant.expect("it is sound").0.iter().map(|b| b.rows).sum();
                assert!(rows as i64 >= number);
                // With both keys, each row is a group.
                let place = if is_wide { BitAddress::GivenUp } else { place };
                assert_eq!(
                    found, place,
                    "{number} of {groups_of_plan}, wide: {is_wide}"
                );
            }
        }
    }
}

#[test]
fn keys_of_42_bytes_are_put_together_on_the_device_and_longer_ones_on_the_host() {
    for (len, place) in [
        (40, BitAddress::Device),
        (41, BitAddress::GivenUp),
        (255, BitAddress::GivenUp),
    ] {
        let of = |n: usize| value(0, 0, &vec![b'a' + (n % 3) as u8; len]);
        let plan = plan(
            &[column(STRING, ColumnType::Bytes)],
            &[Aggregate::Count(None)],
            4096,
        );
        let (meant, found) = groups(&entries((0..100).map(of)), &plan);
        assert_eq!(
            (meant.expect("sound").0[0].rows, found),
            (3, place),
            "{len}"
        );
    }
    // Keys that never fit are not tried.
    let wide = [integer(WIDE, 16); 3];
    let plan = plan(&wide, &[], 10);
    assert_eq!(
        groups(&entries([value(0, 0, b"")]), &plan).1,
        BitAddress::Host
    );
}

#[test]
fn sums_that_exceed_128_bits_on_the_way_are_exact_and_those_that_end_there_are_errors() {
    let (most, least) = (i128::MAX, i128::MIN);
    for (values, is_over) in [
        (vec![most, most, least, least, 2], false),
        (vec![most, 1], true),
        (vec![most, 1, -1], false),
        (vec![least, -1], true),
        (vec![least, -1, 1], false),
        (vec![least; 100], true),
        (vec![-1; 100], false),
    ] {
        let entries = entries(values.iter().map(|&wide| value(0, wide, b"")));
        for (range, is_error) in [
            (IntegerRange::Exact, is_over),
            (IntegerRange::WrapSigned { bytes: 16 }, false),
            (IntegerRange::WrapUnsigned { bytes: 8 }, false),
        ] {
            let plan = plan(&[integer(LOW, 8)], &[sum(WIDE, range)], 1);
            let (meant, found) = groups(&entries, &plan);
            assert_eq!(meant.is_err(), is_error, "{values:?}");
            assert_eq!(found == BitAddress::Device, !is_error, "{values:?}");
        }
    }
}

#[test]
fn groups_of_more_rows_than_a_batch_has_are_the_same() {
    let of = |n: u32| {
        let low = i64::from(n % 4) - 1;
        value(low, i128::from(n) << (n % 90), &[b'a' + (n % 3) as u8])
    };
    let values: Vec<_> = (0..BATCH_ROWS as u32 + 500).map(of).collect();
    let entries = entries(values);
    let all = [
        Aggregate::Count(Some(STRING)),
        sum(LOW, IntegerRange::Exact),
        sum(WIDE, IntegerRange::Exact),
        Aggregate::Min(integer(WIDE, 16)),
        Aggregate::Max(integer(WIDE, 16)),
        Aggregate::Max(column(IS_NEGATIVE, ColumnType::Boolean)),
    ];
    let keys = [integer(LOW, 8), column(STRING, ColumnType::Bytes)];
    for (keys, max_groups, place) in [
        (&keys[..], 12, BitAddress::Device),
        (&keys[..], 11, BitAddress::GivenUp),
        (&[], 1, BitAddress::Device),
    ] {
        let (meant, found) = groups(&entries, &plan(keys, &all, max_groups));
        assert!(meant.is_ok());
        assert_eq!(found, place, "{max_groups}");
    }
}
