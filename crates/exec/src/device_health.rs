//! Whether a device is trusted: one that fails again and again is left alone for a while, then tried with one
//! small slice.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_core::Error;

/// So many failures in a row, and a device is set aside.
pub const FAILURES_IN_A_ROW: u32 = 3;

/// For so long. Then one slice tries it, and it is set aside again if that fails.
pub const ASIDE: Duration = Duration::from_secs(60);

/// What a device has done lately.
#[derive(Debug, Default)]
pub struct Standing(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    /// How often it was set aside. Slices that began before the last time say nothing of what it does now.
    generation: u64,
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

/// A slice that a device was given. What is told of it counts until the device is set aside. When it is dropped and
/// nothing was told, another may try the device in its place.
#[derive(Debug)]
pub struct Attempt<'a> {
    standing: &'a Standing,
    generation: u64,
    is_trial: bool,
}

impl Lately {
    fn trust(&self, now: Duration) -> Trust {
        match &self.aside {
            None => Trust::Full,
            Some(Aside { error, .. }) if self.left_behind > 0 => {
                Trust::Aside(format!("set aside until it answers: {error}"))
            }
            Some(Aside {
                error, is_tried, ..
            }) if *is_tried => {
                Trust::Aside(format!("set aside until one slice has tried it: {error}"))
            }
            Some(aside) if now >= aside.until => Trust::Once,
            Some(Aside { until, error, .. }) => {
                let seconds = until.saturating_sub(now).as_secs();
                Trust::Aside(format!("set aside for another {seconds} s: {error}"))
            }
        }
    }

    fn set_aside(&mut self, until: Duration, error: &Error) {
        self.generation += 1;
        self.failures_in_a_row = 0;
        self.aside = Some(Aside {
            until,
            error: error.to_string(),
            is_tried: false,
        });
    }

    /// Lets another slice try a device that is set aside, at once.
    fn let_try(&mut self) {
        self.generation += 1;
        if let Some(aside) = &mut self.aside {
            aside.until = Duration::ZERO;
            aside.is_tried = false;
        }
    }
}

impl Standing {
    fn lately(&self) -> MutexGuard<'_, Lately> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the device may be given at `now`.
    pub fn trust(&self, now: Duration) -> Trust {
        self.lately().trust(now)
    }

    /// A slice begins at `now`, if the device may be given one.
    pub fn begin(&self, now: Duration) -> Option<Attempt<'_>> {
        let mut lately = self.lately();
        let is_trial = match lately.trust(now) {
            Trust::Full => false,
            Trust::Once => true,
            Trust::Aside(_) => return None,
        };
        if let Some(aside) = &mut lately.aside {
            aside.is_tried = true;
        }
        Some(Attempt {
            standing: self,
            generation: lately.generation,
            is_trial,
        })
    }

    /// A call that was left behind has come back.
    pub fn came_back(&self) {
        self.lately().left_behind -= 1;
    }
}

impl Attempt<'_> {
    /// Whether the device has to show by it that it works again.
    pub fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// The device's, as long as the slice says something of it.
    fn lately(&self) -> Option<MutexGuard<'_, Lately>> {
        let lately = self.standing.lately();
        (lately.generation == self.generation).then_some(lately)
    }

    /// The slice was done.
    pub fn worked(&self) {
        if let Some(mut lately) = self.lately() {
            lately.failures_in_a_row = 0;
            // None but the trial has begun since it was set aside.
            match lately.left_behind {
                0 => lately.aside = None,
                // One that was given up with its job has to answer first; then another tries the device at once.
                _ => lately.let_try(),
            }
        }
    }

    /// The slice failed at `now`, and not for what it was given. Whether the device is set aside for that.
    pub fn failed(&self, now: Duration, error: &Error) -> bool {
        let Some(mut lately) = self.lately() else {
            return false;
        };
        lately.failures_in_a_row += 1;
        let is_enough = self.is_trial || lately.failures_in_a_row >= FAILURES_IN_A_ROW;
        if is_enough {
            lately.set_aside(now + ASIDE, error);
        }
        is_enough
    }

    /// The slice is waited for no longer at `now`: the device is set aside at least until it comes back, and for a
    /// while if the slice `is_late`. Whether it was trusted, or tried by this slice.
    pub fn left_behind(&self, now: Duration, is_late: bool, error: &Error) -> bool {
        let mut lately = self.standing.lately();
        let is_news = lately.aside.is_none() || lately.generation == self.generation;
        lately.left_behind += 1;
        match &lately.aside {
            // That a job was given up says nothing of what else is known of the device.
            Some(_) if !is_late => {}
            None if !is_late => lately.set_aside(now, error),
            aside => {
                let until = aside.as_ref().map_or(now, |aside| aside.until);
                lately.set_aside(until.max(now + ASIDE), error);
            }
        }
        is_news
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(mut lately) = self.lately()
            && let Some(aside) = &mut lately.aside
        {
            aside.is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use rockmill_core::ErrorKind;

    use super::*;

    const START: Duration = Duration::from_secs(1);

    fn error() -> Error {
        Error::new(ErrorKind::Device, "it burns")
    }

    fn why(standing: &Standing, now: Duration) -> String {
        match standing.trust(now) {
            Trust::Aside(why) => why,
            trust => panic!("{trust:?}"),
        }
    }

    fn begin(standing: &Standing, now: Duration) -> Attempt<'_> {
        standing.begin(now).expect("it is trusted")
    }

    /// A device that was set aside at the start.
    fn set_aside() -> Standing {
        let standing = Standing::default();
        for _ in 0..FAILURES_IN_A_ROW {
            begin(&standing, START).failed(START, &error());
        }
        standing
    }

    #[test]
    fn failures_in_a_row_set_a_device_aside_for_a_while() {
        let standing = Standing::default();
        let fails = || begin(&standing, START).failed(START, &error());
        for _ in 0..5 {
            assert!(!fails() && !fails());
            assert_eq!(standing.trust(START), Trust::Full);
            begin(&standing, START).worked();
        }
        let before = begin(&standing, START);
        assert!(!fails() && !fails());
        assert!(fails());
        let why = why(&standing, START);
        assert!(why.contains("60 s") && why.contains("it burns"), "{why}");
        assert!(standing.begin(START).is_none());
        assert!(!before.failed(START, &error()), "it is set aside already");
    }

    #[test]
    fn a_device_that_has_not_come_back_is_not_trusted() {
        let standing = Standing::default();
        let (first, second, third) = (
            begin(&standing, START),
            begin(&standing, START),
            begin(&standing, START),
        );
        assert!(first.left_behind(START, true, &error()), "once is enough");
        assert!(!second.left_behind(START, true, &error()));
        third.worked();
        standing.came_back();
        assert!(why(&standing, START + 2 * ASIDE).contains("until it answers"));
        standing.came_back();
        why(&standing, START);
        assert_eq!(standing.trust(START + ASIDE), Trust::Once);
        let trial = begin(&standing, START + ASIDE);
        assert!(trial.left_behind(START + ASIDE, true, &error()));
        standing.came_back();
        why(&standing, START + ASIDE);
    }

    #[test]
    fn one_slice_tries_a_device_that_was_set_aside() {
        let standing = set_aside();
        let later = START + ASIDE;
        assert_eq!(standing.trust(later), Trust::Once, "a look is no try");
        let trial = begin(&standing, later);
        assert!(trial.is_trial() && standing.begin(later).is_none());
        why(&standing, later + 2 * ASIDE);
        drop(trial);
        let trial = begin(&standing, later);
        assert!(trial.failed(later, &error()), "one more is enough");
        drop(trial);
        why(&standing, later + ASIDE / 2);
        begin(&standing, later + ASIDE).worked();
        assert_eq!(standing.trust(later + ASIDE), Trust::Full);
        assert!(!begin(&standing, later + ASIDE).is_trial());
    }

    #[test]
    fn slices_that_began_before_it_was_set_aside_say_nothing_of_it() {
        let standing = Standing::default();
        let [worked, failed, dropped, late] = [(); 4].map(|()| begin(&standing, START));
        for _ in 0..FAILURES_IN_A_ROW {
            begin(&standing, START).failed(START, &error());
        }
        worked.worked();
        why(&standing, START);
        let later = START + ASIDE;
        let trial = begin(&standing, later);
        drop(dropped);
        assert!(standing.begin(later).is_none(), "one tries it already");
        assert!(!failed.failed(later, &error()));
        trial.worked();
        assert!(late.left_behind(later, true, &error()));
        trial.worked();
        why(&standing, later);
    }

    #[test]
    fn a_call_that_was_given_up_with_its_job_says_nothing_else_of_the_device() {
        let standing = Standing::default();
        let [early, later, last] = [(); 3].map(|()| begin(&standing, START));
        assert!(last.left_behind(START, false, &error()));
        why(&standing, START + 2 * ASIDE);
        standing.came_back();
        assert_eq!(standing.trust(START), Trust::Once);
        begin(&standing, START).failed(START, &error());
        early.left_behind(START, false, &error());
        standing.came_back();
        why(&standing, START + ASIDE / 2);
        let trial = begin(&standing, START + ASIDE);
        later.left_behind(START + ASIDE, false, &error());
        standing.came_back();
        assert!(standing.begin(START + ASIDE).is_none(), "one tries it");
        trial.worked();
        assert_eq!(standing.trust(START + ASIDE), Trust::Full);
    }

    #[test]
    fn a_call_that_was_given_up_is_waited_for_although_a_trial_has_worked() {
        let standing = Standing::default();
        let early = begin(&standing, START);
        for _ in 0..FAILURES_IN_A_ROW {
            begin(&standing, START).failed(START, &error());
        }
        let later = START + ASIDE;
        let trial = begin(&standing, later);
        early.left_behind(later, false, &error());
        trial.worked();
        assert!(why(&standing, later).contains("until it answers"));
        standing.came_back();
        let next = begin(&standing, later);
        drop(trial);
        assert!(standing.begin(later).is_none(), "one tries it");
        next.worked();
        assert_eq!(standing.trust(later), Trust::Full);
    }

    #[test]
    fn of_many_threads_one_tries_it() {
        const THREADS: usize = 8;
        const ROUNDS: usize = 200;
        let standing = set_aside();
        for _ in 0..ROUNDS {
            let at_once = Barrier::new(THREADS);
            let begins = || {
                at_once.wait();
                standing.begin(START + ASIDE)
            };
            let trials = std::thread::scope(|scope| {
                let threads = [(); THREADS].map(|()| scope.spawn(begins));
                threads.map(|thread| thread.join().expect("no panic"))
            });
            assert_eq!(trials.iter().flatten().count(), 1);
        }
    }
}
