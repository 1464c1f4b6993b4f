//! The devices that are measured, including simulated ones: parses texts such as `cuda:0+sim:fpga-cu`, and sets the
//! devices of a service's builder.

use std::collections::BTreeMap;

use rockmill::{Builder, Device, DeviceList};
use rockmill_compaction::Registered;
use rockmill_terminal::outcome::Failure;
use rockmill_testkit::simulated::Profile;

/// Returns the simulated device of that name.
pub fn simulated(name: &str) -> Option<Result<Registered, String>> {
    let profile = Profile::of_device(name)?;
    Some(profile.map(|profile| Registered::new(&profile.device_name(), profile.opener())))
}

/// Parses one or several devices from the command line.
///
/// # Errors
/// Usage if a name is not a device.
pub fn parse(text: &str) -> Result<DeviceList, Failure> {
    let devices = DeviceList::parse_with(text, simulated);
    devices.map_err(|what| Failure::Usage(format!("--device: {what}")))
}

/// Sets the devices of a builder. Prints to standard error that CPU times of simulated devices are those of the host.
pub fn give(builder: Builder, devices: DeviceList) -> Builder {
    let is_simulated = |device| matches!(device, Device::Registered(_));
    if devices.iter().any(is_simulated) {
        eprintln!(
            "rockmill-bench: {devices}: the host computes for simulated devices, so CPU seconds are its own, and \
             times count only where cores are idle"
        );
    }
    builder.device(devices)
}

/// Returns the parameters of the simulated devices as JSON, by name.
pub fn profiles(devices: DeviceList) -> BTreeMap<String, String> {
    let text = |device: Registered| {
        let profile = Profile::of_device(device.name())?.ok()?;
        let text = serde_json::to_string(profile.parameters());
        Some((profile.name().to_owned(), text.expect("it was read so")))
    };
    let named = devices.iter().filter_map(|device| match device {
        Device::Registered(device) => text(device),
        _ => None,
    });
    named.collect()
}
