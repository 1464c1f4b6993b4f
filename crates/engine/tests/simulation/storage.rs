//! The engine's storage over the model, with one fault.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill_core::{CancelToken, Chunk, Lent};
use rockmill_engine::clock::{self, Clock, Signal, VirtualClock};
use rockmill_engine::storage::direct::{DirectFile, DirectStorage, Direction, InTransfer};
use rockmill_engine::storage::{Advice, FolderId, ReadableFile, Storage, WritableFile};

use crate::disk::{Disk, Luck, Node, Step};
use crate::fault::{Fault, FaultKind, Op};

/// Virtual time that a slow operation takes.
const SLOW_TIME: Duration = Duration::from_secs(30);

/// How often other threads go first while an operation is slow.
const SLOW_YIELDS: usize = 50;

/// A machine's storage until the machine stops. Clones share it.
#[derive(Debug, Clone)]
pub struct SimStorage {
    machine: Arc<Mutex<Machine>>,
    /// The time, if it is not the machine's own, and the bytes that pass a second if they take any.
    time: Option<(VirtualClock, Option<f64>)>,
}

#[derive(Debug)]
struct Machine {
    disk: Disk,
    rng: SmallRng,
    /// Links are not possible.
    copies: bool,
    /// Files can be read and written past the page cache, which is not modelled itself.
    has_direct: bool,
    mounts: Mounts,
    fault: Option<Fault>,
    cancel: CancelToken,
    seen: Seen,
}

/// What lies on another mount than the rest.
#[derive(Debug, Clone, Copy, Default)]
pub enum Mounts {
    #[default]
    None,
    /// Another file system at this path.
    Other(&'static str),
    /// A second mount of the same one.
    Bind(&'static str),
}

impl Mounts {
    fn device_of(self, path: &Path) -> u64 {
        match self {
            Self::Other(mount) if path.starts_with(mount) => 2,
            _ => 1,
        }
    }

    fn lies_between(self, a: &Path, b: &Path) -> bool {
        match self {
            Self::None => false,
            Self::Other(mount) | Self::Bind(mount) => a.starts_with(mount) != b.starts_with(mount),
        }
    }
}

/// What a machine went through.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub ops: BTreeMap<Op, u64>,
    /// Operations that the fault struck.
    pub struck: Vec<Op>,
    pub stopped: bool,
    /// What slow operations and waiting came to.
    pub time: Duration,
}

/// What becomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Done,
    Slow,
    Short,
    /// Done in part at most, with this error.
    Refused(ErrorKind),
    /// Perhaps done, perhaps in part; nobody will know.
    Stops,
    /// The machine does not run.
    Stopped,
}

impl Machine {
    fn verdict(&mut self, op: Op) -> Verdict {
        if self.seen.stopped {
            return Verdict::Stopped;
        }
        let count = self.seen.ops.entry(op).or_default();
        let at = *count;
        *count += 1;
        let again = !self.seen.struck.is_empty();
        let strikes = |fault: &Fault| match again {
            false => (op, at) == (fault.op, fault.at),
            true => fault.lasting && fault.kind.strikes(op),
        };
        let Some(fault) = self.fault.filter(strikes) else {
            return Verdict::Done;
        };
        // A reader tries again until it is not interrupted.
        if fault.kind == FaultKind::Interrupted && again && self.rng.random() {
            return Verdict::Done;
        }
        self.seen.struck.push(op);
        self.strike(fault.kind)
    }

    fn strike(&mut self, kind: FaultKind) -> Verdict {
        match kind {
            FaultKind::Crash => Verdict::Stops,
            FaultKind::Io | FaultKind::FailedSync => Verdict::Refused(ErrorKind::Other),
            FaultKind::NoSpace | FaultKind::ShortWrite => Verdict::Refused(ErrorKind::StorageFull),
            FaultKind::ShortRead => Verdict::Short,
            FaultKind::Interrupted => Verdict::Refused(ErrorKind::Interrupted),
            FaultKind::Slow => {
                self.seen.time += SLOW_TIME;
                Verdict::Slow
            }
            FaultKind::Closing => {
                self.cancel.cancel();
                Verdict::Done
            }
        }
    }

    /// How many of `whole` units of an operation are done.
    fn extent(&mut self, verdict: Verdict, whole: usize) -> usize {
        match verdict {
            Verdict::Done | Verdict::Slow => whole,
            Verdict::Short => self.rng.random_range(1.min(whole)..=whole),
            Verdict::Refused(_) | Verdict::Stops => self.rng.random_range(0..=whole),
            Verdict::Stopped => 0,
        }
    }

    fn take_steps(&mut self, steps: &[Step], verdict: Verdict) -> io::Result<()> {
        let done = self.extent(verdict, steps.len());
        let mut taken = steps[..done].iter();
        taken.try_for_each(|step| self.disk.take_step(step))
    }

    /// Whether a sync works; one that the machine stops in may have.
    fn syncs(&mut self, verdict: Verdict) -> Option<bool> {
        match verdict {
            Verdict::Refused(_) => Some(false),
            verdict => (self.extent(verdict, 1) == 1).then_some(true),
        }
    }
}

impl SimStorage {
    /// Storage over `disk` that meets `fault`; `cancel` is told when the database closes.
    pub fn new(disk: Disk, seed: u64, fault: Option<Fault>, cancel: CancelToken) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let copies = rng.random();
        let has_direct = rng.random_ratio(3, 4);
        let machine = Machine {
            disk,
            rng,
            copies,
            has_direct,
            mounts: Mounts::None,
            fault,
            cancel,
            seen: Seen::default(),
        };
        Self {
            machine: Arc::new(Mutex::new(machine)),
            time: None,
        }
    }

    /// The same machine in that time, of which so many bytes take a second, or none any.
    pub fn timed(self, time: VirtualClock, bytes_per_second: Option<f64>) -> Self {
        Self {
            time: Some((time, bytes_per_second)),
            ..self
        }
    }

    fn take_time(&self, bytes: usize) {
        // A device's own threads, and those that sync, are waited for outside of time.
        if let Some((time, Some(bytes_per_second))) = &self.time
            && time.counts_this_thread()
        {
            time.pause(Duration::from_secs_f64(bytes as f64 / bytes_per_second));
        }
    }

    /// The same machine with something else mounted.
    pub fn with(self, mounts: Mounts) -> Self {
        self.machine().mounts = mounts;
        self
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().expect("the model does not panic")
    }

    pub fn seen(&self) -> Seen {
        self.machine().seen.clone()
    }

    /// The disk as it looks to processes.
    pub fn disk(&self) -> Disk {
        self.machine().disk.clone()
    }

    /// The disk if the machine stops now, if it has not.
    pub fn after_crash(&self, luck: &mut Luck<'_>) -> Disk {
        self.machine().disk.after_crash(luck)
    }

    /// RocksDB renames a finished file.
    pub fn install(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_as(Op::Install, from, to)
    }

    /// Whether files can pass by the page cache.
    pub fn has_direct(&self) -> bool {
        self.machine().has_direct
    }

    /// A file's bytes, without an operation.
    pub fn peek(&self, path: &Path) -> io::Result<Vec<u8>> {
        let disk = &self.machine().disk;
        Ok(disk.bytes(disk.open(path)?).to_vec())
    }

    fn rename_as(&self, op: Op, from: &Path, to: &Path) -> io::Result<()> {
        self.act(op, |machine, verdict| match machine.extent(verdict, 1) {
            0 => Ok(()),
            _ if machine.mounts.lies_between(from, to) => Err(ErrorKind::CrossesDevices.into()),
            _ => machine.disk.rename(from, to),
        })
    }

    /// Does what the verdict over `op` leaves of an `effect`.
    fn act<T>(
        &self,
        op: Op,
        effect: impl FnOnce(&mut Machine, Verdict) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut machine = self.machine();
        let verdict = machine.verdict(op);
        if verdict == Verdict::Slow {
            drop(machine);
            (0..SLOW_YIELDS).for_each(|_| std::thread::yield_now());
            machine = self.machine();
        }
        if verdict == Verdict::Stopped {
            return Err(ErrorKind::Other.into());
        }
        let done = effect(&mut machine, verdict);
        match verdict {
            Verdict::Refused(kind) => Err(kind.into()),
            Verdict::Stops => {
                machine.seen.stopped = true;
                Err(ErrorKind::Other.into())
            }
            Verdict::Done | Verdict::Slow | Verdict::Short | Verdict::Stopped => done,
        }
    }
}

/// Time passes for nobody but by waiting.
impl Clock for SimStorage {
    fn now(&self) -> Duration {
        self.machine().seen.time
    }

    fn pause(&self, time: Duration) {
        self.machine().seen.time += time;
        std::thread::yield_now();
    }

    fn wait(&self, signal: &Signal, seen: clock::Seen, time: Duration) {
        if !signal.wait(seen, time) {
            self.machine().seen.time += time;
        }
    }
}

impl Storage for SimStorage {
    fn clock(&self) -> Arc<dyn Clock> {
        match &self.time {
            Some((time, _)) => Arc::new(time.clone()),
            None => Arc::new(self.clone()),
        }
    }

    fn direct(&self) -> io::Result<Arc<dyn DirectStorage>> {
        match self.machine().has_direct {
            true => Ok(Arc::new(self.clone())),
            false => Err(ErrorKind::Unsupported.into()),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        let node = self.act(Op::Open, |machine, _| machine.disk.open(path))?;
        Ok(Box::new(OpenFile(self.clone(), node)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let node = self.act(Op::Create, |machine, verdict| {
            match machine.extent(verdict, 1) {
                0 => Err(ErrorKind::Other.into()),
                _ => machine.disk.create(path),
            }
        })?;
        Ok(Box::new(OpenFile(self.clone(), node)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.act(Op::MakeFolders, |machine, verdict| {
            let steps = machine.disk.steps_to_make(path);
            machine.take_steps(&steps, verdict)
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.act(Op::RemoveTree, |machine, verdict| {
            let steps = machine.disk.steps_to_remove(path)?;
            machine.take_steps(&steps, verdict)
        })
    }

    fn remove_empty_dir(&self, path: &Path) -> io::Result<()> {
        self.act(Op::RemoveFolder, |machine, verdict| {
            machine.disk.list(path)?;
            machine.take_steps(&[Step::Remove(path.to_owned())], verdict)
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.act(Op::RemoveFile, |machine, verdict| {
            machine.disk.open(path)?;
            machine.take_steps(&[Step::Remove(path.to_owned())], verdict)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_as(Op::Rename, from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.act(Op::List, |machine, _| machine.disk.list(path))
    }

    fn folder_id(&self, path: &Path) -> io::Result<FolderId> {
        self.act(Op::Stat, |machine, _| {
            let inode = machine.disk.folder_number(path)?;
            Ok(FolderId {
                device: machine.mounts.device_of(path),
                inode,
            })
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.act(Op::SyncFolder, |machine, verdict| {
            match machine.syncs(verdict) {
                Some(works) => machine.disk.sync_folder(path, works),
                None => Ok(()),
            }
        })
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.act(Op::Link, |machine, verdict| {
            if !machine.copies {
                return match machine.extent(verdict, 1) {
                    0 => Ok(()),
                    _ => machine.disk.link(from, to),
                };
            }
            let from = machine.disk.open(from)?;
            let bytes = machine.disk.bytes(from).to_vec();
            let part = machine.extent(verdict, bytes.len());
            let copy = machine.disk.create(to)?;
            machine.disk.append(copy, &bytes[..part]);
            if let Some(works) = machine.syncs(verdict) {
                machine.disk.sync(copy, works);
            }
            Ok(())
        })
    }
}

/// A file that stays open whatever becomes of its name.
#[derive(Debug)]
struct OpenFile(SimStorage, Node);

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

impl OpenFile {
    /// Makes the file longer, in part if that fails.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
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
            // When it works, nothing is durable yet: what is pending stays so.
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

impl DirectStorage for SimStorage {
    fn open(&self, path: &Path, _direction: Direction) -> io::Result<Box<dyn DirectFile>> {
        let node = self.act(Op::Open, |machine, _| machine.disk.open(path))?;
        Ok(Box::new(OpenFile(self.clone(), node)))
    }

    fn stop(&self) -> Duration {
        Duration::ZERO
    }
}

/// What the model's direct files want aligned.
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
                // Only at the file's end is it no multiple.
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

    fn write(&self, mut bytes: Lent, offset: u64) -> Box<dyn InTransfer<Lent>> {
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

/// A transfer that was done as it began; nobody knows before it is waited for.
#[derive(Debug)]
struct Done<M>(M, io::Result<usize>);

impl<M: Debug + Send> InTransfer<M> for Done<M> {
    fn wait(self: Box<Self>) -> (Option<M>, io::Result<usize>) {
        (Some(self.0), self.1)
    }
}
