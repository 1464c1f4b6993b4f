//! Results of an instruction for all rows of a batch.

use std::ops::Range;

use rockmill_core::columns::Column;
use rockmill_core::scan::{Cell, ValueKind};

use super::value::{Memory, Source, Span, Value};

/// A boolean, so that And is the lesser one of two, and Or the greater one.
pub const FALSE: u8 = 0;
pub const NULL: u8 = 1;
pub const TRUE: u8 = 2;

/// A value for each row. Rows that are not selected have any value.
#[derive(Debug)]
pub enum Vector {
    /// [`FALSE`], [`NULL`] or [`TRUE`].
    Booleans(Vec<u8>),
    /// Integers of 64 bits.
    Integers(Vec<i64>, Nulls),
    /// Integers of which some exceed 64 bits.
    Wide(Vec<i128>, Nulls),
    /// A null is [`Span::NULL`].
    Bytes(Vec<Span>),
}

/// Whether each value is null, if some are.
pub type Nulls = Option<Vec<bool>>;

#[inline]
pub fn boolean(is_true: bool) -> u8 {
    if is_true { TRUE } else { FALSE }
}

#[inline]
pub fn is_null(nulls: &Nulls, row: usize) -> bool {
    nulls.as_ref().is_some_and(|nulls| nulls[row])
}

pub fn set_null(nulls: &mut Nulls, row: usize, rows: usize) {
    nulls.get_or_insert_with(|| vec![false; rows])[row] = true;
}

/// Adds the nulls of the first rows of another vector behind those of `before` rows.
fn extend_nulls(nulls: &mut Nulls, before: usize, more: &Nulls, rows: usize) {
    if nulls.is_none() && more.is_none() {
        return;
    }
    let nulls = nulls.get_or_insert_with(|| vec![false; before]);
    match more {
        Some(more) => nulls.extend_from_slice(&more[..rows]),
        None => nulls.resize(before + rows, false),
    }
}

fn nulls_of(column: &Column, rows: &Range<usize>) -> Nulls {
    let nulls = column.nulls(rows.clone())?;
    Some(nulls.iter().map(|is_null| *is_null != 0).collect())
}

impl Vector {
    /// A vector whose rows are to be set.
    pub fn new(kind: ValueKind, rows: usize) -> Self {
        match kind {
            ValueKind::Boolean => Self::Booleans(vec![NULL; rows]),
            ValueKind::Integer => Self::Integers(vec![0; rows], None),
            ValueKind::Bytes => Self::Bytes(vec![Span::NULL; rows]),
        }
    }

    /// Sets a row, once.
    pub fn set(&mut self, row: usize, value: Value, memory: &mut Memory) {
        match (&mut *self, value) {
            (Self::Booleans(values), Value::Boolean(is_true)) => values[row] = boolean(is_true),
            (Self::Integers(values, _), Value::Integer(integer)) => match i64::try_from(integer) {
                Ok(integer) => values[row] = integer,
                Err(_) => {
                    self.widen();
                    self.set(row, Value::Integer(integer), memory);
                }
            },
            (Self::Wide(values, _), Value::Integer(integer)) => values[row] = integer,
            (Self::Integers(values, nulls), Value::Null) => set_null(nulls, row, values.len()),
            (Self::Wide(values, nulls), Value::Null) => set_null(nulls, row, values.len()),
            (Self::Bytes(spans), Value::Bytes(span)) => spans[row] = span,
            (Self::Bytes(spans), Value::String(string)) => {
                spans[row] = memory.keep(Source::Strings, &string);
            }
            // It is null already; no instruction has results of another kind.
            _ => {}
        }
    }

    /// Bytes of the values.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Booleans(values) => values.len(),
            Self::Integers(values, _) => size_of_val(&**values),
            Self::Wide(values, _) => size_of_val(&**values),
            Self::Bytes(spans) => size_of_val(&**spans),
        }
    }

    /// Number of rows that have values.
    pub fn rows(&self) -> usize {
        match self {
            Self::Booleans(values) => values.len(),
            Self::Integers(values, _) => values.len(),
            Self::Wide(values, _) => values.len(),
            Self::Bytes(spans) => spans.len(),
        }
    }

    /// Adds the first rows of another vector of booleans or integers.
    pub fn extend(&mut self, more: &Self, rows: usize) {
        if matches!(more, Self::Wide(..)) {
            self.widen();
        }
        let before = self.rows();
        match (self, more) {
            (Self::Booleans(values), Self::Booleans(more)) => {
                values.extend_from_slice(&more[..rows]);
            }
            (Self::Integers(values, nulls), Self::Integers(more, more_nulls)) => {
                values.extend_from_slice(&more[..rows]);
                extend_nulls(nulls, before, more_nulls, rows);
            }
            (Self::Wide(values, nulls), Self::Integers(more, more_nulls)) => {
                values.extend(more[..rows].iter().map(|value| i128::from(*value)));
                extend_nulls(nulls, before, more_nulls, rows);
            }
            (Self::Wide(values, nulls), Self::Wide(more, more_nulls)) => {
                values.extend_from_slice(&more[..rows]);
                extend_nulls(nulls, before, more_nulls, rows);
            }
            _ => {}
        }
    }

    /// Makes room for integers of more than 64 bits.
    fn widen(&mut self) {
        if let Self::Integers(values, nulls) = self {
            let values = values.iter().map(|value| i128::from(*value)).collect();
            *self = Self::Wide(values, nulls.take());
        }
    }

    /// Adds rows of a column, whose bytes are at a position of the memory.
    pub fn append(&mut self, column: &Column, rows: Range<usize>, position: u32) {
        if column.is_wide() {
            self.widen();
        }
        let before = self.rows();
        match self {
            Self::Booleans(values) => values.extend_from_slice(column.booleans(rows)),
            Self::Integers(values, nulls) => {
                extend_nulls(nulls, before, &nulls_of(column, &rows), rows.len());
                column.integers(rows, values);
            }
            Self::Wide(values, nulls) => {
                extend_nulls(nulls, before, &nulls_of(column, &rows), rows.len());
                values.extend(rows.map(|row| column.integer(row).unwrap_or_default()));
            }
            Self::Bytes(spans) => spans.extend(rows.map(|row| {
                column.span(row).map_or(Span::NULL, |bytes| Span {
                    source: Source::Column(position),
                    start: bytes.start,
                    len: bytes.len(),
                })
            })),
        }
    }

    #[inline]
    pub fn boolean(&self, row: usize) -> Option<bool> {
        match self {
            Self::Booleans(values) if values[row] != NULL => Some(values[row] == TRUE),
            _ => None,
        }
    }

    #[inline]
    pub fn integer(&self, row: usize) -> Option<i128> {
        match self {
            Self::Integers(values, nulls) if !is_null(nulls, row) => Some(values[row].into()),
            Self::Wide(values, nulls) if !is_null(nulls, row) => Some(values[row]),
            _ => None,
        }
    }

    #[inline]
    pub fn span(&self, row: usize) -> Option<Span> {
        match self {
            Self::Bytes(spans) if spans[row].source != Source::Null => Some(spans[row]),
            _ => None,
        }
    }

    /// The value of a row.
    #[inline]
    pub fn value(&self, row: usize) -> Value {
        match self {
            Self::Booleans(_) => self.boolean(row).into(),
            Self::Integers(..) | Self::Wide(..) => self.integer(row).into(),
            Self::Bytes(_) => self.span(row).into(),
        }
    }

    /// The value of a row, with its bytes.
    #[inline]
    pub fn cell<'m>(&self, row: usize, memory: &'m Memory) -> Cell<'m> {
        match self {
            Self::Booleans(_) => self.boolean(row).map_or(Cell::Null, Cell::Boolean),
            Self::Integers(..) | Self::Wide(..) => {
                self.integer(row).map_or(Cell::Null, Cell::Integer)
            }
            Self::Bytes(spans) => memory.bytes(spans[row]).map_or(Cell::Null, Cell::Bytes),
        }
    }
}

/// The rows of a batch that are still to be computed, ascending.
#[derive(Debug, Default)]
pub struct Selection {
    rows: Vec<u32>,
    /// Whether these are all rows up to the last one.
    is_dense: bool,
}

impl Selection {
    /// Selects the first rows.
    pub fn all(&mut self, rows: usize) {
        self.rows.clear();
        self.rows.extend(0..rows as u32);
        self.is_dense = true;
    }

    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Keeps rows for which a condition holds.
    pub fn retain(&mut self, holds: impl Fn(usize) -> bool) {
        let before = self.rows.len();
        let mut kept = 0;
        // Without a branch for each row: half of them may hold.
        for at in 0..before {
            let row = self.rows[at];
            self.rows[kept] = row;
            kept += usize::from(holds(row as usize));
        }
        self.rows.truncate(kept);
        self.is_dense &= kept == before;
    }

    /// Keeps the rows before one.
    pub fn cut(&mut self, row: usize) {
        let before = self.rows.partition_point(|of| (*of as usize) < row);
        self.rows.truncate(before);
    }

    /// One more than the last row.
    pub fn end(&self) -> usize {
        self.rows.last().map_or(0, |last| *last as usize + 1)
    }

    /// A value for each selected row, computed from that of another vector.
    #[inline(always)]
    pub fn map<A: Copy, T: Copy + Default>(&self, a: &[A], mut f: impl FnMut(A) -> T) -> Vec<T> {
        let end = self.end();
        if self.is_dense {
            return a[..end].iter().map(|a| f(*a)).collect();
        }
        let mut values = vec![T::default(); end];
        for row in &self.rows {
            let row = *row as usize;
            values[row] = f(a[row]);
        }
        values
    }

    /// The same from two vectors.
    #[inline(always)]
    pub fn map_both<A: Copy, B: Copy, T: Copy + Default>(
        &self,
        a: &[A],
        b: &[B],
        mut f: impl FnMut(A, B) -> T,
    ) -> Vec<T> {
        let end = self.end();
        if self.is_dense {
            let both = a[..end].iter().zip(&b[..end]);
            return both.map(|(a, b)| f(*a, *b)).collect();
        }
        let mut values = vec![T::default(); end];
        for row in &self.rows {
            let row = *row as usize;
            values[row] = f(a[row], b[row]);
        }
        values
    }

    /// The rows that are null in one of two vectors.
    pub fn nulls(&self, a: &Nulls, b: &Nulls) -> Nulls {
        match (a, b) {
            (None, None) => None,
            (Some(nulls), None) | (None, Some(nulls)) => Some(self.map(nulls, |is_null| is_null)),
            (Some(a), Some(b)) => Some(self.map_both(a, b, |a, b| a | b)),
        }
    }
}
