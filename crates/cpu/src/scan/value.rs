//! Values while a program runs.

use std::sync::Arc;

use rockmill_core::columns::Column;
use rockmill_core::scan::{Cell, Literal};

/// Result of an instruction for a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Boolean(bool),
    Integer(i128),
    Bytes(Span),
    /// Bytes that are in no [`Memory`] yet.
    String(Vec<u8>),
}

/// A part of the bytes of a [`Memory`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    pub source: Source,
    pub start: usize,
    pub len: usize,
}

/// The memory that bytes are a part of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// The value is null.
    #[default]
    Null,
    /// Keys and values of rows.
    Rows,
    /// Constants.
    Constants,
    /// Strings that instructions have computed.
    Strings,
    /// The column at this position.
    Column(u32),
}

impl Span {
    pub const NULL: Self = Self {
        source: Source::Null,
        start: 0,
        len: 0,
    };

    /// The bytes from `start` to `end` of the span.
    pub fn part(self, start: usize, end: usize) -> Self {
        Self {
            start: self.start + start,
            len: end - start,
            ..self
        }
    }
}

impl From<Option<Span>> for Value {
    fn from(span: Option<Span>) -> Self {
        span.map_or(Self::Null, Self::Bytes)
    }
}

impl From<Option<i128>> for Value {
    fn from(integer: Option<i128>) -> Self {
        integer.map_or(Self::Null, Self::Integer)
    }
}

impl From<Option<bool>> for Value {
    fn from(boolean: Option<bool>) -> Self {
        boolean.map_or(Self::Null, Self::Boolean)
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(string: Option<Vec<u8>>) -> Self {
        string.map_or(Self::Null, Self::String)
    }
}

/// The bytes of a batch of rows.
#[derive(Debug, Default)]
pub struct Memory {
    pub rows: Vec<u8>,
    pub constants: Vec<u8>,
    pub strings: Vec<u8>,
    pub columns: Vec<Arc<Column>>,
}

impl Memory {
    /// The bytes of a span; `None` if it is null.
    #[inline]
    pub fn bytes(&self, span: Span) -> Option<&[u8]> {
        let all = match span.source {
            Source::Null => return None,
            Source::Rows => &self.rows,
            Source::Constants => &self.constants,
            Source::Strings => &self.strings,
            Source::Column(position) => self.columns[position as usize].all_bytes(),
        };
        Some(&all[span.start..span.start + span.len])
    }

    /// Adds bytes to one of the sources.
    pub fn keep(&mut self, source: Source, bytes: &[u8]) -> Span {
        let memory = match source {
            Source::Null | Source::Column(_) => return Span::NULL,
            Source::Rows => &mut self.rows,
            Source::Constants => &mut self.constants,
            Source::Strings => &mut self.strings,
        };
        let start = memory.len();
        memory.extend_from_slice(bytes);
        Span {
            source,
            start,
            len: bytes.len(),
        }
    }
}

/// A constant as a cell.
pub fn cell_of(literal: &Literal) -> Cell<'_> {
    match literal {
        Literal::Null(_) => Cell::Null,
        Literal::Boolean(is_true) => Cell::Boolean(*is_true),
        Literal::Integer(integer) => Cell::Integer(*integer),
        Literal::Bytes(bytes) => Cell::Bytes(bytes),
    }
}
