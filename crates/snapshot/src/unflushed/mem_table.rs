//! The entries of a column family in memory.

use std::ops::RangeInclusive;

use rockmill_format::key::{self, KeyOrder, ValueType, pack_tag};
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::write_batch::BatchEntry;

/// Minimum and maximum size of the chunks in which memory for entries is allocated. A larger entry gets a chunk of its
/// own.
const CHUNK_BYTES: RangeInclusive<usize> = 4 << 10..=1 << 20;

/// The unflushed entries of one column family, as in its memtables.
#[derive(Debug, Default)]
pub struct MemTable {
    /// Internal keys and values, one after another.
    pub(super) chunks: Vec<Vec<u8>>,
    /// Position of each entry.
    places: Vec<EntryRef>,
    range_tombstones: Vec<RangeTombstone>,
    /// Bytes of memory of the whole table.
    pub(super) bytes: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct EntryRef {
    chunk: u32,
    at: u32,
    user_key_len: u32,
    value_len: u32,
}

impl MemTable {
    /// Returns internal keys and values: as they were written, or ascending after [`MemTable::sort`].
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|place| self.entry(place))
    }

    /// Returns the range tombstones, in the order in which they were written.
    pub fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.range_tombstones
    }

    /// Sorts the entries: user keys ascend bytewise, the newest entry of each comes first. It is fast if few entries
    /// were added since the last call.
    pub fn sort(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.sort_by(|a, b| KeyOrder::Bytewise.compare_entries(self.parts(a), self.parts(b)));
        self.places = places;
    }

    /// Removes the entries and range tombstones with sequence numbers after this one.
    pub fn keep_until(&mut self, sequence: u64) {
        let mut places = std::mem::take(&mut self.places);
        places.retain(|place| key::tag_sequence(self.parts(place).1) <= sequence);
        self.places = places;
        self.range_tombstones
            .retain(|tombstone| tombstone.sequence <= sequence);
    }

    fn entry(&self, place: &EntryRef) -> (&[u8], &[u8]) {
        let bytes = &self.chunks[place.chunk as usize][place.at as usize..];
        let (key, rest) = bytes.split_at(place.user_key_len as usize + key::TAG_SIZE);
        (key, &rest[..place.value_len as usize])
    }

    /// User key and tag.
    fn parts(&self, place: &EntryRef) -> (&[u8], u64) {
        key::split(self.entry(place).0).unwrap_or_default()
    }

    pub(super) fn add(&mut self, entry: &BatchEntry<'_>) {
        /// Sorting takes half as much memory again.
        const PLACE_BYTES: usize = size_of::<EntryRef>() * 3 / 2;
        let &BatchEntry { key, value, .. } = entry;
        if entry.kind == ValueType::RangeDeletion {
            self.range_tombstones.push(RangeTombstone {
                begin: key.to_vec(),
                end: value.to_vec(),
                sequence: entry.sequence,
            });
            self.bytes += size_of::<RangeTombstone>() + key.len() + value.len();
            return;
        }
        let needed = key.len() + key::TAG_SIZE + value.len();
        let room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len();
        if self.chunks.last().is_none_or(|chunk| room(chunk) < needed) {
            // Many column families have few entries.
            let usual = self.bytes.clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
            let chunk = Vec::with_capacity(needed.max(usual));
            self.bytes += chunk.capacity();
            self.chunks.push(chunk);
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        // Everything fits 32 bits: an entry in an oversized chunk begins at 0, and lengths in a batch have 32 bits.
        self.places.push(EntryRef {
            chunk: last as u32,
            at: chunk.len() as u32,
            user_key_len: key.len() as u32,
            value_len: value.len() as u32,
        });
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(&pack_tag(entry.sequence, entry.kind as u8).to_le_bytes());
        chunk.extend_from_slice(value);
        self.bytes += PLACE_BYTES;
    }
}
