//! One subcompaction: on the device that was chosen for it, and on the CPU where that fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rockmill_core::{
    DynBackend, Error, Operator, Plan, Progress, Result, Subcompaction, TaskReport,
};
use rockmill_format::key;
use tracing::Span;

use super::call::{Call, Terms};
use super::{Shared, unbalanced};
use crate::spans;
use crate::staging::StagingSink;
use rockmill_exec::budget::{Grant, HOST};
use rockmill_exec::device_health::Attempt;
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::device_trouble::is_device_trouble;
use rockmill_storage::io::{Stage, SubcompactionFiles, measured_by_this_thread};

impl Shared<'_> {
    /// Does a subcompaction on the device that was chosen, and if it fails there, on the CPU. `None` of one that was abandoned:
    /// it is made again once there is memory for it beside what the call took with it.
    pub(super) fn slice(
        &self,
        subcompaction: &Subcompaction,
        device: Option<DeviceEntry<'_>>,
        grant: &Grant<'_>,
        waited: Duration,
    ) -> Result<Option<TaskReport>> {
        self.files.stop.check()?;
        self.files.meter.add(Stage::WaitForBudget, waited, 0);
        let bytes = self.subcompaction_bytes[subcompaction.index];
        let began = self.context.clock.now();
        let number = device.map_or(HOST, |device| device.number);
        self.done_by[subcompaction.index].store(number, Ordering::Release);
        if grant.place().moved {
            let name = device.map_or(self.cpu_name(), |device| device.device.backend.name());
            self.context.counters.subcompaction_moved(name);
        }
        let attempt = self.attempts[subcompaction.index].get();
        let Some((device, attempt)) = device.zip(attempt) else {
            let report = self.subcompaction_on(None, subcompaction, bytes, waited)?;
            self.learn(self.cpu_name(), bytes, began);
            return Ok(Some(report));
        };
        let terms = self.terms(device, attempt, bytes, grant);
        match self.subcompaction_on(Some((device, terms)), subcompaction, bytes, waited) {
            Err(error) if grant.is_abandoned() => {
                self.done().again.push((subcompaction.index, error));
                Ok(None)
            }
            Err(error) if is_device_trouble(&error) => {
                let report = self.redo(subcompaction, &error)?;
                // If the CPU had failed too, it might have been the input.
                self.distrust(device, attempt, &error);
                Ok(Some(report))
            }
            Err(error) => Err(error),
            Ok(report) => {
                self.learn(device.device.backend.name(), bytes, began);
                Ok(Some(report))
            }
        }
    }

    /// Takes in how long a subcompaction over so many bytes took on a device, which it began at some time.
    fn learn(&self, device: &str, bytes: u64, began: Duration) {
        let elapsed = self.context.clock.now().saturating_sub(began);
        let size = self.size.of(bytes);
        self.context
            .paces
            .observed(device, &size, elapsed.as_secs_f64());
    }

    /// Does a subcompaction on the CPU that failed so on the device, or whose files were not what that had meant.
    pub(super) fn redo(&self, subcompaction: &Subcompaction, error: &Error) -> Result<TaskReport> {
        let failed = self.done_by[subcompaction.index].swap(HOST, Ordering::AcqRel);
        self.files.stop.check()?;
        self.staging.remove_subcompaction(subcompaction.index)?;
        let report = self.subcompaction_on(None, subcompaction, 0, Duration::ZERO)?;
        if let Some(device) = self.entry(failed) {
            let name = device.device.backend.name();
            tracing::warn!(device = name, subcompaction = subcompaction.index, %error, "the CPU has done the subcompaction instead");
            self.refused(format!("{name}: {error}"));
            self.context.counters.subcompaction_failed(name, error);
            self.context.counters.subcompaction_redone(name);
        }
        Ok(report)
    }

    /// A device is to blame for what became of a subcompaction.
    pub(super) fn distrust(&self, device: DeviceEntry<'_>, attempt: &Attempt<'_>, error: &Error) {
        if attempt.failed(self.context.clock.now(), error) {
            let name = device.device.backend.name();
            tracing::warn!(device = name, "quarantined for a while");
            self.context.counters.device_quarantined(name);
        }
    }

    /// How long a call over so many bytes is waited for on a device.
    fn terms<'t>(
        &'t self,
        device: DeviceEntry<'_>,
        attempt: &'t Attempt<'t>,
        bytes: u64,
        grant: &'t Grant<'t>,
    ) -> Terms<'t> {
        /// Input and output.
        const WAYS: u64 = 2;
        let name = device.device.backend.name();
        let limit = self.context.limiter.rate();
        let slots = self.context.budget.slots() as u64;
        let moved = bytes.saturating_mul(WAYS).saturating_mul(slots);
        let limited = moved.checked_div(limit).unwrap_or(0) as f64;
        let known = self.context.paces.known(name, &self.size.of(bytes));
        let seconds = known.unwrap_or(0.0) + limited;
        Terms {
            at_most: (self.context.patience).at_most(seconds, moved, known.is_some()),
            clock: &self.context.clock,
            budget: self.context.budget,
            counters: self.context.counters,
            grant,
            subcompaction_bytes: self.subcompaction_memory_bytes,
            attempt,
        }
    }

    /// Does a subcompaction on a device, or on the CPU.
    fn subcompaction_on(
        &self,
        device: Option<(DeviceEntry<'_>, Terms<'_>)>,
        subcompaction: &Subcompaction,
        bytes: u64,
        waited: Duration,
    ) -> Result<TaskReport> {
        let name = match &device {
            Some((entry, _)) => entry.device.backend.name(),
            None => self.cpu_name(),
        };
        let held_bytes = self.subcompaction_memory_bytes;
        let running = self
            .progress
            .subcompaction_begins(name, bytes, held_bytes, waited);
        let span = spans::subcompaction(&self.span, subcompaction.index, name, bytes);
        let progress = running.progress();
        let sink = StagingSink::new(self.staging, Arc::clone(&self.files), subcompaction.index);
        let computed = match &device {
            Some((entry, terms)) => self.call(*entry, terms, subcompaction, sink, &span, progress),
            None => span.in_scope(|| self.compute(subcompaction, sink, progress)),
        };
        let done = computed.and_then(|(report, files)| {
            span.in_scope(|| self.complete(subcompaction, report, files))
        });
        if let Ok(report) = &done {
            spans::subcompaction_done(&span, report);
        }
        done
    }

    /// Has a device compute a subcompaction.
    fn call(
        &self,
        entry: DeviceEntry<'_>,
        terms: &Terms<'_>,
        subcompaction: &Subcompaction,
        sink: StagingSink,
        span: &Span,
        progress: &Progress<'_>,
    ) -> Result<(TaskReport, Arc<SubcompactionFiles>)> {
        let (inputs, _held) = self.open_inputs(subcompaction)?;
        let call = Call {
            device: Arc::clone(entry.device),
            job: Arc::clone(self.prepared),
            subcompaction: subcompaction.index,
            inputs,
            sink,
            stop: self.files.stop.clone(),
            span: span.clone(),
        };
        let answer = call.run(progress, terms)?;
        self.files.meter.add(Stage::Compute, answer.computed, 0);
        match answer.report {
            Ok(mut report) => {
                report.cpu_elsewhere += answer.cpu;
                Ok((report, answer.files))
            }
            Err(error) => {
                self.done().cpu += answer.cpu;
                Err(error)
            }
        }
    }

    /// Computes a subcompaction on the CPU.
    fn compute(
        &self,
        subcompaction: &Subcompaction,
        mut sink: StagingSink,
        progress: &Progress<'_>,
    ) -> Result<(TaskReport, Arc<SubcompactionFiles>)> {
        let (inputs, _held) = self.open_inputs(subcompaction)?;
        let (started, measured) = (Instant::now(), measured_by_this_thread());
        let work = self.work_on(subcompaction, &inputs, Some(progress));
        let operator = Operator::WriteSst { sink: &mut sink };
        let report = DynBackend::run(self.context.cpu, work, operator)?;
        let moved = measured_by_this_thread().saturating_sub(measured);
        let computed = started.elapsed().saturating_sub(moved);
        self.files.meter.add(Stage::Compute, computed, 0);
        Ok((report, sink.into_files()))
    }

    /// Looks at what a backend says of a subcompaction, and has its files synced and checked.
    fn complete(
        &self,
        subcompaction: &Subcompaction,
        report: TaskReport,
        files: Arc<SubcompactionFiles>,
    ) -> Result<TaskReport> {
        check_subcompaction(&report, subcompaction, self.plan)?;
        let task = files.complete(report.clone());
        let task = task.and_then(|task| self.files.finishing.offer(task));
        task.map_or(Ok(()), |task| self.try_finish(task))?;
        Ok(report)
    }

    /// A device does not do all that it was to do of the job.
    pub(super) fn refused(&self, why: String) {
        self.done().device_refused.get_or_insert(why);
    }
}

/// What must hold of any backend's subcompaction: all entries read were kept or dropped, and files lie in the
/// subcompaction.
fn check_subcompaction(
    report: &TaskReport,
    subcompaction: &Subcompaction,
    plan: &Plan,
) -> Result<()> {
    let inside = |internal_key: &[u8]| {
        key::split(internal_key).is_some_and(|(user_key, _)| subcompaction.range.contains(user_key))
    };
    let files_inside = report
        .files()
        .iter()
        .all(|file| inside(&file.smallest) && inside(&file.largest));
    if !report.read.is_balanced() {
        return Err(unbalanced(
            "entries read do not equal entries kept and dropped",
        ));
    }
    if !files_inside || (plan.output.splitting.single_file && report.files().len() > 1) {
        return Err(unbalanced("output files do not fit their subcompaction"));
    }
    Ok(())
}
