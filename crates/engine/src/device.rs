//! Which device a job's slices run on.

use std::fmt;
use std::str::FromStr;

use rockmill_core::{DeclineReason, Error, ErrorKind, Result};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};

/// A device as settings and command lines name it: `cpu`, `cuda`, `cuda:N`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The host's processors.
    #[default]
    Cpu,
    /// CUDA device number `n`.
    Cuda(u32),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = match text {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some("0"),
            _ => text.strip_prefix("cuda:"),
        };
        number
            .and_then(|number| number.parse().ok())
            .map(Self::Cuda)
            .ok_or_else(|| format!("{text:?} is no device: say cpu, cuda or cuda:N"))
    }
}

/// What an engine computes with. The CPU is always there: it redoes what another device could not do.
#[derive(Debug)]
pub struct Devices {
    pub cpu: CpuBackend,
    pub cuda: Option<CudaBackend>,
}

impl Devices {
    /// Opens `device`.
    ///
    /// # Errors
    /// One sentence about what is missing.
    pub fn open(device: Device, cuda: CudaSettings) -> std::result::Result<Self, String> {
        let backend = match device {
            Device::Cpu => None,
            Device::Cuda(number) => {
                let opened = CudaBackend::new(Target::Cuda(number), cuda);
                Some(opened.map_err(|e| format!("device {device}: {}", e.what))?)
            }
        };
        Ok(Self {
            cpu: CpuBackend,
            cuda: backend,
        })
    }
}

/// The error, if another device may do better. Not if RocksDB has to do the job anyway or the file system
/// refuses; but damage, too, is looked at again: the device's memory may be what is damaged.
pub fn device_trouble<T>(result: &Result<T>) -> Option<&Error> {
    let is_trouble = |kind| match kind {
        ErrorKind::Device
        | ErrorKind::Corruption
        | ErrorKind::Verification
        | ErrorKind::Internal => true,
        // Another device needs less.
        ErrorKind::Declined(reason) => reason == DeclineReason::MemoryBudget,
        ErrorKind::Storage | ErrorKind::Cancelled => false,
    };
    result.as_ref().err().filter(|error| is_trouble(error.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_does_what_a_device_could_not() {
        let redone = |kind| device_trouble(&Err::<(), _>(Error::new(kind, "why"))).is_some();
        assert!(redone(ErrorKind::Device) && redone(ErrorKind::Verification));
        assert!(redone(ErrorKind::Declined(DeclineReason::MemoryBudget)));
        assert!(!redone(ErrorKind::Declined(DeclineReason::MergeOperands)));
        assert!(!redone(ErrorKind::Storage) && !redone(ErrorKind::Cancelled));
        assert!(device_trouble(&Ok(())).is_none());
    }

    #[test]
    fn devices_are_read_as_they_are_shown() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(3)] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "CPU"] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }
}
