//! Data blocks of files that stay in device memory: as the files store them, and decoded.
//!
//! ```text
//!   file, as its identity names it
//!     chunks of equal size, from the first data block to the end of the last
//!     groups: the decoded entries of some neighbouring blocks
//! ```
//!
//! A task copies what it finds here into its arena, in place of reading it. All later stages are the same, so every block's
//! checksum is verified at each use. Chunks that a task uses stay until it has copied them.
//!
//! Scans keep the groups that they decode, and later ones begin with these. They contain all entries of their blocks, and
//! each scan merges them with other entries and decides anew which it sees. So snapshots, deletes and overlapping tables
//! need no rule of their own. The sum of a group's bytes is compared before they are used.
//!
//! The memory is that of tasks: the cache takes what they leave, and gives it back when a task or a view needs it.

mod files;
mod groups;
mod room;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rockmill_core::columns::Accounts;
use rockmill_core::{Cacheable, CachedOutput, FileIdentity, Lock, Result};

use crate::driver::{CopyKind, Stream};
use crate::memory::{Allocation, DeviceArena};
use files::Stage;
pub use groups::{Group, GroupName, GroupShape};

/// Bytes of a chunk. The last chunk of a file is used in part.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// Maximum number of files that are noted before they are cached.
const MAX_NOTED: usize = 1 << 16;

/// The cached files of a device.
#[derive(Debug)]
pub struct FileCache {
    arena: Arc<DeviceArena>,
    chunk_bytes: u64,
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<FileIdentity, CachedFile>,
    /// Counts of chunks, and of groups.
    accounts: Accounts,
    columns: Accounts,
    /// The counts that the process's metrics recorder has received.
    told: Accounts,
    columns_told: Accounts,
    /// Bytes that tasks have read so far, here or from files.
    clock: u64,
    /// Files that scans have read, and how many bytes of them.
    noted: HashMap<FileIdentity, u64>,
    next_output: u64,
    /// Chunks and groups that were dropped. Tasks free them: a thread of RocksDB must not wait for the arena, under whose lock the device
    /// may wait for kernels.
    dropped: Vec<Arc<Allocation>>,
}

#[derive(Debug)]
struct CachedFile {
    /// End of the last data block.
    data_bytes: u64,
    /// The chunks that are cached.
    chunks: Vec<Option<Arc<Allocation>>>,
    /// The groups that are cached.
    groups: HashMap<GroupName, Group>,
    level: u32,
    database: u64,
    /// The clock at its last use.
    used: u64,
    stage: Stage,
    /// Chunks that compactions have read. They leave the cache once the compaction is installed.
    compacted: Vec<usize>,
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
            state: Lock::default(),
        });
        arena.set_cache(&cache);
        cache
    }

    /// Changes the number of bytes to keep, as the device allocates them. 0 keeps none. `DeviceArena::trim`, or the next
    /// task, frees the rest.
    pub fn set_limit(&self, limit: u64) {
        self.arena.limit_cache(limit);
    }

    /// Whether it keeps anything.
    pub fn is_on(&self) -> bool {
        self.arena.max_cache_bytes() > 0
    }

    /// The counts of files.
    pub fn accounts(&self) -> Accounts {
        self.state.lock().accounts
    }

    /// The counts of groups.
    pub fn column_accounts(&self) -> Accounts {
        self.state.lock().columns
    }

    /// The counts that the process's metrics recorder has received, and those that it receives now; see [`Accounts::tell`].
    pub fn tell(&self, stays: bool) -> [Accounts; 2] {
        let state = &mut *self.state.lock();
        state.accounts.tell(&mut state.told, stays)
    }

    /// The same counts of groups.
    pub fn tell_columns(&self, stays: bool) -> [Accounts; 2] {
        let state = &mut *self.state.lock();
        state.columns.tell(&mut state.columns_told, stays)
    }

    /// The parts of a range of a file: what is cached, and what is only in the file.
    pub fn find(&self, of: &Cacheable, range: Range<u64>) -> Vec<Part> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let len = range.end - range.start;
        state.clock += len;
        let mut parts = Vec::new();
        let mut at = range.start;
        if let Some(file) = state.files.get_mut(&of.identity).filter(|f| f.is_live()) {
            file.was_used(of, state.clock);
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
        if !self.is_on() {
            return false;
        }
        let mut state = self.state.lock();
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
        self.insert(of, data_bytes, copied, Stage::READ);
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
            let mut state = self.state.lock();
            state.next_output += 1;
            state.next_output
        };
        if copied.is_empty() || !self.insert(&of, data_bytes, copied, Stage::Output(number)) {
            return Ok(None);
        }
        Ok(Some(Arc::new(files::Output {
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
            let Some(chunk) = self.take(of.level, self.chunk_bytes) else {
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
        if !is_done {
            (copied.iter()).for_each(|(_, chunk)| self.arena.leak(chunk));
        }
        failed.and(done).map(|()| copied)
    }

    fn has(&self, identity: &FileIdentity, number: usize) -> bool {
        let state = self.state.lock();
        let file = state.files.get(identity);
        file.is_some_and(|file| matches!(file.chunks.get(number), Some(Some(_))))
    }

    /// Adds copied chunks to a file, except those that it has meanwhile. False if nothing was added.
    fn insert(
        &self,
        of: &Cacheable,
        data_bytes: u64,
        copied: Vec<(usize, Arc<Allocation>)>,
        stage: Stage,
    ) -> bool {
        let mut unused = Vec::new();
        let is_on = self.is_on();
        let mut state = self.state.lock();
        let clock = state.clock;
        let file = state
            .files
            .entry(of.identity)
            .or_insert_with(|| CachedFile::new(of, data_bytes, clock, stage));
        let is_same = file.data_bytes == data_bytes && (file.stage == stage || file.is_live());
        let is_output = matches!(stage, Stage::Output(_));
        let takes = is_on && is_same && (!is_output || file.stage == stage);
        let mut added = 0;
        for (number, chunk) in copied {
            if file.chunks.len() <= number {
                file.chunks.resize(number + 1, None);
            }
            match &mut file.chunks[number] {
                free @ None if takes => {
                    *free = Some(chunk);
                    added += self.chunk_bytes;
                }
                _ => unused.push(chunk),
            }
        }
        state.forget_if_empty(&of.identity);
        state.accounts.bytes += added;
        drop(state);
        drop(unused);
        added > 0
    }

    /// Inverts a bit of every chunk and group, as faulty memory would. Returns their number. For tests, between tasks.
    ///
    /// # Errors
    /// Device.
    #[doc(hidden)]
    pub fn flip(&self, bit: u64) -> Result<usize> {
        let device = self.arena.device();
        let _current = device.make_current()?;
        let stream = Stream::new(device)?;
        let state = self.state.lock();
        let mut flipped = 0;
        for file in state.files.values() {
            let chunks = file.chunks.iter().enumerate();
            let chunks = chunks.filter_map(|(number, chunk)| {
                let used = file.data_bytes - number as u64 * self.chunk_bytes;
                Some((chunk.as_ref()?, used.min(self.chunk_bytes)))
            });
            let groups = file.groups.values();
            let groups = groups.map(|group| (&group.memory, group.shape.bytes()));
            for (memory, used) in chunks.chain(groups) {
                let place = memory.as_ptr().wrapping_add(((bit / 8) % used) as usize);
                let mut byte = 0u8;
                // SAFETY: the byte lies in the memory, and both copies are waited for.
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
