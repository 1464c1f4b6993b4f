//! Whether a device is trusted: one that fails again and again is left alone for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rockmill_core::Error;

/// So many failures in a row, and a device is set aside.
pub const FAILURES_IN_A_ROW: u32 = 3;

/// For so long. Then it is tried again, and set aside again if the first slice fails.
const ASIDE: Duration = Duration::from_secs(60);

/// What a device has done lately.
#[derive(Debug, Default)]
pub struct Standing(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    failures_in_a_row: u32,
    /// Until when the device is left alone, and its last error.
    aside: Option<(Instant, String)>,
}

impl Standing {
    fn lately(&self) -> MutexGuard<'_, Lately> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the device is left alone at `now`, if it is.
    pub fn set_aside(&self, now: Instant) -> Option<String> {
        let lately = self.lately();
        let (until, error) = lately.aside.as_ref().filter(|(until, _)| now < *until)?;
        let seconds = (*until - now).as_secs();
        Some(format!(
            "set aside for another {seconds} s after {FAILURES_IN_A_ROW} failures in a row: {error}"
        ))
    }

    /// A slice was done.
    pub fn worked(&self) {
        *self.lately() = Lately::default();
    }

    /// A slice failed at `now` that the CPU could do. Whether the device is set aside for that.
    pub fn failed(&self, now: Instant, error: &Error) -> bool {
        let mut lately = self.lately();
        lately.failures_in_a_row += 1;
        let is_aside = lately.aside.as_ref().is_some_and(|(until, _)| now < *until);
        if is_aside || lately.failures_in_a_row < FAILURES_IN_A_ROW {
            return false;
        }
        lately.aside = Some((now + ASIDE, error.to_string()));
        true
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;

    use super::*;

    #[test]
    fn failures_in_a_row_set_a_device_aside_for_a_while() {
        let standing = Standing::default();
        let error = Error::new(ErrorKind::Device, "it burns");
        let start = Instant::now();
        for _ in 0..5 {
            assert!(!standing.failed(start, &error) && !standing.failed(start, &error));
            assert_eq!(standing.set_aside(start), None);
            standing.worked();
        }
        standing.failed(start, &error);
        standing.failed(start, &error);
        assert!(standing.failed(start, &error));
        let why = standing.set_aside(start).expect("three in a row");
        assert!(why.contains("60 s") && why.contains("it burns"), "{why}");
        assert!(!standing.failed(start, &error), "it is set aside already");
        let later = start + ASIDE;
        assert_eq!(standing.set_aside(later), None);
        assert!(standing.failed(later, &error), "one more is enough");
        assert!(standing.set_aside(later).is_some());
        standing.worked();
        assert_eq!(standing.set_aside(later), None);
    }
}
