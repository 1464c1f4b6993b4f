//! The engine of tests that may run on a GPU, and plans that went through bytes to another engine.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use rockmill_exec::device::DeviceList;
use rockmill_scan::{ScanEngine, ScanSettings};

/// The GPU's kernels on the host.
pub const KERNELS: &str = "cuda-on-host";

/// The device that `ROCKMILL_TEST_DEVICE` names (`cuda:N`, `cuda-on-host`), or the CPU; and an engine on it.
pub fn engine() -> (String, Arc<ScanEngine>) {
    let device = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let engine = engine_on(&device);
    (device, engine)
}

/// The devices that a test names.
pub fn devices(device: &str) -> DeviceList {
    device.parse().expect("ROCKMILL_TEST_DEVICE names a device")
}

/// An engine on a device. The CPU caches columns.
pub fn engine_on(device: &str) -> Arc<ScanEngine> {
    let settings = ScanSettings {
        devices: devices(device),
        cache_bytes: 64 << 20,
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).expect("an engine");
    engine.wait_for_device().expect("the device opens");
    engine
}

/// A plan whose scans were encoded to bytes, and which an engine runs.
pub fn sent(
    plan: Arc<dyn ExecutionPlan>,
    engine: &Arc<ScanEngine>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let sent = plan.transform_up(|node| {
        Ok(match rockmill_sql::encode_scan(node.as_ref())? {
            Some(bytes) => Transformed::yes(rockmill_sql::decode_scan(&bytes, engine)?),
            None => Transformed::no(node),
        })
    })?;
    Ok(sent.data)
}
