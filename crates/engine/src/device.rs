//! Devices as settings and command lines name them.

use std::fmt;
use std::str::FromStr;

use rockmill_cuda::Target;

use crate::simulated::Profile;

/// A device: `cpu`, `cuda`, `cuda:N`, `auto`, `sim:NAME`, `sim:FILE.json`. In a list a file's name has no `+`, and no `,` in
/// commands that take several lists: these part them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The host's processors.
    #[default]
    Cpu,
    /// CUDA device number `n`.
    Cuda(u32),
    /// The first GPU that can be used, for jobs that end sooner there; the CPU for others, and if there is no GPU.
    /// What ends sooner is told by what is queued on each and by how long slices took there; small slices are always the CPU's.
    /// Several devices at once are for whoever names them: they share the host's copying, which limits one already.
    Auto,
    /// A device that is not there: the host computes for it, and takes the time that its profile says.
    Simulated(Profile),
    /// The GPU's kernels elsewhere; for tests.
    #[doc(hidden)]
    Kernels(Target),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Auto => f.write_str("auto"),
            Self::Simulated(profile) => write!(f, "sim:{}", profile.name()),
            Self::Kernels(_) => f.write_str("cuda-on-host"),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(profile) = text.strip_prefix("sim:") {
            return Ok(Self::Simulated(profile.parse()?));
        }
        let number = match text {
            "cpu" => return Ok(Self::Cpu),
            "auto" => return Ok(Self::Auto),
            "cuda" => Some("0"),
            _ => text.strip_prefix("cuda:"),
        };
        number
            .and_then(|number| number.parse().ok())
            .map(Self::Cuda)
            .ok_or_else(|| {
                format!("{text:?} is no device: say cpu, cuda, cuda:N, auto or sim:NAME")
            })
    }
}

/// The CPU and as many GPUs as a host has.
const MOST_DEVICES: usize = 9;

/// Devices that share a job's slices: `cuda:0`, `cpu+cuda:0`, `cuda:0+cuda:1`. One that the list does not name
/// does no slices, but for the CPU, which does those that all others fail at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceList([Option<Device>; MOST_DEVICES]);

impl DeviceList {
    /// The devices in their order.
    pub fn iter(&self) -> impl Iterator<Item = Device> + '_ {
        self.0.iter().copied().flatten()
    }

    /// Whether the list names `device`.
    pub fn contains(&self, device: Device) -> bool {
        self.iter().any(|named| named == device)
    }

    /// Whether it names nothing but the CPU.
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
        let mut list = [None; MOST_DEVICES];
        list[0] = Some(device);
        Self(list)
    }
}

impl TryFrom<&[Device]> for DeviceList {
    type Error = String;

    /// A list of several devices.
    ///
    /// # Errors
    /// One sentence if there are none or too many, if one that is there once comes twice, or `auto` with others.
    fn try_from(devices: &[Device]) -> Result<Self, String> {
        if devices.is_empty() || devices.len() > MOST_DEVICES {
            let given = devices.len();
            return Err(format!("{given} devices: name 1 to {MOST_DEVICES}"));
        }
        if devices.len() > 1 && devices.contains(&Device::Auto) {
            return Err("auto chooses between the CPU and the first GPU: name it alone".to_owned());
        }
        for (at, device) in devices.iter().enumerate() {
            let many = matches!(device, Device::Simulated(_) | Device::Kernels(_));
            if devices[..at].contains(device) && !many {
                return Err(format!("{device} is named twice"));
            }
        }
        let mut list = [None; MOST_DEVICES];
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
        let devices: Result<Vec<_>, _> = text.split('+').map(Device::from_str).collect();
        Self::try_from(devices?.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_shown() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(3), Device::Auto] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "CPU", "sim:", "sim:x", "sim"] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_are_read_as_they_are_shown() {
        for text in [
            "cpu",
            "auto",
            "cuda:1",
            "cpu+cuda:0",
            "cuda:0+cuda:1+cpu",
            "sim:fpga-cu+sim:mid-gpu+sim:fpga-cu+cpu",
        ] {
            let list: DeviceList = text.parse().expect(text);
            assert_eq!(list.to_string(), text);
        }
        let why = "cpu+sim:a+b.json".parse::<DeviceList>();
        let why = why.expect_err("the name is parted");
        assert!(why.contains("without + or ,"), "{why}");
        let both: DeviceList = "cpu+cuda".parse().expect("two devices");
        assert!(both.contains(Device::Cuda(0)) && both.contains(Device::Cpu));
        assert!(!both.is_cpu_alone() && DeviceList::default().is_cpu_alone());
        let many = (0..=MOST_DEVICES).map(|number| format!("cuda:{number}"));
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
