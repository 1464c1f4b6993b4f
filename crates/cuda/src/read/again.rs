//! Files that scans read again.

use rockmill_core::Result;

use super::input::Input;
use crate::cache::FileCache;
use crate::driver::Stream;

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
