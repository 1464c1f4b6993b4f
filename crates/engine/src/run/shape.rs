//! The shapes of a job's slices: what the inputs' properties and indexes say, and what of them was kept so far.

use std::sync::{Mutex, PoisonError};

use rockmill_core::{InputTable, Plan};

use crate::model::SliceShape;

/// What all slices of a job have in common, and their bytes.
#[derive(Debug)]
pub struct Shapes {
    /// Of all inputs.
    all: SliceShape,
    /// Slices.
    slices: u64,
    /// Stored bytes of all slices' input.
    bytes: u64,
    /// Bytes read and written of those that are done.
    done: Mutex<(u64, u64)>,
}

impl Shapes {
    /// Of slices over so many stored bytes each.
    pub fn new(plan: &Plan, tables: &[InputTable], slice_bytes: &[u64]) -> Self {
        let all = SliceShape::of_inputs(tables, plan.table.compression.kind);
        Self::of_slices(all, slice_bytes)
    }

    /// The same of a job whose inputs together have a shape, with no entry dropped.
    pub fn of_slices(all: SliceShape, slice_bytes: &[u64]) -> Self {
        Self {
            all,
            slices: (slice_bytes.len() as u64).max(1),
            bytes: slice_bytes.iter().fold(0, |a, b| a.saturating_add(*b)),
            done: Mutex::default(),
        }
    }

    /// The shape of a slice over so many stored bytes. Of the output nobody knows before the first slice is done: no
    /// entry is dropped, until then.
    pub fn of(&self, bytes: u64) -> SliceShape {
        let (read, written) = *self.done.lock().unwrap_or_else(PoisonError::into_inner);
        self.of_kept(
            bytes,
            match read {
                0 => 1.0,
                _ => written as f64 / read as f64,
            },
        )
    }

    fn of_kept(&self, bytes: u64, kept: f64) -> SliceShape {
        let slice = (self.all).scaled(bytes as f64 / self.all.bytes_in.max(1) as f64);
        SliceShape {
            bytes_out: (slice.bytes_out as f64 * kept) as u64,
            ..slice
        }
    }

    /// The shape of a slice that is done, by what it wrote.
    pub fn done(&self, bytes: u64, written: u64) -> SliceShape {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0 = done.0.saturating_add(bytes);
        done.1 = done.1.saturating_add(written);
        drop(done);
        SliceShape {
            bytes_out: written,
            ..self.of(bytes)
        }
    }

    /// The shape of a mean slice.
    pub fn mean(&self) -> SliceShape {
        self.of(self.mean_bytes())
    }

    /// The shape of a mean slice of which nothing is dropped, and that of one whose keys are in all runs.
    pub fn extremes(&self) -> [SliceShape; 2] {
        let least = 1.0 / f64::from(self.all.runs.max(1));
        [1.0, least].map(|kept| self.of_kept(self.mean_bytes(), kept))
    }

    /// Bytes of a mean slice.
    pub fn mean_bytes(&self) -> u64 {
        self.bytes / self.slices
    }

    /// Slices.
    pub fn slices(&self) -> u64 {
        self.slices
    }
}
