//! Direct I/O. The page cache is not modelled.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::time::Duration;

use rockmill_core::{Chunk, LeasedBytes};
use rockmill_storage::ReadableFile;
use rockmill_storage::direct::{DirectFile, DirectStorage, Direction, InTransfer};

use super::SimStorage;
use super::open_file::OpenFile;
use crate::storage_model::fault::Op;

impl DirectStorage for SimStorage {
    fn open(&self, path: &Path, _direction: Direction) -> io::Result<Box<dyn DirectFile>> {
        let node = self.act(Op::Open, |machine, _| machine.disk.open(path))?;
        Ok(Box::new(OpenFile::new(self.clone(), node)))
    }

    fn stop(&self) -> Duration {
        Duration::ZERO
    }
}

/// Alignment of the model's direct files.
const ALIGNMENT: usize = 512;

impl OpenFile {
    fn transfer(&self, direction: Direction, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (address, start) = (bytes.as_ptr().addr(), offset as usize);
        let is_aligned = |number: usize| number.is_multiple_of(ALIGNMENT);
        assert!(is_aligned(address) && is_aligned(bytes.len()) && is_aligned(start));
        self.0.take_time(bytes.len());
        match direction {
            Direction::Read => self.0.act(Op::Read, |machine, verdict| {
                let len = machine.disk.bytes(self.1).len();
                let whole = bytes.len().min(len.saturating_sub(start));
                // Only at the end of the file, the number is not a multiple.
                let units = machine.extent(verdict, whole.div_ceil(ALIGNMENT));
                let n = whole.min(units * ALIGNMENT);
                let found = machine.disk.bytes(self.1).iter().skip(start);
                bytes
                    .iter_mut()
                    .zip(found)
                    .take(n)
                    .for_each(|(to, from)| *to = *from);
                Ok(n)
            }),
            Direction::Write => self.0.act(Op::Append, |machine, verdict| {
                let n = machine.extent(verdict, bytes.len());
                machine.disk.write_at(self.1, &bytes[..n], start);
                Ok(n)
            }),
        }
    }
}

impl DirectFile for OpenFile {
    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn size(&self) -> io::Result<u64> {
        ReadableFile::size(self)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.make_room(bytes)
    }

    fn read(&self, mut chunk: Chunk, offset: u64) -> Box<dyn InTransfer<Chunk>> {
        let bytes = chunk.bytes.clone();
        let done = self.transfer(Direction::Read, &mut chunk.memory[bytes], offset);
        Box::new(Done(chunk, done))
    }

    fn write(&self, mut bytes: LeasedBytes, offset: u64) -> Box<dyn InTransfer<LeasedBytes>> {
        let range = bytes.bytes.clone();
        let done = self.transfer(Direction::Write, &mut bytes.as_mut()[range], offset);
        Box::new(Done(bytes, done))
    }

    fn finish(&self, size: u64) -> io::Result<()> {
        self.0.act(Op::Truncate, |machine, verdict| {
            if machine.extent(verdict, 1) == 1 {
                machine.disk.truncate(self.1, size as usize);
            }
            Ok(())
        })?;
        self.0.act(Op::Sync, |machine, verdict| {
            if let Some(works) = machine.syncs(verdict) {
                machine.disk.sync(self.1, works);
            }
            Ok(())
        })
    }
}

/// A transfer that was completed at its start; the caller sees the result when it waits.
#[derive(Debug)]
struct Done<M>(M, io::Result<usize>);

impl<M: Debug + Send> InTransfer<M> for Done<M> {
    fn wait(self: Box<Self>) -> (Option<M>, io::Result<usize>) {
        (Some(self.0), self.1)
    }
}
