//! The same files compacted by RocksDB and by Rockmill: what `demo` and `bench` share.

pub mod compare;
pub mod database;
pub mod device;
mod fill;
mod measure;
mod progress;
pub mod row;
pub mod stages;
pub mod workload;

use std::path::{Path, PathBuf};

use rockmill::{Device, Service, StageTime};
use rust_rocksdb::{DB, Options};
use tempfile::TempDir;

use crate::outcome::Failure;
use database::Spec;
use device::Tuning;
pub use measure::{Measured, process_cpu};

/// Who compacts.
#[derive(Debug)]
pub enum System {
    /// RocksDB itself, on the processor.
    Rocksdb,
    /// Rockmill, for RocksDB. The service lives as long as in a process that uses it: what it makes once,
    /// such as a GPU's context, is made by the first compaction.
    Rockmill(Device, Service),
}

impl System {
    /// Its name in rows.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rocksdb => "rocksdb",
            Self::Rockmill(..) => "rockmill",
        }
    }

    /// Rockmill on a device, with so many slices at once.
    ///
    /// # Errors
    /// Environment if the device cannot be used, Usage if the settings make no sense.
    pub fn rockmill(device: Device, threads: u32, tuning: &Tuning) -> Result<Self, Failure> {
        let service = device::service(device, threads, tuning)?;
        Ok(Self::Rockmill(device, service))
    }

    /// What it computes on.
    pub fn device(&self) -> Device {
        match self {
            Self::Rocksdb => Device::Cpu,
            Self::Rockmill(device, _) => *device,
        }
    }

    /// Compacts everything in the database at `path`; RocksDB with so many subcompactions.
    ///
    /// # Errors
    /// Environment or Data if it could not, by whose fault that was.
    pub fn compact(&self, path: &Path, spec: &Spec, threads: u32) -> Result<Measured, Failure> {
        match self {
            Self::Rocksdb => {
                let measured = measure::compact(path, &spec.options(threads), "RocksDB")?;
                if measured.files_in_level_0 > 0 {
                    let what = "RocksDB could not compact: is the disk full?";
                    return Err(Failure::Environment(what.to_owned()));
                }
                Ok(measured)
            }
            Self::Rockmill(_, service) => {
                let before = service.stats();
                let mut offloaded = spec.options(1);
                offloaded.set_compaction_service(service.clone());
                let mut measured = measure::compact(path, &offloaded, "Rockmill")?;
                let stats = service.stats();
                check_stats(&stats)?;
                measured.stages = stages_since(&before.stages, &stats.stages);
                Ok(measured)
            }
        }
    }
}

/// What the stages took after `before`.
fn stages_since(before: &[StageTime], after: &[StageTime]) -> Vec<StageTime> {
    let since = |stage: &StageTime| {
        let earlier = before.iter().find(|known| known.stage == stage.stage);
        StageTime {
            seconds: stage.seconds - earlier.map_or(0.0, |e| e.seconds),
            bytes: stage.bytes - earlier.map_or(0, |e| e.bytes),
            ..*stage
        }
    };
    after.iter().map(since).collect()
}

/// Looks whether Rockmill did all of the work, where it was told to.
fn check_stats(stats: &rockmill::Stats) -> Result<(), Failure> {
    if stats.jobs_failed > 0 {
        let error = stats.last_error.as_deref().unwrap_or("no reason is known");
        let what = format!("Rockmill could not compact: {error}");
        let is_storage = ["cannot make", "cannot write", "cannot sync"]
            .iter()
            .any(|doing| error.contains(doing));
        return Err(match is_storage {
            true => Failure::Environment(what),
            false => Failure::Data(what),
        });
    }
    if stats.jobs_device_refused > 0 {
        let why = stats.last_error.as_deref().unwrap_or("no reason is known");
        return Err(Failure::Environment(format!("the CPU did the work: {why}")));
    }
    if stats.jobs_done == 0 || stats.jobs_done != stats.jobs_scheduled {
        return Err(Failure::Data(format!(
            "RocksDB did not take Rockmill's work:\n{stats}"
        )));
    }
    Ok(())
}

/// All cores.
pub fn usual_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// A folder for databases, which goes away when dropped, in `parent` or where the system has its
/// temporary files.
pub fn scratch(parent: Option<PathBuf>, prefix: &str) -> Result<TempDir, Failure> {
    let parent = parent.unwrap_or_else(std::env::temp_dir);
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(&parent)
        .map_err(|e| {
            Failure::Environment(format!(
                "cannot make a folder in {}: {e}; name another with --dir",
                parent.display()
            ))
        })
}

/// RocksDB's errors are those of the machine, unless they speak of corruption.
pub fn rocksdb_failed(doing: &str, error: &rust_rocksdb::Error) -> Failure {
    let text = format!("RocksDB cannot {doing}: {error}");
    match error.kind() {
        rust_rocksdb::ErrorKind::Corruption => Failure::Data(text),
        _ => Failure::Environment(text),
    }
}

/// Opens a database that exists.
fn open(path: &Path, options: &Options) -> Result<DB, Failure> {
    DB::open(options, path).map_err(|e| rocksdb_failed("open a database", &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_the_data() {
        let failed = |error: &str| {
            let mut stats = rockmill::Service::builder().build().expect("good").stats();
            stats.jobs_scheduled = 1;
            stats.jobs_failed = 1;
            stats.last_error = Some(error.to_owned());
            check_stats(&stats).expect_err("failed").exit_code()
        };
        assert_eq!(failed("000001.sst: cannot write it: no space left"), 3);
        assert_eq!(failed("000007.sst: bad block (at offset 7)"), 1);
    }
}
