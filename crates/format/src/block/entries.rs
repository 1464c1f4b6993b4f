//! A block's entries, one after another.

use super::Block;
use crate::coding::Cursor;
use crate::error::{Error, Result};

/// Whether an entry stores the length of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// A varint32 length in front of the key.
    Sized,
    /// The value's own encoding determines its end (delta-coded index values); [`Entries::end_value`] must be called
    /// after each entry.
    SelfDelimiting,
}

/// One entry as it is stored: the key as a difference to the key before.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Bytes shared with the previous key.
    pub shared: usize,
    /// Bytes between the shared ones and `suffix`: the block's common prefix, if it was stripped.
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
    /// Turns `key`, which has the previous key, into this entry's key.
    #[inline]
    pub fn restore_key(&self, key: &mut Vec<u8>) {
        key.truncate(self.shared);
        key.extend_from_slice(self.prefix);
        key.extend_from_slice(self.suffix);
    }
}

/// Forward reader over a block's entries.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    block: Block<'a>,
    form: ValueForm,
    /// Whether each value follows its key, with its length in front.
    plain: bool,
    restart_interval: usize,
    at: usize,
    /// Length of the previous key, against which `shared` is checked.
    key_len: usize,
    index: usize,
    /// End of the previous value, in the values section.
    value_end: usize,
}

/// Offsets of an entry in its block, all checked.
struct EntryOffsets {
    shared: usize,
    suffix_at: usize,
    suffix_len: usize,
    value_at: usize,
    value_len: usize,
    /// Begin of the next entry.
    end: usize,
}

impl<'a> Entries<'a> {
    /// The entries of `block`, whose restart interval is not 0 if keys and values are separated.
    pub(super) fn new(block: Block<'a>, form: ValueForm, restart_interval: u32) -> Self {
        Self {
            block,
            form,
            plain: form == ValueForm::Sized && !block.is_separated(),
            restart_interval: restart_interval as usize,
            at: block.prefix_len,
            key_len: 0,
            index: 0,
            value_end: block.values_start.unwrap_or(0),
        }
    }

    /// The next entry, or `None` behind the last.
    ///
    /// # Errors
    /// Corruption if the entry is malformed. The reader must not be used any more then.
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

    /// The place of the next entry if it is plain and its lengths are small, as nearly all are. `None` leaves it, sound or
    /// not, to [`Entries::place_any`].
    #[inline]
    fn place_short(&self) -> Option<EntryOffsets> {
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
        (end <= keys.len()).then_some(EntryOffsets {
            shared: usize::from(shared),
            suffix_at,
            suffix_len: usize::from(non_shared),
            value_at,
            value_len,
            end,
        })
    }

    /// The place of the next entry, of any form.
    fn place_any(&mut self) -> Result<EntryOffsets> {
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
        Ok(EntryOffsets {
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
    ) -> Result<EntryOffsets> {
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
        Ok(EntryOffsets {
            shared,
            suffix_at,
            suffix_len,
            value_at,
            value_len: value_len.unwrap_or(rest.len()),
            end: self.at + cursor.offset(),
        })
    }

    /// States that the last entry's self-delimiting value had `len` bytes.
    pub fn end_value(&mut self, len: usize) {
        if self.block.is_separated() {
            self.value_end += len;
        } else {
            self.at += len;
        }
    }
}
