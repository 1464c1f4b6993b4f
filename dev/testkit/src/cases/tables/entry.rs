//! Entries and their parts.

use std::cmp::Reverse;

use rockmill_core::{entry_hash, kv_hash};
use rockmill_format::key;

pub const PUT: u8 = 0x01;
pub const DELETE: u8 = 0x00;
pub const MERGE: u8 = 0x02;
pub const SINGLE_DELETE: u8 = 0x07;

/// An entry in full.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub tag: u64,
    pub value: Vec<u8>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 24;
        let cut = |bytes: &[u8]| match bytes.len() {
            len if len > SHOWN => format!("{}..({len})", bytes[..SHOWN].escape_ascii()),
            _ => bytes.escape_ascii().to_string(),
        };
        let (seq, kind) = (self.seq(), self.kind());
        write!(f, "{}@{seq}:{kind}={}", cut(&self.key), cut(&self.value))
    }
}

impl Entry {
    pub fn new(key: &[u8], seq: u64, kind: u8, value: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            tag: key::pack_tag(seq, kind),
            value: value.to_vec(),
        }
    }

    pub fn seq(&self) -> u64 {
        self.tag >> 8
    }

    pub fn kind(&self) -> u8 {
        self.tag as u8
    }

    pub fn internal_key(&self) -> Vec<u8> {
        key::join(&self.key, self.tag)
    }

    pub fn hash(&self) -> u64 {
        entry_hash(kv_hash(&self.key, &self.value), self.tag)
    }

    /// Sorts in the order of internal keys.
    pub fn order(&self) -> (Vec<u8>, Reverse<u64>) {
        (self.key.clone(), Reverse(self.tag))
    }
}

/// Sum of the entries' hashes.
pub fn hash_sum<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> u64 {
    entries
        .into_iter()
        .fold(0, |sum: u64, entry| sum.wrapping_add(entry.hash()))
}

/// Bytes that do not compress.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
