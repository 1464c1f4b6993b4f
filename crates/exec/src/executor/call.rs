//! One call of a backend, which may never return.

use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{Backend, CancelToken, Error, ErrorKind, Lock, Result};

use super::TaskRun;
use crate::budget::{Abandoned, TaskGrant};

/// Time after the cancellation of a job within which its calls must return. A backend that checks its token does.
const GRACE: Duration = Duration::from_secs(2);

/// A run's call of a backend.
pub struct Call {
    pub(super) run: Arc<dyn TaskRun>,
    backend: Arc<dyn Backend>,
    stop: CancelToken,
    gate: Lock<Gate>,
    pub(super) grant: TaskGrant,
    /// Time at which the call is abandoned; `None` for the CPU.
    deadline: Option<Deadline>,
    /// Time at which the call is abandoned because its job was cancelled.
    grace_ends: Lock<Option<Duration>>,
}

/// Time limit of a call.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    pub at: Duration,
    /// Time between the call's begin and the deadline.
    pub after: Duration,
}

/// Resolves the race between the backend that returns and the thread that abandons the call.
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
    /// It has passed its deadline; holds the time from its begin to the deadline.
    Late(Duration),
    /// Its job was cancelled, and it has not returned within the grace period.
    JobCancelled,
}

impl Reason {
    /// Returns the error of the abandoned task.
    pub fn error(self) -> Error {
        let what = match self {
            Self::Late(after) => {
                format!("a task did not return within {:.1} s", after.as_secs_f64())
            }
            Self::JobCancelled => "a task did not return after its job was cancelled".to_owned(),
        };
        Error::new(ErrorKind::Device, what)
    }
}

impl Call {
    pub(super) fn new(
        run: Arc<dyn TaskRun>,
        backend: Arc<dyn Backend>,
        job: &CancelToken,
        grant: TaskGrant,
        deadline: Option<Deadline>,
    ) -> Self {
        Self {
            run,
            backend,
            stop: job.child(),
            gate: Lock::new(Gate::Open),
            grant,
            deadline,
            grace_ends: Lock::default(),
        }
    }

    /// Backend that runs the task.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Set when the task must end early.
    pub fn stop(&self) -> &CancelToken {
        &self.stop
    }

    /// Does `work` unless the call was abandoned. The call cannot be abandoned meanwhile. An abandoned call must create
    /// no more files, because the CPU may be running the same task again.
    ///
    /// # Errors
    /// Cancelled if the call was abandoned; the errors of `work`.
    pub fn while_open<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let gate = self.gate.lock();
        match *gate {
            Gate::Abandoned(_) => Err(Error::cancelled()),
            Gate::Open | Gate::Returned => work(),
        }
    }

    /// Whether the call has a deadline.
    pub(super) fn is_watched(&self) -> bool {
        self.deadline.is_some()
    }

    /// Returns the reason to abandon the call at `now`, if there is one.
    pub(super) fn abandon_reason(&self, now: Duration) -> Option<Reason> {
        let deadline = self.deadline?;
        if now >= deadline.at {
            return Some(Reason::Late(deadline.after));
        }
        if !self.stop.is_cancelled() {
            return None;
        }
        let ends = *self.grace_ends.lock().get_or_insert(now + GRACE);
        (now >= ends).then_some(Reason::JobCancelled)
    }

    /// Abandons the call, whose task holds `task_bytes`, unless it has returned or is creating a file. Calls `note` before
    /// the call's thread can find out. Returns whether the call was abandoned.
    pub(super) fn abandon(&self, task_bytes: u64, note: impl FnOnce()) -> bool {
        // A file system may hang, and other calls have to be watched meanwhile.
        let Some(mut gate) = self.gate.try_lock() else {
            return false;
        };
        let is_open = matches!(*gate, Gate::Open);
        if is_open {
            *gate = Gate::Abandoned(Some(self.grant.abandon(task_bytes)));
            note();
            // Only after the gate is closed: before, the backend could return Cancelled, which would end the job.
            self.stop.cancel();
        }
        is_open
    }

    /// Records that the backend has returned, and releases the memory of an abandoned call. Returns false if the call
    /// had been abandoned.
    pub(super) fn mark_returned(&self) -> bool {
        let mut gate = self.gate.lock();
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
