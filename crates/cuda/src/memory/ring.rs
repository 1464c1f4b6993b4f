//! One direction of copying between files and the device: a ring of pinned chunks, each of which is filled, copied and
//! reused.

use std::ops::Range;

use rockmill_core::{Error, LeasedBytes, Memory, Result};

use super::resource_pool::Poolable;
use super::view::{DeviceSlice, DeviceSliceMut};
use crate::driver::{CopyKind, Device, Event, PinnedBuffer, Stream};

/// Chunks of a ring. The host reads or writes one, the others are being copied or wait for it.
pub const CHUNKS: usize = 4;

/// Pinned bytes of a ring.
pub const fn ring_bytes(chunk_bytes: usize) -> u64 {
    CHUNKS as u64 * chunk_bytes as u64
}

/// A stream and its chunks, which are used in turn.
#[derive(Debug)]
pub struct CopyRing {
    pub stream: Stream,
    chunks: [Chunk; CHUNKS],
    chunk_bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    /// Pinned; none while it is leased.
    memory: Option<Box<dyn Memory>>,
    /// Recorded after the chunk's last copy.
    copied: Event,
    on_its_way: bool,
}

impl CopyRing {
    /// A ring with chunks of `chunk_bytes`. Small ones stay in the processor's caches.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device, chunk_bytes: usize) -> Result<Self> {
        let chunk = || {
            Ok(Chunk {
                memory: Some(Box::new(PinnedBuffer::new(device, chunk_bytes)?)),
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

    /// Bytes of the chunk of this turn, once no copy to or from it is in progress.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Panics
    /// If the chunk has fewer bytes, or is leased.
    pub fn bytes(&mut self, turn: usize, range: Range<usize>) -> Result<&mut [u8]> {
        let chunk = &mut self.chunks[turn % CHUNKS];
        if chunk.on_its_way {
            chunk.copied.synchronize()?;
            chunk.on_its_way = false;
        }
        Ok(&mut chunk.bytes()[range])
    }

    /// Lends the chunk of this turn, after [`CopyRing::bytes`].
    ///
    /// # Panics
    /// If it is leased, or a copy has not been waited for.
    pub fn lease(&mut self, turn: usize, bytes: Range<usize>) -> LeasedBytes {
        let chunk = &mut self.chunks[turn % CHUNKS];
        assert!(!chunk.on_its_way, "a copy was not waited for");
        LeasedBytes {
            memory: chunk.memory.take().expect(LEASED),
            bytes,
        }
    }

    /// Whether the chunk of this turn is leased.
    pub fn is_leased(&self, turn: usize) -> bool {
        self.chunks[turn % CHUNKS].memory.is_none()
    }

    /// Takes back memory in place of any leased chunk.
    pub fn take_back(&mut self, memory: Box<dyn Memory>) {
        let leased = self.chunks.iter_mut().find(|chunk| chunk.memory.is_none());
        leased
            .expect("no more chunks come back than were leased")
            .memory = Some(memory);
    }

    /// Queues a copy of the chunk's first bytes to the device.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// No other code uses `to`, and it lives, until the ring has been waited for.
    pub unsafe fn send(&mut self, turn: usize, to: &mut DeviceSliceMut<'_, u8>) -> Result<()> {
        let chunk = &mut self.chunks[turn % CHUNKS];
        let from = chunk.bytes()[..to.len()].as_ptr();
        // SAFETY: the chunk is as long, and is used again only after its copy has been waited for.
        unsafe {
            (self.stream).copy(CopyKind::ToDevice, to.as_ptr(), from, to.len())?;
        }
        chunk.on_its_way = true;
        chunk.copied.record(&self.stream)
    }

    /// Queues a copy from the device to the chunk's bytes from `at` on.
    ///
    /// # Errors
    /// Device.
    ///
    /// # Safety
    /// No other code changes `from`, and it lives, until the chunk has been waited for.
    pub unsafe fn fetch(
        &mut self,
        turn: usize,
        at: usize,
        from: DeviceSlice<'_, u8>,
    ) -> Result<()> {
        let chunk = &mut self.chunks[turn % CHUNKS];
        let to = chunk.bytes()[at..at + from.len()].as_mut_ptr();
        // SAFETY: the chunk is as long, and is used again only after its copy has been waited for.
        unsafe {
            (self.stream).copy(CopyKind::FromDevice, to, from.as_ptr(), from.len())?;
        }
        chunk.on_its_way = true;
        chunk.copied.record(&self.stream)
    }
}

const LEASED: &str = "a chunk that was leased is taken back before its turn";

impl Chunk {
    /// The whole memory.
    fn bytes(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut().expect(LEASED);
        (**memory).as_mut()
    }
}

impl Poolable for CopyRing {
    fn settle(&self) -> Result<()> {
        self.stream.synchronize()?;
        match (0..CHUNKS).any(|chunk| self.is_leased(chunk)) {
            true => Err(Error::internal("a chunk did not come back")),
            false => Ok(()),
        }
    }
}
