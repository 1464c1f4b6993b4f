//! Input to the device: the byte ranges of a slice's blocks, copied into one arena.
//!
//! Ranges are read into pinned memory, by default. Or what lies in the page cache is mapped, populated,
//! registered, and copied to the device straight from there: half the processor time, but registering is one
//! after another whatever the threads. Rockmill's host code never looks at mapped bytes, but the driver
//! copies small pieces by itself, which would raise SIGBUS if the file were truncated meanwhile; so those are
//! read. So is what would register more at a time than the settings allow. docs/design/gpu-spike.md has the
//! numbers.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rockmill_core::{CancelToken, Error, InputTable, KeyRange, ReadAt, Resource, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::CudaSettings;
use crate::buffer::DeviceBuffer;
use crate::device::Device;
use crate::ffi::BlockRef;
use crate::lane::Lane;
use crate::limits::refused;
use crate::memory::Registration;
use crate::pool::Pool;
use crate::stream::Stream;
use crate::timing::Stages;

/// How input gets to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputPath {
    /// Mapped and registered where it is resident, read where it is not.
    Mapped,
    /// Mapped so on file systems with a disk, which is slower than registering; read on those in memory.
    Auto,
    /// Mapped and registered wherever the system allows it; for measurements.
    MappedAlways,
    /// Always read into pinned memory.
    Read,
}

/// Bytes in front of and behind every range (`types.hpp:ARENA_PADDING`), and its alignment.
const PADDING: u64 = 64;

/// Sizes of entries are 32-bit words on the device, also when an entry is stored in a longer form.
const MAX_BLOCK_BYTES: u32 = 1 << 31;

/// Smaller pieces are read: the driver copies small ones (12 KiB were seen, 32 were not) by the processor rather
/// than by the device.
const MIN_MAPPED_BYTES: u64 = 1 << 20;

/// A range of a file and where it goes in the arena.
#[derive(Debug)]
struct Piece<'a> {
    file: &'a dyn ReadAt,
    offset: u64,
    len: u64,
    at: u64,
}

/// The blocks of a slice.
#[derive(Debug, Default)]
pub struct Input<'a> {
    pieces: Vec<Piece<'a>>,
    /// All blocks, run after run.
    pub blocks: Vec<BlockRef>,
    /// For each run that has blocks: its position in the job's inputs, and its end among the blocks.
    pub runs: Vec<(usize, usize)>,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes read from files.
    pub bytes: u64,
    /// Bytes of a piece at most.
    piece_bytes: u64,
    /// Parts of the arena that no piece fills.
    pub gaps: Vec<Range<u64>>,
}

impl<'a> Input<'a> {
    /// Finds the blocks of `inputs` that may hold keys of `range`.
    ///
    /// # Errors
    /// Corruption if an index names bytes outside its file.
    pub fn find(inputs: &'a [InputTable], range: &KeyRange, piece_bytes: u64) -> Result<Self> {
        let mut input = Self {
            arena_bytes: PADDING,
            piece_bytes,
            ..Self::default()
        };
        for (ordinal, table) in inputs.iter().enumerate() {
            let entries = &table.meta.index[table.blocks_in_range(range)];
            if !entries.is_empty() {
                input.add(ordinal, table, entries)?;
            }
        }
        Ok(input)
    }

    fn add(
        &mut self,
        ordinal: usize,
        table: &'a InputTable,
        entries: &[rockmill_format::index::IndexEntry],
    ) -> Result<()> {
        let file: &dyn ReadAt = &*table.file;
        // Decoding the index has checked that offsets ascend.
        let offset = entries[0].handle.offset;
        let mut end = offset;
        let guard = table.meta.footer.guard;
        let interval = table.meta.properties.data_block_restart_interval;
        let restart_interval = u32::try_from(interval).unwrap_or(u32::MAX);
        for entry in entries {
            let handle = entry.handle;
            let len = handle
                .stored_len(table.meta.file_size)
                .map_err(|e| Error::format(file.name(), e))?;
            end = end.max(handle.offset + len as u64);
            self.blocks.push(BlockRef {
                at: self.arena_bytes + (handle.offset - offset),
                file_offset: handle.offset,
                size: u32::try_from(handle.size)
                    .ok()
                    .filter(|&size| size <= MAX_BLOCK_BYTES)
                    .ok_or_else(|| refused("blocks of more than 2 GiB"))?,
                checksum_base: guard.base_context_checksum,
                checksum: guard.checksum as u32,
                restart_interval,
            });
        }
        self.runs.push((ordinal, self.blocks.len()));
        self.add_range(file, offset, end);
        Ok(())
    }

    /// The whole of each file, without blocks.
    pub fn whole(files: &'a [Box<dyn ReadAt>], piece_bytes: u64) -> Self {
        let mut input = Self {
            arena_bytes: PADDING,
            piece_bytes,
            ..Self::default()
        };
        for file in files {
            input.add_range(&**file, 0, file.len());
        }
        input
    }

    fn add_range(&mut self, file: &'a dyn ReadAt, offset: u64, end: u64) {
        let mut at = self.arena_bytes;
        self.gaps.push(at - PADDING..at);
        let mut from = offset;
        while from < end {
            // Pieces end on multiples of their size in the file, so that no page is mapped twice.
            let to = ((from / self.piece_bytes + 1) * self.piece_bytes).min(end);
            self.pieces.push(Piece {
                file,
                offset: from,
                len: to - from,
                at,
            });
            at += to - from;
            from = to;
        }
        self.bytes += end - offset;
        self.arena_bytes = (at + 2 * PADDING).next_multiple_of(PADDING);
        self.gaps.push(at..self.arena_bytes - PADDING);
    }

    /// File and offset of a block, for errors.
    pub fn place(&self, inputs: &'a [InputTable], block: usize) -> (&'a str, u64) {
        let run = self.runs.partition_point(|&(_, end)| end <= block);
        let (ordinal, _) = self.runs[run];
        (inputs[ordinal].file.name(), self.blocks[block].file_offset)
    }

    /// Copies all ranges to the device and waits for them.
    ///
    /// # Errors
    /// Storage, Corruption, Device, Cancelled.
    pub fn load(
        &self,
        pool: &Pool,
        settings: &CudaSettings,
        arena: &mut DeviceBuffer<u8>,
        cancel: &CancelToken,
        stages: &Stages,
    ) -> Result<()> {
        let loader = Loader {
            pool,
            settings,
            held: Mutex::default(),
            pieces: &self.pieces,
            next: AtomicUsize::new(0),
            arena: Address(arena.room(self.arena_bytes as usize)?),
            cancel,
            stages,
        };
        let threads = settings.io_threads.min(self.pieces.len()).max(1);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .filter_map(|_| {
                    let builder = std::thread::Builder::new().name("rockmill-in".to_owned());
                    builder
                        .spawn_scoped(scope, || stages.count_cpu(|| loader.work()))
                        .ok()
                })
                .collect();
            let mut done = loader.work();
            for other in others {
                let result = other
                    .join()
                    .unwrap_or_else(|_| Err(Error::internal("a loading thread panicked")));
                done = done.and(result);
            }
            let held = loader
                .held
                .lock()
                .map(|mut held| std::mem::take(&mut *held));
            let held = held.unwrap_or_default();
            if !held.is_empty() {
                let bytes = self.bytes;
                loader.unmap(held, bytes)?;
            }
            done
        })
    }
}

/// Device memory that several threads fill, each its own pieces.
#[derive(Debug, Clone, Copy)]
struct Address(*mut u8);

// SAFETY: the address is only handed to copies, and pieces do not overlap.
unsafe impl Sync for Address {}

/// What the loading threads share.
struct Loader<'a> {
    pool: &'a Pool,
    settings: &'a CudaSettings,
    /// What was mapped and waits to be unmapped with the rest; unregistering waits for the device.
    held: Mutex<Vec<Registered<'a>>>,
    pieces: &'a [Piece<'a>],
    next: AtomicUsize,
    arena: Address,
    cancel: &'a CancelToken,
    stages: &'a Stages,
}

impl Loader<'_> {
    /// Takes pieces until none is left.
    fn work(&self) -> Result<()> {
        let _current = self.pool.device().make_current()?;
        let mut lane = self.pool.lane(self.cancel)?;
        let done = self.work_with(&mut lane);
        if done.is_err() {
            // The others need not go on.
            self.next.store(self.pieces.len(), Ordering::Relaxed);
        }
        done.and(lane.stream.synchronize())
    }

    fn work_with(&self, lane: &mut Lane) -> Result<()> {
        let mut turn = 0;
        while let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.cancel.check()?;
            if !self.copy_mapped(piece, &lane.stream)? {
                self.copy_read(piece, lane, &mut turn)?;
            }
        }
        Ok(())
    }

    /// Copies from the page cache. False if that cannot be done.
    fn copy_mapped(&self, piece: &Piece<'_>, stream: &Stream) -> Result<bool> {
        let Some(fd) = piece.file.as_fd() else {
            return Ok(false);
        };
        if piece.len < MIN_MAPPED_BYTES {
            return Ok(false);
        }
        let is_resident =
            || resident_bytes(fd, piece.offset, piece.len).is_some_and(|bytes| bytes >= piece.len);
        let is_wanted = match self.settings.input_path {
            InputPath::Read => false,
            InputPath::MappedAlways => true,
            InputPath::Mapped => is_resident(),
            InputPath::Auto => has_disk(fd) && is_resident(),
        };
        let bytes = piece.len;
        let Some(share) = is_wanted
            .then(|| self.pool.mappings().take(bytes))
            .flatten()
        else {
            return Ok(false);
        };
        let Some(mapping) = self.stages.time("map", Resource::Host, bytes, || {
            Ok(Mapping::populated(fd, piece.offset, bytes))
        })?
        else {
            return Ok(false);
        };
        let device = self.pool.device();
        let Some(registered) = self.stages.time("register", Resource::Host, bytes, || {
            Ok(Registered::new(device, mapping, share))
        })?
        else {
            return Ok(false);
        };
        self.stages.time("copy in", Resource::ToDevice, bytes, || {
            let from = registered.bytes();
            let to = self.arena.0.wrapping_add(piece.at as usize);
            // SAFETY: the arena has room for every piece; the piece is registered, and this waits.
            unsafe { stream.copy_to_device(to.cast(), from, bytes as usize)? };
            stream.synchronize()
        })?;
        if self.settings.unmap_together {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push(registered);
        } else {
            self.unmap(vec![registered], bytes)?;
        }
        Ok(true)
    }

    fn unmap(&self, pieces: Vec<Registered<'_>>, bytes: u64) -> Result<()> {
        let mappings: Vec<_> = self.stages.time("unregister", Resource::Host, bytes, || {
            Ok(pieces.into_iter().map(Registered::unregister).collect())
        })?;
        self.stages.time("unmap", Resource::Host, bytes, || {
            drop(mappings);
            Ok(())
        })
    }

    /// Reads into pinned memory and copies from there; the next chunks are read meanwhile.
    fn copy_read(&self, piece: &Piece<'_>, lane: &mut Lane, turn: &mut usize) -> Result<()> {
        let mut done = 0;
        while done < piece.len {
            self.cancel.check()?;
            let len = (piece.len - done).min(lane.chunk_bytes() as u64) as usize;
            let bytes = self
                .stages
                .time("copy in", Resource::ToDevice, len as u64, || {
                    lane.bytes(*turn, len)
                })?;
            self.stages.time("read", Resource::Host, len as u64, || {
                piece.file.read_exact_at(bytes, piece.offset + done)
            })?;
            let to = self.arena.0.wrapping_add((piece.at + done) as usize);
            // SAFETY: the arena has room for every piece, and whoever decodes it waits for the lane.
            unsafe { lane.send(*turn, to, len)? };
            done += len as u64;
            *turn += 1;
        }
        Ok(())
    }
}

/// A piece of a file that the device can copy from.
#[derive(Debug)]
struct Registered<'a> {
    /// Dropped before what it registers.
    registration: Registration<'a>,
    mapping: Mapping,
    share: Share,
}

// SAFETY: the mapping is only unmapped and its address handed to copies, from any thread.
unsafe impl Send for Registered<'_> {}

impl<'a> Registered<'a> {
    /// `None` if the pages cannot be registered.
    fn new(device: &'a Device, mapping: Mapping, share: Share) -> Option<Self> {
        // SAFETY: the mapping outlives the registration, which is the first field.
        let registration = unsafe { Registration::new(device, mapping.memory, mapping.len) };
        Some(Self {
            registration: registration.ok()?,
            mapping,
            share,
        })
    }

    fn unregister(self) -> Mapping {
        drop(self.registration);
        drop(self.share);
        self.mapping
    }

    /// Where the piece begins.
    fn bytes(&self) -> *const c_void {
        self.mapping.memory.wrapping_byte_add(self.mapping.skip)
    }
}

/// Bytes that may be registered at a time, over all slices.
#[derive(Debug)]
pub struct Mappings {
    left: Arc<AtomicU64>,
}

/// A part of them, until dropped.
#[derive(Debug)]
struct Share {
    left: Arc<AtomicU64>,
    bytes: u64,
}

impl Mappings {
    /// So many bytes.
    pub fn new(bytes: u64) -> Self {
        Self {
            left: Arc::new(AtomicU64::new(bytes)),
        }
    }

    /// `bytes` of them, if so many are left.
    fn take(&self, bytes: u64) -> Option<Share> {
        let less = |left: u64| left.checked_sub(bytes);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.left.fetch_update(set, fetch, less).ok()?;
        Some(Share {
            left: Arc::clone(&self.left),
            bytes,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Whether a file lies on a file system with a disk below.
fn has_disk(fd: BorrowedFd<'_>) -> bool {
    /// `linux/magic.h`.
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    rustix::fs::fstatfs(fd).is_ok_and(|s| ![TMPFS_MAGIC, RAMFS_MAGIC].contains(&s.f_type))
}

/// A mapped, populated range of a file.
#[derive(Debug)]
struct Mapping {
    memory: *mut c_void,
    len: usize,
    /// Bytes of the first page that lie in front of the range.
    skip: usize,
}

impl Mapping {
    /// Maps whole pages around the range and populates them; `None` if the system refuses, for example
    /// because the file has become shorter.
    fn populated(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Option<Self> {
        let page = rustix::param::page_size() as u64;
        let start = offset / page * page;
        let skip = (offset - start) as usize;
        let len = ((offset + len).next_multiple_of(page) - start) as usize;
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let memory =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, flags, fd, start) }.ok()?;
        let mapping = Self { memory, len, skip };
        // SAFETY: the range was just mapped; populating for reading changes no contents, and where a page
        // cannot be had it returns an error rather than raising a signal.
        unsafe { rustix::mm::madvise(memory, len, Advice::LinuxPopulateRead) }.ok()?;
        Some(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped once, unmapped once; nothing points into it any more.
        let _ = unsafe { rustix::mm::munmap(self.memory, self.len) };
    }
}

/// Bytes of the range that lie in the page cache, to whole pages; `None` if the kernel cannot tell
/// (before Linux 6.5).
fn resident_bytes(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Option<u64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    /// `struct cachestat`, pages each.
    #[repr(C)]
    #[derive(Default)]
    struct Pages {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = Range { offset, len };
    let mut pages = Pages::default();
    // SAFETY: the call reads `range`, writes `pages`, and keeps neither.
    let code = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut pages,
            0,
        )
    };
    (code == 0).then(|| pages.cached * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DeviceMemory;
    use crate::stream::Download;
    use std::os::fd::AsFd;

    #[test]
    fn written_files_are_resident_and_truncated_ones_cannot_be_populated() {
        let file = tempfile_with(&[7; 3 << 12]);
        let bytes = resident_bytes(file.as_fd(), 0, 3 << 12);
        assert!(bytes.is_none_or(|bytes| bytes == 3 << 12), "{bytes:?}");
        assert!(Mapping::populated(file.as_fd(), 5, 100).is_some());
        file.set_len(1 << 12).expect("shorter");
        assert!(Mapping::populated(file.as_fd(), 5, 2 << 12).is_none());
    }

    /// On a GPU (`ROCKMILL_TEST_DEVICE=cuda:N`) this shows that registered pages outlive their file, if the
    /// piece is one that the device copies by itself.
    #[test]
    fn a_file_that_is_truncated_after_registration_is_still_copied() {
        const LEN: usize = MIN_MAPPED_BYTES as usize;
        let device = Device::open(crate::device::test_target()).expect("the device opens");
        if device.memory_bytes() == 0 {
            // The host's stages touch the pages themselves.
            return;
        }
        let file = tempfile_with(&[7; LEN]);
        let mapping = Mapping::populated(file.as_fd(), 0, LEN as u64).expect("resident");
        let share = Mappings::new(u64::MAX).take(0).expect("nothing is little");
        let registered = Registered::new(&device, mapping, share).expect("registers");
        file.set_len(0).expect("shorter");
        let stream = Stream::with_staging(&device).expect("a stream");
        let memory = DeviceMemory::new(&device, LEN as u64).expect("memory");
        let mut found = vec![0; LEN];
        // SAFETY: both ends have room, the pages are registered, and the copies are waited for.
        unsafe {
            let copied = stream.copy_to_device(memory.as_ptr().cast(), registered.bytes(), LEN);
            copied.and_then(|()| stream.synchronize()).expect("copies");
            let back = stream.download(&mut [Download {
                from: memory.as_ptr(),
                to: found.as_mut_ptr(),
                len: LEN,
            }]);
            back.expect("copies");
        }
        assert!(found.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn no_more_is_registered_than_is_allowed() {
        let mappings = Mappings::new(10);
        let first = mappings.take(7).expect("so much is left");
        assert!(mappings.take(4).is_none());
        let second = mappings.take(3).expect("so much is left");
        drop(first);
        assert!(mappings.take(8).is_none() && mappings.take(7).is_some());
        drop(second);
        assert!(mappings.take(10).is_some());
    }

    fn tempfile_with(bytes: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        std::io::Write::write_all(&mut file, bytes).expect("room");
        file
    }
}
