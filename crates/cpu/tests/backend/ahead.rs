//! A file whose streams receive announced ranges, and check that the reads follow them.

use std::collections::VecDeque;
use std::ops::Range;

use rockmill_core::{Chunk, ReadAt, ReadStream, Result};

use rockmill_testkit::cases::MemFile;

/// Chunks that are expected or in use at once.
const DEPTH: usize = 3;

/// Where a chunk's bytes lie in its memory.
const PLACE: usize = 7;

#[derive(Debug)]
pub struct AheadFile(pub MemFile);

impl ReadAt for AheadFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn stream(&self, bytes: Range<u64>) -> Option<Box<dyn ReadStream + '_>> {
        Some(Box::new(Ahead {
            file: &self.0,
            bytes,
            expected: VecDeque::new(),
        }))
    }
}

#[derive(Debug)]
struct Ahead<'a> {
    file: &'a MemFile,
    /// The range that may still be announced.
    bytes: Range<u64>,
    expected: VecDeque<Range<u64>>,
}

impl ReadStream for Ahead<'_> {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn expect(&mut self, range: Range<u64>) {
        assert!(self.bytes.start <= range.start && range.end <= self.bytes.end);
        self.bytes.start = range.end;
        self.expected.push_back(range);
        assert!(self.expected.len() < DEPTH, "one chunk is in use");
    }

    fn take(&mut self, chunk: &mut Chunk) -> Result<()> {
        let range = self.expected.pop_front().expect("something is expected");
        let end = PLACE + (range.end - range.start) as usize;
        chunk.memory = vec![0xff; end + PLACE];
        chunk.bytes = PLACE..end;
        self.file
            .read_exact_at(&mut chunk.memory[PLACE..end], range.start)
    }
}
