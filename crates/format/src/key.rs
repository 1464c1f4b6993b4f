//! Internal keys (`db/dbformat.h`): user key, then a little-endian u64 `sequence << 8 | type`.

use std::cmp::Ordering;

use crate::coding::le64;

/// Bytes behind the user key.
pub const TAG_SIZE: usize = 8;

/// Largest sequence number.
pub const MAX_SEQUENCE: u64 = (1 << 56) - 1;

/// Type byte of the synthetic keys that separate blocks in an index (`kValueTypeForSeek`).
pub const TYPE_FOR_SEEK: u8 = 0x18;

/// Type of an entry. These values can occur in an SST's data blocks or range-deletion block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// A tombstone.
    Deletion = 0x00,
    /// A value.
    Value = 0x01,
    /// An operand for the merge operator.
    Merge = 0x02,
    /// A tombstone for a key that was put once.
    SingleDeletion = 0x07,
    /// A tombstone for a range of keys.
    RangeDeletion = 0x0f,
    /// A reference to a blob file.
    BlobIndex = 0x11,
    /// A tombstone of a key with a user-defined timestamp.
    DeletionWithTimestamp = 0x14,
    /// A value with several columns.
    WideColumnEntity = 0x16,
    /// A value with a preferred sequence number ("timed put").
    ValuePreferredSeqno = 0x18,
}

impl ValueType {
    /// The type with the code, if it can occur in an SST.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::Deletion,
            0x01 => Self::Value,
            0x02 => Self::Merge,
            0x07 => Self::SingleDeletion,
            0x0f => Self::RangeDeletion,
            0x11 => Self::BlobIndex,
            0x14 => Self::DeletionWithTimestamp,
            0x16 => Self::WideColumnEntity,
            0x18 => Self::ValuePreferredSeqno,
            _ => return None,
        })
    }

    /// Whether the value of a user key with such an entry depends on more than the entry: on older entries, a blob file,
    /// a column or a timestamp.
    #[inline]
    pub const fn needs_merge(self) -> bool {
        !matches!(self, Self::Value | Self::Deletion | Self::SingleDeletion)
    }

    /// Whether a compaction needs only the tag of an entry: no merge operator, blob file or timestamp is involved. An
    /// entity may name blobs in its columns, which is not checked here. Files with such entities are declined because
    /// of `oldest_blob_file` in the MANIFEST; RocksDB would delete a blob file that no output names.
    #[inline]
    pub const fn compacts_alone(self) -> bool {
        !self.needs_merge() || matches!(self, Self::WideColumnEntity | Self::ValuePreferredSeqno)
    }

    /// Whether it is a tombstone of one key.
    #[inline]
    pub const fn is_tombstone(self) -> bool {
        matches!(
            self,
            Self::Deletion | Self::SingleDeletion | Self::DeletionWithTimestamp
        )
    }

    /// RocksDB's name without the prefix `kType`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deletion => "Deletion",
            Self::Value => "Value",
            Self::Merge => "Merge",
            Self::SingleDeletion => "SingleDeletion",
            Self::RangeDeletion => "RangeDeletion",
            Self::BlobIndex => "BlobIndex",
            Self::DeletionWithTimestamp => "DeletionWithTimestamp",
            Self::WideColumnEntity => "WideColumnEntity",
            Self::ValuePreferredSeqno => "ValuePreferredSeqno",
        }
    }
}

/// `sequence << 8 | type` in one word: among the entries of one user key, a larger tag is newer.
#[inline]
pub const fn pack_tag(sequence: u64, kind: u8) -> u64 {
    sequence << 8 | kind as u64
}

/// Sequence number of a tag.
#[inline]
pub const fn tag_sequence(tag: u64) -> u64 {
    tag >> 8
}

/// Type code of a tag.
#[inline]
pub const fn tag_type(tag: u64) -> u8 {
    tag as u8
}

/// Splits an internal key into user key and tag; `None` if it is shorter than a tag.
#[inline]
pub fn split(internal_key: &[u8]) -> Option<(&[u8], u64)> {
    let at = internal_key.len().checked_sub(TAG_SIZE)?;
    let (user_key, tag) = internal_key.split_at(at);
    Some((user_key, le64(tag)))
}

/// Order of user keys (`util/comparator.cc`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum KeyOrder {
    /// `leveldb.BytewiseComparator`.
    #[default]
    Bytewise,
    /// `rocksdb.ReverseBytewiseComparator`.
    ReverseBytewise,
}

impl KeyOrder {
    /// The order of a comparator of RocksDB; `None` for other comparators, and for those with timestamps.
    pub fn from_comparator(name: &[u8]) -> Option<Self> {
        let all = [Self::Bytewise, Self::ReverseBytewise];
        all.into_iter().find(|order| order.comparator() == name)
    }

    /// The name of RocksDB's comparator of this order.
    pub const fn comparator(self) -> &'static [u8] {
        match self {
            Self::Bytewise => b"leveldb.BytewiseComparator",
            Self::ReverseBytewise => b"rocksdb.ReverseBytewiseComparator",
        }
    }

    /// Compares two user keys.
    #[inline]
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytewise => a.cmp(b),
            Self::ReverseBytewise => b.cmp(a),
        }
    }

    /// Whether user key `a` comes before `b`.
    #[inline]
    pub fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        self.compare(a, b).is_lt()
    }

    /// The user key that comes first.
    #[inline]
    pub fn first<'a>(self, a: &'a [u8], b: &'a [u8]) -> &'a [u8] {
        if self.is_before(b, a) { b } else { a }
    }

    /// The user key that comes last.
    #[inline]
    pub fn last<'a>(self, a: &'a [u8], b: &'a [u8]) -> &'a [u8] {
        if self.is_before(a, b) { b } else { a }
    }

    /// Compares two entries: by user key, then the newest first.
    #[inline]
    pub fn compare_entries(self, a: (&[u8], u64), b: (&[u8], u64)) -> Ordering {
        self.compare(a.0, b.0).then(b.1.cmp(&a.1))
    }
}

/// `user_key` and `tag` as one internal key.
pub fn join(user_key: &[u8], tag: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(user_key.len() + TAG_SIZE);
    out.extend_from_slice(user_key);
    out.extend_from_slice(&tag.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_of_a_key_come_first() {
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        let compare = |a, b| KeyOrder::Bytewise.compare_entries(a, b);
        assert_eq!(compare((a, 9), (b, 99)), Ordering::Less);
        assert_eq!(compare((a, 99), (a, 9)), Ordering::Less);
        assert_eq!(compare((a, 9), (a, 9)), Ordering::Equal);
    }

    #[test]
    fn internal_keys_split_where_they_were_joined() {
        let tag = pack_tag(MAX_SEQUENCE, 0x07);
        assert_eq!(split(&join(b"", tag)), Some((&b""[..], tag)));
        assert_eq!((tag_sequence(tag), tag_type(tag)), (MAX_SEQUENCE, 7));
        assert_eq!(split(&[0; 7]), None);
    }

    #[test]
    fn every_type_code_round_trips() {
        for code in 0..=u8::MAX {
            if let Some(kind) = ValueType::from_code(code) {
                assert_eq!(kind as u8, code);
            }
        }
    }
}
