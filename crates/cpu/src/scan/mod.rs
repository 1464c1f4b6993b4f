//! From rows to batches, by the program of a scan.
//!
//! ```text
//!   rows --Scanner::row--> bytes of some rows, which fit the cache of a core
//!                            |  the filter's steps, each over all rows that are still selected
//!                            |  the output's steps, over the selected rows
//!                            v
//!                          Batches, Groups: one column or aggregate after another
//! ```
//!
//! The results are those of a loop that runs the whole program for one row after another. So is the error if rows fail. An
//! error of reading may come before those of the rows in front of it.

mod evaluate;
mod integer_set;
mod json;
mod leaves;
mod operands;
mod parse;
mod pattern;
mod program;
mod unselected;
mod value;
mod vector;

use std::ops::Range;
use std::sync::Arc;

use rockmill_core::columns::{Column, Group};
use rockmill_core::scan::{
    BatchSink, Batches, Groups, Instruction, OutputColumn, Register, ScanOutput, ScanPlan,
};
use rockmill_core::{BatchOutput, InputTable, Result};

use crate::read::retain::Sink;
pub(crate) use leaves::Leaves;
pub(crate) use parse::parse;

use evaluate::Rows;
use integer_set::IntegerSet;
use program::Program;
use value::Span;

/// Bytes of the rows of a batch, unless its only row has more, and of the results of its program.
const ROWS_BYTES: usize = 256 << 10;
const RESULTS_BYTES: usize = 1 << 20;

/// Bytes of the groups that the rows of a batch come from, besides the last one.
pub(crate) const GROUPS_BYTES: u64 = 4 << 20;

/// Limits of the number of rows of a batch.
const MIN_ROWS: usize = 16;
const MAX_ROWS: usize = 1024;

/// The same for a plan with padded strings, each of which may have 64 KiB of spaces that no row stores.
const MAX_PADDED_ROWS: usize = 128;

/// Bytes of a result at most.
const RESULT_BYTES: usize = size_of::<Span>();

/// Maximum rows of a batch.
fn max_rows(plan: &ScanPlan) -> usize {
    let of_row = RESULT_BYTES * plan.instructions.len().max(1);
    let most = match plan.pads() {
        true => MAX_PADDED_ROWS,
        false => MAX_ROWS,
    };
    (RESULTS_BYTES / of_row).clamp(MIN_ROWS, most)
}

/// Host memory of the batch that a scan of some tables computes, besides its output.
pub fn memory_bytes(plan: &ScanPlan, tables: &[InputTable]) -> u64 {
    let entries = tables.iter().map(|table| table.meta.properties.num_entries);
    let rows = entries.fold(0, u64::saturating_add);
    let rows = rows.min(max_rows(plan) as u64);
    let bytes = tables.iter().map(|table| table.meta.properties.raw_bytes());
    let bytes = bytes.fold(0, u64::saturating_add);
    let block = tables.iter().map(InputTable::largest_block_bytes).max();
    let bytes = bytes.min(block.unwrap_or(0).saturating_add(ROWS_BYTES as u64));
    // Computed strings are as long as rows, or longer.
    let strings = bytes.saturating_mul(plan.growth());
    let results = rows * (RESULT_BYTES * plan.instructions.len()) as u64;
    let lists = plan
        .instructions
        .iter()
        .map(|instruction| match instruction {
            Instruction::OneOf { values, .. } => IntegerSet::memory_bytes(values),
            _ => 0,
        });
    let all = [bytes, strings, results].into_iter().chain(lists);
    all.fold(0, u64::saturating_add)
}

/// Runs a plan over rows.
pub struct Scanner<'a> {
    program: Arc<Program>,
    /// Registers of the columns, if rows come from groups.
    columns: &'a [Register],
    /// The rows that wait for their batch to be full.
    rows: Rows<'a>,
    max_rows: usize,
    output: Output<'a>,
    sink: &'a mut dyn BatchSink,
    counts: BatchOutput,
}

/// The results from the selected rows.
enum Output<'a> {
    Rows(&'a [OutputColumn], Batches),
    Groups(Groups),
}

impl<'a> Scanner<'a> {
    /// A scanner before its first row.
    ///
    /// # Errors
    /// Internal if the plan is malformed.
    pub fn new(plan: &'a ScanPlan, sink: &'a mut dyn BatchSink) -> Result<Self> {
        let program = Program::new(plan, &plan.schedule()?);
        Self::with(plan, Arc::new(program), &[], sink)
    }

    /// A scanner of rows whose columns are parsed.
    ///
    /// # Errors
    /// Internal if the plan is malformed.
    pub fn over(
        plan: &'a ScanPlan,
        leaves: &'a Leaves,
        sink: &'a mut dyn BatchSink,
    ) -> Result<Self> {
        let program = Arc::clone(&leaves.program);
        Self::with(plan, program, &leaves.registers, sink)
    }

    fn with(
        plan: &'a ScanPlan,
        program: Arc<Program>,
        columns: &'a [Register],
        sink: &'a mut dyn BatchSink,
    ) -> Result<Self> {
        let types = plan.output.columns();
        let output = match &plan.output {
            ScanOutput::Rows(columns) => Output::Rows(columns, Batches::new(types)),
            ScanOutput::Groups(aggregation) => Output::Groups(Groups::new(aggregation, types)),
        };
        Ok(Self {
            program,
            columns,
            rows: Rows::new(plan, plan.kinds()?),
            max_rows: max_rows(plan),
            output,
            sink,
            counts: BatchOutput::default(),
        })
    }

    /// Adds the next row. Rows come in the order of their keys.
    ///
    /// # Errors
    /// OutOfRange if a number of this row or of one before it exceeds 128 bits or a column's row 2 GiB, and the errors
    /// of the sink.
    #[inline]
    pub fn row(&mut self, user_key: &[u8], value: &[u8]) -> Result<()> {
        self.rows.push(user_key, value);
        match self.rows.len() == self.max_rows || self.rows.bytes() >= ROWS_BYTES {
            true => self.run(),
            false => Ok(()),
        }
    }

    /// Adds rows of a group. The columns are those of the scanner.
    ///
    /// # Errors
    /// The errors of [`Scanner::row`].
    pub fn group(
        &mut self,
        group: &Arc<Group>,
        columns: &[Arc<Column>],
        rows: Range<usize>,
    ) -> Result<()> {
        let mut rest = rows;
        while !rest.is_empty() {
            let room = self.max_rows - self.rows.len();
            let taken = rest.start..rest.end.min(rest.start + room);
            rest.start = taken.end;
            self.rows.append(self.columns, group, columns, taken);
            let is_full = self.rows.len() == self.max_rows;
            if is_full || self.rows.group_bytes() >= GROUPS_BYTES {
                self.run()?;
            }
        }
        Ok(())
    }

    /// Counts rows of which none is selected or malformed.
    pub fn skip(&mut self, rows: usize) {
        self.counts.rows += rows as u64;
    }

    /// Runs the program over the rows that wait.
    fn run(&mut self) -> Result<()> {
        let rows = &mut self.rows;
        self.counts.rows += rows.len() as u64;
        rows.begin();
        for step in &self.program.filter {
            rows.step(step);
        }
        for step in &self.program.output {
            if rows.selected().is_empty() {
                break;
            }
            rows.step(step);
        }
        let selected = rows.selected();
        self.counts.selected += selected.len() as u64;
        match &mut self.output {
            Output::Rows(columns, batches) => batches.rows(self.sink, columns, selected, rows),
            Output::Groups(groups) => groups.rows(self.sink, selected, rows),
        }?;
        self.counts.malformed += rows.end(self.columns)?;
        Ok(())
    }

    /// Runs the program over the last rows, and passes on the last batch.
    ///
    /// # Errors
    /// The errors of [`Scanner::row`].
    pub fn finish(mut self) -> Result<BatchOutput> {
        self.run()?;
        match self.output {
            Output::Rows(_, mut batches) => batches.flush(self.sink)?,
            Output::Groups(groups) => groups.finish(self.sink)?,
        }
        Ok(self.counts)
    }
}

impl Sink for Scanner<'_> {
    #[inline]
    fn emit(&mut self, user_key: &[u8], _: u64, value: &[u8], _: u64, _: bool) -> Result<()> {
        self.row(user_key, value)
    }
}
