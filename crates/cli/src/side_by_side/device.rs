//! What Rockmill computes on.

use std::fmt;
use std::str::FromStr;

use rockmill::Service;

use super::database::BLOOM_BITS_PER_KEY;
use crate::outcome::Failure;

/// Where the stages of a compaction run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
        }
    }
}

impl FromStr for Device {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text {
            "cpu" => Ok(Self::Cpu),
            _ => Err(Failure::Environment(format!(
                "--device {text}: this build has no CUDA backend, only cpu"
            ))),
        }
    }
}

/// A service that compacts on a device.
///
/// # Errors
/// Usage if the settings make no sense.
pub fn service(device: Device, threads: u32) -> Result<Service, Failure> {
    let builder = Service::builder()
        .threads(threads as usize)
        .filter_bits_per_key(BLOOM_BITS_PER_KEY);
    let built = match device {
        Device::Cpu => builder.build(),
    };
    built.map_err(|e| Failure::Usage(e.to_string()))
}
