//! The moment at which a process is killed.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::watch::{Point, Trap};

/// One kill in `ANY_TIME_EVERY` comes at any time, the others at a step of a job.
const ANY_TIME_EVERY: u32 = 3;
/// One in `OPENING_EVERY` of those comes while the process opens database and device.
const OPENING_EVERY: u32 = 4;
/// The latest time after that.
const LATEST: Duration = Duration::from_millis(600);
/// The longest delay from a step to the kill.
const LONGEST_DELAY: Duration = Duration::from_millis(20);
/// Highest occurrence of a step that each job takes once; the next limit is for steps that it takes for each file.
const MAX_JOB_STEPS: u64 = 12;
const MAX_FILE_STEPS: u64 = 60;

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// After this fraction of the shortest opening time of database and device.
    Opening(f64),
    /// This long after both are open.
    Time(Duration),
    /// This long after a step.
    Step(Trap, Duration),
}

impl Moment {
    /// Draws a moment. `finds_leftovers` says whether the process to be killed finds files to remove.
    pub fn random(rng: &mut StdRng, finds_leftovers: bool) -> Self {
        let cleans = finds_leftovers && rng.random();
        if !cleans && rng.random_ratio(1, ANY_TIME_EVERY) {
            let part = rng.random();
            return match rng.random_ratio(1, OPENING_EVERY) {
                true => Self::Opening(part),
                false => Self::Time(LATEST.mul_f64(part)),
            };
        }
        let point = match cleans {
            true => Point::Cleaned,
            false => *Point::OF_A_JOB.choose(rng).expect("not empty"),
        };
        let most = match point {
            Point::Created | Point::Written | Point::Synced => MAX_FILE_STEPS,
            Point::Begun | Point::Staged | Point::Taken | Point::Removed => MAX_JOB_STEPS,
            Point::Cleaned => 1,
        };
        let trap = Trap {
            point,
            nth: rng.random_range(1..=most),
            holds: rng.random(),
        };
        // About two thirds of the delays are at most a millisecond.
        let delay = match rng.random_range(0..3) {
            0 => Duration::ZERO,
            1 => LONGEST_DELAY.mul_f64(rng.random::<f64>() / 20.0),
            _ => LONGEST_DELAY.mul_f64(rng.random()),
        };
        Self::Step(trap, delay)
    }

    /// Returns the step that the process is to report.
    #[must_use]
    pub fn trap(self) -> Option<Trap> {
        match self {
            Self::Opening(_) | Self::Time(_) => None,
            Self::Step(trap, _) => Some(trap),
        }
    }
}
