//! Energy and utilization of GPUs, from the driver's management library (NVML).

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use rockmill::{Device, DeviceList};
use rockmill_cuda::Device as Gpu;
use serde::{Deserialize, Serialize};

/// File name that the driver installs; other names come with development packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MILLIJOULES: f64 = 1e3;
const PERCENT: f64 = 100.0;

/// Energy of the GPUs in joules, including other work on them, or the reason why it is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Energy {
    /// Joules.
    Joules(f64),
    /// The reason why it is unknown.
    Unknown(String),
}

impl Energy {
    /// Returns the joules, if known.
    pub fn joules(&self) -> Option<f64> {
        match self {
            Self::Joules(joules) => Some(*joules),
            Self::Unknown(_) => None,
        }
    }
}

/// Reads the counters of GPUs. They are updated every 20 to 100 ms, so short times are inexact.
#[derive(Debug)]
pub struct EnergyMeter {
    library: Nvml,
    pci_bus_ids: Vec<String>,
}

impl EnergyMeter {
    /// Creates a meter for the GPUs among `devices`; `None` if there are none.
    ///
    /// # Errors
    /// One clause about what is missing.
    pub fn new(devices: DeviceList) -> Result<Option<Self>, String> {
        let has_gpu = |device| matches!(device, Device::Cuda(_) | Device::Auto);
        let gpus = match devices.iter().any(has_gpu) {
            true => Gpu::all_gpus().unwrap_or_default(),
            false => Vec::new(),
        };
        let is_used = |gpu: &&Gpu| {
            let is_named = devices.contains(Device::Cuda(gpu.number()));
            is_named || devices.contains(Device::Auto) && gpu.probe().is_ok()
        };
        // `auto` uses the first GPU that it can.
        let most = if devices.contains(Device::Auto) {
            1
        } else {
            gpus.len()
        };
        let used = gpus.iter().filter(is_used).take(most);
        let pci_bus_ids: Vec<_> = used
            .map(|gpu| gpu.properties().pci_bus_id.clone())
            .collect();
        if pci_bus_ids.is_empty() {
            return Ok(None);
        }
        let library = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
        let meter = Self {
            library: library.map_err(|e| format!("{LIBRARY}: {e}"))?,
            pci_bus_ids,
        };
        meter.joules()?;
        Ok(Some(meter))
    }

    /// Joules since the driver was loaded.
    fn joules(&self) -> Result<f64, String> {
        let all = self.each(|gpu| gpu.total_energy_consumption())?;
        Ok(all.into_iter().sum::<u64>() as f64 / MILLIJOULES)
    }

    /// Share of the last sampling period, a part of a second, in which any kernel ran, including other processes'; the
    /// mean of the GPUs. `None` if the driver does not report it.
    pub fn use_now(&self) -> Option<f64> {
        let all = self.each(|gpu| gpu.utilization_rates()).ok()?;
        let percent: u32 = all.iter().map(|rates| rates.gpu).sum();
        Some(f64::from(percent) / PERCENT / all.len() as f64)
    }

    fn each<T>(
        &self,
        read: impl Fn(&nvml_wrapper::Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<Vec<T>, String> {
        let of = |id: &String| {
            let gpu = self.library.device_by_pci_bus_id(id.as_str());
            gpu.and_then(|gpu| read(&gpu))
                .map_err(|e| format!("{id}: {e}"))
        };
        self.pci_bus_ids.iter().map(of).collect()
    }
}

/// Runs `work` and returns the energy of the GPUs meanwhile; `None` without a GPU.
pub fn measured<T>(
    meter: &Result<Option<EnergyMeter>, String>,
    work: impl FnOnce() -> T,
) -> (T, Option<Energy>) {
    let meter = match meter {
        Ok(Some(meter)) => meter,
        Ok(None) => return (work(), None),
        Err(why) => return (work(), Some(Energy::Unknown(why.clone()))),
    };
    let before = meter.joules();
    let done = work();
    let taken = before.and_then(|before| Ok(meter.joules()? - before));
    let energy = taken.map_or_else(Energy::Unknown, Energy::Joules);
    (done, Some(energy))
}
