//! A system that compacts, and its settings.

use std::fs;
use std::path::Path;

use rockmill::{Device, DeviceList, Stats};
use rockmill_terminal::outcome::Failure;
use serde::{Deserialize, Serialize};

use crate::device::{GiveDevices, Jobs, Tuning};
use crate::measure::{self, Measured, PeakMemory};
use crate::rocksdb;
use crate::running_system::RunningSystem;
use crate::spec::{DatabaseSpec, ENDLESS_BYTES};
use crate::system::System;

/// A system with its settings, and the database that it compacts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunConfig {
    /// The system.
    pub system: System,
    /// The database.
    pub spec: DatabaseSpec,
    /// Subcompactions in flight for Rockmill, subcompactions for RocksDB.
    pub threads: u32,
    /// Rockmill's settings.
    pub tuning: Tuning,
    /// Whether everything is compacted once before, so that the measured compaction reads what that has written.
    pub again: bool,
}

impl RunConfig {
    /// Memory limit in bytes, if there is one.
    pub fn budget_bytes(&self) -> Option<u64> {
        match self.system {
            System::Rocksdb => None,
            System::Rockmill(_) => Some(self.tuning.budget_bytes()),
        }
    }
}

/// A system that is ready to compact.
#[derive(Debug)]
pub struct Ready {
    config: RunConfig,
    running: RunningSystem,
    memory: PeakMemory,
}

impl Ready {
    /// Prepares a system with these settings.
    ///
    /// # Errors
    /// The errors of [`RunningSystem::new`].
    pub fn new(config: RunConfig, give: GiveDevices) -> Result<Self, Failure> {
        let running = RunningSystem::new(
            config.system,
            config.threads,
            &config.tuning,
            Jobs::All,
            give,
        )?;
        Ok(Self {
            config,
            running,
            memory: PeakMemory::default(),
        })
    }

    /// Compacts everything in the database at `path`.
    ///
    /// # Errors
    /// Environment or Data, depending on the cause of the failure.
    pub fn compact(&mut self, path: &Path) -> Result<Measured, Failure> {
        let RunConfig {
            system,
            spec,
            threads,
            ..
        } = &self.config;
        let mut options = spec.options(system.subcompactions(*threads));
        if self.config.again {
            // RocksDB counts the files of a level that is compacted into itself twice, and cuts the compaction into jobs
            // that run one after another (`compaction_picker.cc:CompactionPicker::CompactRange`).
            options.set_max_compaction_bytes(ENDLESS_BYTES);
        }
        self.running.attach(&mut options);
        let (title, memory) = (system.title(), &mut self.memory);
        // In one session of the database, so that a service still knows the tables that it has written.
        let db = rocksdb::open(path, &options)?;
        let linked = path.with_extension("linked");
        if self.config.again {
            measure::compact_before(&db, &linked)?;
        }
        let compact = || measure::compact(&db, spec.above_older, title, memory);
        let (measured, taken) = self.running.measured(compact);
        drop(db);
        if self.config.again {
            let removed = fs::remove_dir_all(&linked);
            removed.map_err(|e| Failure::Environment(format!("{}: {e}", linked.display())))?;
        }
        let measured = Measured {
            stages: taken.stages,
            jobs: taken.jobs,
            energy: taken.energy,
            ..measured?
        };
        match &self.running.service {
            Some(service) => {
                let stats = service.stats();
                check_done(&stats)?;
                Ok(Measured {
                    left_to_cpu: left_to_cpu(&stats, system.device()),
                    ..measured
                })
            }
            None => {
                check_level_0(measured.files_in_level_0)?;
                Ok(measured)
            }
        }
    }
}

/// Checks that RocksDB emptied level 0.
///
/// # Errors
/// Environment if files remain in level 0.
pub fn check_level_0(files: usize) -> Result<(), Failure> {
    if files == 0 {
        return Ok(());
    }
    let what = "RocksDB could not compact: is the disk full?";
    Err(Failure::Environment(what.to_owned()))
}

/// Checks that Rockmill failed at no job.
///
/// # Errors
/// Environment or Data, depending on the cause of the failure.
pub fn check_failures(stats: &Stats) -> Result<(), Failure> {
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
    Ok(())
}

/// Checks that Rockmill did all of the work, and on the given device.
///
/// # Errors
/// The errors of [`check_failures`]; Data if RocksDB did some of the work; Environment if the CPU did some of a
/// device's.
pub fn check_stats(stats: &Stats, device: DeviceList) -> Result<(), Failure> {
    check_done(stats)?;
    match left_to_cpu(stats, device) {
        Some(what) => Err(Failure::Environment(what)),
        None => Ok(()),
    }
}

/// Checks that Rockmill did all of the work, on any device.
///
/// # Errors
/// The errors of [`check_failures`]; Data if RocksDB did some of the work.
fn check_done(stats: &Stats) -> Result<(), Failure> {
    check_failures(stats)?;
    if stats.jobs_done == 0 || stats.jobs_done != stats.jobs_offered {
        return Err(Failure::Data(format!(
            "RocksDB did not take Rockmill's work:\n{stats}"
        )));
    }
    Ok(())
}

/// Returns why the CPU did some of the work of a named device, if it did.
fn left_to_cpu(stats: &Stats, device: DeviceList) -> Option<String> {
    let is_so = stats.jobs_redone_by_cpu > 0 && !device.contains(Device::Auto);
    let why = stats.last_error.as_deref().unwrap_or("no reason is known");
    is_so.then(|| format!("the CPU did some or all of the work: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_the_data() {
        let failed = |error: &str| {
            let mut stats = rockmill::Service::builder().build().expect("good").stats();
            stats.jobs_offered = 1;
            stats.jobs_failed = 1;
            stats.last_error = Some(error.to_owned());
            check_stats(&stats, DeviceList::default())
                .expect_err("failed")
                .exit_code()
        };
        assert_eq!(failed("000001.sst: cannot write it: no space left"), 3);
        assert_eq!(failed("000007.sst: bad block (at offset 7)"), 1);
    }
}
