//! Range tombstones: the range-deletion block of an SST (`table/range_del_block.h`).
//!
//! One entry per tombstone: the internal key of the range's first user key, and the user key at which it ends.

use crate::block::{BlockBuilder, BlockLayout};
use crate::error::{Error, Result};
use crate::key::{
    KeyOrder, MAX_SEQUENCE, ValueType, join, pack_tag, split, tag_sequence, tag_type,
};
use crate::table::for_each_meta;

/// It deletes older entries of the keys from `begin` to before `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTombstone<K = Vec<u8>> {
    /// First user key.
    pub begin: K,
    /// Exclusive end, a user key.
    pub end: K,
    /// Sequence number; entries with a smaller one are older.
    pub sequence: u64,
}

/// The tombstones of a range-deletion block, in its order. The ranges may overlap. `None` if they take more than
/// `most_bytes` of memory; then the rest of the block is not decoded.
///
/// # Errors
/// Corruption if the block is malformed or has an entry that is not a range tombstone. Unsupported if the keys have
/// more than 256 MiB together.
pub fn decode_range_tombstones(
    block: &[u8],
    most_bytes: u64,
) -> Result<Option<Vec<RangeTombstone>>> {
    let mut out = Vec::new();
    let mut bytes = 0_u64;
    let decoded = for_each_meta(block, |key, end| {
        let of_type = |&(_, tag): &(_, u64)| tag_type(tag) == ValueType::RangeDeletion as u8;
        let (begin, tag) = split(key)
            .filter(of_type)
            .ok_or_else(|| Error::corruption(0, "an entry that is not a range tombstone"))?;
        bytes += memory_bytes(begin, end);
        if bytes > most_bytes {
            return Err(Error::unsupported(
                0,
                "more range tombstones than may be read",
            ));
        }
        out.push(RangeTombstone {
            begin: begin.to_vec(),
            end: end.to_vec(),
            sequence: tag_sequence(tag),
        });
        Ok(())
    });
    match decoded {
        Err(_) if bytes > most_bytes => Ok(None),
        decoded => decoded.map(|()| Some(out)),
    }
}

fn memory_bytes(begin: &[u8], end: &[u8]) -> u64 {
    (size_of::<RangeTombstone>() + begin.len() + end.len()) as u64
}

/// A range-deletion block of tombstones, which ascend by `begin` and descend by sequence number
/// (`table/range_del_block.cc`).
pub fn encode_range_tombstones(tombstones: &[RangeTombstone]) -> Vec<u8> {
    let mut builder = BlockBuilder::new(BlockLayout::plain(1));
    for tombstone in tombstones {
        builder.add(&tombstone.first_key(), &tombstone.end);
    }
    builder.finish().to_vec()
}

impl RangeTombstone {
    /// Its memory.
    pub fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.begin, &self.end)
    }

    /// Its part between the bounds of a file, which are internal keys. A file may have tombstones that extend beyond; other
    /// files then have the rest (`range_del_aggregator.cc:TruncatedRangeDelIterator`). The flag says whether the file ends
    /// between versions of its largest key that the tombstone covers. Then the part ends before that key.
    pub fn within_file<'a>(
        &'a self,
        order: KeyOrder,
        smallest: &'a [u8],
        largest: &'a [u8],
    ) -> (RangeTombstone<&'a [u8]>, bool) {
        let first = split(smallest).map_or(&[][..], |(user_key, _)| user_key);
        let cut = split(largest).filter(|(last, _)| order.is_before(last, &self.end));
        let end = cut.map_or(&self.end[..], |(last, _)| last);
        let within = RangeTombstone {
            begin: order.last(&self.begin, first),
            end,
            sequence: self.sequence,
        };
        let begins_behind = |last| order.is_before(last, &self.begin);
        let cuts_key = cut.is_some_and(|(last, tag)| tag != END_TAG && !begins_behind(last));
        (within, cuts_key)
    }

    /// The internal key at which it begins.
    pub fn first_key(&self) -> Vec<u8> {
        let tag = pack_tag(self.sequence, ValueType::RangeDeletion as u8);
        join(&self.begin, tag)
    }

    /// The internal key before which it ends: no entry of a key comes before it.
    pub fn end_key(&self) -> Vec<u8> {
        join(&self.end, END_TAG)
    }
}

/// Tag of a file's largest key if a range tombstone ends there: the file has no entry of this user key
/// (`InternalKey(.., kMaxSequenceNumber, kTypeRangeDeletion)`).
pub const END_TAG: u64 = pack_tag(MAX_SEQUENCE, ValueType::RangeDeletion as u8);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(block: &[u8]) -> Result<Vec<RangeTombstone>> {
        let all = decode_range_tombstones(block, u64::MAX)?;
        Ok(all.expect("there is no limit"))
    }

    fn block_of(kind: ValueType, ranges: &[(&[u8], &[u8], u64)]) -> Vec<u8> {
        let mut builder = BlockBuilder::new(BlockLayout::plain(1));
        for &(begin, end, sequence) in ranges {
            builder.add(&join(begin, pack_tag(sequence, kind as u8)), end);
        }
        builder.finish().to_vec()
    }

    #[test]
    fn tombstones_are_read_in_order() {
        let ranges: [(&[u8], &[u8], u64); 3] = [(b"", b"b", 9), (b"a", b"c", 7), (b"a", b"b", 2)];
        let found = decode(&block_of(ValueType::RangeDeletion, &ranges)).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|t| (&t.begin[..], &t.end[..], t.sequence))
            .collect();
        assert_eq!(found, ranges);
    }

    #[test]
    fn encoded_tombstones_are_read_again() {
        let one = |begin: &[u8], end: &[u8], sequence| RangeTombstone {
            begin: begin.to_vec(),
            end: end.to_vec(),
            sequence,
        };
        let all = [one(b"a", b"b", 9), one(b"a", b"b", 2), one(b"ab", b"c", 3)];
        assert_eq!(decode(&encode_range_tombstones(&all)).unwrap(), all);
    }

    #[test]
    fn another_entry_is_corruption() {
        let block = block_of(ValueType::Value, &[(b"a", b"b", 1)]);
        assert!(decode(&block).is_err());
        let mut builder = BlockBuilder::new(BlockLayout::plain(1));
        builder.add(b"short", b"b");
        assert!(decode(builder.finish()).is_err());
    }

    #[test]
    fn shared_prefixes_do_not_multiply_without_limit() {
        const RESTARTS: usize = i32::MAX as usize;
        let mut builder = BlockBuilder::new(BlockLayout::plain(RESTARTS));
        let tag = |sequence| pack_tag(sequence, ValueType::RangeDeletion as u8);
        let begin = vec![b'a'; 1 << 20];
        for sequence in (0..1000).rev() {
            builder.add(&join(&begin, tag(sequence)), b"b");
        }
        let block = builder.finish();
        assert!(block.len() < 2 << 20);
        let refused = decode(block).expect_err("they take 1 GB");
        assert_eq!(refused.kind, crate::error::ErrorKind::Unsupported);
    }

    #[test]
    fn no_more_tombstones_are_decoded_than_fit_into_their_memory() {
        let ranges: [(&[u8], &[u8], u64); 3] = [(b"", b"b", 9), (b"a", b"c", 7), (b"a", b"b", 2)];
        let block = block_of(ValueType::RangeDeletion, &ranges);
        let all = decode(&block).unwrap();
        let bytes = all.iter().map(RangeTombstone::memory_bytes).sum::<u64>();
        assert_eq!(decode_range_tombstones(&block, bytes), Ok(Some(all)));
        assert_eq!(decode_range_tombstones(&block, bytes - 1), Ok(None));
        // An error before the limit is reached stays an error.
        let other = block_of(ValueType::Value, &ranges);
        assert!(decode_range_tombstones(&other, 0).is_err());
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
