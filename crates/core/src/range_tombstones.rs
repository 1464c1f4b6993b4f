//! A table's range tombstones.

use rockmill_format::range_tombstone::{RangeTombstone, decode_range_tombstones};
use rockmill_format::table::names;

use crate::blocks::read_block_of;
use crate::decline::DeclineReason;
use crate::error::{Error, Result};
use crate::table::InputTable;

/// Reads the range tombstones of a table, which may take `most_bytes` of memory. They are unordered and may overlap.
///
/// # Errors
/// Storage if reading fails; Corruption or Declined if the block is damaged or not understood; Declined if they take more
/// memory.
pub fn range_tombstones(table: &InputTable, most_bytes: u64) -> Result<Vec<RangeTombstone>> {
    let Some(&handle) = table.meta.metaindex.get(names::RANGE_DELETIONS) else {
        return Ok(Vec::new());
    };
    let too_many = || {
        let what = format!("more than {most_bytes} bytes of range tombstones");
        Error::declined(DeclineReason::MemoryBudget, what).in_file(table.file.name())
    };
    if handle.size > most_bytes {
        return Err(too_many());
    }
    let fail = |e: rockmill_format::Error| Error::format(table.file.name(), e.at(handle.offset));
    let most = usize::try_from(most_bytes).unwrap_or(usize::MAX);
    let block = read_block_of(table, handle, most)?;
    let found = decode_range_tombstones(&block, most_bytes).map_err(fail)?;
    found.ok_or_else(too_many)
}
