//! When a process is killed.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::watch::{Point, Trap};

/// One kill in so many comes at any time, the others at a step of a job.
const ANY_TIME_EVERY: u32 = 3;
/// One in so many of these comes while the process opens what it works with.
const OPENING_EVERY: u32 = 4;
/// The last of the times after that.
const LATEST: Duration = Duration::from_millis(600);
/// The longest time from a step to the kill.
const LONGEST_DELAY: Duration = Duration::from_millis(20);
/// Each job takes every step; of steps that it takes for each file there are more.
const MAX_JOB_STEPS: u64 = 12;
const MAX_FILE_STEPS: u64 = 60;

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// After this part of the time that the quickest took to open database and device.
    Opening(f64),
    /// So long after both are open.
    Time(Duration),
    /// So long after a step.
    Step(Trap, Duration),
}

impl Moment {
    /// `finds_leftovers` says whether the process to be killed has something to remove.
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
        // As often below a millisecond as above it.
        let delay = match rng.random_range(0..3) {
            0 => Duration::ZERO,
            1 => LONGEST_DELAY.mul_f64(rng.random::<f64>() / 20.0),
            _ => LONGEST_DELAY.mul_f64(rng.random()),
        };
        Self::Step(trap, delay)
    }

    /// Where the process is to say so.
    #[must_use]
    pub fn trap(self) -> Option<Trap> {
        match self {
            Self::Opening(_) | Self::Time(_) => None,
            Self::Step(trap, _) => Some(trap),
        }
    }
}
