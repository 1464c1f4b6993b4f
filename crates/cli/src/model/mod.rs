//! `rockmill model`: what the cost model predicts beside what slices take.

mod compare;
mod profile;
mod report;
mod workloads;

use std::path::{Path, PathBuf};

use rockmill::{CudaSettings, Device};
use rockmill_core::Error;
use rockmill_cuda::{CudaBackend, Target};
use rockmill_engine::Idle;
use rockmill_engine::clock::SystemClock;
use rockmill_engine::model::{CALIBRATION_TIME, Machine, Probe, Rates, calibrate, files_dir, room};

use crate::outcome::Failure;
use crate::side_by_side::{self, device};
use compare::Comparison;

/// What `rockmill model` takes.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// Devices beside the CPU, which is always measured: cpu, cuda, cuda:N or auto.
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    device: Vec<String>,
    /// Folder for the files, which are removed at the end; the model is of files in memory [default: /dev/shm, or
    /// the system's for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Runs of each slice, of which the quickest counts; on the CPU each on another processor.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// A few workloads alone.
    #[arg(long)]
    quick: bool,
    /// Calibrate in as many rounds as there are runs, in turn with them, rather than for a second before: where
    /// other work comes and goes.
    #[arg(long)]
    interleave: bool,
    /// Print the model of an accelerator instead: fpga-cu, which was published, near-data-ssd, mid-gpu, or a file
    /// that ends in .json.
    #[arg(long, conflicts_with_all = ["device", "dir", "quick", "interleave", "repeat"])]
    profile: Option<String>,
    /// Print a document for machines.
    #[arg(long)]
    json: bool,
}

/// Runs the comparison, or prints a profile.
///
/// # Errors
/// Usage for devices and profiles that there are not, Environment if the machine refuses.
pub fn run(args: &ModelArgs) -> Result<(), Failure> {
    if let Some(name) = &args.profile {
        return profile::print(name, args.json);
    }
    let gpus = open_gpus(&args.device)?;
    let gpus: Vec<&CudaBackend> = gpus.iter().collect();
    let machine = Machine::here();
    let bytes = room(&machine.host, !gpus.is_empty()) + Comparison::room(args.quick);
    let dir = files_dir(args.dir.as_deref(), bytes).map_err(advise_dir)?;
    let compared = side_by_side::in_scratch(Some(&dir), |scratch| {
        let mut comparison = Comparison::new(scratch, &gpus, args.quick)?;
        let rates = match args.interleave {
            true => in_turn(args.repeat, scratch, &machine, &gpus, &mut comparison)?,
            false => {
                // The model is frozen before the first slice that it is held against.
                let idle = Idle::new(SystemClock::shared());
                let rates = calibrate(scratch, &machine.host, &gpus, CALIBRATION_TIME, &idle)?;
                (0..args.repeat).try_for_each(|_| comparison.round(&gpus))?;
                rates
            }
        };
        Ok(comparison.finish(&machine, rates))
    })?;
    report::print(&compared, args.json)
}

fn advise_dir(error: Error) -> Failure {
    Failure::Environment(format!("{error}; name another folder with --dir"))
}

/// Rounds of calibration, which sees its own slices alone, between those of the comparison.
fn in_turn(
    rounds: u32,
    dir: &Path,
    machine: &Machine,
    gpus: &[&CudaBackend],
    comparison: &mut Comparison,
) -> Result<Rates, Failure> {
    let idle = Idle::new(SystemClock::shared());
    let mut probe = Probe::new(dir, &machine.host, gpus, &idle)?;
    for _ in 0..rounds {
        probe.round()?;
        probe.round()?;
        comparison.round(gpus)?;
    }
    Ok(probe.rates()?)
}

fn open_gpus(names: &[String]) -> Result<Vec<CudaBackend>, Failure> {
    let settings = CudaSettings::default();
    let mut gpus = Vec::new();
    for name in names {
        let opened = match device::parse(name)? {
            Device::Cpu => continue,
            Device::Simulated(_) => {
                let what =
                    "--device: a simulated device takes the time of its profile: see --profile";
                return Err(Failure::Usage(what.to_owned()));
            }
            Device::Cuda(number) => CudaBackend::new(Target::Cuda(number), settings),
            Device::Kernels(target) => CudaBackend::new(target, settings),
            Device::Auto => match CudaBackend::first_usable(settings) {
                Ok(gpu) => Ok(gpu),
                Err(error) => {
                    device::tell(Some(&format!("the CPU; no GPU: {}", error.what)));
                    continue;
                }
            },
        };
        let warm = opened.and_then(|gpu| gpu.warm_up().map(|()| gpu));
        let refused = |e| Failure::Environment(format!("device {name}: {e}"));
        gpus.push(warm.map_err(refused)?);
    }
    Ok(gpus)
}
