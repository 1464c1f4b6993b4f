//! Single blocks of an opened table that are not data blocks.

use crate::error::{Error, Result};
use crate::table::InputTable;
use rockmill_format::handle::BlockHandle;

/// Reads, verifies and decompresses one block.
///
/// # Errors
/// Storage if reading fails; Corruption or Declined if the block is damaged or not understood.
pub fn read_block(table: &InputTable, handle: BlockHandle) -> Result<Vec<u8>> {
    read_block_of(table, handle, usize::MAX)
}

/// Like [`read_block`], of a block that has at most `most_bytes` bytes once it is decompressed. A larger one is Declined.
pub(crate) fn read_block_of(
    table: &InputTable,
    handle: BlockHandle,
    most_bytes: usize,
) -> Result<Vec<u8>> {
    let name = table.file.name();
    let fail = |e: rockmill_format::Error| Error::format(name, e);
    let len = handle.stored_len(table.meta.file_size).map_err(fail)?;
    let mut stored = vec![0; len];
    table.file.read_exact_at(&mut stored, handle.offset)?;
    let guard = table.meta.footer.guard;
    let (payload, kind) = guard.open(&stored, handle.offset).map_err(fail)?;
    let mut out = Vec::new();
    guard
        .decompressor(Vec::new())
        .at_most(most_bytes)
        .decompress(kind, payload, &mut out)
        .map_err(|e| fail(e.at(handle.offset)))?;
    Ok(out)
}
