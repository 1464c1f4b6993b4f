//! Slices on one GPU, round after round, and what each usually takes.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rockmill_core::{Backend, Resource, Result};

use super::pace::at_usual_pace;
use super::shapes::{GPU_TERMS, Shape, workload};
use crate::idle::Idle;
use crate::model::cost::Cost;
use crate::model::made::{Draft, Made};
use crate::model::shape::Term;
use crate::parallel;

/// What a slice took once.
#[derive(Clone, Copy)]
pub struct Run {
    /// From its start to its end.
    pub seconds: f64,
    /// Of that, kernels.
    pub kernels: f64,
    /// Processor time of all threads.
    pub cpu_seconds: f64,
}

/// Says what each slice took on a device, round by round, for whoever wants to look closer.
pub fn tell(device: &str, slices: &[Arc<Made>], rounds: &[Vec<f64>]) {
    for (number, slice) in slices.iter().enumerate() {
        let seconds: Vec<f64> = rounds.iter().map(|round| round[number]).collect();
        tracing::debug!(device, shape = ?slice.shape(), ?seconds, "slice of a calibration");
    }
}

/// Slices that one device is measured with.
pub struct Samples {
    /// The slices.
    pub slices: Vec<Arc<Made>>,
    /// What each took, round by round.
    pub rounds: Vec<Vec<Run>>,
}

/// Makes slices of these shapes in `dir`, in folders whose names begin with `prefix`.
///
/// # Errors
/// Storage, Cancelled.
pub fn make(
    shapes: &[Shape],
    dir: &Path,
    prefix: &str,
    threads: u32,
    idle: &Idle,
) -> Result<Vec<Arc<Made>>> {
    let workloads: Vec<_> = shapes.iter().map(workload).collect();
    let drafts = { workloads.iter().enumerate() }
        .map(|(i, workload)| Draft::new(workload, dir, &format!("{prefix}{i}")))
        .collect::<Result<Vec<_>>>()?;
    let parts: Vec<_> = { workloads.iter().zip(&drafts) }
        .flat_map(|(workload, draft)| workload.parts().map(move |runs| (workload, draft, runs)))
        .map(|part| (part, OnceLock::new()))
        .collect();
    idle.piece(|cancel| {
        // What was made before a job came is there.
        let left: Vec<_> = parts
            .iter()
            .filter(|(_, is_done)| is_done.get().is_none())
            .collect();
        parallel::map(
            &left,
            threads as usize,
            |((workload, draft, runs), is_done)| {
                draft.write(runs, |i, key| workload.set_key(i, key), cancel)?;
                let _ = is_done.set(());
                Ok(())
            },
        )
    })?;
    drop(parts);
    let made = drafts.into_iter().map(|draft| draft.open().map(Arc::new));
    made.collect()
}

impl Samples {
    /// Of slices that nobody has run.
    pub fn new(made: &[Arc<Made>]) -> Self {
        Self {
            slices: made.to_vec(),
            rounds: Vec::new(),
        }
    }

    /// Runs all slices once, and `before` before each.
    ///
    /// # Errors
    /// Those of the backend and of `before`, Cancelled.
    pub fn round<B: Backend>(
        &mut self,
        backend: &B,
        dir: &Path,
        idle: &Idle,
        mut before: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let run = |slice: &Arc<Made>| {
            before()?;
            let measured = idle.piece(|cancel| slice.run(backend, dir, "output", cancel))?;
            let stages = measured.stages.iter();
            let kernels = stages.filter(|stage| stage.resource == Resource::Device);
            Ok(Run {
                seconds: measured.seconds,
                kernels: kernels.fold(0.0, |sum, stage| sum + stage.seconds),
                cpu_seconds: measured.cpu_seconds,
            })
        };
        let round = self.slices.iter().map(run).collect::<Result<_>>()?;
        self.rounds.push(round);
        Ok(())
    }

    /// Seconds of each slice, round by round.
    pub fn seconds(&self) -> Vec<Vec<f64>> {
        self.times(|run| run.seconds)
    }

    fn times(&self, of: impl Fn(&Run) -> f64) -> Vec<Vec<f64>> {
        let rounds = self.rounds.iter();
        rounds
            .map(|round| round.iter().map(&of).collect())
            .collect()
    }

    /// The cost that comes nearest to what the host has a part in, at the pace of all rounds: no processor is chosen for
    /// these threads, and the quickest round is quicker than what a job meets.
    pub fn fit(&self, of: impl Fn(&Run) -> f64) -> Cost {
        let seconds = at_usual_pace(self.slices.len(), &self.times(of));
        self.fit_to(seconds, &GPU_TERMS)
    }

    /// That of kernels, by the least of all rounds: what slows the host does not slow them.
    pub fn fit_kernels(&self) -> Cost {
        let least = |slice: usize| {
            let rounds = self.rounds.iter().map(|round| round[slice].kernels);
            rounds.fold(f64::INFINITY, f64::min)
        };
        let seconds = (0..self.slices.len()).map(least).collect();
        self.fit_to(seconds, &Term::ALL)
    }

    fn fit_to(&self, seconds: Vec<f64>, terms: &[Term]) -> Cost {
        let shapes = self.slices.iter().map(|slice| *slice.shape());
        let rows: Vec<_> = shapes.zip(seconds).collect();
        Cost::fit(terms, &rows)
    }
}
