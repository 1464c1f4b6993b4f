//! The engine of tests that may run on a GPU.

use std::sync::Arc;

use rockmill_scan::{ScanEngine, ScanSettings};

/// The device that `ROCKMILL_TEST_DEVICE` names (`cuda:N`), or the CPU; and an engine on it.
pub fn engine() -> (String, Arc<ScanEngine>) {
    let device = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let settings = ScanSettings {
        devices: device.parse().expect("ROCKMILL_TEST_DEVICE names a device"),
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).expect("an engine");
    engine.wait_for_device().expect("the device opens");
    (device, engine)
}
