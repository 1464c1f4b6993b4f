//! Checks one SST from its blocks alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use rockmill_compaction::verify::table::scan_known;
use rockmill_core::{
    CancelToken, Contents, Error, ErrorKind, InputTable, Result, TIMESTAMP_SUFFIX, read_block,
};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::key::TAG_SIZE;
use rockmill_format::properties::{TableProperties, UNKNOWN_SEQNO};
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::table::{UNNAMED_COMPARATOR, key_order, names};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;

use super::filter::FilterCheck;
use crate::sst::{Sst, range_tombstones, understood};

/// Contents of a file without errors.
#[derive(Debug, Default)]
pub struct Checked {
    /// Number of entries, including range tombstones; `None` if some could not be read.
    pub entries: Option<u64>,
    /// Number of data blocks; `None` if the index could not be read whole.
    pub blocks: Option<u64>,
    /// Which part of the filter was checked.
    pub filter: String,
    /// First internal key of the data blocks; empty if there are none or not all could be read.
    pub smallest: Vec<u8>,
    /// Last internal key; see `smallest`.
    pub largest: Vec<u8>,
    /// Range of sequence numbers, including range tombstones; `None` for an empty file and if not all entries could be
    /// read.
    pub sequences: Option<(u64, u64)>,
    /// Whether there are range tombstones.
    pub has_range_deletions: bool,
    /// Parts that were not checked, and why; empty if everything was checked.
    pub not_checked: BTreeSet<String>,
}

/// A property that very old files lack.
const OPERANDS: &str = "num_merge_operands";

/// [`check`]s the result of opening a file.
///
/// # Errors
/// Data if the file is damaged, or if a part that opening reads is not understood; Incomplete if another part is not
/// understood; Environment if it cannot be read.
pub fn check_opened(opened: Result<Sst>) -> std::result::Result<(Sst, Checked), Failure> {
    let mut sst = opened?;
    let checked = match check(&sst) {
        Err(error) if is_old(&sst.table) && error.kind == ErrorKind::Corruption => {
            // If only the order of keys is wrong, it is the order of another comparator.
            let properties = &mut Arc::make_mut(&mut sst.table.meta).properties;
            properties.comparator_name = UNNAMED_COMPARATOR.to_vec();
            check(&sst).map_err(|_| error)
        }
        checked => checked,
    };
    let checked = checked.map_err(Failure::of_file)?;
    Ok((sst, checked))
}

/// Whether a file is so old that it does not name its comparator. RocksDB 3 did not count merge operands either.
pub fn is_old(table: &InputTable) -> bool {
    let comparator = &table.meta.properties.comparator_name;
    comparator.is_empty() || comparator == UNNAMED_COMPARATOR
}

/// Reads a whole opened file. Checks every block's checksum, the order of keys, counts against the properties, and the
/// filter against the keys. Opening has verified footer, metaindex, properties, index and dictionary. Parts that are
/// not understood are skipped and named.
///
/// # Errors
/// Corruption with file and offset if a check fails; Storage if reading fails.
pub fn check(sst: &Sst) -> Result<Checked> {
    let Sst { table, unknown } = sst;
    let mut left_out = BTreeSet::new();
    let mut leave_out = |what: &str, why: &Error| {
        left_out.insert(format!("{what}, because {} is not known", why.what));
    };
    for why in unknown {
        leave_out("the data blocks", why);
    }
    for why in check_other_blocks(table)? {
        leave_out("the contents of a meta block", &why);
    }
    let range_deletions = range_tombstones(table)?
        .inspect_err(|why| leave_out("the range tombstones", why))
        .ok();
    let mut filter = understood(FilterCheck::load(table))?
        .inspect_err(|why| leave_out("the contents of the filter", why))
        .ok();
    let name = table.file.name();
    let (contents, unread) = scan_known(table, &CancelToken::new(), |user_key, _, _| {
        filter.as_mut().map_or(Ok(()), |f| f.check(name, user_key))
    })?;
    if let Some((_, why)) = &unread {
        leave_out("the entries of some data blocks", why);
    }
    let comparator = &table.meta.properties.comparator_name;
    if key_order(comparator).is_none() {
        let why = match comparator.ends_with(TIMESTAMP_SUFFIX.as_bytes()) {
            true => "keys have user-defined timestamps".to_owned(),
            false => format!("comparator {} is not known", output::escape(comparator)),
        };
        left_out.insert(format!(
            "the order of keys and the contents of the filter, because {why}"
        ));
    }
    if table.meta.footer.guard.checksum == ChecksumType::None {
        left_out.insert("the blocks' bytes, because the file has no checksums".to_owned());
    }
    left_out.extend(filter.as_ref().and_then(FilterCheck::not_checked));
    let blocks = unknown.is_empty().then_some(table.meta.index.len() as u64);
    let mut checked = Checked {
        blocks,
        filter: filter.map_or_else(|| "not known".to_owned(), |filter| filter.summary()),
        not_checked: left_out,
        ..Checked::default()
    };
    let has_properties = table.meta.metaindex.contains_key(names::PROPERTIES);
    if let Some(blocks) = blocks.filter(|_| has_properties) {
        let said = table.meta.properties.num_data_blocks;
        if !was_buffered(table) || said > blocks {
            check_count(table, "num_data_blocks", |p| p.num_data_blocks, blocks)?;
        }
    }
    if let (true, None, Some(range_deletions)) = (unknown.is_empty(), unread, range_deletions) {
        if has_properties {
            check_counts(table, &contents, &range_deletions)?;
        }
        checked.entries = Some(contents.entries() + range_deletions.len() as u64);
        checked.sequences = sequences(&contents, &range_deletions);
        checked.has_range_deletions = !range_deletions.is_empty();
        (checked.smallest, checked.largest) = (contents.smallest, contents.largest);
        check_sequences(table, checked.sequences)?;
    }
    Ok(checked)
}

/// Whether RocksDB has kept blocks in memory to make a dictionary of them. RocksDB 11.12 does not count these, and may have
/// made no dictionary.
fn was_buffered(table: &InputTable) -> bool {
    let options = &table.meta.properties.compression_options;
    let options = String::from_utf8_lossy(options);
    let mut options = options.split(';').map(str::trim);
    let asked = options.any(|one| {
        let bytes = one.strip_prefix("max_dict_bytes=");
        bytes.is_some_and(|bytes| bytes != "0")
    });
    asked || table.meta.metaindex.contains_key(names::DICTIONARY)
}

/// Verifies the meta blocks that no other check reads, such as those of a hash index. Returns the reasons why some are
/// not understood.
fn check_other_blocks(table: &InputTable) -> Result<Vec<Error>> {
    let read_elsewhere = [
        names::FULL_FILTER,
        names::PARTITIONED_FILTER,
        names::DICTIONARY,
        names::INDEX,
        names::PROPERTIES,
        names::RANGE_DELETIONS,
    ];
    let mut unknown = Vec::new();
    for (name, &handle) in &table.meta.metaindex {
        if !read_elsewhere.contains(&name.as_slice()) {
            unknown.extend(understood(read_block(table, handle))?.err());
        }
    }
    Ok(unknown)
}

fn sequences(contents: &Contents, range_deletions: &[RangeTombstone]) -> Option<(u64, u64)> {
    let points = (contents.entries() > 0)
        .then_some([contents.smallest_seqno, contents.largest_seqno])
        .into_iter()
        .flatten();
    let ranges = range_deletions.iter().map(|deletion| deletion.sequence);
    let all = points.chain(ranges);
    Some((all.clone().min()?, all.max()?))
}

/// Makes the error of a wrong property.
fn misstated(table: &InputTable, property: &str, said: u64, found: u64) -> Error {
    let properties_at = table
        .meta
        .metaindex
        .get(names::PROPERTIES)
        .map_or(0, |handle| handle.offset);
    Error::corruption(
        table.file.name(),
        properties_at,
        format!("property {property} is {said}, but the file has {found}"),
    )
}

fn check_counts(
    table: &InputTable,
    contents: &Contents,
    range_deletions: &[RangeTombstone],
) -> Result<()> {
    let ranges = range_deletions.len() as u64;
    let key_bytes: usize = range_deletions
        .iter()
        .map(|deletion| deletion.begin.len() + TAG_SIZE)
        .sum();
    let value_bytes: usize = range_deletions
        .iter()
        .map(|deletion| deletion.end.len())
        .sum();
    type Said = fn(&TableProperties) -> u64;
    let mut counts: Vec<(&str, Said, u64)> = vec![
        (
            "num_merge_operands",
            |p| p.num_merge_operands,
            contents.merge_operands,
        ),
        (
            "raw_key_size",
            |p| p.raw_key_size,
            contents.key_bytes + key_bytes as u64,
        ),
        (
            "raw_value_size",
            |p| p.raw_value_size,
            contents.value_bytes + value_bytes as u64,
        ),
    ];
    if !counts_ranges_apart(table, contents, ranges) {
        let with_ranges: [(&str, Said, u64); 3] = [
            (
                "num_entries",
                |p| p.num_entries,
                contents.entries() + ranges,
            ),
            (
                "num_deletions",
                |p| p.num_deletions,
                contents.deletions + ranges,
            ),
            ("num_range_deletions", |p| p.num_range_deletions, ranges),
        ];
        counts.splice(0..0, with_ranges);
    }
    for (property, said, found) in counts {
        check_count(table, property, said, found)?;
    }
    Ok(())
}

/// Whether a file has the counts that RocksDB 5 wrote. It did not count range tombstones among the deletions. Up to
/// 5.15 it counted them among the entries alone, and later apart from the entries.
fn counts_ranges_apart(table: &InputTable, contents: &Contents, ranges: u64) -> bool {
    let properties = &table.meta.properties;
    let of_ranges = (
        properties.num_entries.checked_sub(contents.entries()),
        properties.num_range_deletions,
    );
    // Later versions, which count all of them, write the session's id.
    ranges > 0
        && properties.db_session_id.is_empty()
        && properties.num_deletions == contents.deletions
        && (of_ranges == (Some(ranges), 0) || of_ranges == (Some(0), ranges))
}

/// Checks that a property equals the counted number.
fn check_count(
    table: &InputTable,
    property: &str,
    said: fn(&TableProperties) -> u64,
    found: u64,
) -> Result<()> {
    let said = said(&table.meta.properties);
    match said == found || (property == OPERANDS && said == 0 && is_old(table)) {
        true => Ok(()),
        false => Err(misstated(table, property, said, found)),
    }
}

/// Checks the range of sequence numbers. Files of older versions do not contain it.
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
