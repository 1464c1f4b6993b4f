//! Classifies failures of tasks on devices.

use rockmill_core::{Error, ErrorKind};

/// Whether the CPU should redo a task that failed on a device with this error. It should not if RocksDB has to do the
/// job in any case, or if the file system returned an error. It should after Corruption, because the device's memory
/// may be faulty instead of the file.
pub fn is_device_trouble(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Device
        | ErrorKind::Unsupported
        | ErrorKind::Corruption
        | ErrorKind::Verification
        | ErrorKind::Internal => true,
        // Another device may need less memory.
        ErrorKind::Declined(_) => error.kind.is_out_of_memory(),
        ErrorKind::Storage | ErrorKind::Cancelled | ErrorKind::OutOfRange | ErrorKind::Invalid => {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::DeclineReason;

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
