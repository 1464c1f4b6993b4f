//! The computation of each instruction for many rows.

use rockmill_core::Result;
use rockmill_core::scan::{
    Cell, Comparison, Instruction, IntegerRange, Literal, Number, NumberFormat, Operation,
    Register, ValueKind, utf8_of_latin1,
};

use super::Rows;
use crate::scan::operands::{Operands, arithmetic, holds, prefixed};
use crate::scan::pattern::matches;
use crate::scan::value::{Source, Span, Value, cell_of};
use crate::scan::vector::{FALSE, NULL, Nulls, TRUE, Vector, boolean, is_null, set_null};

impl Rows<'_> {
    /// Computes the result of an instruction, whose operands are computed, and stores it.
    pub(super) fn compute(&mut self, register: Register) {
        if let Some(result) = self.result(register) {
            self.values[usize::from(register)] = result;
        }
    }

    /// The result of an instruction; `None` if it is there already.
    fn result(&mut self, register: Register) -> Option<Vector> {
        let plan = self.plan;
        let kind = self.kinds[usize::from(register)];
        Some(match &plan.instructions[usize::from(register)] {
            // JSON has steps of its own.
            Instruction::Key
            | Instruction::Value
            | Instruction::Constant(_)
            | Instruction::Json { .. } => return None,
            Instruction::Length(of) => self.integers(|row| Some(row.span(*of)?.len as i64)),
            Instruction::Load { from, at, number } => match self.load(*from, *at, *number) {
                Some(loaded) => loaded,
                None => self.each_value(kind, |row| {
                    let rest = row.rest(*from, *at);
                    Ok(rest.and_then(|rest| number.read(rest)).into())
                }),
            },
            Instruction::Slice { from, at, length } => self.spans(|row| {
                let span = row.span(*from)?;
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let len = usize::try_from(row.integer(*length)?).ok()?;
                let end = at.checked_add(len)?;
                (end <= span.len).then(|| span.part(at, end))
            }),
            Instruction::Prefixed { from, at, prefix } => self.spans(|row| {
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let (begin, end) = prefixed(row.bytes(*from)?, at, *prefix)?;
                Some(row.span(*from)?.part(begin, end))
            }),
            Instruction::AfterPrefixed {
                from,
                at,
                prefix,
                count,
            } => self.integers(|row| {
                let bytes = row.bytes(*from)?;
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let after = |at, _| Some(prefixed(bytes, at, *prefix)?.1);
                Some((0..*count).try_fold(at, after)? as i64)
            }),
            Instruction::Bit { from, at } => self.booleans(|row| {
                let at = usize::try_from(row.integer(*at)?).ok()?;
                let byte = row.bytes(*from)?.get(at / 8)?;
                Some(byte >> (at % 8) & 1 == 1)
            }),
            Instruction::Decimal { from, at, decimal } => self.each_value(kind, |row| {
                let rest = row.rest(*from, *at);
                Ok(rest.and_then(|rest| decimal.read(rest)).into())
            }),
            Instruction::Date { of, calendar } => {
                self.integers(|row| calendar.count(row.integer(*of)?))
            }
            Instruction::String {
                from,
                at,
                groups,
                spaces,
            } => self.each_value(kind, |row| {
                let decode = |rest| match spaces {
                    None => groups.decode(rest),
                    Some(spaces) => groups.decode_padded(rest, row.integer(*spaces)?),
                };
                Ok(row.rest(*from, *at).and_then(decode).into())
            }),
            Instruction::StringSize { from, at, groups } => self.integers(|row| {
                let rest = row.rest(*from, *at)?;
                Some(groups.size(rest)? as i64)
            }),
            Instruction::TrimEnd(of) => self.spans(|row| {
                let spaces = row.bytes(*of)?.iter().rev();
                let spaces = spaces.take_while(|byte| **byte == b' ').count();
                let span = row.span(*of)?;
                Some(span.part(0, span.len - spaces))
            }),
            Instruction::Text(of) => self.spans(|row| {
                std::str::from_utf8(row.bytes(*of)?).ok()?;
                row.span(*of)
            }),
            Instruction::Latin1(of) => self.each_value(kind, |row| {
                Ok(match row.bytes(*of) {
                    Some(bytes) if bytes.is_ascii() => row.span(*of).into(),
                    Some(bytes) => Value::String(utf8_of_latin1(bytes).into_bytes()),
                    None => Value::Null,
                })
            }),
            Instruction::Select {
                when,
                then,
                otherwise,
            } => match self.select(*when, *then, *otherwise) {
                Some(results) => results,
                None => self.each_value(kind, |row| {
                    Ok(match row.boolean(*when) {
                        Some(true) => row.value(*then),
                        _ => row.value(*otherwise),
                    })
                }),
            },
            Instruction::Compare {
                comparison,
                left,
                right,
            } => self.compare(*comparison, *left, *right),
            Instruction::And(left, right) => self.join(*left, *right, u8::min),
            Instruction::Or(left, right) => self.join(*left, *right, u8::max),
            Instruction::Not(of) => self.join(*of, *of, |of, _| TRUE - of),
            Instruction::IsNull(of) => self.is_null(*of),
            Instruction::Like { of, pattern } => {
                self.booleans(|row| Some(matches(pattern, row.bytes(*of)?)))
            }
            Instruction::OneOf { of, values } => match self.is_in_set(register, *of) {
                Some(results) => results,
                None => self.booleans(|row| {
                    let cell = row.cell(*of);
                    let found = || values.binary_search_by(|value| cell_of(value).cmp(&cell));
                    (cell != Cell::Null).then(|| found().is_ok())
                }),
            },
            Instruction::Arithmetic {
                operation,
                left,
                right,
                range,
            } => match self.arithmetic(*operation, *left, *right, *range) {
                Some(results) => results,
                None => self.each_value(kind, |row| {
                    let (Some(left), Some(right)) = (row.integer(*left), row.integer(*right))
                    else {
                        return Ok(Value::Null);
                    };
                    Ok(Value::Integer(arithmetic(*operation, left, right, *range)?))
                }),
            },
        })
    }

    /// One of two integers of 64 bits.
    fn select(&self, when: Register, then: Register, otherwise: Register) -> Option<Vector> {
        let Vector::Booleans(when) = self.vector(when) else {
            return None;
        };
        let (Vector::Integers(a, no_a), Vector::Integers(b, no_b)) =
            (self.vector(then), self.vector(otherwise))
        else {
            return None;
        };
        let rows = self.selection.end();
        let (mut results, mut nulls) = (vec![0; rows], None);
        for row in self.selection.rows().iter().map(|row| *row as usize) {
            let (from, no) = match when[row] {
                TRUE => (a, no_a),
                _ => (b, no_b),
            };
            results[row] = from[row];
            if is_null(no, row) {
                set_null(&mut nulls, row, rows);
            }
        }
        Some(Vector::Integers(results, nulls))
    }

    /// Whether integers of 64 bits are in the list of an instruction.
    fn is_in_set(&self, register: Register, of: Register) -> Option<Vector> {
        let Vector::Integers(integers, nulls) = self.vector(of) else {
            return None;
        };
        let set = self.sets.get(&register)?;
        let mut results = vec![NULL; self.selection.end()];
        for row in self.selection.rows().iter().map(|row| *row as usize) {
            if !is_null(nulls, row) {
                results[row] = boolean(set.has(integers[row]));
            }
        }
        Some(Vector::Booleans(results))
    }

    fn compare(&self, comparison: Comparison, left: Register, right: Register) -> Vector {
        let rows = &self.selection;
        let (Vector::Integers(a, no_a), Vector::Integers(b, no_b)) =
            (self.vector(left), self.vector(right))
        else {
            return self.booleans(|row| Some(holds(comparison, row.order(left, right)?)));
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
        Vector::Booleans(result)
    }

    /// A boolean from two others, each as a number.
    #[inline(always)]
    fn join(&self, left: Register, right: Register, join: impl FnMut(u8, u8) -> u8) -> Vector {
        match (self.vector(left), self.vector(right)) {
            (Vector::Booleans(a), Vector::Booleans(b)) => {
                Vector::Booleans(self.selection.map_both(a, b, join))
            }
            // `ScanPlan::kinds` allows no other operands.
            _ => self.booleans(|_| None),
        }
    }

    fn is_null(&self, of: Register) -> Vector {
        let rows = &self.selection;
        Vector::Booleans(match self.vector(of) {
            Vector::Booleans(of) => rows.map(of, |of| boolean(of == NULL)),
            Vector::Bytes(of) => rows.map(of, |of| boolean(of.source == Source::Null)),
            Vector::Integers(_, nulls) | Vector::Wide(_, nulls) => match nulls {
                Some(nulls) => rows.map(nulls, boolean),
                None => vec![FALSE; rows.end()],
            },
        })
    }

    /// Arithmetic of 64 bits, if no result has more bits or is wrapped to fewer.
    fn arithmetic(
        &self,
        operation: Operation,
        left: Register,
        right: Register,
        range: IntegerRange,
    ) -> Option<Vector> {
        let rows = &self.selection;
        let (
            IntegerRange::Exact | IntegerRange::WrapSigned { bytes: 8 | 16 },
            Vector::Integers(a, no_a),
            Vector::Integers(b, no_b),
        ) = (range, self.vector(left), self.vector(right))
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
            Operation::Subtract => rows.map_both(a, b, |a, b| checked(a.overflowing_sub(b))),
            Operation::Multiply => rows.map_both(a, b, |a, b| checked(a.overflowing_mul(b))),
        };
        (!exceeds).then(|| Vector::Integers(result, rows.nulls(no_a, no_b)))
    }

    /// Numbers at the same offset in all rows, if they fit 64 bits.
    fn load(&self, from: Register, at: Register, number: Number) -> Option<Vector> {
        let at = &self.plan.instructions[usize::from(at)];
        let (Instruction::Constant(Literal::Integer(at)), Vector::Bytes(spans)) =
            (at, self.vector(from))
        else {
            return None;
        };
        let at = usize::try_from(*at).ok()?;
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

    fn vector(&self, register: Register) -> &Vector {
        &self.values[usize::from(register)]
    }

    /// A value for each selected row, up to the first error.
    #[inline(always)]
    fn each_value(&mut self, kind: ValueKind, f: impl Fn(Operands<'_>) -> Result<Value>) -> Vector {
        let mut result = Vector::new(kind, self.selection.end());
        let mut failed = None;
        for row in self.selection.rows() {
            let row = *row as usize;
            let operands = Operands {
                values: &self.values,
                memory: &self.memory,
                row,
            };
            match f(operands) {
                Ok(value) => result.set(row, value, &mut self.memory),
                Err(error) => {
                    failed = Some((row, error));
                    break;
                }
            }
        }
        if let Some((row, error)) = failed {
            self.fail(row, error);
        }
        result
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
}
