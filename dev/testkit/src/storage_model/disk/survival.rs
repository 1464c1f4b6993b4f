//! Effects of a crash on unsynced changes.

use rand::Rng;
use rand::rngs::SmallRng;

/// Which unsynced changes survive a crash.
#[derive(Debug)]
pub enum Survival<'a> {
    /// None.
    Worst,
    /// All.
    Best,
    /// Every write and every name independently, writes also in part.
    Random(&'a mut SmallRng),
}

impl Survival<'_> {
    /// Returns how many of `whole` bytes survive.
    pub(super) fn part(&mut self, whole: usize) -> usize {
        match self {
            Self::Worst => 0,
            Self::Best => whole,
            Self::Random(rng) => match rng.random_range(0..3) {
                0 => 0,
                1 => whole,
                _ => rng.random_range(0..=whole),
            },
        }
    }

    pub(super) fn keeps(&mut self) -> bool {
        match self {
            Self::Worst => false,
            Self::Best => true,
            Self::Random(rng) => rng.random(),
        }
    }
}
