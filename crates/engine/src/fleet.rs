//! The devices of an engine: opened beside other work, each with its standing.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Device as Gpu, Target};

use crate::clock::Clock;
use crate::compute::Compute;
use crate::device::{Device, DeviceList};
use crate::opening::Opening;
use crate::simulated::{Profile, Simulated};
use crate::standing::Standing;

/// Jobs with less input are not worth a GPU: copies, some sixty launches and a dozen waits cost it five
/// milliseconds. Of 16 B/256 B it wins from 4 MB on (docs/design/gpu.md).
const AUTO_MIN_JOB_BYTES: u64 = 4 << 20;

/// What an engine computes with. The CPU is always there: it redoes what another device could not do.
#[derive(Debug)]
pub struct Fleet {
    pub cpu: CpuBackend,
    /// Whether the CPU also takes slices that other devices could do.
    pub host_shares: bool,
    places: Vec<Place>,
}

/// What the settings ask for beside the CPU; it is used as soon as it is open.
#[derive(Debug)]
struct Place {
    opening: Opening<Vec<Arc<Opened>>>,
    /// As it was asked for.
    device: Device,
    /// Jobs with fewer bytes of input are the CPU's.
    min_job_bytes: u64,
    /// What became of it, once told.
    text: OnceLock<String>,
}

/// A device that is open.
#[derive(Debug)]
pub struct Opened {
    /// What runs slices there.
    pub backend: Box<dyn Compute>,
    /// Whether it is trusted, over all jobs.
    pub standing: Standing,
    /// What it calls itself.
    model: String,
}

/// An open device that a job may use.
#[derive(Debug, Clone, Copy)]
pub struct Offload<'a> {
    /// Its number among the engine's; 0 is the host's.
    pub number: usize,
    /// The device.
    pub device: &'a Arc<Opened>,
}

impl Opened {
    /// Opens a GPU, and makes what its first slice would wait for.
    fn gpu(target: Target, cuda: CudaSettings) -> Result<Arc<Self>> {
        let backend = CudaBackend::new(target, cuda)?;
        if let Err(error) = backend.warm_up() {
            // The first slice will say so too, if it needs as much.
            tracing::warn!(%error, "the GPU was opened, but has not all that a slice usually needs");
        }
        Ok(Arc::new(Self {
            model: backend.device().about().name.clone(),
            backend: Box::new(backend),
            standing: Standing::default(),
        }))
    }

    /// A device that is not there.
    fn simulated(profile: Profile, cuda: CudaSettings, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let simulated = Simulated::new(profile, cuda.memory_bytes, Arc::clone(clock));
        Arc::new(Self {
            model: "simulated".to_owned(),
            backend: Box::new(simulated),
            standing: Standing::default(),
        })
    }

    /// Opens the first GPU that can be used.
    fn first_gpu(cuda: CudaSettings) -> Result<Vec<Arc<Self>>> {
        let mut trouble = None;
        for gpu in Gpu::all_gpus()? {
            match Self::gpu(Target::Cuda(gpu.number()), cuda) {
                Ok(gpu) => return Ok(vec![gpu]),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        let none = || Error::new(ErrorKind::Device, "the machine has none");
        Err(trouble.unwrap_or_else(none))
    }
}

impl Place {
    fn open(device: Device, cuda: CudaSettings, clock: &Arc<dyn Clock>) -> Option<Self> {
        let one = |target| Opening::start(move || Ok(vec![Opened::gpu(target, cuda)?]));
        let (opening, min_job_bytes) = match device {
            Device::Cpu => return None,
            Device::Auto => {
                let first = Opening::start(move || Opened::first_gpu(cuda));
                (first, AUTO_MIN_JOB_BYTES)
            }
            Device::Simulated(profile) => {
                let opened = Opened::simulated(profile, cuda, clock);
                (Opening::start(move || Ok(vec![opened])), 0)
            }
            Device::Cuda(number) => (one(Target::Cuda(number)), 0),
            Device::Kernels(target) => (one(target), 0),
        };
        Some(Self {
            opening,
            device,
            min_job_bytes,
            text: OnceLock::new(),
        })
    }

    fn opened(&self) -> &[Arc<Opened>] {
        let opened = self.opening.get().and_then(|opened| opened.as_ref().ok());
        opened.map_or(&[], Vec::as_slice)
    }

    fn trouble(&self) -> Option<&str> {
        let error = self.opening.get()?.as_ref().err()?;
        let text = || format!("device {}: {}", self.device, error.what);
        (self.device != Device::Auto).then(|| self.text.get_or_init(text).as_str())
    }

    fn choice(&self) -> Option<&str> {
        let opened = self.opening.get()?;
        let text = || match opened {
            Ok(gpus) => {
                let gpus = gpus
                    .iter()
                    .map(|gpu| format!("{}, {}", gpu.backend.name(), gpu.model));
                let gpus = gpus.collect::<Vec<_>>().join(", ");
                let least = AUTO_MIN_JOB_BYTES >> 20;
                format!("{gpus}, for jobs of {least} MiB and more, the CPU for others")
            }
            Err(error) => format!("the CPU; no GPU: {}", error.what),
        };
        (self.device == Device::Auto).then(|| self.text.get_or_init(text).as_str())
    }
}

impl Fleet {
    /// Begins to open `devices`; until one is open, others and the CPU do what there is to do.
    pub fn open(devices: DeviceList, cuda: CudaSettings, clock: &Arc<dyn Clock>) -> Self {
        let places = devices
            .iter()
            .filter_map(|device| Place::open(device, cuda, clock));
        Self {
            cpu: CpuBackend,
            host_shares: devices.contains(Device::Cpu),
            places: places.collect(),
        }
    }

    /// The devices beside the CPU that are open and take slices of a job with so many bytes of input.
    pub fn for_job(&self, job_bytes: u64) -> Vec<Offload<'_>> {
        let open = self.places.iter().enumerate().flat_map(|(at, place)| {
            let numbered = place.opened().iter().enumerate();
            let min_job_bytes = place.min_job_bytes;
            // One place has one device, or is the only one.
            numbered.map(move |(nth, device)| {
                let number = 1 + at + nth;
                (min_job_bytes, Offload { number, device })
            })
        });
        open.filter(|(least, _)| job_bytes >= *least)
            .map(|(_, offload)| offload)
            .collect()
    }

    /// Waits until all devices are open.
    ///
    /// # Errors
    /// One sentence about what is missing; none of [`Device::Auto`].
    pub fn wait(&self) -> std::result::Result<(), String> {
        for place in &self.places {
            let _ = place.opening.wait();
        }
        self.trouble().map_or(Ok(()), |what| Err(what.to_owned()))
    }

    /// How often which fault was made on purpose, on all devices.
    pub fn faults(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for opened in self.places.iter().flat_map(Place::opened) {
            for (fault, times) in opened.backend.faults() {
                *sums.entry(fault.to_owned()).or_default() += times;
            }
        }
        sums
    }

    /// Why the first device that was asked for and cannot be used is not, if that is known.
    pub fn trouble(&self) -> Option<&str> {
        self.places.iter().find_map(Place::trouble)
    }

    /// What [`Device::Auto`] came to, in a sentence without an end; `None` for other devices, and as long as
    /// it is not known.
    pub fn choice(&self) -> Option<&str> {
        self.places.iter().find_map(Place::choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    const KERNELS: Device = Device::Kernels(Target::Host);

    fn opened(devices: impl Into<DeviceList>) -> Fleet {
        let fleet = Fleet::open(
            devices.into(),
            CudaSettings::default(),
            &SystemClock::shared(),
        );
        assert_eq!(fleet.wait(), Ok(()));
        fleet
    }

    #[test]
    fn what_is_left_open_is_told_and_small_jobs_are_the_cpus() {
        let mut auto = opened(Device::Auto);
        let choice = auto.choice().expect("it was left open");
        match auto.for_job(u64::MAX).first() {
            Some(gpu) => assert!(choice.starts_with(gpu.device.backend.name()), "{choice}"),
            None => assert!(choice.starts_with("the CPU; no GPU: "), "{choice}"),
        }
        let kernels = opened(KERNELS);
        assert!(kernels.choice().is_none() && kernels.for_job(0).len() == 1);
        assert!(!auto.host_shares && !kernels.host_shares);
        let least = auto.places[0].min_job_bytes;
        auto.places = kernels.places;
        auto.places[0].min_job_bytes = least;
        assert!(auto.for_job(AUTO_MIN_JOB_BYTES - 1).is_empty());
        assert_eq!(auto.for_job(AUTO_MIN_JOB_BYTES).len(), 1);
        assert!(opened(Device::Cpu).for_job(u64::MAX).is_empty());
    }

    #[test]
    fn each_device_has_a_number_of_its_own() {
        let list = DeviceList::try_from([KERNELS, Device::Cpu, KERNELS].as_slice());
        let fleet = opened(list.expect("tests may name them twice"));
        let devices = fleet.for_job(0);
        let numbers: Vec<_> = devices.iter().map(|device| device.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert!(fleet.host_shares);
    }

    #[test]
    fn a_gpu_that_cannot_be_used_is_named_and_leaves_jobs_to_the_others() {
        let list = DeviceList::try_from([Device::Cuda(4711), KERNELS].as_slice());
        let fleet = Fleet::open(
            list.expect("two"),
            CudaSettings::default(),
            &SystemClock::shared(),
        );
        let error = fleet.wait().expect_err("so many there are not");
        assert!(error.starts_with("device cuda:4711: "), "{error}");
        assert_eq!(fleet.trouble(), Some(&*error));
        assert_eq!(fleet.for_job(u64::MAX).len(), 1);
        assert!(fleet.choice().is_none());
    }
}
