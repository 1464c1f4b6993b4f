//! The computation of each instruction for many rows.

use std::ops::Range;
use std::sync::Arc;

use rockmill_core::columns::{Column, Group};
use rockmill_core::scan::{
    Cell, Cells, Comparison, Instruction, IntegerRange, Literal, Number, NumberFormat, Operation,
    Register, ScanPlan, ValueKind,
};
use rockmill_core::{Error, Result};

use super::operands::{Operands, holds, prefixed};
use super::pattern::matches;
use super::program::Op;
use super::value::{Memory, Source, Span, Value, cell_of};
use super::vector::{FALSE, NULL, Nulls, Selection, TRUE, Vector, boolean};

/// Rows of which the steps of a program compute one value after another.
///
/// The first error in the order of the rows counts, and in a row the first one in the order of the steps. So an error
/// takes its row and all behind it out of the selection. A later error is then one of an earlier row.
pub struct Rows<'a> {
    plan: &'a ScanPlan,
    kinds: Vec<ValueKind>,
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
        Self {
            plan,
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

    /// Computes the result of an instruction, whose operands are computed, and stores it.
    fn compute(&mut self, register: Register) {
        let at = usize::from(register);
        let instruction = &self.plan.instructions[at];
        if matches!(instruction, Instruction::Key | Instruction::Value) {
            return;
        }
        if let Some(result) = self.computed_at_once(instruction) {
            self.values[at] = result;
            return;
        }
        let mut result = Vector::new(self.kinds[at], self.selection.end());
        let mut failed = None;
        for row in self.selection.rows() {
            let row = *row as usize;
            let operands = Operands {
                values: &self.values,
                memory: &self.memory,
                row,
            };
            match operands.compute(instruction) {
                Ok(value) => result.set(row, value, &mut self.memory),
                Err(error) => {
                    failed = Some((row, error));
                    break;
                }
            }
        }
        self.values[at] = result;
        if let Some((row, error)) = failed {
            self.fail(row, error);
        }
    }

    /// The results of an instruction by a loop of its own, if it has one for these operands. The results are those of
    /// [`Operands::compute`].
    fn computed_at_once(&self, instruction: &Instruction) -> Option<Vector> {
        let value = |register: &Register| &self.values[usize::from(*register)];
        let rows = &self.selection;
        match instruction {
            Instruction::Load { from, at, number } => {
                let Instruction::Constant(Literal::Integer(at)) =
                    self.plan.instructions[usize::from(*at)]
                else {
                    return None;
                };
                let Vector::Bytes(spans) = value(from) else {
                    return None;
                };
                self.load(spans, usize::try_from(at).ok()?, *number)
            }
            Instruction::Compare {
                comparison,
                left,
                right,
            } => {
                let (Vector::Integers(a, no_a), Vector::Integers(b, no_b)) =
                    (value(left), value(right))
                else {
                    return Some(self.booleans(|row| {
                        let order = row.order(*left, *right)?;
                        Some(holds(*comparison, order))
                    }));
                };
                let mut result = match comparison {
                    Comparison::Equal => rows.map_both(a, b, |a, b| boolean(a == b)),
                    Comparison::NotEqual => rows.map_both(a, b, |a, b| boolean(a != b)),
                    Comparison::Less => rows.map_both(a, b, |a, b| boolean(a < b)),
                    Comparison::LessOrEqual => rows.map_both(a, b, |a, b| boolean(a <= b)),
                    Comparison::Greater => rows.map_both(a, b, |a, b| boolean(a > b)),
                    Comparison::GreaterOrEqual => rows.map_both(a, b, |a, b| boolean(a >= b)),
                };
                if let Some(nulls) = rows.nulls(no_a, no_b) {
                    let both = result.iter_mut().zip(nulls);
                    both.filter(|(_, is_null)| *is_null)
                        .for_each(|(value, _)| *value = NULL);
                }
                Some(Vector::Booleans(result))
            }
            Instruction::And(left, right) | Instruction::Or(left, right) => {
                let (Vector::Booleans(a), Vector::Booleans(b)) = (value(left), value(right)) else {
                    return None;
                };
                Some(Vector::Booleans(match instruction {
                    Instruction::And(..) => rows.map_both(a, b, u8::min),
                    _ => rows.map_both(a, b, u8::max),
                }))
            }
            Instruction::Not(of) => match value(of) {
                Vector::Booleans(of) => Some(Vector::Booleans(rows.map(of, |of| TRUE - of))),
                _ => None,
            },
            Instruction::IsNull(of) => Some(Vector::Booleans(match value(of) {
                Vector::Booleans(of) => rows.map(of, |of| boolean(of == NULL)),
                Vector::Bytes(of) => rows.map(of, |of| boolean(of.source == Source::Null)),
                Vector::Integers(_, nulls) | Vector::Wide(_, nulls) => match nulls {
                    Some(nulls) => rows.map(nulls, boolean),
                    None => vec![FALSE; rows.end()],
                },
            })),
            Instruction::Arithmetic {
                operation,
                left,
                right,
                range: IntegerRange::Exact | IntegerRange::WrapSigned { bytes: 8 | 16 },
            } => {
                let (Vector::Integers(a, no_a), Vector::Integers(b, no_b)) =
                    (value(left), value(right))
                else {
                    return None;
                };
                let mut exceeds = false;
                let mut checked = |(result, is_over): (i64, bool)| {
                    exceeds |= is_over;
                    result
                };
                let result = match operation {
                    Operation::Add => rows.map_both(a, b, |a, b| checked(a.overflowing_add(b))),
                    Operation::Subtract => {
                        rows.map_both(a, b, |a, b| checked(a.overflowing_sub(b)))
                    }
                    Operation::Multiply => {
                        rows.map_both(a, b, |a, b| checked(a.overflowing_mul(b)))
                    }
                };
                // Otherwise some results have 128 bits or are wrapped.
                (!exceeds).then(|| Vector::Integers(result, rows.nulls(no_a, no_b)))
            }
            Instruction::Like { of, pattern } => Some(self.booleans(|row| {
                let bytes = row.bytes(*of)?;
                Some(matches(pattern, bytes))
            })),
            Instruction::OneOf { of, values } => Some(self.booleans(|row| {
                let cell = row.cell(*of);
                let is_found = || {
                    values
                        .binary_search_by(|value| cell_of(value).cmp(&cell))
                        .is_ok()
                };
                (cell != Cell::Null).then(is_found)
            })),
            Instruction::Bit { from, at } => Some(self.booleans(|row| {
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let byte = row.bytes(*from)?.get(at / 8)?;
                Some(byte >> (at % 8) & 1 == 1)
            })),
            Instruction::Length(of) => Some(self.integers(|row| Some(row.span(*of)?.len as i64))),
            Instruction::AfterPrefixed {
                from,
                at,
                prefix,
                count,
            } => Some(self.integers(|row| {
                let bytes = row.bytes(*from)?;
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let after = |at, _| Some(prefixed(bytes, at, *prefix)?.1);
                Some((0..*count).try_fold(at, after)? as i64)
            })),
            Instruction::StringSize { from, at, groups } => Some(self.integers(|row| {
                let rest = row.rest(*from, *at)?;
                Some(groups.size(rest)? as i64)
            })),
            Instruction::Date { of, calendar } => {
                Some(self.integers(|row| calendar.count(row.integer(*of)?)))
            }
            Instruction::Slice { from, at, length } => Some(self.spans(|row| {
                let span = row.span(*from)?;
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let len = usize::try_from(row.integer(*length)?).ok()?;
                let end = at.checked_add(len)?;
                (end <= span.len).then(|| span.part(at, end))
            })),
            Instruction::Prefixed { from, at, prefix } => Some(self.spans(|row| {
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let (begin, end) = prefixed(row.bytes(*from)?, at, *prefix)?;
                Some(row.span(*from)?.part(begin, end))
            })),
            Instruction::TrimEnd(of) => Some(self.spans(|row| {
                let spaces = row.bytes(*of)?.iter().rev();
                let spaces = spaces.take_while(|byte| **byte == b' ').count();
                let span = row.span(*of)?;
                Some(span.part(0, span.len - spaces))
            })),
            Instruction::Text(of) => Some(self.spans(|row| {
                std::str::from_utf8(row.bytes(*of)?).ok()?;
                row.span(*of)
            })),
            _ => None,
        }
    }

    /// A value for each selected row, and another one for the rows before and between them.
    #[inline(always)]
    fn each<T: Clone>(&self, other: T, mut f: impl FnMut(Operands<'_>) -> T) -> Vec<T> {
        let mut values = vec![other; self.selection.end()];
        for row in self.selection.rows() {
            let row = *row as usize;
            values[row] = f(Operands {
                values: &self.values,
                memory: &self.memory,
                row,
            });
        }
        values
    }

    #[inline(always)]
    fn booleans(&self, f: impl Fn(Operands<'_>) -> Option<bool>) -> Vector {
        Vector::Booleans(self.each(NULL, |row| f(row).map_or(NULL, boolean)))
    }

    #[inline(always)]
    fn spans(&self, f: impl Fn(Operands<'_>) -> Option<Span>) -> Vector {
        Vector::Bytes(self.each(Span::NULL, |row| f(row).unwrap_or(Span::NULL)))
    }

    #[inline(always)]
    fn integers(&self, f: impl Fn(Operands<'_>) -> Option<i64>) -> Vector {
        let mut nulls: Nulls = None;
        let rows = self.selection.end();
        let values = self.each(0, |row| {
            let at = row.row;
            f(row).unwrap_or_else(|| {
                nulls.get_or_insert_with(|| vec![false; rows])[at] = true;
                0
            })
        });
        Vector::Integers(values, nulls)
    }

    /// Numbers at the same offset in all rows, if they fit 64 bits.
    fn load(&self, spans: &[Span], at: usize, number: Number) -> Option<Vector> {
        macro_rules! load {
            ($signed:ty, $unsigned:ty) => {
                self.load_as(spans, at, |stored| {
                    let raw = match number.is_big_endian {
                        true => <$signed>::from_be_bytes(stored),
                        false => <$signed>::from_le_bytes(stored),
                    };
                    match number.format {
                        NumberFormat::Unsigned => i64::from(raw as $unsigned),
                        NumberFormat::Signed => i64::from(raw),
                        NumberFormat::SignedInverted => i64::from(raw ^ <$signed>::MIN),
                        NumberFormat::Float if raw < 0 => i64::from(raw ^ <$signed>::MAX),
                        NumberFormat::Float => i64::from(raw),
                    }
                })
            };
        }
        Some(match number.bytes {
            1 => load!(i8, u8),
            2 => load!(i16, u16),
            4 => load!(i32, u32),
            // Unsigned ones may not fit.
            8 if number.format != NumberFormat::Unsigned => load!(i64, i64),
            _ => return None,
        })
    }

    #[inline(always)]
    fn load_as<const BYTES: usize>(
        &self,
        spans: &[Span],
        at: usize,
        convert: impl Fn([u8; BYTES]) -> i64,
    ) -> Vector {
        self.integers(|row| {
            let bytes = row.memory.bytes(spans[row.row])?;
            Some(convert(*bytes.get(at..)?.first_chunk()?))
        })
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
