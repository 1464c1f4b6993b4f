//! The operands of an instruction for one row: results of earlier instructions. And what several computations share.

use std::cmp::Ordering;

use rockmill_core::Result;
use rockmill_core::scan::{Cell, Comparison, IntegerRange, Operation, Prefix, Register, exceeds};

use super::value::{Memory, Span, Value};
use super::vector::Vector;

/// Results of earlier instructions for a row.
pub struct Operands<'a> {
    pub values: &'a [Vector],
    pub memory: &'a Memory,
    pub row: usize,
}

impl<'a> Operands<'a> {
    #[inline]
    pub fn vector(&self, register: Register) -> &'a Vector {
        &self.values[usize::from(register)]
    }

    #[inline]
    pub fn value(&self, register: Register) -> Value {
        self.vector(register).value(self.row)
    }

    #[inline]
    pub fn cell(&self, register: Register) -> Cell<'a> {
        self.vector(register).cell(self.row, self.memory)
    }

    #[inline]
    pub fn boolean(&self, register: Register) -> Option<bool> {
        self.vector(register).boolean(self.row)
    }

    #[inline]
    pub fn integer(&self, register: Register) -> Option<i128> {
        self.vector(register).integer(self.row)
    }

    #[inline]
    pub fn span(&self, register: Register) -> Option<Span> {
        self.vector(register).span(self.row)
    }

    #[inline]
    pub fn bytes(&self, register: Register) -> Option<&'a [u8]> {
        self.span(register).and_then(|span| self.memory.bytes(span))
    }

    /// The bytes from an offset on.
    #[inline]
    pub fn rest(&self, from: Register, at: Register) -> Option<&'a [u8]> {
        let at = usize::try_from(self.integer(at)?).ok()?;
        self.bytes(from)?.get(at..)
    }

    /// The order of two values of one kind.
    #[inline]
    pub fn order(&self, left: Register, right: Register) -> Option<Ordering> {
        match (self.cell(left), self.cell(right)) {
            (Cell::Null, _) | (_, Cell::Null) => None,
            (left, right) => Some(left.cmp(&right)),
        }
    }
}

/// Start and end of the bytes behind the length that is stored at an offset.
#[inline]
pub fn prefixed(bytes: &[u8], at: usize, prefix: Prefix) -> Option<(usize, usize)> {
    let (length, size) = prefix.read(bytes.get(at..)?)?;
    let begin = at + size;
    let end = begin.checked_add(usize::try_from(length).ok()?)?;
    (end <= bytes.len()).then_some((begin, end))
}

#[inline]
pub fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

#[inline]
pub fn arithmetic(
    operation: Operation,
    left: i128,
    right: i128,
    range: IntegerRange,
) -> Result<i128> {
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
