//! Data blocks of files that stay in device memory, as the files store them.
//!
//! ```text
//!   file, as its identity names it
//!     chunks of equal size, from the first data block to the end of the last
//! ```
//!
//! A task copies what it finds here into its arena, in place of reading it. All later stages are the same, so every block's
//! checksum is verified at each use. Chunks that a task uses stay until it has copied them.
//!
//! The memory is that of tasks: the cache takes what they leave, and gives it back when a task or a view needs it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rockmill_core::columns::Accounts;
use rockmill_core::{Cacheable, CachedOutput, FileIdentity, Result};

use crate::driver::{CopyKind, Stream};
use crate::memory::{Allocation, DeviceArena};

/// Bytes of a chunk. The last chunk of a file is used in part.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// A file is old once tasks have read this many times the bytes of the cache since its last use. A database that is used
/// rewrites its last level in fewer.
const ROUNDS: u64 = 16;

/// Levels that are told apart when a region is chosen to be freed.
const LEVELS: usize = 8;

/// Maximum number of files that are noted before they are cached.
const MAX_NOTED: usize = 1 << 16;

/// A file that is not listed leaves at this look. Its database may list it only after the first one, since RocksDB reports
/// an installation before it writes the MANIFEST.
const LOOKS: u32 = 2;

/// The cached files of a device.
#[derive(Debug)]
pub struct FileCache {
    arena: Arc<DeviceArena>,
    chunk_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    limit: u64,
    files: HashMap<FileIdentity, CachedFile>,
    accounts: Accounts,
    /// What the process's metrics recorder knows.
    told: Accounts,
    /// Bytes that tasks have read so far, here or from files.
    clock: u64,
    /// Files that scans have read, and how many bytes of them.
    noted: HashMap<FileIdentity, u64>,
    next_output: u64,
}

#[derive(Debug)]
struct CachedFile {
    /// End of the last data block.
    data_bytes: u64,
    /// The chunks that are cached.
    chunks: Vec<Option<Arc<Allocation>>>,
    level: u32,
    database: u64,
    /// The clock at its last use.
    used: u64,
    stage: Stage,
}

/// How much is known about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A task has written it, and RocksDB has not taken it.
    Output(u64),
    /// A database has it.
    Live {
        /// Whether a version has listed it.
        is_listed: bool,
        /// Versions that did not, since.
        unlisted: u32,
    },
}

/// A part of a range of a file.
#[derive(Debug)]
pub enum Part {
    /// It is at this place of a chunk.
    Cached {
        chunk: Arc<Allocation>,
        from: u64,
        len: u64,
    },
    /// It is only in the file.
    InFile { len: u64 },
}

impl FileCache {
    /// An empty cache in the memory of `arena`, of 0 bytes.
    pub fn new(arena: &Arc<DeviceArena>, chunk_bytes: u64) -> Arc<Self> {
        let cache = Arc::new(Self {
            arena: Arc::clone(arena),
            chunk_bytes,
            state: Mutex::default(),
        });
        arena.set_cache(&cache);
        cache
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the number of bytes to keep. 0 keeps none. [`FileCache::trim`], or the next task, frees the rest.
    pub fn set_limit(&self, limit: u64) {
        self.state().limit = limit;
        self.arena.limit_cache(limit);
    }

    /// Whether it keeps more than its limit.
    pub fn exceeds(&self) -> bool {
        let state = self.state();
        state.accounts.bytes > state.limit
    }

    /// Frees what exceeds the limit. The device may wait for all kernels that run.
    pub fn trim(&self) {
        if !self.exceeds() {
            return;
        }
        while self.exceeds() && self.evict(None) {}
        self.arena.release_cache_regions();
    }

    /// Whether it keeps anything.
    pub fn is_on(&self) -> bool {
        self.state().limit > 0
    }

    /// Its counts.
    pub fn accounts(&self) -> Accounts {
        self.state().accounts
    }

    /// Its counts as the process's metrics recorder knows them, and now. It is to know the latter.
    pub fn tell(&self) -> [Accounts; 2] {
        let state = &mut *self.state();
        [
            std::mem::replace(&mut state.told, state.accounts),
            state.accounts,
        ]
    }

    /// The parts of a range of a file: what is cached, and what is only in the file.
    pub fn find(&self, of: &Cacheable, range: Range<u64>) -> Vec<Part> {
        let mut state = self.state();
        let state = &mut *state;
        let len = range.end - range.start;
        state.clock += len;
        let mut parts = Vec::new();
        let mut at = range.start;
        if let Some(file) = state.files.get_mut(&of.identity).filter(|f| f.is_live()) {
            file.used = state.clock;
            file.level = of.level;
            file.database = of.database;
            while at < range.end {
                let number = at / self.chunk_bytes;
                let start = number * self.chunk_bytes;
                let end = (start + self.chunk_bytes).min(range.end);
                let chunk = file.chunks.get(number as usize).and_then(Option::as_ref);
                match chunk.filter(|_| end <= file.data_bytes) {
                    Some(chunk) => {
                        state.accounts.hit_bytes += end - at;
                        parts.push(Part::Cached {
                            chunk: Arc::clone(chunk),
                            from: at - start,
                            len: end - at,
                        });
                    }
                    None => add_in_file(&mut parts, end - at),
                }
                at = end;
            }
        } else {
            add_in_file(&mut parts, len);
        }
        let in_file = parts.iter().map(|part| match part {
            Part::InFile { len } => *len,
            Part::Cached { .. } => 0,
        });
        state.accounts.miss_bytes += in_file.sum::<u64>();
        parts
    }

    /// Notes that a scan has read `bytes` of a file with `data_bytes` bytes of data blocks. Returns whether it was read once
    /// before, so that it is worth keeping.
    pub fn is_read_again(&self, identity: &FileIdentity, bytes: u64, data_bytes: u64) -> bool {
        let mut state = self.state();
        if state.limit == 0 {
            return false;
        }
        if state.noted.len() >= MAX_NOTED {
            state.noted.clear();
        }
        let before = state.noted.entry(*identity).or_default();
        let is_again = *before >= data_bytes;
        *before = before.saturating_add(bytes);
        is_again
    }

    /// Copies the chunks of a file that lie in `range`, whose bytes are at `from`. They were verified. Waits for the copies.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// The bytes at `from` are those of the range, and no code changes them until this returns.
    pub unsafe fn keep_read(
        &self,
        of: &Cacheable,
        data_bytes: u64,
        range: Range<u64>,
        from: *const u8,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let copied = unsafe { self.copies(of, data_bytes, range, from, stream)? };
        let live = Stage::Live {
            is_listed: true,
            unlisted: 0,
        };
        self.insert(of, data_bytes, copied, live);
        Ok(())
    }

    /// Copies the data blocks of a new file, which are at `from`. Waits for the copies. No task finds them before the file is
    /// installed. `None` if there is no room.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// As for [`FileCache::keep_read`].
    pub unsafe fn keep_output(
        self: &Arc<Self>,
        identity: FileIdentity,
        level: u32,
        data_bytes: u64,
        from: *const u8,
        stream: &Stream,
    ) -> Result<Option<Arc<dyn CachedOutput>>> {
        let of = Cacheable {
            identity,
            level,
            database: 0,
        };
        // SAFETY: the caller guarantees it.
        let copied = unsafe { self.copies(&of, data_bytes, 0..data_bytes, from, stream)? };
        let number = {
            let mut state = self.state();
            state.next_output += 1;
            state.next_output
        };
        if copied.is_empty() || !self.insert(&of, data_bytes, copied, Stage::Output(number)) {
            return Ok(None);
        }
        Ok(Some(Arc::new(Output {
            cache: Arc::downgrade(self),
            identity,
            number,
        })))
    }

    /// Copies whole chunks, each with its number, until there is no room for more.
    unsafe fn copies(
        &self,
        of: &Cacheable,
        data_bytes: u64,
        range: Range<u64>,
        from: *const u8,
        stream: &Stream,
    ) -> Result<Vec<(usize, Arc<Allocation>)>> {
        let (mut copied, mut failed) = (Vec::new(), Ok(()));
        let first = range.start.div_ceil(self.chunk_bytes);
        for number in first..data_bytes.div_ceil(self.chunk_bytes) {
            let start = number * self.chunk_bytes;
            let end = (start + self.chunk_bytes).min(data_bytes);
            if end > range.end {
                break;
            }
            if self.has(&of.identity, number as usize) {
                continue;
            }
            let Some(chunk) = self.take(of.level) else {
                break;
            };
            let from = from.wrapping_add((start - range.start) as usize);
            // SAFETY: the chunk has room for these bytes, no other code knows it, and it is waited for below.
            let queued = unsafe {
                let len = (end - start) as usize;
                stream.copy(CopyKind::Inside, chunk.as_ptr(), from, len)
            };
            copied.push((number as usize, Arc::new(chunk)));
            if queued.is_err() {
                failed = queued;
                break;
            }
        }
        // Otherwise a chunk could be given to others while it is written.
        let done = stream.synchronize();
        let is_done = done.is_ok();
        if let Err(error) = failed.and(done) {
            self.untake(copied.len());
            if !is_done {
                // The device may still write to them.
                std::mem::forget(copied);
            }
            return Err(error);
        }
        Ok(copied)
    }

    fn has(&self, identity: &FileIdentity, number: usize) -> bool {
        let state = self.state();
        let file = state.files.get(identity);
        file.is_some_and(|file| matches!(file.chunks.get(number), Some(Some(_))))
    }

    /// Memory of a chunk of a file of that level; files that are worth less make room.
    fn take(&self, level: u32) -> Option<Allocation> {
        loop {
            let is_within = {
                let mut state = self.state();
                let bytes = state.accounts.bytes + self.chunk_bytes;
                let is_within = bytes <= state.limit;
                if is_within {
                    state.accounts.bytes = bytes;
                }
                is_within
            };
            if is_within {
                if let Some(chunk) = self.arena.take_for_cache(self.chunk_bytes) {
                    return Some(chunk);
                }
                self.untake(1);
            }
            if !self.evict(Some(level)) {
                return None;
            }
        }
    }

    fn untake(&self, chunks: usize) {
        self.state().accounts.bytes -= chunks as u64 * self.chunk_bytes;
    }

    /// Adds copied chunks to a file. A chunk that it has meanwhile is freed again. False if nothing was added.
    fn insert(
        &self,
        of: &Cacheable,
        data_bytes: u64,
        copied: Vec<(usize, Arc<Allocation>)>,
        stage: Stage,
    ) -> bool {
        let mut unused = Vec::new();
        let mut state = self.state();
        let (clock, is_on) = (state.clock, state.limit > 0);
        let file = state
            .files
            .entry(of.identity)
            .or_insert_with(|| CachedFile {
                data_bytes,
                chunks: Vec::new(),
                level: of.level,
                database: of.database,
                used: clock,
                stage,
            });
        let is_same = file.data_bytes == data_bytes && (file.stage == stage || file.is_live());
        let is_output = matches!(stage, Stage::Output(_));
        let takes = is_on && is_same && (!is_output || file.stage == stage);
        let mut added = false;
        for (number, chunk) in copied {
            if file.chunks.len() <= number {
                file.chunks.resize(number + 1, None);
            }
            match &mut file.chunks[number] {
                free @ None if takes => {
                    *free = Some(chunk);
                    added = true;
                }
                _ => unused.push(chunk),
            }
        }
        if file.chunks.iter().all(Option::is_none) {
            state.files.remove(&of.identity);
        }
        drop(state);
        self.untake(unused.len());
        added
    }

    /// Evicts a file for one of that level, or for tasks. False if none may go.
    ///
    /// A compaction reads the files of a level in turn, so the one that was not used for the longest time is the one that is
    /// needed next. So a file makes room for shallower ones only, until it is old.
    fn evict(&self, level: Option<u32>) -> bool {
        let mut state = self.state();
        let is_old = |file: &CachedFile| state.is_old(file);
        let may_go =
            |file: &CachedFile| level.is_none_or(|level| file.level > level || is_old(file));
        let files = state.files.iter().filter(|(_, file)| may_go(file));
        let worst = files.max_by_key(|(_, file)| (is_old(file), file.level, u64::MAX - file.used));
        let Some(identity) = worst.map(|(identity, _)| *identity) else {
            return false;
        };
        let bytes = state.drop_file(&identity, self.chunk_bytes);
        state.accounts.evicted_bytes += bytes.1;
        drop(state);
        true
    }

    /// Gives at least `bytes` back to the device, or all that no task uses now. Returns how many.
    pub fn give_back(&self, bytes: u64) -> u64 {
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

    /// The region whose chunks are worth the least, of those that no task copies from: with the fewest chunks of the
    /// shallowest level, then of the next one, and so on.
    fn cheapest_region(&self, tried: &[usize]) -> Option<Range<usize>> {
        let regions = self.arena.cache_regions();
        let mut chunks = vec![Some([0u64; LEVELS]); regions.len()];
        let state = self.state();
        for file in state.files.values() {
            let level = match state.is_old(file) {
                true => LEVELS - 1,
                false => (file.level as usize).min(LEVELS - 1),
            };
            for chunk in file.chunks.iter().flatten() {
                let place = chunk.as_ptr().addr();
                let at = regions.partition_point(|region| region.end <= place);
                let Some(counts) = chunks.get_mut(at) else {
                    continue;
                };
                if Arc::strong_count(chunk) > 1 {
                    *counts = None;
                } else if let Some(counts) = counts {
                    counts[level] += 1;
                }
            }
        }
        let known = regions.into_iter().zip(chunks);
        let free = known.filter_map(|(region, counts)| Some((counts?, region)));
        let untried = free.filter(|(_, region)| !tried.contains(&region.start));
        let cheapest = untried.min_by_key(|(counts, _)| *counts);
        cheapest.map(|(_, region)| region)
    }

    /// Drops the chunks in a region.
    fn evict_region(&self, region: &Range<usize>) {
        let mut dropped = Vec::new();
        let mut state = self.state();
        for file in state.files.values_mut() {
            for chunk in &mut file.chunks {
                dropped.extend(chunk.take_if(|chunk| region.contains(&chunk.as_ptr().addr())));
            }
        }
        (state.files).retain(|_, file| file.chunks.iter().any(Option::is_some));
        let bytes = dropped.len() as u64 * self.chunk_bytes;
        state.accounts.bytes -= bytes;
        state.accounts.evicted_bytes += bytes;
        drop(state);
        drop(dropped);
    }

    /// Lets all files make room for the files of a database that has been closed. They are found if it is opened again.
    pub fn closed(&self, database: u64) {
        for file in self.state().files.values_mut() {
            if file.database == database {
                (file.level, file.used) = (u32::MAX, 0);
            }
        }
    }

    /// Drops a file that no database has any more.
    pub fn forget(&self, identity: &FileIdentity) {
        let dropped = self.state().drop_file(identity, self.chunk_bytes);
        drop(dropped);
    }

    /// Drops a file whose cached bytes are not those of the file.
    pub fn mismatch(&self, identity: &FileIdentity) {
        let mut state = self.state();
        state.accounts.mismatches += 1;
        let dropped = state.drop_file(identity, self.chunk_bytes);
        drop(state);
        drop(dropped);
    }

    /// Looks at a version of a database, which has the files with these unique ids. Files that it no longer has are dropped.
    pub fn look(&self, database: u64, has: &dyn Fn([u64; 2]) -> bool) {
        let mut state = self.state();
        let mut gone = Vec::new();
        for (identity, file) in &mut state.files {
            let Stage::Live {
                is_listed,
                unlisted,
            } = &mut file.stage
            else {
                continue;
            };
            if file.database != database {
                continue;
            }
            if has(identity.unique_id()) {
                (*is_listed, *unlisted) = (true, 0);
                continue;
            }
            *unlisted += 1;
            if *is_listed || *unlisted >= LOOKS {
                gone.push(*identity);
            }
        }
        let dropped: Vec<_> = (gone.iter())
            .map(|identity| state.drop_file(identity, self.chunk_bytes))
            .collect();
        drop(state);
        drop(dropped);
    }

    /// Inverts a bit of every chunk, as faulty memory would. Returns the number of chunks. For tests, between tasks.
    ///
    /// # Errors
    /// Device.
    #[doc(hidden)]
    pub fn flip(&self, bit: u64) -> Result<usize> {
        let device = self.arena.device();
        let _current = device.make_current()?;
        let stream = Stream::new(device)?;
        let state = self.state();
        let mut flipped = 0;
        for file in state.files.values() {
            for (number, chunk) in file.chunks.iter().enumerate() {
                let Some(chunk) = chunk else { continue };
                let used = file.data_bytes - number as u64 * self.chunk_bytes;
                let at = (bit / 8) % used.min(self.chunk_bytes);
                let place = chunk.as_ptr().wrapping_add(at as usize);
                let mut byte = 0u8;
                // SAFETY: the byte lies in the chunk, and both copies are waited for.
                unsafe { stream.copy(CopyKind::FromDevice, &raw mut byte, place, 1)? };
                stream.synchronize()?;
                byte ^= 1 << (bit % 8);
                // SAFETY: as above.
                unsafe { stream.copy(CopyKind::ToDevice, place, &raw const byte, 1)? };
                stream.synchronize()?;
                flipped += 1;
            }
        }
        Ok(flipped)
    }
}

fn add_in_file(parts: &mut Vec<Part>, more: u64) {
    match parts.last_mut() {
        Some(Part::InFile { len }) => *len += more,
        _ => parts.push(Part::InFile { len: more }),
    }
}

impl CachedFile {
    fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live { .. })
    }
}

impl State {
    /// Whether a file was not used for so long that it makes room for all others.
    fn is_old(&self, file: &CachedFile) -> bool {
        let old = self.accounts.bytes.saturating_mul(ROUNDS);
        self.clock - file.used >= old.max(1)
    }

    /// Takes a file out. Its chunks are freed when the result is dropped and no task uses them.
    fn drop_file(
        &mut self,
        identity: &FileIdentity,
        chunk_bytes: u64,
    ) -> (Option<CachedFile>, u64) {
        let file = self.files.remove(identity);
        let chunks = file.iter().flat_map(|file| file.chunks.iter().flatten());
        let bytes = chunks.count() as u64 * chunk_bytes;
        self.accounts.bytes -= bytes;
        (file, bytes)
    }
}

/// A cached file that a task has written.
#[derive(Debug)]
struct Output {
    cache: Weak<FileCache>,
    identity: FileIdentity,
    number: u64,
}

impl CachedOutput for Output {
    fn installed(&self, database: u64) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let mut state = cache.state();
        let file = state.files.get_mut(&self.identity);
        if let Some(file) = file.filter(|file| file.stage == Stage::Output(self.number)) {
            file.database = database;
            file.stage = Stage::Live {
                is_listed: false,
                unlisted: 0,
            };
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let mut state = cache.state();
        let file = state.files.get(&self.identity);
        if file.is_some_and(|file| file.stage == Stage::Output(self.number)) {
            let dropped = state.drop_file(&self.identity, cache.chunk_bytes);
            drop(state);
            drop(dropped);
        }
    }
}
