//! The threads of a job: how many there are, and the order in which each takes subcompactions and what is left to do.

use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::Instant;

use rockmill_core::{Error, Result, thread_cpu};

use super::Shared;
use super::pick::Taken;
use rockmill_exec::budget::{HOST, Work};
use rockmill_exec::parallel;
use rockmill_storage::clock::Worker;

/// A thread that may still begin a subcompaction. When none is left, nothing comes to be synced any more. One that
/// panics stops the others at once.
struct AtWork<'s, 'a>(&'s Shared<'a>);

impl<'s, 'a> AtWork<'s, 'a> {
    fn new(shared: &'s Shared<'a>) -> Self {
        shared.at_work.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for AtWork<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.files.stop.cancel();
            self.0.share.end();
        }
        if self.0.at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.files.finishing.close();
        }
    }
}

impl Shared<'_> {
    /// Starts as many threads as there is room for by now, if there are subcompactions left for them.
    fn recruit<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        // Those that the memory does not suffice for would take turns, and each leave what its subcompactions took
        // to an arena of the allocator.
        let at_once = self.share.tasks_in_memory();
        let host = usize::from(self.context.host_shares || self.devices.is_empty());
        let room = (self.context.budget.slots()).saturating_mul(self.devices.len() + host);
        let wanted = room.min(self.subcompactions.len()).min(at_once);
        let one_more = |workers: usize| (workers < wanted).then_some(workers + 1);
        while !self.left.is_empty()
            && self
                .workers
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_ok()
        {
            let member = self.crew.enlist();
            let work = move || {
                member.run(|| self.work(scope));
                self.done().cpu += thread_cpu();
            };
            let thread = std::thread::Builder::new().name("rockmill".to_owned());
            if thread.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
    }

    /// Has the CPU make subcompactions anew whose files were wrong or that were abandoned, as many at once as there is room for.
    /// All others have been made.
    pub(super) fn redo_all(&self, again: &[(usize, Error)]) -> Result<()> {
        self.share.plan(Work {
            tasks: again.len() as u64,
            task_bytes: self.size.mean().bytes,
        });
        let host = [self.candidate(HOST, self.cpu_name())];
        let redo = |(index, error): &(usize, Error)| {
            let grant = self.share.slice(&host, &self.files.stop)?;
            let report = self.redo(&self.subcompactions[*index], error)?;
            self.keep(*index, report);
            drop(grant);
            Ok(())
        };
        let at_once = (self.context.budget.slots()).min(self.share.tasks_in_memory());
        let clock = &self.context.clock;
        let (_, cpu) = Worker::new(clock).run(|| parallel::map_in(clock, again, at_once, redo))?;
        self.done().cpu += cpu;
        Ok(())
    }

    /// Takes subcompactions until none is left, then what others have left to do.
    pub(super) fn work<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        let _at_work = AtWork::new(self);
        self.take_subcompactions(scope);
        while let Some(task) = self.files.finishing.try_next() {
            self.finish(task);
        }
    }

    fn take_subcompactions<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        loop {
            self.recruit(scope);
            match self.next_subcompaction() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Does the next subcompaction on the device that should, as soon as it may; false if there is none.
    fn next_subcompaction(&self) -> Result<bool> {
        let waiting = Instant::now();
        let share = self.share;
        let Some(grant) = share.slice(&self.candidates(), &self.files.stop)? else {
            return Ok(false);
        };
        let device = self.entry(grant.place().device);
        let subcompaction = match self.take(device) {
            Taken::Subcompaction(index) => &self.subcompactions[index],
            Taken::Nothing => return Ok(false),
            Taken::Distrusted => {
                grant.put_back();
                return Ok(true);
            }
        };
        if let Some(report) = self.slice(subcompaction, device, &grant, waiting.elapsed())? {
            self.keep(subcompaction.index, report);
        }
        Ok(true)
    }
}
