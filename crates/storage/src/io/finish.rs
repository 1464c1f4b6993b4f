//! Work on written files: each file is synced, and the files of a subcompaction are checked after their last sync.
//!
//! Separate threads do this work while subcompactions go on. The queue is bounded. If it is full, or if there are no
//! such threads, the thread that produced the work does it itself, so that no thread waits.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_core::{Error, Result, TaskReport};

use super::{JobIo, Stage};
use crate::WritableFile;
use crate::clock::{Clock, Signal};
use crate::descriptors::Held;
use crate::direct::DirectFile;

/// Work on written files.
#[derive(Debug)]
pub enum Task {
    /// Makes a file durable.
    Sync(Unsynced),
    /// Checks a subcompaction's durable files against its report.
    Check(Arc<SubcompactionFiles>),
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
    subcompaction: Arc<SubcompactionFiles>,
    held: Option<Held>,
}

impl Unsynced {
    /// Creates the record of a written file of `subcompaction`; errors call it `name`.
    pub fn new(
        file: Written,
        name: String,
        bytes: u64,
        subcompaction: &Arc<SubcompactionFiles>,
    ) -> Self {
        subcompaction.unsettled.fetch_add(1, Ordering::Relaxed);
        Self {
            file,
            name,
            bytes,
            subcompaction: Arc::clone(subcompaction),
            held: None,
        }
    }

    /// Attaches the file's descriptor. The subcompaction that took the descriptor may end before the file is synced.
    #[must_use]
    pub fn holding(self, held: Held) -> Self {
        Self {
            held: Some(held),
            ..self
        }
    }

    /// Makes the file durable. Returns the check of the subcompaction if this was its last file.
    ///
    /// # Errors
    /// Storage, Cancelled.
    pub fn sync(self, io: &JobIo) -> Result<Option<Task>> {
        let Self {
            file,
            name,
            bytes,
            subcompaction,
            held: _held,
        } = self;
        let synced = io
            .meter
            .time(Stage::Sync, bytes, || io.syncs.wait(move || file.sync()))?;
        synced.map_err(|e| Error::storage(&name, "sync it", &e))?;
        Ok(SubcompactionFiles::settle(subcompaction))
    }
}

/// Files of a subcompaction.
#[derive(Debug)]
pub struct SubcompactionFiles {
    /// Number of the subcompaction.
    pub subcompaction: usize,
    /// Number of files that are not durable, plus one until the subcompaction has written all of them.
    unsettled: AtomicUsize,
    /// The task's report, once the subcompaction has written all its files.
    report: Mutex<Option<TaskReport>>,
}

impl SubcompactionFiles {
    /// Creates the record of a subcompaction that has written nothing yet.
    pub fn new(subcompaction: usize) -> Arc<Self> {
        Arc::new(Self {
            subcompaction,
            unsettled: AtomicUsize::new(1),
            report: Mutex::default(),
        })
    }

    /// Records that the subcompaction has written all its files. Returns its check if they are durable already.
    pub fn complete(self: Arc<Self>, report: TaskReport) -> Option<Task> {
        *self.lock() = Some(report);
        Self::settle(self)
    }

    /// Returns the task's report, the first time.
    pub fn take(&self) -> Option<TaskReport> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<TaskReport>> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(files: Arc<Self>) -> Option<Task> {
        // The acquire ordering lets the last thread see the other threads' writes.
        let is_last = files.unsettled.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| Task::Check(files))
    }
}

/// Queue of tasks for the finishing threads.
#[derive(Debug)]
pub struct FinishQueue {
    max_waiting: usize,
    waiting: Mutex<Waiting>,
    changed: Signal,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    is_closed: bool,
}

impl FinishQueue {
    /// Creates a queue of at most `max_waiting` tasks. Threads wait for tasks in the time of `clock`.
    pub fn new(max_waiting: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            max_waiting,
            waiting: Mutex::default(),
            changed: Signal::default(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a task, or returns it if the caller has to do it.
    pub fn offer(&self, task: Task) -> Option<Task> {
        let mut waiting = self.lock();
        if waiting.is_closed || waiting.tasks.len() >= self.max_waiting {
            return Some(task);
        }
        waiting.tasks.push_back(task);
        drop(waiting);
        self.clock.notify(&self.changed);
        None
    }

    /// Returns the oldest task, if there is one.
    pub fn try_next(&self) -> Option<Task> {
        self.lock().tasks.pop_front()
    }

    /// Waits for a task; returns `None` once the queue is closed and empty.
    pub fn next(&self) -> Option<Task> {
        /// Longest wait between two checks; each change notifies, so this is only a safety net.
        const LOOK: Duration = Duration::from_secs(60);
        loop {
            let seen = self.changed.seen();
            let mut waiting = self.lock();
            if let Some(task) = waiting.tasks.pop_front() {
                return Some(task);
            }
            if waiting.is_closed {
                return None;
            }
            drop(waiting);
            self.clock.wait(&self.changed, seen, LOOK);
        }
    }

    /// Closes the queue for new tasks; the queued ones are still handed out.
    pub fn close(&self) {
        self.lock().is_closed = true;
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

    fn unsynced(subcompaction: &Arc<SubcompactionFiles>) -> Unsynced {
        let file = Written::Cached(Box::new(NoFile));
        Unsynced::new(file, "file".to_owned(), 1, subcompaction)
    }

    #[test]
    fn a_subcompaction_is_checked_once_all_its_files_are_written_and_synced() {
        let io = job_io();
        let subcompaction = SubcompactionFiles::new(3);
        let (first, second) = (unsynced(&subcompaction), unsynced(&subcompaction));
        assert!(first.sync(&io).expect("synced").is_none());
        let mut report = TaskReport::default();
        report.read.kept = 5;
        assert!(Arc::clone(&subcompaction).complete(report).is_none());
        match second.sync(&io).expect("synced") {
            Some(Task::Check(files)) => {
                assert!(
                    files.subcompaction == 3
                        && files.take().is_some_and(|report| report.read.kept == 5)
                );
                assert!(files.take().is_none());
            }
            other => panic!("{other:?}"),
        }
        let subcompaction = SubcompactionFiles::new(4);
        assert!(
            unsynced(&subcompaction)
                .sync(&io)
                .expect("synced")
                .is_none()
        );
        assert!(subcompaction.complete(TaskReport::default()).is_some());
    }

    #[test]
    fn a_full_or_closed_queue_gives_tasks_back() {
        let subcompaction = SubcompactionFiles::new(0);
        let task = || Task::Check(Arc::clone(&subcompaction));
        let queue = FinishQueue::new(1, SystemClock::shared());
        assert!(queue.offer(task()).is_none());
        assert!(queue.offer(task()).is_some());
        queue.close();
        assert!(queue.next().is_some() && queue.next().is_none());
        assert!(queue.offer(task()).is_some() && queue.try_next().is_none());
        let none = FinishQueue::new(0, SystemClock::shared());
        assert!(none.offer(task()).is_some());
    }
}
