//! Output files, written front to back.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{Error, Result, SstFile};

use super::{DirectOutput, JobIo, SliceFiles, Stage, Task, Unsynced};
use crate::storage::direct::Direction;
use crate::storage::{WritableFile, base_name};

/// Bytes handed to the system at a time; the CPU backend has more at once, which go without a copy.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// A file that collects small pieces before it hands them to the system.
#[derive(Debug)]
pub struct BufferedFile {
    file: Box<dyn WritableFile>,
    name: String,
    buffer: Vec<u8>,
    buffer_bytes: usize,
    /// Bytes that the system was given.
    written: u64,
    /// Of those, on their way to the disk.
    sent: u64,
    io: Arc<JobIo>,
    slice: Arc<SliceFiles>,
}

/// A new file, and how many bytes it wants to be given at a time.
fn open(io: &JobIo, path: &Path) -> io::Result<(Box<dyn WritableFile>, usize)> {
    // Some file systems make a file and then say that it cannot be written past the page cache.
    let file = io.storage.create(path)?;
    if let Some(direct) = io.direct_writes() {
        match direct.open(path, Direction::Write) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
            // It collects pieces itself.
            opened => return Ok((Box::new(DirectOutput::new(opened?)), 0)),
        }
    }
    Ok((file, WRITE_BUFFER_BYTES))
}

impl BufferedFile {
    /// Makes a slice's file at `path`.
    ///
    /// # Errors
    /// Storage.
    pub fn create(io: &Arc<JobIo>, slice: &Arc<SliceFiles>, path: &Path) -> Result<Self> {
        let name = base_name(path);
        let opened = open(io, path);
        let (file, buffer_bytes) = opened.map_err(|e| Error::storage(&name, "make it", &e))?;
        Ok(Self {
            file,
            name,
            buffer: Vec::with_capacity(buffer_bytes),
            buffer_bytes,
            written: 0,
            sent: 0,
            io: Arc::clone(io),
            slice: Arc::clone(slice),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let (meter, len) = (&self.io.meter, bytes.len() as u64);
        self.io.wait_for_limit(len)?;
        let written = meter.time(Stage::Write, len, || self.file.append(bytes));
        written.map_err(|e| Error::storage(&self.name, "write it", &e))?;
        self.written += len;
        if self.written - self.sent >= self.io.options.bytes_per_sync {
            self.send()?;
        }
        Ok(())
    }

    /// Sends what was written on to the disk, so that the sync finds little left to do.
    fn send(&mut self) -> Result<()> {
        let range = self.sent..self.written;
        let meter = &self.io.meter;
        let sent = meter.time(Stage::Write, 0, || self.file.start_writeback(range));
        sent.map_err(|e| Error::storage(&self.name, "write it", &e))?;
        self.sent = self.written;
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

impl SstFile for BufferedFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > self.buffer_bytes {
            self.flush()?;
        }
        if bytes.len() >= self.buffer_bytes {
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()?;
        let Self {
            file,
            name,
            written,
            io,
            slice,
            ..
        } = *self;
        let unsynced = Unsynced::new(file, name, written, &slice);
        match io.finishing.offer(Task::Sync(unsynced)) {
            // Its slice is not complete, so nothing comes next.
            Some(Task::Sync(unsynced)) => unsynced.sync(&io).map(drop),
            _ => Ok(()),
        }
    }
}
