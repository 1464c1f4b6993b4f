//! What a table's data blocks hold, found by decoding them one after another.

use rockmill_format::block::{Block, ValueForm};
use rockmill_format::key::{self, ValueType};

use crate::backend::{ContentHash, entry_hash, kv_hash};
use crate::error::{Error, Result};
use crate::keys::KeyRestorer;

/// Most bytes of long keys to keep, beside the last: entries that share much could claim far more than a
/// block stores.
const LONG_KEYS_BYTES: usize = 64 << 10;

/// What a table's data blocks hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Data blocks.
    pub blocks: u64,
    /// Of those, blocks that say that their keys are evenly spread.
    pub uniform_blocks: u64,
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
    /// Smallest sequence number, `u64::MAX` without entries.
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

impl Default for Contents {
    fn default() -> Self {
        Self {
            blocks: 0,
            uniform_blocks: 0,
            uncompressed_bytes: 0,
            deletions: 0,
            merge_operands: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            smallest_seqno: u64::MAX,
            largest_seqno: 0,
            key_bytes: 0,
            value_bytes: 0,
            content: ContentHash::default(),
        }
    }
}

impl Contents {
    /// Number of entries in the data blocks.
    pub fn entries(&self) -> u64 {
        self.content.entries()
    }

    #[inline]
    fn count(&mut self, user_key: &[u8], tag: u64, value: &[u8]) {
        let sequence = key::tag_sequence(tag);
        self.smallest_seqno = self.smallest_seqno.min(sequence);
        self.largest_seqno = self.largest_seqno.max(sequence);
        self.key_bytes += (user_key.len() + key::TAG_SIZE) as u64;
        self.value_bytes += value.len() as u64;
        self.content.push(entry_hash(kv_hash(user_key, value), tag));
    }

    /// What an entry that is not a Put counts besides.
    fn count_other(&mut self, kind: ValueType) {
        self.deletions += u64::from(matches!(
            kind,
            ValueType::Deletion | ValueType::SingleDeletion | ValueType::DeletionWithTimestamp
        ));
        self.merge_operands += u64::from(kind == ValueType::Merge);
    }
}

/// Where a data block stands in its table.
#[derive(Debug, Clone, Copy)]
pub struct BlockPlace<'a> {
    /// Name of the file, for errors.
    pub file: &'a str,
    /// Offset in the file, for errors.
    pub offset: u64,
    /// Index separator of the block before, as a user key.
    pub before: Option<&'a [u8]>,
    /// Index separator of the block, as a user key.
    pub separator: &'a [u8],
    /// Whether the index has user keys. Only where separators carry sequence numbers may a user key lie on
    /// both sides of one.
    pub user_keys: bool,
    /// The file's `rocksdb.data.block.restart.interval`.
    pub restart_interval: u32,
}

/// Decodes a table's data blocks in order; checks that keys ascend strictly and lie within their index
/// separators.
#[derive(Debug, Default)]
pub struct ContentsReader {
    keys: KeyRestorer,
    contents: Contents,
}

impl ContentsReader {
    /// Takes in the next block, uncompressed, and calls `each` with every entry's user key, tag and value.
    ///
    /// # Errors
    /// Corruption, and those of `each`; the reader must not be used further then.
    #[inline]
    pub fn block(
        &mut self,
        payload: &[u8],
        place: &BlockPlace<'_>,
        mut each: impl FnMut(&[u8], u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let fail = |e: rockmill_format::Error| Error::format(place.file, e.at(place.offset));
        let corrupt = |what: &str| Error::corruption(place.file, place.offset, what);
        let block = Block::parse(payload).map_err(fail)?;
        let mut entries = block
            .entries(ValueForm::Sized, place.restart_interval)
            .map_err(fail)?;
        self.contents.blocks += 1;
        self.contents.uniform_blocks += u64::from(block.is_uniform());
        self.contents.uncompressed_bytes += payload.len() as u64;
        let entries_before = self.contents.entries();
        loop {
            let entry = match entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(e) => return Err(fail(e)),
            };
            if self.keys.long_bytes() > LONG_KEYS_BYTES {
                self.keys.forget();
            }
            self.keys.step(&entry).map_err(|e| corrupt(e.what()))?;
            let key = self.keys.last();
            let (user_key, tag) = (self.keys.user_key(&key), key.tag);
            if key::tag_type(tag) != ValueType::Value as u8 {
                let kind = ValueType::from_code(key::tag_type(tag))
                    .ok_or_else(|| corrupt("unknown value type"))?;
                self.contents.count_other(kind);
            }
            // Keys ascend, so the first one answers for all.
            if self.contents.entries() == entries_before {
                if place.is_before(user_key) {
                    return Err(corrupt("a key lies before its block's range in the index"));
                }
                if entries_before == 0 {
                    self.contents.smallest = key::join(user_key, tag);
                }
            }
            self.contents.count(user_key, tag, entry.value);
            each(user_key, tag, entry.value)?;
        }
        if self.contents.entries() > entries_before {
            let key = self.keys.last();
            let user_key = self.keys.user_key(&key);
            // The last one answers for all.
            if user_key > place.separator {
                return Err(corrupt("a key lies behind its block's index separator"));
            }
            let largest = &mut self.contents.largest;
            largest.clear();
            largest.extend_from_slice(user_key);
            largest.extend_from_slice(&key.tag.to_le_bytes());
        }
        self.keys.forget();
        Ok(())
    }

    /// What the blocks so far hold.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// What the blocks hold.
    pub fn finish(self) -> Contents {
        self.contents
    }
}

impl BlockPlace<'_> {
    /// Whether a user key belongs to a block before.
    fn is_before(&self, user_key: &[u8]) -> bool {
        self.before
            .is_some_and(|end| user_key < end || (self.user_keys && user_key == end))
    }
}
