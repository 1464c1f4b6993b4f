//! Whether a device is trusted: one that fails again and again is left alone for a while, then tried with one
//! small slice.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_core::Error;

/// So many failures in a row, and a device is set aside.
pub const FAILURES_IN_A_ROW: u32 = 3;

/// For so long. Then one slice tries it, and it is set aside again if that fails.
const ASIDE: Duration = Duration::from_secs(60);

/// What a device has done lately.
#[derive(Debug, Default)]
pub struct Standing(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    failures_in_a_row: u32,
    aside: Option<Aside>,
    /// Calls that were left behind and have not come back.
    left_behind: u32,
}

#[derive(Debug)]
struct Aside {
    until: Duration,
    /// Its last error.
    error: String,
    /// Whether a slice tries it.
    is_tried: bool,
}

/// What a device may be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Any number of slices.
    Full,
    /// One small slice, to see whether it works again.
    Once,
    /// Nothing, and why.
    Aside(String),
}

impl Standing {
    fn lately(&self) -> MutexGuard<'_, Lately> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the device may be given at `now`.
    pub fn trust(&self, now: Duration) -> Trust {
        let lately = self.lately();
        match &lately.aside {
            Some(Aside { error, .. }) if lately.left_behind > 0 => {
                Trust::Aside(format!("set aside until it answers: {error}"))
            }
            None => Trust::Full,
            Some(aside) if now >= aside.until && !aside.is_tried => Trust::Once,
            Some(aside) => {
                let seconds = aside.until.saturating_sub(now).as_secs();
                let error = &aside.error;
                Trust::Aside(format!(
                    "set aside for another {seconds} s after {FAILURES_IN_A_ROW} failures in a row: {error}"
                ))
            }
        }
    }

    /// The same for a slice that begins at `now` if it may, and that ends with [`Standing::undecided`].
    pub fn begin(&self, now: Duration) -> Trust {
        let trust = self.trust(now);
        if let (Trust::Once, Some(aside)) = (&trust, &mut self.lately().aside) {
            aside.is_tried = true;
        }
        trust
    }

    /// A slice was done.
    pub fn worked(&self) {
        let mut lately = self.lately();
        lately.failures_in_a_row = 0;
        if lately.left_behind == 0 {
            lately.aside = None;
        }
    }

    /// A call is waited for no longer; the device is set aside at least until it comes back.
    pub fn left_behind(&self, now: Duration, error: &Error) {
        let mut lately = self.lately();
        lately.left_behind += 1;
        lately.failures_in_a_row = FAILURES_IN_A_ROW - 1;
        lately.aside = Some(Aside {
            until: now,
            error: error.to_string(),
            is_tried: false,
        });
    }

    /// Such a call has come back.
    pub fn came_back(&self) {
        self.lately().left_behind -= 1;
    }

    /// A slice ended; if nothing was said of how, another may try the device.
    pub fn undecided(&self) {
        if let Some(aside) = &mut self.lately().aside {
            aside.is_tried = false;
        }
    }

    /// A slice failed at `now` that the CPU could do. Whether the device is set aside for that.
    pub fn failed(&self, now: Duration, error: &Error) -> bool {
        let mut lately = self.lately();
        lately.failures_in_a_row += 1;
        let is_aside = lately.aside.as_ref().is_some_and(|aside| now < aside.until);
        if is_aside || lately.failures_in_a_row < FAILURES_IN_A_ROW {
            return false;
        }
        lately.aside = Some(Aside {
            until: now + ASIDE,
            error: error.to_string(),
            is_tried: false,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;

    use super::*;

    fn why(standing: &Standing, now: Duration) -> String {
        match standing.trust(now) {
            Trust::Aside(why) => why,
            trust => panic!("{trust:?}"),
        }
    }

    #[test]
    fn failures_in_a_row_set_a_device_aside_for_a_while() {
        let standing = Standing::default();
        let error = Error::new(ErrorKind::Device, "it burns");
        let start = Duration::from_secs(1);
        for _ in 0..5 {
            assert!(!standing.failed(start, &error) && !standing.failed(start, &error));
            assert_eq!(standing.trust(start), Trust::Full);
            standing.worked();
        }
        standing.failed(start, &error);
        standing.failed(start, &error);
        assert!(standing.failed(start, &error));
        let why = why(&standing, start);
        assert!(why.contains("60 s") && why.contains("it burns"), "{why}");
        assert!(!standing.failed(start, &error), "it is set aside already");
    }

    #[test]
    fn a_device_that_has_not_come_back_is_not_trusted() {
        let standing = Standing::default();
        let error = Error::new(ErrorKind::Device, "it sleeps");
        let start = Duration::from_secs(1);
        standing.left_behind(start, &error);
        assert!(standing.failed(start, &error), "once is enough");
        // A slice that had begun before.
        standing.worked();
        assert!(why(&standing, start + 2 * ASIDE).contains("until it answers"));
        standing.came_back();
        why(&standing, start);
        assert_eq!(standing.trust(start + ASIDE), Trust::Once);
    }

    #[test]
    fn one_slice_tries_a_device_that_was_set_aside() {
        let standing = Standing::default();
        let error = Error::new(ErrorKind::Device, "it burns");
        let start = Duration::from_secs(1);
        for _ in 0..FAILURES_IN_A_ROW {
            standing.failed(start, &error);
        }
        let later = start + ASIDE;
        assert_eq!(standing.trust(later), Trust::Once, "a look is no try");
        assert_eq!(standing.begin(later), Trust::Once);
        why(&standing, later);
        standing.undecided();
        assert_eq!(standing.begin(later), Trust::Once);
        assert!(standing.failed(later, &error), "one more is enough");
        why(&standing, later + ASIDE / 2);
        assert_eq!(standing.begin(later + ASIDE), Trust::Once);
        standing.worked();
        assert_eq!(standing.begin(later + ASIDE), Trust::Full);
    }
}
