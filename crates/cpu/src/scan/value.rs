//! Values while a program runs.

use std::cell::OnceCell;

use rockmill_core::scan::{Cell, Instruction, Literal, Register, ScanPlan};

/// Result of an instruction. It borrows nothing, so that one list serves all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Null,
    Boolean(bool),
    Integer(i128),
    Bytes(Span),
}

/// A part of what a row or a constant holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub source: Source,
    pub start: usize,
    pub len: usize,
}

/// The memory that bytes are a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Key,
    Value,
    /// The constant of an instruction.
    Constant(Register),
    /// The string of an instruction.
    String(Register),
}

impl Value {
    /// The result of the constant at a register.
    pub fn of_literal(literal: &Literal, register: Register) -> Self {
        match literal {
            Literal::Null(_) => Self::Null,
            Literal::Boolean(is_true) => Self::Boolean(*is_true),
            Literal::Integer(integer) => Self::Integer(*integer),
            Literal::Bytes(bytes) => Self::all(Source::Constant(register), bytes),
        }
    }

    /// All bytes of a source.
    #[inline]
    pub fn all(source: Source, bytes: &[u8]) -> Self {
        Self::Bytes(Span {
            source,
            start: 0,
            len: bytes.len(),
        })
    }
}

/// The row at hand.
pub struct Row<'a> {
    pub plan: &'a ScanPlan,
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Strings whose bytes are not contiguous in the row, by the instructions that make them; none if no instruction
    /// does.
    pub strings: &'a [OnceCell<Vec<u8>>],
}

impl<'a> Row<'a> {
    /// Keeps the string that an instruction has made of this row.
    pub fn keep(&self, string: Vec<u8>, register: Register) -> Value {
        let place = self.strings.get(usize::from(register));
        place.map_or(Value::Null, |place| {
            Value::all(Source::String(register), place.get_or_init(|| string))
        })
    }

    /// The bytes of a span.
    #[inline]
    pub fn bytes(&self, span: Span) -> &'a [u8] {
        let all = match span.source {
            Source::Key => self.key,
            Source::Value => self.value,
            Source::Constant(register) => match &self.plan.instructions[usize::from(register)] {
                Instruction::Constant(Literal::Bytes(bytes)) => bytes.as_slice(),
                _ => &[],
            },
            Source::String(register) => {
                let string = self.strings.get(usize::from(register));
                string
                    .and_then(OnceCell::get)
                    .map_or(&[][..], Vec::as_slice)
            }
        };
        all.get(span.start..span.start + span.len)
            .unwrap_or_default()
    }

    /// A value with its bytes.
    #[inline]
    pub fn cell(&self, value: &Value) -> Cell<'a> {
        match value {
            Value::Null => Cell::Null,
            Value::Boolean(is_true) => Cell::Boolean(*is_true),
            Value::Integer(integer) => Cell::Integer(*integer),
            Value::Bytes(span) => Cell::Bytes(self.bytes(*span)),
        }
    }
}
