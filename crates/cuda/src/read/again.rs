//! What is read again: files, by later scans, and a task's input after a failure.

use rockmill_core::{Error, ErrorKind, Result};

use super::input::Input;
use crate::cache::FileCache;
use crate::driver::Stream;

/// Whether a device that has failed to read may read again: other bytes than those that it had cached.
pub enum Again {
    No,
    WithoutGroups,
    WithoutCache,
}

impl Again {
    /// That after an error of `input`. Cached bytes that may have caused it are dropped.
    pub fn after(error: &Error, cache: &FileCache, input: &Input<'_>) -> Self {
        let (kind, has_used) = (error.kind, !input.used.is_empty());
        if matches!(kind, ErrorKind::Corruption | ErrorKind::Verification) {
            for used in &input.used {
                cache.group_mismatch(&used.of.identity, &used.name);
            }
        }
        let of_groups = match kind {
            ErrorKind::Verification => has_used,
            // Blocks beside those of the range may be damaged, unreadable, or too large for the memory.
            ErrorKind::Corruption | ErrorKind::Storage => has_used || !input.new_groups.is_empty(),
            _ => kind.is_out_of_memory() && (has_used || !input.new_groups.is_empty()),
        };
        let mut again = match of_groups {
            true => Self::WithoutGroups,
            false => Self::No,
        };
        // An error with an offset is about a block whose bytes are not those of the file, or cannot be read.
        let is_of_block = error.offset.is_some();
        for range in &input.cacheable {
            let is_its_file = error.file.as_deref() == Some(range.name);
            if is_of_block && is_its_file && range.cached_bytes > 0 {
                again = Self::WithoutCache;
                cache.mismatch(&range.of.identity);
            }
        }
        again
    }
}

/// Caches the files that scans read again. Their blocks lie in `arena` as they are stored, and have been verified.
///
/// # Errors
/// Device.
pub fn keep_read_again(
    cache: &FileCache,
    input: &Input<'_>,
    arena: *const u8,
    stream: &Stream,
) -> Result<()> {
    for range in &input.cacheable {
        let len = range.range.end - range.range.start;
        let is_again = cache.is_read_again(&range.of.identity, len, range.data_bytes);
        if !is_again || range.cached_bytes == len {
            continue;
        }
        let from = arena.wrapping_add(range.at as usize);
        // SAFETY: the arena has the range there. No stage changes stored blocks, and the copies are waited for.
        unsafe {
            cache.keep_read(
                &range.of,
                range.data_bytes,
                range.range.clone(),
                from,
                stream,
            )?;
        }
    }
    Ok(())
}
