//! The steps of a program for many rows.

mod instructions;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rockmill_core::columns::{Column, Group};
use rockmill_core::scan::{Cell, Cells, Instruction, Literal, Register, ScanPlan, ValueKind};
use rockmill_core::{Error, Result};

use super::integer_set::IntegerSet;
use super::program::Op;
use super::value::{Memory, Source, Span, Value};
use super::vector::{Selection, TRUE, Vector};

/// Rows of which the steps of a program compute one value after another.
///
/// The first error in the order of the rows counts, and in a row the first one in the order of the steps. So an error
/// takes its row and all behind it out of the selection. A later error is then one of an earlier row.
pub struct Rows<'a> {
    plan: &'a ScanPlan,
    kinds: Vec<ValueKind>,
    /// The lists of integers, by the registers of their instructions.
    sets: HashMap<Register, IntegerSet>,
    memory: Memory,
    /// The user key of each row.
    keys: Vec<Span>,
    /// The value of each row.
    stored: Vec<Span>,
    /// Groups that rows come from, and the first of their columns in the memory.
    groups: Vec<(Arc<Group>, usize)>,
    /// Bytes of these groups and columns.
    group_bytes: u64,
    /// Parts of groups, in place of keys and values: the first row, the position of its group, and its row there.
    parts: Vec<(usize, usize, usize)>,
    /// Number of rows.
    count: usize,
    selection: Selection,
    /// Results of the instructions computed so far.
    values: Vec<Vector>,
    /// Rows in which a counted check does not hold.
    malformed: Vec<bool>,
    error: Option<Error>,
}

impl<'a> Rows<'a> {
    pub fn new(plan: &'a ScanPlan, kinds: Vec<ValueKind>) -> Self {
        let instructions = (0..).zip(&plan.instructions);
        let sets = instructions.filter_map(|(register, instruction)| match instruction {
            Instruction::OneOf { values, .. } => Some((register, IntegerSet::new(values)?)),
            _ => None,
        });
        Self {
            plan,
            sets: sets.collect(),
            memory: Memory::default(),
            keys: Vec::new(),
            stored: Vec::new(),
            groups: Vec::new(),
            group_bytes: 0,
            parts: Vec::new(),
            count: 0,
            selection: Selection::default(),
            values: kinds.iter().map(|kind| Vector::new(*kind, 0)).collect(),
            kinds,
            malformed: Vec::new(),
            error: None,
        }
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, user_key: &[u8], value: &[u8]) {
        self.keys.push(self.memory.keep(Source::Rows, user_key));
        self.stored.push(self.memory.keep(Source::Rows, value));
        self.count += 1;
    }

    /// Adds rows of a group, whose columns are the values at some registers.
    pub fn append(
        &mut self,
        registers: &[Register],
        group: &Arc<Group>,
        columns: &[Arc<Column>],
        rows: Range<usize>,
    ) {
        let known = self
            .groups
            .iter()
            .rposition(|(known, _)| Arc::ptr_eq(known, group));
        let at = known.unwrap_or_else(|| {
            let bytes = columns.iter().map(|column| column.bytes());
            self.group_bytes += group.bytes() + bytes.sum::<u64>();
            self.groups
                .push((Arc::clone(group), self.memory.columns.len()));
            self.memory.columns.extend_from_slice(columns);
            self.groups.len() - 1
        });
        let first = self.groups[at].1;
        for (position, (register, column)) in registers.iter().zip(columns).enumerate() {
            let vector = &mut self.values[usize::from(*register)];
            vector.append(column, rows.clone(), (first + position) as u32);
        }
        self.parts.push((self.count, at, rows.start));
        self.count += rows.len();
    }

    /// Passes on the values at some registers, for all rows.
    pub fn results(&self, registers: &[Register], mut take: impl FnMut(usize, &Vector, &Memory)) {
        for (position, register) in registers.iter().enumerate() {
            take(position, &self.values[usize::from(*register)], &self.memory);
        }
    }

    /// The user key of a row.
    fn key(&self, row: usize) -> &[u8] {
        if let Some(key) = self.keys.get(row) {
            return self.memory.bytes(*key).unwrap_or_default();
        }
        let part = self.parts.partition_point(|(begin, ..)| *begin <= row);
        let part = part.checked_sub(1).and_then(|part| self.parts.get(part));
        let key = part
            .and_then(|(begin, group, first)| self.groups[*group].0.keys.row(first + row - begin));
        key.unwrap_or_default()
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.memory.rows.len()
    }

    /// Bytes of the groups that rows come from.
    pub fn group_bytes(&self) -> u64 {
        self.group_bytes
    }

    /// The rows that no step has rejected.
    pub fn selected(&self) -> &[u32] {
        self.selection.rows()
    }

    /// Selects all rows, and sets the values that rows and constants have without a computation.
    pub fn begin(&mut self) {
        let rows = self.count;
        self.selection.all(rows);
        self.malformed.clear();
        self.malformed.resize(rows, false);
        for (register, instruction) in self.plan.instructions.iter().enumerate() {
            match instruction {
                // Columns are there already.
                Instruction::Key | Instruction::Value if self.keys.is_empty() => {}
                Instruction::Key => self.values[register] = Vector::Bytes(self.keys.clone()),
                Instruction::Value => self.values[register] = Vector::Bytes(self.stored.clone()),
                Instruction::Constant(literal) if self.values[register].rows() < rows => {
                    // For batches of all sizes soon.
                    let rows = rows.next_power_of_two();
                    let kind = self.kinds[register];
                    self.values[register] = constant(literal, kind, rows, &mut self.memory);
                }
                _ => {}
            }
        }
    }

    /// Forgets all rows, and the columns at some registers. Returns the number of rows that are malformed.
    ///
    /// # Errors
    /// The first one of the steps.
    pub fn end(&mut self, columns: &[Register]) -> Result<u64> {
        for register in columns {
            let at = usize::from(*register);
            self.values[at] = Vector::new(self.kinds[at], 0);
        }
        self.count = 0;
        self.parts.clear();
        self.groups.clear();
        self.group_bytes = 0;
        self.memory.columns.clear();
        self.keys.clear();
        self.stored.clear();
        self.memory.rows.clear();
        self.memory.strings.clear();
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(self.malformed.iter().filter(|is| **is).count() as u64),
        }
    }

    /// Executes a step for the selected rows.
    pub fn step(&mut self, step: &Op) {
        match step {
            Op::Json(taken) => {
                let rows = self.selection.end();
                let mut results: Vec<_> = (taken.registers())
                    .map(|register| Vector::new(self.kinds[usize::from(register)], rows))
                    .collect();
                let from = &self.values[usize::from(taken.from)];
                for row in self.selection.rows() {
                    let row = *row as usize;
                    let found = taken.parse(&self.memory, from.span(row));
                    for (result, value) in results.iter_mut().zip(found) {
                        result.set(row, value, &mut self.memory);
                    }
                }
                for (register, result) in taken.registers().zip(results) {
                    self.values[usize::from(register)] = result;
                }
            }
            Op::Compute(register) => self.compute(*register),
            Op::Check(check) => self.check(*check),
            Op::Require(register) => {
                let required = &self.values[usize::from(*register)];
                if let Vector::Booleans(values) = required {
                    self.selection.retain(|row| values[row] == TRUE);
                }
            }
        }
    }

    fn check(&mut self, position: usize) {
        let check = &self.plan.checks[position];
        let Vector::Booleans(holds) = &self.values[usize::from(check.holds)] else {
            return;
        };
        let rows = self.selection.rows().iter().map(|row| *row as usize);
        let mut fails = rows.filter(|row| holds[*row] != TRUE);
        if check.counts {
            fails.for_each(|row| self.malformed[row] = true);
        } else if let Some(row) = fails.next() {
            let error = check.failed(self.key(row));
            self.fail(row, error);
        }
    }

    fn fail(&mut self, row: usize, error: Error) {
        self.selection.cut(row);
        self.error = Some(error);
    }
}

impl Cells for Rows<'_> {
    #[inline]
    fn cell(&self, register: Register, row: usize) -> Cell<'_> {
        self.values[usize::from(register)].cell(row, &self.memory)
    }

    #[inline]
    fn integers(&self, register: Register) -> Option<(&[i64], Option<&[bool]>)> {
        match &self.values[usize::from(register)] {
            Vector::Integers(values, nulls) => Some((values, nulls.as_deref())),
            _ => None,
        }
    }
}

/// A constant for each of some rows.
fn constant(literal: &Literal, kind: ValueKind, rows: usize, memory: &mut Memory) -> Vector {
    let value: Value = match literal {
        Literal::Null(_) => Value::Null,
        Literal::Boolean(is_true) => Value::Boolean(*is_true),
        Literal::Integer(integer) => Value::Integer(*integer),
        Literal::Bytes(bytes) => Value::Bytes(memory.keep(Source::Constants, bytes)),
    };
    let mut constant = Vector::new(kind, rows);
    for row in 0..rows {
        constant.set(row, value.clone(), memory);
    }
    constant
}
