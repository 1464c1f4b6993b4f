//! A table's range tombstones.

use rockmill_format::range_tombstone::{RangeTombstone, decode_range_tombstones};
use rockmill_format::table::names;

use crate::blocks::read_block;
use crate::error::{Error, Result};
use crate::table::InputTable;

/// Reads the range tombstones of a table. They are unordered and may overlap.
///
/// # Errors
/// Storage if reading fails; Corruption or Declined if the block is damaged or not understood.
pub fn range_tombstones(table: &InputTable) -> Result<Vec<RangeTombstone>> {
    let Some(&handle) = table.meta.metaindex.get(names::RANGE_DELETIONS) else {
        return Ok(Vec::new());
    };
    let fail = |e: rockmill_format::Error| Error::format(table.file.name(), e.at(handle.offset));
    decode_range_tombstones(&read_block(table, handle)?).map_err(fail)
}
