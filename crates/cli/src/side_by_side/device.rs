//! What Rockmill computes on, and how it is told.

use std::str::FromStr;

use rockmill::{CudaSettings, Device, InputPath, Service};

use super::database::BLOOM_BITS_PER_KEY;
use crate::outcome::Failure;

/// How GPUs are used and how much memory the host gives; the same for all measurements of a command.
#[derive(Debug, Clone, clap::Args)]
pub struct Tuning {
    /// Host memory in MiB that slices in flight hold at most.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    memory_mib: u64,
    /// How input gets to a GPU: mapped from the page cache, or read.
    #[arg(long, default_value = "read", value_parser = parse_input_path, value_name = "mapped|read")]
    gpu_input: InputPath,
    /// Threads that load each slice's input for a GPU.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    gpu_io_threads: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        let cuda = CudaSettings::default();
        Self {
            memory_mib: 512,
            gpu_input: cuda.input_path,
            gpu_io_threads: cuda.io_threads as u64,
        }
    }
}

fn parse_input_path(text: &str) -> Result<InputPath, String> {
    match text {
        "mapped" => Ok(InputPath::Mapped),
        "read" => Ok(InputPath::Read),
        _ => Err("say mapped or read".to_owned()),
    }
}

/// A device from the command line.
///
/// # Errors
/// Usage if it is none.
pub fn parse(text: &str) -> Result<Device, Failure> {
    Device::from_str(text).map_err(|what| Failure::Usage(format!("--device: {what}")))
}

/// A service that compacts on a device.
///
/// # Errors
/// Environment if the device cannot be used, Usage if the settings make no sense.
pub fn service(device: Device, threads: u32, tuning: &Tuning) -> Result<Service, Failure> {
    let built = Service::builder()
        .threads(threads as usize)
        .memory_budget_bytes(tuning.memory_mib << 20)
        .filter_bits_per_key(BLOOM_BITS_PER_KEY)
        .device(device)
        .cuda(CudaSettings {
            input_path: tuning.gpu_input,
            io_threads: tuning.gpu_io_threads as usize,
            ..CudaSettings::default()
        })
        .build();
    built.map_err(|e| match device {
        Device::Cpu => Failure::Usage(e.to_string()),
        Device::Cuda(_) => Failure::Environment(e.to_string()),
    })
}
