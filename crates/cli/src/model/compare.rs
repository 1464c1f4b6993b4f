//! Slices that calibration never saw, run on each device.

use std::path::{Path, PathBuf};

use rockmill_core::{Backend, Result};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::CudaBackend;
use rockmill_engine::model::{CPU, Machine, Made, Part, Rates, SliceShape, mean};
use serde::Serialize;

use super::workloads::{self, Chosen};
use crate::side_by_side::usual_threads;

/// Largest slices that the GPU's region is looked for in.
const MOST_BYTES: u64 = 1 << 30;

/// All slices and what they took so far.
#[derive(Debug)]
pub struct Comparison {
    dir: PathBuf,
    slices: Vec<(Chosen, Made)>,
    times: Vec<Timed>,
}

/// The least time of a slice on a device, so far.
#[derive(Debug)]
struct Timed {
    /// Position in the slices.
    slice: usize,
    device: String,
    at_once: u32,
    seconds: f64,
}

/// What came out.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The machine.
    pub machine: Machine,
    /// The frozen rates.
    pub rates: Rates,
    /// A slice on a device each.
    pub rows: Vec<Row>,
    /// How far predictions are off, by device.
    pub errors: Vec<Errors>,
    /// Where GPUs lose.
    pub wins: Vec<Wins>,
}

/// A slice on a device.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub device: String,
    pub workload: String,
    pub bytes_in: u64,
    /// Slices of the kind that ran at once.
    pub at_once: u32,
    pub measured_s: f64,
    pub predicted_s: f64,
    /// Predicted over measured, less 1.
    pub error: f64,
    pub bottleneck: Part,
}

/// Absolute errors of some rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Errors {
    pub device: String,
    pub at_once: u32,
    pub rows: usize,
    pub median: f64,
    pub p90: f64,
}

/// From which size on a GPU is quicker than the CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Wins {
    pub device: String,
    pub workload: String,
    /// Stored bytes of input of a slice by itself; `None` if never.
    pub alone_from_bytes: Option<u64>,
    /// The same of slices on all processors at once.
    pub at_once_from_bytes: Option<u64>,
}

impl Comparison {
    /// Makes the slices in `dir`.
    ///
    /// # Errors
    /// Storage.
    pub fn new(dir: &Path, gpus: &[&CudaBackend], quick: bool) -> Result<Self> {
        let mut comparison = Self {
            dir: dir.to_owned(),
            slices: Vec::new(),
            times: Vec::new(),
        };
        for (slice, chosen) in workloads::chosen(quick).into_iter().enumerate() {
            let made = Made::new(&chosen.workload, dir, &format!("slice{slice}"))?;
            let on_gpus = gpus
                .iter()
                .filter(|gpu| made.is_for(**gpu))
                .map(|gpu| gpu.name());
            for device in on_gpus.chain([CPU]) {
                let all = usual_threads();
                for at_once in
                    [1, all]
                        .into_iter()
                        .take(if chosen.at_once && all > 1 { 2 } else { 1 })
                {
                    comparison.times.push(Timed {
                        slice,
                        device: device.to_owned(),
                        at_once,
                        seconds: f64::INFINITY,
                    });
                }
            }
            comparison.slices.push((chosen, made));
        }
        Ok(comparison)
    }

    /// Runs all slices once on each device.
    ///
    /// # Errors
    /// Those of the backends.
    pub fn round(&mut self, gpus: &[&CudaBackend]) -> Result<()> {
        for timed in &mut self.times {
            let made = &self.slices[timed.slice].1;
            let gpu = gpus.iter().find(|gpu| gpu.name() == timed.device);
            let all = match gpu {
                Some(gpu) => made.run_at_once(*gpu, &self.dir, timed.at_once)?,
                None => made.run_at_once(&CpuBackend, &self.dir, timed.at_once)?,
            };
            timed.seconds = timed.seconds.min(mean(&all, |one| one.seconds));
        }
        Ok(())
    }

    /// Holds the least times against what the rates predict.
    pub fn finish(self, machine: &Machine, rates: Rates) -> Compared {
        let row = |timed: &Timed| {
            let (chosen, made) = &self.slices[timed.slice];
            let predicted = rates.predict(&timed.device, made.shape(), timed.at_once)?;
            Some(Row {
                device: timed.device.clone(),
                workload: chosen.workload.to_string(),
                bytes_in: made.shape().bytes_in,
                at_once: timed.at_once,
                measured_s: timed.seconds,
                predicted_s: predicted.seconds,
                error: predicted.seconds / timed.seconds - 1.0,
                bottleneck: predicted.bottleneck,
            })
        };
        let mut rows: Vec<Row> = self.times.iter().filter_map(row).collect();
        rows.sort_by(|a, b| (&a.device, a.at_once).cmp(&(&b.device, b.at_once)));
        Compared {
            machine: machine.clone(),
            errors: errors(&rows),
            wins: self.wins(&rates),
            rows,
            rates,
        }
    }

    fn wins(&self, rates: &Rates) -> Vec<Wins> {
        let gpu = |timed: &&Timed| timed.device != CPU && timed.at_once == 1;
        let wins = |timed: &Timed| {
            let (chosen, made) = &self.slices[timed.slice];
            let from = |at_once| wins_from(rates, &timed.device, made.shape(), at_once);
            Wins {
                device: timed.device.clone(),
                workload: chosen.workload.to_string(),
                alone_from_bytes: from(1),
                at_once_from_bytes: from(usual_threads()),
            }
        };
        self.times.iter().filter(gpu).map(wins).collect()
    }
}

fn wins_from(rates: &Rates, device: &str, shape: &SliceShape, at_once: u32) -> Option<u64> {
    rates.wins_from(device, shape, at_once, MOST_BYTES)
}

/// Of rows that are sorted by device and number of slices.
fn errors(rows: &[Row]) -> Vec<Errors> {
    rows.chunk_by(|a, b| (&a.device, a.at_once) == (&b.device, b.at_once))
        .map(|rows| {
            let mut sizes: Vec<f64> = rows.iter().map(|row| row.error.abs()).collect();
            sizes.sort_by(f64::total_cmp);
            // The least that so many of a hundred do not exceed.
            let percentile = |percent: usize| sizes[(sizes.len() * percent).div_ceil(100) - 1];
            Errors {
                device: rows[0].device.clone(),
                at_once: rows[0].at_once,
                rows: rows.len(),
                median: percentile(50),
                p90: percentile(90),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_absolute_errors_by_device() {
        let row = |device: &str, error| Row {
            device: device.to_owned(),
            workload: String::new(),
            bytes_in: 1,
            at_once: 1,
            measured_s: 1.0,
            predicted_s: 1.0 + error,
            error,
            bottleneck: Part::Processors,
        };
        let mut rows: Vec<Row> = (1..=10).map(|i| row("cpu", -0.01 * f64::from(i))).collect();
        rows.push(row("cuda:0", 0.5));
        let found = errors(&rows);
        assert_eq!(
            (found[0].rows, found[0].median, found[0].p90),
            (10, 0.05, 0.09)
        );
        assert_eq!(
            (found[1].rows, found[1].median, found[1].p90),
            (1, 0.5, 0.5)
        );
        assert_eq!(errors(&[]), []);
    }
}
