//! Decoded entries of neighbouring blocks of a file, in place of which scans use them.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rockmill_core::{Cacheable, FileIdentity};

use super::files::Stage;
use super::{CachedFile, FileCache};
use crate::driver::ffi::{Key, ValueRef};
use crate::memory::Allocation;
use crate::read::PADDING;

/// Chunks of a file that a group stands for, unless a single block is larger.
const CHUNKS_PER_GROUP: u64 = 4;

/// Names a group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupName {
    /// The same ingested file may be in several column families, with another sequence number in each.
    pub global_sequence: Option<u64>,
    /// Its position in the file.
    pub number: u64,
    /// Whether it has the bytes of all keys.
    pub is_wide: bool,
}

/// The parts of a group in its memory.
///
/// ```text
///   keys, values, hashes; in a wide group: places of keys' bytes, these bytes; the blocks' bytes
/// ```
///
/// The blocks' bytes contain the values. Entries are numbered from 0, and places are those in the bytes of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupShape {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of keys; `None` if the group is not wide.
    pub key_bytes: Option<u64>,
    /// Bytes of blocks.
    pub block_bytes: u64,
}

impl GroupShape {
    /// Where values begin. Keys begin at 0.
    pub fn values_at(&self) -> u64 {
        self.entries * size_of::<Key>() as u64
    }

    /// Where hashes begin.
    pub fn hashes_at(&self) -> u64 {
        self.values_at() + self.entries * size_of::<ValueRef>() as u64
    }

    /// Where the places of keys' bytes begin.
    pub fn key_at(&self) -> u64 {
        self.hashes_at() + self.entries * size_of::<u64>() as u64
    }

    /// Where keys' bytes begin, with padding in front of them.
    pub fn key_bytes_at(&self) -> u64 {
        let places = self.key_bytes.map_or(0, |_| self.entries);
        self.key_at() + places * size_of::<u64>() as u64 + PADDING
    }

    /// Where the blocks' bytes begin, with padding in front of them.
    pub fn block_bytes_at(&self) -> u64 {
        let end = self.key_bytes_at() + self.key_bytes.unwrap_or(0);
        end.next_multiple_of(PADDING) + PADDING
    }

    /// Bytes of all parts, with padding behind the last one.
    pub fn bytes(&self) -> u64 {
        (self.block_bytes_at() + self.block_bytes).next_multiple_of(PADDING) + PADDING
    }
}

/// A group in device memory.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its memory.
    pub memory: Arc<Allocation>,
    /// Its parts.
    pub shape: GroupShape,
    /// Sum of its words, as `scan_hash` computes it.
    pub sum: u64,
}

impl FileCache {
    /// Bytes of a file for which a group stands: those of the blocks that begin there.
    pub fn group_bytes(&self) -> u64 {
        self.chunk_bytes * CHUNKS_PER_GROUP
    }

    /// A group, if it is cached. Else its `stored_bytes` are read from the file.
    pub fn find_group(&self, of: &Cacheable, name: &GroupName, stored_bytes: u64) -> Option<Group> {
        let mut state = self.state.lock();
        // If there is none, `find` adds the bytes that are read.
        let clock = state.clock + stored_bytes;
        let file = state.files.get_mut(&of.identity).filter(|f| f.is_live());
        let found = file.and_then(|file| {
            let group = file.groups.get(name)?.clone();
            file.was_used(of, clock);
            Some(group)
        });
        match &found {
            Some(group) => {
                state.clock = clock;
                state.columns.hit_bytes += group.memory.len();
            }
            None => state.columns.miss_bytes += stored_bytes,
        }
        found
    }

    /// Memory for a group, if there is room.
    pub fn take_for_group(&self, of: &Cacheable, shape: &GroupShape) -> Option<Allocation> {
        self.take(of.level, shape.bytes())
    }

    /// Whether a group is cached.
    pub fn has_group(&self, identity: &FileIdentity, name: &GroupName) -> bool {
        let state = self.state.lock();
        let file = state.files.get(identity);
        file.is_some_and(|file| file.groups.contains_key(name))
    }

    /// Leaves memory to a device that has failed: it may still write there.
    pub fn leak(&self, memory: &Allocation) {
        self.arena.leak(memory);
    }

    /// Keeps a group of a file with `data_bytes` bytes of data blocks.
    pub fn keep_group(&self, of: &Cacheable, data_bytes: u64, name: GroupName, group: Group) {
        let is_on = self.is_on();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let clock = state.clock;
        let file = (state.files)
            .entry(of.identity)
            .or_insert_with(|| CachedFile::new(of, data_bytes, clock, Stage::READ));
        let takes = is_on && file.data_bytes == data_bytes && file.is_live();
        match file.groups.entry(name) {
            Entry::Vacant(free) if takes => {
                state.columns.bytes += group.memory.len();
                free.insert(group);
            }
            // It is freed by a task, and not under the lock.
            _ => state.dropped.push(group.memory),
        }
        state.forget_if_empty(&of.identity);
    }

    /// Drops a group whose bytes have changed.
    pub fn group_mismatch(&self, identity: &FileIdentity, name: &GroupName) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.columns.mismatches += 1;
        let file = state.files.get_mut(identity);
        if let Some(group) = file.and_then(|file| file.groups.remove(name)) {
            state.columns.bytes -= group.memory.len();
            state.dropped.push(group.memory);
            state.forget_if_empty(identity);
        }
    }
}
