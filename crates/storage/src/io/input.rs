//! Input files, read front to back by each subcompaction.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rockmill_core::{Chunk, Error, Lock, ReadAt, ReadStream, Result};

use super::cached::CachedReads;
use super::direct_read::{DEPTH, DirectInput, DirectReads};
use super::{JobIo, Stage};
use crate::InputFileReader;
use crate::descriptors::DescriptorLease;

/// An input of a job, read as the job's options say.
#[derive(Debug)]
pub struct JobInput {
    file: Source,
    io: Arc<JobIo>,
    /// Dropped after the file, so the descriptor counts until the file is closed.
    _held: Option<DescriptorLease>,
}

/// An input without an open descriptor: each read reopens it.
#[derive(Debug)]
pub struct ClosedInput {
    path: PathBuf,
    name: String,
    len: u64,
    is_direct: bool,
    io: Arc<JobIo>,
    shared: Lock<Weak<JobInput>>,
}

impl ClosedInput {
    fn open(&self) -> Result<JobInput> {
        JobInput::open(&self.io, &self.path).map_err(|e| Error::storage(&self.name, "open it", &e))
    }

    /// The shared open file, if a task has it.
    pub fn shared(&self) -> Option<Arc<JobInput>> {
        self.shared.lock().upgrade()
    }

    /// The shared open file. It is open until the last task drops it; the descriptor `held` counts until then.
    ///
    /// # Errors
    /// Storage.
    pub fn open_shared(&self, held: Option<DescriptorLease>) -> Result<Arc<JobInput>> {
        if let Some(file) = self.shared() {
            return Ok(file);
        }
        let file = JobInput {
            _held: held,
            ..self.open()?
        };
        let mut shared = self.shared.lock();
        // Another task may have opened it meanwhile.
        Ok(shared.upgrade().unwrap_or_else(|| {
            let file = Arc::new(file);
            *shared = Arc::downgrade(&file);
            file
        }))
    }
}

impl ReadAt for ClosedInput {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.open()?.read_exact_at(buf, offset)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }
}

/// How a file is read.
#[derive(Debug)]
enum Source {
    /// Through the page cache.
    Cached(InputFileReader),
    /// With direct I/O.
    Direct(DirectInput),
}

impl Source {
    fn open(io: &JobIo, path: &Path) -> io::Result<Self> {
        if let Some(direct) = io.direct_reads() {
            match DirectInput::open(direct, path) {
                Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
                opened => return opened.map(Self::Direct),
            }
        }
        InputFileReader::try_open(&*io.storage, path).map(Self::Cached)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match self {
            Self::Cached(file) => file.read_exact_at(buf, offset),
            Self::Direct(file) => file.read_exact_at(buf, offset),
        }
    }
}

impl JobInput {
    /// Opens an input.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn open(io: &Arc<JobIo>, path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: Source::open(io, path)?,
            io: Arc::clone(io),
            _held: None,
        })
    }

    /// The file's descriptor; `None` if the operating system does not have the file.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.file {
            Source::Cached(file) => file.inner().descriptor(),
            Source::Direct(file) => file.descriptor(),
        }
    }

    /// Describes the same file for reopening at `path`.
    pub fn closed(&self, path: PathBuf) -> ClosedInput {
        ClosedInput {
            path,
            name: self.name().to_owned(),
            len: self.len(),
            is_direct: self.is_direct(),
            io: Arc::clone(&self.io),
            shared: Lock::default(),
        }
    }
}

impl ReadAt for JobInput {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.io.wait_for_limit(buf.len() as u64)?;
        self.file.read_exact_at(buf, offset)
    }

    fn len(&self) -> u64 {
        match &self.file {
            Source::Cached(file) => file.len(),
            Source::Direct(file) => file.len,
        }
    }

    fn name(&self) -> &str {
        match &self.file {
            Source::Cached(file) => file.name(),
            Source::Direct(file) => &file.name,
        }
    }

    fn is_direct(&self) -> bool {
        matches!(self.file, Source::Direct(_))
    }

    fn stream(&self, bytes: Range<u64>) -> Option<Box<dyn ReadStream + '_>> {
        let io = &*self.io;
        Some(match &self.file {
            Source::Cached(file) => Box::new(CachedStream {
                io,
                file,
                reads: CachedReads::new(file.inner(), bytes),
                expected: None,
            }),
            Source::Direct(file) => Box::new(DirectStream {
                io,
                reads: DirectReads::new(file),
            }),
        })
    }
}

/// Reads of one subcompaction through the page cache.
#[derive(Debug)]
struct CachedStream<'a> {
    io: &'a JobIo,
    file: &'a InputFileReader,
    reads: CachedReads<'a>,
    expected: Option<Range<u64>>,
}

impl ReadStream for CachedStream<'_> {
    fn expect(&mut self, range: Range<u64>) {
        self.expected = Some(range);
    }

    fn take(&mut self, chunk: &mut Chunk) -> Result<()> {
        let Some(range) = self.expected.take() else {
            return Err(Error::internal("bytes are taken that were not expected"));
        };
        let len = range.end - range.start;
        self.io.wait_for_limit(len)?;
        let buffer = chunk.reset(len as usize);
        self.io.meter.time(Stage::Read, len, || {
            self.file.read_exact_at(buffer, range.start)?;
            self.reads.passed(range.end);
            Ok(())
        })
    }
}

/// Direct reads of one subcompaction.
#[derive(Debug)]
struct DirectStream<'a> {
    io: &'a JobIo,
    reads: DirectReads<'a>,
}

impl ReadStream for DirectStream<'_> {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn expect(&mut self, range: Range<u64>) {
        self.reads.expect(range);
    }

    fn take(&mut self, chunk: &mut Chunk) -> Result<()> {
        let len = self.reads.next_len().unwrap_or(0);
        // Bytes read ahead are charged to the limit when they are used; there are few of them.
        self.io.wait_for_limit(len)?;
        let meter = &self.io.meter;
        meter.time(Stage::Read, len, || self.reads.take(chunk))
    }
}
