//! A case: its databases, its jobs and their results.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rockmill_compaction::staging::STAGING_DIR;
use rockmill_compaction::{Engine, Settings, Stats};
use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind};
use rockmill_storage::clock::{Clock, Worker};
use rockmill_testkit::VirtualClock;
use rockmill_testkit::{Fault, UnitProfile};

use super::crowd::Crowd;
use super::request::{Baseline, Ended, Request, outputs};
use super::watch::Watch;
use crate::database::Database;
use crate::disk::{Disk, Survival};
use crate::family::Family;
use crate::make_folder;
use crate::storage::SimStorage;

/// By then every call has returned.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// A case.
#[derive(Debug)]
pub struct World {
    pub databases: Vec<(PathBuf, Database)>,
    pub requests: Vec<Request>,
    /// In order of time.
    pub changes: Vec<Change>,
    pub settings: Settings,
    /// Profiles of the simulated devices.
    pub profiles: Vec<UnitProfile>,
    /// Set if the case tests priorities.
    pub crowd: Option<Crowd>,
    /// Bytes per second between the databases' drive and the host, if transfers take time.
    pub storage_speed: Option<f64>,
    pub seed: u64,
}

/// Settings that change while jobs run.
#[derive(Debug)]
pub struct Change {
    pub at: Duration,
    pub threads: usize,
    pub memory_budget_bytes: u64,
}

/// Results of a case.
#[derive(Debug)]
pub struct Ending {
    pub stats: Stats,
    /// Result of each job, in the order of the requests.
    pub jobs: Vec<Result<(), ErrorKind>>,
    /// Results of the jobs when they run alone, in the same order.
    pub alone: Vec<Baseline>,
}

/// Decline because none of a job's subcompactions fits.
pub const TOO_LARGE: ErrorKind = ErrorKind::Declined(DeclineReason::MemoryBudget);

impl Ending {
    pub fn count(&self, of: Result<(), ErrorKind>) -> u64 {
        self.jobs.iter().filter(|job| **job == of).count() as u64
    }
}

impl World {
    /// Runs all jobs, and checks that each ended as required and left nothing.
    pub fn run(&self) -> Ending {
        let disk = self.disk();
        let machine = || SimStorage::new(disk.clone(), self.seed, None, CancelToken::new());
        let clock = VirtualClock::default();
        let watch = Arc::new(Watch::new(self.settings.mutable.memory_budget_bytes));
        let storage = machine().timed(clock.clone(), self.storage_speed);
        let storage = storage.observed(watch.clone());
        let engine = Engine::new(self.settings.clone(), Arc::new(storage.clone()));
        let engine = Arc::new(engine.expect("sound settings"));
        watch.observe(&engine);
        engine.wait_for_device().expect("all are there");
        let ended = self.run_jobs(&engine, &clock, &watch);
        let moved_bytes = storage.seen().bytes;
        let alone = self.requests.iter();
        let alone: Vec<_> = alone
            .map(|request| request.run_alone(machine(), self.of(request)))
            .collect();
        let times: Vec<_> = ended.iter().map(|ended| ended.at).collect();
        let all = self.requests.iter().zip(&alone).zip(ended);
        let jobs = all.map(|((request, alone), ended)| {
            self.ends_as_it_must(request, alone, &ended);
            let result = ended.result.map(|finished| {
                let made = outputs(&storage, finished);
                assert!(made == alone.outputs, "seed {}: other bytes", self.seed);
            });
            result.map_err(|error| error.kind)
        });
        let jobs = jobs.collect();
        self.all_is_given_back(&engine, &storage, &clock);
        let stats = engine.stats();
        let ending = Ending { stats, jobs, alone };
        self.all_is_told(&ending);
        self.memory_was_bounded(&watch, &ending);
        self.nobody_idled(&times, &ending, moved_bytes);
        if let Some(crowd) = &self.crowd {
            crowd.nobody_starved(self, &times, &ending);
        }
        ending
    }

    /// Runs all jobs to their ends while settings change.
    fn run_jobs(&self, engine: &Engine, clock: &VirtualClock, watch: &Watch) -> Vec<Ended> {
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let time = &time;
        std::thread::scope(|scope| {
            // Time begins when all threads are present.
            let worker = |_: &Request| Worker::new(time);
            let workers: Vec<_> = self.requests.iter().map(worker).collect();
            let cancels: Vec<_> = self.requests.iter().map(|_| CancelToken::new()).collect();
            let closing = self.requests.iter().zip(&cancels);
            let closing = closing.filter_map(|(request, cancel)| {
                let when = request.cancelled?;
                Some((when, cancel.clone(), Worker::new(time)))
            });
            let closing: Vec<_> = closing.collect();
            let changer = Worker::new(time);
            for (when, cancel, worker) in closing {
                let close = move || {
                    time.pause(when);
                    cancel.cancel();
                };
                scope.spawn(move || worker.run(close));
            }
            scope.spawn(move || changer.run(|| self.change_settings(engine, &**time, watch)));
            let preparing = self.databases.iter().map(|_| AtomicBool::new(false));
            let preparing: Arc<[AtomicBool]> = preparing.collect();
            let jobs = self.requests.iter().zip(workers).zip(cancels);
            let jobs: Vec<_> = jobs
                .map(|((request, worker), cancel)| {
                    let preparing = Arc::clone(&preparing);
                    let work = move || {
                        let turn = &preparing[request.database];
                        self.run_job(engine, &**time, request, turn, &cancel)
                    };
                    scope.spawn(move || worker.run(work))
                })
                .collect();
            let ended = jobs.into_iter().map(|job| job.join().expect("no panic"));
            ended.collect()
        })
    }

    fn run_job(
        &self,
        engine: &Engine,
        time: &dyn Clock,
        request: &Request,
        preparing: &AtomicBool,
        cancel: &CancelToken,
    ) -> Ended {
        const POLL: Duration = Duration::from_micros(1);
        time.pause(request.begins);
        let dir = self.of(request).0;
        // The engine follows a database's MANIFEST under a lock that virtual time does not know.
        while preparing.swap(true, Ordering::AcqRel) {
            time.pause(POLL);
        }
        let prepare = || request.prepare(engine, self.of(request), cancel);
        let job = engine.offered("database", 1, prepare);
        preparing.store(false, Ordering::Release);
        let result = job.and_then(|job| engine.run(&job, dir, dir, cancel));
        let at = time.now();
        Ended { result, at }
    }

    fn change_settings(&self, engine: &Engine, time: &dyn Clock, watch: &Watch) {
        for change in &self.changes {
            time.pause(change.at - time.now());
            watch.resize(change.memory_budget_bytes, || {
                let changed = engine.change_settings(|settings| {
                    settings.threads = change.threads;
                    settings.memory_budget_bytes = change.memory_budget_bytes;
                });
                changed.expect("they make sense");
            });
        }
    }

    /// Returns a drive with all databases.
    fn disk(&self) -> Disk {
        let mut disk = Disk::default();
        for (dir, database) in &self.databases {
            make_folder(&mut disk, dir);
            for (path, bytes) in &database.files {
                let name = path.file_name().expect("a file");
                let node = disk.create(&dir.join(name)).expect("a new file");
                disk.append(node, bytes);
            }
        }
        disk.after_crash(&mut Survival::Best)
    }

    /// Returns a job's directory and column family.
    pub fn of(&self, request: &Request) -> (&Path, &Family) {
        let (dir, database) = &self.databases[request.database];
        (dir, &database.families[request.family])
    }

    /// Checks that a job is done, or was cancelled, or that none of its subcompactions ever fitted while it ran.
    fn ends_as_it_must(&self, request: &Request, alone: &Baseline, ended: &Ended) {
        let seed = self.seed;
        let needed = alone.needed_bytes();
        let (least, most) = self.budgets(request.begins, ended.at);
        match ended.result.as_ref().map_err(|error| error.kind) {
            Ok(_) => assert!(needed <= most, "seed {seed}: {needed} in {most}"),
            Err(TOO_LARGE) => assert!(needed > least, "seed {seed}: {needed} in {least}"),
            Err(kind) => {
                let was = request.cancelled.is_some();
                let error = ended.result.as_ref().err().map(Error::to_string);
                assert!(
                    was && kind == ErrorKind::Cancelled,
                    "seed {seed}: {error:?}"
                );
            }
        }
        if let Some(cancelled) = request.cancelled {
            /// A cancelled job waits two more seconds for a device. Waiting threads check every 20 ms, in several
            /// places.
            const PROMPT: Duration = Duration::from_millis(2100);
            let by = cancelled.max(request.begins) + PROMPT;
            assert!(
                ended.at <= by,
                "seed {seed}: closed by {:?}, not {by:?}",
                ended.at
            );
        }
    }

    /// Returns the smallest and the largest memory budget between two times.
    pub fn budgets(&self, from: Duration, to: Duration) -> (u64, u64) {
        let first = (Duration::ZERO, self.settings.mutable.memory_budget_bytes);
        let changes = self.changes.iter();
        let changes = changes.map(|change| (change.at, change.memory_budget_bytes));
        let all: Vec<_> = std::iter::once(first).chain(changes).collect();
        // At the time of a change, either budget may apply.
        let ends = |i: usize| all.get(i + 1).map_or(Duration::MAX, |(at, _)| *at);
        let there = (0..all.len()).filter(|&i| all[i].0 <= to && ends(i) >= from);
        let bytes = there.map(|i| all[i].1);
        bytes.fold((u64::MAX, 0), |(least, most), bytes| {
            (least.min(bytes), most.max(bytes))
        })
    }

    /// Checks that memory and staging folders are released once abandoned calls have returned.
    fn all_is_given_back(&self, engine: &Engine, storage: &SimStorage, clock: &VirtualClock) {
        const MOST: Duration = Duration::from_secs(60);
        clock.pause(LONG);
        let started = Instant::now();
        while engine.memory_taken_bytes() > 0 {
            let seed = self.seed;
            assert!(
                started.elapsed() < MOST,
                "seed {seed}: memory is not given back"
            );
            std::thread::yield_now();
        }
        let stats = engine.stats();
        let running = (
            stats.jobs_running,
            stats.subcompactions_running,
            stats.subcompactions_held_bytes,
        );
        assert_eq!(running, (0, 0, 0), "seed {}", self.seed);
        for (dir, _) in &self.databases {
            let staging = storage.disk().list(&dir.join(STAGING_DIR));
            assert!(staging.is_err(), "seed {}: {staging:?} stays", self.seed);
        }
    }

    /// Checks that undone jobs have a reason, that failures on devices are counted by device, and that the CPU redid
    /// them.
    fn all_is_told(&self, ending: &Ending) {
        let (seed, stats) = (self.seed, &ending.stats);
        let cancelled = ending.count(Err(ErrorKind::Cancelled));
        let told = |kind: ErrorKind| {
            stats
                .jobs_declined_by_reason
                .get(kind.code())
                .copied()
                .unwrap_or(0)
        };
        for kind in [ErrorKind::Cancelled, TOO_LARGE] {
            let count = ending.count(Err(kind));
            assert_eq!(told(kind), count, "seed {seed}: {kind:?}");
        }
        let jobs = (stats.jobs_done, stats.jobs_offered);
        let all = (ending.count(Ok(())), ending.jobs.len() as u64);
        assert_eq!(jobs, all, "seed {seed}");
        let times = |fault: Fault| {
            stats
                .simulated_faults
                .get(fault.name())
                .copied()
                .unwrap_or(0)
        };
        let sum = |of: fn(Fault) -> bool| {
            let chosen = Fault::ALL.into_iter().filter(|fault| of(*fault));
            chosen.map(times).sum::<u64>()
        };
        let failed = sum(|fault| fault != Fault::Slow);
        let damaged = sum(Fault::damages);
        if cancelled == 0 {
            let (abandoned, hangs) = (stats.subcompactions_abandoned, times(Fault::Hang));
            assert!(abandoned >= hangs, "seed {seed}: {abandoned} of {hangs}");
            let (redone, discarded) = (
                stats.subcompactions_redone_by_cpu,
                stats.verification_failures,
            );
            assert!(redone >= failed, "seed {seed}: {redone} of {failed} redone");
            // A call that is only slow may be abandoned with files that it damaged.
            let late = abandoned - hangs;
            let is_found = (discarded..=discarded + late).contains(&damaged);
            assert!(is_found, "seed {seed}: {discarded} of {damaged} discarded");
            let by_device = stats.devices.values().map(|did| did.subcompactions);
            assert_eq!(by_device.sum::<u64>(), stats.subcompactions, "seed {seed}");
        }
    }
}
