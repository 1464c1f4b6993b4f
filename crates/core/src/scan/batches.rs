//! Rows to batches.

use super::{
    BATCH_BYTES, BATCH_ROWS, Batch, BatchSink, Cell, Cells, Column, ColumnType, OutputColumn,
    Register,
};
use crate::error::{Error, ErrorKind, Result};

const BYTE_BITS: usize = 8;

/// Collects rows in columns.
#[derive(Debug)]
pub struct Batches {
    types: Vec<ColumnType>,
    /// Bytes of each row, without those of byte columns.
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

    /// Adds a row; `cell` returns the value of each column.
    ///
    /// # Errors
    /// OutOfRange if a row has more bytes than offsets can express, and the errors of the sink.
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

    /// Adds rows, whose values at the registers of `columns` are the batch's columns. Ends batches as [`Batches::row`]
    /// does.
    ///
    /// # Errors
    /// The errors of [`Batches::row`].
    pub fn rows(
        &mut self,
        sink: &mut dyn BatchSink,
        columns: &[OutputColumn],
        rows: &[u32],
        cells: &impl Cells,
    ) -> Result<()> {
        let mut rest = rows;
        while !rest.is_empty() {
            let (mut fitting, bytes) = self.fitting(columns, rest, cells);
            if fitting == 0 && self.rows > 0 {
                self.flush(sink)?;
                continue;
            }
            // The only row of a batch may have more bytes.
            fitting = fitting.max(1);
            let (taken, after) = rest.split_at(fitting);
            for (column, output) in self.columns.iter_mut().zip(columns) {
                column.extend(self.rows, *output, taken, cells)?;
            }
            self.rows += fitting;
            self.bytes = bytes;
            rest = after;
        }
        Ok(())
    }

    /// The number of rows that fit the current batch, and its bytes with them, or with the first row if none fits.
    fn fitting(
        &self,
        columns: &[OutputColumn],
        rows: &[u32],
        cells: &impl Cells,
    ) -> (usize, usize) {
        let of_bytes = |column: &&OutputColumn| column.stored == ColumnType::Bytes;
        let of_bytes: Vec<Register> = columns
            .iter()
            .filter(of_bytes)
            .map(|column| column.register)
            .collect();
        let (mut fitting, mut bytes) = (0, self.bytes);
        for &row in rows.iter().take(BATCH_ROWS - self.rows) {
            let mut row_bytes = self.row_bytes;
            for &register in &of_bytes {
                if let Cell::Bytes(bytes) = cells.cell(register, row as usize) {
                    row_bytes = row_bytes.saturating_add(bytes.len());
                }
            }
            let fits = row_bytes <= BATCH_BYTES.saturating_sub(bytes);
            if fits || fitting == 0 {
                bytes = bytes.saturating_add(row_bytes);
            }
            if !fits {
                break;
            }
            fitting += 1;
        }
        (fitting, bytes)
    }

    /// Passes on the rows so far, if there are any.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn flush(&mut self, sink: &mut dyn BatchSink) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut batch = Batch {
            rows: self.rows,
            columns: std::mem::take(&mut self.columns),
        };
        // A vector may have grown to twice its contents, and batches may wait for a long time.
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
    let what =
        format!("a row has {bytes} bytes in a column, more than an offset of 4 bytes can express");
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

    /// Adds the cells of the next rows, which `before` rows precede.
    fn extend(
        &mut self,
        before: usize,
        output: OutputColumn,
        rows: &[u32],
        cells: &impl Cells,
    ) -> Result<()> {
        let OutputColumn { register, stored } = output;
        if let (ColumnType::Integer { bytes }, None) = (stored, &self.validity)
            && let Some((integers, None)) = cells.integers(register)
        {
            let taken = rows.iter().map(|row| integers[*row as usize]);
            let values = &mut self.values;
            match bytes {
                1 => values.extend(taken.map(|integer| integer as u8)),
                2 => values.extend(taken.flat_map(|integer| (integer as i16).to_le_bytes())),
                4 => values.extend(taken.flat_map(|integer| (integer as i32).to_le_bytes())),
                8 => values.extend(taken.flat_map(i64::to_le_bytes)),
                _ => values.extend(taken.flat_map(|integer| i128::from(integer).to_le_bytes())),
            }
            return Ok(());
        }
        for (position, row) in rows.iter().enumerate() {
            self.push(
                before + position,
                stored,
                cells.cell(register, *row as usize),
            )?;
        }
        Ok(())
    }

    /// Adds the cell of the next row, which `rows` rows precede.
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

/// Adds the lowest 1, 2, 4, 8 or 16 bytes of an integer. Each case is a copy of known size.
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

/// A bitmap of `bits` set bits.
fn ones(bits: usize) -> Vec<u8> {
    let mut ones = vec![u8::MAX; bits / BYTE_BITS];
    if !bits.is_multiple_of(BYTE_BITS) {
        ones.push((1 << (bits % BYTE_BITS)) - 1);
    }
    ones
}

/// Adds a bit to a bitmap of `bits` bits.
#[inline]
fn push_bit(bytes: &mut Vec<u8>, bits: usize, bit: bool) {
    if bits.is_multiple_of(BYTE_BITS) {
        bytes.push(0);
    }
    if let Some(last) = bytes.last_mut() {
        *last |= u8::from(bit) << (bits % BYTE_BITS);
    }
}
