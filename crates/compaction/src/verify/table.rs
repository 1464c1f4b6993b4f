//! Reads a whole table back: checksums, order of keys, counts, and a hash of the contents.

use rockmill_core::{
    BlockContext, BlockStream, CancelToken, Contents, ContentsReader, Error, ErrorKind, InputTable,
    OutputFile, Result, TablePlan, bounds, filter_parts, index_hash, parts_of, range_tombstones,
};
use rockmill_format::filter::FilterReader;
use rockmill_format::properties::TableProperties;
use rockmill_format::xxph3;

/// Bytes per read.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// Reads all data blocks of a table. Verifies their checksums, and that keys ascend strictly and lie within their index
/// separators. Calls `each` with every entry's user key, tag and value.
///
/// # Errors
/// Storage, Corruption, Cancelled, and the errors of `each`.
pub fn scan(
    table: &InputTable,
    cancel: &CancelToken,
    each: impl FnMut(&[u8], u64, &[u8]) -> Result<()>,
) -> Result<Contents> {
    let (contents, unknown) = scan_known(table, cancel, each)?;
    unknown.map_or(Ok(contents), |(_, error)| Err(error))
}

/// Does the same as [`scan`] for a table that may be partly unreadable. Of blocks with another compression only the
/// checksum is verified; it returns their number and why the first one was not read. With another comparator it does
/// not check the order.
///
/// # Errors
/// Those of [`scan`].
pub fn scan_known(
    table: &InputTable,
    cancel: &CancelToken,
    mut each: impl FnMut(&[u8], u64, &[u8]) -> Result<()>,
) -> Result<(Contents, Option<(u64, Error)>)> {
    let mut stream = BlockStream::new(table, READ_AHEAD_BYTES);
    let properties = &table.meta.properties;
    let restart_interval = u32::try_from(properties.data_block_restart_interval);
    let index = &table.meta.index;
    let mut reader = ContentsReader::new(table.order());
    let mut unknown = None;
    for (i, index_entry) in index.iter().enumerate() {
        cancel.check()?;
        let handle = match stream.load(i..index.len()) {
            Err(error) if matches!(error.kind, ErrorKind::Declined(_)) => {
                unknown.get_or_insert((0, error)).0 += 1;
                continue;
            }
            loaded => loaded?,
        };
        let before = i.checked_sub(1).map(|before| &index[before]);
        let place = BlockContext {
            file: table.file.name(),
            offset: handle.offset,
            before: before.map(|entry| entry.separator.as_slice()),
            separator: index_entry.separator.as_slice(),
            user_keys: properties.index_key_is_user_key != 0,
            restart_interval: restart_interval.unwrap_or(u32::MAX),
        };
        match table.known_order().is_some() {
            true => reader.block(stream.payload(), &place, &mut each)?,
            false => reader.block_in_any_order(stream.payload(), &place, &mut each)?,
        }
    }
    Ok((reader.finish(), unknown))
}

/// Returns RocksDB's hash over all entries of a table, chained in their order (`output_validator.cc`).
///
/// # Errors
/// Those of [`scan`].
pub fn paranoid_hash(table: &InputTable, cancel: &CancelToken) -> Result<u64> {
    let (mut hash, mut key) = (0, Vec::new());
    scan(table, cancel, |user_key, tag, value| {
        key.clear();
        key.extend_from_slice(user_key);
        key.extend_from_slice(&tag.to_le_bytes());
        hash = xxph3::hash64_seeded(&key, hash);
        hash = xxph3::hash64_seeded(value, hash);
        Ok(())
    })?;
    Ok(hash)
}

/// Reads a finished output file back and compares it with the intended contents. Queries its filter for every key of a file
/// with this layout.
///
/// # Errors
/// Verification if the file differs from the intended one; Storage, Cancelled.
pub fn verify_output(
    table: &InputTable,
    meant: &OutputFile,
    rocksdb_version: [u32; 3],
    table_plan: Option<&TablePlan>,
    cancel: &CancelToken,
) -> Result<()> {
    let parts = filter_parts(table).map_err(Error::as_verification)?;
    let readers = parts.iter().map(|part| {
        FilterReader::parse(&part.payload)
            .map_err(|e| Error::format(table.file.name(), e.at(part.offset)).as_verification())
    });
    let readers = readers.collect::<Result<Vec<_>>>()?;
    let mut all_in_filter = true;
    let contents = scan(table, cancel, |user_key, _, _| {
        if let Some(plan) = table_plan {
            let mut of_key = readers[parts_of(&parts, table.order(), user_key)].iter();
            all_in_filter &= of_key.all(|filter| is_in_filter(filter, plan, user_key));
        }
        Ok(())
    })
    .map_err(Error::as_verification)?;
    verify_tail(table, meant, rocksdb_version)?;
    // The properties that were read lack those that this version of RocksDB does not write.
    let properties = &meant.properties;
    // The check of the tail has found the intended tombstones.
    let tombstones = &meant.range_tombstones;
    let (smallest, largest) = bounds(
        table.order(),
        &contents.smallest,
        &contents.largest,
        tombstones,
    );
    let sequences = tombstones.iter().map(|tombstone| tombstone.sequence);
    let smallest_seqno = sequences.clone().fold(contents.smallest_seqno, u64::min);
    let largest_seqno = sequences.fold(contents.largest_seqno, u64::max);
    let tombstones = tombstones.len() as u64;
    first_failure(
        table,
        &[
            (contents.content == meant.content, "entries"),
            (smallest == meant.smallest, "smallest key"),
            (largest == meant.largest, "largest key"),
            (
                properties.num_entries == contents.entries() + tombstones
                    && properties.num_range_deletions == tombstones,
                "number of entries",
            ),
            (
                properties.num_uniform_blocks == contents.uniform_blocks,
                "number of uniform blocks",
            ),
            (
                properties.num_merge_operands == contents.merge_operands,
                "number of merge operands",
            ),
            (
                properties.num_deletions == contents.deletions + tombstones,
                "number of tombstones",
            ),
            (
                properties.key_smallest_seqno == smallest_seqno
                    && properties.key_largest_seqno == largest_seqno,
                "sequence numbers",
            ),
            (
                parts.is_empty() == (properties.num_filter_entries == 0) && all_in_filter,
                "filter",
            ),
        ],
    )
}

/// Compares the opened file's size, properties and index with the intended ones, and reads its filter. Opening the file
/// has verified the checksums of the other metadata blocks.
///
/// # Errors
/// Verification; Storage.
pub fn verify_tail(
    table: &InputTable,
    meant: &OutputFile,
    rocksdb_version: [u32; 3],
) -> Result<()> {
    filter_parts(table).map_err(Error::as_verification)?;
    // The job has the same ones in memory.
    let tombstones = range_tombstones(table, u64::MAX).map_err(Error::as_verification)?;
    let blocks = table.meta.index.iter();
    let properties = TableProperties::from_entries(meant.properties.to_entries(rocksdb_version));
    let index = index_hash(blocks.map(|block| (block.separator.as_slice(), block.handle)));
    first_failure(
        table,
        &[
            (table.meta.file_size == meant.size, "file size"),
            (
                properties.as_ref() == Ok(&table.meta.properties),
                "properties",
            ),
            (index == meant.index_hash, "index"),
            (tombstones == meant.range_tombstones, "range tombstones"),
        ],
    )
}

fn first_failure(table: &InputTable, checks: &[(bool, &str)]) -> Result<()> {
    match checks.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, what)) => Err(Error::corruption(
            table.file.name(),
            0,
            format!("the file read back differs from what was written: {what}"),
        )
        .as_verification()),
    }
}

/// Whether a filter accepts a key, and its prefix if it has one.
fn is_in_filter(filter: &FilterReader<'_>, plan: &TablePlan, user_key: &[u8]) -> bool {
    let Some(options) = plan.filter else {
        return false;
    };
    let prefix = match &plan.prefixes {
        Some(custom) => custom.transform(user_key),
        None => (options.prefix_extractor).and_then(|extractor| extractor.transform(user_key)),
    };
    prefix.is_none_or(|prefix| filter.may_contain(prefix))
        && (!options.whole_key_filtering || filter.may_contain(user_key))
}
