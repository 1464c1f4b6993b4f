//! Log messages for a function of the caller.
//!
//! Each service has its own `tracing` subscriber. It is the current one during calls with handles of the service, and
//! on the service's threads.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::refusal::Refusal;

/// The type `rm_log_function` of C programs.
pub type LogFunction = unsafe extern "C" fn(*mut c_void, c_int, *const c_char);

/// A subscriber that ignores everything. While there is only one subscriber, `tracing` asks only the thread's current
/// one whether a kind of message is enabled, and caches the answer. Without this subscriber, a thread of a service
/// without a log would answer for all services.
static SECOND: OnceLock<Dispatch> = OnceLock::new();

thread_local! {
    /// Whether this thread is inside a caller's function.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// A function of the caller, and its first argument.
struct Callback {
    function: LogFunction,
    state: *mut c_void,
}

// SAFETY: the header demands that the function may be called from any thread.
unsafe impl Send for Callback {}
// SAFETY: as above, by several threads at once.
unsafe impl Sync for Callback {}

/// The log of a service and all its clones.
#[derive(Clone)]
pub struct Log {
    callback: Arc<RwLock<Option<Callback>>>,
    dispatch: Dispatch,
    handles: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

impl Log {
    /// Creates a log without handles. Messages up to `level` go to `function`; 0 is the header's default.
    ///
    /// # Safety
    /// `function` may be called with `state` from any thread, until the last handle is closed.
    pub unsafe fn new(
        function: LogFunction,
        state: *mut c_void,
        level: c_int,
    ) -> Result<Self, Refusal> {
        let level = match level {
            1 => Level::ERROR,
            2 => Level::WARN,
            0 | 3 => Level::INFO,
            _ => {
                let what = format!("log_level is {level}; it must be from 0 to 3");
                return Err(Refusal::invalid(what));
            }
        };
        SECOND.get_or_init(|| Dispatch::new(NoSubscriber::default()));
        let callback = Arc::new(RwLock::new(Some(Callback { function, state })));
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_level(false)
            .with_target(false)
            .without_time()
            .with_writer(Lines(Arc::clone(&callback)))
            .finish();
        Ok(Self {
            callback,
            dispatch: Dispatch::new(subscriber),
            handles: Arc::default(),
        })
    }

    /// Runs `work`, whose messages go to this log. Inside the caller's function they are dropped, because `tracing`
    /// panics if the subscriber changes there.
    pub fn during<T>(log: Option<&Self>, work: impl FnOnce() -> T) -> T {
        match log {
            Some(log) if !IS_TELLING.get() => {
                tracing::dispatcher::with_default(&log.dispatch, work)
            }
            _ => work(),
        }
    }

    /// Counts a new handle.
    pub fn handle_opens(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed handle. After the last one, waits until the caller's function has returned on all threads, and
    /// does not call it any more.
    pub fn handle_closes(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            *(self.callback.write()).unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Refuses a call that would wait for the caller's function, if it comes from inside that function.
pub fn require_outside() -> Result<(), Refusal> {
    match IS_TELLING.get() {
        true => Err(Refusal::invalid(
            "the log function cannot close a service, which waits for the log function",
        )),
        false => Ok(()),
    }
}

/// Creates one writer for each message.
struct Lines(Arc<RwLock<Option<Callback>>>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0, Level::INFO)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line(&self.0, *metadata.level())
    }
}

struct Line<'a>(&'a RwLock<Option<Callback>>, Level);

impl io::Write for Line<'_> {
    /// Passes on a whole message, which the formatter writes at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let level = match self.1 {
            Level::ERROR => 1,
            Level::WARN => 2,
            _ => 3,
        };
        let text: Vec<u8> = line.trim_ascii_end().to_vec();
        // A zero byte would hide the rest, and a message is one line.
        let text = text.into_iter().map(|byte| match byte {
            0 | b'\n' | b'\r' => b' ',
            _ => byte,
        });
        let text = CString::new(text.collect::<Vec<_>>())?;
        // A message caused by the caller's function would call it again, under the same lock.
        if IS_TELLING.replace(true) {
            return Ok(line.len());
        }
        let callback = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Callback { function, state }) = &*callback {
            // SAFETY: it may be called until the last handle is closed, which takes it away first.
            unsafe { function(*state, level, text.as_ptr()) };
        }
        drop(callback);
        IS_TELLING.set(false);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
