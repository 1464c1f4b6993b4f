//! One direction of copying between files and the device: a ring of pinned chunks, each of which is filled,
//! copied and used again.

use rockmill_core::Result;

use crate::device::Device;
use crate::memory::PinnedBuffer;
use crate::pool::Lend;
use crate::stream::{Event, Stream};

/// Chunks of a lane. One is read or written by the host, the others are on their way or wait for it.
pub const CHUNKS: usize = 4;

/// Pinned bytes of a lane.
pub const fn lane_bytes(chunk_bytes: usize) -> u64 {
    CHUNKS as u64 * chunk_bytes as u64
}

/// A stream and its chunks, which are taken in turn.
#[derive(Debug)]
pub struct Lane {
    pub stream: Stream,
    chunks: [Chunk; CHUNKS],
    chunk_bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    memory: PinnedBuffer,
    /// Behind the chunk's last copy.
    copied: Event,
    on_its_way: bool,
}

impl Lane {
    /// Chunks of so many bytes. Small ones stay in the processor's caches from one end to the other.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device, chunk_bytes: usize) -> Result<Self> {
        let chunk = || {
            Ok(Chunk {
                memory: PinnedBuffer::new(device, chunk_bytes)?,
                copied: Event::new(device)?,
                on_its_way: false,
            })
        };
        Ok(Self {
            stream: Stream::new(device)?,
            chunks: [chunk()?, chunk()?, chunk()?, chunk()?],
            chunk_bytes,
        })
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// The first bytes of the chunk whose turn it is, once nothing is on its way to it or from it.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If a chunk has fewer bytes.
    pub fn bytes(&mut self, turn: usize, len: usize) -> Result<&mut [u8]> {
        let chunk = &mut self.chunks[turn % CHUNKS];
        if chunk.on_its_way {
            chunk.copied.synchronize()?;
            chunk.on_its_way = false;
        }
        Ok(&mut chunk.memory.bytes_mut()[..len])
    }

    /// Queues a copy of the chunk's first bytes to the device.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// `to` is `len` bytes of the device's memory, which nobody else uses until the lane was waited for.
    pub unsafe fn send(&mut self, turn: usize, to: *mut u8, len: usize) -> Result<()> {
        let chunk = &mut self.chunks[turn % CHUNKS];
        assert!(len <= self.chunk_bytes);
        // SAFETY: the chunk is as long, and is touched again only when its copy was waited for.
        unsafe {
            (self.stream).copy_to_device(to.cast(), chunk.memory.as_ptr().cast(), len)?;
        }
        chunk.on_its_way = true;
        chunk.copied.record(&self.stream)
    }

    /// Queues a copy from the device to the chunk's first bytes.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// `from` is `len` bytes of the device's memory, which nobody changes until the chunk was waited for.
    pub unsafe fn fetch(&mut self, turn: usize, from: *const u8, len: usize) -> Result<()> {
        let chunk = &mut self.chunks[turn % CHUNKS];
        assert!(len <= self.chunk_bytes);
        // SAFETY: the chunk is as long, and is touched again only when its copy was waited for.
        unsafe {
            (self.stream).copy_from_device(chunk.memory.as_ptr().cast(), from.cast(), len)?;
        }
        chunk.on_its_way = true;
        chunk.copied.record(&self.stream)
    }
}

impl Lend for Lane {
    fn settle(&self) -> Result<()> {
        self.stream.synchronize()
    }
}
