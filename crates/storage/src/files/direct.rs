//! Files past the page cache, with several reads and writes at once.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{Chunk, Lent};
pub use rockmill_sysio::Direction;
use rockmill_sysio::{Pending, Queue, Transfer};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, statx};

/// What addresses, offsets and lengths are multiples of, unless a file asks for more. Devices ask for 512
/// or 4096.
pub const ALIGNMENT: usize = 4096;

/// Opens files past the page cache, and does what is asked of them at the same time.
pub trait DirectStorage: Debug + Send + Sync {
    /// Opens a file that is there, to read it or to write it.
    ///
    /// # Errors
    /// Whatever the system says; Unsupported if the file system has no such files.
    fn open(&self, path: &Path, direction: Direction) -> io::Result<Box<dyn DirectFile>>;

    /// Ends the threads, once what was begun is done, and returns the processor time that they took.
    fn stop(&self) -> Duration;
}

/// A file past the page cache.
pub trait DirectFile: Debug + Send + Sync {
    /// What addresses, offsets and lengths have to be multiples of, a power of two.
    fn alignment(&self) -> usize;

    /// Bytes of the file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn size(&self) -> io::Result<u64>;

    /// Makes room for so many bytes, and makes the file that long: writes that make a file longer go one after
    /// another.
    ///
    /// # Errors
    /// Whatever the system says; the file may be longer then, and is written all the same.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Begins to fill the chunk from `offset`. Both are aligned.
    fn read(&self, chunk: Chunk, offset: u64) -> Box<dyn InTransfer<Chunk>>;

    /// Begins to write the bytes at `offset`. Both are aligned.
    fn write(&self, bytes: Lent, offset: u64) -> Box<dyn InTransfer<Lent>>;

    /// Cuts the file to so many bytes and makes it durable; nothing is being written any more.
    ///
    /// # Errors
    /// Whatever the system says.
    fn finish(&self, size: u64) -> io::Result<()>;
}

/// A read or write that was begun. Dropping it leaves it to itself.
pub trait InTransfer<M>: Debug + Send {
    /// Waits for its end: the memory, and how many of its bytes were moved. Of a read, fewer than it has
    /// are the end of the file or a multiple of the alignment. Beside an error, the memory may be lost.
    fn wait(self: Box<Self>) -> (Option<M>, io::Result<usize>);
}

/// The operating system's files, past its page cache.
#[derive(Debug)]
pub struct LocalDirect(Arc<Queue>);

impl LocalDirect {
    /// With a queue of its own.
    ///
    /// # Errors
    /// Whatever the system says.
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

/// What the file system asks for, where it says so.
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

    fn read(&self, chunk: Chunk, offset: u64) -> Box<dyn InTransfer<Chunk>> {
        let range = chunk.bytes.clone();
        Box::new(self.begin(Direction::Read, chunk, range, offset))
    }

    fn write(&self, bytes: Lent, offset: u64) -> Box<dyn InTransfer<Lent>> {
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
