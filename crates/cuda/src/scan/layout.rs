//! Places of the parts of a batch's columns on the device, and their way back.

use rockmill_core::Result;
use rockmill_core::scan::{Batch, Cell, Column, ColumnType};

use super::encode::EncodedColumn;
use super::returned::Part;
use crate::driver::altered;
use crate::driver::ffi::{self, ScanColumn};
use crate::memory::DeviceBuffer;

/// Alignment of each part.
const ALIGNMENT: u64 = 16;

/// `program.hpp:ScanValue`.
const VALUE_BYTES: u32 = 24;

const BYTE_BITS: u64 = 8;

/// Places of the parts of columns.
#[derive(Debug)]
pub struct Layout {
    pub columns: Vec<ScanColumn>,
    rows: usize,
    /// End of all parts except the bytes of byte columns.
    end: u64,
}

impl Layout {
    /// Layout of the columns of `rows` rows.
    pub fn new(columns: &[EncodedColumn], rows: usize) -> Self {
        let (n, bits) = (rows as u64, (rows as u64).div_ceil(BYTE_BITS));
        let mut end = 0;
        let mut take = |bytes: u64| {
            let at = end;
            end = aligned(at + bytes);
            at
        };
        let mut place = |column: &EncodedColumn| {
            let (stored, bytes) = stored_code(column.stored);
            let is_bytes = column.stored == ColumnType::Bytes;
            let lens = if is_bytes { offset_bytes(n) } else { 0 };
            ScanColumn {
                operand: column.operand,
                stored,
                bytes,
                unused: 0,
                flags: take(n),
                validity: take(bits),
                values: take(n * u64::from(bytes)),
                packed: take(if is_bytes { lens } else { bits }),
                lens: take(lens),
                data: 0,
            }
        };
        Self {
            columns: columns.iter().map(&mut place).collect(),
            rows,
            end,
        }
    }

    /// Memory of all columns, with `data` bytes in byte columns.
    pub fn bytes(&self, data: u64) -> u64 {
        let padding = ALIGNMENT * self.columns.len() as u64;
        self.end.saturating_add(data).saturating_add(padding)
    }

    /// The parts of all columns, without the bytes of byte columns.
    pub fn parts(&self, memory: &DeviceBuffer<u8>) -> Vec<Part> {
        let bits = self.rows.div_ceil(BYTE_BITS as usize);
        let parts = self.columns.iter().flat_map(|place| {
            let content = match place.stored {
                ffi::STORED_BOOLEAN => (place.packed, bits),
                ffi::STORED_BYTES => (place.packed, offset_bytes(self.rows as u64) as usize),
                _ => (place.values, self.rows * place.bytes as usize),
            };
            [(place.validity, bits), content]
        });
        parts.map(|(at, len)| part(memory, at, len)).collect()
    }

    /// The batch of these parts.
    pub fn batch(&self, parts: Vec<Vec<u8>>) -> Batch {
        let mut parts = parts.into_iter();
        let mut column = |place: &ScanColumn| {
            let (validity, content) = (parts.next()?, parts.next()?);
            let set: u32 = validity.iter().map(|byte| byte.count_ones()).sum();
            let mut column = Column {
                validity: (set as usize != self.rows).then_some(validity),
                ..Column::default()
            };
            match place.stored {
                ffi::STORED_BYTES => {
                    let (offsets, _) = content.as_chunks();
                    column.offsets = offsets.iter().map(|&o| i32::from_le_bytes(o)).collect();
                }
                _ => column.values = content,
            }
            Some(column)
        };
        Batch {
            rows: self.rows,
            columns: self.columns.iter().map_while(&mut column).collect(),
        }
    }

    /// Computes the places of the bytes of byte columns, `data` bytes together.
    ///
    /// # Errors
    /// Verification if the offsets are impossible.
    pub fn place_data(&mut self, batch: &Batch, data: u64) -> Result<()> {
        let mut at = self.end;
        let mut left = data;
        for (place, column) in self.columns.iter_mut().zip(&batch.columns) {
            let Some(&last) = column.offsets.last() else {
                continue;
            };
            let is_sound = column.offsets.first() == Some(&0) && column.offsets.is_sorted();
            let rest = left.checked_sub(last as u64).filter(|_| is_sound);
            left = rest.ok_or_else(|| altered("offsets changed on their way back"))?;
            place.data = at;
            at = aligned(at + last as u64);
        }
        Ok(())
    }

    /// The bytes of byte columns.
    pub fn data_parts(&self, batch: &Batch, memory: &DeviceBuffer<u8>) -> Vec<Part> {
        let columns = self.columns.iter().zip(&batch.columns);
        let data = columns.filter_map(|(place, column)| {
            let len = *column.offsets.last()? as usize;
            Some(part(memory, place.data, len))
        });
        data.collect()
    }
}

fn part(memory: &DeviceBuffer<u8>, at: u64, len: usize) -> Part {
    let at = at as usize;
    memory.view(at..at + len).into()
}

/// `types.hpp:Stored`, and the bytes of a value.
pub fn stored_code(stored: ColumnType) -> (u32, u32) {
    match stored {
        ColumnType::Boolean => (ffi::STORED_BOOLEAN, 1),
        ColumnType::Integer { bytes } => (ffi::STORED_INTEGER, bytes.into()),
        ColumnType::Float { bytes } => (ffi::STORED_FLOAT, bytes.into()),
        ColumnType::Bytes => (ffi::STORED_BYTES, VALUE_BYTES),
    }
}

fn aligned(at: u64) -> u64 {
    at.next_multiple_of(ALIGNMENT)
}

/// Bytes of the offsets of `rows` rows.
fn offset_bytes(rows: u64) -> u64 {
    (rows + 1) * size_of::<i32>() as u64
}

/// A row's cell of a column.
pub fn cell(column: &Column, stored: ColumnType, row: usize) -> Cell<'_> {
    let bit = |bits: &[u8]| bits[row / 8] >> (row % 8) & 1 == 1;
    if column.validity.as_deref().is_some_and(|bits| !bit(bits)) {
        return Cell::Null;
    }
    match stored {
        ColumnType::Boolean => Cell::Boolean(bit(&column.values)),
        ColumnType::Bytes => {
            let [start, end] = [0, 1].map(|i| column.offsets[row + i] as usize);
            Cell::Bytes(&column.values[start..end])
        }
        ColumnType::Integer { bytes } | ColumnType::Float { bytes } => {
            let bytes = usize::from(bytes);
            let stored = &column.values[row * bytes..][..bytes];
            let mut word = [0; size_of::<i128>()];
            if stored.last().is_some_and(|last| last >> 7 == 1) {
                word.fill(u8::MAX);
            }
            word[..bytes].copy_from_slice(stored);
            Cell::Integer(i128::from_le_bytes(word))
        }
    }
}
