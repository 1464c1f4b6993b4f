//! The device that Rockmill computes on, from the command line.

use rockmill::DeviceList;
use rockmill_terminal::outcome::Failure;

/// Parses one or several devices.
///
/// # Errors
/// Usage if the text names no device or a simulated one, whose times are useful only for measurements.
pub fn parse(text: &str) -> Result<DeviceList, Failure> {
    let usage = |what: String| Failure::Usage(format!("--device: {what}"));
    if text.contains("sim:") {
        let what = "simulated devices are for measurements: use `rockmill-bench`";
        return Err(usage(what.to_owned()));
    }
    text.parse().map_err(usage)
}
