//! A device that fails at some slices, or at all, costs time and nothing else.

mod storage_model;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rockmill_core::{CancelToken, Identity};
use rockmill_cuda::Target;
use rockmill_engine::model::UnitProfile;
use rockmill_engine::storage::{FolderId, ReadableFile, Storage, WritableFile};
use rockmill_engine::{
    CudaSettings, Device, DeviceList, DeviceWork, Engine, MutableSettings, Patience, Predict,
    Settings, SliceShape, SliceTime, Stats,
};
use rockmill_format::unique_id::SessionId;

use storage_model::database::{DIR, Database};
use storage_model::storage::SimStorage;

const CASES: u64 = 30;

/// Storage that damages the first files that are written to it.
#[derive(Debug)]
struct Damaging {
    storage: SimStorage,
    files_left: AtomicU32,
    /// Whether writing them does not come back instead.
    stuck: Option<Stuck>,
}

/// Set when what is stuck may come back.
type Stuck = Arc<(Mutex<bool>, Condvar)>;

/// A file that takes nothing before it may.
#[derive(Debug)]
struct StuckFile(Box<dyn WritableFile>, Stuck);

impl WritableFile for StuckFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (is_free, changed) = &*self.1;
        let held = is_free.lock().expect("no panic");
        drop(changed.wait_while(held, |is_free| !*is_free));
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

/// A file of which the last byte of each piece is not what it should be.
#[derive(Debug)]
struct Damaged(Box<dyn WritableFile>);

impl WritableFile for Damaged {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        self.0.append(&bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Storage for Damaging {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        self.storage.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = self.storage.create(path)?;
        // The engine also tries the staging folder.
        let is_output = path.extension().is_some_and(|extension| extension == "sst");
        let one_less = |left: u32| left.checked_sub(u32::from(is_output));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.files_left.fetch_update(set, fetch, one_less) {
            Ok(1..) if is_output => Ok(match &self.stuck {
                Some(stuck) => Box::new(StuckFile(file, Arc::clone(stuck))),
                None => Box::new(Damaged(file)),
            }),
            _ => Ok(file),
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.storage.create_dir_all(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_dir_all(path)
    }

    fn remove_empty_dir(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_empty_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.storage.rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.storage.list(path)
    }

    fn folder_id(&self, path: &Path) -> io::Result<FolderId> {
        self.storage.folder_id(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.storage.sync_dir(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.storage.link_or_copy(from, to)
    }
}

/// All devices are as quick, and none is fed by the host, so that each has slices.
#[derive(Debug)]
struct AllAlike;

impl Predict for AllAlike {
    fn time(&self, _: &str, _: &SliceShape, _: usize) -> SliceTime {
        SliceTime {
            seconds: 1e-3,
            cpu_seconds: 0.0,
        }
    }

    fn observed(&self, _: &str, _: &SliceShape, _: usize, _: SliceTime) {}

    fn knows(&self, _: &str) -> bool {
        true
    }
}

/// What a job left.
#[derive(Debug)]
struct Left {
    /// Names and bytes of the files.
    files: Vec<(String, Vec<u8>)>,
    device: String,
    devices: Vec<DeviceWork>,
    refused: Option<String>,
    /// Slices of the job.
    slices: u64,
    stats: Stats,
}

/// What a job runs on.
#[derive(Debug, Clone, Copy)]
struct Machine {
    devices: DeviceList,
    host_percent: u8,
    threads: usize,
    /// Of each device.
    memory_bytes: Option<u64>,
    /// The first files are not written as they should be.
    damaged: u32,
}

/// Runs the job of a database on a device with so much memory; the first `damaged` files are not written as
/// they should be.
fn run(database: &Database, device: Device, memory_bytes: Option<u64>, damaged: u32) -> Left {
    let machine = Machine {
        devices: device.into(),
        host_percent: 100,
        threads: 3,
        memory_bytes,
        damaged,
    };
    run_on(database, machine)
}

/// Runs the job of a database.
fn run_on(database: &Database, machine: Machine) -> Left {
    run_stuck(database, machine, None)
}

/// The same; with something to be stuck on, the first files are not damaged but do not come back.
fn run_stuck(database: &Database, machine: Machine, stuck: Option<Stuck>) -> Left {
    let (engine, storage) = start(database, machine, stuck);
    run_again(database, &engine, &storage)
}

/// An engine and what it works on.
fn start(database: &Database, machine: Machine, stuck: Option<Stuck>) -> (Engine, SimStorage) {
    const PATIENCE: Duration = Duration::from_millis(200);
    let disk = database.disk.clone();
    let storage = SimStorage::new(disk, 1, None, CancelToken::new());
    let settings = Settings {
        mutable: MutableSettings {
            threads: machine.threads,
            host_percent: machine.host_percent,
            ..MutableSettings::default()
        },
        device: machine.devices,
        cuda: CudaSettings {
            memory_bytes: machine.memory_bytes,
            ..CudaSettings::default()
        },
        patience: match stuck {
            // By a model that knows the device.
            Some(_) => Patience {
                known: PATIENCE,
                unknown: Duration::MAX,
            },
            None => Patience::default(),
        },
        ..Settings::default()
    };
    let damaging = Damaging {
        storage: storage.clone(),
        files_left: AtomicU32::new(machine.damaged),
        stuck,
    };
    let engine = Engine::with_model(settings, Arc::new(damaging), Arc::new(AllAlike));
    let engine = engine.expect("sound settings");
    engine.wait_for_device().expect("it is there");
    (engine, storage)
}

/// Runs the job of a database once more.
fn run_again(database: &Database, engine: &Engine, storage: &SimStorage) -> Left {
    let (dir, cancel) = (Path::new(DIR), CancelToken::new());
    let info = database.family().info("some-session");
    let prepared = engine.prepare(dir, info, &database.family().message, &cancel);
    let mut job = prepared.expect("the engine does such jobs");
    job.unix_time = 1_700_000_000;
    job.identity = Identity {
        session_id: SessionId { upper: 1, lower: 1 }.encode(),
        host: "host".to_owned(),
        checksum_seed: 7,
    };
    let finished = engine.run(&job, dir, dir, &cancel);
    let finished = finished.expect("the CPU does what the device does not");
    engine.counters().done(&finished.outcome);
    let staging = finished.staging.path();
    let mut names = storage.disk().list(staging).expect("it is there");
    names.sort();
    assert_eq!(
        names.len(),
        finished.outcome.files.len(),
        "nothing else is left"
    );
    let files = names.into_iter().map(|name| {
        let bytes = storage.peek(&staging.join(&name)).expect("it is there");
        (name, bytes)
    });
    Left {
        files: files.collect(),
        device: finished.outcome.device.clone(),
        devices: finished.outcome.devices.clone(),
        refused: finished.outcome.device_refused.clone(),
        slices: finished.outcome.slices as u64,
        stats: engine.stats(),
    }
}

const KERNELS: Device = Device::Kernels(Target::Host);

/// Memory that the first slice needed which did not get any.
fn need(left: &Left) -> Option<u64> {
    let mut words = left.refused.as_ref()?.split(' ').map(str::parse);
    words.find_map(Result::ok)
}

#[test]
fn files_do_not_depend_on_what_did_which_slice() {
    let (mut whole, mut in_part, mut not_at_all) = (0, 0, 0);
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let expected = run(&database, Device::Cpu, None, 0);
        assert_eq!((&*expected.device, &expected.refused), ("cpu", &None));
        let none = run(&database, KERNELS, Some(1), 0);
        // Some slices need more than this one.
        let some = run(&database, KERNELS, need(&none), 0);
        let all = run(&database, KERNELS, None, 0);
        for left in [none, some, all] {
            assert!(left.files == expected.files, "seed {seed}");
            let redone = left.stats.slices_redone;
            match (&left.refused, &*left.device) {
                (None, _) => whole += 1,
                (Some(_), "cpu") => not_at_all += 1,
                (Some(why), _) => {
                    assert!(redone > 0 && why.contains("memory"), "{redone}, {why}");
                    in_part += 1;
                }
            }
        }
    }
    let counts = [whole, in_part, not_at_all];
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

/// One to three devices, simulated ones among them, with or without the CPU, and with enough memory or not.
fn draw_machine(rng: &mut SmallRng) -> Machine {
    let simulated = UnitProfile::names().map(|name| format!("sim:{name}"));
    let simulated = simulated.map(|name| name.parse().expect("it ships"));
    let kinds: Vec<Device> = [KERNELS; 3].into_iter().chain(simulated).collect();
    let mut devices: Vec<_> = (0..rng.random_range(1..=3))
        .map(|_| *kinds.choose(rng).expect("there are some"))
        .collect();
    if rng.random_ratio(3, 4) {
        devices.insert(rng.random_range(0..=devices.len()), Device::Cpu);
    }
    Machine {
        devices: DeviceList::try_from(&*devices).expect("few enough"),
        host_percent: *[0, 30, 100].choose(rng).expect("there are some"),
        threads: rng.random_range(1..=3),
        memory_bytes: *[None, None, Some(300_000)].choose(rng).expect("some"),
        damaged: 0,
    }
}

#[test]
fn files_do_not_depend_on_which_devices_share_the_slices() {
    const MIXES: u64 = 4;
    let (mut mixed, mut several, mut simulated) = (0, 0, 0);
    for seed in 1..=CASES {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let database = Database::draw(rng);
        let expected = run(&database, Device::Cpu, None, 0);
        for _ in 0..MIXES {
            let machine = draw_machine(rng);
            let left = run_on(&database, machine);
            assert!(left.files == expected.files, "seed {seed}: {machine:?}");
            let by_device = left.devices.iter().map(|work| work.slices);
            let slices: u64 = by_device.sum();
            assert_eq!(slices, left.slices, "seed {seed}: {machine:?}");
            let counted = left.stats.devices.values().map(|did| did.slices);
            assert_eq!(counted.sum::<u64>(), slices, "seed {seed}: {machine:?}");
            let host = left.devices.iter().find(|work| work.device == "cpu");
            let host_slices = host.map_or(0, |work| work.slices);
            if left.refused.is_none() {
                let most = slices * u64::from(machine.host_percent) / 100;
                let is_bounded = !machine.devices.contains(Device::Cpu) || host_slices <= most;
                assert!(
                    is_bounded,
                    "seed {seed}: {host_slices} of {slices}: {machine:?}"
                );
                let is_simulated = |work: &DeviceWork| work.device.starts_with("sim:");
                simulated += u64::from(left.devices.iter().any(is_simulated));
                mixed += u64::from(left.devices.len() > 1 && host.is_some());
                several += u64::from(
                    left.devices
                        .iter()
                        .filter(|work| work.device != "cpu")
                        .count()
                        > 1,
                );
            }
        }
    }
    assert!(
        mixed > 0 && several > 0 && simulated > 0,
        "{mixed} with the CPU, {several} with several devices, {simulated} with simulated ones"
    );
}

#[test]
fn slices_whose_files_are_not_what_the_device_meant_are_made_again() {
    let mut made_again = 0;
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let expected = run(&database, KERNELS, None, 0);
        if expected.device == "cpu" || expected.files.is_empty() {
            continue;
        }
        let left = run(&database, KERNELS, None, 1);
        assert!(left.files == expected.files, "seed {seed}");
        assert_eq!(left.stats.slices_redone, 1, "seed {seed}");
        assert_eq!(left.stats.verification_failures, 1, "seed {seed}");
        let why = left.refused.expect("something was wrong");
        assert!(why.starts_with("cuda-on-host: "), "{why}");
        made_again += 1;
    }
    assert!(made_again > 0);
}

#[test]
fn a_slice_that_does_not_come_back_is_left_behind() {
    let mut left_behind = 0;
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let expected = run(&database, KERNELS, None, 0);
        if expected.device == "cpu" || expected.files.is_empty() {
            continue;
        }
        let machine = Machine {
            devices: KERNELS.into(),
            host_percent: 100,
            threads: 2,
            memory_bytes: None,
            damaged: 1,
        };
        let stuck = Stuck::default();
        let left = run_stuck(&database, machine, Some(Arc::clone(&stuck)));
        assert!(left.files == expected.files, "seed {seed}");
        let why = left.refused.expect("it is stuck");
        assert!(why.contains("has not come back"), "{why}");
        assert_eq!(left.stats.slices_redone, 1, "seed {seed}");
        assert_eq!(left.stats.devices_set_aside, 1, "seed {seed}");
        *stuck.0.lock().expect("no panic") = true;
        stuck.1.notify_all();
        // The call comes back to files that nobody needs, and lets go of all.
        while Arc::strong_count(&stuck) > 1 {
            std::thread::yield_now();
        }
        left_behind += 1;
    }
    assert!(left_behind > 0);
}

/// The kernels with so many threads, whose first files are damaged.
fn kernels(threads: usize, damaged: u32) -> Machine {
    Machine {
        devices: KERNELS.into(),
        host_percent: 100,
        threads,
        memory_bytes: None,
        damaged,
    }
}

/// A database whose job has as many slices on the kernels as there are to be with it, and that job undisturbed.
fn with_slices(slots: impl Fn(&Left) -> u64) -> (Database, Left, u64) {
    (1..)
        .map(|seed| Database::draw(&mut SmallRng::seed_from_u64(seed)))
        .find_map(|database| {
            let left = run_on(&database, kernels(1, 0));
            let slots = slots(&left);
            let fills = left.device != "cpu" && left.slices >= slots;
            fills.then_some((database, left, slots))
        })
        .expect("it goes on until there is one")
}

/// An engine whose first slices do not come back, with memory for them and what the job holds beside.
fn start_stuck(
    (database, expected, slots): &(Database, Left, u64),
    stuck: &Stuck,
) -> (Engine, SimStorage, u64) {
    let machine = kernels(*slots as usize, *slots as u32);
    let (engine, storage) = start(database, machine, Some(Arc::clone(stuck)));
    let budget = slots * expected.stats.peak_held_bytes + (1 << 20);
    let set = engine.change_settings(|settings| settings.memory_budget_bytes = budget);
    set.expect("it makes sense");
    (engine, storage, budget)
}

/// Lets calls come back, and waits until they have.
fn release(stuck: &Stuck, engine: &Engine) {
    *stuck.0.lock().expect("no panic") = true;
    stuck.1.notify_all();
    while engine.memory_taken_bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn slices_that_do_not_come_back_leave_the_cpu_room_for_one() {
    const LEAST_BUDGET: u64 = 32 << 20;
    // One with so many slices that they fill the budget.
    let case = with_slices(|left| LEAST_BUDGET.div_ceil(left.stats.peak_held_bytes));
    let stuck = Stuck::default();
    let (engine, storage, budget) = start_stuck(&case, &stuck);
    let (database, expected, slots) = case;
    let hung = run_again(&database, &engine, &storage);
    assert!(hung.files == expected.files);
    assert_eq!(hung.stats.slices_left_behind, slots);
    let slices_bytes = slots * expected.stats.peak_held_bytes;
    let taken = engine.memory_taken_bytes();
    assert!(
        (slices_bytes..budget).contains(&taken),
        "{taken} of {budget}"
    );
    let left = run_again(&database, &engine, &storage);
    assert!(left.files == expected.files);
    assert_eq!(left.device, "cpu");
    release(&stuck, &engine);
}

#[test]
fn slices_that_do_not_come_back_are_made_again_one_at_a_time_where_memory_is_full() {
    const SLICES: u64 = 6;
    let case = with_slices(|_| SLICES);
    let stuck = Stuck::default();
    let (engine, storage, budget) = start_stuck(&case, &stuck);
    let (database, expected, _) = case;
    let mut most = 0;
    let hung = std::thread::scope(|scope| {
        let job = scope.spawn(|| run_again(&database, &engine, &storage));
        while !job.is_finished() {
            most = engine.memory_taken_bytes().max(most);
            std::thread::yield_now();
        }
        job.join().expect("no panic")
    });
    assert!(hung.files == expected.files);
    assert!(hung.stats.slices_left_behind > 1);
    let slice_bytes = expected.stats.peak_held_bytes;
    assert!(
        most <= budget + slice_bytes,
        "{most} of {budget}, and {slice_bytes} to make one again"
    );
    release(&stuck, &engine);
}

#[test]
fn a_device_that_always_fails_is_asked_a_few_times() {
    let several_slices = (1..=CASES)
        .map(|seed| Database::draw(&mut SmallRng::seed_from_u64(seed)))
        .map(|database| run(&database, KERNELS, Some(1), 0))
        .find(|left| left.stats.devices_set_aside > 0)
        .expect("some job has several slices");
    // Three in a row, and what the other threads had begun.
    let redone = several_slices.stats.slices_redone;
    assert!((3..=3 + 2).contains(&redone), "{redone}");
    assert_eq!(several_slices.stats.devices_set_aside, 1);
    assert_eq!(several_slices.device, "cpu");
}
