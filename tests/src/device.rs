//! The device on which tests compact.

use rockmill::{DeviceList, Stats};
use rockmill_compaction::Registered;
use rockmill_testkit::simulated::Profile;

/// Name of the device that runs a GPU's kernels on the host.
pub const KERNELS_ON_HOST: &str = "cuda-on-host";
/// Name of the CPU.
const CPU: &str = "cpu";

/// Parses a device: a name as in settings, or that of a simulated device.
///
/// # Errors
///
/// The error in the name.
pub fn named(name: &str) -> Result<DeviceList, String> {
    DeviceList::parse_with(name, |name| {
        let profile = Profile::of_device(name)?;
        Some(profile.map(|p| Registered::new(&p.device_name(), p.opener())))
    })
}

/// Returns the device in `ROCKMILL_TEST_DEVICE`, by default the CPU.
///
/// # Errors
///
/// The error in its name.
pub fn tested() -> Result<DeviceList, String> {
    match std::env::var("ROCKMILL_TEST_DEVICE") {
        Ok(name) => named(&name).map_err(|e| format!("ROCKMILL_TEST_DEVICE: {e}")),
        Err(_) => Ok(DeviceList::default()),
    }
}

/// Number of a service's subcompactions by device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subcompactions {
    /// On the CPU, including those at which a device failed.
    pub cpu: u64,
    /// On all other devices.
    pub device: u64,
    /// On the CPU after a device had failed at them, including those of unfinished jobs.
    pub redone: u64,
}

impl From<&Stats> for Subcompactions {
    fn from(stats: &Stats) -> Self {
        let all: u64 = stats
            .devices
            .values()
            .map(|device| device.subcompactions)
            .sum();
        let cpu = stats
            .devices
            .get(CPU)
            .map_or(0, |device| device.subcompactions);
        Self {
            cpu,
            device: all - cpu,
            redone: stats.subcompactions_redone_by_cpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use rockmill::DeviceStats;

    use super::*;

    #[test]
    fn devices_are_read_as_they_are_shown() {
        for name in [
            "cpu",
            "cuda:1",
            "sim:fpga-cu",
            "cpu+cuda:0",
            KERNELS_ON_HOST,
        ] {
            assert_eq!(
                named(name).map(|device| device.to_string()),
                Ok(name.to_owned())
            );
        }
        assert!(named("gpu").is_err());
    }

    #[test]
    fn what_the_cpu_did_no_device_did() {
        let did = |name: &str, subcompactions| {
            let done = DeviceStats {
                subcompactions,
                ..DeviceStats::default()
            };
            (name.to_owned(), done)
        };
        let mut stats = Stats::default();
        stats
            .devices
            .extend([did("cuda:0", 3), did("cpu", 2), did("cuda:1", 4)]);
        let subcompactions = Subcompactions::from(&stats);
        assert_eq!((subcompactions.cpu, subcompactions.device), (2, 7));
    }
}
