//! Blocks that the device does not decompress: zlib's and those with a dictionary. Threads of the host read, check and
//! decompress them before any data goes to the device, which then receives them as uncompressed blocks.

use std::collections::VecDeque;
use std::ops::Range;

use rockmill_core::{
    BlockStream, CancelToken, Error, InputTable, KeyRange, Lock, ReadAt, Resource, Result,
};
use rockmill_format::compression::CompressionType;
use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::properties::may_use_compression;

use crate::driver::Stages;

/// Parts of a table, which threads process one after another.
const PARTS: usize = 16;

/// Bytes of file that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Whether the blocks of a table may have a compression that the device does not implement.
pub fn is_for_host(table: &InputTable) -> bool {
    let property = &table.meta.properties.compression_name;
    let has_zlib = may_use_compression(property, CompressionType::Zlib as u8);
    has_zlib || !table.meta.dictionary.is_empty()
}

/// Memory beside the blocks of a table: for reading, of each thread, and padding of parts on the device.
pub const HOST_OVERHEAD: u64 = (PARTS * 2 * READ_BYTES) as u64;
pub const PARTS_OF_TABLE: u64 = PARTS as u64;

/// Contiguous blocks of a table, each with a trailer that marks it as uncompressed.
#[derive(Debug)]
pub struct HostBlocks {
    /// Position of the table among the inputs.
    pub ordinal: usize,
    /// Offset in the file and size of each block.
    pub blocks: Vec<(u64, u64)>,
    bytes: Vec<u8>,
    name: String,
}

impl ReadAt for HostBlocks {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = from
            .checked_add(buf.len())
            .and_then(|end| self.bytes.get(from..end));
        let bytes = bytes.ok_or_else(|| Error::internal("blocks in memory end too early"))?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Reads and decompresses the blocks of such tables that may have keys of `range`, in the order of the tables and of
/// their blocks.
///
/// # Errors
/// The errors of [`BlockStream::load`], which name file and block; Cancelled.
pub fn host_blocks(
    tables: &[InputTable],
    range: &KeyRange,
    threads: usize,
    cancel: &CancelToken,
    stages: &Stages,
) -> Result<Vec<HostBlocks>> {
    let mut parts = VecDeque::new();
    for (ordinal, table) in tables.iter().enumerate().filter(|(_, t)| is_for_host(t)) {
        let blocks = table.blocks_in_range(range);
        let step = blocks.len().div_ceil(PARTS).max(1);
        let starts = blocks.clone().step_by(step);
        parts.extend(starts.map(|start| (ordinal, start..(start + step).min(blocks.end))));
    }
    let threads = threads.min(parts.len());
    let parts = Lock::new(parts.into_iter().enumerate());
    let done = Lock::new(Vec::new());
    let next = || parts.lock().next();
    stages.on_threads(threads, "rockmill-in", || {
        while let Some((place, (ordinal, blocks))) = next() {
            let made = stages.time("decompress on host", Resource::Host, 0, || {
                decompress(&tables[ordinal], ordinal, blocks, cancel)
            });
            let failed = made.is_err();
            done.lock().push((place, made));
            if failed {
                break;
            }
        }
        Ok(())
    })?;
    let mut done = done.into_inner();
    // If there are several errors, the first block's error counts.
    done.sort_by_key(|&(place, _)| place);
    done.into_iter().map(|(_, made)| made).collect()
}

fn decompress(
    table: &InputTable,
    ordinal: usize,
    blocks: Range<usize>,
    cancel: &CancelToken,
) -> Result<HostBlocks> {
    let mut stream = BlockStream::new(table, READ_BYTES);
    let mut part = HostBlocks {
        ordinal,
        blocks: Vec::with_capacity(blocks.len()),
        bytes: Vec::new(),
        name: table.file.name().to_owned(),
    };
    for block in blocks.clone() {
        cancel.check()?;
        let handle = stream.load(block..blocks.end)?;
        part.blocks
            .push((handle.offset, stream.payload().len() as u64));
        part.bytes.extend_from_slice(stream.payload());
        // The type of no compression, and a checksum that is not verified.
        part.bytes.extend_from_slice(&[0; BLOCK_TRAILER_SIZE]);
    }
    Ok(part)
}
