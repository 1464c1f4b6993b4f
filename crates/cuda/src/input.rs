//! Input to the device: the byte ranges of a slice's blocks, copied into one arena.
//!
//! A range that lies in the page cache is mapped, populated, registered, and copied to the device straight
//! from there; the host never looks at it, so that a file that is truncated meanwhile cannot raise SIGBUS.
//! What is not resident, or cannot be mapped or registered, is read into pinned memory.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use rockmill_core::{CancelToken, Error, InputTable, KeyRange, ReadAt, Resource, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::CudaSettings;
use crate::device::{DeviceBuffer, Registration, Stream};
use crate::ffi::BlockRef;
use crate::limits::refused;
use crate::timing::Stages;
use crate::workspace::{CHUNK_BYTES, Lane, Pool};

/// How input gets to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputPath {
    /// Mapped and registered where it is resident, read where it is not.
    Mapped,
    /// Always read into pinned memory.
    Read,
}

/// Bytes in front of and behind every range (`types.hpp:ARENA_PADDING`), and its alignment.
const PADDING: u64 = 64;

/// Bytes that are mapped and registered at a time: large enough that the calls do not matter, small
/// enough that several threads share a slice.
const MAP_BYTES: u64 = 32 << 20;

/// A range of a file and where it goes in the arena.
#[derive(Debug)]
struct Piece<'a> {
    file: &'a dyn ReadAt,
    offset: u64,
    len: u64,
    at: u64,
}

/// The blocks of a slice.
#[derive(Debug)]
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
}

impl<'a> Input<'a> {
    /// Finds the blocks of `inputs` that may hold keys of `range`.
    ///
    /// # Errors
    /// Corruption if an index names bytes outside its file.
    pub fn find(inputs: &'a [InputTable], range: &KeyRange) -> Result<Self> {
        let mut input = Self {
            pieces: Vec::new(),
            blocks: Vec::new(),
            runs: Vec::new(),
            arena_bytes: PADDING,
            bytes: 0,
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
        for entry in entries {
            let handle = entry.handle;
            let len = handle
                .stored_len(table.meta.file_size)
                .map_err(|e| Error::format(file.name(), e))?;
            end = end.max(handle.offset + len as u64);
            self.blocks.push(BlockRef {
                at: self.arena_bytes + (handle.offset - offset),
                file_offset: handle.offset,
                size: u32::try_from(handle.size).map_err(|_| refused("blocks of 4 GiB"))?,
                checksum_base: table.meta.footer.guard.base_context_checksum,
            });
        }
        self.runs.push((ordinal, self.blocks.len()));
        let mut at = self.arena_bytes;
        let mut from = offset;
        while from < end {
            // Pieces end on multiples of MAP_BYTES in the file, so that no page is mapped twice.
            let to = ((from / MAP_BYTES + 1) * MAP_BYTES).min(end);
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
        self.arena_bytes = (at + PADDING).next_multiple_of(PADDING);
        Ok(())
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
            path: settings.input_path,
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
    path: InputPath,
    pieces: &'a [Piece<'a>],
    next: AtomicUsize,
    arena: Address,
    cancel: &'a CancelToken,
    stages: &'a Stages,
}

impl Loader<'_> {
    /// Takes pieces until none is left.
    fn work(&self) -> Result<()> {
        self.pool.device().make_current()?;
        let mut lane = self.pool.lane()?;
        let done = self.work_with(&mut lane);
        // Whatever went wrong, nothing may be on its way from the lane's chunks when it is lent again.
        done.and(lane.stream.synchronize())?;
        self.pool.put_lane(lane);
        Ok(())
    }

    fn work_with(&self, lane: &mut Lane) -> Result<()> {
        while let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.cancel.check()?;
            let mapped = self.path == InputPath::Mapped && self.copy_mapped(piece, &lane.stream)?;
            if !mapped {
                self.copy_read(piece, lane)?;
            }
        }
        Ok(())
    }

    /// Copies from the page cache. False if that cannot be done.
    fn copy_mapped(&self, piece: &Piece<'_>, stream: &Stream) -> Result<bool> {
        let Some(fd) = piece.file.as_fd() else {
            return Ok(false);
        };
        if resident_bytes(fd, piece.offset, piece.len).is_none_or(|bytes| bytes < piece.len) {
            return Ok(false);
        }
        let started = std::time::Instant::now();
        let Some(mapping) = Mapping::populated(fd, piece.offset, piece.len) else {
            return Ok(false);
        };
        let device = self.pool.device();
        // SAFETY: the mapping outlives the registration, which is dropped first.
        let Ok(registration) = (unsafe { Registration::new(device, mapping.memory, mapping.len) })
        else {
            return Ok(false);
        };
        let seconds = started.elapsed().as_secs_f64();
        self.stages
            .add("map + register", Resource::Host, seconds, piece.len);
        let bytes = piece.len;
        self.stages.time("copy in", Resource::ToDevice, bytes, || {
            let from = mapping.memory.wrapping_byte_add(mapping.skip);
            let to = self.arena.0.wrapping_add(piece.at as usize);
            stream.copy_to_device(to.cast(), from, bytes as usize)?;
            stream.synchronize()
        })?;
        self.stages.time("unregister", Resource::Host, bytes, || {
            drop(registration);
            drop(mapping);
            Ok(())
        })?;
        Ok(true)
    }

    /// Reads into pinned memory and copies from there; the next chunk is read meanwhile.
    fn copy_read(&self, piece: &Piece<'_>, lane: &mut Lane) -> Result<()> {
        let mut done = 0;
        let mut turn = 0;
        while done < piece.len {
            let len = (piece.len - done).min(CHUNK_BYTES as u64) as usize;
            let chunk = &mut lane.chunks[turn];
            self.stages.time("read", Resource::Host, len as u64, || {
                let bytes = &mut chunk.bytes_mut()[..len];
                piece.file.read_exact_at(bytes, piece.offset + done)
            })?;
            // At most one copy is on its way: that from the other chunk.
            self.stages
                .time("copy in", Resource::ToDevice, len as u64, || {
                    lane.stream.synchronize()?;
                    let to = self.arena.0.wrapping_add((piece.at + done) as usize);
                    let from = lane.chunks[turn].as_ptr();
                    lane.stream.copy_to_device(to.cast(), from.cast(), len)
                })?;
            done += len as u64;
            turn = 1 - turn;
        }
        // The chunk read next may be the one on its way.
        lane.stream.synchronize()
    }
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

    fn tempfile_with(bytes: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        std::io::Write::write_all(&mut file, bytes).expect("room");
        file
    }
}
