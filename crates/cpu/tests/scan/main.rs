//! Scans: each instruction at its edges, random plans against a model, and scans of tables at snapshots.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/drawn_scans.rs"]
mod drawn_scans;
mod edges;
mod limits;
mod model;
mod tables;

use common::config;
use drawn_scans::Draw;
use model::OutOfRange;
use proptest::prelude::*;
use rockmill_core::scan::{Batch, BatchSink, ScanPlan};
use rockmill_core::{BatchOutput, ErrorKind, Result};
use rockmill_cpu::scan::Scanner;

/// Stores the batches that it receives.
#[derive(Debug, Default)]
struct Kept(Vec<Batch>);

impl BatchSink for Kept {
    fn batch(&mut self, batch: Batch) -> Result<()> {
        self.0.push(batch);
        Ok(())
    }
}

/// The scanner's output for rows.
fn scan(plan: &ScanPlan, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(Vec<Batch>, BatchOutput)> {
    let mut kept = Kept::default();
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
