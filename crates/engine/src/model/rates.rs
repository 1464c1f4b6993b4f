//! How fast a machine's parts are.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::cost::Cost;
use super::predict::Part;

/// How far jobs may pull predictions from what calibration found, either way.
pub(super) const MOST_CORRECTION: f64 = 4.0;

/// The rates of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// The host's processors.
    pub cpu: CpuRates,
    /// Files in the page cache or in memory.
    pub storage: StorageRates,
    /// GPUs by the names of their backends, `cuda:0`.
    pub gpus: BTreeMap<String, GpuRates>,
}

/// The CPU backend on one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuRates {
    /// Reading to writing.
    pub slice: Cost,
    /// Slices that run at full speed, if nothing but processors bounds them.
    pub cores: u32,
    /// How many times as long a slice takes when each processor runs one.
    pub crowded: f64,
    /// What jobs have shown beside calibration, a factor of all predictions.
    pub correction: f64,
}

/// Bytes a second between files and host memory, with as many threads as there are processors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageRates {
    /// Read by all together.
    pub read: f64,
    /// Written by all together.
    pub write: f64,
}

/// A GPU backend: a slice by itself, and what slices share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuRates {
    /// Reading to writing.
    pub slice: Cost,
    /// Of that, kernels.
    pub kernels: Cost,
    /// Processor seconds of the host, of all threads that feed the device.
    pub host: Cost,
    /// Bytes a second over the link to the device.
    pub to_device: f64,
    /// Bytes a second back.
    pub from_device: f64,
    /// What slices do to each other.
    pub overlap: Overlap,
    /// How many times the processor time a slice takes of the host when there is one for each processor.
    pub crowded: f64,
    /// What jobs have shown beside calibration, a factor of all predictions.
    pub correction: f64,
    /// The same of the host's processor time.
    pub host_correction: f64,
}

/// Of what a slice keeps its busiest part for, the share that each slice beside it adds. Less than 1, since parts are
/// not all that busy with one slice: kernels leave room for those of others, and threads for each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Where slices wait for the host's processors and files.
    pub host: f64,
    /// Where they wait for kernels or the link.
    pub device: f64,
}

impl Overlap {
    /// Slices that are strictly in turn.
    pub(super) const NONE: Self = Self {
        host: 1.0,
        device: 1.0,
    };

    /// That of slices which wait for a part.
    pub(super) fn of(&self, part: Part) -> f64 {
        match part.is_hosts() {
            true => self.host,
            false => self.device,
        }
    }
}

/// What each of [`GpuRates::overlap`] may be.
pub(super) const OVERLAP: RangeInclusive<f64> = 0.05..=4.0;

/// What `crowded` may be: slices that did nothing but take turns would take as many times as long as there are
/// processors.
pub(super) const CROWDED: RangeInclusive<f64> = 1.0..=1024.0;

/// Processors of a host.
const CORES: RangeInclusive<u32> = 1..=65_536;

/// Bytes a second that files or a link pass: from a slow disk's on, to more than any memory's.
const SPEED: RangeInclusive<f64> = 1e5..=1e15;

impl Rates {
    /// Whether all rates are numbers that a machine can have.
    pub fn are_sound(&self) -> bool {
        let Self { cpu, storage, gpus } = self;
        cpu.are_sound() && storage.are_sound() && gpus.values().all(GpuRates::are_sound)
    }

    /// Whether a device has rates.
    pub fn has(&self, device: &str) -> bool {
        device == CPU || self.gpus.contains_key(device)
    }

    /// The corrections of a device's time, and of the host's to feed it, which [`Rates::predict`] applies. The
    /// CPU's slices take it as long as they last.
    pub(super) fn corrections_mut(&mut self, device: &str) -> [Option<&mut f64>; 2] {
        match self.gpus.get_mut(device) {
            Some(gpu) => [Some(&mut gpu.correction), Some(&mut gpu.host_correction)],
            None => [(device == CPU).then_some(&mut self.cpu.correction), None],
        }
    }
}

/// Name of the CPU backend.
pub const CPU: &str = "cpu";

impl CpuRates {
    pub(super) fn are_sound(&self) -> bool {
        is_cost(&self.slice)
            && CORES.contains(&self.cores)
            && CROWDED.contains(&self.crowded)
            && is_correction(self.correction)
    }
}

impl StorageRates {
    pub(super) fn are_sound(&self) -> bool {
        [self.read, self.write].iter().all(|s| SPEED.contains(s))
    }
}

impl GpuRates {
    pub(super) fn are_sound(&self) -> bool {
        [&self.slice, &self.host].into_iter().all(is_cost)
            // Of a device without clocks they are nothing.
            && self.kernels.is_sound()
            && [self.to_device, self.from_device].iter().all(|s| SPEED.contains(s))
            && [self.overlap.host, self.overlap.device].iter().all(|share| OVERLAP.contains(share))
            && CROWDED.contains(&self.crowded)
            && is_correction(self.correction)
            && is_correction(self.host_correction)
    }
}

fn is_cost(cost: &Cost) -> bool {
    cost.is_sound() && !cost.is_nothing()
}

fn is_correction(factor: f64) -> bool {
    (1.0 / MOST_CORRECTION..=MOST_CORRECTION).contains(&factor)
}
