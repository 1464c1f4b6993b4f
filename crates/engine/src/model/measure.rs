//! How long a slice takes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rockmill_core::{Backend, CancelToken, Result, Slice, SliceWork, StageTime, thread_cpu};

use super::made::{Made, job_io};
use crate::parallel;
use crate::settings::MutableSettings;
use crate::staging::{StagingDir, StagingSink};
use crate::storage::LocalStorage;

/// A slice that was run.
#[derive(Debug, Clone)]
pub struct Measured {
    /// From its start until all files are written and durable.
    pub seconds: f64,
    /// Of that, processor time of all threads that worked on it.
    pub cpu_seconds: f64,
    /// Where the time went, if the backend says so.
    pub stages: Vec<StageTime>,
}

impl Made {
    /// Runs the slice once; the output is written to a folder `name` in `dir` and removed.
    ///
    /// # Errors
    /// Those of the backend; Cancelled once `cancel` is set, as by what follows.
    pub fn run<B: Backend>(
        &self,
        backend: &B,
        dir: &Path,
        name: &str,
        cancel: &CancelToken,
    ) -> Result<Measured> {
        let staging = StagingDir::create(Arc::new(LocalStorage), dir, name)?;
        let io = job_io();
        let slice = Slice::default();
        let mut sink = StagingSink::new(&staging, io, 0);
        let (started, cpu) = (Instant::now(), thread_cpu());
        let run = backend.survivors(SliceWork {
            inputs: &self.tables,
            plan: &self.plan,
            slice: &slice,
            read_ahead_bytes: MutableSettings::default().read_ahead_bytes,
            cancel,
            progress: None,
        })?;
        let report = backend.write_ssts(run, &mut sink)?;
        Ok(Measured {
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: (thread_cpu().saturating_sub(cpu) + report.cpu_elsewhere).as_secs_f64(),
            stages: report.stages,
        })
    }

    /// Runs the slice on so many threads at once.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn run_at_once<B: Backend>(
        &self,
        backend: &B,
        dir: &Path,
        slices: u32,
        cancel: &CancelToken,
    ) -> Result<Vec<Measured>> {
        let names: Vec<String> = (0..slices).map(|i| format!("output{i}")).collect();
        let run = |name: &String| self.run(backend, dir, name, cancel);
        Ok(parallel::map(&names, names.len(), run)?.0)
    }
}

/// Mean of what slices took that ran at once; 0 of none.
pub fn mean(all: &[Measured], seconds: impl Fn(&Measured) -> f64) -> f64 {
    all.iter().map(seconds).sum::<f64>() / all.len().max(1) as f64
}
