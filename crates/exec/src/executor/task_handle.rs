//! The handle of a job's tasks: waits for them, and watches their calls meanwhile.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use rockmill_core::{Error, Lock, Result, TaskReport};
use rockmill_storage::clock::{CANCEL_POLL, Signal};

use super::Event;
use super::call::{Call, Reason};
use super::task_set::{Phase, Record, Set, Shared, State, Threads};
use crate::budget::HOST;
use crate::device_trouble::is_device_trouble;

/// A job's tasks, which run until all are done or one fails. A clone refers to the same tasks. The thread that waits
/// for them also watches the calls of devices: a call that hangs is abandoned only while a thread is in
/// [`TaskHandle::wait`].
#[derive(Clone)]
pub struct TaskHandle(pub(super) Arc<Set>);

/// A task that was run.
#[derive(Debug)]
pub struct FinishedTask {
    /// Number of the device that ran it; [`HOST`] is the CPU.
    pub device: usize,
    /// Its report.
    pub report: TaskReport,
}

impl TaskHandle {
    pub(super) fn begin(shared: Shared) -> Self {
        let count = shared.owned.tasks.input_bytes().len();
        let records = std::iter::repeat_with(Record::default).take(count);
        let threads = Arc::new(Threads {
            running: AtomicUsize::new(0),
            changed: Signal::default(),
            clock: Arc::clone(&shared.clock),
        });
        let state = State {
            records: records.collect(),
            ..State::default()
        };
        let set = Arc::new(Set {
            shared,
            state: Lock::new(state),
            threads,
        });
        set.start_threads();
        Self(set)
    }

    /// Waits until every task has been run and no thread is running. A later [`TaskHandle::verdict`] may cause a task
    /// to run again, so the caller waits again after it.
    ///
    /// # Errors
    /// The error of the first task that failed and was not redone; Cancelled.
    pub fn wait(&self) -> Result<()> {
        /// Every change notifies the waiting thread, so this timeout is only a precaution.
        const LONG_WAIT: Duration = Duration::from_secs(60);
        let set = &self.0;
        loop {
            let seen = set.threads.changed.seen();
            set.watch();
            let is_running = set.start_threads();
            if set.threads.running() == 0 {
                let mut state = set.state.lock();
                if let Some(error) = state.error.take() {
                    // An abandoned call may keep the records long after the job has ended.
                    state.records.iter_mut().for_each(Record::release);
                    return Err(error);
                }
                if !state.records.iter().any(Record::is_waiting) {
                    return Ok(());
                }
                drop(state);
                set.shared.owned.stop.check()?;
                if !is_running {
                    set.run_here();
                }
                continue;
            }
            let timeout = match set.shared.owned.devices.is_empty() {
                true => LONG_WAIT,
                false => CANCEL_POLL,
            };
            set.shared.clock.wait(&set.threads.changed, seen, timeout);
        }
    }

    /// Reports whether the output of a task was verified. This counts for the device's health. If the device is to
    /// blame, the CPU runs the task again: on the next free thread, or at the latest in the next [`TaskHandle::wait`].
    ///
    /// # Errors
    /// That of `verified`, if no device other than the CPU is to blame.
    pub fn verdict(&self, task: usize, verified: Result<()>) -> Result<()> {
        let set = &self.0;
        let mut state = set.state.lock();
        let record = &mut state.records[task];
        // If the CPU has run the task again, the attempt belongs to the device that failed.
        let attempt = record.attempt.take_if(|_| record.device != HOST);
        let Some(attempt) = attempt else {
            return verified;
        };
        match verified {
            Err(error) if is_device_trouble(&error) => {
                record.fails(error.clone());
                let device = record.failed_device();
                drop(state);
                set.distrust(device, &attempt, &error);
                set.shared.job.add_task();
                set.threads.notify();
                Ok(())
            }
            verified => {
                if verified.is_ok() {
                    attempt.worked();
                }
                record.attempt = Some(attempt);
                verified
            }
        }
    }

    /// Ends all tasks with an error.
    pub fn fail(&self, error: Error) {
        self.0.fail(error);
    }

    /// Records the first reason why a device does not do all of the job.
    pub fn refused(&self, why: String) {
        self.0.refused(why);
    }

    /// Returns the tasks in their order, after [`TaskHandle::wait`] has returned without an error.
    pub fn take(&self) -> Vec<FinishedTask> {
        let records = std::mem::take(&mut self.0.state.lock().records);
        let made = records.into_iter().filter_map(|record| {
            let Phase::Made(report) = record.phase else {
                return None;
            };
            let device = record.device;
            Some(FinishedTask {
                device,
                report: *report,
            })
        });
        made.collect()
    }

    /// Returns the first reason why a device did not do all of the job.
    pub fn device_refused(&self) -> Option<String> {
        self.0.state.lock().device_refused.clone()
    }

    /// Returns the CPU time of the threads that have ended.
    pub fn cpu(&self) -> Duration {
        self.0.state.lock().cpu
    }
}

impl Set {
    /// Abandons late calls.
    fn watch(&self) {
        let now = self.shared.clock.now();
        let called = |(task, record): (usize, &Record)| match &record.phase {
            Phase::Called(call) if call.is_watched() => Some((task, Arc::clone(call))),
            _ => None,
        };
        let calls: Vec<_> = {
            let state = self.state.lock();
            state
                .records
                .iter()
                .enumerate()
                .filter_map(called)
                .collect()
        };
        for (task, call) in &calls {
            if let Some(reason) = call.abandon_reason(now) {
                self.abandon(*task, call, reason);
            }
        }
    }

    fn abandon(&self, task: usize, call: &Call, reason: Reason) {
        let is_late = matches!(reason, Reason::Late(_));
        let (mut device, mut is_news) = (HOST, false);
        let note = || {
            call.run.end();
            let error = reason.error();
            let attempt = {
                let record = &mut self.state.lock().records[task];
                record.fails(error.clone());
                device = record.device;
                record.attempt.take()
            };
            let now = self.shared.clock.now();
            is_news = match (attempt, self.entry(device)) {
                (Some(attempt), _) => attempt.abandoned(now, is_late, &error),
                // A task that only a device can run begins also in a quarantine.
                (None, Some(entry)) => {
                    entry.health.abandoned_in_quarantine();
                    false
                }
                (None, None) => false,
            };
        };
        if !call.abandon(self.shared.owned.task_memory_bytes, note) {
            return;
        }
        let name = self.name(device);
        self.emit(Event::Abandoned { device: name });
        if is_news && is_late {
            self.emit(Event::Quarantined { device: name });
        }
        match self.shared.owned.tasks.may_run_on_cpu() {
            true => self.shared.job.add_task(),
            false => self.fail(reason.error()),
        }
        // Its thread no longer counts as running, so another one may be started.
        self.threads.thread_ended();
    }
}
