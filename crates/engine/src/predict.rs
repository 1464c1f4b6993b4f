//! How long a slice will take on a device: what the scheduler asks, and an answer by the machine's rates, or learned
//! from the slices that were done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::calibration::Calibrated;
use crate::model::{CPU, Model, SliceShape};

/// What a slice takes on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SliceTime {
    /// From its begin to its last written byte.
    pub seconds: f64,
    /// Processor seconds of the host, of all threads that work on it: on another device, what feeding it takes.
    pub cpu_seconds: f64,
}

impl SliceTime {
    /// As often as that.
    fn times(self, factor: f64) -> Self {
        Self {
            seconds: self.seconds * factor,
            cpu_seconds: self.cpu_seconds * factor,
        }
    }
}

/// Predicts times, and learns from those that are told.
pub trait Predict: fmt::Debug + Send + Sync {
    /// What a slice of such a shape takes on the device of that name (`cpu`, `cuda:0`) while `beside` others run
    /// there. More than 0 seconds.
    fn time(&self, device: &str, shape: &SliceShape, beside: usize) -> SliceTime;

    /// Whether so many others `beside` make such a slice wait more for what the host gives the device, files and
    /// memory and processors, than for the device itself. Not known to be so, unless said.
    fn is_host_bound(&self, _device: &str, _shape: &SliceShape, _beside: usize) -> bool {
        false
    }

    /// Such a slice took so much.
    fn observed(&self, device: &str, shape: &SliceShape, beside: usize, took: SliceTime);

    /// Whether what it says of a device and of the CPU holds for slices of any shape.
    fn knows(&self, device: &str) -> bool;

    /// A job has ended, and with it what it had to tell.
    fn job_ended(&self) {}

    /// Waits until it knows what it is going to know without having seen slices.
    fn wait(&self) {}
}

/// Times by the machine's rates, where there are some. Elsewhere they are in proportion to bytes and entries, at the
/// pace that was last seen with about as many slices beside.
#[derive(Debug, Default)]
pub struct Learned {
    paces: Mutex<Paces>,
    calibrated: Option<Calibrated>,
}

/// For a byte, by device and crowd.
type Paces = BTreeMap<(String, u32), SliceTime>;

/// An entry takes the CPU as long as so many bytes: 245 ns and 0.34 ns.
const BYTES_PER_ENTRY: f64 = 720.0;

/// So much each slice takes beside what is in proportion, in bytes: some milliseconds of launches and waits, or
/// of opening and syncing files.
const BYTES_PER_SLICE: f64 = 4e6;

/// For a byte, what a device is thought to take before it has done anything. A slice in flight on a GPU has kept six
/// tenths of a processor busy.
const FIRST_CPU_PACE: SliceTime = SliceTime {
    seconds: 0.34e-9,
    cpu_seconds: 0.34e-9,
};
const FIRST_DEVICE_PACE: SliceTime = SliceTime {
    seconds: 0.1e-9,
    cpu_seconds: 0.06e-9,
};

/// Weight of the last slice against all before it.
const WEIGHT: f64 = 0.25;

impl Learned {
    /// With the rates of this machine, if they are to be used.
    pub fn new(calibrated: Option<Calibrated>) -> Self {
        Self {
            calibrated,
            ..Self::default()
        }
    }

    /// The rates, if there are some of a device.
    fn model(&self, device: &str) -> Option<&Model> {
        let model = self.calibrated.as_ref()?.get()?;
        model.rates().has(device).then_some(model)
    }

    fn paces(&self) -> MutexGuard<'_, Paces> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a slice's time is in proportion to.
    fn size(shape: &SliceShape) -> f64 {
        shape.bytes_in as f64 + shape.entries as f64 * BYTES_PER_ENTRY + BYTES_PER_SLICE
    }

    /// Slices at once, to the next power of 2 above.
    fn crowd(beside: usize) -> u32 {
        usize::BITS - beside.leading_zeros()
    }
}

impl Predict for Learned {
    fn time(&self, device: &str, shape: &SliceShape, beside: usize) -> SliceTime {
        let model = self.model(device);
        if let Some(time) = model.and_then(|model| model.time(device, shape, at_once(beside))) {
            return time;
        }
        let crowd = Self::crowd(beside);
        let paces = self.paces();
        let seen = paces.iter().filter(|((of, _), _)| of == device);
        let nearest = seen.min_by_key(|((_, seen), _)| seen.abs_diff(crowd));
        let first = match device {
            CPU => FIRST_CPU_PACE,
            _ => FIRST_DEVICE_PACE,
        };
        let pace = nearest.map_or(first, |(_, pace)| *pace);
        pace.times(Self::size(shape))
    }

    fn is_host_bound(&self, device: &str, shape: &SliceShape, beside: usize) -> bool {
        let model = self.model(device);
        model.is_some_and(|model| model.is_host_bound(device, shape, at_once(beside)))
    }

    fn observed(&self, device: &str, shape: &SliceShape, beside: usize, took: SliceTime) {
        if let Some(model) = self.model(device) {
            return model.observed(device, shape, at_once(beside), took);
        }
        let took = SliceTime {
            seconds: took.seconds.max(f64::MIN_POSITIVE),
            ..took
        };
        let pace = took.times(1.0 / Self::size(shape));
        let mut paces = self.paces();
        let key = (device.to_owned(), Self::crowd(beside));
        let kept = paces.entry(key).or_insert(pace);
        kept.seconds += (pace.seconds - kept.seconds) * WEIGHT;
        kept.cpu_seconds += (pace.cpu_seconds - kept.cpu_seconds) * WEIGHT;
    }

    fn knows(&self, device: &str) -> bool {
        self.model(device).is_some()
    }

    fn job_ended(&self) {
        self.calibrated.iter().for_each(Calibrated::job_ended);
    }

    fn wait(&self) {
        self.calibrated.iter().for_each(Calibrated::wait);
    }
}

/// Slices that run together where one has so many beside it.
fn at_once(beside: usize) -> u32 {
    u32::try_from(beside).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use rockmill_format::compression::CompressionType;

    use super::*;

    const SHAPE: SliceShape = SliceShape {
        bytes_in: 100_000_000,
        entries: 1_000_000,
        key_bytes: 24_000_000,
        value_bytes: 76_000_000,
        runs: 4,
        bytes_out: 100_000_000,
        compression: CompressionType::None,
    };

    #[test]
    fn more_takes_longer() {
        let model = Learned::default();
        let seconds = |shape| model.time("cpu", &shape, 0).seconds;
        let larger = SliceShape {
            bytes_in: SHAPE.bytes_in + 1,
            ..SHAPE
        };
        let smaller_entries = SliceShape {
            entries: SHAPE.entries + 1,
            ..SHAPE
        };
        assert!(seconds(larger) > seconds(SHAPE));
        assert!(seconds(smaller_entries) > seconds(SHAPE));
        assert!(seconds(SHAPE.scaled(0.0)) > 0.0);
        assert!(model.time("cuda:0", &SHAPE, 0).seconds < seconds(SHAPE));
    }

    #[test]
    fn what_was_seen_is_expected_again_on_the_same_device_in_such_a_crowd() {
        let model = Learned::default();
        let time = |seconds| SliceTime {
            seconds,
            cpu_seconds: seconds / 2.0,
        };
        let is = |beside, seconds: f64| {
            let seen = model.time("cuda:0", &SHAPE, beside);
            let off = (seen.seconds - seconds).abs();
            off.max((seen.cpu_seconds - seconds / 2.0).abs()) < 1e-6
        };
        let before = model.time("cuda:1", &SHAPE, 0);
        model.observed("cuda:0", &SHAPE, 0, time(2.0));
        assert_eq!(model.time("cuda:1", &SHAPE, 0), before);
        assert!(is(0, 2.0));
        model.observed("cuda:0", &SHAPE, 7, time(9.0));
        assert!(is(5, 9.0) && is(0, 2.0));
        for _ in 0..100 {
            model.observed("cuda:0", &SHAPE, 0, time(4.0));
        }
        assert!(is(0, 4.0));
    }
}
