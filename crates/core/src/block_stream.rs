//! A table's data blocks one after another: read ahead, verified, decompressed.

use std::collections::VecDeque;
use std::ops::Range;

use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::handle::BlockHandle;

use crate::error::{Error, Result};
use crate::io::{Chunk, PlainStream, ReadStream};
use crate::table::InputTable;

/// Reads data blocks in order, several with one system call.
///
/// Memory: the read-ahead (or the largest block, if that is larger) and one decompressed block.
///
/// The fields that locate the current block are first and together: a merge of many streams reads another stream with
/// every entry.
#[derive(Debug)]
#[repr(C)]
pub struct BlockStream<'a> {
    payload: Payload,
    chunk: Chunk,
    scratch: Vec<u8>,
    table: &'a InputTable,
    read_ahead_bytes: usize,
    /// Made with the first block, which tells where the last one ends.
    reads: Option<Box<dyn ReadStream + 'a>>,
    /// What the reads were told to expect, in the order of the file.
    expected: VecDeque<Range<u64>>,
    /// First block that is not expected yet.
    unexpected: usize,
    /// File offset of the chunk.
    chunk_at: u64,
    decompressor: Decompressor,
    bytes_read: u64,
}

/// Where the payload of the current block lies.
#[derive(Debug, Clone)]
enum Payload {
    /// A range of the chunk's memory: the block is stored uncompressed.
    InChunk(Range<usize>),
    /// The scratch buffer.
    Decompressed,
}

impl<'a> BlockStream<'a> {
    /// A stream that has loaded nothing yet and reads at most `read_ahead_bytes` ahead.
    pub fn new(table: &'a InputTable, read_ahead_bytes: usize) -> Self {
        Self {
            table,
            read_ahead_bytes,
            reads: None,
            expected: VecDeque::new(),
            unexpected: 0,
            chunk: Chunk::default(),
            chunk_at: 0,
            decompressor: (table.meta.footer.guard).decompressor(table.meta.dictionary.clone()),
            scratch: Vec::new(),
            payload: Payload::Decompressed,
            bytes_read: 0,
        }
    }

    /// Loads the first of `blocks`, which are positions in the table's index, and reads ahead among
    /// the others. Each call goes on from the one before, with the same end.
    ///
    /// # Errors
    /// Storage if reading fails; Corruption on a bad checksum or malformed compression; Declined on
    /// an unknown compression.
    ///
    /// # Panics
    /// If `blocks` is empty or reaches past the index.
    pub fn load(&mut self, blocks: Range<usize>) -> Result<BlockHandle> {
        let handle = self.table.meta.index[blocks.start].handle;
        let name = self.table.file.name();
        let limit = self.table.meta.file_size;
        let len = handle
            .stored_len(limit)
            .map_err(|e| Error::format(name, e))?;
        if !self.holds(handle.offset, len) {
            self.read_chunk(handle.offset, len, blocks)?;
        }
        let start = self.chunk.bytes.start + (handle.offset - self.chunk_at) as usize;
        let stored = &self.chunk.memory[start..start + len];
        let (payload, kind) = self
            .table
            .meta
            .footer
            .guard
            .open(stored, handle.offset)
            .map_err(|e| Error::format(name, e))?;
        if kind == CompressionType::None {
            self.payload = Payload::InChunk(start..start + payload.len());
        } else {
            self.payload = Payload::Decompressed;
            self.decompressor
                .decompress(kind, payload, &mut self.scratch)
                .map_err(|e| Error::format(name, e.at(handle.offset)))?;
        }
        Ok(handle)
    }

    /// Whether the chunk at hand has these bytes of the file.
    fn holds(&self, offset: u64, len: usize) -> bool {
        let chunk_end = self.chunk_at + self.chunk.bytes.len() as u64;
        offset >= self.chunk_at && offset + len as u64 <= chunk_end
    }

    /// Takes the chunk that begins with the first block, whose place is given, and expects the next ones.
    fn read_chunk(&mut self, offset: u64, len: usize, blocks: Range<usize>) -> Result<()> {
        let is_next = self.expected.front().is_none_or(|r| r.start == offset);
        let mut reads = match self.reads.take() {
            Some(reads) if is_next => reads,
            // The first chunk, or somebody jumped.
            _ => {
                self.expected.clear();
                self.stream(offset, blocks.end)
            }
        };
        if self.expected.is_empty() {
            self.unexpected = blocks.start;
            self.expect_chunk(&mut *reads, blocks.end, u64::MAX);
        }
        let Some(range) = self.expected.pop_front() else {
            return Err(Error::internal("no block to read"));
        };
        reads.take(&mut self.chunk)?;
        self.chunk_at = range.start;
        let mut held = range.end - range.start;
        self.bytes_read += held;
        held += self.expected.iter().map(|r| r.end - r.start).sum::<u64>();
        let mut room = (self.read_ahead_bytes as u64).saturating_sub(held);
        while self.expected.len() + 1 < reads.depth() && self.unexpected < blocks.end {
            match self.expect_chunk(&mut *reads, blocks.end, room) {
                Some(taken) => room -= taken,
                None => break,
            }
        }
        self.reads = Some(reads);
        match self.holds(offset, len) {
            true => Ok(()),
            false => Err(Error::internal("a chunk lacks its first block")),
        }
    }

    fn stream(&self, offset: u64, end: usize) -> Box<dyn ReadStream + 'a> {
        let table = self.table;
        let end = table.meta.index[end - 1].handle.checked_end();
        let bytes = offset..end.unwrap_or(table.meta.file_size).max(offset);
        table.file.stream(bytes).unwrap_or_else(|| {
            Box::new(PlainStream {
                file: &*table.file,
                expected: None,
            })
        })
    }

    /// Tells the reads of the next chunk, if there is room for it, and returns its bytes.
    fn expect_chunk(
        &mut self,
        reads: &mut dyn ReadStream,
        end: usize,
        room_bytes: u64,
    ) -> Option<u64> {
        let chunk_bytes = self.read_ahead_bytes / reads.depth().max(1);
        let (range, blocks) = self.next_chunk(chunk_bytes as u64, end);
        let bytes = range.end - range.start;
        if bytes > room_bytes {
            return None;
        }
        self.unexpected += blocks;
        reads.expect(range.clone());
        self.expected.push_back(range);
        Some(bytes)
    }

    /// Bytes of the first block that is not expected, and of as many following ones as fit a chunk; and
    /// the number of these blocks.
    fn next_chunk(&self, chunk_bytes: u64, end: usize) -> (Range<u64>, usize) {
        let index = &self.table.meta.index[self.unexpected..end];
        let start = index[0].handle.offset;
        let first_end = index[0].handle.checked_end().unwrap_or(start);
        let most = first_end.max(start.saturating_add(chunk_bytes));
        let mut range = start..first_end;
        let mut blocks = 1;
        for entry in &index[1..] {
            match entry.handle.checked_end() {
                Some(end) if end <= most => range.end = end,
                _ => break,
            }
            blocks += 1;
        }
        (range, blocks)
    }

    /// The loaded block, uncompressed.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::InChunk(range) => &self.chunk.memory[range.clone()],
            Payload::Decompressed => &self.scratch,
        }
    }

    /// Bytes read from the file so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}
