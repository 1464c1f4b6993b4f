//! Views: `rm_view_open` and the functions for views.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::Duration;

use rockmill_core::{Error, ErrorKind, Lock, Result as CoreResult};
use rockmill_scan::{Directory, Store, ValueFn, Write, Written};
use rockmill_view::{CallerStream, Hold, Keys, KvRecord, RingSettings, Rows, Target, View};
use serde_json::json;

use crate::handles::Handles;
use crate::refusal::Refusal;
use crate::{Status, guard, memory, status};

/// The type `rm_view` of C programs.
#[derive(Debug)]
#[repr(C)]
pub struct ViewHandle {
    _opaque: [u8; 0],
}

/// `rm_bytes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CBytes {
    pub data: *const c_char,
    pub size: usize,
}

/// `rm_write`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CWrite {
    pub key: CBytes,
    pub value: CBytes,
    pub is_delete: u8,
}

/// `rm_tell_value`.
type TellValue = unsafe extern "C" fn(*mut c_void, usize, c_int, *const c_char, usize);

/// `rm_store`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CStore {
    pub struct_size: usize,
    pub state: *mut c_void,
    pub get:
        Option<unsafe extern "C" fn(*mut c_void, *const CBytes, usize, TellValue, *mut c_void)>,
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const CWrite, usize) -> c_int>,
}

/// `rm_view_options`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CViewOptions {
    pub struct_size: usize,
    pub path: *const c_char,
    pub family: *const c_char,
    pub device: *const c_char,
    pub memory_bytes: u64,
    pub store: *const CStore,
    pub threads: u32,
    pub request_slots: u32,
    pub request_slot_bytes: u32,
    pub timeout_ms: u32,
    pub wal_dir: *const c_char,
}

/// Bytes of `rm_view_options` in the first version of the header.
const FIRST_VIEW_OPTIONS: usize = offset_of!(CViewOptions, wal_dir);

/// `rm_lookup`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CLookup {
    pub struct_size: usize,
    pub keys: *const c_void,
    pub key_offsets: *const u64,
    pub key_size: u64,
    pub num_keys: u64,
    pub rows: *mut c_void,
    pub row_size: u64,
    pub default_row: *const c_void,
    pub statuses: *mut u8,
    pub sizes: *mut u32,
}

/// `rm_kv_status`, as far as stores return them.
const NOT_FOUND: c_int = 0;
const FOUND: c_int = 1;
const WRITTEN: c_int = 4;
const BUSY: c_int = 5;
const READ_ONLY: c_int = 6;
const CORRUPT: c_int = 10;

/// The functions of a store.
#[derive(Debug)]
struct Functions(CStore);

// SAFETY: the header lets threads of the view call the functions, several at once.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

/// The error for a store's answer.
fn refused(what: &str, code: c_int) -> Error {
    let kind = match code {
        CORRUPT => ErrorKind::Corruption,
        _ => ErrorKind::Storage,
    };
    Error::new(
        kind,
        format!("the store cannot {what}: it has returned {code}"),
    )
}

fn bytes_of(bytes: &[u8]) -> CBytes {
    CBytes {
        data: bytes.as_ptr().cast(),
        size: bytes.len(),
    }
}

/// Passes a value on to the function in the context.
///
/// # Safety
/// `context` comes from [`Store::get`] below, which is running; `data` is null or has `size` bytes.
unsafe extern "C" fn tell(
    context: *mut c_void,
    number: usize,
    code: c_int,
    data: *const c_char,
    size: usize,
) {
    // SAFETY: the caller says so.
    let value: &mut ValueFn<'_> = unsafe { &mut *context.cast() };
    value(
        number,
        match code {
            NOT_FOUND => Ok(None),
            FOUND if size == 0 => Ok(Some(&[])),
            FOUND if !data.is_null() => {
                // SAFETY: the caller says so.
                Ok(Some(unsafe {
                    std::slice::from_raw_parts(data.cast(), size)
                }))
            }
            code => Err(refused("read a key", code)),
        },
    );
}

impl Store for Functions {
    fn get(&self, keys: &[&[u8]], mut value: ValueFn<'_>) {
        let keys: Vec<_> = keys.iter().map(|key| bytes_of(key)).collect();
        let Some(get) = self.0.get else {
            return;
        };
        // SAFETY: the keys live while the function runs, and so does the function in the context.
        unsafe {
            get(
                self.0.state,
                keys.as_ptr(),
                keys.len(),
                tell,
                (&raw mut value).cast(),
            );
        }
    }

    fn write(&self, writes: &[Write<'_>]) -> CoreResult<Written> {
        let Some(write) = self.0.write else {
            return Ok(Written::ReadOnly);
        };
        let writes: Vec<_> = writes
            .iter()
            .map(|write| match write {
                Write::Put { key, value } => CWrite {
                    key: bytes_of(key),
                    value: bytes_of(value),
                    is_delete: 0,
                },
                Write::Delete { key } => CWrite {
                    key: bytes_of(key),
                    value: bytes_of(&[]),
                    is_delete: 1,
                },
            })
            .collect();
        // SAFETY: the writes live while the function runs.
        match unsafe { write(self.0.state, writes.as_ptr(), writes.len()) } {
            WRITTEN => Ok(Written::Done),
            BUSY => Ok(Written::Stalled),
            READ_ONLY => Ok(Written::ReadOnly),
            code => Err(refused("write", code)),
        }
    }
}

/// The holds of callers.
#[derive(Debug, Default)]
struct OpenHolds {
    all: BTreeMap<u64, Hold>,
    /// No more holds are accepted.
    is_closing: bool,
}

/// An open view and the holds of callers.
#[derive(Debug)]
struct Open {
    // The first field, so that the holds end before the view.
    holds: Lock<OpenHolds>,
    released: Condvar,
    next: AtomicU64,
    view: View,
    is_on_host: bool,
}

static VIEWS: Handles<Open> = Handles::new("view");

fn find(view: *mut ViewHandle) -> Result<Arc<Open>, Refusal> {
    VIEWS.find(view.addr())
}

fn failed(error: impl ToString) -> Refusal {
    Refusal::failure(error.to_string())
}

/// `cuda:N` or `cpu`.
fn target(device: &str) -> Result<Target, Refusal> {
    let number = device.strip_prefix("cuda:").and_then(|n| n.parse().ok());
    match (device, number) {
        ("cpu", _) => Ok(Target::Host),
        (_, Some(number)) => Ok(Target::Cuda(number)),
        _ => {
            let what = format!(
                "device is {device:?}; it must be \"cuda:0\" (or another number) or \"cpu\""
            );
            Err(Refusal::invalid(what))
        }
    }
}

/// A number of the caller, or the default if it is 0.
fn given<T: PartialEq + From<u8>>(number: T, default: T) -> T {
    if number == T::from(0) {
        default
    } else {
        number
    }
}

/// Opens a view.
///
/// # Safety
/// `options` is null or points to a struct of the size that it begins with. Its strings are null or strings, and its
/// store is null or a struct of the size that it begins with. `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_view_open(
    options: *const CViewOptions,
    error: *mut *mut c_char,
) -> *mut ViewHandle {
    let make = || {
        // SAFETY: the caller says so.
        let options = unsafe { memory::grown(options, FIRST_VIEW_OPTIONS, "rm_view_options") }?;
        // SAFETY: zeros are null pointers and numbers.
        let options = unsafe { options.assume_init() };
        let text = |text: *const c_char, name, default| match text.is_null() {
            true => Ok(default),
            // SAFETY: the caller says so.
            false => unsafe { memory::text(text, name) },
        };
        // SAFETY: the caller says so.
        let path = unsafe { memory::text(options.path, "path") }?;
        let family = text(options.family, "family", "default")?;
        let target = target(text(options.device, "device", "cuda:0")?)?;
        let mut directory = Directory::open(path).map_err(failed)?;
        if !options.wal_dir.is_null() {
            // SAFETY: the caller says so.
            directory =
                directory.with_log_folder(unsafe { memory::text(options.wal_dir, "wal_dir") }?);
        }
        let mut builder = View::builder(Arc::new(directory), family).device(target);
        if options.memory_bytes != 0 {
            builder = builder.memory_bytes(options.memory_bytes);
        }
        if !options.store.is_null() {
            // SAFETY: the caller says so.
            let store = unsafe { memory::sized(options.store, "rm_store") }?;
            if store.get.is_none() {
                return Err(Refusal::invalid("rm_store.get is null"));
            }
            let default = RingSettings::default();
            let timeout = Duration::from_millis(options.timeout_ms.into());
            let settings = RingSettings {
                request_slots: given(options.request_slots, default.request_slots),
                request_slot_bytes: given(options.request_slot_bytes, default.request_slot_bytes),
                timeout: if timeout.is_zero() {
                    default.timeout
                } else {
                    timeout
                },
                threads: given(options.threads, 1) as usize,
            };
            builder = builder.ring(settings).store(Arc::new(Functions(*store)));
        }
        Ok(Open {
            holds: Lock::default(),
            released: Condvar::new(),
            next: AtomicU64::new(1),
            view: builder.open().map_err(failed)?,
            is_on_host: target == Target::Host,
        })
    };
    // SAFETY: the caller says so.
    let opened = unsafe { guard(error, || VIEWS.open(make)) };
    opened.map_or(ptr::null_mut(), ptr::without_provenance_mut)
}

/// Closes a view.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_view_close(view: *mut ViewHandle, error: *mut *mut c_char) -> Status {
    /// Pause between two checks whether other calls have ended.
    const PAUSE: Duration = Duration::from_millis(1);
    let close = || {
        let open = find(view)?;
        // Kernels continue, also those that begin later.
        open.view.abort();
        let mut holds = open.holds.lock();
        holds.is_closing = true;
        if open.is_on_host {
            // Closing the view waits for the device, but only the holds show when the host's threads are done.
            let waited = (open.released).wait_while(holds, |holds| !holds.all.is_empty());
            holds = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(holds);
        drop(open);
        let mut removed = VIEWS.remove(view.addr())?;
        // Calls of other threads end first. Then the threads of the view do, and the caller may close the store.
        loop {
            match Arc::try_unwrap(removed) {
                Ok(open) => {
                    drop(open);
                    return Ok(());
                }
                Err(open) => removed = open,
            }
            thread::sleep(PAUSE);
        }
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, close) })
}

/// Looks keys up.
///
/// # Safety
/// `lookup` is null or a struct of the size that it begins with, whose pointers are to memory of the view's device as
/// the header says; `stream` is null or a stream of the device; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_view_lookup(
    view: *mut ViewHandle,
    lookup: *const CLookup,
    stream: *mut c_void,
    error: *mut *mut c_char,
) -> Status {
    let look_up = || {
        // SAFETY: the caller says so.
        let lookup = unsafe { memory::sized(lookup, "rm_lookup") }?;
        // SAFETY: the caller says so.
        let (keys, rows, stream) = unsafe {
            let bytes = lookup.keys.cast();
            let keys = match lookup.key_offsets.is_null() {
                true => Keys::fixed(bytes, lookup.key_size, lookup.num_keys),
                false => Keys::varied(bytes, lookup.key_offsets, lookup.num_keys),
            };
            let rows = Rows::new(lookup.rows.cast(), lookup.row_size, lookup.statuses)
                .with_default(lookup.default_row.cast())
                .with_sizes(lookup.sizes);
            (keys, rows, CallerStream::new(stream))
        };
        find(view)?
            .view
            .lookup(&keys, &rows, stream)
            .map_err(|error| match error.kind {
                ErrorKind::Invalid => Refusal::invalid(error.to_string()),
                _ => failed(error),
            })
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, look_up) })
}

/// Begins a hold.
///
/// # Safety
/// `stream` is null or a stream of the view's device, which lives until the hold was released; `kv` is null or has
/// `kv_size` bytes that may be written to; `hold` and `error` are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_view_hold(
    view: *mut ViewHandle,
    stream: *mut c_void,
    kv: *mut c_void,
    kv_size: usize,
    kv_abi: u32,
    hold: *mut u64,
    error: *mut *mut c_char,
) -> Status {
    let begin = || {
        if kv.is_null() || hold.is_null() {
            return Err(Refusal::invalid("kv or hold is null"));
        }
        if (kv_size, kv_abi) != (size_of::<KvRecord>(), KvRecord::ABI) {
            let what = format!(
                "rockmill/gpukv.cuh has layout {kv_abi} of {kv_size} bytes, and the library has layout {} of {}: compile the \
                 program with the header that belongs to the library",
                KvRecord::ABI,
                size_of::<KvRecord>()
            );
            return Err(Refusal::invalid(what));
        }
        let open = find(view)?;
        // SAFETY: the caller says so.
        let held = open.view.hold(unsafe { CallerStream::new(stream) });
        let held = held.map_err(failed)?;
        let record = held.kv();
        let number = open.next.fetch_add(1, Ordering::Relaxed);
        let mut holds = open.holds.lock();
        if holds.is_closing {
            return Err(Refusal::invalid("the view is being closed"));
        }
        holds.all.insert(number, held);
        drop(holds);
        // SAFETY: there is room for a record, and the number may be written to.
        unsafe {
            kv.cast::<KvRecord>().write_unaligned(record);
            hold.write(number);
        }
        Ok(())
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, begin) })
}

/// Ends a hold.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_view_release(
    view: *mut ViewHandle,
    hold: u64,
    error: *mut *mut c_char,
) -> Status {
    let end = || {
        let open = find(view)?;
        let mut holds = open.holds.lock();
        let held = holds.all.remove(&hold);
        drop(holds);
        open.released.notify_all();
        match held {
            Some(_) => Ok(()),
            None => Err(Refusal::invalid(
                "the hold was released, or it never was one",
            )),
        }
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, end) })
}

/// Refreshes a view to the current state of the database.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_view_refresh(view: *mut ViewHandle, error: *mut *mut c_char) -> Status {
    let refresh = || {
        find(view)?.view.refresh().map_err(failed)?;
        Ok(())
    };
    // SAFETY: the caller says so.
    status(unsafe { guard(error, refresh) })
}

/// Returns the contents of a view as JSON.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rm_view_stats_json(
    view: *mut ViewHandle,
    error: *mut *mut c_char,
) -> *mut c_char {
    let stats = || {
        let open = find(view)?;
        let (contents, ring) = (open.view.contents(), open.view.ring_counts());
        let json = json!({
            "sequence": open.view.sequence(),
            "keys": contents.keys,
            "ask": contents.needs_host,
            "slot_bytes": contents.slot_bytes,
            "record_bytes": contents.record_bytes,
            "asked_ranges": open.view.asked().len(),
            "gets": ring.gets,
            "writes": ring.writes,
            "failed": ring.failed,
            "batches": ring.batches,
            "last_error": ring.last_error,
        });
        memory::copy(json.to_string().as_bytes())
    };
    // SAFETY: the caller says so.
    unsafe { guard(error, stats) }.unwrap_or(ptr::null_mut())
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};
    use std::fs;

    use super::*;

    /// A MANIFEST of RocksDB.
    const MANIFEST: &[u8] = include_bytes!("../../../crates/format/tests/data/manifest-11.12.bin");

    #[test]
    fn a_view_takes_the_folder_of_logs_unless_its_options_are_older() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path();
        fs::write(dir.join("CURRENT"), "MANIFEST-000005\n").expect("written");
        fs::write(dir.join("MANIFEST-000005"), MANIFEST).expect("written");
        let text = |text: String| CString::new(text).expect("no zeros");
        let path = text(dir.display().to_string());
        let logs = dir.join("no such logs").display().to_string();
        let wal_dir = text(logs.clone());
        let said = |struct_size, wal_dir: *const c_char| {
            let options = CViewOptions {
                struct_size,
                path: path.as_ptr(),
                family: ptr::null(),
                device: c"cpu".as_ptr(),
                memory_bytes: 0,
                store: ptr::null(),
                threads: 0,
                request_slots: 0,
                request_slot_bytes: 0,
                timeout_ms: 0,
                wal_dir,
            };
            let mut error = ptr::null_mut();
            // SAFETY: the struct and its strings live.
            let view = unsafe { rm_view_open(&raw const options, &raw mut error) };
            assert!(view.is_null() && !error.is_null());
            // SAFETY: it is a string of the library.
            let said = unsafe { CStr::from_ptr(error) };
            let said = said.to_string_lossy().into_owned();
            // SAFETY: the library has allocated it.
            unsafe { memory::free(error.cast()) };
            said
        };
        let whole = size_of::<CViewOptions>();
        assert!(said(whole, wal_dir.as_ptr()).contains(&logs));
        // The files are missing.
        let others = said(whole, ptr::null());
        assert!(others.contains(".sst"), "{others}");
        let dangling = ptr::without_provenance(1);
        assert_eq!(said(FIRST_VIEW_OPTIONS, dangling), others);
        assert!(said(FIRST_VIEW_OPTIONS - 1, dangling).contains("struct_size"));
    }
}
