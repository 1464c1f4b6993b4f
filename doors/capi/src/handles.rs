//! Handles of callers.
//!
//! A handle is a number that is never used again, written as a pointer. It is looked up and never dereferenced, so a
//! stale handle is as harmless as a null one.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use rockmill_compaction::{Installation, ServiceJobs};

use crate::log::{self, Log};
use crate::refusal::Refusal;

/// The type `rm_service` of C programs.
#[derive(Debug)]
#[repr(C)]
pub struct Handle {
    _opaque: [u8; 0],
}

#[derive(Debug)]
struct Slot {
    /// Set once; after that, only calls that report the installation of files are accepted.
    is_closed: AtomicBool,
    /// Each call has a reference to it. The lock is not held during the call, whose log function may make further ones. Empty
    /// once nothing is left to do.
    service: RwLock<Option<Arc<ServiceJobs>>>,
    /// Target of the messages of calls with this handle.
    log: Option<Log>,
}

static SLOTS: Handles<Slot> = Handles::new("service");

static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The first process that opened a service or view; 0 before that.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Refuses a child of the process that opened a service or a view. It has none of their threads, and a lock that one of
/// them held at the fork is never released.
fn require_own_process() -> Result<(), Refusal> {
    match OWNER.load(Ordering::Acquire) {
        owner if owner != 0 && owner != process::id() => Err(Refusal::invalid(
            "this process was forked from one that had opened a service or a view; it cannot use Rockmill before exec",
        )),
        _ => Ok(()),
    }
}

/// The objects of one kind, by handle.
#[derive(Debug)]
pub struct Handles<T> {
    open: RwLock<BTreeMap<usize, Arc<T>>>,
    what: &'static str,
}

impl<T> Handles<T> {
    /// No handles; `what` names the kind in errors.
    pub const fn new(what: &'static str) -> Self {
        Self {
            open: RwLock::new(BTreeMap::new()),
            what,
        }
    }

    /// Creates an object and returns its number.
    pub fn open(&self, make: impl FnOnce() -> Result<T, Refusal>) -> Result<usize, Refusal> {
        require_own_process()?;
        let made = Arc::new(make()?);
        OWNER.store(process::id(), Ordering::Release);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, made);
        Ok(number)
    }

    /// Returns the object with a number.
    pub fn find(&self, number: usize) -> Result<Arc<T>, Refusal> {
        require_own_process()?;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let found = open.get(&number).map(Arc::clone);
        found.ok_or_else(|| self.unknown(number))
    }

    /// Returns all objects.
    pub fn all(&self) -> Result<Vec<Arc<T>>, Refusal> {
        require_own_process()?;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        Ok(open.values().map(Arc::clone).collect())
    }

    /// Removes the object with a number.
    pub fn remove(&self, number: usize) -> Result<Arc<T>, Refusal> {
        require_own_process()?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&number).ok_or_else(|| self.unknown(number))
    }

    fn unknown(&self, number: usize) -> Refusal {
        let what = self.what;
        Refusal::invalid(match number {
            0 => format!("the {what}'s handle is null"),
            _ => format!("the {what}'s handle is closed, or it never was one"),
        })
    }
}

/// Creates a service and returns its handle. Messages of all calls with it go to `log`.
pub fn open(
    log: Option<Log>,
    make: impl FnOnce() -> Result<ServiceJobs, Refusal>,
) -> Result<*mut Handle, Refusal> {
    let slot = || {
        let service = Log::during(log.as_ref(), make)?;
        log.iter().for_each(Log::handle_opens);
        Ok(Slot {
            is_closed: AtomicBool::new(false),
            service: RwLock::new(Some(Arc::new(service))),
            log,
        })
    };
    Ok(std::ptr::without_provenance_mut(SLOTS.open(slot)?))
}

/// Returns another handle of the same service.
pub fn clone(handle: *mut Handle) -> Result<*mut Handle, Refusal> {
    let slot = find(handle)?;
    // It stays open meanwhile, and so does the log.
    let open = slot.open_service();
    let open = open.ok_or_else(|| SLOTS.unknown(handle.addr()))?;
    self::open(slot.log.clone(), || Ok(ServiceJobs::clone(&open)))
}

fn find(handle: *mut Handle) -> Result<Arc<Slot>, Refusal> {
    SLOTS.find(handle.addr())
}

impl Slot {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn service(&self) -> Option<Arc<ServiceJobs>> {
        let service = self.service.read().unwrap_or_else(PoisonError::into_inner);
        service.clone()
    }

    /// The service, unless the handle is closed.
    fn open_service(&self) -> Option<Arc<ServiceJobs>> {
        let service = self.service.read().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that `close` either prevents a reference or waits for it.
        service
            .as_ref()
            .filter(|_| !self.is_closed())
            .map(Arc::clone)
    }

    /// Drops the service of a closed handle, unless RocksDB has yet to take some of its files. Returns false if a call still
    /// uses it.
    fn drop_if_unused(&self, handle: *mut Handle) -> bool {
        let unused = {
            let mut service = self.service.write().unwrap_or_else(PoisonError::into_inner);
            if (service.as_ref()).is_some_and(|service| Arc::strong_count(service) > 1) {
                return false;
            }
            service.take_if(|service| !service.has_reported())
        };
        if unused.is_some() {
            // Another call may have removed it.
            let _ = SLOTS.remove(handle.addr());
        }
        true
    }
}

/// Runs `work` with the service of a handle, which stays open meanwhile.
pub fn with<T>(
    handle: *mut Handle,
    work: impl FnOnce(&ServiceJobs) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let slot = find(handle)?;
    let open = slot.open_service();
    let open = open.ok_or_else(|| SLOTS.unknown(handle.addr()))?;
    Log::during(slot.log.as_ref(), || work(&open))
}

/// Returns the jobs of a session, whose database closes, and takes no further ones through the open handles.
pub fn database_closes(session_id: &str) -> Result<(), Refusal> {
    for slot in SLOTS.all()? {
        if let Some(service) = slot.open_service() {
            Log::during(slot.log.as_ref(), || service.database_closes(session_id));
        }
    }
    Ok(())
}

/// Reports whether RocksDB took a job's files. The handle may be closed, since RocksDB may have received the files
/// before.
pub fn on_installation(
    handle: *mut Handle,
    id: &[u8],
    installation: Installation,
) -> Result<(), Refusal> {
    let slot = find(handle)?;
    let service = slot.service();
    let service = service.ok_or_else(|| SLOTS.unknown(handle.addr()))?;
    Log::during(slot.log.as_ref(), || {
        service.on_installation(id, installation);
    });
    drop(service);
    if slot.is_closed() {
        // A call that still uses it does this at its own end.
        slot.drop_if_unused(handle);
    }
    Ok(())
}

/// Closes a handle: its jobs are cancelled, and running calls end. Files that RocksDB has received stay until it
/// reports whether it took them, because a database whose files are gone accepts no more writes.
///
/// None of these calls begins a whole job after the cancellation: it would need an id that a call returned to its caller
/// while the handle was open.
pub fn close(handle: *mut Handle) -> Result<(), Refusal> {
    /// Pause between two checks whether other calls have ended.
    const PAUSE: Duration = Duration::from_millis(1);
    log::require_outside()?;
    let slot = find(handle)?;
    if slot.is_closed.swap(true, Ordering::AcqRel) {
        return Err(SLOTS.unknown(handle.addr()));
    }
    Log::during(slot.log.as_ref(), || {
        if let Some(service) = slot.service() {
            service.cancel_awaiting_jobs();
        }
        while !slot.drop_if_unused(handle) {
            thread::sleep(PAUSE);
        }
    });
    slot.log.iter().for_each(Log::handle_closes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr;

    use rockmill_compaction::{Engine, Settings};
    use rockmill_storage::LocalStorage;

    use super::*;

    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static IS_LOGGING: AtomicBool = AtomicBool::new(false);
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    const CALLS: usize = 50;

    /// Asks a handle that another thread is closing.
    unsafe extern "C" fn ask(_: *mut c_void, _: c_int, _: *const c_char) {
        let handle = ptr::without_provenance_mut(ASKED.load(Ordering::Acquire));
        let Ok(slot) = find(handle) else {
            return;
        };
        IS_LOGGING.store(true, Ordering::Release);
        while !slot.is_closed() {
            thread::yield_now();
        }
        for _ in 0..CALLS {
            let refused = with(handle, |_| Ok(())).is_err();
            REFUSED.fetch_add(usize::from(refused), Ordering::Relaxed);
            // `close` begins to wait meanwhile.
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_handle_closes_while_its_log_function_asks_it() {
        // SAFETY: the function may be called from any thread.
        let log = unsafe { Log::new(ask, ptr::null_mut(), 0) };
        let log = log.expect("the level is sound");
        let make = || {
            let engine = Engine::new(Settings::default(), Arc::new(LocalStorage));
            let engine = engine.map_err(Refusal::invalid)?;
            Ok(ServiceJobs::new(Arc::new(engine)))
        };
        let handle = open(Some(log), make).expect("the settings are sound");
        let number = handle.addr();
        ASKED.store(number, Ordering::Release);
        let call = thread::spawn(move || {
            let log = |_: &ServiceJobs| {
                tracing::info!("a message");
                Ok(())
            };
            with(ptr::without_provenance_mut(number), log).is_ok()
        });
        while !IS_LOGGING.load(Ordering::Acquire) {
            thread::yield_now();
        }
        assert!(close(handle).is_ok());
        assert!(call.join().expect("it does not panic"));
        assert_eq!(REFUSED.load(Ordering::Relaxed), CALLS);
        assert!(find(handle).is_err());
    }
}
