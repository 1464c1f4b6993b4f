//! How backends reach files. The engine implements these traits over its storage.

use std::fmt::Debug;
use std::ops::Range;

use crate::error::{Error, Result};

/// An input file.
pub trait ReadAt: Debug + Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// Storage for an error of the system; Corruption if the file ends before `buf` is full.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Length of the file in bytes.
    fn len(&self) -> u64;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name for errors.
    fn name(&self) -> &str;

    /// Whether reads pass by the page cache.
    fn is_direct(&self) -> bool {
        false
    }

    /// Returns a stream for reads inside of `bytes` that go front to back and may begin ahead of time. If there is
    /// none, readers use [`ReadAt::read_exact_at`].
    fn stream(&self, bytes: Range<u64>) -> Option<Box<dyn ReadStream + '_>> {
        let _ = bytes;
        None
    }
}

/// Reads of one file front to back: ranges are expected in order and taken in the same order.
pub trait ReadStream: Debug {
    /// Maximum number of ranges that may be expected at once. Each holds memory of its length until it is taken.
    fn depth(&self) -> usize {
        1
    }

    /// Announces the next range after all that are expected already; reading it may begin. Ranges ascend.
    fn expect(&mut self, range: Range<u64>);

    /// Puts the bytes of the oldest expected range into `chunk`, in place of its contents.
    ///
    /// # Errors
    /// Storage for an error of the system; Corruption if the file ends too early; Cancelled; Internal if nothing is
    /// expected.
    fn take(&mut self, chunk: &mut Chunk) -> Result<()>;
}

/// Bytes of a file in memory that may be larger, because direct reads need aligned memory.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The memory.
    pub memory: Vec<u8>,
    /// Where the bytes lie in it.
    pub bytes: Range<usize>,
}

impl AsMut<[u8]> for Chunk {
    /// The whole memory.
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Chunk {
    /// Makes room for `len` bytes from the start of the memory, and returns it.
    pub fn reset(&mut self, len: usize) -> &mut [u8] {
        self.grow(len);
        self.memory.truncate(len);
        self.bytes = 0..len;
        &mut self.memory
    }

    /// Makes the memory at least `len` bytes long. Its contents may be lost.
    fn grow(&mut self, len: usize) {
        if self.memory.capacity() < len {
            // New memory comes zeroed from the system.
            self.memory = vec![0; len];
        } else if self.memory.len() < len {
            self.memory.resize(len, 0);
        }
    }

    /// The memory with room for `len` bytes at an address that is a multiple of `alignment`. Memory that is much larger
    /// is freed first, because one large block does not predict the size of the next ones.
    #[must_use]
    pub fn aligned(mut self, len: usize, alignment: usize) -> Self {
        /// Memory up to this size is kept; larger memory may exceed the requested size by as much.
        const KEPT_BYTES: usize = 256 << 10;
        const KEPT_TIMES: usize = 2;
        let kept = KEPT_TIMES.saturating_mul(len + alignment);
        if self.memory.capacity() > kept.max(KEPT_BYTES) {
            self.memory = Vec::new();
        }
        self.grow(len + alignment);
        let start = self.memory.as_ptr().align_offset(alignment);
        // Only at compile time is the address unknown.
        let start = start.min(alignment);
        self.bytes = start..start + len;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_memory_is_kept_until_it_is_much_too_large() {
        const LARGE: usize = 8 << 20;
        let chunk = Chunk::default().aligned(LARGE, 4096);
        let (address, bytes) = (chunk.memory.as_ptr(), chunk.bytes.clone());
        assert_eq!((address as usize + bytes.start) % 4096, 0);
        assert_eq!(bytes.len(), LARGE);
        let chunk = chunk.aligned(LARGE / 2, 4096);
        assert_eq!(
            (chunk.memory.as_ptr(), chunk.bytes.len()),
            (address, LARGE / 2)
        );
        let chunk = chunk.aligned(1 << 16, 4096);
        assert!(chunk.memory.capacity() < LARGE / 2);
    }
}

/// A [`ReadStream`] that reads nothing ahead.
#[derive(Debug)]
pub(crate) struct PlainStream<'a> {
    pub file: &'a dyn ReadAt,
    pub expected: Option<Range<u64>>,
}

impl ReadStream for PlainStream<'_> {
    fn expect(&mut self, range: Range<u64>) {
        self.expected = Some(range);
    }

    fn take(&mut self, chunk: &mut Chunk) -> Result<()> {
        let Some(range) = self.expected.take() else {
            return Err(Error::internal("bytes are taken that were not expected"));
        };
        let buffer = chunk.reset((range.end - range.start) as usize);
        self.file.read_exact_at(buffer, range.start)
    }
}

/// Receives a task's output files in key order.
pub trait SstSink {
    /// Begins the task's next file. The number is unique in the job and becomes the property
    /// `rocksdb.original.file.number`.
    ///
    /// # Errors
    /// Storage if the file cannot be made; Internal if the task has too many files.
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)>;
}

/// Memory that can be passed from one owner to another.
pub trait Memory: AsMut<[u8]> + Debug + Send {}

impl<T: AsMut<[u8]> + Debug + Send> Memory for T {}

/// Some bytes in memory that is passed to another owner.
#[derive(Debug)]
pub struct LeasedBytes {
    /// The memory.
    pub memory: Box<dyn Memory>,
    /// Where the bytes lie in it.
    pub bytes: Range<usize>,
}

impl AsMut<[u8]> for LeasedBytes {
    /// The whole memory.
    fn as_mut(&mut self) -> &mut [u8] {
        (*self.memory).as_mut()
    }
}

/// Borrows memory, several allocations at once, until a file has been written from it.
pub trait Borrower {
    /// Alignment of the addresses and offsets with which the file is written. If bytes have the same remainder in
    /// memory as in the file, and as much room before them, only their ends are copied.
    fn alignment(&self) -> usize;

    /// Appends bytes, and keeps the memory for a while.
    ///
    /// # Errors
    /// Storage if the system refuses.
    fn append(&mut self, bytes: LeasedBytes) -> Result<()>;

    /// Returns any memory that was leased, after waiting if necessary; `None` if none is left.
    ///
    /// # Errors
    /// Storage for an error of the system, also of an earlier append. After an error, there may be more memory to take
    /// back.
    fn take_back(&mut self) -> Result<Option<Box<dyn Memory>>>;
}

/// One output file, written front to back.
pub trait SstFile: Send {
    /// The interface for appending without a copy, if the file has one.
    fn borrower(&mut self) -> Option<&mut dyn Borrower> {
        None
    }

    /// Reserves `bytes` for the file before the first write, so that the file system can allocate them contiguously.
    fn expect(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// Storage if the system refuses.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Ends the file. The creator of the sink makes it durable before the job is reported.
    ///
    /// # Errors
    /// Storage if the system refuses.
    fn finish(self: Box<Self>) -> Result<()>;
}
