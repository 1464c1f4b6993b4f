//! Syncs and verifies the finished files of subcompactions.

use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{Error, Result, thread_cpu};

use super::running::RunningJob;
use rockmill_exec::dispatch::carried;
use rockmill_exec::executor::TaskHandle;
use rockmill_storage::clock::{Clock, ThreadGroup};
use rockmill_storage::io::{FinishQueue, Stage, Step, TaskFiles};

/// Closes the queue in any case, because the threads that serve it are joined.
struct Closing<'a>(&'a FinishQueue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl RunningJob {
    /// Waits until all subcompactions are done and their files are durable and verified. `threads` threads sync and
    /// verify, in addition to the executor's.
    pub fn finish_all(
        &self,
        threads: usize,
        clock: &Arc<dyn Clock>,
        handle: &TaskHandle,
    ) -> Result<()> {
        let group = ThreadGroup::new(clock);
        let finishing = &self.files().finishing;
        let waited = std::thread::scope(|scope| {
            for _ in 0..threads {
                let member = group.add();
                let finish = carried(|| member.run(|| self.finish_files(handle)));
                let thread = std::thread::Builder::new().name("rockmill".to_owned());
                if thread.spawn_scoped(scope, finish).is_err() {
                    break;
                }
            }
            let closing = Closing(finishing);
            let waited = handle.wait();
            drop(closing);
            self.finish_queued(handle);
            group.wait();
            waited
        });
        // Subcompactions whose files did not pass verification run again.
        waited.and_then(|()| handle.wait())
    }

    /// CPU time of the threads that only synced and verified.
    pub fn cpu(&self) -> Duration {
        *self.cpu.lock()
    }

    /// Syncs and verifies files until the queue is closed and empty.
    fn finish_files(&self, handle: &TaskHandle) {
        let before = thread_cpu();
        while let Some(step) = self.files().finishing.next() {
            self.finish(step, handle);
        }
        *self.cpu.lock() += thread_cpu().saturating_sub(before);
    }

    /// Syncs and verifies files until the queue is empty.
    pub fn finish_queued(&self, handle: &TaskHandle) {
        while let Some(step) = self.files().finishing.try_next() {
            self.finish(step, handle);
        }
    }

    fn finish(&self, step: Step, handle: &TaskHandle) {
        let stop = &self.files().stop;
        let finished = stop.check().and_then(|()| self.try_finish(step, handle));
        if let Err(error) = finished {
            handle.fail(error);
        }
    }

    pub fn try_finish(&self, step: Step, handle: &TaskHandle) -> Result<()> {
        let next = match step {
            Step::Sync(unsynced) => unsynced.sync(self.files())?,
            check @ Step::Check(_) => Some(check),
        };
        match next {
            Some(Step::Check(files)) => self.check(&files, handle),
            _ => Ok(()),
        }
    }

    /// Verifies a subcompaction's files, which are durable, and reports the result to the executor.
    fn check(&self, files: &TaskFiles, handle: &TaskHandle) -> Result<()> {
        let Some(report) = self.report(files.task).take() else {
            return Err(Error::internal("a subcompaction is checked twice"));
        };
        let subcompaction = &self.prepared.subcompactions[files.task];
        let opened = match self.verifier.is_made_again(files.task) {
            true => Some(self.open_inputs(subcompaction)?),
            false => None,
        };
        let closed = self.prepared.inputs.tables();
        let inputs = opened.as_ref().map_or(closed, |(inputs, _)| inputs);
        let read = self.read_task(subcompaction, inputs, &self.files().stop, None);
        let bytes = report.files().iter().map(|file| file.size).sum();
        let meter = &self.files().meter;
        let verified = meter.time(Stage::Verify, bytes, || {
            let plan = &self.prepared.plan.output;
            self.verifier.verify(files.task, read, plan, &report)
        });
        handle.verdict(files.task, verified)
    }
}
