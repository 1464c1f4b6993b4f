//! Blocks of keys and values: data blocks, the properties block and the metaindex; index blocks share
//! the syntax (`table/block_based/block_builder.cc`, `block.cc`, `data_block_footer.cc`).
//!
//! ```text
//! [common user-key prefix]            restarts[0] bytes; format_version 8
//! entry ...                           shared varint32 | non_shared varint32 | value_len varint32
//!                                     | key[shared..] | value
//! [values section]                    with separated keys and values: all values, in order
//! restart offsets, u32 each
//! [hash index: buckets u8 each, their number u16]
//! [offset of the values section u32]
//! packed word u32                     bits 0-27 number of restarts, 28 separated, 29 uniform keys,
//!                                     30 reserved, 31 hash index
//! ```
//!
//! With separated keys and values, an entry at a restart point carries its value's offset in the
//! values section as one more varint32, and no entry has its value inline.

mod builder;

pub use builder::{BlockBuilder, BlockLayout};

use crate::coding::{Cursor, le32};
use crate::error::{Error, Result};

const SEPARATED_BIT: u32 = 1 << 28;
const UNIFORM_BIT: u32 = 1 << 29;
const RESERVED_BIT: u32 = 1 << 30;
const HASH_INDEX_BIT: u32 = 1 << 31;
const RESTARTS_MASK: u32 = SEPARATED_BIT - 1;

/// Bytes of a restart offset, of the values offset and of the packed word.
const WORD: usize = 4;

/// An uncompressed block whose frame was checked.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    bytes: &'a [u8],
    /// Length of the common user-key prefix at the block's start.
    prefix_len: usize,
    keys_end: usize,
    /// Start of the values section, if keys and values are separated.
    values_start: Option<usize>,
    restarts_start: usize,
    num_restarts: usize,
    is_uniform: bool,
}

/// Whether an entry says how long its value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// A varint32 length stands before the key.
    Sized,
    /// The value's own encoding tells its end (delta-coded index values); [`Entries::end_value`]
    /// must be called after each entry.
    SelfDelimiting,
}

/// One entry as it is stored: the key as a difference to the key before.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Bytes shared with the key before.
    pub shared: usize,
    /// Bytes that come between the shared ones and `suffix`: the block's common prefix where it was
    /// stripped.
    pub prefix: &'a [u8],
    /// The rest of the key.
    pub suffix: &'a [u8],
    /// The value; with [`ValueForm::SelfDelimiting`] everything from its start to its section's end.
    pub value: &'a [u8],
    /// Offset of the entry in the block.
    pub offset: usize,
    /// Offset of the value in the block.
    pub value_offset: usize,
}

impl Entry<'_> {
    /// Makes `key`, which holds the key before, this entry's key.
    #[inline]
    pub fn restore_key(&self, key: &mut Vec<u8>) {
        key.truncate(self.shared);
        key.extend_from_slice(self.prefix);
        key.extend_from_slice(self.suffix);
    }
}

impl<'a> Block<'a> {
    /// Checks the frame of an uncompressed block.
    ///
    /// # Errors
    /// Corruption if the sections do not fit, or reserved bits are set.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let short = || Error::corruption(bytes.len(), "block too short for its frame");
        let packed_at = bytes.len().checked_sub(WORD).ok_or_else(short)?;
        let packed = le32(&bytes[packed_at..]);
        if packed & RESERVED_BIT != 0 {
            return Err(Error::corruption(
                packed_at,
                "reserved bit in a block footer",
            ));
        }
        let num_restarts = (packed & RESTARTS_MASK) as usize;
        let mut end = packed_at;
        let mut values_start = None;
        if packed & SEPARATED_BIT != 0 {
            end = end.checked_sub(WORD).ok_or_else(short)?;
            values_start = Some(le32(&bytes[end..]) as usize);
        }
        if packed & HASH_INDEX_BIT != 0 {
            end = end.checked_sub(2).ok_or_else(short)?;
            let buckets = u16::from_le_bytes([bytes[end], bytes[end + 1]]);
            end = end.checked_sub(usize::from(buckets)).ok_or_else(short)?;
        }
        let restarts_start = num_restarts
            .checked_mul(WORD)
            .and_then(|len| end.checked_sub(len))
            .ok_or_else(|| {
                Error::corruption(packed_at, format!("{num_restarts} restarts do not fit"))
            })?;
        let keys_end = values_start.unwrap_or(restarts_start);
        if keys_end > restarts_start {
            return Err(Error::corruption(end, "values section out of range"));
        }
        let mut block = Self {
            bytes,
            prefix_len: 0,
            keys_end,
            values_start,
            restarts_start,
            num_restarts,
            is_uniform: packed & UNIFORM_BIT != 0,
        };
        block.check_restarts()?;
        if num_restarts > 0 {
            block.prefix_len = block.restart(0);
        }
        Ok(block)
    }

    /// Restart offsets ascend strictly and lie in the keys section; an empty block has the one
    /// offset 0 (`block.cc:Block::Block`).
    fn check_restarts(&self) -> Result<()> {
        if self.num_restarts == 0 {
            return if self.keys_end == 0 {
                Ok(())
            } else {
                Err(Error::corruption(
                    self.restarts_start,
                    "entries without a restart",
                ))
            };
        }
        let mut before = None;
        for i in 0..self.num_restarts {
            let restart = self.restart(i);
            let in_range = restart < self.keys_end || (self.keys_end == 0 && restart == 0);
            if !in_range || before.is_some_and(|b| b >= restart) {
                return Err(Error::corruption(
                    self.restarts_start + WORD * i,
                    format!("restart {i} at {restart} is out of order or range"),
                ));
            }
            before = Some(restart);
        }
        Ok(())
    }

    /// Offset of restart point `i`, of which there are more.
    pub(crate) fn restart(&self, i: usize) -> usize {
        le32(&self.bytes[self.restarts_start + WORD * i..]) as usize
    }

    /// Number of restart points.
    pub fn num_restarts(&self) -> usize {
        self.num_restarts
    }

    /// Whether its writer found the keys evenly spread, which tells readers how to search.
    pub fn is_uniform(&self) -> bool {
        self.is_uniform
    }

    /// Whether keys and values are separated.
    pub fn is_separated(&self) -> bool {
        self.values_start.is_some()
    }

    /// The user-key prefix that all keys share and that is stored once.
    pub fn common_prefix(&self) -> &'a [u8] {
        &self.bytes[..self.prefix_len]
    }

    /// All entries in order.
    ///
    /// `restart_interval` is the file's property `rocksdb.data.block.restart.interval` (or index…);
    /// it matters only where keys and values are separated.
    ///
    /// # Errors
    /// Corruption if keys and values are separated and the interval is 0.
    pub fn entries(&self, form: ValueForm, restart_interval: u32) -> Result<Entries<'a>> {
        if self.is_separated() && restart_interval == 0 {
            return Err(Error::corruption(
                0,
                "separated keys and values without a restart interval property",
            ));
        }
        Ok(Entries {
            block: *self,
            form,
            plain: form == ValueForm::Sized && !self.is_separated(),
            restart_interval: restart_interval as usize,
            at: self.prefix_len,
            key_len: 0,
            index: 0,
            value_end: self.values_start.unwrap_or(0),
        })
    }
}

/// Forward reader over a block's entries.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    block: Block<'a>,
    form: ValueForm,
    /// Whether each value stands behind its key, with its length in front.
    plain: bool,
    restart_interval: usize,
    at: usize,
    /// Length of the key before, against which `shared` is checked.
    key_len: usize,
    index: usize,
    /// End of the value before, in the values section.
    value_end: usize,
}

/// Where an entry lies in its block, all checked.
struct Place {
    shared: usize,
    suffix_at: usize,
    suffix_len: usize,
    value_at: usize,
    value_len: usize,
    /// Where the next entry starts.
    end: usize,
}

impl<'a> Entries<'a> {
    /// The next entry, or `None` behind the last.
    ///
    /// # Errors
    /// Corruption if the entry is malformed; the reader must not be used further then.
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<Entry<'a>>> {
        let start = self.at;
        if start >= self.block.keys_end {
            return Ok(None);
        }
        let place = match self.place_short() {
            Some(place) => place,
            None => self.place_any().map_err(|e| e.at(start as u64))?,
        };
        let prefix = if place.shared == 0 {
            self.block.common_prefix()
        } else {
            &[]
        };
        let bytes = self.block.bytes;
        self.at = place.end;
        self.key_len = place.shared + prefix.len() + place.suffix_len;
        self.index += 1;
        Ok(Some(Entry {
            shared: place.shared,
            prefix,
            suffix: &bytes[place.suffix_at..][..place.suffix_len],
            value: &bytes[place.value_at..][..place.value_len],
            offset: start,
            value_offset: place.value_at,
        }))
    }

    /// Where the next entry lies if it is plain and its lengths are small, as nearly all are. `None`
    /// leaves it, sound or not, to [`Entries::place_any`].
    #[inline]
    fn place_short(&self) -> Option<Place> {
        if !self.plain {
            return None;
        }
        let keys = self.block.bytes.get(..self.block.keys_end)?;
        let &[shared, non_shared, low, high] = keys.get(self.at..)?.first_chunk()?;
        let (value_len, header) = match (low, high) {
            (0..0x80, _) => (usize::from(low), 3),
            (_, 0..0x80) => (usize::from(low & 0x7f) | usize::from(high) << 7, 4),
            _ => return None,
        };
        if (shared | non_shared) >= 0x80 || usize::from(shared) > self.key_len {
            return None;
        }
        let suffix_at = self.at + header;
        let value_at = suffix_at + usize::from(non_shared);
        let end = value_at + value_len;
        (end <= keys.len()).then_some(Place {
            shared: usize::from(shared),
            suffix_at,
            suffix_len: usize::from(non_shared),
            value_at,
            value_len,
            end,
        })
    }

    /// Where the next entry lies, of whatever form.
    fn place_any(&mut self) -> Result<Place> {
        let start = self.at;
        let mut cursor = Cursor::new(&self.block.bytes[start..self.block.keys_end]);
        let shared = cursor.varint32()? as usize;
        let suffix_len = cursor.varint32()? as usize;
        let value_len = match self.form {
            ValueForm::Sized => Some(cursor.varint32()? as usize),
            ValueForm::SelfDelimiting => None,
        };
        if shared > self.key_len {
            return Err(Error::corruption(
                0,
                format!("{shared} bytes shared with a key of {}", self.key_len),
            ));
        }
        if self.block.is_separated() {
            return self.place_separated(cursor, shared, suffix_len, value_len);
        }
        let suffix_at = start + cursor.offset();
        cursor.take(suffix_len)?;
        let value_at = start + cursor.offset();
        let value_len = match value_len {
            Some(len) => cursor.take(len)?.len(),
            None => cursor.rest().len(),
        };
        Ok(Place {
            shared,
            suffix_at,
            suffix_len,
            value_at,
            value_len,
            end: start + cursor.offset(),
        })
    }

    fn place_separated(
        &mut self,
        mut cursor: Cursor<'a>,
        shared: usize,
        suffix_len: usize,
        value_len: Option<usize>,
    ) -> Result<Place> {
        let block = &self.block;
        let values_start = block.values_start.unwrap_or(0);
        let value_at = if self.index.is_multiple_of(self.restart_interval) {
            if shared != 0 {
                return Err(Error::corruption(0, "a restart point shares key bytes"));
            }
            let offset = values_start.saturating_add(cursor.varint32()? as usize);
            if offset < self.value_end {
                return Err(Error::corruption(0, "values overlap"));
            }
            offset
        } else {
            self.value_end
        };
        let suffix_at = self.at + cursor.offset();
        cursor.take(suffix_len)?;
        let rest = block
            .bytes
            .get(value_at..block.restarts_start)
            .ok_or_else(|| Error::corruption(0, "value outside the values section"))?;
        if value_len.is_some_and(|len| len > rest.len()) {
            return Err(Error::corruption(
                0,
                "value reaches past the values section",
            ));
        }
        self.value_end = value_at + value_len.unwrap_or(0);
        Ok(Place {
            shared,
            suffix_at,
            suffix_len,
            value_at,
            value_len: value_len.unwrap_or(rest.len()),
            end: self.at + cursor.offset(),
        })
    }

    /// Says that the last entry's self-delimiting value was `len` bytes long.
    pub fn end_value(&mut self, len: usize) {
        if self.block.is_separated() {
            self.value_end += len;
        } else {
            self.at += len;
        }
    }
}

/// Length of the longest common prefix.
#[inline]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    const WORD: usize = 8;
    let len = a.len().min(b.len());
    let mut at = 0;
    while at + WORD <= len {
        let differing = crate::coding::le64(&a[at..]) ^ crate::coding::le64(&b[at..]);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / WORD;
        }
        at += WORD;
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_block_says_whether_its_keys_are_evenly_spread() {
        for (bit, is_uniform) in [(0, false), (UNIFORM_BIT, true)] {
            let bytes = [0_u32.to_le_bytes(), (1 | bit).to_le_bytes()].concat();
            let block = Block::parse(&bytes).expect("an empty block");
            assert_eq!(block.is_uniform(), is_uniform);
        }
    }

    fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut out = Vec::new();
        let mut key = Vec::new();
        let mut entries = Block::parse(bytes)?.entries(ValueForm::Sized, 3)?;
        while let Some(entry) = entries.next_entry()? {
            entry.restore_key(&mut key);
            out.push((key.clone(), entry.value.to_vec()));
        }
        Ok(out)
    }

    fn keys() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
        let key = proptest::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..6);
        let value = proptest::collection::vec(any::<u8>(), 0..5);
        proptest::collection::btree_map(key, value, 0..40)
    }

    proptest! {
        #[test]
        fn blocks_round_trip(
            entries in keys(),
            front in proptest::collection::vec(any::<u8>(), 0..20),
            restart_interval in 1usize..20,
            delta_keys: bool,
            strip: bool,
        ) {
            let layout = BlockLayout {
                delta_keys,
                common_prefix: strip && delta_keys,
                ..BlockLayout::plain(restart_interval)
            };
            let entries: Vec<_> = entries
                .into_iter()
                .map(|(key, value)| ([&front[..], &key].concat(), value))
                .collect();
            let mut builder = BlockBuilder::new(layout);
            for round in 0..2 {
                for (key, value) in &entries {
                    builder.add(key, value);
                }
                let block = builder.finish();
                prop_assert_eq!(&read(block)?, &entries, "round {}", round);
                if layout.common_prefix && !entries.is_empty() {
                    prop_assert!(Block::parse(block)?.common_prefix().starts_with(&front));
                }
            }
        }

        #[test]
        fn reading_is_total(
            entries in keys(),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut builder = BlockBuilder::new(BlockLayout::plain(2));
            for (key, value) in &entries {
                builder.add(key, value);
            }
            let mut block = builder.finish().to_vec();
            for (at, byte) in edits {
                let at = at.index(block.len());
                block[at] = byte;
            }
            let _ = read(&block);
        }

        #[test]
        fn common_prefixes_are_the_longest(a: Vec<u8>, b: Vec<u8>, front: Vec<u8>) {
            let (a, b) = ([&front[..], &a].concat(), [&front[..], &b].concat());
            let expected = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(common_prefix_len(&a, &b), expected);
        }
    }

    #[test]
    fn separated_values_are_found() {
        // Two intervals of two; the values "1" "22" "333" stand together.
        let keys = [
            &[0, 1, 1, 0, b'a'][..],
            &[1, 1, 2, b'b'],
            &[0, 1, 3, 3, b'c'],
        ]
        .concat();
        let mut block = keys.clone();
        block.extend_from_slice(b"122333");
        for word in [0, 9, keys.len() as u32, 2 | SEPARATED_BIT] {
            block.extend_from_slice(&u32::to_le_bytes(word));
        }
        let parsed = Block::parse(&block).expect("well formed");
        let mut entries = parsed.entries(ValueForm::Sized, 2).expect("interval");
        let mut found = Vec::new();
        while let Some(entry) = entries.next_entry().expect("well formed") {
            found.push(entry.value.to_vec());
        }
        assert_eq!(found, [&b"1"[..], b"22", b"333"]);
        assert!(parsed.entries(ValueForm::Sized, 0).is_err());
    }
}
