//! Index blocks: they give the block that may contain a key (`index_builder.cc`, `table/format.cc:IndexValue`).
//!
//! One entry per data block: a separator that is at or above every key of the block and below every key of the next,
//! and the block's handle. The separators of one index are all user keys or all internal keys. With delta-coded values,
//! an entry whose key shares bytes with the key before stores only how the block's size differs from that of its
//! predecessor, behind which it begins.

mod builder;

use smallvec::SmallVec;

pub use builder::{IndexBuilder, encode_index};

use crate::block::{Block, Entry, ValueForm};
use crate::coding::{Cursor, unzigzag};
use crate::error::{Error, Result};
use crate::handle::BlockHandle;
use crate::key::{KeyOrder, split};

/// First version whose delta-coded values keep 0 free as an escape for a full handle.
const FIRST_ESCAPE_VERSION: u32 = 8;

/// First version whose index values are delta coded.
const FIRST_DELTA_VALUE_VERSION: u32 = 4;

/// First version whose separators may be user keys.
const FIRST_USER_KEY_VERSION: u32 = 3;

/// Coding of an index block, from the file's footer and properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexCoding {
    /// Separators are user keys.
    pub user_keys: bool,
    /// Values are delta coded.
    pub delta_values: bool,
    /// Each value is followed by the block's first internal key (index type 3).
    pub first_keys: bool,
    /// format_version of the file.
    pub format_version: u32,
    /// Restart interval, 0 if not known.
    pub restart_interval: u32,
    /// Order of the separators, if it is known.
    pub order: Option<KeyOrder>,
}

impl IndexCoding {
    /// Whether separators are known to be in another order.
    pub(crate) fn is_out_of_order(&self, before: &[u8], separator: &[u8]) -> bool {
        (self.order).is_some_and(|order| order.is_before(separator, before))
    }
}

/// Bytes of a separator that need no allocation: an index has one separator for every few KiB of data.
const INLINE_BYTES: usize = 24;

/// A user key in an index.
pub type Separator = SmallVec<[u8; INLINE_BYTES]>;

/// A data block (or index partition) in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// User key at or above every user key of the block.
    pub separator: Separator,
    /// Handle of the block.
    pub handle: BlockHandle,
}

/// Decodes an uncompressed index block.
///
/// # Errors
/// Corruption if it is malformed, or its separators or handles do not ascend.
pub fn decode_index(bytes: &[u8], coding: IndexCoding) -> Result<Vec<IndexEntry>> {
    decode(bytes, coding, |_, _, _, _| true)
}

/// [`decode_index`] of an index that was just written. Readers will search its restart points, so these must be where
/// the restart interval puts them. Also returns the tags of separators that are internal keys.
///
/// # Errors
/// The errors of [`decode_index`], and Corruption if a restart point is elsewhere.
pub fn decode_written_index(
    bytes: &[u8],
    coding: IndexCoding,
) -> Result<(Vec<IndexEntry>, Vec<u64>)> {
    let interval = (coding.restart_interval as usize).max(1);
    let mut tags = Vec::new();
    let entries = decode(bytes, coding, |block, i, entry, key| {
        let tag = split(key).filter(|_| !coding.user_keys);
        tags.extend(tag.map(|(_, tag)| tag));
        let restart = i / interval;
        !i.is_multiple_of(interval)
            || (entry.shared == 0
                && restart < block.num_restarts()
                && block.restart(restart) == entry.offset)
    })?;
    // The required number of restart points, without flags.
    let restarts = u32::try_from(entries.len().div_ceil(interval)).unwrap_or(u32::MAX);
    match bytes.ends_with(&restarts.to_le_bytes()) {
        true => Ok((entries, tags)),
        false => Err(Error::corruption(bytes.len(), "index with another footer")),
    }
}

/// Decodes an index whose entries, given with their numbers and whole keys, are `sound`.
fn decode(
    bytes: &[u8],
    coding: IndexCoding,
    mut sound: impl FnMut(&Block<'_>, usize, &Entry<'_>, &[u8]) -> bool,
) -> Result<Vec<IndexEntry>> {
    let form = if coding.delta_values {
        ValueForm::SelfDelimiting
    } else {
        ValueForm::Sized
    };
    let block = Block::parse(bytes)?;
    let mut entries = block.entries(form, coding.restart_interval)?;
    // By default every entry is a restart point, and the block limits their number.
    let mut out: Vec<IndexEntry> = Vec::with_capacity(block.num_restarts());
    let mut keys = Keys::default();
    while let Some(entry) = entries.next_entry()? {
        let key = keys.next(&entry);
        if !sound(&block, out.len(), &entry, key) {
            let what = "index with a restart point elsewhere";
            return Err(Error::corruption(entry.offset, what));
        }
        let base = out.last().map(|e| e.handle);
        let continued = (coding.delta_values && entry.shared > 0)
            .then_some(base)
            .flatten();
        let mut cursor = Cursor::new(entry.value);
        let handle = decode_value(&mut cursor, coding, continued)
            .map_err(|e| e.at(entry.value_offset as u64))?;
        if coding.delta_values {
            entries.end_value(cursor.offset());
        }
        let user_key = if coding.user_keys {
            key
        } else {
            split(key)
                .ok_or_else(|| Error::corruption(entry.offset, "index key shorter than 8 bytes"))?
                .0
        };
        if let Some(before) = out.last()
            && (coding.is_out_of_order(&before.separator, user_key)
                || before.handle.offset >= handle.offset)
        {
            return Err(Error::corruption(entry.offset, "index out of order"));
        }
        out.push(IndexEntry {
            separator: Separator::from_slice(user_key),
            handle,
        });
    }
    Ok(out)
}

/// Keys of an index block. Most indexes contain all of them whole, without the need for a copy.
#[derive(Default)]
struct Keys<'a> {
    /// The last key, if the block contains it whole.
    whole: Option<&'a [u8]>,
    /// If not.
    restored: Vec<u8>,
}

impl<'a> Keys<'a> {
    #[inline]
    fn next(&mut self, entry: &Entry<'a>) -> &[u8] {
        if entry.shared == 0 && entry.prefix.is_empty() {
            return self.whole.insert(entry.suffix);
        }
        if let Some(whole) = self.whole.take() {
            self.restored.clear();
            self.restored.extend_from_slice(whole);
        }
        entry.restore_key(&mut self.restored);
        &self.restored
    }
}

#[inline]
fn decode_value(
    cursor: &mut Cursor<'_>,
    coding: IndexCoding,
    before: Option<BlockHandle>,
) -> Result<BlockHandle> {
    let handle = match before {
        None => BlockHandle::decode(cursor)?,
        Some(before) => {
            let code = cursor.varint64()?;
            if coding.format_version < FIRST_ESCAPE_VERSION {
                following(before, unzigzag(code))?
            } else if code == 0 {
                BlockHandle::decode(cursor)?
            } else {
                following(before, unzigzag(code - 1))?
            }
        }
    };
    if coding.first_keys {
        cursor.length_prefixed()?;
    }
    Ok(handle)
}

fn following(before: BlockHandle, size_delta: i64) -> Result<BlockHandle> {
    let out_of_range = || Error::corruption(0, "index value out of range");
    let handle = BlockHandle {
        offset: before.checked_end().ok_or_else(out_of_range)?,
        size: before
            .size
            .checked_add_signed(size_delta)
            .ok_or_else(out_of_range)?,
    };
    handle.checked_end().ok_or_else(out_of_range)?;
    Ok(handle)
}

/// Shortening of separators (`BlockBasedTableOptions::IndexShorteningMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexShortening {
    /// The block's last key.
    None,
    /// The shortest separator, except after the last block.
    Separators,
    /// The shortest separator, and a short successor after the last block.
    SeparatorsAndSuccessor,
}

impl IndexShortening {
    /// The mode that an OPTIONS file names.
    pub fn from_option(name: &str) -> Option<Self> {
        Some(match name {
            "kNoShortening" => Self::None,
            "kShortenSeparators" => Self::Separators,
            "kShortenSeparatorsAndSuccessor" => Self::SeparatorsAndSuccessor,
            _ => return None,
        })
    }
}

/// Settings of an [`IndexBuilder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSettings {
    /// format_version of the file.
    pub format_version: u32,
    /// Entries from one restart point to the next.
    pub restart_interval: usize,
    /// Shortening of separators.
    pub shortening: IndexShortening,
    /// Whether the common prefix of the separators is stored once (format_version 8).
    pub common_prefix: bool,
    /// How the index is divided, if it has two levels.
    pub partitions: Option<IndexPartitions>,
    /// Order of the file's user keys.
    pub order: KeyOrder,
}

/// Where a partition of an index ends (`FlushBlockBySizePolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPartitions {
    /// Bytes of a partition (`metadata_block_size`).
    pub block_size: u64,
    /// Percentage of free bytes at which a partition may end (`block_size_deviation`).
    pub deviation: u64,
}

impl IndexPartitions {
    /// `block_size` without the free bytes.
    pub fn least_bytes(&self) -> u64 {
        let percent = 100_u64.saturating_sub(self.deviation);
        self.block_size.saturating_mul(percent).div_ceil(100)
    }
}

impl IndexSettings {
    /// Whether values are delta coded: property `rocksdb.index.value.is.delta.encoded`.
    pub fn delta_values(&self) -> bool {
        self.format_version >= FIRST_DELTA_VALUE_VERSION
    }

    /// Coding of an index with these settings, whose separators are user keys or not.
    pub fn coding(&self, user_keys: bool) -> IndexCoding {
        IndexCoding {
            user_keys,
            delta_values: self.delta_values(),
            first_keys: false,
            format_version: self.format_version,
            restart_interval: u32::try_from(self.restart_interval).unwrap_or(u32::MAX),
            order: Some(self.order),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::builder::{push_reverse_separator, push_separator, push_successor};
    use super::*;
    use crate::key::{join, pack_tag};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn user_keys() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
        let byte = prop::sample::select(vec![0u8, 1, 2, 254, 255]);
        proptest::collection::btree_set(proptest::collection::vec(byte, 0..5), 0..60)
    }

    proptest! {
        #[test]
        fn separators_lie_between(one: Vec<u8>, other: Vec<u8>) {
            let (a, b) = if one < other { (one, other) } else { (other, one) };
            if a == b {
                return Ok(());
            }
            let mut sep = Vec::new();
            push_separator(&a, &b, &mut sep);
            prop_assert!(a <= sep && sep < b, "{:?} {:?} {:?}", a, sep, b);
            let mut successor = Vec::new();
            push_successor(&a, &mut successor);
            prop_assert!(a <= successor);
            let mut reverse = Vec::new();
            push_reverse_separator(&b, &a, &mut reverse);
            prop_assert!(a < reverse && reverse <= b, "{:?} {:?} {:?}", a, reverse, b);
        }

        #[test]
        fn indexes_round_trip(
            keys in user_keys(),
            format_version in 2u32..=8,
            restart_interval in 1usize..5,
            same_key_twice: bool,
            is_reverse: bool,
            shortening in prop::sample::select(vec![
                IndexShortening::None,
                IndexShortening::Separators,
                IndexShortening::SeparatorsAndSuccessor,
            ]),
        ) {
            let mut keys: Vec<_> = keys.iter().map(|key| join(key, pack_tag(9, 1))).collect();
            let order = match is_reverse {
                true => KeyOrder::ReverseBytewise,
                false => KeyOrder::Bytewise,
            };
            if is_reverse {
                keys.reverse();
            }
            if let (true, Some(first)) = (same_key_twice, keys.first().cloned()) {
                let (user_key, _) = split(&first).expect("joined above");
                keys.insert(1, join(user_key, pack_tag(8, 1)));
            }
            let settings = IndexSettings {
                format_version,
                restart_interval,
                shortening,
                common_prefix: format_version >= 8,
                partitions: None,
                order,
            };
            let mut builder = IndexBuilder::new(settings);
            let mut handle = BlockHandle { offset: 0, size: 0 };
            let mut handles = Vec::new();
            for (i, key) in keys.iter().enumerate() {
                handle = BlockHandle {
                    offset: handle.checked_end().expect("small"),
                    size: (i as u64 * 7919) % 5000,
                };
                handles.push(handle);
                builder.add(key, keys.get(i + 1).map(Vec::as_slice), handle);
            }
            let user_keys = builder.has_user_keys();
            prop_assert_eq!(
                user_keys,
                format_version >= 3 && !(same_key_twice && keys.len() > 1)
            );
            let (block, coding) = (builder.finish(), settings.coding(user_keys));
            let decoded = decode_index(&block, coding)?;
            if !keys.is_empty() {
                let (entries, tags) = decode_written_index(&block, coding)?;
                prop_assert_eq!(&entries, &decoded);
                prop_assert_eq!(tags.len(), if user_keys { 0 } else { keys.len() });
            }
            prop_assert_eq!(decoded.len(), keys.len());
            for (i, entry) in decoded.iter().enumerate() {
                prop_assert_eq!(entry.handle, handles[i]);
                let (user_key, _) = split(&keys[i]).expect("joined above");
                prop_assert!(!order.is_before(&entry.separator, user_key));
                if let Some(next) = keys.get(i + 1) {
                    let (next, _) = split(next).expect("joined above");
                    prop_assert!(!order.is_before(next, &entry.separator));
                }
            }
        }

        #[test]
        fn decoding_is_total(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            restarts in 0u32..3,
            user_keys: bool,
            delta_values: bool,
            first_keys: bool,
            is_ordered: bool,
            format_version in 2u32..=8,
        ) {
            let mut block = bytes;
            block.extend_from_slice(&0u32.to_le_bytes());
            block.extend_from_slice(&restarts.to_le_bytes());
            let _ = decode_index(&block, IndexCoding {
                user_keys,
                delta_values,
                first_keys,
                format_version,
                restart_interval: 1,
                order: is_ordered.then_some(KeyOrder::Bytewise),
            });
        }
    }
}
