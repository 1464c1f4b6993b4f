//! The choice of files that leave: room for new chunks, and memory that goes back to tasks and views.

use std::ops::Range;
use std::sync::Arc;

use super::{CachedFile, FileCache, State};
use crate::memory::{Allocation, Placed};

/// A file is old once tasks have read this many times the bytes of the cache since its last use. A database that is used
/// rewrites its last level in fewer.
const ROUNDS: u64 = 16;

/// Levels that are told apart when a region is chosen to be freed.
const LEVELS: usize = 8;

impl FileCache {
    /// Memory of a chunk or group of a file of that level; files that are worth less make room.
    pub(super) fn take(&self, level: u32, bytes: u64) -> Option<Allocation> {
        loop {
            self.free_dropped();
            match self.arena.take_for_cache(bytes, self.chunk_bytes) {
                Placed::Here(chunk) => return Some(chunk),
                Placed::IfCacheGives(_) if self.evict(level) => {}
                Placed::IfCacheGives(_) | Placed::Later => return None,
            }
        }
    }

    /// Frees dropped chunks, except those that tasks copy from, in the regions of the cache.
    fn free_dropped(&self) {
        let dropped = std::mem::take(&mut self.state.lock().dropped);
        drop(dropped);
    }

    /// Evicts a chunk that a compaction has read, or a file for one of that level. False if none may go.
    ///
    /// A compaction reads the files of a level in turn, so the one that was not used for the longest time is the one that is
    /// needed next. So a file makes room for shallower ones only, until it is old.
    fn evict(&self, level: u32) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let chunk = state
            .files
            .values_mut()
            .find_map(CachedFile::take_compacted);
        if let Some(chunk) = chunk {
            state.dropped.push(chunk);
            state.accounts.bytes -= self.chunk_bytes;
            state.accounts.evicted_bytes += self.chunk_bytes;
            return true;
        }
        let is_old = |file: &CachedFile| state.is_old(file);
        // A file whose chunks are all being copied by tasks makes no room now.
        let is_free =
            |file: &CachedFile| file.memory().any(|memory| Arc::strong_count(memory) == 1);
        let may_go = |file: &CachedFile| (file.level > level || is_old(file)) && is_free(file);
        let files = state.files.iter().filter(|(_, file)| may_go(file));
        let worst = files.max_by_key(|(_, file)| (is_old(file), file.level, u64::MAX - file.used));
        let Some(identity) = worst.map(|(identity, _)| *identity) else {
            return false;
        };
        let [chunks, groups] = state.drop_file(&identity, self.chunk_bytes);
        state.accounts.evicted_bytes += chunks;
        state.columns.evicted_bytes += groups;
        true
    }

    /// Gives at least `bytes` back to the device, or all that no task uses now. Returns how many.
    pub fn give_back(&self, bytes: u64) -> u64 {
        self.free_dropped();
        let mut freed = self.arena.release_cache_regions();
        let mut tried = Vec::new();
        while freed < bytes {
            let Some(region) = self.cheapest_region(&tried) else {
                break;
            };
            tried.push(region.start);
            self.evict_region(&region);
            freed += self.arena.release_cache_regions();
        }
        freed
    }

    /// The region whose chunks are worth the least, of those in which no task fills or reads chunks: with the fewest chunks of
    /// the shallowest level, then of the next one, and so on.
    fn cheapest_region(&self, tried: &[usize]) -> Option<Range<usize>> {
        let mut regions = self.arena.cache_regions();
        let mut chunks = vec![Some([0u64; LEVELS]); regions.len()];
        let state = self.state.lock();
        for file in state.files.values() {
            let level = match state.is_old(file) {
                true => LEVELS - 1,
                false => (file.level as usize).min(LEVELS - 1),
            };
            for chunk in file.memory() {
                let place = chunk.as_ptr().addr();
                let at = regions.partition_point(|(region, _)| region.end <= place);
                let region = regions.get_mut(at);
                let Some((_, others)) = region.filter(|(region, _)| region.contains(&place)) else {
                    // The device has failed, and has kept the region.
                    continue;
                };
                // Chunks that are in no file are those of tasks.
                *others = others.saturating_sub(chunk.len());
                let counts = &mut chunks[at];
                if Arc::strong_count(chunk) > 1 {
                    *counts = None;
                } else if let Some(counts) = counts {
                    counts[level] += chunk.len().div_ceil(self.chunk_bytes);
                }
            }
        }
        let known = regions.into_iter().zip(chunks);
        let free = known.filter_map(|((region, others), counts)| {
            let counts = counts.filter(|_| others == 0)?;
            Some((counts, region))
        });
        let untried = free.filter(|(_, region)| !tried.contains(&region.start));
        let cheapest = untried.min_by_key(|(counts, _)| *counts);
        cheapest.map(|(_, region)| region)
    }

    /// Drops the chunks and groups in a region.
    fn evict_region(&self, region: &Range<usize>) {
        let is_there = |memory: &Allocation| region.contains(&memory.as_ptr().addr());
        let (mut chunks, mut groups) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        for file in state.files.values_mut() {
            for chunk in &mut file.chunks {
                chunks.extend(chunk.take_if(|chunk| is_there(chunk)));
            }
            groups.extend((file.groups).extract_if(|_, group| is_there(&group.memory)));
        }
        (state.files).retain(|_, file| file.memory().next().is_some());
        let bytes = chunks.len() as u64 * self.chunk_bytes;
        state.accounts.bytes -= bytes;
        state.accounts.evicted_bytes += bytes;
        let bytes: u64 = groups.iter().map(|(_, group)| group.memory.len()).sum();
        state.columns.bytes -= bytes;
        state.columns.evicted_bytes += bytes;
        drop(state);
        drop((chunks, groups));
    }
}

impl State {
    /// Whether a file was not used for so long that it makes room for all others.
    fn is_old(&self, file: &CachedFile) -> bool {
        let bytes = self.accounts.bytes + self.columns.bytes;
        let old = bytes.saturating_mul(ROUNDS);
        self.clock - file.used >= old.max(1)
    }
}
