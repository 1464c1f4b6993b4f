//! What a failure on a device means for the job.

use rockmill_core::{DeclineReason, Error, ErrorKind};

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
