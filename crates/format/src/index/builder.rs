//! Writing the index of a file, and the separators in it.

use std::ops::Range;

use super::{
    FIRST_ESCAPE_VERSION, FIRST_USER_KEY_VERSION, IndexPartitions, IndexSettings, IndexShortening,
};
use crate::block::{BlockBuilder, BlockLayout, ValueForm, common_prefix_len};
use crate::coding::{put_varint, zigzag};
use crate::handle::{BLOCK_TRAILER_SIZE, BlockHandle};
use crate::key::{KeyOrder, MAX_SEQUENCE, TAG_SIZE, TYPE_FOR_SEEK, pack_tag, split};

/// Collects the index of one file. Memory: a separator and some 32 bytes per data block.
#[derive(Debug)]
pub struct IndexBuilder {
    settings: IndexSettings,
    separators: Vec<u8>,
    /// End of each separator in `separators`, and its block.
    blocks: Vec<(usize, BlockHandle)>,
    needs_sequence: bool,
    /// Number of the first block of each partition but the first.
    partition_starts: Vec<usize>,
    /// The current partition, if there are partitions.
    partition: Option<IndexBlockBuilder>,
}

/// Writes one block of an index.
#[derive(Debug)]
struct IndexBlockBuilder {
    settings: IndexSettings,
    user_keys: bool,
    block: BlockBuilder,
    before: Option<BlockHandle>,
    full: Vec<u8>,
    delta: Vec<u8>,
}

impl IndexBlockBuilder {
    fn new(settings: IndexSettings, user_keys: bool) -> Self {
        Self {
            settings,
            user_keys,
            block: BlockBuilder::new(BlockLayout {
                restart_interval: settings.restart_interval,
                delta_keys: true,
                values: if settings.delta_values() {
                    ValueForm::SelfDelimiting
                } else {
                    ValueForm::Sized
                },
                common_prefix: settings.common_prefix,
                user_keys,
                keys_per_bucket: None,
            }),
            before: None,
            full: Vec::new(),
            delta: Vec::new(),
        }
    }

    /// Adds a block behind a separator, which is an internal key.
    fn add(&mut self, separator: &[u8], handle: BlockHandle) {
        self.full.clear();
        self.delta.clear();
        handle.encode(&mut self.full);
        let delta_values = self.settings.delta_values();
        if let Some(before) = self.before.filter(|_| delta_values) {
            assert_eq!(
                before.offset + before.size + BLOCK_TRAILER_SIZE as u64,
                handle.offset,
                "blocks follow one another"
            );
            let code = zigzag(handle.size as i64 - before.size as i64);
            let escape = self.settings.format_version >= FIRST_ESCAPE_VERSION;
            put_varint(&mut self.delta, code + u64::from(escape));
        }
        let continued = if delta_values {
            &self.delta
        } else {
            &self.full
        };
        let strip = if self.user_keys { TAG_SIZE } else { 0 };
        let key = &separator[..separator.len() - strip];
        self.block.add_continued(key, &self.full, continued);
        self.before = Some(handle);
    }

    /// Whether the block ends before an entry with the internal key `key` (`FlushBlockBySizePolicy::Update`).
    fn is_full(&self, partitions: IndexPartitions, key: &[u8], handle: BlockHandle) -> bool {
        let len = self.block.len_so_far() as u64;
        if self.block.is_empty() {
            return false;
        }
        let mut value = Vec::new();
        handle.encode(&mut value);
        let with = self.block.estimated_len_with(key.len(), value.len()) as u64;
        let least = partitions.least_bytes();
        let is_almost_full = least > 0 && with > partitions.block_size && len > least;
        len >= partitions.block_size || is_almost_full
    }
}

/// The uncompressed block of an index with these entries: separators, which are internal keys, and handles.
pub fn encode_index<'a>(
    settings: IndexSettings,
    user_keys: bool,
    entries: impl Iterator<Item = (&'a [u8], BlockHandle)>,
) -> Vec<u8> {
    let mut builder = IndexBlockBuilder::new(settings, user_keys);
    for (separator, handle) in entries {
        builder.add(separator, handle);
    }
    builder.block.finish().to_vec()
}

impl IndexBuilder {
    /// An empty index.
    pub fn new(settings: IndexSettings) -> Self {
        Self {
            settings,
            separators: Vec::new(),
            blocks: Vec::new(),
            needs_sequence: settings.format_version < FIRST_USER_KEY_VERSION,
            partition_starts: Vec::new(),
            partition: settings.partitions.map(|_| {
                let user_keys = settings.format_version >= FIRST_USER_KEY_VERSION;
                IndexBlockBuilder::new(settings, user_keys)
            }),
        }
    }

    /// Adds the block at `handle`, whose last internal key is `last`; `next` is the first internal
    /// key of the following block, `None` behind the file's last.
    ///
    /// # Panics
    /// If a key is shorter than a tag.
    pub fn add(&mut self, last: &[u8], next: Option<&[u8]>, handle: BlockHandle) {
        let (last_user, _) = split(last).expect("internal key");
        let next_user = next.map(|next| split(next).expect("internal key").0);
        // No partition has only the last block, unless it is the only one.
        if let (Some(partitions), Some(partition)) = (self.settings.partitions, &mut self.partition)
            && next.is_some()
            && partition.is_full(partitions, last, handle)
        {
            self.partition_starts.push(self.blocks.len());
            *partition = IndexBlockBuilder::new(self.settings, !self.needs_sequence);
        }
        self.needs_sequence |= next_user == Some(last_user);
        let start = self.separators.len();
        let order = self.settings.order;
        match (self.settings.shortening, next_user) {
            (IndexShortening::None, _) | (IndexShortening::Separators, None) => {}
            (_, Some(next)) if order == KeyOrder::ReverseBytewise => {
                push_reverse_separator(last_user, next, &mut self.separators);
            }
            // It has no short successors.
            (_, None) if order == KeyOrder::ReverseBytewise => {}
            (_, Some(next)) => push_separator(last_user, next, &mut self.separators),
            // A successor could shorten the common prefix (`index_builder.h:GetSeparatorWithSeq`).
            (IndexShortening::SeparatorsAndSuccessor, None) if self.settings.common_prefix => {}
            (IndexShortening::SeparatorsAndSuccessor, None) => {
                push_successor(last_user, &mut self.separators);
            }
        }
        let found = &self.separators[start..];
        let is_behind = !found.is_empty() && order.is_before(last_user, found);
        if is_behind && found.len() <= last_user.len() {
            let tag = pack_tag(MAX_SEQUENCE, TYPE_FOR_SEEK);
            self.separators.extend_from_slice(&tag.to_le_bytes());
        } else {
            self.separators.truncate(start);
            self.separators.extend_from_slice(last);
        }
        self.blocks.push((self.separators.len(), handle));
        self.extend_partition();
    }

    /// Adds the last block to the current partition.
    fn extend_partition(&mut self) {
        let Some(mut partition) = self.partition.take() else {
            return;
        };
        let mut from = self.blocks.len() - 1;
        if partition.user_keys == self.needs_sequence {
            // From now on, separators need sequence numbers, and so do those before.
            partition = IndexBlockBuilder::new(self.settings, !self.needs_sequence);
            from = self.partition_starts.last().copied().unwrap_or(0);
        }
        for i in from..self.blocks.len() {
            let (separator, handle) = self.entry(i);
            partition.add(separator, handle);
        }
        self.partition = Some(partition);
    }

    /// Separator of block number `i`, an internal key, and the block's handle.
    fn entry(&self, i: usize) -> (&[u8], BlockHandle) {
        let start = i.checked_sub(1).map_or(0, |before| self.blocks[before].0);
        let (end, handle) = self.blocks[i];
        (&self.separators[start..end], handle)
    }

    /// Number of blocks added.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block was added.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// User key of block number `i`'s separator, and the block's handle.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn block(&self, i: usize) -> (&[u8], BlockHandle) {
        let (separator, handle) = self.entry(i);
        (&separator[..separator.len() - TAG_SIZE], handle)
    }

    /// Whether the separators so far do not need sequence numbers: property `rocksdb.index.key.is.user.key`.
    pub fn has_user_keys(&self) -> bool {
        !self.needs_sequence
    }

    /// Approximate bytes of the index so far.
    pub fn estimated_len(&self) -> usize {
        /// Header of an entry, a handle and a restart offset.
        const ENTRY_OVERHEAD: usize = 14;
        self.separators.len() + self.blocks.len() * ENTRY_OVERHEAD
    }

    /// The uncompressed block of an index without partitions.
    pub fn finish(&self) -> Vec<u8> {
        self.encode(0..self.blocks.len())
    }

    /// The uncompressed blocks of the partitions, each with its last separator, an internal key. A file without data blocks
    /// has none.
    pub fn partitions(&self) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
        let ends = self.partition_starts.iter().copied();
        let ends = ends.chain((!self.blocks.is_empty()).then_some(self.blocks.len()));
        ends.scan(0, move |start, end| {
            let blocks = *start..end;
            *start = end;
            Some((self.encode(blocks), self.entry(end - 1).0))
        })
    }

    fn encode(&self, blocks: Range<usize>) -> Vec<u8> {
        encode_index(
            self.settings,
            !self.needs_sequence,
            blocks.map(|i| self.entry(i)),
        )
    }
}

/// Appends the shortest key in `[a, b)` in bytewise order, by the rules of `util/comparator.cc:FindShortestSeparator`,
/// or `a` itself if these find no shorter key.
pub(super) fn push_separator(a: &[u8], b: &[u8], out: &mut Vec<u8>) {
    let i = common_prefix_len(a, b);
    let a_is_prefix = i >= a.len() || i >= b.len();
    if a_is_prefix || a[i] >= b[i] {
        out.extend_from_slice(a);
        return;
    }
    if i + 1 < b.len() || a[i] + 1 < b[i] {
        out.extend_from_slice(&a[..i]);
        out.push(a[i] + 1);
        return;
    }
    // b ends at i and is a's successor there: the first later byte that is not 0xff is incremented.
    match a[i + 1..].iter().position(|&byte| byte != u8::MAX) {
        Some(later) => {
            let at = i + 1 + later;
            out.extend_from_slice(&a[..at]);
            out.push(a[at] + 1);
        }
        None => out.extend_from_slice(a),
    }
}

/// Appends a key from `a` to before `b` in reverse bytewise order, by the rules of the same function of
/// `ReverseBytewiseComparatorImpl`: the beginning of `a` up to where it differs from `b`.
pub(super) fn push_reverse_separator(a: &[u8], b: &[u8], out: &mut Vec<u8>) {
    let i = common_prefix_len(a, b);
    let has_more = i < b.len() && i + 1 < a.len();
    let len = match has_more && a[i] > b[i] {
        true => i + 1,
        false => a.len(),
    };
    out.extend_from_slice(&a[..len]);
}

/// Appends a short key at or above `a` (`util/comparator.cc:FindShortSuccessor`).
pub(super) fn push_successor(a: &[u8], out: &mut Vec<u8>) {
    match a.iter().position(|&byte| byte != u8::MAX) {
        Some(at) => {
            out.extend_from_slice(&a[..at]);
            out.push(a[at] + 1);
        }
        None => out.extend_from_slice(a),
    }
}
