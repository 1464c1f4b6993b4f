//! One call of a backend, which may never return.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_core::{CancelToken, DynBackend, Error, ErrorKind, Result};

use super::TaskRun;
use crate::budget::{Abandoned, Grant};

/// A backend that looks at its token has returned this long after its job was cancelled.
const GRACE: Duration = Duration::from_secs(2);

/// A run's call of a backend.
pub struct Call {
    pub(super) run: Arc<dyn TaskRun>,
    backend: Arc<dyn DynBackend>,
    stop: CancelToken,
    gate: Mutex<Gate>,
    pub(super) grant: Grant,
    /// When the call counts as hanging; never for the CPU.
    deadline: Option<Deadline>,
    /// When it is abandoned since its job was cancelled.
    grace_ends: Mutex<Option<Duration>>,
}

/// Until when a call is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    pub at: Duration,
    /// Time from the call's begin until then.
    pub after: Duration,
}

/// Who was first: the backend that returned, or the watcher that abandoned the call.
#[derive(Debug)]
enum Gate {
    Open,
    Returned,
    /// With the memory that the call holds.
    Abandoned(Option<Abandoned>),
}

/// Why a call is abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It has passed its deadline.
    Late(Duration),
    /// Its job was cancelled and it has not returned.
    JobCancelled,
}

impl Reason {
    /// The error of the abandoned task.
    pub fn error(self) -> Error {
        let what = match self {
            Self::Late(after) => {
                format!("a task has not come back in {:.1} s", after.as_secs_f64())
            }
            Self::JobCancelled => {
                "a task was given up with its job and has not come back".to_owned()
            }
        };
        Error::new(ErrorKind::Device, what)
    }
}

impl Call {
    pub(super) fn new(
        run: Arc<dyn TaskRun>,
        backend: Arc<dyn DynBackend>,
        job: &CancelToken,
        grant: Grant,
        deadline: Option<Deadline>,
    ) -> Self {
        Self {
            run,
            backend,
            stop: job.child(),
            gate: Mutex::new(Gate::Open),
            grant,
            deadline,
            grace_ends: Mutex::default(),
        }
    }

    /// What runs the task.
    pub fn backend(&self) -> &dyn DynBackend {
        &*self.backend
    }

    /// Set when the task is to end early.
    pub fn stop(&self) -> &CancelToken {
        &self.stop
    }

    /// Does `work` unless the call was abandoned, and keeps it from being abandoned meanwhile. The CPU may be running
    /// the same task again, so an abandoned call must create no more files.
    ///
    /// # Errors
    /// Cancelled if the call was abandoned; those of `work`.
    pub fn while_open<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let gate = self.gate();
        match *gate {
            Gate::Abandoned(_) => Err(Error::cancelled()),
            Gate::Open | Gate::Returned => work(),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the call may hang.
    pub(super) fn is_watched(&self) -> bool {
        self.deadline.is_some()
    }

    /// Why the call is to be abandoned at `now`, if it is.
    pub(super) fn given_up(&self, now: Duration) -> Option<Reason> {
        let deadline = self.deadline?;
        if now >= deadline.at {
            return Some(Reason::Late(deadline.after));
        }
        if !self.stop.is_cancelled() {
            return None;
        }
        let mut grace_ends = self
            .grace_ends
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let ends = *grace_ends.get_or_insert(now + GRACE);
        (now >= ends).then_some(Reason::JobCancelled)
    }

    /// Abandons the call, whose task holds `task_bytes`, unless it has returned. Whether that was done.
    pub(super) fn abandon(&self, task_bytes: u64) -> bool {
        let mut gate = self.gate();
        let is_open = matches!(*gate, Gate::Open);
        if is_open {
            *gate = Gate::Abandoned(Some(self.grant.abandon(task_bytes)));
            // Not earlier: an answer that came in this moment would be Cancelled and end the job.
            self.stop.cancel();
        }
        is_open
    }

    /// The backend has returned. Whether the call was not abandoned before; if it was, its memory is given back.
    pub(super) fn returns(&self) -> bool {
        let mut gate = self.gate();
        let abandoned = match &mut *gate {
            Gate::Abandoned(memory) => memory.take(),
            open => {
                *open = Gate::Returned;
                return true;
            }
        };
        drop(gate);
        drop(abandoned);
        false
    }
}
