//! Writes past the page cache.
//!
//! ```text
//! being filled | being written .. | done
//! ```
//!
//! A file is written in whole units of the alignment, the last one filled up with zeros, and then cut to
//! its size. It is made longer in large steps ahead of its writes: those that make it longer themselves wait for
//! one another, and spin meanwhile.
//!
//! Bytes are collected in chunks, or written from where they lie in memory that was lent. There, the beginning of
//! a unit that came before is copied in front of them, and what is no whole unit behind them is copied out.

use std::collections::VecDeque;
use std::io;

use rockmill_core::{Lent, Memory};

use crate::direct::{DirectFile, InTransfer};

/// Bytes written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks that are written while the next one is filled.
const MAX_BEGUN: usize = 2;

/// Room that is made at a time where nobody said how long the file will be.
const RESERVED_BYTES: u64 = 16 << 20;

/// Room beyond what a file is said to have: its properties, and the zeros behind its end.
const TAIL_BYTES: u64 = 64 << 10;

/// Memory of a file until all its writes are done.
pub const OUTPUT_BYTES: u64 = (CHUNK_BYTES * (MAX_BEGUN + 2)) as u64;

/// A file that is written front to back.
#[derive(Debug)]
pub struct DirectOutput {
    file: Box<dyn DirectFile>,
    /// Being filled.
    chunk: Lent,
    filled: usize,
    /// Bytes before the chunk.
    offset: u64,
    begun: VecDeque<Begun>,
    /// Memory of an own chunk that was written.
    spare: Option<Box<dyn Memory>>,
    /// Lent memory that is not needed any more.
    done: VecDeque<Box<dyn Memory>>,
    /// Length of the file, as far as anybody made room, or `u64::MAX` if nobody is to.
    reserved: u64,
}

#[derive(Debug)]
struct Begun {
    offset: u64,
    is_lent: bool,
    transfer: Box<dyn InTransfer<Lent>>,
}

/// A chunk in memory that has room for one at an address that is a multiple of `alignment`.
fn chunk_in(mut memory: Box<dyn Memory>, alignment: usize) -> Lent {
    let start =
        address((*memory).as_mut()).next_multiple_of(alignment) - address((*memory).as_mut());
    Lent {
        memory,
        bytes: start..start + CHUNK_BYTES,
    }
}

fn new_chunk(alignment: usize) -> Lent {
    chunk_in(Box::new(vec![0; CHUNK_BYTES + alignment]), alignment)
}

fn address(memory: &[u8]) -> usize {
    memory.as_ptr().addr()
}

impl DirectOutput {
    /// Over an empty file, for which room is made ahead if it `reserves`.
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

    /// What the file is written in multiples of.
    pub fn alignment(&self) -> usize {
        self.file.alignment()
    }

    /// The file will have so many bytes at least, and little more.
    pub fn expect(&mut self, bytes: u64) {
        self.reserve(bytes + TAIL_BYTES);
    }

    fn reserve(&mut self, bytes: u64) {
        if bytes > self.reserved {
            self.reserved = bytes;
            // What cannot be done now shows when the bytes come.
            let _ = self.file.reserve(self.reserved);
        }
    }

    /// Makes room for so many bytes, and for more that come behind them.
    fn make_room(&mut self, len: usize) {
        let end = self.offset + len as u64;
        if end > self.reserved {
            self.reserve(end.next_multiple_of(RESERVED_BYTES));
        }
    }

    /// The chunk's bytes.
    fn chunk(&mut self) -> &mut [u8] {
        let bytes = self.chunk.bytes.clone();
        &mut self.chunk.as_mut()[bytes]
    }

    /// Begins to write.
    fn begin(&mut self, bytes: Lent, is_lent: bool) {
        let offset = self.offset;
        self.offset += bytes.bytes.len() as u64;
        self.begun.push_back(Begun {
            offset,
            is_lent,
            transfer: self.file.write(bytes, offset),
        });
    }

    /// Begins to write whole units of the chunk, and goes on with the rest in another.
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

    /// Waits for the oldest write, and writes what it left over.
    fn finish_oldest(&mut self) -> io::Result<()> {
        let Some(Begun {
            mut offset,
            is_lent,
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
                    // A write that ends between boundaries goes on from the last one.
                    n - n % self.file.alignment()
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                written => {
                    let is_whole = written.map(|n| n >= bytes.bytes.len());
                    self.keep(bytes.memory, is_lent);
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

    fn keep(&mut self, memory: Box<dyn Memory>, is_lent: bool) {
        match is_lent {
            true => self.done.push_back(memory),
            false => self.spare = Some(memory),
        }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// Whatever the system says.
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

    /// Appends bytes from where they lie, if they lie as [`rockmill_core::Borrower::alignment`] says.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn append_lent(&mut self, mut lent: Lent) -> io::Result<()> {
        let alignment = self.file.alignment();
        if self.filled >= alignment {
            self.begin_chunk()?;
        }
        let (range, before) = (lent.bytes.clone(), self.filled);
        let start = range.start.checked_sub(before);
        let base = address(lent.as_mut());
        let Some(start) = start.filter(|start| (base + start).is_multiple_of(alignment)) else {
            let appended = self.append(&lent.as_mut()[range]);
            self.done.push_back(lent.memory);
            return appended;
        };
        lent.as_mut()[start..range.start].copy_from_slice(&self.chunk()[..before]);
        let len = range.end - start;
        let rest = len % alignment;
        let whole = start..range.end - rest;
        self.chunk()[..rest].copy_from_slice(&lent.as_mut()[whole.end..range.end]);
        self.filled = rest;
        match whole.is_empty() {
            true => self.done.push_back(lent.memory),
            false => {
                self.make_room(whole.len());
                let (memory, bytes) = (lent.memory, whole);
                self.begin(Lent { memory, bytes }, true);
            }
        }
        Ok(())
    }

    /// Gives lent memory back, and waits for that if it has to; nothing if none is left.
    ///
    /// # Errors
    /// Whatever the system says; there may be more to take back.
    pub fn take_back(&mut self) -> io::Result<Option<Box<dyn Memory>>> {
        while self.done.is_empty() && !self.begun.is_empty() {
            self.finish_oldest()?;
        }
        Ok(self.done.pop_front())
    }

    /// Waits until all is written, and returns the file, which is to be cut to the size that is returned with it.
    ///
    /// # Errors
    /// Whatever the system says.
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
