//! Writes past the page cache.
//!
//! ```text
//! being filled | being written .. | done
//! ```
//!
//! A file is written in whole units of the alignment, the last one filled up with zeros, and then cut to
//! its size.

use std::collections::VecDeque;
use std::io;

use rockmill_core::Chunk;

use crate::storage::WritableFile;
use crate::storage::direct::{DirectFile, Direction, InTransfer};

/// Bytes written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks that are written while the next one is filled.
const MOST_BEGUN: usize = 2;

/// Memory of a file until it is synced.
pub const OUTPUT_BYTES: u64 = (CHUNK_BYTES * (MOST_BEGUN + 2)) as u64;

/// A file that is written front to back.
#[derive(Debug)]
pub struct DirectOutput {
    file: Box<dyn DirectFile>,
    /// Being filled.
    chunk: Chunk,
    filled: usize,
    /// Bytes before the chunk.
    offset: u64,
    begun: VecDeque<Begun>,
    spare: Chunk,
}

#[derive(Debug)]
struct Begun {
    offset: u64,
    transfer: Box<dyn InTransfer>,
}

impl DirectOutput {
    /// Over an empty file.
    pub fn new(file: Box<dyn DirectFile>) -> Self {
        let chunk = Chunk::default().aligned(CHUNK_BYTES, file.alignment());
        Self {
            file,
            chunk,
            filled: 0,
            offset: 0,
            begun: VecDeque::new(),
            spare: Chunk::default(),
        }
    }

    /// Begins to write `len` bytes of the chunk, and goes on with another.
    fn begin(&mut self, len: usize) -> io::Result<()> {
        while self.begun.len() >= MOST_BEGUN {
            self.finish_oldest()?;
        }
        let spare = std::mem::take(&mut self.spare);
        let next = spare.aligned(CHUNK_BYTES, self.file.alignment());
        let mut chunk = std::mem::replace(&mut self.chunk, next);
        chunk.bytes.end = chunk.bytes.start + len;
        self.begun.push_back(Begun {
            offset: self.offset,
            transfer: self.file.begin(Direction::Write, chunk, self.offset),
        });
        self.offset += len as u64;
        self.filled = 0;
        Ok(())
    }

    /// Waits for the oldest write, and writes what it left over.
    fn finish_oldest(&mut self) -> io::Result<()> {
        let Some(Begun {
            mut offset,
            mut transfer,
        }) = self.begun.pop_front()
        else {
            return Ok(());
        };
        loop {
            let (mut chunk, written) = transfer.wait();
            let done = match written {
                Ok(n) if n >= chunk.bytes.len() => {
                    self.spare = chunk;
                    return Ok(());
                }
                // A write that ends between boundaries goes on from the last one.
                Ok(n) if n >= self.file.alignment() => n - n % self.file.alignment(),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Err(e) => return Err(e),
            };
            chunk.bytes.start += done;
            offset += done as u64;
            transfer = self.file.begin(Direction::Write, chunk, offset);
        }
    }
}

impl WritableFile for DirectOutput {
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let start = self.chunk.bytes.start + self.filled;
            let room = &mut self.chunk.memory[start..self.chunk.bytes.end];
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == CHUNK_BYTES {
                self.begin(CHUNK_BYTES)?;
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let size = self.offset + self.filled as u64;
        if self.filled > 0 {
            let len = self.filled.next_multiple_of(self.file.alignment());
            let start = self.chunk.bytes.start;
            self.chunk.memory[start + self.filled..start + len].fill(0);
            self.begin(len)?;
        }
        while !self.begun.is_empty() {
            self.finish_oldest()?;
        }
        self.file.finish(size)
    }
}
