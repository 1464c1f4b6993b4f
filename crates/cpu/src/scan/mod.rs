//! From rows to batches, by the program of a scan.

mod evaluate;
mod json;
mod pattern;
mod program;
mod value;

use std::cell::OnceCell;

use rockmill_core::scan::{
    BatchSink, Batches, Groups, Instruction, OutputColumn, Register, ScanOutput, ScanPlan,
};
use rockmill_core::{BatchOutput, Result};

use crate::read::retain::Sink;
use program::Program;
use value::{Row, Value};

/// Runs a plan over rows, one by one.
pub struct Scanner<'a> {
    plan: &'a ScanPlan,
    program: Program,
    /// Results of the instructions computed so far for the current row.
    values: Vec<Value>,
    /// [`Row::strings`] of the current row.
    strings: Vec<OnceCell<Vec<u8>>>,
    output: Output<'a>,
    sink: &'a mut dyn BatchSink,
    counts: BatchOutput,
}

/// What is computed from selected rows.
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
        let schedule = plan.schedule()?;
        let types = plan.output.columns();
        let output = match &plan.output {
            ScanOutput::Rows(columns) => Output::Rows(columns, Batches::new(types)),
            ScanOutput::Groups(aggregation) => Output::Groups(Groups::new(aggregation, types)),
        };
        let constant = |(register, instruction): (usize, &Instruction)| match instruction {
            Instruction::Constant(literal) => Value::of_literal(literal, register as Register),
            _ => Value::Null,
        };
        let makes_strings = (plan.instructions.iter()).any(|instruction| {
            matches!(
                instruction,
                Instruction::String { .. } | Instruction::Latin1(_) | Instruction::Json { .. }
            )
        });
        let strings = if makes_strings {
            plan.instructions.len()
        } else {
            0
        };
        Ok(Self {
            strings: vec![OnceCell::new(); strings],
            program: Program::new(plan, &schedule),
            values: plan.instructions.iter().enumerate().map(constant).collect(),
            plan,
            output,
            sink,
            counts: BatchOutput::default(),
        })
    }

    /// Processes the next row. Rows come in the order of their keys.
    ///
    /// # Errors
    /// OutOfRange if a number exceeds 128 bits or a column's row 2 GiB, and the errors of the sink.
    #[inline]
    pub fn row(&mut self, user_key: &[u8], value: &[u8]) -> Result<()> {
        self.strings.iter_mut().for_each(|string| {
            string.take();
        });
        let row = Row {
            plan: self.plan,
            key: user_key,
            value,
            strings: &self.strings,
        };
        self.counts.rows += 1;
        let mut is_wanted = true;
        for step in &self.program.filter {
            is_wanted = row.step(step, &mut self.values)?;
            if !is_wanted {
                break;
            }
        }
        let fails = |check: &Register| self.values[usize::from(*check)] != Value::Boolean(true);
        self.counts.malformed += u64::from(self.program.counted.iter().any(fails));
        if !is_wanted {
            return Ok(());
        }
        self.counts.wanted += 1;
        for step in &self.program.output {
            row.step(step, &mut self.values)?;
        }
        let values = &self.values;
        let cell = |register: Register| row.cell(&values[usize::from(register)]);
        match &mut self.output {
            Output::Rows(columns, batches) => {
                batches.row(self.sink, |column| cell(columns[column].register))
            }
            Output::Groups(groups) => groups.row(self.sink, cell),
        }
    }

    /// Passes on the last batch.
    ///
    /// # Errors
    /// The errors of [`Scanner::row`].
    pub fn finish(self) -> Result<BatchOutput> {
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
