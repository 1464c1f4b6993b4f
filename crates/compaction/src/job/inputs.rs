//! The inputs of a job. Each is open only while subcompactions read it, and these share the open file.

use std::sync::{Arc, Weak};

use rockmill_core::{CancelToken, InputTable, KeyRange, Lock, ReadAt, Result, borders};

use rockmill_storage::descriptors::{DescriptorLease, Descriptors, OUTPUT_FILES};
use rockmill_storage::io::{ClosedInput, JobInput};

/// The inputs of a job.
#[derive(Debug)]
pub struct Inputs {
    tables: Vec<InputTable>,
    closed: Vec<Arc<ClosedInput>>,
    open: Vec<Lock<Weak<JobInput>>>,
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
            open: closed.iter().map(|_| Lock::default()).collect(),
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
            let known = positions.iter().map(|&at| self.open[at].lock().upgrade());
            let known: Vec<_> = known.collect();
            let missing = known.iter().filter(|input| input.is_none()).count();
            let held = turn.take(missing as u64 + OUTPUT_FILES)?;
            Some((known, held))
        })?;
        let mut tables = self.tables.clone();
        for (&at, known) in positions.iter().zip(known) {
            stop.check()?;
            let input = known.map_or_else(|| self.open_one(at, &mut held), Ok)?;
            tables[at] = tables[at].read_through(input as Arc<dyn ReadAt>);
        }
        Ok((tables, held))
    }

    fn open_one(&self, at: usize, held: &mut DescriptorLease) -> Result<Arc<JobInput>> {
        let input = self.closed[at].open()?.holding(held.split_one());
        let input = Arc::new(input);
        let mut open = self.open[at].lock();
        // Another subcompaction may have opened it meanwhile.
        Ok(open.upgrade().unwrap_or_else(|| {
            *open = Arc::downgrade(&input);
            input
        }))
    }
}
