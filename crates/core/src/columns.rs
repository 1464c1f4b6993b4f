//! Entries as columns: the plain form in which stages hand entries on and tests compare them.

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

/// Some entries in order. Entry `i` has user key `keys[key_ends[i-1]..key_ends[i]]`; its value is
/// a range of a buffer that the producer names.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Columns {
    /// [`key_prefix`] of each user key.
    pub prefixes: Vec<u128>,
    /// All user keys, one after another.
    pub keys: Vec<u8>,
    /// End of each user key in `keys`.
    pub key_ends: Vec<u32>,
    /// `sequence << 8 | type` of each entry.
    pub tags: Vec<u64>,
    /// Start and length of each value in the producer's buffer.
    pub values: Vec<(u32, u32)>,
}

impl Columns {
    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Forgets all entries, keeps the memory.
    pub fn clear(&mut self) {
        self.prefixes.clear();
        self.keys.clear();
        self.key_ends.clear();
        self.tags.clear();
        self.values.clear();
    }

    /// User key of entry `i`.
    ///
    /// # Panics
    /// If there is no entry `i`.
    #[inline]
    pub fn user_key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.key_ends[i - 1] };
        &self.keys[start as usize..self.key_ends[i] as usize]
    }

    /// Appends an entry whose value is `value_len` bytes from `value_start`.
    ///
    /// # Panics
    /// If the keys of one batch pass 4 GiB; batches are blocks, which are smaller.
    #[inline]
    pub fn push(&mut self, user_key: &[u8], tag: u64, value_start: u32, value_len: u32) {
        self.keys.extend_from_slice(user_key);
        let end = u32::try_from(self.keys.len()).expect("keys of a block stay below 4 GiB");
        self.prefixes.push(key_prefix(user_key));
        self.key_ends.push(end);
        self.tags.push(tag);
        self.values.push((value_start, value_len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefixes_order_as_keys_do(a: Vec<u8>, b: Vec<u8>) {
            let (x, y) = (key_prefix(&a), key_prefix(&b));
            prop_assert!(x == y || x.cmp(&y) == a.cmp(&b));
        }
    }

    #[test]
    fn keys_come_back_as_pushed() {
        let mut columns = Columns::default();
        for key in [&b""[..], b"a", b"abc"] {
            columns.push(key, 0, 0, 0);
        }
        assert_eq!(columns.user_key(0), b"");
        assert_eq!(columns.user_key(1), b"a");
        assert_eq!(columns.user_key(2), b"abc");
    }
}
