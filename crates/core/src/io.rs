//! How backends reach files; the engine implements these over its storage.

use std::fmt::Debug;
use std::ops::Range;

use crate::error::{Error, Result};

/// An input file.
pub trait ReadAt: Debug + Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// Storage if the system refuses; Corruption if the file ends before `buf` is full.
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

    /// Reads inside of `bytes` that go front to back and may begin before they are asked for. Without
    /// one, readers use [`ReadAt::read_exact_at`].
    fn stream(&self, bytes: Range<u64>) -> Option<Box<dyn ReadStream + '_>> {
        let _ = bytes;
        None
    }
}

/// Reads of one file front to back: ranges are expected in order and taken in the same order.
pub trait ReadStream: Debug {
    /// How many ranges may be expected at once; each holds memory of its length until it is taken.
    fn depth(&self) -> usize {
        1
    }

    /// Says what is taken next after all that is expected already; reading it may begin. Ranges ascend.
    fn expect(&mut self, range: Range<u64>);

    /// Puts the bytes of the oldest expected range into `chunk`, in place of what it holds.
    ///
    /// # Errors
    /// Storage if the system refuses; Corruption if the file ends too early; Cancelled; Internal if
    /// nothing is expected.
    fn take(&mut self, chunk: &mut Chunk) -> Result<()>;
}

/// Bytes of a file, somewhere in memory that may be larger: direct reads want it aligned.
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

    /// Makes the memory at least so long; what it holds is not needed any more.
    fn grow(&mut self, len: usize) {
        if self.memory.capacity() < len {
            // New memory comes zeroed from the system.
            self.memory = vec![0; len];
        } else if self.memory.len() < len {
            self.memory.resize(len, 0);
        }
    }

    /// The memory with room for `len` bytes at an address that is a multiple of `alignment`. A much larger allocation
    /// is freed first: one large block does not predict the size of the next ones.
    #[must_use]
    pub fn aligned(mut self, len: usize, alignment: usize) -> Self {
        /// Memory that is kept whatever is asked for, and how much larger it may be beyond that.
        const KEPT_BYTES: usize = 256 << 10;
        const KEPT_TIMES: usize = 2;
        let kept = KEPT_TIMES.saturating_mul(len + alignment);
        if self.memory.capacity() > kept.max(KEPT_BYTES) {
            self.memory = Vec::new();
        }
        self.grow(len + alignment);
        let start = self.memory.as_ptr().align_offset(alignment);
        // Only the compiler's own evaluation of code knows no addresses.
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

/// A [`ReadStream`] that reads when it is asked.
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

/// Where a task's output files go, in key order.
pub trait SstSink {
    /// Begins the task's next file. The number is unique in the job and becomes the property
    /// `rocksdb.original.file.number`.
    ///
    /// # Errors
    /// Storage if the file cannot be made; Internal if the task has too many files.
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)>;
}

/// Memory that may change hands.
pub trait Memory: AsMut<[u8]> + Debug + Send {}

impl<T: AsMut<[u8]> + Debug + Send> Memory for T {}

/// Some bytes in memory that changes hands.
#[derive(Debug)]
pub struct Lent {
    /// The memory.
    pub memory: Box<dyn Memory>,
    /// Where the bytes lie in it.
    pub bytes: Range<usize>,
}

impl AsMut<[u8]> for Lent {
    /// The whole memory.
    fn as_mut(&mut self) -> &mut [u8] {
        (*self.memory).as_mut()
    }
}

/// Owner of memory that is borrowed, several pieces at once, until a file has been written from it.
pub trait Borrower {
    /// Alignment of the addresses and offsets with which the file is written. Bytes with the same remainder in memory
    /// as in the file, and as much room before them, are copied only at their ends.
    fn alignment(&self) -> usize;

    /// Appends bytes, and keeps the memory for a while.
    ///
    /// # Errors
    /// Storage if the system refuses.
    fn append(&mut self, bytes: Lent) -> Result<()>;

    /// Gives memory back, any that was lent, and waits for that if it has to; nothing if none is left.
    ///
    /// # Errors
    /// Storage if the system refuses, also what was appended earlier; there may be more to take back.
    fn take_back(&mut self) -> Result<Option<Box<dyn Memory>>>;
}

/// One output file, written front to back.
pub trait SstFile: Send {
    /// What appends without a copy, if the file has that.
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

    /// Ends the file. Whoever made the sink makes it durable before the job is reported.
    ///
    /// # Errors
    /// Storage if the system refuses.
    fn finish(self: Box<Self>) -> Result<()>;
}
