//! The word in which kernels record their errors, with the length of the longest key beside it.

use rockmill_core::Result;

use crate::driver::ffi::NO_ERROR;
use crate::memory::{DeviceBuffer, Workspace};

/// Address of the length of the longest user key.
pub fn longest_key(ws: &Workspace) -> *mut u64 {
    ws.errors.as_ptr().cast::<u64>().wrapping_add(1)
}

/// Clears the error word and the length of the longest key.
pub fn clear_errors(ws: &mut Workspace) -> Result<()> {
    ws.errors.upload(&[[NO_ERROR, 0]], &ws.stream).map(drop)
}

/// The first error that kernels have recorded.
#[derive(Debug, Clone, Copy)]
pub struct FirstError {
    /// Block, or entry for an error of order.
    pub at: usize,
    /// `types.hpp:ErrorCode`.
    pub code: u32,
}

/// Reads the error word after waiting for the stages before.
pub fn first_error(ws: &Workspace) -> Result<Option<FirstError>> {
    let [word, _] = ws.errors.download(0, 1, &ws.stream)?[0];
    Ok(error_in(word))
}

/// Reads `len` values from the start of a buffer, together with the error word.
pub fn download_checked<T: Copy + Default>(
    ws: &Workspace,
    buffer: &DeviceBuffer<T>,
    len: usize,
) -> Result<(Vec<T>, Option<FirstError>)> {
    let (values, [word, _]) = buffer.download_with(0, len, &ws.errors, &ws.stream)?;
    Ok((values, error_in(word)))
}

/// The error in an error word.
pub fn error_in(word: u64) -> Option<FirstError> {
    (word != NO_ERROR).then_some(FirstError {
        at: (word >> 8) as usize,
        code: (word & 0xff) as u32,
    })
}
