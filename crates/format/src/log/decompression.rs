//! Decompression of a log's fragments. RocksDB decompresses them in order with one stream of zstd, which restarts at
//! each record (`util/compression.cc:ZSTDStreamingUncompress`).

use std::fmt;

use zstd::stream::raw::{Decoder, Operation};

use super::BLOCK_LEN;
use crate::coding::le32;
use crate::compression::{COMPRESSION_SIZE_LIMIT, CompressionType};
use crate::error::{Error, Result};

pub(super) struct Decompression {
    stream: Decoder<'static>,
    buffer: Vec<u8>,
}

impl fmt::Debug for Decompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompression").finish_non_exhaustive()
    }
}

impl Decompression {
    /// The decompression that a record of the log names (`util/compression.h:CompressionTypeRecord`).
    pub(super) fn new(record: &[u8]) -> Result<Self> {
        const ZSTD: u32 = CompressionType::Zstd as u32;
        let unknown = |what| Error::unsupported(0, what);
        if record.len() < size_of::<u32>() || le32(record) != ZSTD {
            return Err(unknown("log compressed with another method than zstd"));
        }
        let stream = Decoder::new().map_err(|_| unknown("no memory to decompress the log"))?;
        Ok(Self {
            stream,
            buffer: vec![0; BLOCK_LEN],
        })
    }

    /// The fragments that follow belong to another record.
    pub(super) fn begin_record(&mut self) {
        // It fails only while a frame is being written.
        let _ = self.stream.reinit();
    }

    /// A decompressed fragment. `None` if it cannot be decompressed.
    pub(super) fn run(&mut self, mut fragment: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if fragment.is_empty() {
            return Some(out);
        }
        loop {
            let done = self.stream.run_on_buffers(fragment, &mut self.buffer);
            let Ok(done) = done else {
                self.begin_record();
                return None;
            };
            fragment = &fragment[done.bytes_read..];
            out.extend_from_slice(&self.buffer[..done.bytes_written]);
            if out.len() > COMPRESSION_SIZE_LIMIT {
                return None;
            }
            if fragment.is_empty() && done.bytes_written < self.buffer.len() {
                return Some(out);
            }
        }
    }
}
