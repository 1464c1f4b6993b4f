//! Reading a whole table back: every checksum, the order of keys, counts, and a hash of what it holds.

use rockmill_core::{
    BlockStream, CancelToken, ContentHash, Error, InputTable, KeyRestorer, OutputFile, Plan,
    Result, entry_hash, key_prefix, kv_hash,
};
use rockmill_format::block::{Block, ValueForm};
use rockmill_format::filter::{FilterOptions, FilterReader};
use rockmill_format::key::{self, ValueType};
use rockmill_format::table::names;

use crate::blocks::read_block;

/// Bytes to read at a time.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// Most bytes of long keys to keep, beside the last: entries that share much could claim far more than a
/// block stores.
const LONG_KEYS_BYTES: usize = 64 << 10;

/// What a table's data blocks hold.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Data blocks.
    pub blocks: u64,
    /// Uncompressed bytes of the data blocks.
    pub uncompressed_bytes: u64,
    /// Tombstones for single keys.
    pub deletions: u64,
    /// Merge operands.
    pub merge_operands: u64,
    /// First internal key.
    pub smallest: Vec<u8>,
    /// Last internal key.
    pub largest: Vec<u8>,
    /// Smallest sequence number.
    pub smallest_seqno: u64,
    /// Largest sequence number.
    pub largest_seqno: u64,
    /// Bytes of internal keys.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
    /// Hash of all entries in order.
    pub content: ContentHash,
}

/// Reads all data blocks of a table, verifies their checksums and that keys ascend strictly and lie
/// within their index separators, and calls `each` with every entry's user key, tag and value.
///
/// # Errors
/// Storage, Corruption, Cancelled, and those of `each`.
pub fn scan(
    table: &InputTable,
    cancel: &CancelToken,
    mut each: impl FnMut(&[u8], u64, &[u8]) -> Result<()>,
) -> Result<Contents> {
    let name = table.file.name();
    let mut stream = BlockStream::new(table, READ_AHEAD_BYTES);
    let interval = u32::try_from(table.meta.properties.data_block_restart_interval);
    // Only where separators carry sequence numbers may a user key lie on both sides of one.
    let user_keys = table.meta.properties.index_key_is_user_key != 0;
    let mut contents = Contents {
        smallest_seqno: u64::MAX,
        ..Contents::default()
    };
    let mut keys = KeyRestorer::default();
    for (i, index_entry) in table.meta.index.iter().enumerate() {
        cancel.check()?;
        let handle = stream.load(i..table.meta.index.len())?;
        let fail = |e: rockmill_format::Error| Error::format(name, e.at(handle.offset));
        let corrupt = |what: &str| Error::corruption(name, handle.offset, what);
        let block = Block::parse(stream.payload()).map_err(fail)?;
        let mut entries = block
            .entries(ValueForm::Sized, interval.unwrap_or(u32::MAX))
            .map_err(fail)?;
        contents.blocks += 1;
        contents.uncompressed_bytes += stream.payload().len() as u64;
        let separator = index_entry.separator.as_slice();
        let before_block = i
            .checked_sub(1)
            .map(|before| table.meta.index[before].separator.as_slice());
        // Nearly all keys lie between by their prefixes alone.
        let separator_prefix = key_prefix(separator);
        let before_prefix = before_block.map_or(0, key_prefix);
        let mut last = None;
        loop {
            let entry = match entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(e) => return Err(fail(e)),
            };
            if keys.long_bytes() > LONG_KEYS_BYTES {
                keys.forget();
            }
            let key = keys.restore(&entry).map_err(|e| corrupt(e.what()))?;
            let (user_key, tag) = (keys.user_key(&key), key.tag);
            let kind = ValueType::from_code(key::tag_type(tag))
                .ok_or_else(|| corrupt("unknown value type"))?;
            if key.prefix() <= before_prefix
                && before_block.is_some_and(|end| user_key < end || (user_keys && user_key == end))
            {
                return Err(corrupt("a key lies before its block's range in the index"));
            }
            if key.prefix() >= separator_prefix && user_key > separator {
                return Err(corrupt("a key lies behind its block's index separator"));
            }
            contents.count(user_key, tag, kind, entry.value);
            each(user_key, tag, entry.value)?;
            last = Some(key);
        }
        if let Some(key) = last {
            contents.largest = key::join(keys.user_key(&key), key.tag);
        }
        keys.forget();
    }
    Ok(contents)
}

impl Contents {
    fn count(&mut self, user_key: &[u8], tag: u64, kind: ValueType, value: &[u8]) {
        if self.content.entries() == 0 {
            self.smallest = key::join(user_key, tag);
        }
        let sequence = key::tag_sequence(tag);
        self.smallest_seqno = self.smallest_seqno.min(sequence);
        self.largest_seqno = self.largest_seqno.max(sequence);
        self.deletions += u64::from(matches!(
            kind,
            ValueType::Deletion | ValueType::SingleDeletion | ValueType::DeletionWithTimestamp
        ));
        self.merge_operands += u64::from(kind == ValueType::Merge);
        self.key_bytes += (user_key.len() + key::TAG_SIZE) as u64;
        self.value_bytes += value.len() as u64;
        self.content.push(entry_hash(kv_hash(user_key, value), tag));
    }

    /// Number of entries in the data blocks.
    pub fn entries(&self) -> u64 {
        self.content.entries()
    }
}

/// Reads a finished output file back and compares it with what was meant to be written; asks its filter
/// for every key.
///
/// # Errors
/// Verification if the file is not what was meant; Storage, Cancelled.
pub fn verify_output(
    table: &InputTable,
    meant: &OutputFile,
    plan: &Plan,
    cancel: &CancelToken,
) -> Result<()> {
    let filter = match table.meta.metaindex.get(names::FULL_FILTER) {
        Some(&handle) => Some(read_block(table, handle).map_err(Error::as_verification)?),
        None => None,
    };
    let filter = match &filter {
        Some(payload) => Some(
            FilterReader::parse(payload)
                .map_err(|e| Error::format(table.file.name(), e).as_verification())?,
        ),
        None => None,
    };
    let mut all_in_filter = true;
    let contents = scan(table, cancel, |user_key, _, _| {
        if let (Some(filter), Some(options)) = (&filter, &plan.table.filter) {
            all_in_filter &= is_in_filter(filter, options, user_key);
        }
        Ok(())
    })
    .map_err(Error::as_verification)?;
    verify_tail(table, meant)?;
    let properties = &table.meta.properties;
    first_failure(
        table,
        &[
            (contents.content == meant.content, "entries"),
            (contents.smallest == meant.smallest, "smallest key"),
            (contents.largest == meant.largest, "largest key"),
            (
                properties.num_entries == contents.entries(),
                "number of entries",
            ),
            (
                properties.num_deletions == contents.deletions,
                "number of tombstones",
            ),
            (
                properties.key_smallest_seqno == contents.smallest_seqno
                    && properties.key_largest_seqno == contents.largest_seqno,
                "sequence numbers",
            ),
            (
                filter.is_some() == (properties.num_filter_entries > 0) && all_in_filter,
                "filter",
            ),
        ],
    )
}

/// Compares what the opened file says of itself with what was meant; opening it has verified the
/// checksums of all blocks that describe others.
///
/// # Errors
/// Verification.
pub fn verify_tail(table: &InputTable, meant: &OutputFile) -> Result<()> {
    first_failure(
        table,
        &[
            (table.meta.file_size == meant.size, "file size"),
            (table.meta.properties == meant.properties, "properties"),
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

/// Whether a filter says what it must of a key: that the key, and its prefix if it has one, may be there.
fn is_in_filter(filter: &FilterReader<'_>, options: &FilterOptions, user_key: &[u8]) -> bool {
    let prefix = options
        .prefix_extractor
        .and_then(|extractor| extractor.transform(user_key).map(|p| filter.may_contain(p)));
    prefix.unwrap_or(true) && (!options.whole_key_filtering || filter.may_contain(user_key))
}
