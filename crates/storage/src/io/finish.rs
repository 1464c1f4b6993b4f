//! What is left to do with written files: each is synced, and once all of a subcompaction are, they are checked.
//!
//! Threads of their own do it while subcompactions go on. They may have so much to do at most; beyond that, and
//! where there are none, the thread that has something to do does it itself, so nobody waits.

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

/// Something to do.
#[derive(Debug)]
pub enum Task {
    /// Make a file durable.
    Sync(Unsynced),
    /// Compare a subcompaction's files, which are all durable, with what was meant.
    Check(Arc<SubcompactionFiles>),
}

/// A file that all its bytes were given to, and nothing holds any of them in memory.
#[derive(Debug)]
pub enum Written {
    /// Through the page cache.
    Cached(Box<dyn WritableFile>),
    /// Past it, with this size.
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

/// A written file.
#[derive(Debug)]
pub struct Unsynced {
    file: Written,
    name: String,
    bytes: u64,
    subcompaction: Arc<SubcompactionFiles>,
    held: Option<Held>,
}

impl Unsynced {
    /// A file of a subcompaction; errors call it `name`.
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

    /// The same, which counts as long as it is open: its subcompaction, which counted it, may end before it is synced.
    #[must_use]
    pub fn holding(self, held: Held) -> Self {
        Self {
            held: Some(held),
            ..self
        }
    }

    /// Makes the file durable; if it was the last of its subcompaction, returns what comes next.
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

/// A subcompaction's files.
#[derive(Debug)]
pub struct SubcompactionFiles {
    /// Number of the subcompaction.
    pub subcompaction: usize,
    /// Files that are not durable, and one more until the subcompaction has written all of them.
    unsettled: AtomicUsize,
    /// What the subcompaction came to, once that is known.
    report: Mutex<Option<TaskReport>>,
}

impl SubcompactionFiles {
    /// Of a subcompaction that has not written anything.
    pub fn new(subcompaction: usize) -> Arc<Self> {
        Arc::new(Self {
            subcompaction,
            unsettled: AtomicUsize::new(1),
            report: Mutex::default(),
        })
    }

    /// The subcompaction has written all its files; if they are durable already, returns what comes next.
    pub fn complete(self: Arc<Self>, report: TaskReport) -> Option<Task> {
        *self.lock() = Some(report);
        Self::settle(self)
    }

    /// What the subcompaction came to, once.
    pub fn take(&self) -> Option<TaskReport> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<TaskReport>> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(files: Arc<Self>) -> Option<Task> {
        // Whoever comes last sees what all others did.
        let is_last = files.unsettled.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| Task::Check(files))
    }
}

/// Tasks that wait for a thread.
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
    /// A queue that takes so many tasks, for which threads wait in the time of `clock`.
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

    /// Leaves a task to another thread, or gives it back: then the caller is to do it.
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

    /// The oldest task, if there is one.
    pub fn try_next(&self) -> Option<Task> {
        self.lock().tasks.pop_front()
    }

    /// Waits for a task; none comes once the queue is closed and empty.
    pub fn next(&self) -> Option<Task> {
        /// Each change is told.
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

    /// Takes no more tasks; those that wait are still handed out.
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
