//! The shapes of a job's slices: what the inputs' properties and indexes say, and what of them was kept so far.

use std::iter;
use std::sync::{Mutex, PoisonError};

use rockmill_core::{InputTable, Plan};
use rockmill_format::properties::TableProperties;

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
    /// Share that is taken to survive at least.
    least_kept: f64,
    /// Bytes read and written of those that are done.
    done: Mutex<(u64, u64)>,
}

impl Shapes {
    /// Of slices over so many stored bytes each.
    pub fn new(plan: &Plan, tables: &[InputTable], slice_bytes: &[u64]) -> Self {
        let all = SliceShape::of_inputs(tables, plan.table.compression.kind);
        let properties = tables.iter().map(|table| &table.meta.properties);
        Self {
            least_kept: least_kept(all.runs, properties),
            ..Self::of_slices(all, slice_bytes)
        }
    }

    /// The same of a job whose inputs together have a shape, with no entry dropped, and no key deleted.
    pub fn of_slices(all: SliceShape, slice_bytes: &[u64]) -> Self {
        Self {
            least_kept: least_kept(all.runs, iter::empty()),
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

    /// The shape of a mean slice of which nothing is dropped, and that of one whose keys are in all runs, and deleted by as
    /// many tombstones as there are.
    pub fn extremes(&self) -> [SliceShape; 2] {
        [1.0, self.least_kept].map(|kept| self.of_kept(self.mean_bytes(), kept))
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

/// The share of the entries of so many files that is taken to survive at least: if each key is in all of them, and each
/// tombstone takes one more key along. Above the bottom it may stay itself; on the other hand a file may hold versions for
/// snapshots that have gone since.
fn least_kept<'a>(runs: u32, properties: impl Iterator<Item = &'a TableProperties> + Clone) -> f64 {
    let sum =
        |of: fn(&TableProperties) -> u64| properties.clone().map(of).fold(0, u64::saturating_add);
    let deleted = sum(|table| table.num_deletions) as f64;
    let entries = sum(|table| table.num_entries).max(1) as f64;
    (1.0 / f64::from(runs.max(1)) - deleted / entries).max(0.0)
}

#[cfg(test)]
mod tests {
    use rockmill_core::CancelToken;
    use rockmill_format::compression::CompressionType;

    use super::*;
    use crate::model::{Made, Workload};

    fn table(num_entries: u64, num_deletions: u64) -> TableProperties {
        TableProperties {
            num_entries,
            num_deletions,
            ..TableProperties::default()
        }
    }

    #[test]
    fn the_least_is_what_no_newer_file_and_no_tombstone_may_hide() {
        let least = |tables: &[TableProperties]| least_kept(tables.len() as u32, tables.iter());
        assert_eq!(least(&[]), 1.0);
        assert_eq!(least(&[table(10, 0)]), 1.0);
        assert_eq!(least(&[table(30, 0), table(70, 0)]), 0.5);
        assert_eq!(least(&[table(30, 20), table(70, 5)]), 0.25);
        assert_eq!(least(&[table(30, 30), table(70, 70)]), 0.0);
        assert_eq!(least(&[table(0, 0)]), 1.0);
        assert_eq!(least(&[table(1, u64::MAX), table(1, u64::MAX)]), 0.0);
    }

    #[test]
    fn tombstones_count_as_the_tables_tell() {
        let workload = Workload {
            key_bytes: 8,
            value_bytes: 32,
            versions: 2,
            runs: 2,
            compression: CompressionType::None,
            raw_bytes: 100_000,
        };
        let (dir, never) = (tempfile::tempdir().expect("a folder"), CancelToken::new());
        let made = Made::new(&workload, dir.path(), "made", &never);
        let mut made = made.expect("there is room");
        let bytes_in = made.shape().bytes_in;
        let kept = |made: &Made| {
            let [all, least] = Shapes::new(&made.plan, &made.tables, &[bytes_in]).extremes();
            assert_eq!(all.bytes_out, bytes_in);
            least.bytes_out as f64 / bytes_in as f64
        };
        assert!((kept(&made) - 0.5).abs() < 1e-4);
        for table in &mut made.tables {
            table.meta.properties.num_deletions = table.meta.properties.num_entries / 4;
        }
        assert!((kept(&made) - 0.25).abs() < 1e-2);
    }

    #[test]
    fn the_extremes_are_all_and_the_least_of_a_mean_slice() {
        let all = SliceShape {
            bytes_in: 4000,
            bytes_out: 4000,
            runs: 4,
            ..crate::model::tests::large()
        };
        let shapes = Shapes::of_slices(all, &[1000; 4]);
        assert_eq!(shapes.extremes().map(|slice| slice.bytes_out), [1000, 250]);
        let least_kept = 0.0;
        let emptied = Shapes {
            least_kept,
            ..shapes
        };
        assert_eq!(emptied.extremes().map(|slice| slice.bytes_out), [1000, 0]);
    }
}
