//! A job that a database offers, and its result when it runs alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rockmill_compaction::{EligibleJob, Engine, Finished, MutableSettings, Settings};
use rockmill_core::{CancelToken, Error};
use rockmill_format::compression::Implementation;

use super::watch::Watch;
use crate::family::{Family, merge_operators, set_identity};
use crate::life::Outputs;
use crate::storage::SimStorage;

/// A job that a database offers.
#[derive(Debug)]
pub struct Request {
    /// Position among the databases.
    pub database: usize,
    /// Position among its column families.
    pub family: usize,
    /// Whether RocksDB runs it in the bottom-priority pool.
    pub in_bottom_pool: bool,
    pub session_id: String,
    pub begins: Duration,
    pub cancelled: Option<Duration>,
}

/// Result of a job, and its time.
#[derive(Debug)]
pub struct Ended {
    pub result: Result<Finished, Error>,
    pub at: Duration,
}

/// Result of a job that runs alone on the CPU, one subcompaction at a time.
#[derive(Debug)]
pub struct Baseline {
    pub outputs: Outputs,
    pub subcompactions: u64,
    /// Memory that it keeps while it runs.
    pub index_bytes: u64,
    /// Additional memory of a subcompaction with the smallest read-ahead.
    pub subcompaction_bytes: u64,
}

impl Baseline {
    /// The smallest memory with which the job is done.
    pub fn needed_bytes(&self) -> u64 {
        self.index_bytes + self.subcompaction_bytes
    }

    /// Number of subcompactions for which that much memory suffices.
    pub fn fitting(&self, budget_bytes: u64) -> u64 {
        budget_bytes.saturating_sub(self.index_bytes) / self.subcompaction_bytes
    }
}

impl Request {
    pub fn prepare(
        &self,
        engine: &Engine,
        (dir, family): (&Path, &Family),
        cancel: &CancelToken,
    ) -> Result<EligibleJob, Error> {
        let mut info = family.info("some-session");
        info.is_in_bottom_pool = self.in_bottom_pool;
        let mut job = engine.prepare(dir, info, &family.message, cancel)?.job;
        // Without this, each machine would choose for itself.
        job.compressed_by = Some(Implementation::Rockmill1);
        set_identity(&mut job, self.session_id.clone(), 1);
        engine.eligible(job)
    }

    /// Runs the job on an otherwise idle machine.
    pub fn run_alone(&self, machine: SimStorage, of: (&Path, &Family)) -> Baseline {
        const PLENTY: u64 = 1 << 40;
        let settings = Settings {
            mutable: MutableSettings {
                threads: 1,
                // Verifying files in parallel with subcompactions needs further memory.
                sync_threads: Some(0),
                memory_budget_bytes: PLENTY,
                // The engine uses its minimum.
                read_ahead_bytes: 1,
                ..MutableSettings::default()
            },
            merge_operators: merge_operators(),
            ..Settings::default()
        };
        let watch = Arc::new(Watch::new(0));
        let storage = machine.observed(watch.clone());
        let engine = Engine::new(settings, Arc::new(storage.clone())).expect("sound settings");
        let engine = Arc::new(engine);
        watch.observe(&engine);
        let cancel = CancelToken::new();
        let job = self.prepare(&engine, of, &cancel).expect("it is done");
        let finished = engine.run(&job, of.0, of.0, &cancel).expect("it is done");
        let subcompaction_bytes = engine.stats().subcompactions_peak_held_bytes;
        Baseline {
            subcompactions: finished.outcome.subcompactions as u64,
            outputs: outputs(&storage, finished),
            index_bytes: watch.max_beyond() - subcompaction_bytes,
            subcompaction_bytes,
        }
    }
}

/// Returns the files of a finished job, whose folder is removed.
pub fn outputs(storage: &SimStorage, finished: Finished) -> Outputs {
    let files = storage.files_in(finished.staging.path());
    assert_eq!(files.len(), finished.outcome.files.len(), "nothing else");
    files
}
