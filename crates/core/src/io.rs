//! How backends reach files; the engine implements these over its storage.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use crate::error::Result;

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

    /// The descriptor, if this is a file of the operating system: a backend may map it and copy to a
    /// device straight from the page cache. Without one it reads.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Where a slice's output files go, in key order.
pub trait SstSink {
    /// Begins the slice's next file. The number is unique in the job and becomes the property
    /// `rocksdb.original.file.number`.
    ///
    /// # Errors
    /// Storage if the file cannot be made; Internal if the slice has too many files.
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)>;
}

/// One output file, written front to back.
pub trait SstFile: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// Storage if the system refuses.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes everything durable and closes the file.
    ///
    /// # Errors
    /// Storage if the system refuses.
    fn finish(self: Box<Self>) -> Result<()>;
}
