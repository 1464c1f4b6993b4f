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
mod entries;
mod hash_index;
#[cfg(test)]
mod tests;

pub use builder::{BlockBuilder, BlockLayout};
pub use entries::{Entries, Entry, ValueForm};
pub use hash_index::buckets_per_key;

use crate::coding::le32;
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
    /// Buckets of the hash index; none without one.
    buckets: &'a [u8],
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
        let mut buckets = &[][..];
        if packed & SEPARATED_BIT != 0 {
            end = end.checked_sub(WORD).ok_or_else(short)?;
            values_start = Some(le32(&bytes[end..]) as usize);
        }
        if packed & HASH_INDEX_BIT != 0 {
            end = end.checked_sub(2).ok_or_else(short)?;
            let num_buckets = u16::from_le_bytes([bytes[end], bytes[end + 1]]);
            let from = end
                .checked_sub(usize::from(num_buckets))
                .ok_or_else(short)?;
            buckets = &bytes[from..end];
            end = from;
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
            buckets,
        };
        block.check_restarts()?;
        if num_restarts > 0 {
            block.prefix_len = block.restart(0);
        }
        Ok(block)
    }

    /// Restart offsets ascend strictly and are in the keys section; an empty block has only the offset 0
    /// (`block.cc:Block::Block`).
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

    /// Offset of restart point `i`, which must exist.
    pub fn restart(&self, i: usize) -> usize {
        le32(&self.bytes[self.restarts_start + WORD * i..]) as usize
    }

    /// Number of restart points.
    pub fn num_restarts(&self) -> usize {
        self.num_restarts
    }

    /// Whether the writer found the keys evenly spread. Readers choose their search by it.
    pub fn is_uniform(&self) -> bool {
        self.is_uniform
    }

    /// Whether lookups find a user key of restart interval `restart`, according to the hash index.
    #[inline]
    pub fn is_found(&self, user_key: &[u8], restart: usize) -> bool {
        self.buckets.is_empty() || hash_index::finds(self.buckets, user_key, restart)
    }

    /// Whether there is a hash index.
    pub fn has_hash_index(&self) -> bool {
        !self.buckets.is_empty()
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
    /// `restart_interval` is the file's property `rocksdb.data.block.restart.interval` (or index…); it matters only if
    /// keys and values are separated.
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
        Ok(Entries::new(*self, form, restart_interval))
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
