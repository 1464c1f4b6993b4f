//! Objects of the program that a job calls: `rm_plugins`.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;

use rockmill_core::{
    CustomMerge, DeclineReason, Error, MAX_MADE_BYTES, MergeFunctions, MergeOperator, Merging,
    Plugins, Result as CoreResult,
};

use crate::memory;
use crate::refusal::Refusal;
use crate::views::CBytes;

/// `rm_take_bytes`.
type TakeBytes = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// Type of `full_merge`.
type FullMerge = unsafe extern "C" fn(
    *mut c_void,
    CBytes,
    *const CBytes,
    *const CBytes,
    usize,
    TakeBytes,
    *mut c_void,
) -> c_int;

/// Type of `partial_merge`.
type PartialMerge = unsafe extern "C" fn(
    *mut c_void,
    CBytes,
    *const CBytes,
    usize,
    TakeBytes,
    *mut c_void,
) -> c_int;

/// `rm_plugins`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CPlugins {
    pub struct_size: usize,
    pub state: *mut c_void,
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
    pub missing: *const c_char,
    pub merge_operator: *const c_char,
    pub builtin_merge_operator: *const c_char,
    pub merge_delimiter: *const CBytes,
    pub merges_single_operand: u8,
    pub full_merge: Option<FullMerge>,
    pub partial_merge: Option<PartialMerge>,
}

/// Bytes of `rm_plugins` in the first version of the header.
const FIRST_PLUGINS: usize = offset_of!(CPlugins, partial_merge) + size_of::<*const ()>();

/// `rm_merge_status`.
const MERGED: c_int = 0;
const KEEP: c_int = 1;

/// The caller's functions and their state, which is released at the end.
struct Functions(CPlugins);

// SAFETY: the header lets threads of the library call the functions, several at once.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

impl Drop for Functions {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the caller says that it may be called once, and nothing uses the state any more.
            unsafe { release(self.0.state) };
        }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("functions of the program")
    }
}

/// Takes the plug-ins of a job over.
///
/// # Safety
/// `given` is null, or a struct of the size that it begins with. Its strings and its delimiter are null or what they should
/// be, and its functions may be called with its state from any thread until `release` has been called.
pub unsafe fn read(given: *const CPlugins) -> Result<Option<Arc<Plugins>>, Refusal> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller says so.
    let copy = unsafe { memory::grown(given, FIRST_PLUGINS, "rm_plugins") }?;
    // SAFETY: all fields may be zero.
    let functions = Arc::new(Functions(unsafe { copy.assume_init() }));
    let given = &functions.0;
    let text = |text: *const c_char, name| {
        // SAFETY: the caller says so.
        let bytes = (!text.is_null()).then(|| unsafe { memory::bytes(text, name) });
        let bytes = bytes.transpose()?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let merge_operator = match text(given.merge_operator, "merge_operator")? {
        Some(name) => {
            let own = text(given.builtin_merge_operator, "builtin_merge_operator")?;
            let delimiter = (!given.merge_delimiter.is_null()).then(|| {
                // SAFETY: the caller says so.
                let CBytes { data, size } = unsafe { *given.merge_delimiter };
                // SAFETY: the caller says so.
                unsafe { memory::buffer(data, size, "merge_delimiter") }
            });
            let delimiter = delimiter.transpose()?;
            let own = own.and_then(|own| MergeOperator::verified(&own, delimiter));
            let custom = || Merging::Custom(CustomMerge(Arc::new(Merge(Arc::clone(&functions)))));
            Some((name, own.unwrap_or_else(custom)))
        }
        None => None,
    };
    Ok(Some(Arc::new(Plugins {
        missing: text(given.missing, "missing")?,
        merge_operator,
    })))
}

/// The merge operator of a program.
#[derive(Debug)]
struct Merge(Arc<Functions>);

impl Merge {
    /// Calls a function of the operator, and returns what it makes.
    fn call(
        &self,
        what: &str,
        call: impl FnOnce(TakeBytes, *mut c_void) -> c_int,
    ) -> CoreResult<Option<Vec<u8>>> {
        let mut made = Made::default();
        let status = call(take, ptr::from_mut(&mut made).cast());
        match (status, made) {
            (KEEP, _) => Ok(None),
            (_, Made { is_too_large, .. }) if is_too_large => Err(Error::declined(
                DeclineReason::MemoryBudget,
                "the merge operator makes more than 8 MiB of a key",
            )),
            (
                MERGED,
                Made {
                    bytes: Some(bytes), ..
                },
            ) => Ok(Some(bytes)),
            (MERGED, _) => Err(failed(what, "returned nothing")),
            _ => Err(failed(what, "failed")),
        }
    }
}

fn failed(what: &str, how: &str) -> Error {
    Error::declined(DeclineReason::PluginFailed, format!("{what} {how}"))
}

/// What a function has made.
#[derive(Default)]
struct Made {
    bytes: Option<Vec<u8>>,
    is_too_large: bool,
}

/// # Safety
/// `context` is a [`Made`] that nothing else uses; `data` has `size` bytes.
unsafe extern "C" fn take(context: *mut c_void, data: *const c_char, size: usize) {
    // SAFETY: the caller says so.
    let made = unsafe { &mut *context.cast::<Made>() };
    if size > MAX_MADE_BYTES {
        made.is_too_large = true;
        return;
    }
    let bytes = match size {
        0 => &[],
        // SAFETY: the caller says so.
        _ => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) },
    };
    made.bytes = Some(bytes.to_vec());
}

fn borrowed(bytes: &[u8]) -> CBytes {
    CBytes {
        data: bytes.as_ptr().cast(),
        size: bytes.len(),
    }
}

impl MergeFunctions for Merge {
    fn full(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> CoreResult<Option<Vec<u8>>> {
        let functions = &self.0.0;
        let what = "the merge operator's full merge";
        let Some(full) = functions.full_merge else {
            return Err(failed(what, "is not there"));
        };
        let base = base.map(borrowed);
        let base = base.as_ref().map_or(ptr::null(), ptr::from_ref);
        let operands: Vec<_> = operands.iter().map(|one| borrowed(one)).collect();
        self.call(what, |take, context| {
            // SAFETY: the program says so; all that it is given lives during the call.
            unsafe {
                let (key, first) = (borrowed(key), operands.as_ptr());
                full(
                    functions.state,
                    key,
                    base,
                    first,
                    operands.len(),
                    take,
                    context,
                )
            }
        })
    }

    fn partial(&self, key: &[u8], operands: &[&[u8]]) -> CoreResult<Option<Vec<u8>>> {
        let functions = &self.0.0;
        let Some(partial) = functions.partial_merge else {
            return Ok(None);
        };
        let operands: Vec<_> = operands.iter().map(|one| borrowed(one)).collect();
        self.call("the merge operator's partial merge", |take, context| {
            // SAFETY: as above.
            unsafe {
                let (key, first) = (borrowed(key), operands.as_ptr());
                partial(functions.state, key, first, operands.len(), take, context)
            }
        })
    }

    fn takes_single_operand(&self) -> bool {
        self.0.0.merges_single_operand != 0
    }
}
