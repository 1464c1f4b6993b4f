//! The inputs of a job. Each is open only while subcompactions read it, and these share the open file.

use std::sync::Arc;

use rockmill_core::{CancelToken, InputTable, KeyRange, ReadAt, Result, borders};

use rockmill_storage::descriptors::{DescriptorLease, Descriptors, OUTPUT_FILES};
use rockmill_storage::io::ClosedInput;

/// The inputs of a job.
#[derive(Debug)]
pub struct Inputs {
    tables: Vec<InputTable>,
    closed: Vec<Arc<ClosedInput>>,
    descriptors: Arc<Descriptors>,
}

impl Inputs {
    /// Creates closed inputs, which are opened within the limit of `descriptors`.
    pub fn new(
        tables: Vec<InputTable>,
        closed: Vec<Arc<ClosedInput>>,
        descriptors: &Arc<Descriptors>,
    ) -> Self {
        Self {
            tables,
            closed,
            descriptors: Arc::clone(descriptors),
        }
    }

    /// The inputs, which are closed.
    pub fn tables(&self) -> &[InputTable] {
        &self.tables
    }

    /// Waits for the descriptors of the inputs that may contain keys of `range`, and opens these inputs. An input is
    /// closed when the last of its tables is dropped. The caller drops the returned descriptors when the subcompaction
    /// has ended.
    ///
    /// # Errors
    /// Cancelled, Storage.
    pub fn open(
        &self,
        range: &KeyRange,
        stop: &CancelToken,
    ) -> Result<(Vec<InputTable>, DescriptorLease)> {
        let positions: Vec<_> = borders::overlapping(range, &self.tables).collect();
        let (known, mut held) = self.descriptors.queue().wait(stop, |turn| {
            // Holding the inputs keeps them open.
            let known = positions.iter().map(|&at| self.closed[at].shared());
            let known: Vec<_> = known.collect();
            let missing = known.iter().filter(|input| input.is_none()).count();
            let held = turn.take(missing as u64 + OUTPUT_FILES)?;
            Some((known, held))
        })?;
        let mut tables = self.tables.clone();
        for (&at, known) in positions.iter().zip(known) {
            stop.check()?;
            let input = match known {
                Some(input) => input,
                None => self.closed[at].open_shared(Some(held.split_one()))?,
            };
            tables[at] = tables[at].read_through(input as Arc<dyn ReadAt>);
        }
        Ok((tables, held))
    }
}
