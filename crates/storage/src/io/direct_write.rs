//! Direct writes (past the page cache).
//!
//! A file is written in whole units of its alignment. The last unit is padded with zeros, and the file is then
//! truncated to its size. The file is extended in large steps ahead of its writes, because writes that extend a file
//! wait for one another and spin meanwhile.
//!
//! Bytes are collected in chunks, or written in place from leased memory. In leased memory, the start of an unfinished unit
//! is copied in front of the bytes. The part behind the last whole unit is copied out into the next chunk.

use std::collections::VecDeque;
use std::io;

use rockmill_core::{LeasedBytes, Memory};

use crate::direct::{DirectFile, InTransfer};

/// Bytes of one write.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks in flight while the next one is filled.
const MAX_BEGUN: usize = 2;

/// Preallocation step for files of unknown length.
const RESERVED_BYTES: u64 = 16 << 20;

/// Preallocation beyond the announced length, for the table properties and the padding.
const TAIL_BYTES: u64 = 64 << 10;

/// Memory of a file until all its writes are done.
pub const OUTPUT_BYTES: u64 = (CHUNK_BYTES * (MAX_BEGUN + 2)) as u64;

/// A file that is written front to back.
#[derive(Debug)]
pub struct DirectOutput {
    file: Box<dyn DirectFile>,
    /// Chunk that is being filled.
    chunk: LeasedBytes,
    filled: usize,
    /// Bytes of the file before the chunk.
    offset: u64,
    begun: VecDeque<Begun>,
    /// Memory of an own chunk whose write is done.
    spare: Option<Box<dyn Memory>>,
    /// Borrowed memory that is not needed any more.
    done: VecDeque<Box<dyn Memory>>,
    /// Preallocated length of the file, or `u64::MAX` if preallocation is off.
    reserved: u64,
}

#[derive(Debug)]
struct Begun {
    offset: u64,
    is_leased: bool,
    transfer: Box<dyn InTransfer<LeasedBytes>>,
}

/// Makes a chunk in `memory`, at the first address that is a multiple of `alignment`.
fn chunk_in(mut memory: Box<dyn Memory>, alignment: usize) -> LeasedBytes {
    let start =
        address((*memory).as_mut()).next_multiple_of(alignment) - address((*memory).as_mut());
    LeasedBytes {
        memory,
        bytes: start..start + CHUNK_BYTES,
    }
}

fn new_chunk(alignment: usize) -> LeasedBytes {
    chunk_in(Box::new(vec![0; CHUNK_BYTES + alignment]), alignment)
}

fn address(memory: &[u8]) -> usize {
    memory.as_ptr().addr()
}

impl DirectOutput {
    /// Begins to write an empty file, which is preallocated if `reserves` is set.
    pub fn new(file: Box<dyn DirectFile>, reserves: bool) -> Self {
        Self {
            chunk: new_chunk(file.alignment()),
            file,
            filled: 0,
            offset: 0,
            begun: VecDeque::new(),
            spare: None,
            done: VecDeque::new(),
            reserved: if reserves { 0 } else { u64::MAX },
        }
    }

    /// Alignment of the file's writes.
    pub fn alignment(&self) -> usize {
        self.file.alignment()
    }

    /// Announces that the file will have at least `bytes` bytes, and little more.
    pub fn expect(&mut self, bytes: u64) {
        self.reserve(bytes + TAIL_BYTES);
    }

    fn reserve(&mut self, bytes: u64) {
        if bytes > self.reserved {
            self.reserved = bytes;
            // A failure here shows again when the bytes are written.
            let _ = self.file.reserve(self.reserved);
        }
    }

    /// Preallocates room for `len` more bytes, rounded up to the next step.
    fn make_room(&mut self, len: usize) {
        let end = self.offset + len as u64;
        if end > self.reserved {
            self.reserve(end.next_multiple_of(RESERVED_BYTES));
        }
    }

    /// Bytes of the current chunk.
    fn chunk(&mut self) -> &mut [u8] {
        let bytes = self.chunk.bytes.clone();
        &mut self.chunk.as_mut()[bytes]
    }

    /// Starts a write.
    fn begin(&mut self, bytes: LeasedBytes, is_leased: bool) {
        let offset = self.offset;
        self.offset += bytes.bytes.len() as u64;
        self.begun.push_back(Begun {
            offset,
            is_leased,
            transfer: self.file.write(bytes, offset),
        });
    }

    /// Starts to write the whole units of the chunk, and moves the rest to a new chunk.
    fn begin_chunk(&mut self) -> io::Result<()> {
        while self.begun.len() >= MAX_BEGUN {
            self.finish_oldest()?;
        }
        let alignment = self.file.alignment();
        let mut next = match self.spare.take() {
            Some(memory) => chunk_in(memory, alignment),
            None => new_chunk(alignment),
        };
        let rest = self.filled % alignment;
        let whole = self.filled - rest;
        let start = next.bytes.start;
        next.as_mut()[start..start + rest].copy_from_slice(&self.chunk()[whole..whole + rest]);
        let mut chunk = std::mem::replace(&mut self.chunk, next);
        chunk.bytes.end = chunk.bytes.start + whole;
        self.filled = rest;
        self.begin(chunk, false);
        Ok(())
    }

    /// Waits for the oldest write, and repeats the write for the bytes that it did not write.
    fn finish_oldest(&mut self) -> io::Result<()> {
        let Some(Begun {
            mut offset,
            is_leased,
            mut transfer,
        }) = self.begun.pop_front()
        else {
            return Ok(());
        };
        loop {
            let (bytes, written) = transfer.wait();
            let Some(mut bytes) = bytes else {
                return written.and_then(|_| Err(io::Error::other("the memory is lost")));
            };
            let done = match written {
                Ok(n) if n < bytes.bytes.len() && n >= self.file.alignment() => {
                    // A write that ends between aligned offsets is repeated from the last one.
                    n - n % self.file.alignment()
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                written => {
                    let is_whole = written.map(|n| n >= bytes.bytes.len());
                    self.keep(bytes.memory, is_leased);
                    return match is_whole? {
                        true => Ok(()),
                        false => Err(io::ErrorKind::WriteZero.into()),
                    };
                }
            };
            bytes.bytes.start += done;
            offset += done as u64;
            transfer = self.file.write(bytes, offset);
        }
    }

    fn keep(&mut self, memory: Box<dyn Memory>, is_leased: bool) {
        match is_leased {
            true => self.done.push_back(memory),
            false => self.spare = Some(memory),
        }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let filled = self.filled;
            let room = &mut self.chunk()[filled..];
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == CHUNK_BYTES {
                self.make_room(CHUNK_BYTES);
                self.begin_chunk()?;
            }
        }
        Ok(())
    }

    /// Appends leased bytes, without a copy if their address fits [`rockmill_core::Borrower::alignment`].
    ///
    /// # Errors
    /// The operating system's error.
    pub fn append_leased(&mut self, mut leased: LeasedBytes) -> io::Result<()> {
        let alignment = self.file.alignment();
        if self.filled >= alignment {
            self.begin_chunk()?;
        }
        let (range, before) = (leased.bytes.clone(), self.filled);
        let start = range.start.checked_sub(before);
        let base = address(leased.as_mut());
        let Some(start) = start.filter(|start| (base + start).is_multiple_of(alignment)) else {
            let appended = self.append(&leased.as_mut()[range]);
            self.done.push_back(leased.memory);
            return appended;
        };
        leased.as_mut()[start..range.start].copy_from_slice(&self.chunk()[..before]);
        let len = range.end - start;
        let rest = len % alignment;
        let whole = start..range.end - rest;
        self.chunk()[..rest].copy_from_slice(&leased.as_mut()[whole.end..range.end]);
        self.filled = rest;
        match whole.is_empty() {
            true => self.done.push_back(leased.memory),
            false => {
                self.make_room(whole.len());
                let (memory, bytes) = (leased.memory, whole);
                self.begin(LeasedBytes { memory, bytes }, true);
            }
        }
        Ok(())
    }

    /// Returns leased memory, and waits for its write if necessary; `None` if no memory is leased.
    ///
    /// # Errors
    /// The operating system's error; more memory may be leased then.
    pub fn take_back(&mut self) -> io::Result<Option<Box<dyn Memory>>> {
        while self.done.is_empty() && !self.begun.is_empty() {
            self.finish_oldest()?;
        }
        Ok(self.done.pop_front())
    }

    /// Waits for all writes. Returns the file and the size to which the caller must truncate it.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn end(mut self) -> io::Result<(Box<dyn DirectFile>, u64)> {
        let size = self.offset + self.filled as u64;
        if self.filled > 0 {
            let (filled, len) = (
                self.filled,
                self.filled.next_multiple_of(self.file.alignment()),
            );
            self.chunk()[filled..len].fill(0);
            self.filled = len;
            self.begin_chunk()?;
        }
        while !self.begun.is_empty() {
            self.finish_oldest()?;
        }
        Ok((self.file, size))
    }
}
