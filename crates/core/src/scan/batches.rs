//! Rows to batches.

use super::{BATCH_BYTES, BATCH_ROWS, Batch, BatchSink, Cell, Column, ColumnType};
use crate::error::{Error, ErrorKind, Result};

const BYTE_BITS: usize = 8;

/// Puts rows together in columns.
#[derive(Debug)]
pub struct Batches {
    types: Vec<ColumnType>,
    /// Bytes that each row takes, without those of byte columns.
    row_bytes: usize,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

impl Batches {
    /// No rows yet.
    pub fn new(types: Vec<ColumnType>) -> Self {
        let mut batches = Self {
            row_bytes: types.iter().map(|stored| stored.row_bytes()).sum(),
            columns: Vec::new(),
            types,
            rows: 0,
            bytes: 0,
        };
        batches.begin();
        batches
    }

    fn begin(&mut self) {
        (self.rows, self.bytes) = (0, 0);
        let column = |stored: &ColumnType| Column {
            offsets: match stored {
                ColumnType::Bytes => vec![0],
                _ => Vec::new(),
            },
            ..Column::default()
        };
        self.columns = self.types.iter().map(column).collect();
    }

    /// Adds a row, of which `cell` gives the columns.
    ///
    /// # Errors
    /// OutOfRange if a row has more bytes than offsets can say, and those of the sink.
    #[inline]
    pub fn row<'c>(
        &mut self,
        sink: &mut dyn BatchSink,
        cell: impl Fn(usize) -> Cell<'c>,
    ) -> Result<()> {
        let mut row_bytes = self.row_bytes;
        for (i, stored) in self.types.iter().enumerate() {
            if *stored == ColumnType::Bytes
                && let Cell::Bytes(bytes) = cell(i)
            {
                row_bytes = row_bytes.saturating_add(bytes.len());
            }
        }
        if self.rows == BATCH_ROWS || row_bytes > BATCH_BYTES.saturating_sub(self.bytes) {
            self.flush(sink)?;
        }
        for (i, (column, stored)) in self.columns.iter_mut().zip(&self.types).enumerate() {
            column.push(self.rows, *stored, cell(i))?;
        }
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(row_bytes);
        Ok(())
    }

    /// Hands over the rows so far, if there are any.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn flush(&mut self, sink: &mut dyn BatchSink) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut batch = Batch {
            rows: self.rows,
            columns: std::mem::take(&mut self.columns),
        };
        // A vector may have grown to twice what it holds, and batches may wait long.
        for column in &mut batch.columns {
            column.values.shrink_to_fit();
            column.offsets.shrink_to_fit();
        }
        self.begin();
        sink.batch(batch)
    }
}

/// The error of a row that does not fit a column of bytes.
pub fn too_many_bytes(bytes: usize) -> Error {
    let what = format!(
        "a row has {bytes} bytes of a column, which are more than an offset of 4 bytes can say"
    );
    Error::new(ErrorKind::OutOfRange, what)
}

impl Batch {
    /// Bytes of all columns.
    pub fn bytes(&self) -> u64 {
        self.columns.iter().map(Column::bytes).sum()
    }
}

impl Column {
    fn bytes(&self) -> u64 {
        let validity = self.validity.as_ref().map_or(0, Vec::len);
        let offsets = size_of_val(&*self.offsets);
        (self.values.len() + offsets + validity) as u64
    }

    /// Adds the cell of the next row, before which there are so many.
    #[inline]
    fn push(&mut self, rows: usize, stored: ColumnType, cell: Cell<'_>) -> Result<()> {
        let is_null = cell == Cell::Null;
        if is_null || self.validity.is_some() {
            let validity = self.validity.get_or_insert_with(|| ones(rows));
            push_bit(validity, rows, !is_null);
        }
        match stored {
            ColumnType::Boolean => push_bit(&mut self.values, rows, cell == Cell::Boolean(true)),
            ColumnType::Integer { bytes } | ColumnType::Float { bytes } => {
                let integer = match cell {
                    Cell::Integer(integer) => stored.stored(integer),
                    _ => 0,
                };
                push_lowest(&mut self.values, bytes, integer);
            }
            ColumnType::Bytes => {
                let bytes = match cell {
                    Cell::Bytes(bytes) => bytes,
                    _ => &[],
                };
                let end = self.values.len().saturating_add(bytes.len());
                let end = i32::try_from(end).map_err(|_| too_many_bytes(bytes.len()))?;
                self.values.extend_from_slice(bytes);
                self.offsets.push(end);
            }
        }
        Ok(())
    }
}

/// Adds the lowest 1, 2, 4, 8 or 16 bytes of an integer. Each is a copy of known size.
#[inline]
pub(super) fn push_lowest(values: &mut Vec<u8>, bytes: u8, integer: i128) {
    match bytes {
        1 => values.push(integer as u8),
        2 => values.extend_from_slice(&(integer as i16).to_le_bytes()),
        4 => values.extend_from_slice(&(integer as i32).to_le_bytes()),
        8 => values.extend_from_slice(&(integer as i64).to_le_bytes()),
        _ => values.extend_from_slice(&integer.to_le_bytes()),
    }
}

/// So many bits that are set.
fn ones(bits: usize) -> Vec<u8> {
    let mut ones = vec![u8::MAX; bits / BYTE_BITS];
    if !bits.is_multiple_of(BYTE_BITS) {
        ones.push((1 << (bits % BYTE_BITS)) - 1);
    }
    ones
}

/// Adds a bit behind so many.
#[inline]
fn push_bit(bytes: &mut Vec<u8>, bits: usize, bit: bool) {
    if bits.is_multiple_of(BYTE_BITS) {
        bytes.push(0);
    }
    if let Some(last) = bytes.last_mut() {
        *last |= u8::from(bit) << (bits % BYTE_BITS);
    }
}
