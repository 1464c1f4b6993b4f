//! Finished files of subcompactions: made durable, then verified.

use rockmill_core::{Error, Result, thread_cpu};

use super::Shared;
use rockmill_exec::device_trouble::is_device_trouble;
use rockmill_storage::io::{Stage, SubcompactionFiles, Task};

impl Shared<'_> {
    /// Syncs and checks files until no subcompaction is at work.
    pub(super) fn finish_files(&self) {
        while let Some(task) = self.files.finishing.next() {
            self.finish(task);
        }
        self.done().cpu += thread_cpu();
    }

    pub(super) fn finish(&self, task: Task) {
        if let Err(error) = self.files.stop.check().and_then(|()| self.try_finish(task)) {
            self.fail(error);
        }
    }

    pub(super) fn try_finish(&self, task: Task) -> Result<()> {
        let next = match task {
            Task::Sync(unsynced) => unsynced.sync(&self.files)?,
            check @ Task::Check(_) => Some(check),
        };
        match next {
            Some(Task::Check(files)) => self.check(&files),
            _ => Ok(()),
        }
    }

    /// Verifies a subcompaction's files, all of them durable, by which the device that made them is judged.
    fn check(&self, files: &SubcompactionFiles) -> Result<()> {
        let Some(report) = files.take() else {
            return Err(Error::internal("a subcompaction is checked twice"));
        };
        let subcompaction = &self.subcompactions[files.subcompaction];
        let opened = match self.verifier.makes_again(files.subcompaction) {
            true => Some(self.open_inputs(subcompaction)?),
            false => None,
        };
        let inputs = opened.as_ref().map_or(self.tables, |(inputs, _)| inputs);
        let work = self.work_on(subcompaction, inputs, None);
        let bytes = report.files().iter().map(|file| file.size).sum();
        let meter = &self.files.meter;
        let verified = meter.time(Stage::Verify, bytes, || {
            self.verifier.verify(files.subcompaction, work, &report)
        });
        let Some((device, attempt)) = self.attempt_at(files.subcompaction) else {
            return verified;
        };
        match verified {
            Ok(()) => attempt.worked(),
            Err(error) if is_device_trouble(&error) => {
                self.distrust(device, attempt, &error);
                self.done().again.push((files.subcompaction, error));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
