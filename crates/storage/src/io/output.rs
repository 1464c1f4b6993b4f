//! Output files, written front to back.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rockmill_core::{Borrower, Error, LeasedBytes, Memory, Result, SstFile};

use super::direct_write::DirectOutput;
use super::{JobIo, Stage, Step, TaskFiles, Unsynced, Written};
use crate::direct::{DirectFile, Direction};
use crate::{WritableFile, base_name};

/// Bytes handed to the page cache at a time. The CPU backend passes larger pieces, which are not copied.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// Creates a task's file at `path`, buffered or direct as the job's options say.
///
/// # Errors
/// Storage.
pub fn create(io: &Arc<JobIo>, task: &Arc<TaskFiles>, path: &Path) -> Result<Box<dyn SstFile>> {
    let output = Output {
        name: base_name(path),
        written: 0,
        io: Arc::clone(io),
        task: Arc::clone(task),
    };
    let opened = output.open(path);
    let opened = opened.map_err(|e| Error::storage(&output.name, "make it", &e))?;
    Ok(match opened {
        Opened::Direct(file) => Box::new(DirectSst {
            file: DirectOutput::new(file, io.options.reserves),
            output,
        }),
        Opened::Cached(file) => Box::new(CachedSst {
            file,
            buffer: Vec::with_capacity(WRITE_BUFFER_BYTES),
            sent: 0,
            output,
        }),
    })
}

/// A new file.
enum Opened {
    Cached(Box<dyn WritableFile>),
    Direct(Box<dyn DirectFile>),
}

/// State that both kinds of output files have.
#[derive(Debug)]
struct Output {
    name: String,
    /// Number of bytes handed to the system.
    written: u64,
    io: Arc<JobIo>,
    task: Arc<TaskFiles>,
}

impl Output {
    /// Creates the file, and opens it a second time for direct I/O if the options ask for that.
    fn open(&self, path: &Path) -> io::Result<Opened> {
        // Created without O_DIRECT first: some file systems create a file and then report that they have no direct I/O.
        let file = self.io.storage.create(path, self.io.output_mode())?;
        if !self.io.options.direct_writes {
            return Ok(Opened::Cached(file));
        }
        let opened = self.io.direct_writes().map_or_else(
            || Err(io::ErrorKind::Unsupported.into()),
            |direct| direct.open(path, Direction::Write),
        );
        match opened {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                if self.io.cached_instead.fetch_add(1, Ordering::Relaxed) == 0 {
                    let folder = path.parent().unwrap_or(path).display();
                    tracing::warn!(%folder, "no direct I/O here: outputs go through the page cache");
                }
                Ok(Opened::Cached(file))
            }
            opened => Ok(Opened::Direct(opened?)),
        }
    }

    /// Hands `len` bytes to the system.
    fn write(&mut self, len: u64, write: impl FnOnce() -> io::Result<()>) -> Result<()> {
        self.io.wait_for_limit(len)?;
        self.time(len, write)?;
        self.written += len;
        Ok(())
    }

    /// Measures a part of writing, and adds the file's name to an error.
    fn time<T>(&self, bytes: u64, work: impl FnOnce() -> io::Result<T>) -> Result<T> {
        let done = self.io.meter.time(Stage::Write, bytes, work);
        done.map_err(|e| Error::storage(&self.name, "write it", &e))
    }

    /// Queues the file's sync for another thread, or syncs it here.
    fn finish(self, file: Written) -> Result<()> {
        let unsynced = Unsynced::new(file, self.name, self.written, &self.task);
        let left = match self.io.descriptors.spare() {
            Some(held) => (self.io.finishing).offer(Step::Sync(unsynced.holding(held))),
            None => Some(Step::Sync(unsynced)),
        };
        match left {
            // The task is not complete yet, so no check follows.
            Some(Step::Sync(unsynced)) => unsynced.sync(&self.io).map(drop),
            _ => Ok(()),
        }
    }
}

/// A buffered file, which collects small pieces before it passes them to the system.
#[derive(Debug)]
struct CachedSst {
    file: Box<dyn WritableFile>,
    buffer: Vec<u8>,
    /// Number of the written bytes whose writeback has been started.
    sent: u64,
    output: Output,
}

impl CachedSst {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let file = &mut self.file;
        self.output
            .write(bytes.len() as u64, || file.append(bytes))?;
        if self.output.written - self.sent >= self.output.io.options.bytes_per_sync {
            self.send()?;
        }
        Ok(())
    }

    /// Starts writeback of the written bytes, so that the sync has little left to do.
    fn send(&mut self) -> Result<()> {
        let range = self.sent..self.output.written;
        let file = &mut self.file;
        self.output.time(0, || file.start_writeback(range))?;
        self.sent = self.output.written;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = self.write(&buffer);
        buffer.clear();
        self.buffer = buffer;
        written
    }
}

impl SstFile for CachedSst {
    fn expect(&mut self, bytes: u64) {
        if self.output.io.options.reserves {
            // A failure here shows again when the bytes are written.
            let _ = self.file.reserve(bytes);
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > WRITE_BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= WRITE_BUFFER_BYTES {
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()?;
        self.output.finish(Written::Cached(self.file))
    }
}

/// A file with direct I/O.
#[derive(Debug)]
struct DirectSst {
    file: DirectOutput,
    output: Output,
}

impl Borrower for DirectSst {
    fn alignment(&self) -> usize {
        self.file.alignment()
    }

    fn append(&mut self, bytes: LeasedBytes) -> Result<()> {
        let file = &mut self.file;
        let len = bytes.bytes.len() as u64;
        self.output.write(len, || file.append_leased(bytes))
    }

    fn take_back(&mut self) -> Result<Option<Box<dyn Memory>>> {
        let file = &mut self.file;
        self.output.time(0, || file.take_back())
    }
}

impl SstFile for DirectSst {
    fn borrower(&mut self) -> Option<&mut dyn Borrower> {
        Some(self)
    }

    fn expect(&mut self, bytes: u64) {
        self.file.expect(bytes);
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let file = &mut self.file;
        self.output.write(bytes.len() as u64, || file.append(bytes))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { file, output } = *self;
        let (file, size) = output.time(0, || file.end())?;
        output.finish(Written::Direct(file, size))
    }
}
