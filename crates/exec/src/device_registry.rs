//! The devices of an engine, which are opened in the background, each with its health.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, OnceLock, Weak};

use rockmill_core::Lock;
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaSettings, Target};

use crate::device::{Device, DeviceList};
use crate::device_health::{DeviceHealth, EngineHealth};
use crate::device_runtime::{DeviceRuntime, Opened};
use crate::opening::Opening;
use rockmill_storage::clock::Clock;

/// Devices of an engine. The CPU is always present: it redoes tasks at which another device failed.
#[derive(Debug)]
pub struct DeviceRegistry {
    /// The host's CPUs.
    pub cpu: CpuBackend,
    /// Whether the CPU also runs tasks that other devices could run.
    pub host_shares: bool,
    configured: Vec<ConfiguredDevice>,
    /// Devices of views, which the settings need not name. Scans and compactions do not use them.
    view_devices: Lock<Vec<ViewDevice>>,
    /// Bytes of files that the devices may cache.
    cache_bytes: Lock<Option<u64>>,
}

/// A device of a view, and its calls for this engine.
#[derive(Debug)]
struct ViewDevice {
    device: Weak<DeviceRuntime>,
    calls: DeviceHealth,
}

/// A device in the settings other than the CPU. It is used as soon as it is open.
#[derive(Debug)]
struct ConfiguredDevice {
    opening: Opening<Opened>,
    /// Calls of this engine.
    calls: DeviceHealth,
    /// The device as the settings name it.
    device: Device,
    /// The result of opening it, as text, once requested.
    text: OnceLock<String>,
}

/// An open device that a job may use.
#[derive(Debug, Clone)]
pub struct DeviceEntry {
    /// Its number among the engine's devices; 0 is the CPU.
    pub number: usize,
    /// The device.
    pub device: Arc<DeviceRuntime>,
    /// Its health for this engine.
    pub health: EngineHealth,
    /// Whether it only gets jobs that end sooner there than on the CPU: true for a device that [`Device::Auto`] chose.
    pub only_if_sooner: bool,
}

impl ConfiguredDevice {
    fn open(device: Device, cuda: CudaSettings, clock: &Arc<dyn Clock>) -> Option<Self> {
        let one = |target| Opening::start(move || DeviceRuntime::warm_gpu(target, cuda));
        let opening = match device {
            Device::Cpu => return None,
            Device::Auto => Opening::start(move || DeviceRuntime::first_gpu(cuda)),
            Device::Registered(registered) => {
                let opened = DeviceRuntime::registered(registered, cuda, clock);
                Opening::start(move || Ok(opened.into()))
            }
            Device::Cuda(number) => one(Target::Cuda(number)),
            Device::Kernels(target) => one(target),
        };
        Some(Self {
            opening,
            calls: DeviceHealth::default(),
            device,
            text: OnceLock::new(),
        })
    }

    fn opened(&self) -> Option<&Arc<DeviceRuntime>> {
        Some(&self.opening.get()?.as_ref().ok()?.device)
    }

    fn trouble(&self) -> Option<&str> {
        let error = self.opening.get()?.as_ref().err()?;
        let text = || format!("device {}: {}", self.device, error.what);
        (self.device != Device::Auto).then(|| self.text.get_or_init(text).as_str())
    }

    fn choice(&self) -> Option<&str> {
        let opened = self.opening.get()?;
        let text = || match opened {
            Ok(Opened { device: gpu, .. }) => {
                let (name, model) = (gpu.backend.name(), &gpu.model);
                format!("{name}, {model}, for jobs that end sooner there, the CPU for others")
            }
            Err(error) => format!("the CPU; no GPU: {}", error.what),
        };
        (self.device == Device::Auto).then(|| self.text.get_or_init(text).as_str())
    }
}

impl Drop for DeviceRegistry {
    /// Views may use a device for longer. They need no memory for tasks meanwhile.
    fn drop(&mut self) {
        for opened in self.configured.iter().filter_map(ConfiguredDevice::opened) {
            opened.give_back_idle();
        }
    }
}

impl DeviceRegistry {
    /// Begins to open `devices`. Until one is open, other devices and the CPU run all tasks.
    pub fn open(devices: DeviceList, cuda: CudaSettings, clock: &Arc<dyn Clock>) -> Self {
        let configured = devices
            .iter()
            .filter_map(|device| ConfiguredDevice::open(device, cuda, clock));
        Self {
            cpu: CpuBackend,
            host_shares: devices.contains(Device::Cpu),
            configured: configured.collect(),
            view_devices: Lock::default(),
            cache_bytes: Lock::new(cuda.cache_bytes),
        }
    }

    /// The open devices other than the CPU.
    pub fn opened(&self) -> Vec<DeviceEntry> {
        // A limit may have changed while a device was being opened.
        self.apply_cache_limit(&self.cache_bytes.lock());
        let open = (self.configured.iter().zip(1..)).filter_map(|(configured, number)| {
            let device = configured.opened()?;
            Some(DeviceEntry {
                number,
                health: EngineHealth::new(&device.health, &configured.calls),
                device: Arc::clone(device),
                only_if_sooner: configured.device == Device::Auto,
            })
        });
        open.collect()
    }

    /// Returns the entry of a device that a view uses, with a new number if the settings do not name it.
    pub fn entry_of(&self, device: &Arc<DeviceRuntime>) -> DeviceEntry {
        let mut configured = self.configured.iter().zip(1..);
        let is_it = |(configured, _): &(&ConfiguredDevice, usize)| {
            let opened = configured.opened();
            opened.is_some_and(|opened| Arc::ptr_eq(opened, device))
        };
        let (number, calls) = match configured.find(is_it) {
            Some((configured, number)) => (number, configured.calls.clone()),
            None => {
                let (at, calls) = self.view_device(device);
                (1 + self.configured.len() + at, calls)
            }
        };
        DeviceEntry {
            number,
            health: EngineHealth::new(&device.health, &calls),
            device: Arc::clone(device),
            only_if_sooner: false,
        }
    }

    /// The position of a view's device among those of views, and its record of calls.
    fn view_device(&self, device: &Arc<DeviceRuntime>) -> (usize, DeviceHealth) {
        let mut devices = self.view_devices.lock();
        let own = Arc::downgrade(device);
        let known = devices.iter().position(|known| known.device.ptr_eq(&own));
        if let Some(at) = known {
            return (at, devices[at].calls.clone());
        }
        let new = ViewDevice {
            device: own,
            calls: DeviceHealth::default(),
        };
        let calls = new.calls.clone();
        let free = (devices.iter()).position(|known| known.device.strong_count() == 0);
        let at = free.unwrap_or(devices.len());
        match devices.get_mut(at) {
            Some(free) => *free = new,
            None => devices.push(new),
        }
        (at, calls)
    }

    /// The open devices other than the CPU, and those of views.
    pub(crate) fn runtimes(&self) -> Vec<Arc<DeviceRuntime>> {
        let of_views = self.view_devices.lock();
        let of_views = of_views.iter().filter_map(|known| known.device.upgrade());
        let opened = self.configured.iter().filter_map(ConfiguredDevice::opened);
        opened.cloned().chain(of_views).collect()
    }

    /// Sets how many bytes of files the devices may cache; `None`: as other engines say, or none. It applies to devices that
    /// open later, too. The least of all engines that use a device applies.
    pub fn limit_caches(&self, bytes: Option<u64>) {
        let mut cache_bytes = self.cache_bytes.lock();
        *cache_bytes = bytes;
        self.apply_cache_limit(&cache_bytes);
    }

    /// The limit that this engine has set.
    pub fn limit_of_caches(&self) -> Option<u64> {
        *self.cache_bytes.lock()
    }

    /// Applies the limit while it is locked, so that a thread with an earlier one does not apply that afterwards.
    fn apply_cache_limit(&self, bytes: &MutexGuard<'_, Option<u64>>) {
        for configured in &self.configured {
            if let Some(Ok(opened)) = configured.opening.get() {
                opened.limit_cache(**bytes);
            }
        }
    }

    /// Waits until all devices are open or have failed to open.
    ///
    /// # Errors
    /// One sentence about a device that cannot be used; none for [`Device::Auto`].
    pub fn wait(&self) -> std::result::Result<(), String> {
        for configured in &self.configured {
            let _ = configured.opening.wait();
        }
        self.trouble().map_or(Ok(()), |what| Err(what.to_owned()))
    }

    /// Number of injected faults by name, over all devices.
    pub fn faults(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for opened in self.configured.iter().filter_map(ConfiguredDevice::opened) {
            for (fault, times) in opened.backend.faults() {
                *sums.entry(fault.to_owned()).or_default() += times;
            }
        }
        sums
    }

    /// Returns why the first configured device that cannot be used failed to open, once this is known.
    pub fn trouble(&self) -> Option<&str> {
        self.configured.iter().find_map(ConfiguredDevice::trouble)
    }

    /// Describes the device that [`Device::Auto`] chose, without a full stop. `None` for other devices, and until it is
    /// known.
    pub fn choice(&self) -> Option<&str> {
        self.configured.iter().find_map(ConfiguredDevice::choice)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rockmill_core::{Error, ErrorKind};

    use super::*;
    use crate::device::Registered;
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
        let of_view = DeviceRuntime::gpu(Target::Host).expect("it opens");
        let entries =
            [&devices[1].device, &of_view, &of_view].map(|device| registry.entry_of(device).number);
        assert_eq!(entries, [2, 3, 3]);
        assert_eq!(
            registry.opened().len(),
            2,
            "scans and compactions do not use it"
        );
    }

    #[test]
    fn engines_share_a_gpu_and_its_errors_and_have_calls_of_their_own() {
        let faults = rockmill_cuda::faults::Faults::none();
        let engines = [(); 2].map(|()| opened(Device::Kernels(Target::Faulty)));
        let [slow, other] = [&engines[0], &engines[1]].map(|engine| engine.opened().remove(0));
        assert!(Arc::ptr_eq(&slow.device, &other.device));
        let error = Error::new(ErrorKind::Device, "late");
        let late = slow.health.begin(Duration::ZERO).expect("it is trusted");
        assert!(late.abandoned(Duration::ZERO, true, &error));
        let again = engines[0].opened().remove(0);
        assert!(again.health.begin(Duration::ZERO).is_none());
        let of_view = engines[0].entry_of(&slow.device);
        assert!(of_view.health.begin(Duration::ZERO).is_none());
        assert!(other.health.begin(Duration::ZERO).is_some());
        drop((slow, other, again, of_view, engines));
        assert_eq!(
            faults.usage(),
            rockmill_cuda::faults::DeviceUsage::default()
        );
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
