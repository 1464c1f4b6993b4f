//! An engine with some devices, and the result of a job on it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rockmill_compaction::{
    CudaSettings, Device, DeviceList, DeviceWork, Engine, MutableSettings, Settings, Stats,
    TaskDeadline,
};
use rockmill_core::CancelToken;
use rockmill_cuda::Target;
use rockmill_format::compression::Implementation;
use rockmill_format::unique_id::SessionId;
use rockmill_storage::Storage;
use rockmill_testkit::hooked::{Step, hooked};
use rockmill_testkit::storage_model::database::{DIR, Database};
use rockmill_testkit::storage_model::family::{merge_operators, set_identity};
use rockmill_testkit::storage_model::storage::SimStorage;

/// Result of a job.
#[derive(Debug)]
pub struct Left {
    /// Names and bytes of the files.
    pub files: Vec<(String, Vec<u8>)>,
    pub device: String,
    pub compressed_by: Implementation,
    pub devices: Vec<DeviceWork>,
    pub refused: Option<String>,
    /// Number of subcompactions of the job.
    pub subcompactions: u64,
    pub stats: Stats,
}

/// Devices and settings for a job.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    pub devices: DeviceList,
    pub threads: usize,
    /// Memory of each device.
    pub memory_bytes: Option<u64>,
    /// Number of files that are damaged, from the first one on.
    pub damaged: u32,
}

/// Set when blocked writes may continue.
pub type Stuck = Arc<(Mutex<bool>, Condvar)>;

/// Runs the job of a database on a device with that much memory. The first `damaged` files are damaged.
pub fn run(database: &Database, device: Device, memory_bytes: Option<u64>, damaged: u32) -> Left {
    let machine = Machine {
        devices: device.into(),
        threads: 3,
        memory_bytes,
        damaged,
    };
    run_on(database, machine)
}

/// Runs the job of a database.
pub fn run_on(database: &Database, machine: Machine) -> Left {
    run_stuck(database, machine, None)
}

/// Does the same. With `stuck`, writes to the first files block instead.
pub fn run_stuck(database: &Database, machine: Machine, stuck: Option<Stuck>) -> Left {
    let (engine, storage) = start(database, machine, stuck);
    run_again(database, &engine, &storage)
}

/// Returns storage that inverts a bit in each piece of the first `files` files. With `stuck`, writes to them block instead.
fn damaging(storage: SimStorage, files: u32, stuck: Option<Stuck>) -> Arc<dyn Storage> {
    hooked(storage, move |_, step| {
        if let Step::Write { table, bytes, .. } = step
            && table.is_some_and(|table| table < files)
        {
            if let Some(stuck) = &stuck {
                let held = stuck.0.lock().expect("no panic");
                drop(stuck.1.wait_while(held, |is_free| !*is_free));
            } else if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }
        Ok(())
    })
}

/// Creates an engine and its storage.
pub fn start(database: &Database, machine: Machine, stuck: Option<Stuck>) -> (Engine, SimStorage) {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let disk = database.disk.clone();
    let storage = SimStorage::new(disk, 1, None, CancelToken::new());
    let settings = Settings {
        mutable: MutableSettings {
            threads: machine.threads,
            ..MutableSettings::default()
        },
        device: machine.devices,
        cuda: CudaSettings {
            memory_bytes: machine.memory_bytes,
            ..CudaSettings::default()
        },
        task_deadline: match stuck {
            Some(_) => TaskDeadline::at_least(TIMEOUT),
            None => TaskDeadline::default(),
        },
        merge_operators: merge_operators(),
        ..Settings::default()
    };
    let engine = Engine::new(settings, damaging(storage.clone(), machine.damaged, stuck));
    let engine = engine.expect("sound settings");
    engine.wait_for_device().expect("it is there");
    (engine, storage)
}

/// Runs the job of a database once more. Rockmill's own code compresses, because each machine would choose for itself.
pub fn run_again(database: &Database, engine: &Engine, storage: &SimStorage) -> Left {
    run_compressed(database, engine, storage, Some(Implementation::Rockmill1))
}

/// Does the same with another compressor, or with the one that is chosen.
pub fn run_compressed(
    database: &Database,
    engine: &Engine,
    storage: &SimStorage,
    compressed_by: Option<Implementation>,
) -> Left {
    let (dir, cancel) = (Path::new(DIR), CancelToken::new());
    let info = database.family().info("some-session");
    let prepared = engine.prepare(dir, info, &database.family().message, &cancel);
    let mut job = prepared.expect("the engine does such jobs").job;
    job.compressed_by = compressed_by;
    set_identity(&mut job, SessionId { upper: 1, lower: 1 }.encode(), 7);
    let job = engine.eligible(job).expect("only its name is another");
    let finished = engine.run(&job, dir, dir, &cancel);
    let finished = finished.expect("the CPU does what the device does not");
    let files = storage.files_in(finished.staging.path());
    assert_eq!(
        files.len(),
        finished.outcome.files.len(),
        "nothing else is left"
    );
    Left {
        files,
        device: finished.outcome.device.clone(),
        compressed_by: finished.outcome.compressed_by,
        devices: finished.outcome.devices.clone(),
        refused: finished.outcome.device_refused.clone(),
        subcompactions: finished.outcome.subcompactions as u64,
        stats: engine.stats(),
    }
}

pub const KERNELS: Device = Device::Kernels(Target::Host);
