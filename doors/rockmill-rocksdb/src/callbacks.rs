//! The functions that RocksDB's C API calls.
//!
//! `state` is always a [`ServiceJobs`], which RocksDB shares between its threads and destroys at the end. Its methods
//! catch panics.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use librocksdb_sys as ffi;
use rockmill_compaction::{Installation, ServiceJobs};
use rockmill_core::JobInfo;

// `rocksdb_compactionservice_jobstatus_..`.
const SUCCESS: c_int = 0;
const FAILURE: c_int = 1;
const USE_LOCAL: c_int = 3;

/// `Env::Priority::BOTTOM`.
const BOTTOM: c_int = 0;

/// # Safety
/// `state` is of this service.
unsafe fn jobs<'a>(state: *mut c_void) -> &'a ServiceJobs {
    // SAFETY: RocksDB destroys it after its last call.
    unsafe { &*state.cast::<ServiceJobs>() }
}

/// # Safety
/// Called once, as documented for [`ffi::rocksdb_compactionservice_create`].
pub unsafe extern "C" fn destroy(state: *mut c_void) {
    // SAFETY: it was a box, and nothing uses it any more.
    drop(unsafe { Box::from_raw(state.cast::<ServiceJobs>()) });
}

/// # Safety
/// `info` is RocksDB's for the time of the call.
unsafe fn job_info(info: *const ffi::rocksdb_compactionservice_jobinfo_t) -> (Vec<u8>, JobInfo) {
    type Text = unsafe extern "C" fn(
        *const ffi::rocksdb_compactionservice_jobinfo_t,
        *mut usize,
    ) -> *const c_char;
    let text = |get: Text| {
        let mut size = 0;
        // SAFETY: it returns that many bytes, which live as long as `info`.
        let bytes = unsafe { slice::from_raw_parts(get(info, &raw mut size).cast::<u8>(), size) };
        bytes.to_vec()
    };
    let db_name = text(ffi::rocksdb_compactionservice_jobinfo_t_get_db_name);
    let session = text(ffi::rocksdb_compactionservice_jobinfo_t_get_db_session_id);
    // SAFETY: the caller guarantees it.
    let info = unsafe {
        JobInfo {
            db_name: String::from_utf8_lossy(&db_name).into_owned(),
            db_session_id: String::from_utf8_lossy(&session).into_owned(),
            cf_id: ffi::rocksdb_compactionservice_jobinfo_t_get_cf_id(info),
            job_id: ffi::rocksdb_compactionservice_jobinfo_t_get_job_id(info),
            reason: ffi::rocksdb_compactionservice_jobinfo_t_get_compaction_reason(info) as i32,
            is_full_compaction: ffi::rocksdb_compactionservice_jobinfo_t_is_full_compaction(info)
                != 0,
            is_manual_compaction: ffi::rocksdb_compactionservice_jobinfo_t_is_manual_compaction(
                info,
            ) != 0,
            is_bottommost_level: ffi::rocksdb_compactionservice_jobinfo_t_is_bottommost_level(info)
                != 0,
            base_input_level: ffi::rocksdb_compactionservice_jobinfo_t_get_base_input_level(info),
            output_level: ffi::rocksdb_compactionservice_jobinfo_t_get_output_level(info),
            is_in_bottom_pool: ffi::rocksdb_compactionservice_jobinfo_t_get_priority(info)
                == BOTTOM,
            rocksdb_version: None,
            plugins: None,
            picked_compression: None,
        }
    };
    (db_name, info)
}

/// # Safety
/// Only RocksDB calls it.
pub unsafe extern "C" fn schedule(
    state: *mut c_void,
    info: *const ffi::rocksdb_compactionservice_jobinfo_t,
    input: *const c_char,
    input_len: usize,
) -> *mut ffi::rocksdb_compactionservice_scheduleresponse_t {
    // SAFETY: RocksDB passes valid arguments.
    let (jobs, (dir, info), input) = unsafe {
        let input = slice::from_raw_parts(input.cast(), input_len);
        (jobs(state), job_info(info), input)
    };
    let id = jobs.schedule(Path::new(OsStr::from_bytes(&dir)), info, input);
    let id = id.ok().and_then(|id| CString::new(id).ok());
    // SAFETY: the response copies the id, and RocksDB takes it over.
    unsafe {
        match &id {
            Some(id) => ffi::rocksdb_compactionservice_scheduleresponse_create(
                id.as_ptr(),
                SUCCESS,
                ptr::null_mut(),
            ),
            None => ffi::rocksdb_compactionservice_scheduleresponse_create_with_status(
                USE_LOCAL,
                ptr::null_mut(),
            ),
        }
    }
}

/// # Safety
/// Only RocksDB calls it.
pub unsafe extern "C" fn wait(
    state: *mut c_void,
    job_id: *const c_char,
    result: *mut *mut c_char,
    result_len: *mut usize,
) -> c_int {
    // SAFETY: RocksDB passes valid arguments.
    let (jobs, id) = unsafe { (jobs(state), CStr::from_ptr(job_id).to_bytes()) };
    let Ok(message) = jobs.wait(id) else {
        return USE_LOCAL;
    };
    // SAFETY: any size is allowed.
    let memory = unsafe { libc::malloc(message.len().max(1)) }.cast::<c_char>();
    if memory.is_null() {
        // RocksDB does the job, and does not report files that it never received.
        jobs.on_installation(id, Installation::Unused);
        return USE_LOCAL;
    }
    // SAFETY: there is room for the message, and RocksDB frees it.
    unsafe {
        ptr::copy_nonoverlapping(message.as_ptr().cast(), memory, message.len());
        result.write(memory);
        result_len.write(message.len());
    }
    SUCCESS
}

/// # Safety
/// Only RocksDB calls it.
pub unsafe extern "C" fn cancel_awaiting_jobs(state: *mut c_void) {
    // SAFETY: RocksDB passes it.
    unsafe { jobs(state) }.cancel_awaiting_jobs();
}

/// # Safety
/// Only RocksDB calls it.
pub unsafe extern "C" fn on_installation(state: *mut c_void, job_id: *const c_char, status: c_int) {
    let installation = match status {
        SUCCESS => Installation::Success,
        FAILURE => Installation::Failure,
        _ => Installation::Unused,
    };
    // SAFETY: RocksDB passes valid arguments.
    let (jobs, id) = unsafe { (jobs(state), CStr::from_ptr(job_id).to_bytes()) };
    jobs.on_installation(id, installation);
}
