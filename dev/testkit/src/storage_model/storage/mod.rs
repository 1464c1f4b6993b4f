//! The engine's storage over the model, with one fault.

mod direct;
mod machine;
mod open_file;

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill_core::CancelToken;
use rockmill_storage::clock::{self, Clock, Signal};

use crate::VirtualClock;
use rockmill_storage::direct::DirectStorage;
use rockmill_storage::{FILE_MODE, FolderId, ReadableFile, Storage, WritableFile};

use super::disk::{Disk, Step, Survival};
use super::fault::{Fault, Op};
use machine::{Machine, Verdict};
pub use machine::{Mounts, Seen};
use open_file::OpenFile;

/// Number of times that a slow operation yields to other threads.
const SLOW_YIELDS: usize = 50;

/// Is called before each operation.
pub trait Observer: Debug + Send + Sync {
    fn look(&self);
}

/// A machine's storage until the machine stops. Clones share the machine.
#[derive(Debug, Clone)]
pub struct SimStorage {
    machine: Arc<Mutex<Machine>>,
    /// The clock if it is not the machine's own, and the bytes per second if transfers take time.
    time: Option<(VirtualClock, Option<f64>)>,
    observer: Option<Arc<dyn Observer>>,
}

impl SimStorage {
    /// Creates storage over `disk` with the fault `fault`; `cancel` is set when the database closes.
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
            descriptors: None,
            open: 0,
            fault,
            cancel,
            seen: Seen::default(),
        };
        Self {
            machine: Arc::new(Mutex::new(machine)),
            time: None,
            observer: None,
        }
    }

    /// Uses that clock; transfers take the time for `bytes_per_second`, or no time.
    pub fn timed(self, time: VirtualClock, bytes_per_second: Option<f64>) -> Self {
        Self {
            time: Some((time, bytes_per_second)),
            ..self
        }
    }

    /// Calls an observer before each operation.
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    fn take_time(&self, bytes: usize) {
        self.machine().seen.bytes += bytes as u64;
        // Device threads and sync threads are waited for outside of virtual time.
        if let Some((time, Some(bytes_per_second))) = &self.time
            && time.counts_this_thread()
        {
            time.pause(Duration::from_secs_f64(bytes as f64 / bytes_per_second));
        }
    }

    /// Adds other mounts.
    pub fn with(self, mounts: Mounts) -> Self {
        self.machine().mounts = mounts;
        self
    }

    /// Limits the number of descriptors.
    pub fn with_descriptors(self, descriptors: u64) -> Self {
        self.machine().descriptors = Some(descriptors);
        self
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().expect("the model does not panic")
    }

    pub fn seen(&self) -> Seen {
        self.machine().seen.clone()
    }

    /// Returns the disk as processes see it.
    pub fn disk(&self) -> Disk {
        self.machine().disk.clone()
    }

    /// Returns the disk after a crash at this moment, or after the earlier stop.
    pub fn after_crash(&self, survival: &mut Survival<'_>) -> Disk {
        self.machine().disk.after_crash(survival)
    }

    /// Renames a finished file as RocksDB does.
    pub fn install(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_as(Op::Install, from, to)
    }

    /// Whether files support direct I/O.
    pub fn has_direct(&self) -> bool {
        self.machine().has_direct
    }

    /// Returns a file's bytes without counting an operation.
    pub fn peek(&self, path: &Path) -> io::Result<Vec<u8>> {
        let disk = &self.machine().disk;
        Ok(disk.bytes(disk.open(path)?).to_vec())
    }

    /// Returns the names and bytes of a folder's files, sorted, without counting an operation.
    pub fn files_in(&self, folder: &Path) -> Vec<(String, Vec<u8>)> {
        let mut names = self.disk().list(folder).expect("it is there");
        names.sort();
        let bytes = |name: &String| self.peek(&folder.join(name)).expect("it is there");
        (names.iter().map(|name| (name.clone(), bytes(name)))).collect()
    }

    fn rename_as(&self, op: Op, from: &Path, to: &Path) -> io::Result<()> {
        self.act(op, |machine, verdict| match machine.extent(verdict, 1) {
            0 => Ok(()),
            _ if machine.mounts.lies_between(from, to) => Err(ErrorKind::CrossesDevices.into()),
            _ => machine.disk.rename(from, to),
        })
    }

    /// Runs `effect` with the verdict on `op`.
    fn act<T>(
        &self,
        op: Op,
        effect: impl FnOnce(&mut Machine, Verdict) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some(observer) = &self.observer {
            observer.look();
        }
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

/// Time passes only by waiting.
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

    fn descriptors_left(&self) -> Option<u64> {
        let machine = self.machine();
        (machine.descriptors).map(|all| all.saturating_sub(machine.open))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadableFile>> {
        let node = self.act(Op::Open, |machine, _| machine.disk.open(path))?;
        Ok(Box::new(OpenFile::new(self.clone(), node)))
    }

    fn create(&self, path: &Path, _mode: u32) -> io::Result<Box<dyn WritableFile>> {
        let node = self.act(Op::Create, |machine, verdict| {
            match machine.extent(verdict, 1) {
                0 => Err(ErrorKind::Other.into()),
                _ => machine.disk.create(path),
            }
        })?;
        Ok(Box::new(OpenFile::new(self.clone(), node)))
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

    /// All files have the same mode.
    fn mode(&self, path: &Path) -> io::Result<u32> {
        self.act(Op::Stat, |machine, _| {
            machine.disk.open(path).map(|_| FILE_MODE)
        })
    }

    /// The model has neither links nor other users.
    fn is_own_folder(&self, path: &Path) -> io::Result<bool> {
        self.act(Op::Stat, |machine, _| {
            machine.disk.folder_number(path).map(|_| true)
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
