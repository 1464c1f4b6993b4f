//! RocksDB's interface to a service, through the crate rust-rocksdb.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rockmill_compaction::Installation;
use rockmill_core::JobInfo;
use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, EnvPriority,
    ScheduleResponse,
};

use crate::service::Service;

/// A reason that rust-rocksdb does not know is no reason of RocksDB 11.12.
const NEW_REASON: i32 = i32::MAX;

fn job_info(info: &CompactionServiceJobInfo<'_>) -> JobInfo {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let reason = info.compaction_reason();
    JobInfo {
        db_name: text(info.db_name()),
        db_session_id: text(info.db_session_id()),
        cf_id: info.cf_id(),
        job_id: info.job_id(),
        reason: reason.map_or(NEW_REASON, |reason| reason as i32),
        is_full_compaction: info.is_full_compaction(),
        is_manual_compaction: info.is_manual_compaction(),
        is_bottommost_level: info.is_bottommost_level(),
        base_input_level: info.base_input_level(),
        output_level: info.output_level(),
        is_in_bottom_pool: info.priority() == Some(EnvPriority::Bottom),
        rocksdb_version: None,
        plugins: None,
        picked_compression: None,
    }
}

impl CompactionService for Service {
    fn name(&self) -> &CStr {
        c"Rockmill"
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        let use_local = || ScheduleResponse::from_status(CompactionServiceJobStatus::UseLocal);
        let dir = Path::new(OsStr::from_bytes(info.db_name()));
        match self.jobs().schedule(dir, job_info(info), input) {
            Ok(id) => ScheduleResponse::scheduled(&id, CompactionServiceJobStatus::Success)
                .unwrap_or_else(|_| use_local()),
            Err(_) => use_local(),
        }
    }

    fn wait(&self, scheduled_job_id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        match self.jobs().wait(scheduled_job_id.to_bytes()) {
            Ok(message) => {
                *result = message;
                CompactionServiceJobStatus::Success
            }
            Err(_) => CompactionServiceJobStatus::UseLocal,
        }
    }

    fn cancel_awaiting_jobs(&self) {
        self.jobs().cancel_awaiting_jobs();
    }

    fn on_installation(&self, scheduled_job_id: &CStr, status: Option<CompactionServiceJobStatus>) {
        let installation = match status {
            Some(CompactionServiceJobStatus::Success) => Installation::Success,
            Some(CompactionServiceJobStatus::Failure) => Installation::Failure,
            _ => Installation::Unused,
        };
        self.jobs()
            .on_installation(scheduled_job_id.to_bytes(), installation);
    }
}
