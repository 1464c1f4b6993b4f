//! Slices on the CPU, round after round, and what each takes where nothing slows it.
//!
//! In a host that is shared, others slow some processors by half, now these and now those, and at times all of them. So
//! each round is on the processor that is the quickest at that moment, and how slow it was on the whole is divided out of
//! its times: what slices take beside each other is found in all rounds, how fast the machine is in the quickest part of one.

use std::path::Path;
use std::sync::Arc;

use rockmill_core::Result;
use rockmill_cpu::CpuBackend;

use super::pace::at_quickest_pace;
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
        let all = 0..self.slices.len();
        let times = all.map(|slice| self.run(slice, nth, dir, idle));
        let times = times.collect::<Result<_>>()?;
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
                let seconds = self.run(self.tried, nth, dir, idle)?;
                if seconds < quickest.0 {
                    quickest = (seconds, nth);
                }
            }
        }
        Ok(quickest.1)
    }

    /// What one slice takes on the processor `nth`, of which there may be fewer; it does not count as a round's.
    ///
    /// # Errors
    /// As [`Rounds::round`].
    pub fn run(&self, slice: usize, nth: usize, dir: &Path, idle: &Idle) -> Result<f64> {
        let measured = idle.piece(|cancel| {
            let _pinned = self.processors.pin(nth);
            self.slices[slice].run(&CpuBackend, dir, "output", cancel)
        });
        Ok(processor_time(&measured?))
    }

    /// Rounds that were run.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// Processor seconds of each slice, round by round.
    pub fn times(&self) -> &[Vec<f64>] {
        &self.times
    }

    /// Seconds that each slice takes at the quickest pace that a round met.
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

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;
    use rustix::thread::sched_getaffinity;

    use super::*;
    use crate::clock::SystemClock;
    use crate::model::probe::samples::make;
    use crate::model::probe::shapes::CPU_SHAPES;

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
