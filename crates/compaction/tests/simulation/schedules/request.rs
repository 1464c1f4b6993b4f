//! A job that a database offers, and what it takes by itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rockmill_compaction::{EligibleJob, Engine, Finished, MutableSettings, Settings};
use rockmill_core::{CancelToken, Error, Identity};

use super::watch::Watch;
use crate::family::Family;
use crate::life::Outputs;
use crate::storage::SimStorage;

/// A job that a database offers.
#[derive(Debug)]
pub struct Request {
    /// Position among the databases.
    pub database: usize,
    /// Position among its column families.
    pub family: usize,
    /// Whether RocksDB runs it in the pool of bottommost compactions.
    pub in_bottom_pool: bool,
    pub session_id: String,
    pub begins: Duration,
    pub cancelled: Option<Duration>,
}

/// What became of it, and when.
#[derive(Debug)]
pub struct Ended {
    pub result: Result<Finished, Error>,
    pub at: Duration,
}

/// What the CPU makes of a job by itself, undisturbed, one subcompaction at a time.
#[derive(Debug)]
pub struct Alone {
    pub outputs: Outputs,
    pub subcompactions: u64,
    /// What it keeps in memory while it runs.
    pub index_bytes: u64,
    /// What a subcompaction takes beside that, with as little read ahead as there may be.
    pub subcompaction_bytes: u64,
}

impl Alone {
    /// Memory with which it is done, and with less it is not.
    pub fn needed_bytes(&self) -> u64 {
        self.index_bytes + self.subcompaction_bytes
    }

    /// Subcompactions for which so much memory suffices.
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
        job.unix_time = 1_700_000_000;
        job.identity = Identity {
            session_id: self.session_id.clone(),
            host: "host".to_owned(),
            checksum_seed: 1,
        };
        engine.eligible(job)
    }

    /// The job on a machine where nothing else is.
    pub fn run_alone(&self, machine: SimStorage, of: (&Path, &Family)) -> Alone {
        const PLENTY: u64 = 1 << 40;
        let settings = Settings {
            mutable: MutableSettings {
                threads: 1,
                // Who checks files beside subcompactions takes memory for that.
                sync_threads: Some(0),
                memory_budget_bytes: PLENTY,
                // The least there is.
                read_ahead_bytes: 1,
                ..MutableSettings::default()
            },
            ..Settings::default()
        };
        let watch = Arc::new(Watch::new(0));
        let storage = machine.observed(watch.clone());
        let engine = Engine::new(settings, Arc::new(storage.clone())).expect("sound settings");
        let engine = Arc::new(engine);
        watch.look_at(&engine);
        let cancel = CancelToken::new();
        let job = self.prepare(&engine, of, &cancel).expect("it is done");
        let finished = engine.run(&job, of.0, of.0, &cancel).expect("it is done");
        let subcompaction_bytes = engine.stats().peak_held_bytes;
        Alone {
            subcompactions: finished.outcome.subcompactions as u64,
            outputs: outputs(&storage, finished),
            index_bytes: watch.max_beyond() - subcompaction_bytes,
            subcompaction_bytes,
        }
    }
}

/// The files of a finished job, whose folder goes then.
pub fn outputs(storage: &SimStorage, finished: Finished) -> Outputs {
    let staging = finished.staging.path();
    let mut names = storage.disk().list(staging).expect("it is there");
    names.sort();
    assert_eq!(names.len(), finished.outcome.files.len(), "nothing else");
    let bytes = |name: &String| storage.peek(&staging.join(name)).expect("it is there");
    names
        .iter()
        .map(|name| (name.clone(), bytes(name)))
        .collect()
}
