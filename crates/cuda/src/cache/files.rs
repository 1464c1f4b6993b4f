//! The cached files: each from when a task writes it until no database has it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use rockmill_core::{Cacheable, CachedOutput, FileIdentity};

use super::{CachedFile, FileCache, State};
use crate::memory::Allocation;

/// A file that no version has listed yet is dropped at the version of this number that lacks it. The first one may be older
/// than the file, since RocksDB reports an installation before it writes the MANIFEST.
const LOOKS: u32 = 2;

/// How much is known about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
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

impl Stage {
    /// That of a file which a version has listed.
    pub(super) const READ: Self = Self::Live {
        is_listed: true,
        unlisted: 0,
    };
}

impl CachedFile {
    /// A file of which nothing is cached yet.
    pub(super) fn new(of: &Cacheable, data_bytes: u64, used: u64, stage: Stage) -> Self {
        Self {
            data_bytes,
            chunks: Vec::new(),
            groups: HashMap::new(),
            level: of.level,
            database: of.database,
            used,
            stage,
            compacted: Vec::new(),
        }
    }

    /// Notes that a task uses it, which knows its place.
    pub(super) fn was_used(&mut self, of: &Cacheable, clock: u64) {
        (self.used, self.level, self.database) = (clock, of.level, of.database);
    }

    /// The memory of chunks and groups.
    pub(super) fn memory(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        let groups = self.groups.values().map(|group| &group.memory);
        self.chunks.iter().flatten().chain(groups)
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live { .. })
    }

    /// Takes out a chunk that a compaction has read and no task reads now.
    pub(super) fn take_compacted(&mut self) -> Option<Arc<Allocation>> {
        while let Some(number) = self.compacted.pop() {
            let chunk = self.chunks.get_mut(number);
            let chunk =
                chunk.and_then(|chunk| chunk.take_if(|chunk| Arc::strong_count(chunk) == 1));
            if chunk.is_some() {
                return chunk;
            }
        }
        None
    }
}

impl FileCache {
    /// Lets all files make room for the files of a database that has been closed. They are found if it is opened again.
    pub fn closed(&self, database: u64) {
        for file in self.state.lock().files.values_mut() {
            if file.database == database {
                (file.level, file.used) = (u32::MAX, 0);
            }
        }
    }

    /// Notes that a compaction has read a range of a file. The file leaves the database once the compaction is installed, and
    /// until then only another attempt of the compaction would read it. So its chunks make room for the new files.
    pub fn was_compacted(&self, identity: &FileIdentity, range: Range<u64>) {
        let mut state = self.state.lock();
        if let Some(file) = state.files.get_mut(identity) {
            let first = range.start.div_ceil(self.chunk_bytes);
            let end = match range.end >= file.data_bytes {
                true => range.end.div_ceil(self.chunk_bytes),
                false => range.end / self.chunk_bytes,
            };
            // A compaction that failed may have read them before.
            for number in (first..end).map(|number| number as usize) {
                if !file.compacted.contains(&number) {
                    file.compacted.push(number);
                }
            }
        }
    }

    /// Drops a file that no database has any more.
    pub fn forget(&self, identity: &FileIdentity) {
        self.state.lock().drop_file(identity, self.chunk_bytes);
    }

    /// Drops a file whose cached bytes are not those of the file.
    pub fn mismatch(&self, identity: &FileIdentity) {
        let mut state = self.state.lock();
        state.accounts.mismatches += 1;
        state.drop_file(identity, self.chunk_bytes);
    }

    /// Looks at a version of a database, which has the files with these unique ids. Files that it no longer has are dropped.
    pub fn look(&self, database: u64, has: &dyn Fn([u64; 2]) -> bool) {
        let mut state = self.state.lock();
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
        for identity in gone {
            state.drop_file(&identity, self.chunk_bytes);
        }
    }
}

impl State {
    /// Takes a file out. Tasks free its chunks and groups. Returns the bytes of both.
    pub(super) fn drop_file(&mut self, identity: &FileIdentity, chunk_bytes: u64) -> [u64; 2] {
        let Some(file) = self.files.remove(identity) else {
            return [0; 2];
        };
        let chunks = file.chunks.iter().flatten().count() as u64 * chunk_bytes;
        let groups = file.groups.values().map(|group| group.memory.len()).sum();
        self.dropped.extend(file.memory().cloned());
        self.accounts.bytes -= chunks;
        self.columns.bytes -= groups;
        [chunks, groups]
    }

    /// Forgets a file of which nothing is cached.
    pub(super) fn forget_if_empty(&mut self, identity: &FileIdentity) {
        let file = self.files.get(identity);
        if file.is_some_and(|file| file.memory().next().is_none()) {
            self.files.remove(identity);
        }
    }
}

/// A cached file that a task has written.
#[derive(Debug)]
pub(super) struct Output {
    pub cache: Weak<FileCache>,
    pub identity: FileIdentity,
    pub number: u64,
}

impl CachedOutput for Output {
    fn installed(&self, database: u64) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let mut state = cache.state.lock();
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
        let mut state = cache.state.lock();
        let file = state.files.get(&self.identity);
        if file.is_some_and(|file| file.stage == Stage::Output(self.number)) {
            state.drop_file(&self.identity, cache.chunk_bytes);
        }
    }
}
