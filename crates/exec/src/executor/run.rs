//! Runs the tasks of a job on pooled threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rockmill_core::{Error, ErrorKind, Result, thread_cpu};
use rockmill_storage::clock::Worker;

use super::call::{Call, Deadline};
use super::task_set::{Phase, Record, Set, State};
use super::{Event, Start};
use crate::budget::{Candidate, HOST, TaskGrant};
use crate::device_health::{Circuit, EngineAttempt};
use crate::device_registry::DeviceEntry;
use crate::device_trouble::is_device_trouble;

/// Next step of a thread.
enum Next {
    /// It runs the next task.
    Task,
    /// It ends because all tasks have begun.
    End,
    /// It ends because it was abandoned, and another thread runs in its place.
    Abandoned,
}

impl Set {
    /// Starts threads while tasks wait: at most one per slot of the job's devices, and one per task that fits into
    /// memory. Returns whether any thread runs.
    pub(super) fn start_threads(self: &Arc<Self>) -> bool {
        // More threads would only wait for memory, and each would leave an arena in the allocator.
        let at_once = self.shared.job.tasks_in_memory();
        let host = usize::from(self.shared.host_shares);
        let slots = self.shared.job.budget().slots();
        let room = slots.saturating_mul(self.shared.owned.devices.len() + host);
        loop {
            let state = self.state.lock();
            let wanted = room.min(state.records.len()).min(at_once);
            let is_waiting = state.records.iter().any(Record::is_waiting);
            let has_ended = self.shared.owned.stop.is_cancelled();
            if self.threads.running() >= wanted || !is_waiting || has_ended {
                return self.threads.running() > 0;
            }
            self.threads.running.fetch_add(1, Ordering::AcqRel);
            drop(state);
            let worker = Worker::new(&self.shared.clock);
            let set = Arc::clone(self);
            let started = (self.shared.pool).start(Box::new(move || worker.run(|| set.serve())));
            if started.is_err() {
                self.threads.thread_ended();
                return self.threads.running() > 0;
            }
        }
    }

    /// Runs tasks on a pooled thread.
    fn serve(self: Arc<Self>) {
        let threads = Arc::clone(&self.threads);
        let before = thread_cpu();
        let is_abandoned = self.run();
        self.state.lock().cpu += thread_cpu().saturating_sub(before);
        drop(self);
        if !is_abandoned {
            threads.thread_ended();
        }
    }

    /// Runs tasks on the thread that waits for them, because the system refuses to create another one.
    pub(super) fn run_here(self: &Arc<Self>) {
        self.state.lock().is_host_alone = true;
        self.threads.running.fetch_add(1, Ordering::AcqRel);
        self.run();
        self.threads.thread_ended();
    }

    /// Runs one task after another. Returns whether the thread was abandoned meanwhile.
    fn run(self: &Arc<Self>) -> bool {
        let work = || {
            loop {
                self.start_threads();
                match self.run_next() {
                    Ok(Next::Task) => {}
                    Ok(Next::End) => break,
                    Ok(Next::Abandoned) => return true,
                    Err(error) => {
                        self.fail(error);
                        break;
                    }
                }
            }
            self.shared.owned.tasks.help(&self.handle());
            false
        };
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            self.fail(panicked());
            false
        })
    }

    /// Waits for a grant and runs a task on the device that it names.
    fn run_next(self: &Arc<Self>) -> Result<Next> {
        let waiting = Instant::now();
        let stop = &self.shared.owned.stop;
        let Some(grant) = self.shared.job.grant(&self.candidates(), stop)? else {
            return Ok(Next::End);
        };
        let now = self.shared.clock.now();
        let entry = self.entry(grant.placement().device);
        let attempt = entry.and_then(|entry| entry.health.begin(now));
        let is_refused = entry.is_some() && attempt.is_none() && self.may_run_on_cpu();
        let task = match is_refused {
            true => None,
            false => self.take(entry.is_some(), attempt),
        };
        let Some(task) = task else {
            // The device was quarantined meanwhile, or the remaining tasks are those at which it failed.
            grant.put_back();
            return Ok(Next::Task);
        };
        stop.check()?;
        self.run_task(task, grant, waiting.elapsed())
    }

    /// Chooses a waiting task. A device gets only tasks that have not run; in its trial after a quarantine, the
    /// smallest.
    fn take(&self, is_device: bool, attempt: Option<EngineAttempt>) -> Option<usize> {
        let mut state = self.state.lock();
        let bytes = self.shared.owned.tasks.input_bytes();
        let is_trial = attempt.as_ref().is_some_and(EngineAttempt::is_trial);
        let records = state.records.iter().enumerate();
        let fresh = records
            .clone()
            .filter(|(_, record)| matches!(record.phase, Phase::Waiting))
            .map(|(task, _)| task)
            .min_by_key(|&task| (if is_trial { bytes[task] } else { 0 }, task));
        let mut failed = records.filter(|(_, record)| matches!(record.phase, Phase::Failed));
        let failed = failed.next().map(|(task, _)| task);
        let takes_fresh = is_device || self.shared.host_shares || !self.may_offload(&state);
        let failed = failed.filter(|_| !is_device);
        let task = failed.or(fresh.filter(|_| takes_fresh))?;
        let record = &mut state.records[task];
        record.phase = Phase::Begun;
        // If the device failed at the task before, its attempt is kept until the CPU has run the task.
        if is_device {
            record.attempt = attempt;
        }
        Some(task)
    }

    /// Whether a device other than the CPU may get tasks now.
    fn may_offload(&self, state: &State) -> bool {
        let now = self.shared.clock.now();
        let is_open = |entry: &DeviceEntry| matches!(entry.health.circuit(now), Circuit::Open(_));
        !state.is_host_alone && !self.shared.owned.devices.iter().all(is_open)
    }

    fn may_run_on_cpu(&self) -> bool {
        self.shared.owned.tasks.may_run_on_cpu()
    }

    /// Returns the devices that may run a task now, with their expected time for one.
    fn candidates(&self) -> Vec<Candidate> {
        let devices = self.shared.owned.devices.iter();
        if !self.may_run_on_cpu() {
            return devices.map(|entry| self.candidate(entry.number)).collect();
        }
        let state = self.state.lock();
        let is_failed = |record: &Record| matches!(record.phase, Phase::Failed);
        // Failed tasks come first, on the CPU: the sooner the CPU has run one, the sooner it is known whether the
        // device is to blame.
        let is_host_alone = state.is_host_alone || state.records.iter().any(is_failed);
        drop(state);
        let now = self.shared.clock.now();
        let mut candidates = Vec::new();
        for entry in devices.filter(|_| !is_host_alone) {
            match entry.health.circuit(now) {
                Circuit::Open(why) => {
                    self.refused(format!("{}: {why}", entry.device.backend.name()));
                }
                Circuit::Closed | Circuit::HalfOpen => {
                    candidates.push(self.candidate(entry.number));
                }
            }
        }
        if self.shared.host_shares || candidates.is_empty() {
            candidates.push(self.candidate(HOST));
        }
        candidates
    }

    fn candidate(&self, device: usize) -> Candidate {
        let mean = self.shared.owned.tasks.size().mean();
        let seconds = self.shared.throughputs.expected(self.name(device), &mean);
        Candidate { device, seconds }
    }

    /// Runs a task that was chosen.
    fn run_task(self: &Arc<Self>, task: usize, grant: TaskGrant, waited: Duration) -> Result<Next> {
        let tasks = &self.shared.owned.tasks;
        let device = grant.placement().device;
        let entry = self.entry(device);
        if grant.placement().moved {
            let device = self.name(device);
            self.emit(Event::Moved { device });
        }
        let is_again = {
            let record = &mut self.state.lock().records[task];
            record.device = device;
            record.failed.is_some()
        };
        if is_again {
            tasks.discard(task)?;
        }
        let bytes = tasks.input_bytes()[task];
        let run = Arc::clone(tasks).begin(Start {
            task,
            device: self.name(device),
            waited,
            is_again,
        });
        let inputs = run.prepare().inspect_err(|_| run.end())?;
        let began = self.shared.clock.now();
        let backend = entry.map_or(&self.shared.cpu, |entry| &entry.device.backend);
        let deadline = entry.map(|_| {
            let after = self.wait_limit(device, bytes);
            let at = began.saturating_add(after);
            Deadline { at, after }
        });
        let stop = &self.shared.owned.stop;
        let backend = Arc::clone(backend);
        let call = Arc::new(Call::new(Arc::clone(&run), backend, stop, grant, deadline));
        self.state.lock().records[task].phase = Phase::Called(Arc::clone(&call));
        let result = catch_unwind(AssertUnwindSafe(|| run.run(inputs, &call)));
        if !call.mark_returned() {
            if let Some(entry) = entry {
                entry.health.returned();
            }
            return Ok(Next::Abandoned);
        }
        // The record must not keep the call, whose grant ends here: an abandoned call may keep the record.
        self.state.lock().records[task].phase = Phase::Begun;
        let done = result
            .unwrap_or_else(|_| Err(panicked()))
            .and_then(|report| {
                self.state.lock().records[task].phase = Phase::Made(Box::new(report.clone()));
                run.complete(report, &self.handle())
            });
        run.end();
        match done {
            Err(error) if !self.may_run_on_cpu() => {
                let attempt = self.state.lock().records[task].attempt.take();
                if let Some(attempt) = attempt.filter(|_| tasks.blames_device(&error)) {
                    self.distrust(device, &attempt, &error);
                }
                return Err(error);
            }
            Err(error) if entry.is_some() && is_device_trouble(&error) => {
                self.state.lock().records[task].fails(error);
                self.shared.job.add_task();
            }
            Err(error) => return Err(error),
            Ok(()) if is_again => self.was_redone(task),
            // Tasks of views would distort the times of scans.
            Ok(()) if !self.may_run_on_cpu() => {
                // The trial after a quarantine ends here, and not with the whole load.
                if let Some(attempt) = self.state.lock().records[task].attempt.take() {
                    attempt.worked();
                }
            }
            Ok(()) => {
                let elapsed = self.shared.clock.now().saturating_sub(began);
                let size = tasks.size().of(bytes);
                let throughputs = &self.shared.throughputs;
                throughputs.observed(self.name(device), &size, elapsed.as_secs_f64());
            }
        }
        Ok(Next::Task)
    }

    /// Returns the time limit of a call with `bytes` bytes of input.
    fn wait_limit(&self, device: usize, bytes: u64) -> Duration {
        /// Input and output.
        const WAYS: u64 = 2;
        /// A task that the CPU cannot run fails its job, so it gets more time. Its files may be on a slow network volume.
        const TIMES_WITHOUT_CPU: u32 = 10;
        let tasks = &self.shared.owned.tasks;
        let slots = self.shared.job.budget().slots() as u64;
        let moved = bytes.saturating_mul(WAYS).saturating_mul(slots);
        let limited = moved.checked_div(tasks.bytes_per_second()).unwrap_or(0) as f64;
        let size = tasks.size().of(bytes);
        let known = self.shared.throughputs.known(self.name(device), &size);
        let seconds = known.unwrap_or(0.0) + limited;
        let task_deadline = &self.shared.task_deadline;
        let limit = task_deadline.limit(seconds, moved, known.is_some());
        match self.may_run_on_cpu() {
            true => limit,
            false => limit.max(task_deadline.unknown) * TIMES_WITHOUT_CPU,
        }
    }

    /// Records that the CPU has run a task at which a device had failed. The failure counts against the device only
    /// now, because before, the input might have caused it.
    fn was_redone(&self, task: usize) {
        let (failed, attempt) = {
            let record = &mut self.state.lock().records[task];
            (record.failed.take(), record.attempt.take())
        };
        let Some((device, error)) = failed else {
            return;
        };
        let name = self.name(device);
        self.refused(format!("{name}: {error}"));
        self.emit(Event::Redone {
            task,
            device: name,
            error: &error,
        });
        if let Some(attempt) = attempt {
            self.distrust(device, &attempt, &error);
        }
    }

    /// Counts a failure of a device. A task for which others leave too little memory says nothing about the device, and
    /// neither does one that the device does not support.
    pub(super) fn distrust(&self, device: usize, attempt: &EngineAttempt, error: &Error) {
        if error.kind.is_out_of_memory() || error.kind == ErrorKind::Unsupported {
            return;
        }
        if attempt.failed(self.shared.clock.now(), error) {
            let device = self.name(device);
            self.emit(Event::Quarantined { device });
        }
    }
}

fn panicked() -> Error {
    Error::internal("the thread of a task panicked")
}
