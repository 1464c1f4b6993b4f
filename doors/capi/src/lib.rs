//! Rockmill's C interface. `include/rockmill.h` describes it to callers; this crate implements each of its functions.
//!
//! ```text
//! rm_service_wait(handle, ..)
//!   guard          a panic becomes an error, and *error is set
//!     handles      the number is looked up
//!       ServiceJobs  what every door shares, in the crate `compaction`
//! ```
//!
//! Pointers of callers are looked at in `memory`, `plugins`, `views` and here, handles never.

mod handles;
mod log;
mod memory;
mod plugins;
mod refusal;
mod views;

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use rockmill_compaction::{Engine, Installation, ServiceJobs, Settings, guarded};
use rockmill_core::JobInfo;
use rockmill_storage::LocalStorage;

pub use handles::Handle;
use log::{Log, LogFunction};
pub use plugins::CPlugins;
use refusal::Refusal;
pub use views::{CBytes, CLookup, CStore, CViewOptions, CWrite, ViewHandle};

/// `RM_ABI_VERSION`.
pub const ABI_VERSION: u32 = 2;

/// `rm_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// `RM_SUCCESS`.
    Success = 0,
    /// `RM_FAILURE`.
    Failure = 1,
    /// `RM_ABORTED`.
    Aborted = 2,
    /// `RM_USE_LOCAL`.
    UseLocal = 3,
    /// `RM_INVALID`.
    Invalid = 4,
}

/// `rm_job_info`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CJobInfo {
    pub struct_size: usize,
    pub db_name: *const c_char,
    pub db_session_id: *const c_char,
    pub job_id: u64,
    pub cf_id: u32,
    pub compaction_reason: i32,
    pub base_input_level: i32,
    pub output_level: i32,
    pub is_full_compaction: u8,
    pub is_manual_compaction: u8,
    pub is_bottommost_level: u8,
    pub is_bottom_priority: u8,
    pub rocksdb_version: u32,
    pub plugins: *const CPlugins,
    pub picked_compression: u32,
}

/// Bytes of `rm_job_info` in the first version of the header.
const FIRST_JOB_INFO: usize = offset_of!(CJobInfo, plugins);

/// `rm_result`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CResult {
    pub struct_size: usize,
    pub message: *mut c_char,
    pub message_size: usize,
}

/// `rm_service_options`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CServiceOptions {
    pub struct_size: usize,
    pub settings: *const c_char,
    pub log: Option<LogFunction>,
    pub log_state: *mut c_void,
    pub log_level: c_int,
}

/// Runs the body of a function. A panic becomes an error. `*error` is set to a sentence or null.
///
/// # Safety
/// `error` is null or may be written to.
unsafe fn guard<T>(
    error: *mut *mut c_char,
    work: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Status> {
    let result = guarded(|| Ok(work()));
    let result = result.unwrap_or_else(|panic| Err(Refusal::failure(panic.to_string())));
    if !error.is_null() {
        let sentence = result.as_ref().err().map(|refusal| {
            // A zero byte would hide the rest.
            let sentence = refusal.sentence.replace('\0', " ");
            memory::copy(sentence.as_bytes()).unwrap_or(ptr::null_mut())
        });
        // SAFETY: the caller says so.
        unsafe { error.write(sentence.unwrap_or(ptr::null_mut())) };
    }
    result.map_err(|refusal| refusal.status)
}

fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(Status::Success)
}

/// Returns `RM_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn rm_abi_version() -> u32 {
    ABI_VERSION
}

/// Frees memory that another function returned.
///
/// # Safety
/// `memory` is null or comes from this library, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_free(memory: *mut c_void) {
    // SAFETY: the caller says so.
    unsafe { memory::free(memory) };
}

/// Opens a service.
///
/// # Safety
/// `settings` is null or a string; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_open(
    settings: *const c_char,
    error: *mut *mut c_char,
) -> *mut Handle {
    // SAFETY: the caller says so.
    unsafe { guard(error, || open(settings, None)) }.unwrap_or(ptr::null_mut())
}

/// Opens a service with a log.
///
/// # Safety
/// `settings` is null or a string.
unsafe fn open(settings: *const c_char, log: Option<Log>) -> Result<*mut Handle, Refusal> {
    handles::open(log, || {
        let text = match settings.is_null() {
            true => "",
            // SAFETY: the caller says so.
            false => unsafe { memory::text(settings, "settings") }?,
        };
        let settings = Settings::parse(text).map_err(Refusal::invalid)?;
        let engine = Engine::new(settings, Arc::new(LocalStorage)).map_err(Refusal::invalid)?;
        Ok(ServiceJobs::new(Arc::new(engine)))
    })
}

/// Opens a handle of the service of a program in Rust, for code in C++ of that program, which closes it.
///
/// # Errors
/// One sentence, if the process was forked from one that had opened a service.
pub fn open_handle(service: &ServiceJobs) -> Result<*mut Handle, String> {
    handles::open(None, || Ok(service.clone())).map_err(|refusal| refusal.sentence)
}

/// Opens a service with options.
///
/// # Safety
/// `options` is null or a struct of the size that it begins with, whose settings are null or a string; its log function may
/// be called with its state from any thread until the last handle is closed; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_open_with(
    options: *const CServiceOptions,
    error: *mut *mut c_char,
) -> *mut Handle {
    let open = || {
        // SAFETY: the caller says so.
        let options = unsafe { memory::sized(options, "rm_service_options") }?;
        let log = options.log.map(|function| {
            // SAFETY: the caller says so.
            unsafe { Log::new(function, options.log_state, options.log_level) }
        });
        // SAFETY: the caller says so.
        unsafe { open(options.settings, log.transpose()?) }
    };
    // SAFETY: the caller says so.
    unsafe { guard(error, open) }.unwrap_or(ptr::null_mut())
}

/// Returns a handle of its own to the same service.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_clone(
    service: *mut Handle,
    error: *mut *mut c_char,
) -> *mut Handle {
    // SAFETY: the caller says so.
    unsafe { guard(error, || handles::clone(service)) }.unwrap_or(ptr::null_mut())
}

/// Closes a handle.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_close(service: *mut Handle, error: *mut *mut c_char) -> Status {
    // SAFETY: the caller says so.
    status(unsafe { guard(error, || handles::close(service)) })
}

/// Splits the version of a job's RocksDB into its numbers; `None` if the caller does not pass it.
fn version(of_job: u32) -> Option<[u32; 3]> {
    const PART: u32 = 0xff;
    (of_job != 0).then_some([of_job >> 16, of_job >> 8 & PART, of_job & PART])
}

/// Offers a job.
///
/// # Safety
/// `info` is null or a struct of the size that it begins with, whose strings are null or strings, and whose plug-ins are as
/// the header says; `input` is null or has `input_size` bytes; `job_id` and `error` are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_schedule(
    service: *mut Handle,
    info: *const CJobInfo,
    input: *const c_char,
    input_size: usize,
    job_id: *mut *mut c_char,
    error: *mut *mut c_char,
) -> Status {
    let schedule = || {
        if job_id.is_null() {
            return Err(Refusal::invalid("job_id is null"));
        }
        // SAFETY: the caller says so.
        unsafe { job_id.write(ptr::null_mut()) };
        // SAFETY: the caller says so.
        let info = unsafe { memory::grown(info, FIRST_JOB_INFO, "rm_job_info") }?;
        // SAFETY: all fields may be zero.
        let info: CJobInfo = unsafe { info.assume_init() };
        // SAFETY: the caller says so.
        let plugins = unsafe { plugins::read(info.plugins) }?;
        // SAFETY: the caller says so.
        let dir = unsafe { memory::bytes(info.db_name, "db_name") }?;
        // SAFETY: the caller says so.
        let session_id = unsafe { memory::bytes(info.db_session_id, "db_session_id") }?;
        // SAFETY: the caller says so.
        let input = unsafe { memory::buffer(input, input_size, "input") }?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let job_info = JobInfo {
            db_name: text(dir),
            db_session_id: text(session_id),
            cf_id: info.cf_id,
            job_id: info.job_id,
            reason: info.compaction_reason,
            is_full_compaction: info.is_full_compaction != 0,
            is_manual_compaction: info.is_manual_compaction != 0,
            is_bottommost_level: info.is_bottommost_level != 0,
            base_input_level: info.base_input_level,
            output_level: info.output_level,
            is_in_bottom_pool: info.is_bottom_priority != 0,
            rocksdb_version: version(info.rocksdb_version),
            plugins,
            picked_compression: (info.picked_compression.checked_sub(1))
                .map(|picked| u8::try_from(picked).unwrap_or(u8::MAX)),
        };
        let dir = Path::new(OsStr::from_bytes(dir));
        let id = handles::with(service, |service| {
            let scheduled = service.schedule(dir, job_info, input);
            scheduled.map_err(|error| Refusal::use_local(&error))
        })?;
        let id = memory::copy(id.as_bytes())?;
        // SAFETY: the caller says so.
        unsafe { job_id.write(id) };
        Ok(())
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, schedule) })
}

/// Runs a scheduled job.
///
/// # Safety
/// `job_id` is null or a string; `result` is null or a struct of the size that it begins with, which may be written to;
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_wait(
    service: *mut Handle,
    job_id: *const c_char,
    result: *mut CResult,
    error: *mut *mut c_char,
) -> Status {
    let wait = || {
        // SAFETY: the caller says so.
        unsafe { memory::sized(result.cast_const(), "rm_result") }?;
        // SAFETY: it was found to have the size, and the caller lets it be written to.
        let result = unsafe { &mut *result };
        (result.message, result.message_size) = (ptr::null_mut(), 0);
        // SAFETY: the caller says so.
        let id = unsafe { memory::bytes(job_id, "job_id") }?;
        (result.message, result.message_size) = handles::with(service, |service| {
            let waited = service.wait(id);
            let message = waited.map_err(|error| Refusal::use_local(&error))?;
            let copied = memory::copy(&message).map_err(|refusal| {
                // RocksDB does the job, and does not report files that it never received.
                service.on_installation(id, Installation::Unused);
                Refusal {
                    status: Status::UseLocal,
                    ..refusal
                }
            });
            Ok((copied?, message.len()))
        })?;
        Ok(())
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, wait) })
}

/// Cancels all jobs of a handle.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_cancel_awaiting_jobs(
    service: *mut Handle,
    error: *mut *mut c_char,
) -> Status {
    let cancel = || {
        handles::with(service, |service| {
            service.cancel_awaiting_jobs();
            Ok(())
        })
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, cancel) })
}

/// Cancels all jobs of a database, and takes no further ones.
///
/// # Safety
/// `db_session_id` is null or a string, and `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_database_closes(
    db_session_id: *const c_char,
    error: *mut *mut c_char,
) -> Status {
    let cancel = || {
        // SAFETY: the caller says so.
        handles::database_closes(unsafe { memory::text(db_session_id, "db_session_id") }?)
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, cancel) })
}

/// Cancels all jobs of all handles of a service.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_cancel_jobs(
    service: *mut Handle,
    error: *mut *mut c_char,
) -> Status {
    let cancel = || {
        handles::with(service, |service| {
            service.engine().cancel_jobs();
            Ok(())
        })
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, cancel) })
}

/// Reports whether RocksDB took a job's files. `installed` is a number here, since a caller may pass any.
///
/// # Safety
/// `job_id` is null or a string; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_on_installation(
    service: *mut Handle,
    job_id: *const c_char,
    installed: c_int,
    error: *mut *mut c_char,
) -> Status {
    let tell = || {
        // SAFETY: the caller says so.
        let id = unsafe { memory::bytes(job_id, "job_id") }?;
        let installation = match installed {
            0 => Installation::Success,
            1 => Installation::Failure,
            2 | 3 => Installation::Unused,
            _ => {
                let what = format!("status is {installed}; it must be from 0 to 3");
                return Err(Refusal::invalid(what));
            }
        };
        handles::on_installation(service, id, installation)
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, tell) })
}

/// Changes settings.
///
/// # Safety
/// `settings` is null or a string; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_change_settings(
    service: *mut Handle,
    settings: *const c_char,
    error: *mut *mut c_char,
) -> Status {
    let change = || {
        // SAFETY: the caller says so.
        let text = unsafe { memory::text(settings, "settings") }?;
        handles::with(service, |service| {
            let changed = service.engine().change_settings_to(text);
            changed.map_err(Refusal::invalid)
        })
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, change) })
}

/// Waits until the configured devices are open.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_wait_for_device(
    service: *mut Handle,
    error: *mut *mut c_char,
) -> Status {
    let wait = || {
        // Other calls with the handle continue while a device is opened, so the clone waits.
        let clone = handles::with(service, |service| Ok(service.clone()))?;
        clone.engine().wait_for_device().map_err(Refusal::failure)
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, wait) })
}

/// Returns the work done so far as JSON.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_stats_json(
    service: *mut Handle,
    error: *mut *mut c_char,
) -> *mut c_char {
    let stats = || {
        handles::with(service, |service| {
            let json = serde_json::to_string(&service.engine().stats());
            let json = json.map_err(|error| Refusal::failure(error.to_string()))?;
            memory::copy(json.as_bytes())
        })
    };
    // SAFETY: the caller says so.
    unsafe { guard(error, stats) }.unwrap_or(ptr::null_mut())
}

/// Returns the metrics in Prometheus' text format.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_metrics_prometheus(
    service: *mut Handle,
    error: *mut *mut c_char,
) -> *mut c_char {
    let metrics = || {
        handles::with(service, |service| {
            memory::copy(service.engine().metrics_prometheus().as_bytes())
        })
    };
    // SAFETY: the caller says so.
    unsafe { guard(error, metrics) }.unwrap_or(ptr::null_mut())
}

/// Returns the last error or decline.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_service_last_error(
    service: *mut Handle,
    error: *mut *mut c_char,
) -> *mut c_char {
    let last = || {
        handles::with(service, |service| {
            let last = service.engine().stats().last_error;
            // A zero byte would hide the rest.
            let last = last.map(|last| memory::copy(last.replace('\0', " ").as_bytes()));
            last.unwrap_or(Ok(ptr::null_mut()))
        })
    };
    // SAFETY: the caller says so.
    unsafe { guard(error, last) }.unwrap_or(ptr::null_mut())
}
