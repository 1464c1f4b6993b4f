//! Decides the outcome of each operation on a machine.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rockmill_core::CancelToken;

use crate::storage_model::disk::{Disk, Step};
use crate::storage_model::fault::{Fault, FaultKind, Op};

/// Virtual time of a slow operation.
const SLOW_TIME: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) disk: Disk,
    pub(super) rng: SmallRng,
    /// Whether hard links are impossible, so that files are copied.
    pub(super) copies: bool,
    /// Whether files support direct I/O. The page cache is not modelled.
    pub(super) has_direct: bool,
    pub(super) mounts: Mounts,
    /// Descriptors of the process, if known.
    pub(super) descriptors: Option<u64>,
    /// Number of open files.
    pub(super) open: u64,
    pub(super) fault: Option<Fault>,
    pub(super) cancel: CancelToken,
    pub(super) seen: Seen,
}

/// Paths that are on another mount than the rest.
#[derive(Debug, Clone, Copy, Default)]
pub enum Mounts {
    #[default]
    None,
    /// Another file system is mounted at this path.
    Other(&'static str),
    /// The same file system is mounted a second time at this path.
    Bind(&'static str),
}

impl Mounts {
    pub(super) fn device_of(self, path: &Path) -> u64 {
        match self {
            Self::Other(mount) if path.starts_with(mount) => 2,
            _ => 1,
        }
    }

    pub(super) fn lies_between(self, a: &Path, b: &Path) -> bool {
        match self {
            Self::None => false,
            Self::Other(mount) | Self::Bind(mount) => a.starts_with(mount) != b.starts_with(mount),
        }
    }
}

/// Record of the machine's operations.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub ops: BTreeMap<Op, u64>,
    /// Operations that the fault affected.
    pub struck: Vec<Op>,
    pub stopped: bool,
    /// Highest number of open files.
    pub max_open: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Time of slow operations and waits.
    pub time: Duration,
}

/// Outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    Slow,
    Short,
    /// Done in part at most, with this error.
    Refused(ErrorKind),
    /// Done, done in part, or not done; the machine stops.
    Stops,
    /// The machine has stopped already.
    Stopped,
}

impl Machine {
    pub(super) fn verdict(&mut self, op: Op) -> Verdict {
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
        // A reader retries until it is not interrupted.
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

    /// Returns how many of `whole` units of an operation are done.
    pub(super) fn extent(&mut self, verdict: Verdict, whole: usize) -> usize {
        match verdict {
            Verdict::Done | Verdict::Slow => whole,
            Verdict::Short => self.rng.random_range(1.min(whole)..=whole),
            Verdict::Refused(_) | Verdict::Stops => self.rng.random_range(0..=whole),
            Verdict::Stopped => 0,
        }
    }

    pub(super) fn take_steps(&mut self, steps: &[Step], verdict: Verdict) -> io::Result<()> {
        let done = self.extent(verdict, steps.len());
        let mut taken = steps[..done].iter();
        taken.try_for_each(|step| self.disk.take_step(step))
    }

    /// Whether a sync works or fails; `None` if the machine stops before it has an effect.
    pub(super) fn syncs(&mut self, verdict: Verdict) -> Option<bool> {
        match verdict {
            Verdict::Refused(_) => Some(false),
            verdict => (self.extent(verdict, 1) == 1).then_some(true),
        }
    }
}
