//! Who compacts, with what.

use std::path::Path;

use rockmill::{Device, DeviceList, Service};
use serde::{Deserialize, Serialize};

use super::database::Spec;
use super::device::{self, Tuning};
use super::energy::{self, EnergyMeter};
use super::measure::{self, Measured, PeakMemory};
use super::stages;
use crate::outcome::Failure;

/// A data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// RocksDB itself, on the processor.
    Rocksdb,
    /// Rockmill, for RocksDB.
    Rockmill(#[serde(with = "device::text")] DeviceList),
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
    pub fn device(self) -> DeviceList {
        match self {
            Self::Rocksdb => DeviceList::default(),
            Self::Rockmill(device) => device,
        }
    }
}

/// A system with its settings, and what it is to compact.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contender {
    pub system: System,
    pub spec: Spec,
    /// Slices at once, or subcompactions.
    pub threads: u32,
    pub tuning: Tuning,
}

impl Contender {
    /// Memory in bytes that it may take, if that is bounded.
    pub fn budget_bytes(&self) -> Option<u64> {
        match self.system {
            System::Rocksdb => None,
            System::Rockmill(_) => Some(self.tuning.budget_bytes()),
        }
    }
}

/// A contender that is ready to compact. A service lives as long as in a process that uses it: what it makes
/// once, such as a GPU's context, is made by the first compaction.
#[derive(Debug)]
pub struct Ready {
    contender: Contender,
    service: Option<Service>,
    meter: Result<Option<EnergyMeter>, String>,
    memory: PeakMemory,
}

impl Ready {
    /// Makes the contender ready.
    ///
    /// # Errors
    /// Environment if the device cannot be used, Usage if the settings make no sense.
    pub fn new(contender: Contender) -> Result<Self, Failure> {
        let service = match contender.system {
            System::Rocksdb => None,
            System::Rockmill(device) => {
                let made = device::service(device, contender.threads, &contender.tuning);
                Some(made?)
            }
        };
        let meter = match contender.system {
            System::Rocksdb => Ok(None),
            System::Rockmill(device) => EnergyMeter::new(device),
        };
        Ok(Self {
            contender,
            service,
            meter,
            memory: PeakMemory::default(),
        })
    }

    /// Compacts everything in the database at `path`.
    ///
    /// # Errors
    /// Environment or Data if it could not, by whose fault that was.
    pub fn compact(&mut self, path: &Path) -> Result<Measured, Failure> {
        let spec = &self.contender.spec;
        let Some(service) = &self.service else {
            let options = spec.options(self.contender.threads);
            let measured = measure::compact(
                path,
                &options,
                spec.above_older,
                "RocksDB",
                &mut self.memory,
            )?;
            if measured.files_in_level_0 > 0 {
                let what = "RocksDB could not compact: is the disk full?";
                return Err(Failure::Environment(what.to_owned()));
            }
            return Ok(measured);
        };
        let before = service.stats();
        let mut offloaded = spec.options(1);
        offloaded.set_compaction_service(service.clone());
        let above_older = spec.above_older;
        let (measured, energy) = energy::measured(&self.meter, || {
            measure::compact(path, &offloaded, above_older, "Rockmill", &mut self.memory)
        });
        let mut measured = measured?;
        measured.energy = energy;
        let stats = service.stats();
        check_stats(&stats, self.contender.system.device())?;
        measured.stages = stages::since(&before.stages, &stats.stages);
        Ok(measured)
    }
}

/// Looks whether Rockmill did all of the work, where it was told to.
fn check_stats(stats: &rockmill::Stats, device: DeviceList) -> Result<(), Failure> {
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
    if stats.jobs_device_refused > 0 && !device.contains(Device::Auto) {
        let why = stats.last_error.as_deref().unwrap_or("no reason is known");
        return Err(Failure::Environment(format!(
            "the CPU did some or all of the work: {why}"
        )));
    }
    if stats.jobs_done == 0 || stats.jobs_done != stats.jobs_scheduled {
        return Err(Failure::Data(format!(
            "RocksDB did not take Rockmill's work:\n{stats}"
        )));
    }
    Ok(())
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
            check_stats(&stats, DeviceList::default())
                .expect_err("failed")
                .exit_code()
        };
        assert_eq!(failed("000001.sst: cannot write it: no space left"), 3);
        assert_eq!(failed("000007.sst: bad block (at offset 7)"), 1);
    }
}
