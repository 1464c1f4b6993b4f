//! Small jobs, recorded with the bytes of their results: changes of the code must not change these.
//!
//! `scripts/recorded-jobs.sh` creates the archive; docs/internals/testing.md says when.

mod archive;
mod repeat;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use archive::Jobs;
use repeat::{Ended, Engines};
use rockmill_compaction::record::{FileSums, OutputSums};
use rockmill_compaction::{Device, DeviceList};
use rockmill_core::DeclineReason;
use rockmill_cuda::Target;

/// Minimum number of jobs in the archive, and of those that are done.
const MIN_JOBS: usize = 250;
const MIN_DONE: usize = 200;

/// Minimum number of jobs that a GPU does. It leaves zlib and slow levels of ZSTD to the CPU.
const MIN_ON_DEVICE: usize = 200;

/// Reasons that do not depend on a job.
const NOT_IN_A_JOB: [DeclineReason; 10] = [
    // Scans alone do not read these.
    DeclineReason::WideColumns,
    DeclineReason::TimedPuts,
    // The setting `min_job_bytes` is checked before there is a job.
    DeclineReason::SmallJob,
    // The service declines the job before it is made.
    DeclineReason::Paused,
    // The application decides it while the job runs.
    DeclineReason::Cancelled,
    // It depends on the folders of the database and of staging.
    DeclineReason::StagingFolder,
    // The MANIFEST's view of the whole database shows it before there is a job.
    DeclineReason::DbPaths,
    // The messages of a database that is open decide, and a job may come from a closed one.
    DeclineReason::RocksdbVersion,
    // It depends on the process's limit of open files.
    DeclineReason::OpenFiles,
    // It depends on the time.
    DeclineReason::ShuttingDown,
];

/// Returns the device that `ROCKMILL_TEST_DEVICE` names; by default the GPU's kernels on the host.
fn tested_device() -> DeviceList {
    match std::env::var("ROCKMILL_TEST_DEVICE") {
        Ok(name) => name.parse().expect("ROCKMILL_TEST_DEVICE names a device"),
        Err(_) => Device::Kernels(Target::Host).into(),
    }
}

fn name(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Calls `act` for all jobs on all CPUs. Panics with the names of those that fail.
fn for_all(dirs: &[PathBuf], act: impl Fn(&Path) -> Result<(), String> + Sync) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(what) = act(dir) {
                let mut failures = failures.lock().expect("nobody panics while it is held");
                failures.push(format!("{}: {what}", name(dir)));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut failures = failures.into_inner().expect("no thread panicked");
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} of {} jobs are not as they were recorded:\n{}",
        failures.len(),
        dirs.len(),
        failures.join("\n")
    );
}

/// Runs all jobs on `device`. Returns the number of those done without the CPU.
fn repeat_all(device: DeviceList) -> usize {
    let (jobs, engines) = (Jobs::unpack(), Engines::new(device));
    let by_device = AtomicUsize::new(0);
    for_all(&jobs.dirs, |dir| {
        let ended = engines.run(dir)?;
        if matches!(&ended, Ended::Done { device, .. } if !device.contains("cpu")) {
            by_device.fetch_add(1, Ordering::Relaxed);
        }
        repeat::compare(&repeat::recorded(dir)?, &ended)
    });
    by_device.into_inner()
}

#[test]
fn the_cpu_makes_the_recorded_bytes() {
    repeat_all(Device::Cpu.into());
}

#[test]
fn a_gpu_makes_the_recorded_bytes() {
    let by_device = repeat_all(tested_device());
    println!("{by_device} jobs without the CPU");
    assert!(by_device >= MIN_ON_DEVICE, "{by_device} jobs");
}

#[test]
fn every_reason_that_a_job_can_carry_is_recorded() {
    let jobs = Jobs::unpack();
    let ended = jobs.dirs.iter().map(|dir| repeat::recorded(dir));
    let ended: Result<Vec<_>, _> = ended.collect();
    let ended = ended.expect("something is recorded of every job");
    let codes: BTreeSet<_> = ended.iter().filter_map(code).collect();
    let all = DeclineReason::ALL.iter();
    let expected = all.filter(|reason| !NOT_IN_A_JOB.contains(reason));
    let expected: BTreeSet<_> = expected.map(|reason| reason.code()).collect();
    assert_eq!(codes, expected);
    let done = ended.iter().filter(|ended| code(ended).is_none()).count();
    assert!(ended.len() >= MIN_JOBS, "{} jobs", ended.len());
    assert!(done >= MIN_DONE, "{done} jobs are done");
}

fn code(ended: &Ended) -> Option<&str> {
    match ended {
        Ended::Declined(code) => Some(code),
        Ended::Done { .. } => None,
    }
}

#[test]
fn any_difference_is_told() {
    let sums = |crc| OutputSums {
        compressor: None,
        files: [("000001.sst".to_owned(), FileSums(9, crc, None))].into(),
    };
    let done = |crc, result: &[u8]| Ended::Done {
        sums: sums(crc),
        result: result.to_vec(),
        device: String::new(),
    };
    let declined = |code: &str| Ended::Declined(code.to_owned());
    let recorded = done(1, b"result");
    assert_eq!(repeat::compare(&recorded, &done(1, b"result")), Ok(()));
    for other in [
        done(2, b"result"),
        done(1, b"resulT"),
        done(1, b"results"),
        done(1, b"resul"),
        declined("comparator"),
    ] {
        assert!(repeat::compare(&recorded, &other).is_err(), "{other:?}");
    }
    let (one, other) = (declined("comparator"), declined("manifest"));
    assert_eq!(repeat::compare(&one, &one), Ok(()));
    assert!(repeat::compare(&one, &other).is_err());
}

/// Runs every job in the folder `ROCKMILL_RECORDED_JOBS`, or those of the archive, on the CPU. Records the results and
/// packs everything. A job that had to be declined must still be declined for the same reason, unless it is done now.
#[test]
#[ignore = "it writes the archive; see scripts/recorded-jobs.sh"]
fn make_the_archive() {
    let unpacked;
    let dirs = match std::env::var_os("ROCKMILL_RECORDED_JOBS") {
        Some(root) => archive::folders(Path::new(&root)),
        None => {
            unpacked = Jobs::unpack();
            unpacked.dirs.clone()
        }
    };
    let engines = Engines::new(Device::Cpu.into());
    for_all(&dirs, |dir| {
        let ended = engines.run(dir)?;
        let must = repeat::recorded(dir);
        if let (Ok(must @ Ended::Declined(_)), Ended::Declined(_)) = (must, &ended) {
            repeat::compare(&must, &ended)?;
        }
        repeat::keep(dir, &ended)
    });
    archive::pack(&dirs);
}
