//! A case: its databases, its jobs and what becomes of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rockmill_core::{CancelToken, Error, ErrorKind, Identity, Job};
use rockmill_cuda::Target;
use rockmill_engine::clock::{Clock, VirtualClock, Worker};
use rockmill_engine::model::Fault;
use rockmill_engine::staging::STAGING_DIR;
use rockmill_engine::{
    CudaSettings, Device, Engine, Finished, MutableSettings, Patience, Settings, Stats,
    Verification,
};
use rockmill_format::unique_id::SessionId;

use super::fleet;
use crate::database::Database;
use crate::disk::{Disk, Luck};
use crate::life::Outputs;
use crate::make_folder;
use crate::storage::SimStorage;

/// Bytes a second of a drive.
const STORAGE_SPEED: f64 = 200e6;

/// Bytes a second that an engine is limited to.
const SLOW_IO: u64 = 2_000_000;

/// By then every call has come back.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// A case.
pub struct World {
    databases: Vec<(PathBuf, Database)>,
    requests: Vec<Request>,
    settings: Settings,
    /// Bytes a second between the databases' drive and the host, if they take time.
    storage_speed: Option<f64>,
    seed: u64,
}

/// A job that a database offers.
struct Request {
    /// Position among the databases.
    database: usize,
    session_id: String,
    begins: Duration,
    cancelled: Option<Duration>,
}

/// What a case came to.
pub struct Ending {
    pub stats: Stats,
    pub done: u64,
    pub cancelled: u64,
}

impl World {
    pub fn draw(rng: &mut SmallRng, seed: u64) -> Self {
        let databases: Vec<_> = (0..rng.random_range(1..=3))
            .map(|number| (PathBuf::from(format!("/db{number}")), Database::draw(rng)))
            .collect();
        // Beyond the time for which a device is set aside, or all at about the same.
        let last = *[0.2, 0.2, 200.0].choose(rng).expect("there are some");
        let requests = (0..rng.random_range(1..=5))
            .map(|number| {
                let begins = Duration::from_secs_f64(rng.random_range(0.0..last));
                let until = Duration::from_secs_f64(rng.random_range(0.0..0.3));
                Request {
                    database: rng.random_range(0..databases.len()),
                    session_id: SessionId {
                        upper: seed,
                        lower: number + 1,
                    }
                    .encode(),
                    begins,
                    cancelled: rng.random_ratio(1, 6).then_some(begins + until),
                }
            })
            .collect();
        let levels = [
            Verification::Default,
            Verification::Default,
            Verification::SAMPLED,
        ];
        let device = fleet::draw(rng, seed);
        // The kernels' slices wait for each other outside of time, so none of them may wait in it.
        let has_kernels = device.contains(Device::Kernels(Target::Host));
        let limit = *[0, 0, SLOW_IO].choose(rng).expect("there are some");
        let settings = Settings {
            mutable: MutableSettings {
                threads: rng.random_range(1..=3),
                sync_threads: Some(rng.random_range(0..=2)),
                host_percent: *[0, 30, 100].choose(rng).expect("there are some"),
                io_bytes_per_second: if has_kernels { 0 } else { limit },
                verification: *levels.choose(rng).expect("there are some"),
                ..MutableSettings::default()
            },
            device,
            cuda: CudaSettings {
                pinned_bytes: Some(0),
                ..CudaSettings::default()
            },
            patience: Patience::at_least(Duration::from_secs(1)),
            ..Settings::default()
        };
        Self {
            databases,
            requests,
            settings,
            storage_speed: (!has_kernels).then_some(STORAGE_SPEED),
            seed,
        }
    }

    /// Lets all jobs run, and looks whether each ended as it must and nothing is left of them.
    pub fn run(self) -> Ending {
        let disk = self.disk();
        let machine = || SimStorage::new(disk.clone(), self.seed, None, CancelToken::new());
        let clock = VirtualClock::default();
        let storage = machine().timed(clock.clone(), self.storage_speed);
        let engine = Engine::new(self.settings.clone(), Arc::new(storage.clone()));
        let engine = engine.expect("sound settings");
        engine.wait_for_device().expect("all are there");
        let endings = self.run_jobs(&engine, &clock);
        let undisturbed = machine();
        let alone = Engine::new(Settings::default(), Arc::new(undisturbed.clone()));
        let alone = alone.expect("sound settings");
        let (mut done, mut cancelled) = (0, 0);
        for (request, result) in self.requests.iter().zip(endings) {
            match result {
                Ok(finished) => {
                    engine.counters().done(&finished.outcome);
                    let expected = self.run_alone(&alone, &undisturbed, request);
                    let made = outputs(&storage, finished);
                    assert!(made == expected, "seed {}: other bytes", self.seed);
                    done += 1;
                }
                Err(error) => {
                    let is_told = error.kind == ErrorKind::Cancelled;
                    let was = request.cancelled.is_some();
                    assert!(is_told && was, "seed {}: {error}", self.seed);
                    cancelled += 1;
                }
            }
        }
        self.all_is_given_back(&engine, &storage, &clock);
        let ending = Ending {
            stats: engine.stats(),
            done,
            cancelled,
        };
        self.all_is_told(&ending);
        ending
    }

    /// Lets all jobs run to their ends.
    fn run_jobs(&self, engine: &Engine, clock: &VirtualClock) -> Vec<Result<Finished, Error>> {
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        std::thread::scope(|scope| {
            // Time begins when all are there.
            let workers: Vec<_> = (self.requests.iter())
                .map(|request| {
                    let canceller = request.cancelled.map(|when| (when, Worker::new(&time)));
                    (request, Worker::new(&time), canceller)
                })
                .collect();
            let jobs: Vec<_> = workers
                .into_iter()
                .map(|(request, worker, canceller)| {
                    let cancel = CancelToken::new();
                    if let Some((when, worker)) = canceller {
                        let (time, cancel) = (&time, cancel.clone());
                        let closing = move || {
                            time.pause(when);
                            cancel.cancel();
                        };
                        scope.spawn(move || worker.run(closing));
                    }
                    let time = &time;
                    scope.spawn(move || {
                        let prepared = worker.run(|| {
                            time.pause(request.begins);
                            self.prepare(engine, request, &cancel)
                        });
                        let dir = self.dir(request);
                        prepared.and_then(|job| engine.run(&job, dir, dir, &cancel))
                    })
                })
                .collect();
            let ended = jobs.into_iter().map(|job| job.join().expect("no panic"));
            ended.collect()
        })
    }

    /// All databases on one drive.
    fn disk(&self) -> Disk {
        let mut disk = Disk::new();
        for (dir, database) in &self.databases {
            make_folder(&mut disk, dir);
            for (path, bytes) in &database.files {
                let name = path.file_name().expect("a file");
                let node = disk.create(&dir.join(name)).expect("a new file");
                disk.append(node, bytes);
            }
        }
        disk.after_crash(&mut Luck::Best)
    }

    fn dir(&self, request: &Request) -> &Path {
        &self.databases[request.database].0
    }

    fn prepare(
        &self,
        engine: &Engine,
        request: &Request,
        cancel: &CancelToken,
    ) -> Result<Job, Error> {
        let (dir, database) = &self.databases[request.database];
        let info = Database::info("some-session");
        let mut job = engine.prepare(dir, info, &database.message, cancel)?;
        job.unix_time = 1_700_000_000;
        job.identity = Identity {
            session_id: request.session_id.clone(),
            host: "host".to_owned(),
            checksum_seed: self.seed,
        };
        Ok(job)
    }

    /// What the CPU makes of a job, undisturbed.
    fn run_alone(&self, alone: &Engine, machine: &SimStorage, request: &Request) -> Outputs {
        let (dir, cancel) = (self.dir(request), CancelToken::new());
        let job = self.prepare(alone, request, &cancel).expect("it is done");
        let finished = alone.run(&job, dir, dir, &cancel).expect("it is done");
        outputs(machine, finished)
    }

    /// Memory and staging folders, once calls have come back that were left behind.
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
        let running = (stats.jobs_running, stats.slices_running, stats.held_bytes);
        assert_eq!(running, (0, 0, 0), "seed {}", self.seed);
        for (dir, _) in &self.databases {
            let staging = storage.disk().list(&dir.join(STAGING_DIR));
            assert!(staging.is_err(), "seed {}: {staging:?} stays", self.seed);
        }
    }

    /// What devices failed at has a name, and was done by the CPU.
    fn all_is_told(&self, ending: &Ending) {
        let (seed, stats) = (self.seed, &ending.stats);
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
        let told = [
            (stats.jobs_done, ending.done, "jobs done"),
            (stats.slices_left_behind, times(Fault::Hang), "hangs"),
        ];
        for (found, least, what) in told {
            assert!(
                found >= least || ending.cancelled > 0,
                "seed {seed}: {what}"
            );
        }
        if ending.cancelled == 0 {
            let (redone, thrown_out) = (stats.slices_redone, stats.verification_failures);
            assert!(redone >= failed, "seed {seed}: {redone} of {failed} redone");
            // A call that is only slow may be left behind with files that it damaged.
            let late = stats.slices_left_behind - times(Fault::Hang);
            let is_found = (thrown_out..=thrown_out + late).contains(&damaged);
            assert!(
                is_found,
                "seed {seed}: {thrown_out} of {damaged} thrown out"
            );
            let by_device = stats.devices.values().map(|did| did.slices);
            assert_eq!(by_device.sum::<u64>(), stats.slices, "seed {seed}");
        }
    }
}

/// The files of a finished job, whose folder goes then.
fn outputs(storage: &SimStorage, finished: Finished) -> Outputs {
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
