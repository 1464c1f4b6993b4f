//! Checks one SST from its blocks alone.

use rockmill_core::{CancelToken, Contents, DeclineReason, Error, InputTable, Result};
use rockmill_engine::read_block;
use rockmill_engine::verify::scan;
use rockmill_format::key::{self, TAG_SIZE};
use rockmill_format::properties::UNKNOWN_SEQNO;
use rockmill_format::table::names;

use super::filter::FilterCheck;
use crate::output;
use crate::sst::{self, RangeDeletion};

/// The comparator whose order is checked.
pub const BYTEWISE: &[u8] = b"leveldb.BytewiseComparator";

/// What a sound file holds.
#[derive(Debug)]
pub struct Checked {
    /// Entries, range tombstones included.
    pub entries: u64,
    /// Data blocks.
    pub blocks: u64,
    /// What of the filter was checked.
    pub filter: String,
    /// First and last internal key of the data blocks; empty if there are none.
    pub smallest: Vec<u8>,
    /// See `smallest`.
    pub largest: Vec<u8>,
    /// Range of sequence numbers, range tombstones included; `None` for an empty file.
    pub sequences: Option<(u64, u64)>,
    /// Whether there are range tombstones.
    pub has_range_deletions: bool,
}

/// Reads a whole opened file: every block's checksum, the order of keys, counts against the
/// properties, and the filter against the keys. Opening verified footer, metaindex, properties, index
/// and dictionary.
///
/// # Errors
/// Corruption if something does not hold, with file and offset; Declined for what is not supported;
/// Storage if reading fails.
pub fn check(table: &InputTable) -> Result<Checked> {
    let name = table.file.name();
    let comparator = &table.meta.properties.comparator_name;
    if !comparator.is_empty() && comparator != BYTEWISE {
        let what = format!("comparator {}", output::escape(comparator));
        return Err(Error::declined(DeclineReason::Comparator, what).in_file(name));
    }
    check_other_blocks(table)?;
    let range_deletions = sst::range_deletions(table)?;
    let mut filter = FilterCheck::load(table)?;
    let contents = scan(table, &CancelToken::new(), |user_key, _, _| {
        filter.check(name, user_key)
    })?;
    let checked = Checked {
        entries: contents.entries() + range_deletions.len() as u64,
        blocks: contents.blocks,
        filter: filter.summary(),
        sequences: sequences(&contents, &range_deletions),
        has_range_deletions: !range_deletions.is_empty(),
        smallest: contents.smallest.clone(),
        largest: contents.largest.clone(),
    };
    check_counts(table, &contents, &range_deletions)?;
    check_sequences(table, checked.sequences)?;
    Ok(checked)
}

/// Verifies the meta blocks that no one else reads, such as those of a hash index.
fn check_other_blocks(table: &InputTable) -> Result<()> {
    let read_elsewhere = [
        names::FULL_FILTER,
        names::PARTITIONED_FILTER,
        names::DICTIONARY,
        names::INDEX,
        names::PROPERTIES,
        names::RANGE_DELETIONS,
    ];
    for (name, &handle) in &table.meta.metaindex {
        if !read_elsewhere.contains(&name.as_slice()) {
            read_block(table, handle)?;
        }
    }
    Ok(())
}

fn sequences(contents: &Contents, range_deletions: &[RangeDeletion]) -> Option<(u64, u64)> {
    let points = (contents.entries() > 0)
        .then_some([contents.smallest_seqno, contents.largest_seqno])
        .into_iter()
        .flatten();
    let ranges = range_deletions
        .iter()
        .map(|deletion| key::tag_sequence(deletion.tag));
    let all = points.chain(ranges);
    Some((all.clone().min()?, all.max()?))
}

/// A fault in what the properties say.
fn misstated(table: &InputTable, property: &str, said: u64, found: u64) -> Error {
    let properties_at = table
        .meta
        .metaindex
        .get(names::PROPERTIES)
        .map_or(0, |handle| handle.offset);
    Error::corruption(
        table.file.name(),
        properties_at,
        format!("property {property} is {said}, but the file holds {found}"),
    )
}

fn check_counts(
    table: &InputTable,
    contents: &Contents,
    range_deletions: &[RangeDeletion],
) -> Result<()> {
    let properties = &table.meta.properties;
    let ranges = range_deletions.len() as u64;
    let key_bytes: usize = range_deletions
        .iter()
        .map(|deletion| deletion.start.len() + TAG_SIZE)
        .sum();
    let value_bytes: usize = range_deletions
        .iter()
        .map(|deletion| deletion.end.len())
        .sum();
    let counts = [
        (
            "num_data_blocks",
            properties.num_data_blocks,
            contents.blocks,
        ),
        (
            "num_entries",
            properties.num_entries,
            contents.entries() + ranges,
        ),
        (
            "num_deletions",
            properties.num_deletions,
            contents.deletions + ranges,
        ),
        (
            "num_merge_operands",
            properties.num_merge_operands,
            contents.merge_operands,
        ),
        (
            "num_range_deletions",
            properties.num_range_deletions,
            ranges,
        ),
        (
            "raw_key_size",
            properties.raw_key_size,
            contents.key_bytes + key_bytes as u64,
        ),
        (
            "raw_value_size",
            properties.raw_value_size,
            contents.value_bytes + value_bytes as u64,
        ),
    ];
    match counts.into_iter().find(|(_, said, found)| said != found) {
        Some((property, said, found)) => Err(misstated(table, property, said, found)),
        None => Ok(()),
    }
}

/// Files of older versions do not say their sequence numbers.
fn check_sequences(table: &InputTable, found: Option<(u64, u64)>) -> Result<()> {
    let Some((smallest, largest)) = found else {
        return Ok(());
    };
    let properties = &table.meta.properties;
    let said = [
        (
            "key_smallest_seqno",
            properties.key_smallest_seqno,
            smallest,
        ),
        ("key_largest_seqno", properties.key_largest_seqno, largest),
    ];
    match said
        .into_iter()
        .find(|&(_, said, found)| said != UNKNOWN_SEQNO && said != found)
    {
        Some((property, said, found)) => Err(misstated(table, property, said, found)),
        None => Ok(()),
    }
}
