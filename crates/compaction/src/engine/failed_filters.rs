//! Column families whose jobs fail after their compaction filter has seen keys. RocksDB does such a job again and shows the
//! filter the same keys. If the contents are the cause, the next job fails as well, so later jobs are left to RocksDB before
//! the filter is made.

use std::collections::HashMap;

use rockmill_core::{DeclineReason, Error, ErrorKind, JobFilter, Result};

/// Jobs of a column family that have failed in a row.
#[derive(Debug)]
struct Failures {
    number: u32,
    /// Jobs that are left to RocksDB before another one is tried.
    to_skip: u32,
    what: String,
}

/// By the id of the column family.
#[derive(Debug, Default)]
pub(super) struct FailedFilters(HashMap<u32, Failures>);

impl FailedFilters {
    /// Maximum number of jobs that are left to RocksDB between two that are tried.
    const MAX_SKIPPED: u32 = 255;

    /// Declines a job with a filter, if earlier ones have failed.
    ///
    /// # Errors
    /// Declined.
    pub fn check(&mut self, cf_id: u32, filter: Option<&JobFilter>) -> Result<()> {
        let failures = self.0.get_mut(&cf_id).filter(|_| filter.is_some());
        let Some(failures) = failures.filter(|failures| failures.to_skip > 0) else {
            return Ok(());
        };
        failures.to_skip -= 1;
        let what = format!(
            "{} jobs of the column family have failed after its compaction filter had seen keys, the last one with: {}",
            failures.number, failures.what
        );
        Err(Error::declined(DeclineReason::CompactionFilter, what))
    }

    /// Notes the end of a job. Returns whether RocksDB shows a filter the same keys again.
    pub fn ended(&mut self, cf_id: u32, filter: Option<&JobFilter>, error: Option<&Error>) -> bool {
        if !filter.is_some_and(JobFilter::is_made) {
            return false;
        }
        match error {
            None => {
                self.0.remove(&cf_id);
                return false;
            }
            // Contents are not the cause, so the next job may be done.
            Some(Error {
                kind:
                    ErrorKind::Cancelled
                    | ErrorKind::Storage
                    | ErrorKind::Device
                    | ErrorKind::Unsupported,
                ..
            }) => {}
            Some(error) => {
                let before = self.0.get(&cf_id).map_or(0, |failures| failures.number);
                let failures = Failures {
                    number: before.saturating_add(1),
                    to_skip: 1_u32
                        .checked_shl(before)
                        .map_or(Self::MAX_SKIPPED, |skipped| {
                            (skipped - 1).min(Self::MAX_SKIPPED)
                        }),
                    what: error.to_string(),
                };
                self.0.insert(cf_id, failures);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rockmill_core::{CompactionFilter, CreateFilter, Decision, FilteredKind};

    use super::*;

    #[derive(Debug)]
    struct Keeps;

    impl CompactionFilter for Keeps {
        fn filter(&mut self, _: &[u8], _: FilteredKind, _: &[u8]) -> Result<Decision> {
            Ok(Decision::Keep)
        }
    }

    impl CreateFilter for Keeps {
        fn create(&self) -> Result<Option<Box<dyn CompactionFilter>>> {
            Ok(Some(Box::new(Self)))
        }
    }

    #[test]
    fn a_filter_sees_keys_in_vain_ever_less_often() {
        let mut all = FailedFilters::default();
        let error = Error::declined(DeclineReason::SingleDeleteContract, "a key");
        let filter = || JobFilter::new(Arc::new(Keeps));
        let begun = || {
            let filter = filter();
            filter.begin().expect("it is made");
            filter
        };
        let mut tried = Vec::new();
        for number in 0..600 {
            if let Err(declined) = all.check(7, Some(&filter())) {
                assert!(declined.what.ends_with("a key"), "{declined}");
                continue;
            }
            tried.push(number);
            assert!(all.ended(7, Some(&begun()), Some(&error)));
        }
        assert_eq!(tried, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511]);
        assert!(
            all.check(8, Some(&filter())).is_ok(),
            "another column family"
        );
        assert!(all.check(7, None).is_ok(), "a job without a filter");
        // A job whose filter was not made has shown it no keys, and one that is done ends the row.
        assert!(!all.ended(7, Some(&filter()), Some(&error)));
        assert!(!all.ended(7, Some(&begun()), None));
        assert!(all.check(7, Some(&filter())).is_ok());
        for kind in [ErrorKind::Cancelled, ErrorKind::Storage, ErrorKind::Device] {
            for _ in 0..3 {
                let error = Error::new(kind, "it closes, or the disk is full");
                assert!(all.ended(7, Some(&begun()), Some(&error)));
                assert!(all.check(7, Some(&filter())).is_ok());
            }
        }
    }
}
