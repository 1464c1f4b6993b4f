//! The ends of batches, and groups that are passed on early.

use rockmill_core::ErrorKind;
use rockmill_core::scan::{
    Aggregate, Aggregation, BATCH_BYTES, BATCH_ROWS, ColumnType, GROUP_BYTES, Instruction,
    IntegerRange, Literal, OutputColumn, ScanOutput, ScanPlan,
};
use rockmill_cpu::scan::Scanner;

use super::{CollectedBatches, scan};

const VALUE: OutputColumn = OutputColumn {
    register: 0,
    stored: ColumnType::Bytes,
};

fn values(columns: Vec<OutputColumn>) -> ScanPlan {
    ScanPlan {
        checks: Vec::new(),
        instructions: vec![Instruction::Value],
        filter: None,
        output: ScanOutput::Rows(columns),
    }
}

/// Rows of each batch of a plan over values.
fn batches<'a>(plan: &ScanPlan, values: impl Iterator<Item = &'a [u8]>) -> Vec<usize> {
    let mut kept = CollectedBatches::default();
    let mut scanner = Scanner::new(plan, &mut kept).expect("it is sound");
    for value in values {
        scanner.row(b"key", value).expect("there is room");
    }
    scanner.finish().expect("there is room");
    kept.0.iter().map(|batch| batch.rows).collect()
}

#[test]
fn batches_end_with_their_rows() {
    let rows = BATCH_ROWS + 5;
    let plan = values(vec![]);
    let found = batches(&plan, std::iter::repeat_n(&b""[..], rows));
    assert_eq!(found, [BATCH_ROWS, 5]);
    let found = batches(&plan, std::iter::repeat_n(&b""[..], BATCH_ROWS));
    assert_eq!(found, [BATCH_ROWS]);
}

#[test]
fn batches_end_before_they_have_too_many_bytes() {
    const PER_BATCH: usize = 8;
    let fitting = vec![1; BATCH_BYTES / PER_BATCH - ColumnType::Bytes.row_bytes()];
    let larger = vec![1; fitting.len() + 1];
    let huge = vec![1; BATCH_BYTES + 1];
    let of = |values: &[&[u8]]| batches(&self::values(vec![VALUE]), values.iter().copied());
    assert_eq!(of(&[&fitting[..]; 9]), [8, 1]);
    assert_eq!(of(&[&larger[..]; 9]), [7, 2]);
    assert_eq!(of(&[&b""[..], &huge, b""]), [1, 1, 1]);
    let twice = values(vec![VALUE, VALUE]);
    assert_eq!(batches(&twice, [&fitting[..]; 9].into_iter()), [4, 4, 1]);
}

#[test]
fn a_row_that_offsets_cannot_describe_is_an_error() {
    let value = vec![0; i32::MAX as usize + 1];
    let error = scan(&values(vec![VALUE]), &[(Vec::new(), value)]).expect_err("it is too long");
    assert_eq!(error.kind, ErrorKind::OutOfRange);
    assert!(error.to_string().contains("2147483648 bytes"), "{error}");
}

fn grouped(keys: Vec<OutputColumn>, max_groups: u32) -> ScanPlan {
    ScanPlan {
        checks: Vec::new(),
        instructions: vec![
            Instruction::Value,
            Instruction::Constant(Literal::Integer(i128::MAX)),
        ],
        filter: None,
        output: ScanOutput::Groups(Aggregation {
            keys,
            aggregates: vec![Aggregate::Count(None), Aggregate::Max(VALUE)],
            max_groups,
        }),
    }
}

#[test]
fn groups_are_handed_over_when_there_are_too_many() {
    let plan = grouped(vec![VALUE], 2);
    let found = batches(
        &plan,
        [b"a", b"b", b"a", b"c", b"b"].map(|v| &v[..]).into_iter(),
    );
    assert_eq!(found, [2, 2]);
    let plan = grouped(vec![VALUE], 1000);
    let keys: Vec<_> = (0..1500u32).map(u32::to_le_bytes).collect();
    let twice = keys.iter().chain(&keys).map(|key| &key[..]);
    assert_eq!(batches(&plan, twice), [1000, 1000, 1000]);
}

#[test]
fn groups_are_handed_over_when_they_are_too_large() {
    let (half, rest) = (vec![1; GROUP_BYTES / 4], vec![2; 100]);
    // The key and the greatest value of each.
    let values = [&rest[..], &half, &rest, &half[1..], &rest].into_iter();
    let found = batches(&grouped(vec![VALUE], 1000), values);
    assert_eq!(found, [3, 1]);
    let one_group = batches(
        &grouped(vec![], 1),
        [&half[..], &half, &vec![9; GROUP_BYTES]].into_iter(),
    );
    assert_eq!(one_group, [1]);
}

#[test]
fn without_keys_there_is_one_group_even_without_rows() {
    let (batches, output) = scan(&grouped(vec![], 1), &[]).expect("it is sound");
    assert_eq!((batches.len(), batches[0].rows, output.selected), (1, 1, 0));
    assert_eq!(batches[0].columns[0].values, [0; 8]);
    assert_eq!(batches[0].columns[1].validity, Some(vec![0]));
    let (batches, _) = scan(&grouped(vec![VALUE], 1), &[]).expect("it is sound");
    assert!(batches.is_empty());
}

#[test]
fn the_order_of_rows_decides_over_no_sum() {
    let sum = |range| ScanPlan {
        checks: Vec::new(),
        instructions: vec![
            Instruction::Value,
            Instruction::Constant(Literal::Integer(0)),
            Instruction::Load {
                from: 0,
                at: 1,
                number: rockmill_core::scan::Number {
                    bytes: 16,
                    is_big_endian: false,
                    format: rockmill_core::scan::NumberFormat::Signed,
                },
            },
        ],
        filter: None,
        output: ScanOutput::Groups(Aggregation {
            keys: vec![],
            aggregates: vec![Aggregate::Sum {
                of: 2,
                range,
                stored: ColumnType::Integer { bytes: 16 },
            }],
            max_groups: 1,
        }),
    };
    let result = |range, integers: &[i128]| {
        let rows: Vec<_> = integers
            .iter()
            .map(|n| (Vec::new(), n.to_le_bytes().to_vec()))
            .collect();
        scan(&sum(range), &rows).map(|(batches, _)| {
            i128::from_le_bytes(
                batches[0].columns[0].values[..]
                    .try_into()
                    .expect("16 bytes"),
            )
        })
    };
    let (max, exact) = (i128::MAX, IntegerRange::Exact);
    assert_eq!(result(exact, &[max, max, -max, -5]), Ok(max - 5));
    assert_eq!(result(exact, &[-max, -5, max, max]), Ok(max - 5));
    assert_eq!(result(exact, &[i128::MIN, i128::MIN, max, max, 2]), Ok(0));
    let error = result(exact, &[max, 1]).expect_err("it is too large");
    assert_eq!(error.kind, ErrorKind::OutOfRange);
    assert_eq!(
        result(IntegerRange::WrapSigned { bytes: 16 }, &[max, 1]),
        Ok(i128::MIN)
    );
    assert_eq!(
        result(IntegerRange::WrapUnsigned { bytes: 1 }, &[max, 1]),
        Ok(0)
    );
}
