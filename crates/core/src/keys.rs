//! Keys of a table's entries, restored from differences and checked to ascend.

use rockmill_format::block::Entry;
use rockmill_format::key::{self, KeyOrder, TAG_SIZE};

/// Leading bytes of a user key that are kept as a number.
const PREFIX_BYTES: usize = 16;

/// The first 16 bytes of a user key as a big-endian number, zero padded: its order is the keys'
/// order except where two prefixes are equal.
#[inline]
pub fn key_prefix(user_key: &[u8]) -> u128 {
    let mut word = [0; PREFIX_BYTES];
    if let Some(head) = user_key.first_chunk::<PREFIX_BYTES>() {
        word = *head;
    } else {
        word[..user_key.len()].copy_from_slice(user_key);
    }
    u128::from_be_bytes(word)
}

/// A mask: exclusive or with it makes [`key_prefix`] of keys order as the keys do.
#[inline]
pub fn prefix_mask(order: KeyOrder) -> u128 {
    match order {
        KeyOrder::Bytewise => 0,
        KeyOrder::ReverseBytewise => u128::MAX,
    }
}

/// `FIRST[n]` is a mask of the first `n` bytes of a prefix.
const FIRST: [u128; PREFIX_BYTES + 1] = {
    let mut masks = [0; PREFIX_BYTES + 1];
    let mut n = 1;
    while n <= PREFIX_BYTES {
        masks[n] = u128::MAX << (8 * (PREFIX_BYTES - n));
        n += 1;
    }
    masks
};

/// A prefix's bytes. They are aligned, so that no enum packs them behind a tag of one byte: moving them would then wait
/// for partial stores.
#[derive(Debug, Clone, Copy)]
#[repr(align(8))]
struct Head([u8; PREFIX_BYTES]);

/// A key that [`KeyRestorer::restore`] has returned. A key of up to 16 bytes is stored here in full, a longer one in
/// the restorer.
#[derive(Debug, Clone, Copy)]
pub struct RestoredKey {
    head: Head,
    /// Sequence and type.
    pub tag: u64,
    len: usize,
    /// Where a long key starts.
    at: usize,
}

impl RestoredKey {
    /// [`key_prefix`] of the user key.
    #[inline]
    pub fn prefix(&self) -> u128 {
        u128::from_be_bytes(self.head.0)
    }

    /// Whether the user key is no longer than its prefix.
    #[inline]
    pub fn fits_prefix(&self) -> bool {
        self.len <= PREFIX_BYTES
    }

    /// Length of the user key.
    #[inline]
    pub fn user_len(&self) -> usize {
        self.len
    }
}

/// A fault of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// It has no room for a tag.
    TooShort,
    /// It does not come after the previous key.
    OutOfOrder,
}

impl KeyFault {
    /// One clause.
    pub fn what(self) -> &'static str {
        match self {
            Self::TooShort => "internal key shorter than 8 bytes",
            Self::OutOfOrder => "keys out of order",
        }
    }
}

/// Restores internal keys one after another, across the blocks of a table.
///
/// The previous user key is available as a number, so that short keys are restored and compared without touching
/// memory. Memory: all long keys since [`KeyRestorer::forget`].
#[derive(Debug, Default)]
pub struct KeyRestorer {
    /// Whether there is a previous key.
    any: bool,
    prefix: u128,
    tag: u64,
    len: usize,
    at: usize,
    /// [`prefix_mask`] of the keys' order.
    mask: u128,
    /// Internal keys whose user keys are longer than the prefix.
    long: Vec<u8>,
}

impl KeyRestorer {
    /// A restorer of keys in an order.
    pub fn new(order: KeyOrder) -> Self {
        let mask = prefix_mask(order);
        Self {
            // No key comes before this prefix.
            prefix: mask,
            mask,
            ..Self::default()
        }
    }

    /// Returns the next entry's key. Every entry of a block must be passed, in order.
    ///
    /// # Errors
    /// A [`KeyFault`]. After an error, the restorer must not be used.
    #[inline]
    pub fn restore(&mut self, entry: &Entry<'_>) -> Result<RestoredKey, KeyFault> {
        self.step(entry)?;
        Ok(self.last())
    }

    /// Restores the next entry's key, which [`KeyRestorer::last`] returns. A key moved out of a `Result` would wait for
    /// its own bytes, which are stored as two words and loaded as one.
    ///
    /// # Errors
    /// The errors of [`KeyRestorer::restore`].
    #[inline]
    pub(crate) fn step(&mut self, entry: &Entry<'_>) -> Result<(), KeyFault> {
        let (shared, suffix) = (entry.shared, entry.suffix);
        let Some((first, _)) = suffix.split_first_chunk::<TAG_SIZE>() else {
            return self.restore_any(entry);
        };
        let own = suffix.len() - TAG_SIZE;
        let len = shared + own;
        if len > PREFIX_BYTES || shared > self.len || !entry.prefix.is_empty() {
            return self.restore_any(entry);
        }
        // The tag behind the key allows to read up to eight own bytes as one word, and more as two.
        let mut bytes = u128::from(u64::from_be_bytes(*first)) << u64::BITS;
        if let Some(all) = suffix.first_chunk::<PREFIX_BYTES>() {
            bytes = u128::from_be_bytes(*all);
        }
        let moved = (bytes & FIRST[own]).wrapping_shr(8 * shared as u32);
        let prefix = (self.prefix & FIRST[shared]) | moved;
        let Some((_, tag)) = suffix.split_last_chunk::<TAG_SIZE>() else {
            return Err(KeyFault::TooShort);
        };
        let tag = u64::from_le_bytes(*tag);
        let ascends = if prefix == self.prefix {
            // A shorter key is the beginning of a longer one.
            let mask = self.mask as usize;
            !self.any || (len ^ mask, !tag) > (self.len ^ mask, !self.tag)
        } else {
            prefix ^ self.mask > self.prefix ^ self.mask
        };
        if !ascends {
            return Err(KeyFault::OutOfOrder);
        }
        self.keep(prefix, tag, len, 0);
        Ok(())
    }

    #[inline]
    fn keep(&mut self, prefix: u128, tag: u64, len: usize, at: usize) {
        self.any = true;
        (self.prefix, self.tag, self.len, self.at) = (prefix, tag, len, at);
    }

    /// The key that was restored last; an empty one if there is none.
    #[inline]
    pub(crate) fn last(&self) -> RestoredKey {
        RestoredKey {
            head: Head(self.prefix.to_be_bytes()),
            tag: self.tag,
            len: self.len,
            at: self.at,
        }
    }

    /// [`KeyRestorer::step`] for keys of any form.
    fn restore_any(&mut self, entry: &Entry<'_>) -> Result<(), KeyFault> {
        let start = self.long.len();
        self.repeat_last(entry.shared);
        self.long.extend_from_slice(entry.prefix);
        self.long.extend_from_slice(entry.suffix);
        let (user_key, tag) = key::split(&self.long[start..]).ok_or(KeyFault::TooShort)?;
        let (prefix, len) = (key_prefix(user_key), user_key.len());
        let order = if prefix != self.prefix {
            prefix.cmp(&self.prefix)
        } else if len > PREFIX_BYTES && self.len > PREFIX_BYTES {
            user_key.cmp(&self.long[self.at..][..self.len])
        } else {
            len.cmp(&self.len)
        };
        let order = match self.mask {
            0 => order,
            _ => order.reverse(),
        };
        if self.any && order.then(self.tag.cmp(&tag)).is_le() {
            return Err(KeyFault::OutOfOrder);
        }
        if len <= PREFIX_BYTES {
            self.long.truncate(start);
        }
        self.keep(prefix, tag, len, start);
        Ok(())
    }

    /// Appends the first `shared` bytes of the previous internal key.
    fn repeat_last(&mut self, shared: usize) {
        if self.len > PREFIX_BYTES {
            self.long.extend_from_within(self.at..self.at + shared);
        } else {
            let mut last = [0; PREFIX_BYTES + TAG_SIZE];
            last[..PREFIX_BYTES].copy_from_slice(&self.prefix.to_be_bytes());
            last[self.len..][..TAG_SIZE].copy_from_slice(&self.tag.to_le_bytes());
            self.long.extend_from_slice(&last[..shared]);
        }
    }

    /// The user key of a key that was restored since [`KeyRestorer::forget`].
    ///
    /// # Panics
    /// May panic for a key that was restored before that, or by another restorer.
    #[inline]
    pub fn user_key<'k>(&'k self, key: &'k RestoredKey) -> &'k [u8] {
        if key.len <= PREFIX_BYTES {
            &key.head.0[..key.len]
        } else {
            &self.long[key.at..][..key.len]
        }
    }

    /// Frees all keys but the last, which the next key needs.
    pub fn forget(&mut self) {
        if self.len > PREFIX_BYTES {
            self.long
                .copy_within(self.at..self.at + self.len + TAG_SIZE, 0);
            self.long.truncate(self.len + TAG_SIZE);
        } else {
            self.long.clear();
        }
        self.at = 0;
    }

    /// Bytes that long keys take.
    #[inline]
    pub fn long_bytes(&self) -> usize {
        self.long.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rockmill_format::block::common_prefix_len;

    proptest! {
        #[test]
        fn prefixes_order_as_keys_do(a: Vec<u8>, b: Vec<u8>) {
            let (x, y) = (key_prefix(&a), key_prefix(&b));
            prop_assert!(x == y || x.cmp(&y) == a.cmp(&b));
        }

        #[test]
        fn keys_are_restored_and_shown_to_ascend(
            is_reverse: bool,
            keys in proptest::collection::vec(keys(), 1..30),
            less in proptest::collection::vec(0usize..4, 30),
            common in 0usize..30,
            in_order: bool,
            forgets in proptest::collection::vec(any::<bool>(), 30),
        ) {
            let mut keys = keys;
            let key_order = match is_reverse {
                true => KeyOrder::ReverseBytewise,
                false => KeyOrder::Bytewise,
            };
            if in_order {
                keys.sort_by(|a, b| order(key_order, a, b));
                keys.dedup();
            }
            let mut restorer = KeyRestorer::new(key_order);
            let mut before: Option<Vec<u8>> = None;
            for ((key, less), forget) in keys.iter().zip(less).zip(forgets) {
                let shared = before
                    .as_ref()
                    .map_or(0, |before| common_prefix_len(before, key))
                    .saturating_sub(less);
                let prefix = if shared == 0 { common.min(key.len()) } else { 0 };
                let entry = Entry {
                    shared,
                    prefix: &key[shared..shared + prefix],
                    suffix: &key[shared + prefix..],
                    value: &[],
                    offset: 0,
                    value_offset: 0,
                };
                let expected = match (key::split(key), &before) {
                    (None, _) => Err(KeyFault::TooShort),
                    (_, Some(before)) if order(key_order, before, key).is_ge() => Err(KeyFault::OutOfOrder),
                    (Some(parts), _) => Ok(parts),
                };
                let found = restorer.restore(&entry);
                let parts = found.as_ref().map(|k| (restorer.user_key(k), k.tag));
                prop_assert_eq!(parts.map_err(|&fault| fault), expected);
                let Ok(found) = found else { break };
                prop_assert_eq!(found.prefix(), key_prefix(restorer.user_key(&found)));
                if forget {
                    restorer.forget();
                    prop_assert!(restorer.long_bytes() <= key.len());
                }
                before = Some(key.clone());
            }
        }
    }

    /// Internal keys on both sides of 16 bytes, some too short.
    fn keys() -> impl Strategy<Value = Vec<u8>> {
        let byte = || prop::sample::select(vec![0u8, 1, 0xff]);
        let short = proptest::collection::vec(byte(), 7..14);
        let long =
            (18usize..30, proptest::collection::vec(byte(), 8..12)).prop_map(|(len, end)| {
                let mut key = vec![9; len];
                key.extend(end);
                key
            });
        prop_oneof![short, long]
    }

    fn order(order: KeyOrder, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        match (key::split(a), key::split(b)) {
            (Some(a), Some(b)) => order.compare_entries(a, b),
            _ => a.len().cmp(&b.len()),
        }
    }
}
