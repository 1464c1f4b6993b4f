//! Buffered files.

use std::io;
use std::ops::Range;

use rand::Rng;
use rockmill_storage::{Advice, ReadableFile, WritableFile};

use super::SimStorage;
use super::machine::Verdict;
use crate::storage_model::disk::Node;
use crate::storage_model::fault::Op;

/// A file that stays open, independent of its name.
#[derive(Debug)]
pub(super) struct OpenFile(pub(super) SimStorage, pub(super) Node);

impl ReadableFile for OpenFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.take_time(buf.len());
        self.0.act(Op::Read, |machine, verdict| {
            let len = machine.disk.bytes(self.1).len();
            let start = len.min(offset as usize);
            let whole = buf.len().min(len - start);
            let n = machine.extent(verdict, whole);
            let bytes = machine.disk.bytes(self.1);
            buf[..n].copy_from_slice(&bytes[start..start + n]);
            Ok(n)
        })
    }

    fn cached_pages(&self, _bytes: Range<u64>) -> io::Result<u64> {
        self.0
            .act(Op::Advise, |machine, _| Ok(machine.rng.random_range(0..2)))
    }

    fn advise(&self, _advice: Advice, _bytes: Range<u64>) -> io::Result<()> {
        self.0.act(Op::Advise, |_, _| Ok(()))
    }

    fn size(&self) -> io::Result<u64> {
        self.0.act(Op::Size, |machine, _| {
            Ok(machine.disk.bytes(self.1).len() as u64)
        })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // After a panic the mutex is poisoned, and the count does not matter any more.
        if let Ok(mut machine) = self.0.machine.lock() {
            machine.open -= 1;
        }
    }
}

impl OpenFile {
    pub(super) fn new(storage: SimStorage, node: Node) -> Self {
        let mut machine = storage.machine();
        machine.open += 1;
        machine.seen.max_open = machine.seen.max_open.max(machine.open);
        drop(machine);
        Self(storage, node)
    }

    /// Extends the file, in part if that fails.
    pub(super) fn make_room(&self, bytes: u64) -> io::Result<()> {
        self.0.act(Op::Reserve, |machine, verdict| {
            let room = machine.extent(verdict, bytes as usize);
            machine.disk.reserve(self.1, room);
            Ok(())
        })
    }
}

impl WritableFile for OpenFile {
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.make_room(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.take_time(bytes.len());
        self.0.act(Op::Append, |machine, verdict| {
            let n = machine.extent(verdict, bytes.len());
            machine.disk.append(self.1, &bytes[..n]);
            Ok(())
        })
    }

    fn start_writeback(&mut self, _bytes: Range<u64>) -> io::Result<()> {
        self.0.act(Op::Writeback, |machine, verdict| {
            // A success makes nothing durable: pending bytes stay pending.
            if let Verdict::Refused(_) = verdict {
                machine.disk.sync(self.1, false);
            }
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.act(Op::Sync, |machine, verdict| {
            if let Some(works) = machine.syncs(verdict) {
                machine.disk.sync(self.1, works);
            }
            Ok(())
        })
    }
}
