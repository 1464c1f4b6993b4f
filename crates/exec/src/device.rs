//! Devices in settings and on command lines.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use rockmill_core::Backend;
use rockmill_cuda::Target;
use rockmill_storage::clock::Clock;

/// A device: `cpu`, `cuda`, `cuda:N`, `auto`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The host's CPUs.
    #[default]
    Cpu,
    /// CUDA device number `n`.
    Cuda(u32),
    /// The first usable GPU for jobs that end sooner there, the CPU for others, and if no GPU is usable. The choice
    /// depends on the work queued on each and on the times of earlier tasks. Small tasks always go to the CPU. It never
    /// chooses several GPUs: they share the host's copies, which limit a single one already.
    Auto,
    /// A backend of the program itself, such as a simulated device.
    #[doc(hidden)]
    Registered(Registered),
    /// The GPU's kernels on another target; for tests. `cuda-on-host` runs them on the host.
    #[doc(hidden)]
    Kernels(Target),
}

/// Name of [`Device::Kernels`].
const KERNELS: &str = "cuda-on-host";

/// Creates a backend in the time of a clock. The argument limits the backend's own memory.
pub type OpenBackend = dyn Fn(Option<u64>, &Arc<dyn Clock>) -> Arc<dyn Backend> + Send + Sync;

/// Finds a backend of the program itself by its name.
pub type OwnNames = fn(&str) -> Option<Result<Registered, String>>;

static OWN_NAMES: OnceLock<OwnNames> = OnceLock::new();

/// Makes the parser of device lists accept the program's own names. Only the first call has an effect.
pub fn know_own_names(names: OwnNames) {
    // A later call has no effect.
    let _ = OWN_NAMES.set(names);
}

/// A named backend of the program itself. Settings are `Copy`, so it is never freed.
#[derive(Clone, Copy)]
pub struct Registered(&'static RegisteredBackend);

struct RegisteredBackend {
    name: String,
    open: Box<OpenBackend>,
}

impl Registered {
    /// Creates a backend with that name, which `open` creates once for each engine.
    pub fn new(name: &str, open: Box<OpenBackend>) -> Self {
        let name = name.to_owned();
        Self(Box::leak(Box::new(RegisteredBackend { name, open })))
    }

    /// Name of the backend.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Creates the backend.
    pub fn open(self, memory_bytes: Option<u64>, clock: &Arc<dyn Clock>) -> Arc<dyn Backend> {
        (self.0.open)(memory_bytes, clock)
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Registered {}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Auto => f.write_str("auto"),
            Self::Registered(registered) => f.write_str(registered.name()),
            Self::Kernels(_) => f.write_str(KERNELS),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "cpu" => return Ok(Self::Cpu),
            "auto" => return Ok(Self::Auto),
            KERNELS => return Ok(Self::Kernels(Target::Host)),
            "cuda" => Some("0"),
            _ => text.strip_prefix("cuda:"),
        };
        number
            .and_then(|number| number.parse().ok())
            .map(Self::Cuda)
            .ok_or_else(|| format!("{text:?} is not a device; use cpu, cuda, cuda:N or auto"))
    }
}

/// The CPU and 8 GPUs.
const MAX_DEVICES: usize = 9;

/// Devices that share a job's tasks: `cpu`, `cpu+cuda:0`, `cuda:0+cuda:1`. Other devices run no tasks, except that the
/// CPU redoes tasks at which all others fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceList([Option<Device>; MAX_DEVICES]);

impl DeviceList {
    /// The devices in order.
    pub fn iter(&self) -> impl Iterator<Item = Device> + '_ {
        self.0.iter().copied().flatten()
    }

    /// Parses names joined by `+`. `registered` recognises the program's own names.
    ///
    /// # Errors
    /// Those of [`DeviceList::try_from`] and of `registered`; one sentence about an unknown name.
    pub fn parse_with(
        text: &str,
        registered: impl Fn(&str) -> Option<Result<Registered, String>>,
    ) -> Result<Self, String> {
        let device = |name| match registered(name) {
            Some(registered) => registered.map(Device::Registered),
            None => Device::from_str(name),
        };
        let devices: Result<Vec<_>, _> = text.split('+').map(device).collect();
        Self::try_from(devices?.as_slice())
    }

    /// Whether the list names `device`.
    pub fn contains(&self, device: Device) -> bool {
        self.iter().any(|named| named == device)
    }

    /// Whether the list names only the CPU.
    pub fn is_cpu_alone(&self) -> bool {
        self.iter().all(|named| named == Device::Cpu)
    }
}

impl Default for DeviceList {
    fn default() -> Self {
        Device::default().into()
    }
}

impl From<Device> for DeviceList {
    fn from(device: Device) -> Self {
        let mut list = [None; MAX_DEVICES];
        list[0] = Some(device);
        Self(list)
    }
}

impl TryFrom<&[Device]> for DeviceList {
    type Error = String;

    /// Creates a list of several devices.
    ///
    /// # Errors
    /// One sentence if there are none or too many, if a device that exists once is named twice, or if `auto` is not
    /// alone.
    fn try_from(devices: &[Device]) -> Result<Self, String> {
        if devices.is_empty() || devices.len() > MAX_DEVICES {
            let given = devices.len();
            return Err(format!("{given} devices: name 1 to {MAX_DEVICES}"));
        }
        if devices.len() > 1 && devices.contains(&Device::Auto) {
            return Err(
                "auto chooses between the CPU and the first GPU, so name no other device"
                    .to_owned(),
            );
        }
        for (at, device) in devices.iter().enumerate() {
            let many = matches!(device, Device::Registered(_) | Device::Kernels(_));
            if devices[..at].contains(device) && !many {
                return Err(format!("{device} is named twice"));
            }
        }
        let mut list = [None; MAX_DEVICES];
        for (place, device) in list.iter_mut().zip(devices) {
            *place = Some(*device);
        }
        Ok(Self(list))
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, device) in self.iter().enumerate() {
            let before = if at == 0 { "" } else { "+" };
            write!(f, "{before}{device}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DeviceList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse_with(text, |name| OWN_NAMES.get()?(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_shown() {
        for device in [
            Device::Cpu,
            Device::Cuda(0),
            Device::Cuda(3),
            Device::Auto,
            Device::Kernels(Target::Host),
        ] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "CPU", "sim:x"] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_are_read_as_they_are_shown() {
        for text in ["cpu", "auto", "cuda:1", "cpu+cuda:0", "cuda:0+cuda:1+cpu"] {
            let list: DeviceList = text.parse().expect(text);
            assert_eq!(list.to_string(), text);
        }
        let own = |name: &str| {
            let open: Box<OpenBackend> = Box::new(|_, _| Arc::new(rockmill_cpu::CpuBackend));
            (name == "own").then(|| Ok(Registered::new(name, open)))
        };
        let with_own = DeviceList::parse_with("own+cpu+own", own).expect("it is known");
        assert_eq!(with_own.to_string(), "own+cpu+own");
        let unknown = DeviceList::parse_with("other", own).expect_err("nobody knows it");
        assert!(unknown.contains("is not a device"), "{unknown}");
        let both: DeviceList = "cpu+cuda".parse().expect("two devices");
        assert!(both.contains(Device::Cuda(0)) && both.contains(Device::Cpu));
        assert!(!both.is_cpu_alone() && DeviceList::default().is_cpu_alone());
        let many = (0..=MAX_DEVICES).map(|number| format!("cuda:{number}"));
        let many = many.collect::<Vec<_>>().join("+");
        for wrong in [
            "",
            "+",
            "cpu+",
            "cpu,cuda",
            "cpu+cpu",
            "cuda+cuda:0",
            "cpu+auto",
            &many,
        ] {
            assert!(wrong.parse::<DeviceList>().is_err(), "{wrong}");
        }
    }
}
