//! The threads on which statements run, and how Python waits for them.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use pyo3::ffi;
use pyo3::prelude::*;
use rockmill_cli::sql::{PLANNING_STACK_BYTES, RUNNING_STACK_BYTES};
use rockmill_core::Lock;
use rockmill_terminal::outcome::Failure;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::errors::exception;

/// How long Python waits until it looks for signals.
const POLL: Duration = Duration::from_millis(50);

/// The threads of statements. They end with the last statement, table or stream of another library that needs them.
///
/// So no thread waits while the process forks. A forked child has one thread alone. But it inherits the list of threads that
/// wait (parking_lot's, which tokio uses), and would wake those that are not there.
#[derive(Debug)]
pub struct Threads {
    runtime: ManuallyDrop<Runtime>,
    process: u32,
}

/// The process that has made the threads, and the threads.
static THREADS: Lock<Option<(u32, Weak<Threads>)>> = Lock::new(None);

/// Number of threads that may wait in that list.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// How long the end of the last statement waits for its threads.
const ENDS: Duration = Duration::from_secs(1);

/// Why a forked child has no threads.
const STATEMENT_AT_FORK: &str = "threads of a statement, or of a table of DataFusion, ran in the process when it was forked, so \
                                 this process cannot use Rockmill: start processes by spawn or forkserver";

/// Counts a thread while it lives.
struct Live;

impl Live {
    fn new() -> Self {
        LIVE.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Deref for Threads {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A child process has none of them.
        if self.process == std::process::id() {
            // SAFETY: nothing uses it after the drop.
            let runtime = unsafe { ManuallyDrop::take(&mut self.runtime) };
            // A thread of a runtime must not wait for one.
            match Handle::try_current() {
                Ok(_) => runtime.shutdown_background(),
                Err(_) => runtime.shutdown_timeout(ENDS),
            }
        }
    }
}

/// The threads of this process, for as long as the result lives.
///
/// # Errors
/// Environment if the system gives none; usage in a child of a process that had some when it was forked.
pub fn threads() -> Result<Arc<Threads>, Failure> {
    let process = std::process::id();
    let mut known = THREADS.lock();
    match &*known {
        Some((owner, threads)) if *owner == process => {
            if let Some(threads) = threads.upgrade() {
                return Ok(threads);
            }
        }
        // Threads that have just been made may not count yet.
        Some((_, threads)) if LIVE.load(Ordering::SeqCst) > 0 || threads.strong_count() > 0 => {
            return Err(Failure::Usage(STATEMENT_AT_FORK.to_owned()));
        }
        _ => {}
    }
    let made = Builder::new_multi_thread()
        .enable_all()
        .thread_name("rockmill-sql")
        .thread_stack_size(RUNNING_STACK_BYTES)
        .on_thread_start(|| std::mem::forget(Live::new()))
        .on_thread_stop(|| drop(Live))
        .build();
    let made = made.map_err(|e| Failure::Environment(format!("no threads: {e}")))?;
    let threads = Arc::new(Threads {
        runtime: ManuallyDrop::new(made),
        process,
    });
    *known = Some((process, Arc::downgrade(&threads)));
    Ok(threads)
}

/// A thread with room for planning: a level of an expression takes some 10 KiB.
pub fn planning_thread() -> thread::Builder {
    let thread = thread::Builder::new().name("rockmill-plan".to_owned());
    thread.stack_size(PLANNING_STACK_BYTES)
}

/// Runs what `begin` returns to its end on a thread that has room for planning. Other threads of Python run meanwhile. A signal such as
/// Control-C drops the future.
///
/// # Errors
/// That of the future; that of the handler of a signal.
pub fn run<T: Send + 'static, F: Future<Output = Result<T, Failure>>>(
    py: Python<'_>,
    begin: impl FnOnce() -> F + Send + 'static,
) -> PyResult<T> {
    let threads = py.detach(threads).map_err(|failure| exception(&failure))?;
    let (ends, mut ended) = mpsc::sync_channel(1);
    let interrupted = Arc::new(Notify::new());
    let notified = Arc::clone(&interrupted);
    let live = Live::new();
    let work = move || {
        let done = catch_unwind(AssertUnwindSafe(|| {
            threads.block_on(async {
                tokio::select! {
                    biased;
                    () = notified.notified() => Err(stopped()),
                    done = begin() => done,
                }
            })
        }));
        // Before the end is told, since a fork may follow at once.
        drop(threads);
        drop(live);
        // Nothing waits for it any more after a signal.
        let _ = ends.send(done.unwrap_or_else(|_| Err(panicked())));
    };
    let thread = planning_thread();
    let no_thread = |e| exception(&Failure::Environment(format!("no thread: {e}")));
    py.detach(|| thread.spawn(work)).map_err(no_thread)?;
    loop {
        let waiting = &mut ended;
        match py.detach(move || waiting.recv_timeout(POLL)) {
            Ok(done) => return done.map_err(|failure| exception(&failure)),
            Err(RecvTimeoutError::Disconnected) => return Err(exception(&panicked())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(raised) = py.check_signals() {
            interrupted.notify_one();
            return Err(raised);
        }
    }
}

/// Runs what waits and is not asynchronous. After a signal it runs on, and its result is dropped.
///
/// # Errors
/// The errors of [`run`].
pub fn run_blocking<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    run(py, || async move {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|_| Err(panicked()))
    })
}

/// The next of what a thread sends; `None` at the end. Other threads of Python run meanwhile.
///
/// # Errors
/// That of the handler of a signal.
pub fn receive<T: Send>(py: Python<'_>, receiver: &mut Receiver<T>) -> PyResult<Option<T>> {
    loop {
        match receiver.try_recv() {
            Ok(next) => return Ok(Some(next)),
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) => {}
        }
        // Before something is received, which an exception would lose.
        py.check_signals()?;
        let waiting = &mut *receiver;
        match py.detach(move || waiting.recv_timeout(POLL)) {
            Ok(next) => return Ok(Some(next)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Runs what needs Python in a function that another library calls. That library may hold Python's lock, or may have let it
/// go on this thread without PyO3, which then takes the thread for attached.
///
/// # Errors
/// A sentence once Python is gone, and after a panic.
pub fn called_back<T>(work: impl FnOnce(Python<'_>) -> Result<T, String>) -> Result<T, String> {
    // SAFETY: these calls need no lock, and `Ensure` takes it if the thread does not hold it. What is made in between ends
    // before `Release`.
    unsafe {
        if ffi::Py_IsInitialized() == 0 {
            return Err("Python ends".to_owned());
        }
        let state = ffi::PyGILState_Ensure();
        let done = catch_unwind(AssertUnwindSafe(|| work(Python::assume_attached())));
        ffi::PyGILState_Release(state);
        done.unwrap_or_else(|_| Err(PANICKED.to_owned()))
    }
}

fn stopped() -> Failure {
    const SIGINT: u8 = 2;
    Failure::Stopped {
        what: "interrupted".to_owned(),
        signal: SIGINT,
    }
}

/// The panic was printed already.
const PANICKED: &str = "internal error, please report it: the statement panicked";

/// The failure of work that has panicked.
pub fn panicked() -> Failure {
    Failure::Environment(PANICKED.to_owned())
}
