//! The computation of each instruction.

use std::cmp::Ordering;

use rockmill_core::Result;
use rockmill_core::scan::{
    Cell, Comparison, Instruction, IntegerRange, Literal, Operation, Prefix, Register, exceeds,
    utf8_of_latin1,
};

use super::pattern::matches;
use super::program::Op;
use super::value::{Row, Source, Span, Value};

impl Row<'_> {
    /// Executes a step for a row. False if the row is rejected.
    #[inline(always)]
    pub fn step(&self, step: &Op, values: &mut [Value]) -> Result<bool> {
        match *step {
            Op::Load {
                from_key,
                at,
                number,
                to,
            } => {
                let bytes = if from_key { self.key } else { self.value };
                let loaded = bytes.get(at..).and_then(|bytes| number.read(bytes));
                values[usize::from(to)] = loaded.map_or(Value::Null, Value::Integer);
            }
            Op::RequireOrder {
                left,
                comparison,
                right,
                to,
            } => match &values[usize::from(left)] {
                Value::Integer(left) if holds(comparison, left.cmp(&right)) => {
                    values[usize::from(to)] = Value::Boolean(true);
                }
                _ => return Ok(false),
            },
            Op::Json(ref taken) => taken.set(self, values),
            Op::Compute(register) => self.compute(register, values)?,
            Op::Check(check) => {
                let check = &self.plan.checks[check];
                if values[usize::from(check.holds)] != Value::Boolean(true) {
                    return Err(check.failed(self.key));
                }
            }
            Op::Require(register) => {
                return Ok(matches!(
                    values[usize::from(register)],
                    Value::Boolean(true)
                ));
            }
        }
        Ok(true)
    }

    /// Computes the result of an instruction, whose operands are computed, and stores it.
    fn compute(&self, register: Register, values: &mut [Value]) -> Result<()> {
        let operands = Operands { row: self, values };
        let result = match &self.plan.instructions[usize::from(register)] {
            Instruction::Key => Value::all(Source::Key, self.key),
            Instruction::Value => Value::all(Source::Value, self.value),
            Instruction::Constant(literal) => Value::of_literal(literal, register),
            Instruction::Length(of) => {
                (operands.span(*of)).map_or(Value::Null, |span| Value::Integer(span.len as i128))
            }
            Instruction::Load { from, at, number } => {
                let loaded = operands.rest(*from, *at).and_then(|rest| number.read(rest));
                loaded.map_or(Value::Null, Value::Integer)
            }
            Instruction::Slice { from, at, length } => {
                let slice = || {
                    let span = operands.span(*from)?;
                    let at = usize::try_from(operands.integer(*at)?).ok()?;
                    let len = usize::try_from(operands.integer(*length)?).ok()?;
                    let is_inside = at.checked_add(len)? <= span.len;
                    is_inside.then(|| Span {
                        start: span.start + at,
                        len,
                        ..span
                    })
                };
                slice().map_or(Value::Null, Value::Bytes)
            }
            Instruction::Prefixed { from, at, prefix } => {
                let prefixed = || {
                    let span = operands.span(*from)?;
                    let at = usize::try_from(operands.integer(*at)?).ok()?;
                    let (begin, end) = prefixed(self.bytes(span), at, *prefix)?;
                    Some(Span {
                        start: span.start + begin,
                        len: end - begin,
                        ..span
                    })
                };
                prefixed().map_or(Value::Null, Value::Bytes)
            }
            Instruction::AfterPrefixed {
                from,
                at,
                prefix,
                count,
            } => {
                let after = || {
                    let bytes = operands.bytes(*from)?;
                    let at = usize::try_from(operands.integer(*at)?).ok()?;
                    (0..*count).try_fold(at, |at, _| Some(prefixed(bytes, at, *prefix)?.1))
                };
                after().map_or(Value::Null, |at| Value::Integer(at as i128))
            }
            Instruction::Bit { from, at } => {
                let bit = || {
                    let at = usize::try_from(operands.integer(*at)?).ok()?;
                    let byte = operands.bytes(*from)?.get(at / 8)?;
                    Some(byte >> (at % 8) & 1 == 1)
                };
                bit().map_or(Value::Null, Value::Boolean)
            }
            Instruction::Decimal { from, at, decimal } => {
                let decimal = operands
                    .rest(*from, *at)
                    .and_then(|rest| decimal.read(rest));
                decimal.map_or(Value::Null, Value::Integer)
            }
            Instruction::Date { of, calendar } => {
                let date = operands.integer(*of).and_then(|of| calendar.count(of));
                date.map_or(Value::Null, |date| Value::Integer(i128::from(date)))
            }
            Instruction::String {
                from,
                at,
                groups,
                spaces,
            } => {
                let string = operands.rest(*from, *at).and_then(|rest| match spaces {
                    None => groups.decode(rest),
                    Some(spaces) => groups.decode_padded(rest, operands.integer(*spaces)?),
                });
                string.map_or(Value::Null, |string| self.keep(string, register))
            }
            Instruction::StringSize { from, at, groups } => {
                let size = operands.rest(*from, *at).and_then(|rest| groups.size(rest));
                size.map_or(Value::Null, |size| Value::Integer(size as i128))
            }
            Instruction::TrimEnd(of) => (operands.span(*of)).map_or(Value::Null, |span| {
                let spaces = self.bytes(span).iter().rev();
                let spaces = spaces.take_while(|byte| **byte == b' ').count();
                let len = span.len - spaces;
                Value::Bytes(Span { len, ..span })
            }),
            Instruction::Text(of) => match operands.bytes(*of) {
                Some(bytes) if std::str::from_utf8(bytes).is_ok() => *operands.value(*of),
                _ => Value::Null,
            },
            Instruction::Latin1(of) => match operands.bytes(*of) {
                Some(bytes) if bytes.is_ascii() => *operands.value(*of),
                Some(bytes) => self.keep(utf8_of_latin1(bytes).into_bytes(), register),
                None => Value::Null,
            },
            // `Op::Json` does.
            Instruction::Json { .. } => return Ok(()),
            Instruction::Select {
                when,
                then,
                otherwise,
            } => match operands.value(*when) {
                Value::Boolean(true) => *operands.value(*then),
                _ => *operands.value(*otherwise),
            },
            Instruction::Compare {
                comparison,
                left,
                right,
            } => operands.order(*left, *right).map_or(Value::Null, |order| {
                Value::Boolean(holds(*comparison, order))
            }),
            Instruction::And(left, right) => operands.join(*left, *right, false),
            Instruction::Or(left, right) => operands.join(*left, *right, true),
            Instruction::Not(of) => match operands.value(*of) {
                Value::Boolean(is_true) => Value::Boolean(!is_true),
                _ => Value::Null,
            },
            Instruction::IsNull(of) => Value::Boolean(*operands.value(*of) == Value::Null),
            Instruction::Like { of, pattern } => (operands.bytes(*of))
                .map_or(Value::Null, |bytes| Value::Boolean(matches(pattern, bytes))),
            Instruction::OneOf { of, values } => match self.cell(operands.value(*of)) {
                Cell::Null => Value::Null,
                cell => {
                    let found = values.binary_search_by(|value| cell_of(value).cmp(&cell));
                    Value::Boolean(found.is_ok())
                }
            },
            Instruction::Arithmetic {
                operation,
                left,
                right,
                range,
            } => match (operands.integer(*left), operands.integer(*right)) {
                (Some(left), Some(right)) => {
                    Value::Integer(arithmetic(*operation, left, right, *range)?)
                }
                _ => Value::Null,
            },
        };
        values[usize::from(register)] = result;
        Ok(())
    }
}

/// Results of earlier instructions.
struct Operands<'a> {
    row: &'a Row<'a>,
    values: &'a [Value],
}

impl<'a> Operands<'a> {
    #[inline]
    fn value(&self, register: Register) -> &'a Value {
        &self.values[usize::from(register)]
    }

    #[inline]
    fn integer(&self, register: Register) -> Option<i128> {
        match self.value(register) {
            Value::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    #[inline]
    fn span(&self, register: Register) -> Option<Span> {
        match self.value(register) {
            Value::Bytes(span) => Some(*span),
            _ => None,
        }
    }

    #[inline]
    fn bytes(&self, register: Register) -> Option<&'a [u8]> {
        self.span(register).map(|span| self.row.bytes(span))
    }

    /// The bytes from an offset on.
    #[inline]
    fn rest(&self, from: Register, at: Register) -> Option<&'a [u8]> {
        let at = usize::try_from(self.integer(at)?).ok()?;
        self.bytes(from)?.get(at..)
    }

    /// The order of two values of one kind.
    #[inline]
    fn order(&self, left: Register, right: Register) -> Option<Ordering> {
        match (self.value(left), self.value(right)) {
            (Value::Null, _) | (_, Value::Null) => None,
            (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
            (left, right) => Some(self.row.cell(left).cmp(&self.row.cell(right))),
        }
    }

    /// The And of two booleans, which a false operand decides, or the Or, which a true one decides.
    #[inline]
    fn join(&self, left: Register, right: Register, deciding: bool) -> Value {
        let boolean = |register| match self.value(register) {
            Value::Boolean(is_true) => Some(*is_true),
            _ => None,
        };
        match (boolean(left), boolean(right)) {
            (Some(left), _) if left == deciding => Value::Boolean(deciding),
            (_, Some(right)) if right == deciding => Value::Boolean(deciding),
            (Some(_), Some(_)) => Value::Boolean(!deciding),
            _ => Value::Null,
        }
    }
}

/// Start and end of the bytes behind the length that is stored at an offset.
#[inline]
fn prefixed(bytes: &[u8], at: usize, prefix: Prefix) -> Option<(usize, usize)> {
    let (length, size) = prefix.read(bytes.get(at..)?)?;
    let begin = at + size;
    let end = begin.checked_add(usize::try_from(length).ok()?)?;
    (end <= bytes.len()).then_some((begin, end))
}

#[inline]
fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

fn cell_of(literal: &Literal) -> Cell<'_> {
    match literal {
        Literal::Null(_) => Cell::Null,
        Literal::Boolean(is_true) => Cell::Boolean(*is_true),
        Literal::Integer(integer) => Cell::Integer(*integer),
        Literal::Bytes(bytes) => Cell::Bytes(bytes),
    }
}

#[inline]
fn arithmetic(operation: Operation, left: i128, right: i128, range: IntegerRange) -> Result<i128> {
    // No result of two integers of 64 bits exceeds 128 bits.
    if let (Ok(left), Ok(right)) = (i64::try_from(left), i64::try_from(right)) {
        let (left, right) = (i128::from(left), i128::from(right));
        return Ok(range.wrap(match operation {
            Operation::Add => left + right,
            Operation::Subtract => left - right,
            Operation::Multiply => left * right,
        }));
    }
    let (result, is_over) = match operation {
        Operation::Add => left.overflowing_add(right),
        Operation::Subtract => left.overflowing_sub(right),
        Operation::Multiply => left.overflowing_mul(right),
    };
    match range {
        IntegerRange::Exact if is_over => Err(exceeds("a number")),
        range => Ok(range.wrap(result)),
    }
}
