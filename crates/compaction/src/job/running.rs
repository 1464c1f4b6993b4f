//! A job's subcompactions as tasks of the executor.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use rockmill_core::{
    CancelToken, InputTable, Lock, Operator, Plan, Progress, ReadTask, Result, SstFile, SstSink,
    Subcompaction, TaskReport,
};
use rockmill_format::key;
use rockmill_format::range_tombstone::END_TAG;
use tracing::Span;

use super::unbalanced;
use crate::prepare::Prepared;
use crate::spans;
use crate::staging::StagingSink;
use crate::stats::{ProgressCounter, RunningSubcompaction};
use crate::verify::Verifier;
use rockmill_exec::executor::{Call, Event, Start, TaskHandle, TaskRun, Tasks};
use rockmill_exec::throughput::JobSize;
use rockmill_storage::descriptors::DescriptorLease;
use rockmill_storage::io::{JobIo, RateLimiter, Stage, TaskFiles, measured_by_this_thread};

/// A running job. An abandoned call may own it long after the job has ended, so it contains neither the staging folder
/// nor the job's share of the budget.
#[derive(Debug)]
pub struct RunningJob {
    pub prepared: Prepared,
    pub verifier: Verifier,
    counter: ProgressCounter,
    limiter: Arc<RateLimiter>,
    /// Report of each subcompaction, until its files are verified.
    reports: Vec<Lock<Option<TaskReport>>>,
    /// The job's span, the parent of the subcompactions' spans on all threads.
    span: Span,
    /// CPU time of the threads that sync.
    pub cpu: Lock<Duration>,
}

/// One run of a subcompaction.
struct SubcompactionRun {
    job: Arc<RunningJob>,
    running: RunningSubcompaction,
    span: Span,
    /// Descriptors for its inputs and outputs. An abandoned call does not keep those that it does not use.
    held: Lock<Option<DescriptorLease>>,
    files: Arc<TaskFiles>,
}

impl RunningJob {
    pub fn new(
        prepared: Prepared,
        verifier: Verifier,
        counter: &ProgressCounter,
        limiter: &Arc<RateLimiter>,
        span: Span,
    ) -> Self {
        let subcompactions = prepared.subcompactions.iter();
        Self {
            reports: subcompactions.map(|_| Lock::default()).collect(),
            prepared,
            verifier,
            counter: counter.clone(),
            limiter: Arc::clone(limiter),
            span,
            cpu: Lock::default(),
        }
    }

    pub fn report(&self, subcompaction: usize) -> MutexGuard<'_, Option<TaskReport>> {
        self.reports[subcompaction].lock()
    }

    /// State shared by the job's files.
    pub fn files(&self) -> &Arc<JobIo> {
        &self.verifier.files
    }

    /// Opens a subcompaction's inputs. Returns them with the descriptors for inputs and outputs, which are held until
    /// it ends.
    pub fn open_inputs(
        &self,
        subcompaction: &Subcompaction,
    ) -> Result<(Vec<InputTable>, DescriptorLease)> {
        let files = self.files();
        let open = || self.prepared.inputs.open(&subcompaction.range, &files.stop);
        files.meter.time(Stage::WaitForBudget, 0, open)
    }

    /// Returns the read task of a subcompaction.
    pub fn read_task<'t>(
        &'t self,
        subcompaction: &'t Subcompaction,
        inputs: &'t [InputTable],
        stop: &'t CancelToken,
        progress: Option<&'t Progress>,
    ) -> ReadTask<'t> {
        let Prepared { plan, admitted, .. } = &self.prepared;
        ReadTask {
            reading: plan.reading(inputs, &subcompaction.range, admitted.read_ahead_bytes),
            cancel: stop,
            progress,
        }
    }
}

impl Tasks for RunningJob {
    fn size(&self) -> &JobSize {
        &self.prepared.size
    }

    fn input_bytes(&self) -> &[u64] {
        &self.prepared.subcompaction_bytes
    }

    fn bytes_per_second(&self) -> u64 {
        self.limiter.rate()
    }

    fn begin(self: Arc<Self>, start: Start<'_>) -> Arc<dyn TaskRun> {
        let Start { task, device, .. } = start;
        // The failed run's bytes and wait are counted already.
        let (bytes, waited) = match start.is_again {
            true => (0, Duration::ZERO),
            false => (self.prepared.subcompaction_bytes[task], start.waited),
        };
        self.files().meter.add(Stage::WaitForBudget, waited, 0);
        let held_bytes = self.prepared.admitted.task_bytes;
        let counter = &self.counter;
        Arc::new(SubcompactionRun {
            running: counter.subcompaction_begins(device, bytes, held_bytes, waited),
            span: spans::subcompaction(&self.span, task, device, bytes),
            held: Lock::default(),
            files: TaskFiles::new(task),
            job: self,
        })
    }

    fn discard(&self, task: usize) -> Result<()> {
        self.verifier.staging.remove_subcompaction(task)
    }

    fn help(&self, handle: &TaskHandle) {
        self.finish_queued(handle);
    }

    fn on_event(&self, event: Event<'_>) {
        let counters = self.counter.counters();
        match event {
            Event::Moved { device } => counters.subcompaction_moved(device),
            Event::Redone {
                task,
                device,
                error,
            } => {
                tracing::warn!(device, subcompaction = task, %error, "the CPU has done the subcompaction instead");
                counters.subcompaction_failed(device, error);
                counters.subcompaction_redone(device);
            }
            Event::Abandoned { device } => counters.subcompaction_abandoned(device),
            Event::Quarantined { device } => {
                tracing::warn!(device, "quarantined for a while");
                counters.device_quarantined(device);
            }
            Event::Failed { error } => {
                counters.subcompaction_failed(rockmill_exec::throughput::CPU, error);
            }
        }
    }
}

impl SubcompactionRun {
    fn subcompaction(&self) -> &Subcompaction {
        &self.job.prepared.subcompactions[self.files.task]
    }
}

impl TaskRun for SubcompactionRun {
    fn prepare(&self) -> Result<Vec<InputTable>> {
        let (inputs, held) = self.job.open_inputs(self.subcompaction())?;
        *self.held.lock() = Some(held);
        Ok(inputs)
    }

    fn run(&self, inputs: Vec<InputTable>, call: &Call) -> Result<TaskReport> {
        let _entered = self.span.enter();
        let job = &self.job;
        let io = Arc::clone(job.files());
        let mut sink = StagingSink::new(&job.verifier.staging, io, Arc::clone(&self.files));
        let (started, measured) = (Instant::now(), measured_by_this_thread());
        let progress = Some(self.running.progress());
        let task = job.read_task(self.subcompaction(), &inputs, call.stop(), progress);
        let gated = &mut Gated {
            sink: &mut sink,
            call,
        };
        let operator = Operator::WriteSst {
            plan: &job.prepared.plan.output,
            sink: gated,
        };
        let report = call.backend().run(task, operator);
        let moved = measured_by_this_thread().saturating_sub(measured);
        let computed = started.elapsed().saturating_sub(moved);
        job.files().meter.add(Stage::Compute, computed, 0);
        report
    }

    fn complete(&self, report: TaskReport, handle: &TaskHandle) -> Result<()> {
        let _entered = self.span.enter();
        self.held.lock().take();
        check_report(&report, self.subcompaction(), &self.job.prepared.plan)?;
        spans::subcompaction_done(&self.span, &report);
        *self.job.report(self.files.task) = Some(report);
        let next = Arc::clone(&self.files).complete();
        let next = next.and_then(|next| self.job.files().finishing.offer(next));
        next.map_or(Ok(()), |next| self.job.try_finish(next, handle))
    }

    fn end(&self) {
        self.held.lock().take();
        self.running.end();
    }
}

/// Creates files unless the call was abandoned.
struct Gated<'a> {
    sink: &'a mut StagingSink,
    call: &'a Call,
}

impl SstSink for Gated<'_> {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let sink = &mut *self.sink;
        self.call.while_open(|| sink.create())
    }
}

/// Checks every backend's report: each entry that was read was kept or dropped, and the files lie within the
/// subcompaction.
fn check_report(report: &TaskReport, subcompaction: &Subcompaction, plan: &Plan) -> Result<()> {
    let range = &subcompaction.range;
    let inside = |internal_key: &[u8]| {
        key::split(internal_key).is_some_and(|(user_key, tag)| {
            // A range tombstone ends before that key.
            let ends = tag == END_TAG && range.end.as_deref() == Some(user_key);
            range.contains_in(plan.rules.order, user_key) || ends
        })
    };
    let files_inside = report
        .files()
        .iter()
        .all(|file| inside(&file.smallest) && inside(&file.largest));
    if !report.read.is_balanced() {
        return Err(unbalanced(
            "entries read do not equal entries kept, dropped and consumed",
        ));
    }
    if !files_inside || (plan.output.splitting.single_file && report.files().len() > 1) {
        return Err(unbalanced("output files do not fit their subcompaction"));
    }
    Ok(())
}
