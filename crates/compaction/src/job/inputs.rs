//! The inputs of a job: each is open as long as subcompactions read it, for all of these together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rockmill_core::{CancelToken, InputTable, KeyRange, ReadAt, Result};

use crate::subcompactions;
use rockmill_storage::descriptors::{Descriptors, Held, OUTPUT_FILES};
use rockmill_storage::io::{ClosedInput, JobInput};

/// The inputs of a job.
#[derive(Debug)]
pub struct Inputs {
    tables: Vec<InputTable>,
    closed: Vec<Arc<ClosedInput>>,
    open: Vec<Mutex<Weak<JobInput>>>,
    descriptors: Arc<Descriptors>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inputs {
    /// Closed ones, which are opened under the limit of `descriptors`.
    pub fn new(
        tables: &[InputTable],
        closed: &[Arc<ClosedInput>],
        descriptors: &Arc<Descriptors>,
    ) -> Self {
        Self {
            tables: tables.to_vec(),
            closed: closed.to_vec(),
            open: closed.iter().map(|_| Mutex::default()).collect(),
            descriptors: Arc::clone(descriptors),
        }
    }

    /// Waits until the inputs that may hold keys of `range` may be open, and opens them. They are closed with the
    /// last of their tables; what is held for a subcompaction's outputs and for its turn is to be given back once it has ended.
    ///
    /// # Errors
    /// Cancelled, Storage.
    pub fn open(&self, range: &KeyRange, stop: &CancelToken) -> Result<(Vec<InputTable>, Held)> {
        let positions: Vec<_> = subcompactions::inputs(range, &self.tables).collect();
        let (known, mut held) = self.descriptors.queue().wait(stop, |turn| {
            // Those that are open now stay so.
            let known = positions.iter().map(|&at| lock(&self.open[at]).upgrade());
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

    fn open_one(&self, at: usize, held: &mut Held) -> Result<Arc<JobInput>> {
        let input = self.closed[at].open()?.holding(held.split_one());
        let input = Arc::new(input);
        let mut open = lock(&self.open[at]);
        // Another subcompaction may have come first.
        Ok(open.upgrade().unwrap_or_else(|| {
            *open = Arc::downgrade(&input);
            input
        }))
    }
}
