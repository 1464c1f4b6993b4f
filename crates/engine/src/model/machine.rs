//! Which machine rates belong to.

use std::fmt;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// What tells a host from another, as far as rates of any of its devices go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Model of the processors.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: u32,
    /// Version of the GPUs' driver; empty without one.
    pub driver: String,
}

/// A host with the GPUs that this process may use, which may be others than another process's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Without them.
    #[serde(flatten)]
    pub host: Host,
    /// Names of the GPUs, by number.
    pub gpus: Vec<String>,
}

impl Host {
    /// This one.
    pub fn here() -> Self {
        Self {
            processor: processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            driver: driver_version().unwrap_or_default(),
        }
    }

    /// One that hosts with other processors, or with more or fewer of them, do not have.
    pub fn number(&self) -> u64 {
        XxHash3_64::oneshot(format!("{} x {}", self.cores, self.processor).as_bytes())
    }
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let gpus = rockmill_cuda::Device::all_gpus().unwrap_or_default();
        Self {
            host: Host::here(),
            gpus: gpus.iter().map(|gpu| gpu.about().name.clone()).collect(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} cores", self.processor, self.cores)?;
        match self.driver.as_str() {
            "" => Ok(()),
            driver => write!(f, ", driver {driver}"),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        self.gpus.iter().try_for_each(|gpu| write!(f, ", {gpu}"))
    }
}

/// Model of the processors as the system knows it.
pub fn processor_name() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Of NVIDIA's kernel module.
fn driver_version() -> Option<String> {
    std::fs::read_to_string("/sys/module/nvidia/version")
        .ok()
        .map(|version| version.trim().to_owned())
}
