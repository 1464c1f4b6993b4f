//! Divides the keys of some tables into parts of about equal size.
//!
//! The result depends only on the tables' index blocks, which give the stored bytes up to each separator, and not on
//! threads or memory.

use rockmill_format::key::KeyOrder;

use crate::plan::KeyRange;
use crate::table::InputTable;

/// Returns the positions of the tables that may contain keys of a range.
pub fn overlapping(range: &KeyRange, tables: &[InputTable]) -> impl Iterator<Item = usize> {
    let tables = tables.iter().enumerate();
    let overlapping = tables.filter(|(_, table)| table.overlaps(range));
    overlapping.map(|(position, _)| position)
}

/// Returns the stored bytes of the data blocks that may contain keys of a range.
pub fn stored_bytes(range: &KeyRange, tables: &[InputTable]) -> u64 {
    tables.iter().map(|table| table.stored_bytes(range)).sum()
}

/// Groups a table's blocks in the range into grains of `grain_bytes` or slightly more. Returns the last separator and
/// the stored bytes of each.
pub fn grains<'a>(
    table: &'a InputTable,
    range: &KeyRange,
    grain_bytes: u64,
) -> Vec<(&'a [u8], u64)> {
    let mut grains = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    for block in &table.meta.index[table.blocks_in_range(range)] {
        bytes += block.handle.size;
        if !range.contains_in(table.order(), &block.separator) {
            continue;
        }
        if bytes >= grain_bytes {
            grains.push((block.separator.as_slice(), bytes));
            (bytes, last) = (0, None);
        } else {
            last = Some(block.separator.as_slice());
        }
    }
    // Small tables have less than one grain, and there may be thousands of them.
    grains.extend(last.map(|separator| (separator, bytes)));
    grains
}

/// Returns the first keys of all parts except the first one, strictly in order and inside the range. Sorts the grains.
pub fn borders(
    order: KeyOrder,
    range: &KeyRange,
    part_bytes: u64,
    all: &mut [(&[u8], u64)],
) -> Vec<Vec<u8>> {
    all.sort_unstable_by(|a, b| order.compare(a.0, b.0).then(a.1.cmp(&b.1)));
    let total: u64 = all.iter().map(|(_, size)| size).sum();
    let parts = total.div_ceil(part_bytes.max(1)).max(1);
    let mut borders: Vec<Vec<u8>> = Vec::new();
    let mut passed = 0;
    for &mut (separator, size) in all {
        passed += size;
        let next = borders.len() as u64 + 1;
        // Border `next` is due at next/parts of the bytes.
        let due = u128::from(passed) * u128::from(parts) >= u128::from(total) * u128::from(next);
        // The first key of all needs no border.
        let first = range.begin.as_deref();
        let before = borders.last().map(Vec::as_slice).or(first);
        let is_behind = match (order, before) {
            (KeyOrder::Bytewise, None) => !separator.is_empty(),
            (_, before) => before.is_none_or(|before| order.is_before(before, separator)),
        };
        if next < parts && due && is_behind {
            borders.push(separator.to_vec());
        }
    }
    borders
}
