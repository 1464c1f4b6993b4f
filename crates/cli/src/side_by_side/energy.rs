//! What a GPU consumes, as its driver's management library tells.

use nvml_wrapper::Nvml;
use rockmill::Device;
use rockmill_cuda::Device as Gpu;
use serde::{Deserialize, Serialize};

/// The name that the driver installs; others come with development packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MILLIJOULES: f64 = 1e3;

/// Joules that the GPU took, other work on it included, or why nobody knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Energy {
    Joules(f64),
    Unknown(String),
}

impl Energy {
    /// The number, if it is known.
    pub fn joules(&self) -> Option<f64> {
        match self {
            Self::Joules(joules) => Some(*joules),
            Self::Unknown(_) => None,
        }
    }
}

/// Reads the counter of one GPU. Counters go on every 20 to 100 ms, so short times are inexact.
#[derive(Debug)]
pub struct EnergyMeter {
    library: Nvml,
    pci_bus_id: String,
}

impl EnergyMeter {
    /// A meter for what a device does; `None` for the CPU.
    ///
    /// # Errors
    /// One clause about what is missing.
    pub fn new(device: Device) -> Result<Option<Self>, String> {
        let gpus = match device {
            Device::Cpu | Device::Kernels(_) => Vec::new(),
            Device::Cuda(_) | Device::Auto => Gpu::all_gpus().unwrap_or_default(),
        };
        let is_used = |gpu: &&Gpu| match device {
            Device::Cuda(number) => gpu.number() == number,
            _ => gpu.probe().is_ok(),
        };
        let Some(gpu) = gpus.iter().find(is_used) else {
            return Ok(None);
        };
        let library = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
        let meter = Self {
            library: library.map_err(|e| format!("{LIBRARY}: {e}"))?,
            pci_bus_id: gpu.about().pci_bus_id.clone(),
        };
        meter.joules()?;
        Ok(Some(meter))
    }

    /// Since the driver was loaded.
    fn joules(&self) -> Result<f64, String> {
        let device = self.library.device_by_pci_bus_id(self.pci_bus_id.as_str());
        let read = device.and_then(|device| device.total_energy_consumption());
        let read = read.map_err(|e| format!("{}: {e}", self.pci_bus_id))?;
        Ok(read as f64 / MILLIJOULES)
    }
}

/// Runs `work` and says what the GPU took meanwhile; `None` without a GPU.
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
