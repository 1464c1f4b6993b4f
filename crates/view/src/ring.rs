//! Threads that answer requests of kernels.
//!
//! While a kernel may use the queue, one thread polls it. It answers the requests that it finds, and wakes
//! another thread if there is work for more. A thread that has answered polls on for a while, so under load all of them
//! do. One of the waiting threads polls now and then, since the others may wait for RocksDB. While no kernel may use
//! the queue, all threads wait. They call no function of CUDA, which might wait for a kernel that waits for them.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rockmill_core::{Error, ErrorKind, Lock, Result};
use rockmill_cuda::{Operation, Request, RequestQueue, Server, Status};
use rockmill_scan::{FamilySnapshot, Store, Write, Written};

/// Time for which a thread polls without a pause after a request.
const SPIN: Duration = Duration::from_micros(50);

/// The shortest and the longest pause between two polls.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(200));

/// Time by which a pause may be longer.
const TIMER_SLACK_NS: u64 = 5_000;

/// Time after which a waiting thread polls by itself, since all others may wait for RocksDB.
const LOOK: Duration = Duration::from_millis(2);

/// Counts of answered requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Gets.
    pub gets: u64,
    /// Puts and deletes.
    pub writes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Calls of RocksDB: each takes all requests that one thread has found.
    pub batches: u64,
    /// The reason why the last one failed.
    pub last_error: Option<String>,
}

/// Finds a version that a kernel holds, by its number.
pub type VersionOf = dyn Fn(u64) -> Option<Arc<FamilySnapshot>> + Send + Sync;

/// The threads. Dropping it ends them, and answers all requests with "aborted".
pub struct Ring {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Arc<RequestQueue>,
    store: Arc<dyn Store>,
    version: Box<VersionOf>,
    /// One for each thread, each with a range of the slots. The thread with the lock answers them.
    servers: Vec<(Range<usize>, Lock<Server>)>,
    /// Number of times that threads were woken.
    turn: Lock<u64>,
    woken: Condvar,
    /// Threads that wait to be woken.
    waiting: AtomicUsize,
    /// Number of threads that poll the queue, or will soon.
    looking: AtomicUsize,
    /// Whether one of the waiting threads polls now and then.
    has_standby: AtomicBool,
    is_closing: AtomicBool,
    gets: AtomicU64,
    writes: AtomicU64,
    failed: AtomicU64,
    batches: AtomicU64,
    last_error: Lock<Option<String>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("queue", &self.shared.queue)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Starts the threads.
    ///
    /// # Errors
    /// Storage if the system cannot create a thread.
    pub fn start(
        queue: Arc<RequestQueue>,
        store: Arc<dyn Store>,
        version: Box<VersionOf>,
    ) -> Result<Self> {
        let settings = queue.settings();
        let (n, threads) = (settings.request_slots as usize, settings.threads);
        let servers = (0..threads).map(|number| {
            let range = n * number / threads..n * (number + 1) / threads;
            let server = Server::new(Arc::clone(&queue), range.clone());
            (range, Lock::new(server))
        });
        let shared = Arc::new(Shared {
            servers: servers.collect(),
            queue,
            store,
            version,
            turn: Lock::default(),
            woken: Condvar::new(),
            waiting: AtomicUsize::default(),
            looking: AtomicUsize::default(),
            has_standby: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            gets: AtomicU64::default(),
            writes: AtomicU64::default(),
            failed: AtomicU64::default(),
            batches: AtomicU64::default(),
            last_error: Lock::default(),
        });
        let mut ring = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&ring.shared);
            let spawned = thread::Builder::new()
                .name(format!("rockmill-ring-{number}"))
                .spawn(move || shared.run(number));
            let spawned = spawned.map_err(|error| {
                let what = format!("cannot start a thread that answers kernels: {error}");
                Error::new(ErrorKind::Storage, what)
            });
            ring.threads.push(spawned?);
        }
        Ok(ring)
    }

    /// The queue.
    pub fn queue(&self) -> &Arc<RequestQueue> {
        &self.shared.queue
    }

    /// Wakes the threads to poll the queue, because a hold has begun.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Counts of the answers so far.
    pub fn counts(&self) -> RingCounts {
        let shared = &self.shared;
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        RingCounts {
            gets: count(&shared.gets),
            writes: count(&shared.writes),
            failed: count(&shared.failed),
            batches: count(&shared.batches),
            last_error: shared.last_error.lock().clone(),
        }
    }

    /// Answers all requests with "aborted", also future ones.
    pub fn abort(&self) {
        self.shared.queue.abort();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        // Kernels continue at once, also if a thread waits for RocksDB.
        self.abort();
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // The thread has reported its panic.
            let _ = thread.join();
        }
        // Earlier answers would look like answers to new requests.
        self.abort();
    }
}

impl Shared {
    fn wake(&self) {
        self.next_turn();
        self.woken.notify_all();
    }

    fn wake_one(&self) {
        self.next_turn();
        self.woken.notify_one();
    }

    fn next_turn(&self) {
        *self.turn.lock() += 1;
    }

    /// Waits until threads are woken after turn `seen`; returns at once if they were. With `may_look`, one of the
    /// waiting threads waits only for a while. Returns the turn.
    fn wait_after(&self, seen: u64, may_look: bool) -> u64 {
        let is_standby = may_look && !self.has_standby.swap(true, Ordering::Relaxed);
        let turn = self.turn.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let is_same = |turn: &mut u64| *turn == seen;
        let turn = if is_standby {
            let waited = self.woken.wait_timeout_while(turn, LOOK, is_same);
            waited.unwrap_or_else(PoisonError::into_inner).0
        } else {
            (self.woken.wait_while(turn, is_same)).unwrap_or_else(PoisonError::into_inner)
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if is_standby {
            self.has_standby.store(false, Ordering::Relaxed);
        }
        *turn
    }

    fn run(&self, own: usize) {
        rockmill_cuda::answer_kernels();
        // Without this, or if the system refuses it, a pause is 50 us longer than requested.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        // Time of the last request that it has found.
        let (mut last, mut turn) = (None::<Instant>, 0);
        self.looking.fetch_add(1, Ordering::Relaxed);
        while !self.is_closing.load(Ordering::Acquire) {
            if self.serve(own) {
                last = Some(Instant::now());
                continue;
            }
            let idle = last.map_or(Duration::MAX, |last| last.elapsed());
            if idle < SPIN {
                std::hint::spin_loop();
                continue;
            }
            let is_held = self.queue.is_held() || self.queue.has_unanswered();
            let is_one_of_several = |looking| (looking > 1).then(|| looking - 1);
            let rests = (self.looking)
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_one_of_several)
                .is_ok();
            if !rests && is_held {
                let (least, most) = PAUSES;
                thread::sleep((idle / 4).clamp(least, most));
                continue;
            }
            if !rests {
                // The start of a hold wakes all.
                self.looking.fetch_sub(1, Ordering::Relaxed);
            }
            turn = self.wait_after(turn, is_held);
            self.looking.fetch_add(1, Ordering::Relaxed);
            last = None;
        }
    }

    /// Answers the posted requests, its own range first. Returns whether there were any.
    fn serve(&self, own: usize) -> bool {
        let (before, behind) = self.servers.split_at(own);
        let (mut has_posted, mut answered) = (false, 0);
        for (range, server) in behind.iter().chain(before) {
            // Without the lock, so that threads without requests do not disturb each other.
            if !self.queue.has_posted(range.clone()) {
                continue;
            }
            let Some(mut server) = server.try_lock() else {
                // Another thread answers these.
                continue;
            };
            let (taken, has_any) = server.take();
            has_posted |= has_any;
            if taken == 0 {
                continue;
            }
            answered += 1;
            let is_alone = !self.has_standby.load(Ordering::Relaxed);
            if (answered > 1 || is_alone) && self.waiting.load(Ordering::Relaxed) > 0 {
                self.wake_one();
            }
            self.looking.fetch_sub(1, Ordering::Relaxed);
            self.answer(&server, taken);
            self.looking.fetch_add(1, Ordering::Relaxed);
        }
        has_posted
    }

    /// Answers the requests that a thread has taken: writes first, so that gets of the same turn find them.
    fn answer(&self, server: &Server, taken: usize) {
        let (mut writes, mut gets) = (Vec::new(), Vec::new());
        for at in 0..taken {
            let request = server.request(at);
            match request.operation {
                Operation::Put | Operation::Delete => writes.push(at),
                Operation::GetLatest => gets.push(at),
                Operation::Get => match (self.version)(request.version) {
                    Some(family) if family.has_iterators() => {
                        self.answer_get(server, at, self.ask(&family, &request));
                    }
                    _ => gets.push(at),
                },
            }
        }
        if !writes.is_empty() {
            let status = self.write(server, &writes);
            writes.iter().for_each(|&at| server.answer(at, status, &[]));
        }
        if !gets.is_empty() {
            let keys: Vec<_> = gets.iter().map(|&at| server.request(at).key).collect();
            self.batches.fetch_add(1, Ordering::Relaxed);
            self.store.get(&keys, &mut |number, value| {
                let Some(&at) = gets.get(number) else {
                    return;
                };
                match value {
                    Ok(Some(value)) => self.answer_found(server, at, value),
                    Ok(None) => self.answer_get(server, at, Ok(None)),
                    Err(error) => self.answer_get(server, at, Err(error)),
                }
            });
            for &at in &gets {
                // For a store that has left one unanswered; the others have answers already.
                server.answer(at, Status::IoError, &[]);
            }
        }
    }

    fn ask(&self, family: &FamilySnapshot, request: &Request<'_>) -> Result<Option<Vec<u8>>> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        crate::version::ask(family, request.key)
    }

    fn answer_found(&self, server: &Server, at: usize, value: &[u8]) {
        self.gets.fetch_add(1, Ordering::Relaxed);
        server.answer(at, Status::Found, value);
    }

    fn answer_get(&self, server: &Server, at: usize, found: Result<Option<Vec<u8>>>) {
        match found {
            Ok(Some(value)) => self.answer_found(server, at, &value),
            Ok(None) => {
                self.gets.fetch_add(1, Ordering::Relaxed);
                server.answer(at, Status::NotFound, &[]);
            }
            Err(error) => server.answer(at, self.failed(&error, 1), &[]),
        }
    }

    /// Executes all writes at once.
    fn write(&self, server: &Server, writes: &[usize]) -> Status {
        let of = |&at: &usize| {
            let Request {
                operation,
                key,
                value,
                ..
            } = server.request(at);
            match operation {
                Operation::Put => Write::Put { key, value },
                _ => Write::Delete { key },
            }
        };
        let batch: Vec<_> = writes.iter().map(of).collect();
        self.batches.fetch_add(1, Ordering::Relaxed);
        match self.store.write(&batch) {
            Ok(Written::Done) => {
                self.writes.fetch_add(batch.len() as u64, Ordering::Relaxed);
                Status::Written
            }
            Ok(Written::Stalled) => Status::Busy,
            Ok(Written::ReadOnly) => Status::ReadOnly,
            Err(error) => self.failed(&error, batch.len()),
        }
    }

    fn failed(&self, error: &Error, requests: usize) -> Status {
        self.failed.fetch_add(requests as u64, Ordering::Relaxed);
        let mut last = self.last_error.lock();
        *last = Some(error.to_string());
        match error.kind {
            ErrorKind::Corruption => Status::Corrupt,
            _ => Status::IoError,
        }
    }
}
