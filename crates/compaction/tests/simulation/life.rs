//! One life of the engine on one machine: it starts, prepares a job and runs it, and RocksDB renames the files, unless
//! a fault occurs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_compaction::staging::location;
use rockmill_compaction::{
    CudaSettings, Device, EligibleJob, Engine, Finished, MutableSettings, OutputCache, Settings,
    Verification,
};
use rockmill_core::{CancelToken, Error};
use rockmill_cuda::Target;
use rockmill_format::unique_id::SessionId;
use rockmill_format::wire::CompactionServiceResult;

use crate::database::{DIR, Database};
use crate::disk::Survival;
use crate::family::{merge_operators, set_identity};
use crate::storage::SimStorage;

/// Folder of the recorded jobs.
pub const RECORDS: &str = "/jobs";

/// Names and bytes of output files in key order.
pub type Outputs = Vec<(String, Vec<u8>)>;

/// Settings that all lives of a case share.
#[derive(Debug)]
pub struct Case {
    pub seed: u64,
    pub database: Database,
    pub threads: usize,
    pub sync_threads: usize,
    /// 0 is no limit.
    pub io_bytes_per_second: u64,
    pub verification: Verification,
    /// Whether output files go through the page cache.
    pub output_cache: OutputCache,
    /// Staging folder, if it is not in the database's directory.
    pub staging_dir: Option<&'static str>,
    /// Whether jobs are recorded.
    pub records: bool,
    /// Whether the job is created from the MANIFEST alone.
    pub offline: bool,
}

/// How a life ended.
#[derive(Debug)]
pub enum Ending {
    /// No job could be prepared.
    Unprepared(Error),
    /// The job failed.
    Failed(Error),
    /// The job was done and its files reported.
    Done(Outputs),
}

impl Case {
    /// Returns the staging folder of the database.
    pub fn staging(&self) -> PathBuf {
        let disk = self.database.disk.clone();
        let storage = SimStorage::new(disk, 0, None, CancelToken::new());
        let staging_dir = self.staging_dir.map(Path::new);
        location::folder(&storage, Path::new(DIR), staging_dir).expect("it is there")
    }

    /// Returns the session id of a life's job. Lives with the same id write the same bytes.
    pub fn session_id(&self, life: u64) -> String {
        SessionId {
            upper: self.seed,
            lower: life,
        }
        .encode()
    }

    /// Returns the CPU, or in one case of eight a GPU's kernels, for all kinds of faults.
    fn device(&self) -> Device {
        match self.seed / 16 % 8 {
            0 => Device::Kernels(Target::Host),
            _ => Device::Cpu,
        }
    }

    /// Returns memory for all subcompactions, for some, or for none.
    fn device_memory_bytes(&self) -> Option<u64> {
        const FOR_SMALL_SUBCOMPACTIONS: u64 = 200_000;
        match self.seed / 128 % 4 {
            0 => Some(1),
            1 => Some(FOR_SMALL_SUBCOMPACTIONS),
            _ => None,
        }
    }

    fn job(&self, engine: &Engine, life: u64, cancel: &CancelToken) -> Result<EligibleJob, Error> {
        let dir = Path::new(DIR);
        let info = self.database.family().info(&format!("session-{life}"));
        let prepared = engine.prepare(dir, info, &self.database.family().message, cancel)?;
        let mut job = prepared.job;
        if self.offline {
            job = engine.full_compaction(dir, b"default")?.job;
        }
        set_identity(&mut job, self.session_id(life), self.seed);
        engine.eligible(job)
    }
}

/// Returns the path to which RocksDB renames the file at `position` of a life's result.
fn installed(life: u64, position: usize) -> PathBuf {
    const FILES_PER_LIFE: u64 = 1000;
    let number = (life + 1) * FILES_PER_LIFE + position as u64;
    Path::new(DIR).join(format!("{number:06}.sst"))
}

pub fn live(storage: &SimStorage, case: &Case, life: u64, cancel: &CancelToken) -> Ending {
    live_with(&engine(storage, case), storage, case, life, cancel)
}

pub fn engine(storage: &SimStorage, case: &Case) -> Engine {
    let settings = Settings {
        mutable: MutableSettings {
            threads: case.threads,
            sync_threads: Some(case.sync_threads),
            io_bytes_per_second: case.io_bytes_per_second,
            verification: case.verification,
            output_cache: case.output_cache,
            ..MutableSettings::default()
        },
        device: case.device().into(),
        cuda: CudaSettings {
            memory_bytes: case.device_memory_bytes(),
            pinned_bytes: Some(0),
            ..CudaSettings::default()
        },
        staging_dir: case.staging_dir.map(PathBuf::from),
        record_dir: case.records.then(|| RECORDS.into()),
        merge_operators: merge_operators(),
        ..Settings::default()
    };
    let engine = Engine::new(settings, Arc::new(storage.clone())).expect("sound settings");
    engine.wait_for_device().expect("it is there");
    engine
}

/// Runs one life of an engine that has just started.
pub fn live_with(
    engine: &Engine,
    storage: &SimStorage,
    case: &Case,
    life: u64,
    cancel: &CancelToken,
) -> Ending {
    let prepared = case.job(engine, life, cancel);
    if storage.seen().struck.is_empty() {
        let staging = storage.disk().list(&case.staging());
        assert!(staging.is_err(), "the start leaves {staging:?} in staging");
    }
    let dir = Path::new(DIR);
    match prepared.map(|job| engine.run(&job, dir, dir, cancel)) {
        Err(error) => Ending::Unprepared(error),
        Ok(Err(error)) => Ending::Failed(error),
        Ok(Ok(finished)) => {
            tells_what_was_cached(storage, case, &finished);
            Ending::Done(take(storage, engine, finished, life))
        }
    }
}

/// Checks that files that could not bypass the page cache are counted, including those of a failed device.
fn tells_what_was_cached(storage: &SimStorage, case: &Case, finished: &Finished) {
    let (files, told) = (
        finished.outcome.files.len() as u64,
        finished.outcome.files_cached_instead,
    );
    match (storage.has_direct(), case.output_cache) {
        (true, _) => assert_eq!(told, 0),
        (false, OutputCache::Bypass) => assert!(told >= files, "{told} of {files}"),
        // The database's options may request direct I/O.
        (false, OutputCache::Database) => assert!(told == 0 || told >= files, "{told} of {files}"),
    }
}

/// Does RocksDB's part after a job is reported. It does not sync its directory, as on btrfs.
fn take(storage: &SimStorage, engine: &Engine, finished: Finished, life: u64) -> Outputs {
    let result = CompactionServiceResult::decode(&finished.result).expect("RocksDB can read it");
    let staging = Path::new(OsStr::from_bytes(&result.output_path));
    let disk = storage.disk();
    let mut outputs = Outputs::new();
    for file in result.output_files {
        let path = staging.join(&file.file_name);
        assert!(disk.is_durable(&path), "{path:?} is reported, not durable");
        let bytes = storage.peek(&path).expect("it is there");
        outputs.push((file.file_name, bytes));
    }
    let renamed = outputs.iter().enumerate().try_for_each(|(i, (name, _))| {
        let from = staging.join(name);
        storage.install(&from, &installed(life, i))
    });
    if renamed.is_ok() && engine.files_taken(Path::new(DIR)).is_ok() {
        let disk = storage.after_crash(&mut Survival::Worst);
        for (i, (_, bytes)) in outputs.iter().enumerate() {
            let path = installed(life, i);
            let node = disk.open(&path);
            let survives = node.is_ok_and(|node| disk.bytes(node) == bytes);
            assert!(survives, "{path:?} was taken and would not survive");
        }
    }
    drop(finished);
    outputs
}
