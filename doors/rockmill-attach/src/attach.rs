//! The calls of `attach.cpp`. The crates rockmill-attach and rockmill-rocksdb have this module, each with its `rocksdb`.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use librocksdb_sys as ffi;
use rockmill::Service;
use rockmill_capi::{CBytes, Handle, open_handle, rm_free};
use rocksdb::{AsColumnFamilyRef, AsRawPtr, Options};

/// Copies of the options of all attached column families. Compactions call the compaction filter, which belongs to the
/// options and not to the database.
type CopiedOptions = Mutex<Vec<Options>>;

/// `rockmill_family`.
#[repr(C)]
struct Family {
    name: CBytes,
    options: *mut c_void,
}

unsafe extern "C" {
    fn rockmill_attach(
        options: *mut c_void,
        families: *const Family,
        num_families: usize,
        handle: *mut Handle,
        kept: *mut c_void,
        release: unsafe extern "C" fn(*mut c_void),
        error: *mut *mut c_char,
    ) -> *mut c_void;
    fn rockmill_add_column_family(
        attached: *const c_void,
        database: *mut c_void,
        family: *mut c_void,
        options: *mut c_void,
    );
    fn rockmill_detach(attached: *mut c_void);
}

/// Why a service was not attached, as one sentence. The options are as they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachError(String);

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AttachError {}

/// A clone of a service that options have, and the objects that its jobs call. It is only needed for
/// [`Attachment::add_column_family`]: options and databases keep the clone themselves.
pub struct Attachment {
    attached: NonNull<c_void>,
    kept: Arc<CopiedOptions>,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attachment")
    }
}

// SAFETY: it is a `shared_ptr`, and its object locks what it changes.
unsafe impl Send for Attachment {}
// SAFETY: as above.
unsafe impl Sync for Attachment {}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more.
        unsafe { rockmill_detach(self.attached.as_ptr()) };
    }
}

/// Sets a clone of `service` on options before a database is opened with them, and lets its compactions call the objects
/// of these options: the merge operator, the compaction filter or its factory, the collectors of table properties, the
/// prefix extractor and the comparator.
///
/// The options are those of the default column family; [`attach_families`] is for several. Call it last, and once for each
/// database: jobs that need an object which was set later are declined as `plugin-mismatch`. A second call replaces the
/// first. For transactions see [`Builder::write_committed`](rockmill::Builder::write_committed).
///
/// # Errors
/// One sentence, if the options have several paths, an `Env` of the program, another compaction service, or an object of
/// the program that has the name of one of RocksDB's; or if the process was forked from one that has attached a service.
pub fn attach(options: &mut Options, service: &Service) -> Result<Attachment, AttachError> {
    let own = options.clone();
    attach_families(options, &[("default", &own)], service)
}

/// The same for a database with several column families. `options` are those of the database, and `families` has the options
/// with which each column family is opened, by name.
///
/// # Errors
/// Those of [`attach`].
pub fn attach_families(
    options: &mut Options,
    families: &[(&str, &Options)],
    service: &Service,
) -> Result<Attachment, AttachError> {
    let handle = open_handle(service.jobs()).map_err(AttachError)?;
    let copies: Vec<Options> = (families.iter().map(|(_, options)| (*options).clone())).collect();
    let family = |((name, _), copy): (&(&str, _), &Options)| Family {
        name: CBytes {
            data: name.as_ptr().cast(),
            size: name.len(),
        },
        options: raw(copy),
    };
    let families: Vec<Family> = families.iter().zip(&copies).map(family).collect();
    let kept = Arc::new(Mutex::new(copies));
    let mut error = ptr::null_mut();
    // SAFETY: all pointers are valid during the call. The copies outlive the service, which releases them at its end.
    let attached = unsafe {
        rockmill_attach(
            raw(options),
            families.as_ptr(),
            families.len(),
            handle,
            Arc::into_raw(Arc::clone(&kept)).cast_mut().cast(),
            release,
            &raw mut error,
        )
    };
    match NonNull::new(attached) {
        Some(attached) => Ok(Attachment { attached, kept }),
        None => {
            // SAFETY: it is a string then.
            let sentence = unsafe { CStr::from_ptr(error) };
            let sentence = sentence.to_string_lossy().into_owned();
            // SAFETY: it is used no more.
            unsafe { rm_free(error.cast()) };
            Err(AttachError(sentence))
        }
    }
}

impl Attachment {
    /// Attaches the options of a column family that was made after `database` was opened, with `create_cf`. Until then, its
    /// jobs that need an object are declined.
    pub fn add_column_family(
        &self,
        database: &impl AsRawPtr<ffi::rocksdb_t>,
        family: &impl AsColumnFamilyRef,
        options: &Options,
    ) {
        let copy = options.clone();
        // SAFETY: the database is open, and the copy outlives the service.
        unsafe {
            rockmill_add_column_family(
                self.attached.as_ptr(),
                database.as_raw_ptr().cast(),
                family.inner().cast(),
                raw(&copy),
            );
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(copy);
    }
}

fn raw(options: &Options) -> *mut c_void {
    // SAFETY: callers use it while the options are alive.
    unsafe { options.as_raw_ptr() }.cast()
}

/// # Safety
/// `kept` comes from `Arc::into_raw`, and nothing uses this reference any more.
unsafe extern "C" fn release(kept: *mut c_void) {
    // SAFETY: as above.
    drop(unsafe { Arc::from_raw(kept.cast::<CopiedOptions>()) });
}
