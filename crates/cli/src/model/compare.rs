//! Slices that calibration never saw, run on each device.

use std::path::{Path, PathBuf};

use rockmill_core::{Backend, CancelToken, Result};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::CudaBackend;
use rockmill_engine::model::{CPU, Machine, Made, Part, Rates, mean};
use rockmill_engine::processors::Processors;
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
    processors: Processors,
    /// That were run.
    rounds: usize,
}

/// The least time of a slice on a device, so far.
#[derive(Debug)]
struct Timed {
    /// Position in the slices.
    slice: usize,
    device: String,
    at_once: u32,
    seconds: f64,
    /// Processor time of the host, of a slice in the quickest run.
    cpu_seconds: f64,
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
    pub loses: Vec<Loses>,
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
    /// Processor time of the host: on a GPU, what feeding it took.
    pub measured_cpu_s: f64,
    pub predicted_cpu_s: f64,
    pub cpu_error: f64,
}

/// Absolute errors of some rows, of the time and of the host's processor time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Errors {
    pub device: String,
    pub at_once: u32,
    pub rows: usize,
    pub median: f64,
    pub p90: f64,
    pub cpu_median: f64,
    pub cpu_p90: f64,
}

/// Below which size a GPU is slower than the CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Loses {
    pub device: String,
    /// Slices of this kind, of any size.
    pub kind: String,
    /// Stored bytes of input of a slice by itself; `None` if it always is.
    pub alone_below_bytes: Option<u64>,
    /// The same of slices on all processors at once.
    pub at_once_below_bytes: Option<u64>,
}

impl Comparison {
    /// Bytes that files take at most, the slices' and those that are made of them.
    pub fn room(quick: bool) -> u64 {
        let chosen = workloads::chosen(quick);
        let inputs = chosen.iter().map(|chosen| chosen.workload.input_bytes());
        let outputs = chosen.iter().map(|chosen| {
            let at_once = if chosen.at_once { usual_threads() } else { 1 };
            u64::from(at_once) * chosen.workload.output_bytes()
        });
        inputs.sum::<u64>() + outputs.max().unwrap_or(0)
    }

    /// Makes the slices in `dir`.
    ///
    /// # Errors
    /// Storage.
    pub fn new(dir: &Path, gpus: &[&CudaBackend], quick: bool) -> Result<Self> {
        let mut comparison = Self {
            dir: dir.to_owned(),
            slices: Vec::new(),
            times: Vec::new(),
            processors: Processors::here(),
            rounds: 0,
        };
        let never = CancelToken::new();
        for (slice, chosen) in workloads::chosen(quick).into_iter().enumerate() {
            let made = Made::new(&chosen.workload, dir, &format!("slice{slice}"), &never)?;
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
                        cpu_seconds: 0.0,
                    });
                }
            }
            comparison.slices.push((chosen, made));
        }
        Ok(comparison)
    }

    /// Runs all slices once on each device. On the CPU, slices one at a time each go to another processor than in the
    /// round before: in some hosts those of other guests slow some of them and not the others.
    ///
    /// # Errors
    /// Those of the backends.
    pub fn round(&mut self, gpus: &[&CudaBackend]) -> Result<()> {
        let never = CancelToken::new();
        for (nth, timed) in self.times.iter_mut().enumerate() {
            let made = &self.slices[timed.slice].1;
            let gpu = gpus.iter().find(|gpu| gpu.name() == timed.device);
            let all = match gpu {
                Some(gpu) => made.run_at_once(*gpu, &self.dir, timed.at_once, &never)?,
                None => {
                    let _pinned =
                        (timed.at_once == 1).then(|| self.processors.pin(self.rounds + nth));
                    made.run_at_once(&CpuBackend, &self.dir, timed.at_once, &never)?
                }
            };
            let seconds = mean(&all, |one| one.seconds);
            if seconds < timed.seconds {
                timed.seconds = seconds;
                timed.cpu_seconds = mean(&all, |one| one.cpu_seconds);
            }
        }
        self.rounds += 1;
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
                measured_cpu_s: timed.cpu_seconds,
                predicted_cpu_s: predicted.cpu_seconds,
                cpu_error: predicted.cpu_seconds / timed.cpu_seconds - 1.0,
            })
        };
        let mut rows: Vec<Row> = self.times.iter().filter_map(row).collect();
        rows.sort_by(|a, b| (&a.device, a.at_once).cmp(&(&b.device, b.at_once)));
        Compared {
            machine: machine.clone(),
            errors: errors(&rows),
            loses: self.loses(&rates),
            rows,
            rates,
        }
    }

    fn loses(&self, rates: &Rates) -> Vec<Loses> {
        let gpu = |timed: &&Timed| timed.device != CPU && timed.at_once == 1;
        let loses = |timed: &Timed| {
            let (chosen, made) = &self.slices[timed.slice];
            let below = |at_once| rates.wins_from(&timed.device, made.shape(), at_once, MOST_BYTES);
            Loses {
                device: timed.device.clone(),
                kind: chosen.workload.kind(),
                alone_below_bytes: below(1),
                at_once_below_bytes: below(usual_threads()),
            }
        };
        self.times.iter().filter(gpu).map(loses).collect()
    }
}

/// Of rows that are sorted by device and number of slices.
fn errors(rows: &[Row]) -> Vec<Errors> {
    rows.chunk_by(|a, b| (&a.device, a.at_once) == (&b.device, b.at_once))
        .map(|rows| {
            // The least that so many of a hundred do not exceed.
            let percentile = |error: fn(&Row) -> f64, percent: usize| {
                let mut sizes: Vec<f64> = rows.iter().map(|row| error(row).abs()).collect();
                sizes.sort_by(f64::total_cmp);
                sizes[(sizes.len() * percent).div_ceil(100) - 1]
            };
            Errors {
                device: rows[0].device.clone(),
                at_once: rows[0].at_once,
                rows: rows.len(),
                median: percentile(|row| row.error, 50),
                p90: percentile(|row| row.error, 90),
                cpu_median: percentile(|row| row.cpu_error, 50),
                cpu_p90: percentile(|row| row.cpu_error, 90),
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
            measured_cpu_s: 1.0,
            predicted_cpu_s: 1.0 + 2.0 * error,
            cpu_error: 2.0 * error,
        };
        let mut rows: Vec<Row> = (1..=10).map(|i| row("cpu", -0.01 * f64::from(i))).collect();
        rows.push(row("cuda:0", 0.5));
        let found = errors(&rows);
        assert_eq!(
            (found[0].rows, found[0].median, found[0].p90),
            (10, 0.05, 0.09)
        );
        assert_eq!((found[0].cpu_median, found[0].cpu_p90), (0.1, 0.18));
        assert_eq!(
            (found[1].rows, found[1].median, found[1].p90),
            (1, 0.5, 0.5)
        );
        assert_eq!(errors(&[]), []);
    }
}
