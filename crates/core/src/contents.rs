//! The contents of a table's data blocks, found by decoding them one after another.

use rockmill_format::block::{Block, ValueForm};
use rockmill_format::key::{self, KeyOrder, ValueType};

use crate::error::{Error, Result};
use crate::hash::{ContentHash, entry_hash, kv_hash};
use crate::keys::{KeyFault, KeyRestorer};

/// Maximum bytes of long keys to keep, beside the last one. Entries that share much could have far longer keys than a
/// block stores.
const LONG_KEYS_BYTES: usize = 64 << 10;

/// The contents of a table's data blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Data blocks.
    pub blocks: u64,
    /// Blocks among them that the index marks as evenly spread.
    pub uniform_blocks: u64,
    /// Uncompressed bytes of the data blocks.
    pub uncompressed_bytes: u64,
    /// Tombstones for single keys.
    pub deletions: u64,
    /// Merge operands.
    pub merge_operands: u64,
    /// First internal key, in the order of the file.
    pub smallest: Vec<u8>,
    /// Last internal key, in the order of the file.
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

    /// Counts an entry that is not a Put.
    fn count_other(&mut self, kind: ValueType) {
        self.deletions += u64::from(kind.is_tombstone());
        self.merge_operands += u64::from(kind == ValueType::Merge);
    }
}

/// The place of a data block in its table.
#[derive(Debug, Clone, Copy)]
pub struct BlockContext<'a> {
    /// Name of the file, for errors.
    pub file: &'a str,
    /// Offset in the file, for errors.
    pub offset: u64,
    /// Index separator of the block before, as a user key.
    pub before: Option<&'a [u8]>,
    /// Index separator of the block, as a user key.
    pub separator: &'a [u8],
    /// Whether the index has user keys. A user key may lie on both sides of a separator only if separators carry
    /// sequence numbers.
    pub user_keys: bool,
    /// The file's `rocksdb.data.block.restart.interval`.
    pub restart_interval: u32,
}

/// Decodes a table's data blocks in order. Checks that keys ascend strictly and lie within their index separators, and
/// that the entries at restart points, which readers search, share nothing.
#[derive(Debug, Default)]
pub struct ContentsReader {
    order: KeyOrder,
    keys: KeyRestorer,
    contents: Contents,
}

impl ContentsReader {
    /// A reader of a table whose user keys are in this order.
    pub fn new(order: KeyOrder) -> Self {
        Self {
            order,
            keys: KeyRestorer::new(order),
            contents: Contents::default(),
        }
    }

    /// Adds the next block, uncompressed, and calls `each` with every entry's user key, tag and value.
    ///
    /// # Errors
    /// Corruption, and the errors of `each`. After an error, the reader must not be used.
    #[inline]
    pub fn block(
        &mut self,
        payload: &[u8],
        place: &BlockContext<'_>,
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
        let restart_at = |i| match i < block.num_restarts() {
            true => block.restart(i),
            false => usize::MAX,
        };
        let (mut restarts, mut next_restart) = (0, restart_at(0));
        let has_hash_index = block.has_hash_index();
        loop {
            let entry = match entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(e) => return Err(fail(e)),
            };
            if entry.offset >= next_restart {
                if entry.offset > next_restart || entry.shared != 0 {
                    return Err(corrupt("a restart point is not where a whole key begins"));
                }
                restarts += 1;
                next_restart = restart_at(restarts);
            }
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
            // Keys ascend, so it is enough to check the first one.
            if self.contents.entries() == entries_before {
                if place.is_before(self.order, user_key) {
                    return Err(corrupt("a key lies before its block's range in the index"));
                }
                if entries_before == 0 {
                    self.contents.smallest = key::join(user_key, tag);
                }
            }
            if has_hash_index && !block.is_found(user_key, restarts - 1) {
                return Err(corrupt("the hash index of a block leads past a key"));
            }
            self.contents.count(user_key, tag, entry.value);
            each(user_key, tag, entry.value)?;
        }
        if self.contents.entries() > entries_before {
            if restarts < block.num_restarts() {
                return Err(corrupt("a restart point is not where a whole key begins"));
            }
            let key = self.keys.last();
            let user_key = self.keys.user_key(&key);
            // It is enough to check the last one.
            if self.order.is_before(place.separator, user_key) {
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

    /// Like [`ContentsReader::block`] for a table whose order of keys is not known here: neither the order nor the
    /// separators are checked.
    ///
    /// # Errors
    /// The errors of [`ContentsReader::block`].
    pub fn block_in_any_order(
        &mut self,
        payload: &[u8],
        place: &BlockContext<'_>,
        mut each: impl FnMut(&[u8], u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let fail = |e: rockmill_format::Error| Error::format(place.file, e.at(place.offset));
        let corrupt = |what: &str| Error::corruption(place.file, place.offset, what);
        let misplaced = || corrupt("a restart point is not where a whole key begins");
        let block = Block::parse(payload).map_err(fail)?;
        let interval = place.restart_interval;
        let mut entries = block.entries(ValueForm::Sized, interval).map_err(fail)?;
        let mut restarts = (0..block.num_restarts())
            .map(|i| block.restart(i))
            .peekable();
        let contents = &mut self.contents;
        contents.blocks += 1;
        contents.uniform_blocks += u64::from(block.is_uniform());
        contents.uncompressed_bytes += payload.len() as u64;
        let mut internal_key = Vec::new();
        while let Some(entry) = entries.next_entry().map_err(fail)? {
            if restarts.next_if_eq(&entry.offset).is_some() && entry.shared != 0 {
                return Err(misplaced());
            }
            entry.restore_key(&mut internal_key);
            let (user_key, tag) =
                key::split(&internal_key).ok_or_else(|| corrupt(KeyFault::TooShort.what()))?;
            let kind = ValueType::from_code(key::tag_type(tag))
                .ok_or_else(|| corrupt("unknown value type"))?;
            contents.count_other(kind);
            if contents.entries() == 0 {
                contents.smallest.clone_from(&internal_key);
            }
            contents.count(user_key, tag, entry.value);
            each(user_key, tag, entry.value)?;
        }
        if !internal_key.is_empty() {
            contents.largest = internal_key;
            if restarts.next().is_some() {
                return Err(misplaced());
            }
        }
        Ok(())
    }

    /// The contents of the blocks so far.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The contents of all blocks.
    pub fn finish(self) -> Contents {
        self.contents
    }
}

impl BlockContext<'_> {
    /// Whether a user key belongs to a block before.
    fn is_before(&self, order: KeyOrder, user_key: &[u8]) -> bool {
        self.before.is_some_and(|end| {
            order.is_before(user_key, end) || (self.user_keys && user_key == end)
        })
    }
}

#[cfg(test)]
mod tests {
    use rockmill_format::block::{BlockBuilder, BlockLayout};

    use super::*;

    #[test]
    fn a_restart_point_that_was_moved_is_an_error() {
        const RESTART_BYTES: usize = 4;
        let place = BlockContext {
            file: "000001.sst",
            offset: 0,
            before: None,
            separator: b"key9",
            user_keys: true,
            restart_interval: 2,
        };
        let mut builder = BlockBuilder::new(BlockLayout::plain(2));
        for last in b"012345" {
            let key = [b"key", &[*last][..]].concat();
            builder.add(&key::join(&key, 0x101), b"some value");
        }
        let payload = builder.finish().to_vec();
        let read = |payload: &[u8]| {
            let (mut ordered, mut unordered) = <(ContentsReader, ContentsReader)>::default();
            let any_order = unordered.block_in_any_order(payload, &place, |_, _, _| Ok(()));
            let in_order = ordered.block(payload, &place, |_, _, _| Ok(()));
            assert_eq!(in_order.is_ok(), any_order.is_ok());
            in_order.map(|()| assert_eq!(ordered.contents(), unordered.contents()))
        };
        read(&payload).expect("it is sound");
        let block = Block::parse(&payload).expect("it is sound");
        let offsets: Vec<_> = (0..block.num_restarts())
            .map(|i| block.restart(i))
            .collect();
        assert_eq!(offsets.len(), 3);
        let array = payload.len() - (offsets.len() + 1) * RESTART_BYTES;
        for (i, &offset) in offsets.iter().enumerate().skip(1) {
            for moved in (0..array).filter(|&moved| moved != offset) {
                let mut damaged = payload.clone();
                let moved = u32::try_from(moved).expect("it is small");
                damaged[array + i * RESTART_BYTES..][..RESTART_BYTES]
                    .copy_from_slice(&moved.to_le_bytes());
                read(&damaged).expect_err("nothing begins there, or no whole key");
            }
        }
    }
}
