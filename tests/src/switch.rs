//! A compaction service that can be switched on and off while its database is open.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, ScheduleResponse,
};

/// Whether a [`Switched`] service accepts jobs. Clones share one switch, which is off at first.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// Makes the service accept jobs, or RocksDB compact locally.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::SeqCst);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Rockmill behind a switch. While it is off, every job is answered with `UseLocal` and Rockmill does not see it. So
/// two databases can grow the same tree first.
pub struct Switched {
    service: rockmill::Service,
    switch: Switch,
}

impl Switched {
    /// Puts `service` behind `switch`.
    #[must_use]
    pub fn new(service: rockmill::Service, switch: Switch) -> Self {
        Self { service, switch }
    }
}

impl CompactionService for Switched {
    fn name(&self) -> &CStr {
        self.service.name()
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        if self.switch.is_on() {
            self.service.schedule(info, input)
        } else {
            ScheduleResponse::from_status(CompactionServiceJobStatus::UseLocal)
        }
    }

    fn wait(&self, scheduled_job_id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        self.service.wait(scheduled_job_id, result)
    }

    fn cancel_awaiting_jobs(&self) {
        self.service.cancel_awaiting_jobs();
    }

    fn on_installation(&self, job_id: &CStr, status: Option<CompactionServiceJobStatus>) {
        self.service.on_installation(job_id, status);
    }
}
