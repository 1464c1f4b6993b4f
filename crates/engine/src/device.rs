//! Which device a job's slices run on.

use std::fmt;
use std::str::FromStr;

use rockmill_core::{Backend, DeclineReason, Error, ErrorKind};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};

use crate::standing::Standing;

/// A device as settings and command lines name it: `cpu`, `cuda`, `cuda:N`, `auto`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The host's processors.
    #[default]
    Cpu,
    /// CUDA device number `n`.
    Cuda(u32),
    /// The first GPU that can be used, for jobs of 16 MiB and more; the CPU for others, and if there is none.
    Auto,
    /// The GPU's kernels elsewhere; for tests.
    #[doc(hidden)]
    Kernels(Target),
}

/// Jobs with less input are not worth a GPU: copies, some sixty launches and twenty waits cost it some
/// milliseconds, in which a few threads are done.
const AUTO_MIN_JOB_BYTES: u64 = 16 << 20;

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Auto => f.write_str("auto"),
            Self::Kernels(_) => f.write_str("cuda-on-host"),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = match text {
            "cpu" => return Ok(Self::Cpu),
            "auto" => return Ok(Self::Auto),
            "cuda" => Some("0"),
            _ => text.strip_prefix("cuda:"),
        };
        number
            .and_then(|number| number.parse().ok())
            .map(Self::Cuda)
            .ok_or_else(|| format!("{text:?} is no device: say cpu, cuda, cuda:N or auto"))
    }
}

/// What an engine computes with. The CPU is always there: it redoes what another device could not do.
#[derive(Debug)]
pub struct Devices {
    pub cpu: CpuBackend,
    /// The GPU, if one is used.
    cuda: Option<CudaBackend>,
    standing: Standing,
    /// Jobs with fewer bytes of input are the CPU's.
    cuda_min_job_bytes: u64,
    /// What was taken where that was left open.
    choice: Option<String>,
}

impl Devices {
    /// Opens `device`.
    ///
    /// # Errors
    /// One sentence about what is missing.
    pub fn open(device: Device, cuda: CudaSettings) -> std::result::Result<Self, String> {
        let target = match device {
            Device::Cpu => return Ok(Self::new(None)),
            Device::Auto => return Ok(Self::choose(cuda)),
            Device::Cuda(number) => Target::Cuda(number),
            Device::Kernels(target) => target,
        };
        let opened = CudaBackend::new(target, cuda);
        let opened = opened.map_err(|e| format!("device {device}: {}", e.what))?;
        Ok(Self::new(Some(opened)))
    }

    fn new(cuda: Option<CudaBackend>) -> Self {
        Self {
            cpu: CpuBackend,
            cuda,
            standing: Standing::default(),
            cuda_min_job_bytes: 0,
            choice: None,
        }
    }

    /// A GPU if one can be used.
    fn choose(settings: CudaSettings) -> Self {
        let opened = CudaBackend::first_usable(settings);
        let choice = match &opened {
            Ok(backend) => {
                let (name, gpu) = (backend.name(), &backend.device().about().name);
                let least = AUTO_MIN_JOB_BYTES >> 20;
                format!("{name}, {gpu}, for jobs of {least} MiB and more, the CPU for others")
            }
            Err(error) => format!("the CPU; no GPU: {}", error.what),
        };
        tracing::info!(%choice, "what computes");
        Self {
            cuda_min_job_bytes: AUTO_MIN_JOB_BYTES,
            choice: Some(choice),
            ..Self::new(opened.ok())
        }
    }

    /// The GPU, if a job with so many bytes of input is its.
    pub fn gpu_for(&self, job_bytes: u64) -> Option<Offload<'_, CudaBackend>> {
        let backend = self.cuda.as_ref()?;
        (job_bytes >= self.cuda_min_job_bytes).then_some(Offload {
            backend,
            standing: &self.standing,
        })
    }

    /// What [`Device::Auto`] came to, in a sentence without an end; `None` for other devices.
    pub fn choice(&self) -> Option<&str> {
        self.choice.as_deref()
    }
}

/// Whether another device may do better than one that has failed so. Not if RocksDB has to do the job anyway
/// or the file system refuses; but damage, too, is looked at again: the device's memory may be what is
/// damaged.
pub fn is_device_trouble(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Device
        | ErrorKind::Corruption
        | ErrorKind::Verification
        | ErrorKind::Internal => true,
        // Another device needs less.
        ErrorKind::Declined(reason) => reason == DeclineReason::MemoryBudget,
        ErrorKind::Storage | ErrorKind::Cancelled => false,
    }
}

/// A device to try before the CPU.
#[derive(Debug)]
pub struct Offload<'a, B> {
    /// What runs slices there.
    pub backend: &'a B,
    /// Whether it is trusted, over all jobs.
    pub standing: &'a Standing,
}

impl<B> Clone for Offload<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Offload<'_, B> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_does_what_a_device_could_not() {
        let redone = |kind| is_device_trouble(&Error::new(kind, "why"));
        assert!(redone(ErrorKind::Device) && redone(ErrorKind::Verification));
        assert!(redone(ErrorKind::Declined(DeclineReason::MemoryBudget)));
        assert!(!redone(ErrorKind::Declined(DeclineReason::MergeOperands)));
        assert!(!redone(ErrorKind::Storage) && !redone(ErrorKind::Cancelled));
    }

    #[test]
    fn devices_are_read_as_they_are_shown() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(3), Device::Auto] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "CPU"] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_left_open_is_told_and_small_jobs_are_the_cpus() {
        let opened = |device| Devices::open(device, CudaSettings::default()).expect("it opens");
        let auto = opened(Device::Auto);
        let choice = auto.choice().expect("it was left open");
        match &auto.cuda {
            Some(gpu) => assert!(choice.starts_with(gpu.name()), "{choice}"),
            None => assert!(choice.starts_with("the CPU; no GPU: "), "{choice}"),
        }
        let gpu = opened(Device::Kernels(Target::Host));
        assert!(gpu.choice().is_none() && gpu.gpu_for(0).is_some());
        let auto = Devices {
            cuda_min_job_bytes: AUTO_MIN_JOB_BYTES,
            ..gpu
        };
        assert!(auto.gpu_for(AUTO_MIN_JOB_BYTES - 1).is_none());
        assert!(auto.gpu_for(AUTO_MIN_JOB_BYTES).is_some());
        assert!(opened(Device::Cpu).gpu_for(u64::MAX).is_none());
    }
}
