//! Work on written files: each file is synced, and the files of a task are checked after their last sync.
//!
//! Separate threads do this work while tasks continue. The queue is bounded. If it is full, or if there are no such
//! threads, the thread that produced the work does it itself, so that no thread waits.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rockmill_core::{Error, Lock, Result};

use super::{JobIo, Stage};
use crate::WritableFile;
use crate::clock::{Clock, Signal};
use crate::descriptors::DescriptorLease;
use crate::direct::DirectFile;

/// Work on written files.
#[derive(Debug)]
pub enum Step {
    /// Makes a file durable.
    Sync(Unsynced),
    /// Checks a task's durable files against its report.
    Check(Arc<TaskFiles>),
}

/// A file with all its bytes written, none of them still in the process's memory.
#[derive(Debug)]
pub enum Written {
    /// Written through the page cache.
    Cached(Box<dyn WritableFile>),
    /// Written with direct I/O; the number is the file's size.
    Direct(Box<dyn DirectFile>, u64),
}

impl Written {
    fn sync(self) -> io::Result<()> {
        match self {
            Self::Cached(mut file) => file.sync(),
            Self::Direct(file, size) => file.finish(size),
        }
    }
}

/// A written file that is not durable yet.
#[derive(Debug)]
pub struct Unsynced {
    file: Written,
    name: String,
    bytes: u64,
    task: Arc<TaskFiles>,
    held: Option<DescriptorLease>,
}

impl Unsynced {
    /// Creates the record of a written file of `task`; errors call it `name`.
    pub fn new(file: Written, name: String, bytes: u64, task: &Arc<TaskFiles>) -> Self {
        task.unsettled.fetch_add(1, Ordering::Relaxed);
        Self {
            file,
            name,
            bytes,
            task: Arc::clone(task),
            held: None,
        }
    }

    /// Attaches the file's descriptor. The task that took the descriptor may end before the file is synced.
    #[must_use]
    pub fn holding(self, held: DescriptorLease) -> Self {
        Self {
            held: Some(held),
            ..self
        }
    }

    /// Makes the file durable. Returns the check of the task if this was its last file.
    ///
    /// # Errors
    /// Storage, Cancelled.
    pub fn sync(self, io: &JobIo) -> Result<Option<Step>> {
        let Self {
            file,
            name,
            bytes,
            task,
            held: _held,
        } = self;
        let synced = io
            .meter
            .time(Stage::Sync, bytes, || io.syncs.wait(move || file.sync()))?;
        synced.map_err(|e| Error::storage(&name, "sync it", &e))?;
        Ok(TaskFiles::settle(task))
    }
}

/// Files of a task.
#[derive(Debug)]
pub struct TaskFiles {
    /// Number of the task.
    pub task: usize,
    /// Number of files that are not durable, plus one until the task has written all of them.
    unsettled: AtomicUsize,
}

impl TaskFiles {
    /// Creates the record of a task that has written nothing yet.
    pub fn new(task: usize) -> Arc<Self> {
        Arc::new(Self {
            task,
            unsettled: AtomicUsize::new(1),
        })
    }

    /// Records that the task has written all its files. Returns their check if they are durable already.
    pub fn complete(self: Arc<Self>) -> Option<Step> {
        Self::settle(self)
    }

    fn settle(files: Arc<Self>) -> Option<Step> {
        // The acquire ordering lets the last thread see the other threads' writes.
        let is_last = files.unsettled.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| Step::Check(files))
    }
}

/// Queue of steps for the finishing threads.
#[derive(Debug)]
pub struct FinishQueue {
    max_waiting: usize,
    waiting: Lock<Waiting>,
    changed: Signal,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Waiting {
    steps: VecDeque<Step>,
    is_closed: bool,
}

impl FinishQueue {
    /// Creates a queue of at most `max_waiting` steps. Threads wait for steps in the time of `clock`.
    pub fn new(max_waiting: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            max_waiting,
            waiting: Lock::default(),
            changed: Signal::default(),
            clock,
        }
    }

    /// Queues a step, or returns it if the caller has to do it.
    pub fn offer(&self, step: Step) -> Option<Step> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed || waiting.steps.len() >= self.max_waiting {
            return Some(step);
        }
        waiting.steps.push_back(step);
        drop(waiting);
        self.clock.notify(&self.changed);
        None
    }

    /// Returns the oldest step, if there is one.
    pub fn try_next(&self) -> Option<Step> {
        self.waiting.lock().steps.pop_front()
    }

    /// Waits for a step; returns `None` once the queue is closed and empty.
    pub fn next(&self) -> Option<Step> {
        /// Longest wait between two checks; each change notifies, so this is only a safety net.
        const LOOK: Duration = Duration::from_secs(60);
        loop {
            let seen = self.changed.seen();
            let mut waiting = self.waiting.lock();
            if let Some(step) = waiting.steps.pop_front() {
                return Some(step);
            }
            if waiting.is_closed {
                return None;
            }
            drop(waiting);
            self.clock.wait(&self.changed, seen, LOOK);
        }
    }

    /// Closes the queue for new steps; the queued ones are still handed out.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.clock.notify(&self.changed);
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::CancelToken;

    use super::*;
    use crate::LocalStorage;
    use crate::clock::SystemClock;

    #[derive(Debug)]
    struct NoFile;

    impl WritableFile for NoFile {
        fn append(&mut self, _bytes: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn job_io() -> JobIo {
        JobIo::new(Arc::new(LocalStorage), CancelToken::new())
    }

    fn unsynced(task: &Arc<TaskFiles>) -> Unsynced {
        let file = Written::Cached(Box::new(NoFile));
        Unsynced::new(file, "file".to_owned(), 1, task)
    }

    #[test]
    fn a_task_is_checked_once_all_its_files_are_written_and_synced() {
        let io = job_io();
        let task = TaskFiles::new(3);
        let (first, second) = (unsynced(&task), unsynced(&task));
        assert!(first.sync(&io).expect("synced").is_none());
        assert!(Arc::clone(&task).complete().is_none());
        let next = second.sync(&io).expect("synced");
        assert!(matches!(next, Some(Step::Check(files)) if files.task == 3));
        let task = TaskFiles::new(4);
        assert!(unsynced(&task).sync(&io).expect("synced").is_none());
        assert!(task.complete().is_some());
    }

    #[test]
    fn a_full_or_closed_queue_gives_steps_back() {
        let task = TaskFiles::new(0);
        let step = || Step::Check(Arc::clone(&task));
        let queue = FinishQueue::new(1, SystemClock::shared());
        assert!(queue.offer(step()).is_none());
        assert!(queue.offer(step()).is_some());
        queue.close();
        assert!(queue.next().is_some() && queue.next().is_none());
        assert!(queue.offer(step()).is_some() && queue.try_next().is_none());
        let none = FinishQueue::new(0, SystemClock::shared());
        assert!(none.offer(step()).is_some());
    }
}
