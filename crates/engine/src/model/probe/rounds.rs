//! Slices on the CPU, round after round, and what each takes where nothing slows it.
//!
//! In a host that is shared, others slow some processors by half, now these and now those, and at times all of them. So
//! each round is on the processor that is the quickest at that moment, and how slow it was on the whole is divided out of
//! its times: what slices take beside each other is found in all rounds, how fast the machine is in the quickest.

use std::path::Path;
use std::sync::Arc;

use rockmill_core::Result;
use rockmill_cpu::CpuBackend;

use super::processor_time;
use crate::idle::Idle;
use crate::model::cost::Cost;
use crate::model::made::Made;
use crate::model::shape::Term;
use crate::processors::Processors;

/// So many processors are tried before a round; of more, others each time.
const MOST_TRIED: usize = 16;

/// The first run on a processor finds nothing in its caches.
const RUNS_TRIED: usize = 2;

/// Slices and what they took.
pub struct Rounds {
    /// The slices.
    pub slices: Vec<Arc<Made>>,
    /// Position of the one that processors are tried with.
    tried: usize,
    processors: Processors,
    /// Processor seconds of each slice, round by round.
    times: Vec<Vec<f64>>,
}

impl Rounds {
    /// Of slices that nobody has run; processors are tried with that at position `tried`.
    pub fn new(slices: Vec<Arc<Made>>, tried: usize) -> Self {
        Self {
            slices,
            tried,
            processors: Processors::here(),
            times: Vec::new(),
        }
    }

    /// Runs each slice once, all on one processor; files lie in `dir`.
    ///
    /// # Errors
    /// Those of the backend, Cancelled.
    pub fn round(&mut self, dir: &Path, idle: &Idle) -> Result<()> {
        let nth = self.quickest(dir, idle)?;
        let run = |slice: &Arc<Made>| self.run(slice, nth, dir, idle);
        let times = self.slices.iter().map(run).collect::<Result<_>>()?;
        self.times.push(times);
        Ok(())
    }

    /// The processor that is the quickest of some just now.
    fn quickest(&self, dir: &Path, idle: &Idle) -> Result<usize> {
        let tried = self.processors.count().min(MOST_TRIED);
        let first = self.times.len() * tried;
        let mut quickest = (f64::INFINITY, first);
        for nth in first..first + tried {
            for _ in 0..RUNS_TRIED {
                let seconds = self.run(&self.slices[self.tried], nth, dir, idle)?;
                if seconds < quickest.0 {
                    quickest = (seconds, nth);
                }
            }
        }
        Ok(quickest.1)
    }

    fn run(&self, slice: &Made, nth: usize, dir: &Path, idle: &Idle) -> Result<f64> {
        let measured = idle.piece(|cancel| {
            let _pinned = self.processors.pin(nth);
            slice.run(&CpuBackend, dir, "output", cancel)
        });
        Ok(processor_time(&measured?))
    }

    /// Seconds that each slice takes at the pace of the quickest round.
    pub fn seconds(&self) -> Vec<f64> {
        at_quickest_pace(self.slices.len(), &self.times)
    }

    /// The cost that comes nearest to that.
    pub fn fit(&self) -> Cost {
        let shapes = self.slices.iter().map(|slice| *slice.shape());
        let samples: Vec<_> = shapes.zip(self.seconds()).collect();
        Cost::fit(&Term::ALL, &samples)
    }
}

/// What slices take by rounds in which all were run: their times are in the proportions of all rounds, and as short as in
/// the quickest; infinite without a round.
fn at_quickest_pace(slices: usize, rounds: &[Vec<f64>]) -> Vec<f64> {
    /// In each, the times follow from the paces and the paces from the times; more change nothing.
    const SWEEPS: usize = 8;
    /// Disturbances of a slice alone only add. The least of many is one in whose round others were disturbed.
    const OF_A_SLICE: f64 = 0.25;
    const OF_A_ROUND: f64 = 0.5;
    let (mut paces, mut seconds) = (vec![1.0; rounds.len()], Vec::new());
    for _ in 0..SWEEPS {
        let of_slice = |slice: usize| {
            let all = rounds.iter().zip(&paces);
            quantile(all.map(|(round, pace)| round[slice] / pace), OF_A_SLICE)
        };
        seconds = (0..slices).map(of_slice).collect();
        let of_round = |round: &Vec<f64>| {
            let all = round.iter().zip(&seconds);
            quantile(all.map(|(took, usual)| took / usual), OF_A_ROUND)
        };
        paces = rounds.iter().map(of_round).collect();
    }
    let quickest = paces.into_iter().fold(f64::INFINITY, f64::min);
    seconds.iter().map(|seconds| seconds * quickest).collect()
}

/// The value that this share of all, rounded down, do not reach; infinite of none.
fn quantile(all: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    let position = (all.len().saturating_sub(1) as f64 * share) as usize;
    all.get(position).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;
    use rustix::thread::sched_getaffinity;

    use super::*;
    use crate::clock::SystemClock;
    use crate::model::probe::samples::make;
    use crate::model::probe::shapes::CPU_SHAPES;

    /// What slices take by themselves.
    const TIMES: [f64; 7] = [1e-3, 2e-3, 3e-3, 5e-3, 8e-3, 13e-3, 21e-3];

    fn round(pace: f64) -> Vec<f64> {
        TIMES.iter().map(|seconds| pace * seconds).collect()
    }

    fn assert_found(rounds: &[Vec<f64>], pace: f64) {
        for (found, seconds) in at_quickest_pace(TIMES.len(), rounds).into_iter().zip(TIMES) {
            let error = found / (pace * seconds) - 1.0;
            assert!(error.abs() < 1e-9, "{error} of {seconds} in {rounds:?}");
        }
    }

    #[test]
    fn how_slow_a_round_was_does_not_matter_but_for_the_quickest() {
        for paces in [
            &[1.7][..],
            &[1.5, 1.0],
            &[1.6, 1.1, 1.6],
            &[2.0, 1.9, 1.5, 1.0, 3.0],
        ] {
            let rounds: Vec<_> = paces.iter().map(|&pace| round(pace)).collect();
            assert_found(&rounds, paces.iter().copied().fold(f64::INFINITY, f64::min));
        }
        assert_eq!(at_quickest_pace(2, &[]), [f64::INFINITY; 2]);
    }

    #[test]
    fn a_slice_that_was_disturbed_in_the_quickest_round_is_known_from_the_others() {
        let mut rounds = [1.5, 1.0, 1.6].map(round);
        rounds[1][0] *= 1.4;
        rounds[1][6] *= 3.0;
        rounds[0][3] *= 1.2;
        assert_found(&rounds, 1.0);
    }

    #[test]
    fn what_changes_in_the_middle_of_a_round_is_left_to_the_others() {
        let mut rounds = [1.0, 1.0, 1.0, 1.0, 1.5].map(round);
        rounds[4][..3].copy_from_slice(&TIMES[..3]);
        assert_found(&rounds, 1.0);
    }

    #[test]
    fn the_thread_may_go_anywhere_again_after_each_slice() {
        let mask = || sched_getaffinity(None).expect("every thread has one");
        let (before, dir) = (mask(), tempfile::tempdir().expect("a folder"));
        let idle = Idle::new(SystemClock::shared());
        let made = make(&CPU_SHAPES[6..8], dir.path(), "cpu", 1, &idle);
        let made = made.expect("there is room");
        let mut rounds = Rounds::new(made, 0);
        for _ in 0..2 {
            rounds.round(dir.path(), &idle).expect("it runs");
        }
        assert_eq!(mask(), before);
        assert!(rounds.seconds().into_iter().all(|seconds| seconds > 0.0));
        assert!(rounds.fit().is_sound() && !rounds.fit().is_nothing());
        idle.stop();
        let stopped = rounds.round(dir.path(), &idle);
        assert_eq!(stopped.expect_err("it gave up").kind, ErrorKind::Cancelled);
        assert!(mask() == before && rounds.times.len() == 2);
    }
}
