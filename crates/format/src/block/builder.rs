//! Writing blocks.

use super::hash_index::HashIndexBuilder;
use super::{HASH_INDEX_BIT, ValueForm, WORD, common_prefix_len};
use crate::coding::{Cursor, put_bytes, put_varint, varint_len};
use crate::key::TAG_SIZE;

/// Layout of the entries of a [`BlockBuilder`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockLayout {
    /// Number of entries from one restart point to the next, at least 1.
    pub restart_interval: usize,
    /// Whether keys are stored as differences.
    pub delta_keys: bool,
    /// Whether values have their length in front.
    pub values: ValueForm,
    /// Whether the user-key prefix common to the whole block is stored once (format_version 8);
    /// demands `delta_keys`.
    pub common_prefix: bool,
    /// Whether keys are user keys rather than internal keys; decides which bytes may be a common prefix.
    pub user_keys: bool,
    /// Keys per bucket of the hash index over user keys; `None` without an index. The index needs internal keys.
    pub keys_per_bucket: Option<f64>,
}

impl BlockLayout {
    /// Plain entries, as in the metaindex (interval 1) and the properties block.
    pub fn plain(restart_interval: usize) -> Self {
        Self {
            restart_interval,
            delta_keys: true,
            values: ValueForm::Sized,
            common_prefix: false,
            user_keys: true,
            keys_per_bucket: None,
        }
    }
}

/// Assembles blocks one after another.
#[derive(Debug)]
pub struct BlockBuilder {
    layout: BlockLayout,
    /// Blocks that were finished in place, each followed by the bytes that the owner appended, and the current entries.
    buffer: Vec<u8>,
    /// Begin of the current entries, if there are any.
    start: usize,
    restarts: Vec<u32>,
    since_restart: usize,
    /// The last key that [`BlockBuilder::add`] added.
    last_key: Vec<u8>,
    /// The part of the first user key that all keys so far share.
    prefix: Vec<u8>,
    hash_index: Option<HashIndexBuilder>,
    finished: Vec<u8>,
}

impl BlockBuilder {
    /// An empty block.
    ///
    /// # Panics
    /// If the layout's interval is 0, or it strips a common prefix without delta keys.
    pub fn new(layout: BlockLayout) -> Self {
        assert!(layout.restart_interval > 0);
        assert!(layout.delta_keys || !layout.common_prefix);
        Self {
            layout,
            buffer: Vec::new(),
            start: 0,
            restarts: vec![0],
            since_restart: 0,
            last_key: Vec::new(),
            prefix: Vec::new(),
            hash_index: layout.keys_per_bucket.map(HashIndexBuilder::new),
            finished: Vec::new(),
        }
    }

    /// Whether nothing was added since the start or the last [`BlockBuilder::finish`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        // An entry at a restart point counts as the first behind it.
        self.since_restart == 0
    }

    /// Appends an entry. Keys must ascend in the order of the block's reader.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.add_continued(key, value, value);
    }

    /// [`BlockBuilder::add`] with `continued` in place of `value` when the key shares bytes with the key before,
    /// as delta-coded index values are.
    pub fn add_continued(&mut self, key: &[u8], value: &[u8], continued: &[u8]) {
        let common = common_prefix_len(&self.last_key, key);
        self.put(key, common, value, continued);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// [`BlockBuilder::add`] for a caller that keeps the previous key, and knows that `key` shares `common` leading
    /// bytes with it. The number does not matter for the block's first entry. All entries of a builder are added in
    /// this way, or none.
    #[inline]
    pub fn add_with_common(&mut self, key: &[u8], common: usize, value: &[u8]) {
        self.put(key, common, value, value);
    }

    #[inline]
    fn put(&mut self, key: &[u8], common: usize, value: &[u8], continued: &[u8]) {
        let mut shared = 0;
        let is_first = self.is_empty();
        if is_first {
            self.start = self.buffer.len();
        } else if self.since_restart == self.layout.restart_interval {
            let at = self.buffer.len() - self.start;
            let at = u32::try_from(at).expect("blocks stay below 4 GiB");
            self.restarts.push(at);
            self.since_restart = 0;
        } else if self.layout.delta_keys {
            shared = common;
        }
        if self.layout.common_prefix {
            self.narrow_prefix(key, is_first);
        }
        if let Some(index) = &mut self.hash_index {
            let user_len = key.len().saturating_sub(TAG_SIZE);
            index.add(&key[..user_len], self.restarts.len() - 1);
        }
        let value = if shared > 0 { continued } else { value };
        self.put_header(shared, key.len() - shared, value.len());
        put_bytes(&mut self.buffer, &key[shared..]);
        self.buffer.extend_from_slice(value);
        self.since_restart += 1;
    }

    #[inline]
    fn put_header(&mut self, shared: usize, non_shared: usize, value_len: usize) {
        let sized = self.layout.values == ValueForm::Sized;
        if sized && (shared | non_shared) < 0x80 && value_len < 1 << 14 {
            let (shared, non_shared) = (shared as u8, non_shared as u8);
            if value_len < 0x80 {
                let header = [shared, non_shared, value_len as u8];
                self.buffer.extend_from_slice(&header);
            } else {
                let (low, high) = (value_len as u8 | 0x80, (value_len >> 7) as u8);
                self.buffer
                    .extend_from_slice(&[shared, non_shared, low, high]);
            }
            return;
        }
        put_varint(&mut self.buffer, shared as u64);
        put_varint(&mut self.buffer, non_shared as u64);
        if sized {
            put_varint(&mut self.buffer, value_len as u64);
        }
    }

    fn narrow_prefix(&mut self, key: &[u8], is_first: bool) {
        let user_len = if self.layout.user_keys {
            key.len()
        } else {
            key.len().saturating_sub(TAG_SIZE)
        };
        let user_key = &key[..user_len];
        if is_first {
            self.prefix.clear();
            self.prefix.extend_from_slice(user_key);
        } else {
            let common = common_prefix_len(&self.prefix, user_key);
            self.prefix.truncate(common);
        }
    }

    /// Returns the finished block and empties the builder. The buffer must have no blocks that were finished in place.
    pub fn finish(&mut self) -> &[u8] {
        let start = self.finish_in_place();
        debug_assert_eq!(start, 0);
        self.finished.clear();
        std::mem::swap(&mut self.finished, &mut self.buffer);
        &self.finished
    }

    /// Ends the block at its place in [`BlockBuilder::buffer`], and returns where it begins. The next block begins at
    /// the end of the buffer, so no block has to be copied.
    pub fn finish_in_place(&mut self) -> usize {
        if self.is_empty() {
            self.start = self.buffer.len();
        }
        if !self.prefix.is_empty() {
            self.strip_prefix();
        }
        for restart in &self.restarts {
            self.buffer.extend_from_slice(&restart.to_le_bytes());
        }
        let mut packed = self.restarts.len() as u32;
        if let Some(index) = &mut self.hash_index {
            let block_bytes = self.buffer.len() - self.start + WORD;
            if index.finish(block_bytes, &mut self.buffer) {
                packed |= HASH_INDEX_BIT;
            }
        }
        self.buffer.extend_from_slice(&packed.to_le_bytes());
        self.restarts.clear();
        self.restarts.push(0);
        self.since_restart = 0;
        self.prefix.clear();
        self.start
    }

    /// Size of the block if it ended now (`block_builder.h:CurrentSizeEstimate`). Blocks have no hash index.
    pub fn len_so_far(&self) -> usize {
        let entries = match self.is_empty() {
            true => 0,
            false => self.buffer.len() - self.start,
        };
        let restarts = self.restarts.len();
        entries + (restarts + 1) * WORD - self.prefix.len() * (restarts - 1)
    }

    /// RocksDB's estimate of the size with one more entry (`BlockBuilder::EstimateSizeAfterKV`).
    pub fn estimated_len_with(&self, key_len: usize, value_len: usize) -> usize {
        let is_restart = self.since_restart == self.layout.restart_interval;
        let is_whole = is_restart || self.layout.values == ValueForm::Sized;
        let value = match is_whole {
            true => value_len + varint_len(value_len as u64),
            false => value_len / 2,
        };
        let restart = if is_restart { WORD } else { 0 };
        self.len_so_far() + key_len + value + restart + WORD + varint_len(key_len as u64)
    }

    /// Blocks that were finished in place. Their owner may change them while the builder is empty.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Puts the common prefix in front of the entries and takes it from the restart keys. All other entries
    /// share at least the prefix and stay as they are.
    fn strip_prefix(&mut self) {
        let strip = self.prefix.len();
        let entries = &self.buffer[self.start..];
        self.finished.clear();
        self.finished.extend_from_slice(&self.prefix);
        for i in 0..self.restarts.len() {
            let start = self.restarts[i] as usize;
            let end = match self.restarts.get(i + 1) {
                Some(&next) => next as usize,
                None => entries.len(),
            };
            self.restarts[i] = self.finished.len() as u32;
            let interval = &entries[start..end];
            let mut cursor = Cursor::new(interval);
            let own = "the builder's own entry";
            let shared = cursor.varint32().expect(own);
            debug_assert_eq!(shared, 0);
            let non_shared = cursor.varint32().expect(own) as usize;
            put_varint(&mut self.finished, 0);
            put_varint(&mut self.finished, (non_shared - strip) as u64);
            if self.layout.values == ValueForm::Sized {
                let value_len = cursor.varint32().expect(own);
                put_varint(&mut self.finished, u64::from(value_len));
            }
            self.finished.extend_from_slice(&cursor.rest()[strip..]);
        }
        self.buffer.truncate(self.start);
        self.buffer.extend_from_slice(&self.finished);
    }
}
