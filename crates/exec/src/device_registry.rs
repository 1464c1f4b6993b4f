//! The devices of an engine, which are opened in the background, each with its health.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rockmill_core::{DynBackend, Error, ErrorKind, Result};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Device as Gpu, Target};

use crate::device::{Device, DeviceList, Registered};
use crate::device_health::DeviceHealth;
use crate::opening::Opening;
use rockmill_storage::clock::Clock;

/// Devices of an engine. The CPU is always present: it redoes tasks at which another device failed.
#[derive(Debug)]
pub struct DeviceRegistry {
    /// The host's CPUs.
    pub cpu: CpuBackend,
    /// Whether the CPU also runs tasks that other devices could run.
    pub host_shares: bool,
    places: Vec<Place>,
}

/// A device in the settings other than the CPU. It is used as soon as it is open.
#[derive(Debug)]
struct Place {
    opening: Opening<Vec<Arc<OpenDevice>>>,
    /// The device as the settings name it.
    device: Device,
    /// The result of opening it, as text, once requested.
    text: OnceLock<String>,
}

/// An open device.
#[derive(Debug)]
pub struct OpenDevice {
    /// Its backend.
    pub backend: Arc<dyn DynBackend>,
    /// Its health over all jobs.
    pub health: DeviceHealth,
    /// Its model name.
    model: String,
}

/// An open device that a job may use.
#[derive(Debug, Clone)]
pub struct DeviceEntry {
    /// Its number among the engine's devices; 0 is the CPU.
    pub number: usize,
    /// The device.
    pub device: Arc<OpenDevice>,
    /// Whether it only gets jobs that end sooner there than on the CPU: true for a device that [`Device::Auto`] chose.
    pub only_if_sooner: bool,
}

impl OpenDevice {
    /// Opens a GPU and allocates the memory that its first task would wait for.
    fn gpu(target: Target, cuda: CudaSettings) -> Result<Arc<Self>> {
        let backend = CudaBackend::new(target, cuda)?;
        if let Err(error) = backend.warm_up() {
            // The first task reports this error if it needs as much memory.
            tracing::warn!(%error, "the GPU is open, but the memory that a task usually needs could not be allocated");
        }
        Ok(Arc::new(Self {
            model: backend.device().about().name.clone(),
            backend: Arc::new(backend),
            health: DeviceHealth::default(),
        }))
    }

    /// Opens a backend of the program itself.
    fn registered(registered: Registered, cuda: CudaSettings, clock: &Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            model: "registered".to_owned(),
            backend: registered.open(cuda.memory_bytes, clock),
            health: DeviceHealth::default(),
        })
    }

    /// Opens the first usable GPU.
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
        let one = |target| Opening::start(move || Ok(vec![OpenDevice::gpu(target, cuda)?]));
        let opening = match device {
            Device::Cpu => return None,
            Device::Auto => Opening::start(move || OpenDevice::first_gpu(cuda)),
            Device::Registered(registered) => {
                let opened = OpenDevice::registered(registered, cuda, clock);
                Opening::start(move || Ok(vec![opened]))
            }
            Device::Cuda(number) => one(Target::Cuda(number)),
            Device::Kernels(target) => one(target),
        };
        Some(Self {
            opening,
            device,
            text: OnceLock::new(),
        })
    }

    fn opened(&self) -> &[Arc<OpenDevice>] {
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
                format!("{gpus}, for jobs that end sooner there, the CPU for others")
            }
            Err(error) => format!("the CPU; no GPU: {}", error.what),
        };
        (self.device == Device::Auto).then(|| self.text.get_or_init(text).as_str())
    }
}

impl DeviceRegistry {
    /// Begins to open `devices`. Until one is open, other devices and the CPU run all tasks.
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

    /// The open devices other than the CPU.
    pub fn opened(&self) -> Vec<DeviceEntry> {
        let open = self.places.iter().enumerate().flat_map(|(at, place)| {
            let numbered = place.opened().iter().enumerate();
            // Each place has one device, or is the only one.
            numbered.map(move |(nth, device)| DeviceEntry {
                number: 1 + at + nth,
                device: Arc::clone(device),
                only_if_sooner: place.device == Device::Auto,
            })
        });
        open.collect()
    }

    /// Waits until all devices are open or have failed to open.
    ///
    /// # Errors
    /// One sentence about a device that cannot be used; none for [`Device::Auto`].
    pub fn wait(&self) -> std::result::Result<(), String> {
        for place in &self.places {
            let _ = place.opening.wait();
        }
        self.trouble().map_or(Ok(()), |what| Err(what.to_owned()))
    }

    /// Number of injected faults by name, over all devices.
    pub fn faults(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for opened in self.places.iter().flat_map(Place::opened) {
            for (fault, times) in opened.backend.faults() {
                *sums.entry(fault.to_owned()).or_default() += times;
            }
        }
        sums
    }

    /// Returns why the first configured device that cannot be used failed to open, once this is known.
    pub fn trouble(&self) -> Option<&str> {
        self.places.iter().find_map(Place::trouble)
    }

    /// Describes the device that [`Device::Auto`] chose, without a full stop. `None` for other devices, and until it is
    /// known.
    pub fn choice(&self) -> Option<&str> {
        self.places.iter().find_map(Place::choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockmill_storage::clock::SystemClock;

    const KERNELS: Device = Device::Kernels(Target::Host);

    fn opened(devices: impl Into<DeviceList>) -> DeviceRegistry {
        let registry = DeviceRegistry::open(
            devices.into(),
            CudaSettings::default(),
            &SystemClock::shared(),
        );
        assert_eq!(registry.wait(), Ok(()));
        registry
    }

    #[test]
    fn what_is_left_open_is_told_and_only_that_has_to_end_sooner() {
        let auto = opened(Device::Auto);
        let choice = auto.choice().expect("it was left open");
        match auto.opened().first() {
            Some(gpu) => {
                assert!(choice.starts_with(gpu.device.backend.name()), "{choice}");
                assert!(gpu.only_if_sooner);
            }
            None => assert!(choice.starts_with("the CPU; no GPU: "), "{choice}"),
        }
        let kernels = opened(KERNELS);
        assert!(kernels.choice().is_none() && !kernels.opened()[0].only_if_sooner);
        assert!(!auto.host_shares && !kernels.host_shares);
        let cpu = opened(Device::Cpu);
        assert!(cpu.opened().is_empty());
        let own = Registered::new("own", Box::new(|_, _| Arc::new(CpuBackend)));
        let own = opened(Device::Registered(own));
        assert!(own.wait().is_ok() && own.opened().len() == 1);
    }

    #[test]
    fn each_device_has_a_number_of_its_own() {
        let list = DeviceList::try_from([KERNELS, Device::Cpu, KERNELS].as_slice());
        let registry = opened(list.expect("tests may name them twice"));
        let devices = registry.opened();
        let numbers: Vec<_> = devices.iter().map(|device| device.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert!(registry.host_shares);
    }

    #[test]
    fn a_gpu_that_cannot_be_used_is_named_and_leaves_jobs_to_the_others() {
        let list = DeviceList::try_from([Device::Cuda(4711), KERNELS].as_slice());
        let registry = DeviceRegistry::open(
            list.expect("two"),
            CudaSettings::default(),
            &SystemClock::shared(),
        );
        let error = registry.wait().expect_err("there are fewer GPUs");
        assert!(error.starts_with("device cuda:4711: "), "{error}");
        assert_eq!(registry.trouble(), Some(&*error));
        assert_eq!(registry.opened().len(), 1);
        assert!(registry.choice().is_none());
    }
}
