//! A table's filter as it is in the file: one block, or partitions.

use std::ops::Range;

use rockmill_format::handle::BlockHandle;
use rockmill_format::key::KeyOrder;
use rockmill_format::table::{decode_filter_partitions, names};

use crate::blocks::read_block;
use crate::error::{Error, Result};
use crate::table::InputTable;

/// A full filter, or one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPart {
    /// User key at or after all keys of the partition; empty for a full filter.
    pub separator: Vec<u8>,
    /// Position in the file.
    pub offset: u64,
    /// The filter.
    pub payload: Vec<u8>,
}

/// Reads and verifies the filter of a table, in the order of keys; nothing if it has none of a known kind. Partitions together
/// are no larger than the file.
///
/// # Errors
/// Storage; Corruption or Declined if a block is damaged or not understood.
pub fn filter_parts(table: &InputTable) -> Result<Vec<FilterPart>> {
    let part = |separator: Vec<u8>, handle: BlockHandle| {
        Ok(FilterPart {
            separator,
            offset: handle.offset,
            payload: read_block(table, handle)?,
        })
    };
    let metaindex = &table.meta.metaindex;
    if let Some(&handle) = metaindex.get(names::FULL_FILTER) {
        return Ok(vec![part(Vec::new(), handle)?]);
    }
    let Some(&top) = metaindex.get(names::PARTITIONED_FILTER) else {
        return Ok(Vec::new());
    };
    let name = table.file.name();
    let payload = read_block(table, top)?;
    let entries = decode_filter_partitions(&payload, &table.meta)
        .map_err(|e| Error::format(name, e.at(top.offset)))?;
    let is_behind = |pair: &[rockmill_format::index::IndexEntry]| {
        let end = pair[0].handle.checked_end();
        end.is_some_and(|end| end <= pair[1].handle.offset)
    };
    if !entries.windows(2).all(is_behind) {
        let what = "filter partitions overlap";
        return Err(Error::corruption(name, top.offset, what));
    }
    let parts = entries.into_iter();
    parts
        .map(|entry| part(entry.separator.into_vec(), entry.handle))
        .collect()
}

/// Positions of the parts that RocksDB may ask for a key. This is the first one whose separator is at or after the key, or the last of all
/// (`partitioned_filter_block.cc:GetFilterPartitionHandle`). If versions of one key fill several partitions, their separators
/// differ only in the sequence number, and all of these partitions must contain the key.
pub fn parts_of(parts: &[FilterPart], order: KeyOrder, user_key: &[u8]) -> Range<usize> {
    let first = parts.partition_point(|part| order.is_before(&part.separator, user_key));
    let end = parts.partition_point(|part| !order.is_before(user_key, &part.separator));
    if first == end {
        let at = first.min(parts.len().saturating_sub(1));
        at..parts.len().min(at + 1)
    } else {
        first..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_of_a_key_is_the_first_at_or_above_it() {
        let part = |separator: &[u8], offset| FilterPart {
            separator: separator.to_vec(),
            offset,
            payload: Vec::new(),
        };
        let parts = [part(b"b", 1), part(b"d", 2), part(b"d", 3), part(b"f", 4)];
        let found = |key: &[u8]| -> Vec<u64> {
            let found = parts[parts_of(&parts, KeyOrder::Bytewise, key)].iter();
            found.map(|part| part.offset).collect()
        };
        assert_eq!(found(b"a"), [1]);
        assert_eq!(found(b"b"), [1]);
        assert_eq!(found(b"c"), [2]);
        assert_eq!(found(b"d"), [2, 3]);
        assert_eq!(found(b"e"), [4]);
        assert_eq!(found(b"z"), [4]);
        assert!(parts_of(&[], KeyOrder::Bytewise, b"a").is_empty());
    }
}
