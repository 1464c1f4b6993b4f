//! Reads and writes that run while the caller does something else.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{ring, threads};

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file into memory.
    Read,
    /// From memory to the file.
    Write,
}

/// One read or write. It owns the memory, of any kind, until it is done.
#[derive(Debug)]
pub struct Transfer<M> {
    /// The file.
    pub file: Arc<File>,
    /// Which way.
    pub direction: Direction,
    /// The memory.
    pub memory: M,
    /// The part of the memory to fill or write; cut to the memory's length.
    pub range: Range<usize>,
    /// Offset in the file in bytes.
    pub offset: u64,
}

impl<M: AsMut<[u8]>> Transfer<M> {
    /// The part of the memory to transfer.
    fn bytes(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut();
        let end = self.range.end.min(memory.len());
        let start = self.range.start.min(end);
        &mut memory[start..end]
    }
}

/// Implementation of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `io_uring`.
    Ring,
    /// Threads that wait for one transfer each.
    Threads,
}

/// Does transfers in any order, several at once. When it is dropped without [`Queue::stop`], transfers that have begun
/// are done first, and the rest fails.
#[derive(Debug)]
pub struct Queue {
    method: Method,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Queue {
    /// A queue over `io_uring`, or over threads if the kernel lacks it or forbids it, as containers do.
    ///
    /// # Errors
    /// The system's error if it cannot give a thread either.
    pub fn new() -> io::Result<Self> {
        Self::with(Method::Ring).or_else(|_| Self::with(Method::Threads))
    }

    /// A queue with one implementation.
    ///
    /// # Errors
    /// The system's error.
    pub fn with(method: Method) -> io::Result<Self> {
        let (shared, threads) = match method {
            Method::Ring => ring::start()?,
            Method::Threads => threads::start()?,
        };
        Ok(Self {
            method,
            shared,
            threads: Mutex::new(threads),
        })
    }

    /// How it works.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Begins a transfer.
    pub fn submit<M>(&self, transfer: Transfer<M>) -> Pending<M>
    where
        M: AsMut<[u8]> + Debug + Send + 'static,
    {
        let pending = Pending(Arc::default());
        let task: Task = Box::new(Completion {
            transfer,
            outcome: Arc::clone(&pending.0),
        });
        let mut requests = self.shared.lock();
        if requests.is_stopped {
            drop(requests);
            run(task);
        } else {
            requests.tasks.push_back(task);
            drop(requests);
            self.shared.wake();
        }
        pending
    }

    /// Ends the threads once all submitted transfers are done, and returns their CPU time. The submitting threads do
    /// later transfers themselves.
    pub fn stop(&self) -> Duration {
        self.shared.lock().is_stopped = true;
        self.shared.wake_all();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panic there is a bug here; it leaves transfers that will not finish.
            let _ = thread.join();
        }
        self.shared.lock().cpu
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.shared.lock().tasks);
        for task in left {
            task.fail("its queue was dropped before it began");
        }
        self.stop();
    }
}

/// Result of a transfer: the memory, and the number of bytes moved.
type Outcome<M> = (Option<M>, io::Result<usize>);

#[derive(Debug)]
struct Slot<M> {
    outcome: Mutex<Option<Outcome<M>>>,
    done: Condvar,
}

impl<M> Default for Slot<M> {
    fn default() -> Self {
        Self {
            outcome: Mutex::new(None),
            done: Condvar::new(),
        }
    }
}

impl<M> Slot<M> {
    fn tell(&self, outcome: Outcome<M>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.done.notify_one();
    }
}

/// A transfer that was begun. Dropping it does not stop the transfer.
#[derive(Debug)]
pub struct Pending<M>(Arc<Slot<M>>);

impl<M> Pending<M> {
    /// Waits for the end of the transfer. Returns the memory and the number of bytes moved. After an error, the memory
    /// does not come back if something may still write to it, or if the queue was dropped.
    pub fn wait(self) -> (Option<M>, io::Result<usize>) {
        let mut outcome = self
            .0
            .outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            let done = self.0.done.wait(outcome);
            outcome = done.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A transfer over any memory.
pub(crate) type Task = Box<dyn Work>;

/// A transfer and the receiver of its result, as the code that does transfers sees them.
pub(crate) trait Work: Debug + Send {
    fn file(&self) -> &Arc<File>;

    fn direction(&self) -> Direction;

    /// Offset in the file in bytes.
    fn offset(&self) -> u64;

    /// The part of the memory to transfer. It stays at its address until the next call of this function or the end of
    /// the task.
    fn bytes(&mut self) -> &mut [u8];

    /// Reports the result.
    fn complete(self: Box<Self>, done: io::Result<usize>);

    /// Reports that the transfer failed as far as is known. Something may still write to the memory, which stays with
    /// the task.
    fn fail(&self, why: &'static str);
}

#[derive(Debug)]
struct Completion<M> {
    transfer: Transfer<M>,
    outcome: Arc<Slot<M>>,
}

impl<M: AsMut<[u8]> + Debug + Send> Work for Completion<M> {
    fn file(&self) -> &Arc<File> {
        &self.transfer.file
    }

    fn direction(&self) -> Direction {
        self.transfer.direction
    }

    fn offset(&self) -> u64 {
        self.transfer.offset
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.transfer.bytes()
    }

    fn complete(self: Box<Self>, done: io::Result<usize>) {
        self.outcome.tell((Some(self.transfer.memory), done));
    }

    fn fail(&self, why: &'static str) {
        self.outcome.tell((None, Err(io::Error::other(why))));
    }
}

/// Does a transfer now.
pub(crate) fn run(mut task: Task) {
    let (direction, offset) = (task.direction(), task.offset());
    let file = Arc::clone(task.file());
    let done = loop {
        let done = match direction {
            Direction::Read => file.read_at(task.bytes(), offset),
            Direction::Write => file.write_at(task.bytes(), offset),
        };
        match done {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => break done,
        }
    };
    task.complete(done);
}

#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub tasks: VecDeque<Task>,
    pub is_stopped: bool,
    /// CPU time of threads that have ended.
    pub cpu: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    requests: Mutex<Requests>,
    arrived: Condvar,
    /// Wakes a thread that waits for the kernel: one end is written here, the other is read there.
    waker: Option<UnixStream>,
}

impl Shared {
    pub fn with_waker(waker: UnixStream) -> Self {
        Self {
            waker: Some(waker),
            ..Self::default()
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait<'a>(&self, requests: MutexGuard<'a, Requests>) -> MutexGuard<'a, Requests> {
        let arrived = self.arrived.wait(requests);
        arrived.unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        match &self.waker {
            Some(waker) => wake(waker),
            None => self.arrived.notify_one(),
        }
    }

    fn wake_all(&self) {
        match &self.waker {
            Some(waker) => wake(waker),
            None => self.arrived.notify_all(),
        }
    }

    /// The calling thread ends.
    pub fn leave(&self) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32);
        self.lock().cpu += cpu;
    }
}

fn wake(mut waker: &UnixStream) {
    // It fails only if the counter is full, so a waiting thread sees it anyway.
    let _ = waker.write(&[1]);
}
