//! Scans: each instruction at its edges, random plans against a model, and scans of tables at snapshots.

use rockmill_testkit::cases as common;
mod edges;
mod groups;
mod limits;
mod model;
mod tables;

use common::config;
use model::OutOfRange;
use proptest::prelude::*;
use rockmill_core::scan::{
    Batch, BatchSink, Check, ColumnType, Comparison, Instruction, IntegerRange, Literal, Number,
    NumberFormat, Operation, OutputColumn, ScanOutput, ScanPlan,
};
use rockmill_core::{BatchOutput, ErrorKind, Result};
use rockmill_cpu::scan::Scanner;
use rockmill_testkit::drawn_scans::Draw;

/// Stores the batches that it receives.
#[derive(Debug, Default)]
struct CollectedBatches(Vec<Batch>);

impl BatchSink for CollectedBatches {
    fn batch(&mut self, batch: Batch) -> Result<()> {
        self.0.push(batch);
        Ok(())
    }
}

/// The scanner's output for rows.
fn scan(plan: &ScanPlan, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(Vec<Batch>, BatchOutput)> {
    let mut kept = CollectedBatches::default();
    let mut scanner = Scanner::new(plan, &mut kept)?;
    for (key, value) in rows {
        scanner.row(key, value)?;
    }
    let output = scanner.finish()?;
    Ok((kept.0, output))
}

/// Like [`scan`], for plans that the model supports.
fn scanned(
    plan: &ScanPlan,
    rows: &[(Vec<u8>, Vec<u8>)],
) -> std::result::Result<(Vec<Batch>, BatchOutput), OutOfRange> {
    scan(plan, rows).map_err(|error| {
        assert_eq!(error.kind, ErrorKind::OutOfRange, "{error}");
        OutOfRange
    })
}

fn drawn_plan(bytes: &[u8]) -> ScanPlan {
    Draw(bytes).plan(true)
}

fn drawn_rows(bytes: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let row = |bytes: &Vec<u8>| {
        let mut draw = Draw(bytes);
        (draw.bytes(6), draw.bytes(20))
    };
    bytes.iter().map(row).collect()
}

proptest! {
    #![proptest_config(config(8000))]

    #[test]
    fn any_plan_makes_of_rows_what_the_model_makes(
        plan in proptest::collection::vec(any::<u8>(), 0..400),
        rows in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..40),
    ) {
        let (plan, rows) = (drawn_plan(&plan), drawn_rows(&rows));
        prop_assert_eq!(scanned(&plan, &rows), model::scan(&plan, &rows), "{:#?}", plan);
    }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn rows_of_many_batches_are_those_of_the_model(
        plan in proptest::collection::vec(any::<u8>(), 0..400),
        rows in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..40),
        repeated in 1000usize..2500,
    ) {
        let (plan, rows) = (drawn_plan(&plan), drawn_rows(&rows));
        // Each is repeated in its place, and then all are, so that batches begin and end with different rows.
        let twice = rows.iter().flat_map(|row| [row, row]).chain(&rows);
        let rows: Vec<_> = twice.cycle().take(repeated).cloned().collect();
        prop_assert_eq!(scanned(&plan, &rows), model::scan(&plan, &rows), "{:#?}", plan);
    }
}

/// The first row that fails counts, and in a row the first step, wherever batches end.
#[test]
fn the_error_is_that_of_the_first_row_that_fails() {
    let load = |at| Instruction::Load {
        from: 0,
        at,
        number: Number {
            bytes: 1,
            is_big_endian: false,
            format: NumberFormat::Unsigned,
        },
    };
    let check = |holds, what: &str| Check {
        holds,
        what: what.to_owned(),
        counts: false,
    };
    let differs = |left, right| Instruction::Compare {
        comparison: Comparison::NotEqual,
        left,
        right,
    };
    let constant = |integer| Instruction::Constant(Literal::Integer(integer));
    let exceeding = Instruction::Arithmetic {
        operation: Operation::Multiply,
        left: 4,
        right: 3,
        range: IntegerRange::Exact,
    };
    let plan = ScanPlan {
        instructions: vec![
            Instruction::Value,
            constant(0),
            constant(1),
            constant(i128::MAX),
            load(1),
            load(2),
            differs(4, 1),
            differs(5, 1),
            exceeding,
        ],
        checks: vec![check(6, "the first byte"), check(7, "the second byte")],
        filter: None,
        output: ScanOutput::Rows(vec![OutputColumn {
            register: 8,
            stored: ColumnType::Integer { bytes: 16 },
        }]),
    };
    const FAILING: [([u8; 2], &str); 4] = [
        ([0, 1], "the first byte"),
        ([1, 0], "the second byte"),
        ([0, 0], "the first byte"),
        ([2, 1], "128 bits"),
    ];
    for first in [0, 1, 1022, 1023, 1024, 1500] {
        for (bytes, what) in FAILING {
            for (later, _) in FAILING {
                let row = |number: usize| match number {
                    number if number == first => bytes,
                    number if number > first + 5 => later,
                    _ => [1, 1],
                };
                let rows: Vec<_> = (0..first + 10)
                    .map(|number| (number.to_be_bytes().to_vec(), row(number).to_vec()))
                    .collect();
                let error = scan(&plan, &rows).expect_err("a row fails").to_string();
                assert!(
                    error.contains(what),
                    "{first}, {bytes:?}, {later:?}: {error}"
                );
                let key = format!("key 0x{first:016x}");
                assert!(
                    what == "128 bits" || error.contains(&key),
                    "{first}: {error}"
                );
            }
        }
    }
}
