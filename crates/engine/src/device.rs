//! Which device a job's slices run on.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use rockmill_core::{Backend, DeclineReason, Error, ErrorKind};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};

use crate::opening::Opening;
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
    gpu: Option<Gpu>,
}

/// A GPU that is used as soon as it is open.
#[derive(Debug)]
struct Gpu {
    opening: Opening,
    standing: Standing,
    /// As it was asked for.
    device: Device,
    /// Jobs with fewer bytes of input are the CPU's.
    min_job_bytes: u64,
    /// What became of it, once told.
    text: OnceLock<String>,
}

impl Devices {
    /// Begins to open `device`; until that is done, the CPU does what there is to do.
    pub fn open(device: Device, cuda: CudaSettings) -> Self {
        let gpu = |min_job_bytes, opening| {
            Some(Gpu {
                opening,
                standing: Standing::default(),
                device,
                min_job_bytes,
                text: OnceLock::new(),
            })
        };
        let open = |target| Opening::start(move || CudaBackend::new(target, cuda));
        let gpu = match device {
            Device::Cpu => None,
            Device::Auto => {
                let opening = Opening::start(move || CudaBackend::first_usable(cuda));
                gpu(AUTO_MIN_JOB_BYTES, opening)
            }
            Device::Cuda(number) => gpu(0, open(Target::Cuda(number))),
            Device::Kernels(target) => gpu(0, open(target)),
        };
        Self {
            cpu: CpuBackend,
            gpu,
        }
    }

    /// The GPU, if it is open and a job with so many bytes of input is its.
    pub fn gpu_for(&self, job_bytes: u64) -> Option<Offload<'_, CudaBackend>> {
        let gpu = self.gpu.as_ref()?;
        let backend = gpu.opening.get()?.as_ref().ok()?;
        (job_bytes >= gpu.min_job_bytes).then_some(Offload {
            backend,
            standing: &gpu.standing,
        })
    }

    /// Waits until the GPU is open, if there is one to open.
    ///
    /// # Errors
    /// One sentence about what is missing; none of [`Device::Auto`].
    pub fn wait(&self) -> std::result::Result<(), String> {
        if let Some(gpu) = &self.gpu {
            let _ = gpu.opening.wait();
        }
        self.trouble().map_or(Ok(()), |what| Err(what.to_owned()))
    }

    /// Why the GPU that was asked for cannot be used, if that is known.
    pub fn trouble(&self) -> Option<&str> {
        let gpu = self.gpu.as_ref()?;
        let error = gpu.opening.get()?.as_ref().err()?;
        let text = || format!("device {}: {}", gpu.device, error.what);
        (gpu.device != Device::Auto).then(|| gpu.text.get_or_init(text).as_str())
    }

    /// What [`Device::Auto`] came to, in a sentence without an end; `None` for other devices, and as long as
    /// it is not known.
    pub fn choice(&self) -> Option<&str> {
        let gpu = self.gpu.as_ref()?;
        let opened = gpu.opening.get()?;
        let text = || match opened {
            Ok(backend) => {
                let (name, gpu) = (backend.name(), &backend.device().about().name);
                let least = AUTO_MIN_JOB_BYTES >> 20;
                format!("{name}, {gpu}, for jobs of {least} MiB and more, the CPU for others")
            }
            Err(error) => format!("the CPU; no GPU: {}", error.what),
        };
        (gpu.device == Device::Auto).then(|| gpu.text.get_or_init(text).as_str())
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

    fn opened(device: Device) -> Devices {
        let devices = Devices::open(device, CudaSettings::default());
        assert_eq!(devices.wait(), Ok(()), "{device}");
        devices
    }

    #[test]
    fn what_is_left_open_is_told_and_small_jobs_are_the_cpus() {
        let mut auto = opened(Device::Auto);
        let choice = auto.choice().expect("it was left open");
        match auto.gpu_for(u64::MAX) {
            Some(gpu) => assert!(choice.starts_with(gpu.backend.name()), "{choice}"),
            None => assert!(choice.starts_with("the CPU; no GPU: "), "{choice}"),
        }
        let kernels = opened(Device::Kernels(Target::Host));
        assert!(kernels.choice().is_none() && kernels.gpu_for(0).is_some());
        let least = auto.gpu.as_ref().map_or(0, |gpu| gpu.min_job_bytes);
        auto.gpu = kernels.gpu.map(|gpu| Gpu {
            min_job_bytes: least,
            ..gpu
        });
        assert!(auto.gpu_for(AUTO_MIN_JOB_BYTES - 1).is_none());
        assert!(auto.gpu_for(AUTO_MIN_JOB_BYTES).is_some());
        assert!(opened(Device::Cpu).gpu_for(u64::MAX).is_none());
    }

    #[test]
    fn a_gpu_that_cannot_be_used_is_named_and_leaves_jobs_to_the_cpu() {
        let devices = Devices::open(Device::Cuda(4711), CudaSettings::default());
        let error = devices.wait().expect_err("so many there are not");
        assert!(error.starts_with("device cuda:4711: "), "{error}");
        assert_eq!(devices.trouble(), Some(&*error));
        assert!(devices.gpu_for(u64::MAX).is_none() && devices.choice().is_none());
    }
}
