//! A backend behind a pointer: what a job's slices run on may be of several kinds.

use std::collections::BTreeMap;
use std::fmt;

use rockmill_core::{
    Backend, DeclineReason, Error, ErrorKind, InputTable, Plan, Result, SliceReport, SliceWork,
    SstSink,
};

/// What [`Backend`] promises, without its types.
pub trait Compute: fmt::Debug + Send + Sync {
    /// Name for statistics.
    fn name(&self) -> &str;

    /// Looks whether such jobs are done.
    ///
    /// # Errors
    /// Device if they are not.
    fn accepts(&self, plan: &Plan, inputs: &[InputTable]) -> Result<()>;

    /// Host memory in bytes that a slice takes at most.
    fn slice_memory_bytes(
        &self,
        plan: &Plan,
        inputs: &[InputTable],
        read_ahead_bytes: usize,
    ) -> u64;

    /// Compacts a slice.
    ///
    /// # Errors
    /// Any error of [`ErrorKind`]. Files begun in `sink` are of no use then.
    fn compact(&self, work: SliceWork<'_>, sink: &mut dyn SstSink) -> Result<SliceReport>;

    /// Whether it writes its files where it lies itself, so that they do not pass through the host.
    fn is_near_data(&self) -> bool {
        false
    }

    /// How often which fault was made on purpose.
    fn faults(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}

impl<B: Backend + fmt::Debug> Compute for B {
    fn name(&self) -> &str {
        Backend::name(self)
    }

    fn accepts(&self, plan: &Plan, inputs: &[InputTable]) -> Result<()> {
        Backend::accepts(self, plan, inputs)
    }

    fn slice_memory_bytes(
        &self,
        plan: &Plan,
        inputs: &[InputTable],
        read_ahead_bytes: usize,
    ) -> u64 {
        Backend::slice_memory_bytes(self, plan, inputs, read_ahead_bytes)
    }

    fn compact(&self, work: SliceWork<'_>, sink: &mut dyn SstSink) -> Result<SliceReport> {
        let run = self.survivors(work)?;
        self.write_ssts(run, sink)
    }
}

/// Whether another device may do better than one that has failed so. Not if RocksDB has to do the job anyway
/// or the file system refuses; but damage, too, is looked at again: the device's memory may be what is
/// damaged.
pub fn is_device_trouble(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Device
        | ErrorKind::Corruption
        | ErrorKind::Verification
        | ErrorKind::Internal => true,
        // Another device needs less.
        ErrorKind::Declined(reason) => reason == DeclineReason::MemoryBudget,
        ErrorKind::Storage | ErrorKind::Cancelled => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_does_what_a_device_could_not() {
        let redone = |kind| is_device_trouble(&Error::new(kind, "why"));
        assert!(redone(ErrorKind::Device) && redone(ErrorKind::Verification));
        assert!(redone(ErrorKind::Declined(DeclineReason::MemoryBudget)));
        assert!(!redone(ErrorKind::Declined(DeclineReason::MergeOperands)));
        assert!(!redone(ErrorKind::Storage) && !redone(ErrorKind::Cancelled));
    }
}
