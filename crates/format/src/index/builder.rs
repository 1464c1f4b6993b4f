//! Writing the index of a file, and the separators in it.

use super::{FIRST_ESCAPE_VERSION, FIRST_USER_KEY_VERSION, IndexSettings, IndexShortening};
use crate::block::{BlockBuilder, BlockLayout, ValueForm, common_prefix_len};
use crate::coding::{put_varint, zigzag};
use crate::handle::{BLOCK_TRAILER_SIZE, BlockHandle};
use crate::key::{MAX_SEQUENCE, TAG_SIZE, TYPE_FOR_SEEK, pack_tag, split};
/// Collects the index of one file. Memory: a separator and some 32 bytes per data block.
#[derive(Debug)]
pub struct IndexBuilder {
    settings: IndexSettings,
    separators: Vec<u8>,
    /// End of each separator in `separators`, and its block.
    blocks: Vec<(usize, BlockHandle)>,
    needs_sequence: bool,
}

impl IndexBuilder {
    /// An empty index.
    pub fn new(settings: IndexSettings) -> Self {
        Self {
            settings,
            separators: Vec::new(),
            blocks: Vec::new(),
            needs_sequence: settings.format_version < FIRST_USER_KEY_VERSION,
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
        self.needs_sequence |= next_user == Some(last_user);
        let start = self.separators.len();
        match (self.settings.shortening, next_user) {
            (IndexShortening::None, _) | (IndexShortening::Separators, None) => {}
            (_, Some(next)) => push_separator(last_user, next, &mut self.separators),
            // A successor could shorten the common prefix (`index_builder.h:GetSeparatorWithSeq`).
            (IndexShortening::SeparatorsAndSuccessor, None) if self.settings.common_prefix => {}
            (IndexShortening::SeparatorsAndSuccessor, None) => {
                push_successor(last_user, &mut self.separators);
            }
        }
        let found = &self.separators[start..];
        if found > last_user && found.len() <= last_user.len() {
            let tag = pack_tag(MAX_SEQUENCE, TYPE_FOR_SEEK);
            self.separators.extend_from_slice(&tag.to_le_bytes());
        } else {
            self.separators.truncate(start);
            self.separators.extend_from_slice(last);
        }
        self.blocks.push((self.separators.len(), handle));
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
        let start = i.checked_sub(1).map_or(0, |before| self.blocks[before].0);
        let (end, handle) = self.blocks[i];
        (&self.separators[start..end - TAG_SIZE], handle)
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

    /// The uncompressed block.
    pub fn finish(&self) -> Vec<u8> {
        let delta_values = self.settings.delta_values();
        let mut builder = BlockBuilder::new(BlockLayout {
            restart_interval: self.settings.restart_interval,
            delta_keys: true,
            values: if delta_values {
                ValueForm::SelfDelimiting
            } else {
                ValueForm::Sized
            },
            common_prefix: self.settings.common_prefix,
            user_keys: !self.needs_sequence,
            keys_per_bucket: None,
        });
        let strip = if self.needs_sequence { 0 } else { TAG_SIZE };
        let mut start = 0;
        let mut before: Option<BlockHandle> = None;
        let (mut full, mut delta) = (Vec::new(), Vec::new());
        for &(end, handle) in &self.blocks {
            full.clear();
            delta.clear();
            handle.encode(&mut full);
            if delta_values {
                self.encode_delta(before, handle, &mut delta);
            }
            let continued = if delta_values { &delta } else { &full };
            let key = &self.separators[start..end - strip];
            builder.add_continued(key, &full, continued);
            start = end;
            before = Some(handle);
        }
        builder.finish().to_vec()
    }

    fn encode_delta(&self, before: Option<BlockHandle>, handle: BlockHandle, out: &mut Vec<u8>) {
        let Some(before) = before else { return };
        assert_eq!(
            before.offset + before.size + BLOCK_TRAILER_SIZE as u64,
            handle.offset,
            "data blocks follow one another"
        );
        let code = zigzag(handle.size as i64 - before.size as i64);
        let escape = self.settings.format_version >= FIRST_ESCAPE_VERSION;
        put_varint(out, code + u64::from(escape));
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
