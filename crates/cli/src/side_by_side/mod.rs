//! The same files compacted by RocksDB and by Rockmill: what `demo` and `bench` share.

pub mod compare;
pub mod database;
pub mod device;
mod fill;
mod measure;
mod progress;
pub mod row;
pub mod workload;

use std::path::{Path, PathBuf};

use rust_rocksdb::{DB, Options};
use tempfile::TempDir;

use crate::outcome::Failure;
use database::Spec;
use device::Device;
pub use measure::Measured;

/// Who compacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// RocksDB itself, on the processor.
    Rocksdb,
    /// Rockmill, for RocksDB.
    Rockmill(Device),
}

impl System {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rocksdb => "rocksdb",
            Self::Rockmill(_) => "rockmill",
        }
    }

    /// What it computes on.
    pub fn device(self) -> Device {
        match self {
            Self::Rocksdb => Device::Cpu,
            Self::Rockmill(device) => device,
        }
    }

    /// Compacts everything in the database at `path`, with so many subcompactions or slices at once.
    ///
    /// # Errors
    /// Environment or Data if it could not, by whose fault that was.
    pub fn compact(self, path: &Path, spec: &Spec, threads: u32) -> Result<Measured, Failure> {
        match self {
            Self::Rocksdb => {
                let measured = measure::compact(path, &spec.options(threads), "RocksDB")?;
                if measured.files_in_level_0 > 0 {
                    let what = "RocksDB could not compact: is the disk full?";
                    return Err(Failure::Environment(what.to_owned()));
                }
                Ok(measured)
            }
            Self::Rockmill(device) => {
                let service = device::service(device, threads)?;
                let mut offloaded = spec.options(1);
                offloaded.set_compaction_service(service.clone());
                let measured = measure::compact(path, &offloaded, "Rockmill")?;
                check_stats(&service.stats())?;
                Ok(measured)
            }
        }
    }
}

/// Looks whether Rockmill did all of the work.
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
fn rocksdb_failed(doing: &str, error: &rust_rocksdb::Error) -> Failure {
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
