//! Direct reads (past the page cache), several of them ahead of the subcompaction.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rockmill_core::{Chunk, Error, Result};

use crate::base_name;
use crate::direct::{ALIGNMENT, DirectFile, DirectStorage, Direction, InTransfer};

/// Reads in flight for each input of a subcompaction, including the one in use.
pub const DEPTH: usize = 4;

/// Extra memory for the reads of one input by a subcompaction, beyond the requested bytes: reads begin and end at
/// aligned offsets, and their memory is aligned.
pub const SLACK_BYTES: usize = DEPTH * 3 * ALIGNMENT;

/// Bytes read at once for callers that do not read ahead.
const PIECE_BYTES: usize = 1 << 20;

/// A file that is read with direct I/O, at any offset.
#[derive(Debug)]
pub struct DirectInput {
    file: Box<dyn DirectFile>,
    /// Length of the file in bytes.
    pub len: u64,
    /// Name for errors.
    pub name: String,
}

/// A read in flight.
#[derive(Debug)]
struct Begun {
    wanted: Range<u64>,
    /// Aligned offset at which the read begins.
    start: u64,
    transfer: Box<dyn InTransfer<Chunk>>,
}

impl DirectInput {
    /// Opens `path`.
    ///
    /// # Errors
    /// The operating system's error; Unsupported if the file system has no direct I/O.
    pub fn open(storage: &dyn DirectStorage, path: &Path) -> io::Result<Self> {
        let file = storage.open(path, Direction::Read)?;
        Ok(Self {
            len: file.size()?,
            name: base_name(path),
            file,
        })
    }

    /// The file's descriptor; `None` if the operating system does not have the file.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// Storage, or Corruption if the file ends too early.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut chunk = Chunk::default();
        let mut at = offset;
        for piece in buf.chunks_mut(PIECE_BYTES) {
            let wanted = at..at + piece.len() as u64;
            at = wanted.end;
            chunk = self.finish(self.begin(wanted, chunk))?;
            piece.copy_from_slice(&chunk.memory[chunk.bytes.clone()]);
        }
        Ok(())
    }

    /// Starts a read into the memory of `spare`.
    fn begin(&self, wanted: Range<u64>, spare: Chunk) -> Begun {
        let alignment = self.file.alignment() as u64;
        let start = wanted.start & !(alignment - 1);
        let len = (wanted.end - start).next_multiple_of(alignment);
        let chunk = spare.aligned(len as usize, alignment as usize);
        Begun {
            wanted,
            start,
            transfer: self.file.read(chunk, start),
        }
    }

    /// Waits until all wanted bytes have been read.
    fn finish(&self, begun: Begun) -> Result<Chunk> {
        let Begun {
            wanted,
            start,
            mut transfer,
        } = begun;
        let (mut all, mut done) = (None, 0);
        loop {
            let (chunk, read) = transfer.wait();
            let failed = |e| Error {
                offset: Some(start + done as u64),
                ..Error::storage(&self.name, "read it", &e)
            };
            let Some(mut chunk) = chunk else {
                let lost = || io::Error::other("the memory is lost");
                return Err(failed(read.err().unwrap_or_else(lost)));
            };
            let all = all.get_or_insert_with(|| chunk.bytes.clone());
            match read {
                Ok(n) if start + (done + n) as u64 >= wanted.end => {
                    let place = |offset: u64| all.start + (offset - start) as usize;
                    chunk.bytes = place(wanted.start)..place(wanted.end);
                    return Ok(chunk);
                }
                // Count only up to the last aligned offset; a read of less than that has reached the end of the file.
                Ok(n) if n >= self.file.alignment() => done += n - n % self.file.alignment(),
                Ok(n) => {
                    let at = start + (done + n) as u64;
                    return Err(Error::corruption(&self.name, at, "file ends too early"));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
            chunk.bytes = all.start + done..all.end;
            let at = start + done as u64;
            transfer = self.file.read(chunk, at);
        }
    }
}

/// Reads of one subcompaction, front to back.
#[derive(Debug)]
pub struct DirectReads<'a> {
    input: &'a DirectInput,
    begun: VecDeque<Begun>,
    /// Memory for the next read.
    spare: Chunk,
}

impl<'a> DirectReads<'a> {
    /// Begins to read a file.
    pub fn new(input: &'a DirectInput) -> Self {
        Self {
            input,
            begun: VecDeque::new(),
            spare: Chunk::default(),
        }
    }

    /// Starts to read a range.
    pub fn expect(&mut self, range: Range<u64>) {
        let spare = std::mem::take(&mut self.spare);
        self.begun.push_back(self.input.begin(range, spare));
    }

    /// Length of the oldest range in flight.
    pub fn next_len(&self) -> Option<u64> {
        let begun = self.begun.front()?;
        Some(begun.wanted.end - begun.wanted.start)
    }

    /// Waits for the oldest range in flight.
    ///
    /// # Errors
    /// The errors of [`DirectInput::read_exact_at`]; Internal if no read is in flight.
    pub fn take(&mut self, chunk: &mut Chunk) -> Result<()> {
        let Some(begun) = self.begun.pop_front() else {
            return Err(Error::internal("bytes are taken that were not expected"));
        };
        let read = self.input.finish(begun)?;
        self.spare = std::mem::replace(chunk, read);
        Ok(())
    }
}
