//! The shapes of a job's slices, from what the inputs' properties and indexes say.

use rockmill_core::{InputTable, Plan};
use rockmill_format::compression::Compressor;

use crate::predict::SliceShape;

/// What all slices of a job share, and their bytes.
#[derive(Debug)]
pub struct Shapes {
    /// Of a slice with no bytes.
    common: SliceShape,
    /// Entries of a stored byte.
    density: f64,
    /// Bytes of a mean slice.
    mean_bytes: u64,
}

impl Shapes {
    /// Of slices over so many stored bytes each.
    pub fn new(plan: &Plan, tables: &[InputTable], slice_bytes: &[u64]) -> Self {
        let sum = |of: fn(&InputTable) -> u64| tables.iter().map(of).fold(0, u64::saturating_add);
        let entries = sum(|table| table.meta.properties.num_entries);
        let data = sum(|table| table.meta.properties.data_size);
        let ratio = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
        let key_bytes = sum(|table| table.meta.properties.raw_key_size);
        let value_bytes = sum(|table| table.meta.properties.raw_value_size);
        let is_stored = Compressor::new(&plan.table.compression).is_ok_and(|c| c.is_stored());
        let is_compressed = |table: &InputTable| {
            table.meta.properties.uncompressed_data_size > table.meta.properties.data_size
        };
        let bytes = slice_bytes.iter().fold(0, |a: u64, b| a.saturating_add(*b));
        Self {
            common: SliceShape {
                key_bytes: ratio(key_bytes, entries),
                value_bytes: ratio(value_bytes, entries),
                runs: tables.len(),
                compressed: !is_stored || tables.iter().any(is_compressed),
                ..SliceShape::default()
            },
            density: ratio(entries, data),
            mean_bytes: bytes / (slice_bytes.len() as u64).max(1),
        }
    }

    /// The shape of a slice over so many stored bytes.
    pub fn of(&self, bytes: u64) -> SliceShape {
        SliceShape {
            bytes_in: bytes,
            entries: (bytes as f64 * self.density) as u64,
            bytes_out_expected: bytes,
            ..self.common
        }
    }

    /// Bytes of a mean slice.
    pub fn mean_bytes(&self) -> u64 {
        self.mean_bytes
    }
}
