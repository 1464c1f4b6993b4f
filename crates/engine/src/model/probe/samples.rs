//! Slices of one device and the least that each took.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rockmill_core::{Backend, Resource, Result};

use super::shapes::{Shape, workload};
use crate::idle::Idle;
use crate::model::cost::Cost;
use crate::model::made::{Draft, Made};
use crate::model::shape::{SliceShape, Term};
use crate::parallel;

/// A slice and the least time that it took.
pub struct Sample {
    /// The slice.
    pub made: Arc<Made>,
    /// From its start to its end.
    pub seconds: f64,
    /// Of that, kernels.
    pub kernels: f64,
    /// Processor time of all threads.
    pub cpu_seconds: f64,
}

/// Slices that one device is measured with.
pub struct Samples(pub Vec<Sample>);

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
        let sample = |made| Sample {
            made: Arc::clone(made),
            seconds: f64::INFINITY,
            kernels: 0.0,
            cpu_seconds: 0.0,
        };
        Self(made.iter().map(sample).collect())
    }

    /// Runs all slices once. What else the machine does only adds to a time, so the least of all rounds counts;
    /// rounds go over all slices, so that a short disturbance meets none of them every time.
    ///
    /// # Errors
    /// Those of the backend, Cancelled.
    pub fn round<B: Backend>(&mut self, backend: &B, dir: &Path, idle: &Idle) -> Result<()> {
        for sample in &mut self.0 {
            let measured = idle.piece(|cancel| sample.made.run(backend, dir, "output", cancel))?;
            if measured.seconds < sample.seconds {
                sample.seconds = measured.seconds;
                sample.cpu_seconds = measured.cpu_seconds;
                let kernels = measured
                    .stages
                    .iter()
                    .filter(|s| s.resource == Resource::Device);
                sample.kernels = kernels.fold(0.0, |sum, stage| sum + stage.seconds);
            }
        }
        Ok(())
    }

    /// The cost that comes nearest to what was measured.
    pub fn fit(&self, of: impl Fn(&Sample) -> f64) -> Cost {
        let row = |sample: &Sample| (*sample.made.shape(), of(sample));
        let rows: Vec<(SliceShape, f64)> = self.0.iter().map(row).collect();
        Cost::fit(&Term::ALL, &rows)
    }
}
