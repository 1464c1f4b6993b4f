//! Memory from callers, and memory that they receive and free.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use crate::refusal::Refusal;

/// Borrows a caller's string; `name` is its parameter or field.
///
/// # Safety
/// `text` is null or a string that ends with a zero and does not change for `'a`.
pub unsafe fn bytes<'a>(text: *const c_char, name: &str) -> Result<&'a [u8], Refusal> {
    if text.is_null() {
        return Err(Refusal::invalid(format!("{name} is null")));
    }
    // SAFETY: the caller says so.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Borrows a caller's string as UTF-8.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Refusal> {
    // SAFETY: the caller says so.
    let bytes = unsafe { bytes(text, name) }?;
    str::from_utf8(bytes).map_err(|_| Refusal::invalid(format!("{name} is not UTF-8")))
}

/// Borrows a caller's buffer.
///
/// # Safety
/// `data` is null or has `size` bytes, which do not change for `'a`.
pub unsafe fn buffer<'a>(
    data: *const c_char,
    size: usize,
    name: &str,
) -> Result<&'a [u8], Refusal> {
    if data.is_null() {
        return Err(Refusal::invalid(format!("{name} is null")));
    }
    // SAFETY: the caller says so.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) })
}

/// Borrows a struct of the caller.
///
/// # Safety
/// `given` is null or begins with a `size_t`; if that is at least the size of `T`, a `T` is there for `'a`, and nothing
/// writes to it.
pub unsafe fn sized<'a, T>(given: *const T, name: &str) -> Result<&'a T, Refusal> {
    if given.is_null() {
        return Err(Refusal::invalid(format!("{name} is null")));
    }
    // SAFETY: the caller says so.
    let size = unsafe { given.cast::<usize>().read() };
    if size < size_of::<T>() {
        return Err(Refusal::invalid(format!(
            "{name}.struct_size is {size}; it must be sizeof({name}), which is {}",
            size_of::<T>()
        )));
    }
    // SAFETY: the caller says so.
    Ok(unsafe { &*given })
}

/// Copies a struct of the caller to which later versions of the header have added fields. Those that the caller's version
/// lacks are zeros.
///
/// # Safety
/// `given` is null or begins with a `size_t`; that many bytes are there, and nothing writes to them meanwhile.
pub unsafe fn grown<T>(
    given: *const T,
    first_size: usize,
    name: &str,
) -> Result<MaybeUninit<T>, Refusal> {
    if given.is_null() {
        return Err(Refusal::invalid(format!("{name} is null")));
    }
    // SAFETY: the caller says so.
    let size = unsafe { given.cast::<usize>().read() };
    if size < first_size {
        return Err(Refusal::invalid(format!(
            "{name}.struct_size is {size}; it must be sizeof({name}), which is {}",
            size_of::<T>()
        )));
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller says that the bytes are there, and the copy has room for those of a `T`.
    unsafe {
        let to = copy.as_mut_ptr().cast::<u8>();
        ptr::copy_nonoverlapping(given.cast(), to, size.min(size_of::<T>()));
    }
    Ok(copy)
}

/// Copies bytes into memory of `malloc`, with a zero behind them.
pub fn copy(bytes: &[u8]) -> Result<*mut c_char, Refusal> {
    // SAFETY: any size may be asked for.
    let memory = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
    if memory.is_null() {
        return Err(Refusal::failure("there is no memory"));
    }
    // SAFETY: the new memory has room for the bytes and the zero.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
        memory.add(bytes.len()).write(0);
    }
    Ok(memory.cast())
}

/// Frees memory that [`copy`] has allocated.
///
/// # Safety
/// `memory` is null or comes from [`copy`], and nothing else frees it.
pub unsafe fn free(memory: *mut c_void) {
    // SAFETY: the caller says so.
    unsafe { libc::free(memory) };
}
