//! Direct I/O (past the page cache), with several reads and writes in flight.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{Chunk, LeasedBytes};
pub use rockmill_sysio::Direction;
use rockmill_sysio::{Pending, Queue, Transfer};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, statx};

/// Default alignment of addresses, offsets and lengths, unless a file asks for more. Devices ask for 512 or 4096.
pub const ALIGNMENT: usize = 4096;

/// Opens files for direct I/O and runs their reads and writes concurrently.
pub trait DirectStorage: Debug + Send + Sync {
    /// Opens an existing file for reading or for writing.
    ///
    /// # Errors
    /// The operating system's error; Unsupported if the file system has no direct I/O.
    fn open(&self, path: &Path, direction: Direction) -> io::Result<Box<dyn DirectFile>>;

    /// Ends the threads after the transfers in flight, and returns their CPU time.
    fn stop(&self) -> Duration;
}

/// A file that is open for direct I/O.
pub trait DirectFile: Debug + Send + Sync {
    /// Required alignment of addresses, offsets and lengths; a power of two.
    fn alignment(&self) -> usize;

    /// Size of the file in bytes.
    ///
    /// # Errors
    /// The operating system's error.
    fn size(&self) -> io::Result<u64>;

    /// The file's descriptor; `None` if the operating system does not have the file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Preallocates `bytes` and extends the file to that length. The kernel serializes writes that extend a file.
    ///
    /// # Errors
    /// The operating system's error; the file may be longer then, and can still be written.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Starts to fill the chunk from `offset`. Both are aligned.
    fn read(&self, chunk: Chunk, offset: u64) -> Box<dyn InTransfer<Chunk>>;

    /// Starts to write the bytes at `offset`. Both are aligned.
    fn write(&self, bytes: LeasedBytes, offset: u64) -> Box<dyn InTransfer<LeasedBytes>>;

    /// Truncates the file to `size` bytes and makes it durable. No write is in flight.
    ///
    /// # Errors
    /// The operating system's error.
    fn finish(&self, size: u64) -> io::Result<()>;
}

/// A read or write in flight. Dropping it does not stop the transfer.
pub trait InTransfer<M>: Debug + Send {
    /// Waits for the end of the transfer. Returns the memory and the number of bytes moved. A short read means the end
    /// of the file or a multiple of the alignment. After an error, the memory may be lost.
    fn wait(self: Box<Self>) -> (Option<M>, io::Result<usize>);
}

/// The operating system's files, with direct I/O.
#[derive(Debug)]
pub struct LocalDirect(Arc<Queue>);

impl LocalDirect {
    /// Creates an instance with its own queue.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Queue::new()?)))
    }
}

impl DirectStorage for LocalDirect {
    fn open(&self, path: &Path, direction: Direction) -> io::Result<Box<dyn DirectFile>> {
        let mut options = OpenOptions::new();
        match direction {
            Direction::Read => options.read(true),
            Direction::Write => options.write(true),
        };
        let opened = options
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path);
        let file = opened.map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput => io::ErrorKind::Unsupported.into(),
            _ => e,
        })?;
        Ok(Box::new(LocalFile {
            alignment: alignment(&file)?,
            file: Arc::new(file),
            queue: Arc::clone(&self.0),
        }))
    }

    fn stop(&self) -> Duration {
        self.0.stop()
    }
}

/// Alignment that the file system requires, or [`ALIGNMENT`] if it does not report any.
fn alignment(file: &File) -> io::Result<usize> {
    let Ok(found) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Ok(ALIGNMENT);
    };
    if found.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(ALIGNMENT);
    }
    if found.stx_dio_offset_align == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let asked = found.stx_dio_mem_align.max(found.stx_dio_offset_align) as usize;
    Ok(asked.next_power_of_two().max(ALIGNMENT))
}

#[derive(Debug)]
struct LocalFile {
    file: Arc<File>,
    alignment: usize,
    queue: Arc<Queue>,
}

impl DirectFile for LocalFile {
    fn alignment(&self) -> usize {
        self.alignment
    }

    fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|m| m.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn read(&self, chunk: Chunk, offset: u64) -> Box<dyn InTransfer<Chunk>> {
        let range = chunk.bytes.clone();
        Box::new(self.begin(Direction::Read, chunk, range, offset))
    }

    fn write(&self, bytes: LeasedBytes, offset: u64) -> Box<dyn InTransfer<LeasedBytes>> {
        let range = bytes.bytes.clone();
        Box::new(self.begin(Direction::Write, bytes, range, offset))
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?)
    }

    fn finish(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)?;
        self.file.sync_all()
    }
}

impl LocalFile {
    fn begin<M>(
        &self,
        direction: Direction,
        memory: M,
        range: Range<usize>,
        offset: u64,
    ) -> Pending<M>
    where
        M: AsMut<[u8]> + Debug + Send + 'static,
    {
        self.queue.submit(Transfer {
            file: Arc::clone(&self.file),
            direction,
            memory,
            range,
            offset,
        })
    }
}

impl<M: Debug + Send> InTransfer<M> for Pending<M> {
    fn wait(self: Box<Self>) -> (Option<M>, io::Result<usize>) {
        Pending::wait(*self)
    }
}
