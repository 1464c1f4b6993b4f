//! One slice: on the device, if there is one that is trusted, and on the CPU where that fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rockmill_core::{Backend, Error, Plan, Progress, Result, Slice, SliceReport};
use rockmill_format::key;

use super::{Shared, unbalanced};
use crate::device::{Offload, is_device_trouble};
use crate::io::{Stage, measured_by_this_thread};
use crate::spans;
use crate::staging::StagingSink;

impl<B: Backend> Shared<'_, B> {
    /// Does a slice on the device, if there is one that is trusted, and if it fails there, on the CPU.
    pub(super) fn slice(&self, slice: &Slice, waited: Duration) -> Result<SliceReport> {
        self.files.stop.check()?;
        self.files.meter.add(Stage::WaitForBudget, waited, 0);
        let bytes = self.slice_bytes[slice.index];
        let Some(device) = self.device() else {
            return self.slice_on(self.context.cpu, slice, bytes, waited);
        };
        self.on_device[slice.index].store(true, Ordering::Release);
        match self.slice_on(device.backend, slice, bytes, waited) {
            Err(error) if is_device_trouble(&error) => self.redo(slice, &error),
            done => {
                if done.is_ok() {
                    device.standing.worked();
                }
                done
            }
        }
    }

    /// Does a slice on the CPU that failed so on the device.
    pub(super) fn redo(&self, slice: &Slice, error: &Error) -> Result<SliceReport> {
        self.files.stop.check()?;
        self.on_device[slice.index].store(false, Ordering::Release);
        self.staging.remove_slice(slice.index)?;
        let report = self.slice_on(self.context.cpu, slice, 0, Duration::ZERO)?;
        self.device_failed(slice, error);
        Ok(report)
    }

    fn slice_on<X: Backend>(
        &self,
        backend: &X,
        slice: &Slice,
        bytes: u64,
        waited: Duration,
    ) -> Result<SliceReport> {
        let device = backend.name();
        let held_bytes = self.slice_memory_bytes;
        let running = self
            .progress
            .slice_begins(device, bytes, held_bytes, waited);
        let span = spans::slice(&self.span, slice.index, device, bytes);
        let done = span.in_scope(|| self.compact(backend, slice, running.progress()));
        if let Ok(report) = &done {
            spans::slice_done(&span, report);
        }
        done
    }

    fn compact<X: Backend>(
        &self,
        backend: &X,
        slice: &Slice,
        progress: &Progress<'_>,
    ) -> Result<SliceReport> {
        let (started, measured) = (Instant::now(), measured_by_this_thread());
        let run = backend.survivors(self.work_on(slice, Some(progress)))?;
        let mut sink = StagingSink::new(self.staging, Arc::clone(&self.files), slice.index);
        let report = backend.write_ssts(run, &mut sink)?;
        let moved = measured_by_this_thread().saturating_sub(measured);
        let computed = started.elapsed().saturating_sub(moved);
        self.files.meter.add(Stage::Compute, computed, 0);
        check_slice(&report, slice, self.plan)?;
        let task = sink.into_files().complete(report.clone());
        let task = task.and_then(|task| self.files.finishing.offer(task));
        task.map_or(Ok(()), |task| self.try_finish(task))?;
        Ok(report)
    }

    /// The device, unless it is set aside, now or since an earlier slice of the job.
    fn device(&self) -> Option<Offload<'_, B>> {
        let device = self.context.device?;
        if !self.given_up.load(Ordering::Relaxed)
            && let Some(why) = device.standing.set_aside(Instant::now())
        {
            self.given_up.store(true, Ordering::Relaxed);
            self.refused(format!("{}: {why}", device.backend.name()));
        }
        Some(device).filter(|_| !self.given_up.load(Ordering::Relaxed))
    }

    /// The CPU has done what the device failed at.
    fn device_failed(&self, slice: &Slice, error: &Error) {
        let Some(device) = self.context.device else {
            return;
        };
        let name = device.backend.name();
        tracing::warn!(device = name, slice = slice.index, %error, "the CPU has done the slice instead");
        self.refused(format!("{name}: {error}"));
        self.context.counters.slice_failed(name, error);
        self.context.counters.slice_redone(name);
        if device.standing.failed(Instant::now(), error) {
            tracing::warn!(device = name, "set aside for a while");
            self.context.counters.device_set_aside(name);
        }
    }

    /// The device does not do all of the job.
    pub(super) fn refused(&self, why: String) {
        self.done().device_refused.get_or_insert(why);
    }

    pub(super) fn is_on_device(&self, slice: usize) -> bool {
        self.on_device[slice].load(Ordering::Acquire)
    }

    /// What did the job, if only a part of it.
    pub(super) fn device_name(&self) -> &str {
        let used = (0..self.slices.len()).any(|slice| self.is_on_device(slice));
        match self.context.device {
            Some(device) if used => device.backend.name(),
            _ => self.context.cpu.name(),
        }
    }
}

/// What must hold of any backend's slice: all entries read were kept or dropped, and files lie in the
/// slice.
fn check_slice(report: &SliceReport, slice: &Slice, plan: &Plan) -> Result<()> {
    let accounted = report.hash_kept.wrapping_add(report.hash_dropped);
    let inside = |internal_key: &[u8]| {
        key::split(internal_key).is_some_and(|(user_key, _)| slice.range.contains(user_key))
    };
    let files_inside = report
        .files
        .iter()
        .all(|file| inside(&file.smallest) && inside(&file.largest));
    if report.hash_in != accounted {
        return Err(unbalanced(
            "entries read do not equal entries kept and dropped",
        ));
    }
    if !files_inside || (plan.cutting.single_file && report.files.len() > 1) {
        return Err(unbalanced("output files do not fit their slice"));
    }
    Ok(())
}
