//! From rates to seconds.

use serde::Serialize;

use super::rates::{CPU, CpuRates, GpuRates, MOST_CORRECTION, Rates, StorageRates};
use super::shape::SliceShape;
use crate::predict::SliceTime;

/// Something that slices keep busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The host's processors.
    Processors,
    /// Reading files.
    Read,
    /// Writing files.
    Write,
    /// The link to a GPU.
    ToDevice,
    /// A GPU's kernels.
    Kernels,
    /// The link back.
    FromDevice,
}

impl Part {
    /// Whether it is the host's, for which slices on the CPU compete.
    pub(super) fn is_hosts(self) -> bool {
        match self {
            Self::Processors | Self::Read | Self::Write => true,
            Self::ToDevice | Self::Kernels | Self::FromDevice => false,
        }
    }

    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::Read => "read",
            Self::Write => "write",
            Self::ToDevice => "to device",
            Self::Kernels => "kernels",
            Self::FromDevice => "from device",
        }
    }
}

/// How long a slice takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// From its start to its end, seconds.
    pub seconds: f64,
    /// Processor seconds of the host, on all threads.
    pub cpu_seconds: f64,
    /// What it waits for most.
    pub bottleneck: Part,
    /// Seconds for which the slice keeps each part busy, if it has the part for itself.
    pub parts: Vec<(Part, f64)>,
}

impl Prediction {
    /// Whether one of the host's parts is busy for half as long as the busiest, or longer: of that there is not enough
    /// for slices on the CPU as well.
    pub fn is_host_bound(&self) -> bool {
        const SHARE: f64 = 0.5;
        self.busiest(Part::is_hosts) >= SHARE * self.busiest(|_| true)
    }

    /// Seconds for which the slice keeps the busiest of these parts busy; 0 if it uses none.
    pub(super) fn busiest(&self, of: impl Fn(Part) -> bool) -> f64 {
        let parts = self.parts.iter().filter(|(part, _)| of(*part));
        parts.map(|(_, seconds)| *seconds).fold(0.0, f64::max)
    }
}

impl Rates {
    /// How long a slice takes on a device, while `at_once` such slices run there (at least this one). `None` if
    /// there is no such device.
    pub fn predict(&self, device: &str, shape: &SliceShape, at_once: u32) -> Option<Prediction> {
        let at_once = f64::from(at_once.max(1));
        match self.gpus.get(device) {
            Some(gpu) => Some(gpu.predict(&self.storage, self.cpu.cores, shape, at_once)),
            None => (device == CPU).then(|| self.cpu.predict(&self.storage, shape, at_once)),
        }
    }

    /// The least input, in stored bytes, from which on slices of a shape take less time on a device than on the CPU
    /// while `at_once` run there; `None` if they do not up to `most_bytes`.
    pub fn wins_from(
        &self,
        device: &str,
        shape: &SliceShape,
        at_once: u32,
        most_bytes: u64,
    ) -> Option<u64> {
        const LEAST_BYTES: u64 = 4096;
        let wins = |bytes: u64| {
            let slice = shape.scaled(bytes as f64 / shape.bytes_in.max(1) as f64);
            let seconds = |device| Some(self.predict(device, &slice, at_once)?.seconds);
            seconds(device)
                .zip(seconds(CPU))
                .is_some_and(|(there, here)| there < here)
        };
        if !wins(most_bytes) {
            return None;
        }
        let (mut loses, mut least) = (LEAST_BYTES.min(most_bytes), most_bytes);
        while least - loses > LEAST_BYTES {
            let middle = loses + (least - loses) / 2;
            match wins(middle) {
                true => least = middle,
                false => loses = middle,
            }
        }
        Some(least)
    }

    /// Takes in what a slice really took while `at_once` ran: the device's corrections go an eighth of the way, by a
    /// tenth at most, and never far from 1, so that neither a stall nor a change of load misleads for long.
    pub fn observe(&mut self, device: &str, shape: &SliceShape, at_once: u32, took: SliceTime) {
        const STEP: f64 = 0.125;
        const MOST_STEP: f64 = 1.1;
        let Some(predicted) = self.predict(device, shape, at_once) else {
            return;
        };
        let ratios = [
            took.seconds / predicted.seconds,
            took.cpu_seconds / predicted.cpu_seconds,
        ];
        for (correction, ratio) in self.corrections_mut(device).into_iter().zip(ratios) {
            // What no clock can have shown teaches nothing.
            if let Some(correction) = correction
                && ratio.is_normal()
                && ratio > 0.0
            {
                let step = ratio.powf(STEP).clamp(1.0 / MOST_STEP, MOST_STEP);
                *correction = (*correction * step).clamp(1.0 / MOST_CORRECTION, MOST_CORRECTION);
            }
        }
    }
}

impl CpuRates {
    /// A thread a slice: what they share is processors, memory and storage.
    fn predict(&self, storage: &StorageRates, shape: &SliceShape, at_once: f64) -> Prediction {
        let cores = f64::from(self.cores);
        let alone = self.slice.seconds(shape);
        let slowdown = slowdown(self.crowded, cores, at_once);
        let turns = (at_once / cores).max(1.0);
        let parts = vec![
            (Part::Processors, alone),
            (Part::Read, shape.bytes_in as f64 / storage.read),
            (Part::Write, shape.bytes_out as f64 / storage.write),
        ];
        let waits = |&(part, seconds): &(Part, f64)| match part {
            Part::Processors => (part, seconds * slowdown * turns),
            shared => (shared, seconds * at_once),
        };
        let (bottleneck, seconds) = slowest(parts.iter().map(waits));
        Prediction {
            seconds: seconds * self.correction,
            cpu_seconds: alone * slowdown * self.correction,
            bottleneck,
            parts,
        }
    }
}

impl GpuRates {
    /// The parts of a slice follow each other, and those of different slices overlap: with enough of them, the
    /// part for which most is to be waited is always busy, and a slice takes as long as all slices keep that busy, as
    /// far as they are in turn there. What it does before and after, with nothing to wait for, is fill and drain.
    fn predict(
        &self,
        storage: &StorageRates,
        cores: u32,
        shape: &SliceShape,
        at_once: f64,
    ) -> Prediction {
        let (bytes_in, bytes_out) = (shape.bytes_in as f64, shape.bytes_out as f64);
        let host = self.host.seconds(shape);
        let kernels = self.kernels.seconds(shape);
        let alone = self.slice.seconds(shape);
        let parts = vec![
            (Part::Processors, host / f64::from(cores)),
            (Part::Read, bytes_in / storage.read),
            (Part::ToDevice, bytes_in / self.to_device),
            (Part::Kernels, kernels),
            (Part::FromDevice, bytes_out / self.from_device),
            (Part::Write, bytes_out / storage.write),
        ];
        let (_, busiest) = slowest(parts.iter().copied());
        let adds = |&(part, seconds): &(Part, f64)| (part, seconds * self.overlap.of(part));
        let (bottleneck, added) = slowest(parts.iter().map(adds));
        let seconds = alone.max(busiest) + (at_once - 1.0) * added;
        let slowdown = slowdown(self.crowded, f64::from(cores), at_once);
        Prediction {
            seconds: seconds * self.correction,
            cpu_seconds: host * slowdown * self.host_correction,
            bottleneck,
            parts,
        }
    }
}

/// How many times as long processors take for each slice of so many, `crowded` of as many as there are processors:
/// each that joins slows the others alike, up to one a processor; then they take turns.
fn slowdown(crowded: f64, cores: f64, at_once: f64) -> f64 {
    let busy = (at_once.min(cores) - 1.0) / (cores - 1.0).max(1.0);
    1.0 + (crowded - 1.0) * busy
}

/// The part that takes longest.
fn slowest(parts: impl Iterator<Item = (Part, f64)>) -> (Part, f64) {
    parts.fold((Part::Processors, 0.0), |most, part| {
        match part.1 > most.1 {
            true => part,
            false => most,
        }
    })
}
