//! A table's data blocks one after another: read ahead, verified, decompressed.

use std::ops::Range;

use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::handle::BlockHandle;

use crate::error::{Error, Result};
use crate::table::InputTable;

/// Reads data blocks in order, several with one system call.
///
/// Memory: the read-ahead (or the largest block, if that is larger) and one decompressed block.
#[derive(Debug)]
pub struct BlockStream<'a> {
    table: &'a InputTable,
    read_ahead_bytes: usize,
    chunk: Vec<u8>,
    /// File offset of the chunk.
    chunk_at: u64,
    decompressor: Decompressor,
    scratch: Vec<u8>,
    payload: Payload,
    bytes_read: u64,
}

/// Where the payload of the current block lies.
#[derive(Debug, Clone)]
enum Payload {
    /// A range of the chunk: the block is stored uncompressed.
    InChunk(Range<usize>),
    /// The scratch buffer.
    Decompressed,
}

impl<'a> BlockStream<'a> {
    /// A stream that has loaded nothing yet.
    pub fn new(table: &'a InputTable, read_ahead_bytes: usize) -> Self {
        Self {
            table,
            read_ahead_bytes,
            chunk: Vec::new(),
            chunk_at: 0,
            decompressor: Decompressor::new(table.meta.dictionary.clone()),
            scratch: Vec::new(),
            payload: Payload::Decompressed,
            bytes_read: 0,
        }
    }

    /// Loads the first of `blocks`, which are positions in the table's index, and reads ahead among
    /// the others.
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
        let chunk_end = self.chunk_at + self.chunk.len() as u64;
        if handle.offset < self.chunk_at || handle.offset + len as u64 > chunk_end {
            self.read_chunk(handle, len, blocks)?;
        }
        let start = (handle.offset - self.chunk_at) as usize;
        let stored = &self.chunk[start..start + len];
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

    /// Reads the block at `handle` and as many of the following ones as fit the read-ahead.
    fn read_chunk(&mut self, handle: BlockHandle, len: usize, blocks: Range<usize>) -> Result<()> {
        let most = handle
            .offset
            .saturating_add(self.read_ahead_bytes.max(len) as u64);
        let end = self.table.meta.index[blocks]
            .iter()
            .map_while(|e| e.handle.checked_end().filter(|&end| end <= most))
            .last()
            .unwrap_or(handle.offset + len as u64);
        let wanted = (end - handle.offset) as usize;
        self.chunk.resize(wanted, 0);
        self.chunk_at = handle.offset;
        self.table
            .file
            .read_exact_at(&mut self.chunk, handle.offset)?;
        self.bytes_read += wanted as u64;
        Ok(())
    }

    /// The loaded block, uncompressed.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::InChunk(range) => &self.chunk[range.clone()],
            Payload::Decompressed => &self.scratch,
        }
    }

    /// Bytes read from the file so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}
