//! A system that is ready to compact for databases, and its resource use.

use std::collections::BTreeMap;

use rockmill::{CacheStats, DeclineReason, Resource, Service, Stats};
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::Options;
use serde::{Deserialize, Serialize};

use crate::device::{self, GiveDevices, Jobs, Tuning};
use crate::energy::{self, Energy, EnergyMeter};
use crate::jobs::JobTimes;
use crate::machine::process_cpu;
use crate::stages::{self, Stage};
use crate::system::System;

/// A system with its service and meter. The service lives as long as the process, as in an application. So the first
/// compaction includes the one-time setup, such as a GPU's context.
#[derive(Debug)]
pub struct RunningSystem {
    /// Rockmill; `None` if RocksDB compacts.
    pub service: Option<Service>,
    meter: Result<Option<EnergyMeter>, String>,
}

/// Resources other than time that some work used.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Consumption {
    /// CPU time of the process, in seconds.
    pub cpu_s: f64,
    /// Rockmill's time by stage, on devices that measure it.
    pub stages: Vec<Stage>,
    /// Rockmill's jobs.
    #[serde(default)]
    pub jobs: JobTimes,
    /// Energy of a GPU, if one was used.
    pub energy: Option<Energy>,
    /// Number of subcompactions by device name; excludes RocksDB's own work.
    #[serde(default)]
    pub subcompactions: BTreeMap<String, u64>,
    /// Bytes of files that devices wrote themselves and not through the host.
    #[serde(default)]
    pub near_data_bytes: u64,
    /// Bytes of files that jobs found in the memory of GPUs.
    #[serde(default)]
    pub cache_hit_bytes: u64,
    /// Bytes that they looked for there and read from files.
    #[serde(default)]
    pub cache_miss_bytes: u64,
    /// Number of jobs that RocksDB offered to Rockmill.
    #[serde(default)]
    pub jobs_offered: u64,
    /// Number of jobs that Rockmill left to RocksDB because of their size.
    #[serde(default)]
    pub jobs_too_small: u64,
    /// Number of other jobs that Rockmill left to RocksDB, or of which the CPU did a part in place of the device.
    #[serde(default)]
    pub jobs_elsewhere: u64,
}

impl Consumption {
    /// Seconds of the device's kernels, summed over subcompactions.
    pub fn device_s(&self) -> f64 {
        let of_device = self
            .stages
            .iter()
            .filter(|s| s.resource == Resource::Device);
        of_device.map(|stage| stage.seconds).sum()
    }

    /// Joules of the GPU, if known.
    pub fn joules(&self) -> Option<f64> {
        self.energy.as_ref().and_then(Energy::joules)
    }
}

impl RunningSystem {
    /// Prepares a system.
    ///
    /// # Errors
    /// Environment if the device cannot be used, Usage if a setting is invalid.
    pub fn new(
        system: System,
        threads: u32,
        tuning: &Tuning,
        jobs: Jobs,
        give: GiveDevices,
    ) -> Result<Self, Failure> {
        let (service, meter) = match system {
            System::Rocksdb => (None, Ok(None)),
            System::Rockmill(device) => {
                let service = device::service(device, threads, tuning, jobs, give)?;
                (Some(service), EnergyMeter::new(device))
            }
        };
        Ok(Self { service, meter })
    }

    /// Attaches the service, if there is one, to a database's options.
    pub fn attach(&self, options: &mut Options) {
        if let Some(service) = &self.service {
            options.set_compaction_service(service.clone());
        }
    }

    /// Utilization of its GPUs, as [`EnergyMeter::use_now`]; `None` without one.
    pub fn gpu_use(&self) -> Option<f64> {
        self.meter.as_ref().ok()?.as_ref()?.use_now()
    }

    /// Runs `work` and returns its resource use.
    pub fn measured<T>(&self, work: impl FnOnce() -> T) -> (T, Consumption) {
        let stats = || {
            let stats = self.service.as_ref().map(Service::stats);
            stats.unwrap_or_default()
        };
        let (before, cpu) = (stats(), process_cpu());
        let (done, energy) = energy::measured(&self.meter, work);
        let (cpu, after) = (process_cpu() - cpu, stats());
        let taken = Consumption {
            cpu_s: cpu.as_secs_f64(),
            stages: stages::since(&before.stages, &after.stages),
            jobs: JobTimes::since(&before, &after),
            energy,
            subcompactions: subcompactions_since(&before, &after),
            near_data_bytes: near_data_bytes(&after) - near_data_bytes(&before),
            cache_hit_bytes: cached(&after, |cache| cache.hit_bytes)
                - cached(&before, |cache| cache.hit_bytes),
            cache_miss_bytes: cached(&after, |cache| cache.miss_bytes)
                - cached(&before, |cache| cache.miss_bytes),
            jobs_offered: after.jobs_offered - before.jobs_offered,
            jobs_too_small: jobs_too_small(&after) - jobs_too_small(&before),
            jobs_elsewhere: jobs_elsewhere(&after) - jobs_elsewhere(&before),
        };
        (done, taken)
    }
}

/// Sum over all devices.
fn near_data_bytes(stats: &Stats) -> u64 {
    let devices = stats.devices.values();
    devices
        .map(|device| device.subcompaction_near_data_bytes)
        .sum()
}

/// Sum over the caches of files.
fn cached(stats: &Stats, of: fn(&CacheStats) -> u64) -> u64 {
    let caches = stats.caches.iter();
    caches.filter(|cache| cache.kind == "files").map(of).sum()
}

fn jobs_too_small(stats: &Stats) -> u64 {
    let small = stats
        .jobs_declined_by_reason
        .get(DeclineReason::SmallJob.code());
    small.copied().unwrap_or_default()
}

fn jobs_elsewhere(stats: &Stats) -> u64 {
    stats.jobs_declined - jobs_too_small(stats) + stats.jobs_redone_by_cpu
}

/// Number of subcompactions per device between two moments, without devices that did none.
fn subcompactions_since(before: &Stats, after: &Stats) -> BTreeMap<String, u64> {
    let since = after.devices.iter().map(|(name, now)| {
        let earlier = before
            .devices
            .get(name)
            .map_or(0, |device| device.subcompactions);
        (name.clone(), now.subcompactions - earlier)
    });
    since
        .filter(|(_, subcompactions)| *subcompactions > 0)
        .collect()
}
