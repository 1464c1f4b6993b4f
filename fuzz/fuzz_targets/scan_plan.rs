//! The plan of a scan and rows: any plan and any row is run or refused.
//!
//! The first byte gives the size of the plan's bytes, in units of eight. The plan is drawn from them, so that it is
//! valid, or, if they begin like JSON, parsed as JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_core::scan::{Batch, BatchSink, ColumnType, ScanPlan};
use rockmill_core::{ErrorKind, Result};
use rockmill_cpu::scan::Scanner;

#[path = "../../dev/testkit/src/drawn_scans.rs"]
mod drawn_scans;
use drawn_scans::Draw;

const UNIT_BYTES: usize = 8;
const MAX_ROWS: usize = 64;

fuzz_target!(|input: &[u8]| {
    let Some((&units, rest)) = input.split_first() else {
        return;
    };
    let (plan, rows) = rest.split_at((usize::from(units) * UNIT_BYTES).min(rest.len()));
    if plan.first() != Some(&b'{') {
        run(&Draw(plan).plan(true), rows).expect("the plan is sound");
    } else if let Ok(plan) = serde_json::from_slice(plan) {
        let _ = run(&plan, rows);
    }
});

/// Runs a plan; an error if it is malformed.
fn run(plan: &ScanPlan, rows: &[u8]) -> Result<()> {
    let mut checked = Checked(plan.output.columns());
    let mut scanner = Scanner::new(plan, &mut checked)?;
    let mut draw = Draw(rows);
    for _ in 0..MAX_ROWS {
        let (key, value) = (draw.bytes(6), draw.bytes(20));
        if let Err(error) = scanner.row(&key, &value) {
            assert_eq!(error.kind, ErrorKind::OutOfRange);
            return Ok(());
        }
        if draw.0.is_empty() {
            break;
        }
    }
    if let Err(error) = scanner.finish() {
        assert_eq!(error.kind, ErrorKind::OutOfRange);
    }
    Ok(())
}

/// Checks the layout of batches.
struct Checked(Vec<ColumnType>);

impl BatchSink for Checked {
    fn batch(&mut self, batch: Batch) -> Result<()> {
        assert!(batch.rows > 0 && batch.columns.len() == self.0.len());
        let bits = batch.rows.div_ceil(8);
        for (column, stored) in batch.columns.iter().zip(&self.0) {
            assert!(
                column
                    .validity
                    .as_ref()
                    .is_none_or(|validity| validity.len() == bits)
            );
            match stored {
                ColumnType::Boolean => assert_eq!(column.values.len(), bits),
                ColumnType::Integer { .. } | ColumnType::Float { .. } => {
                    assert_eq!(column.values.len(), batch.rows * stored.row_bytes());
                }
                ColumnType::Bytes => {
                    assert_eq!(column.offsets.len(), batch.rows + 1);
                    assert!(column.offsets.is_sorted());
                    assert_eq!(
                        column.offsets.last().copied(),
                        i32::try_from(column.values.len()).ok()
                    );
                }
            }
        }
        Ok(())
    }
}
