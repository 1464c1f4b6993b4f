//! Handles of callers.
//!
//! A handle is a number that is never used again, written as a pointer. It is looked up and never dereferenced, so a
//! stale handle is as harmless as a null one.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

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
    /// Calls hold it for reading. Empty once nothing is left to do.
    service: RwLock<Option<ServiceJobs>>,
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
            service: RwLock::new(Some(service)),
            log,
        })
    };
    Ok(std::ptr::without_provenance_mut(SLOTS.open(slot)?))
}

/// Returns another handle of the same service.
pub fn clone(handle: *mut Handle) -> Result<*mut Handle, Refusal> {
    let slot = find(handle)?;
    // It stays open meanwhile, and so does the log.
    let service = slot.read();
    let open = service.as_ref().filter(|_| !slot.is_closed());
    let open = open.ok_or_else(|| SLOTS.unknown(handle.addr()))?;
    self::open(slot.log.clone(), || Ok(open.clone()))
}

fn find(handle: *mut Handle) -> Result<Arc<Slot>, Refusal> {
    SLOTS.find(handle.addr())
}

impl Slot {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<ServiceJobs>> {
        self.service.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the service of a closed handle, unless RocksDB has yet to take some of its files.
    fn drop_if_unused(&self, handle: *mut Handle) {
        let unused = {
            let mut service = self.service.write().unwrap_or_else(PoisonError::into_inner);
            service.take_if(|service| !service.has_reported())
        };
        if unused.is_some() {
            // Another call may have removed it.
            let _ = SLOTS.remove(handle.addr());
        }
    }
}

/// Runs `work` with the service of a handle, which stays open meanwhile.
pub fn with<T>(
    handle: *mut Handle,
    work: impl FnOnce(&ServiceJobs) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let slot = find(handle)?;
    let service = slot.read();
    let open = service.as_ref().filter(|_| !slot.is_closed());
    let open = open.ok_or_else(|| SLOTS.unknown(handle.addr()))?;
    Log::during(slot.log.as_ref(), || work(open))
}

/// Returns the jobs of a session, whose database closes, and takes no further ones through the open handles.
pub fn database_closes(session_id: &str) -> Result<(), Refusal> {
    for slot in SLOTS.all()? {
        let service = slot.read();
        if let Some(service) = service.as_ref().filter(|_| !slot.is_closed()) {
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
    match &*slot.read() {
        Some(service) => {
            Log::during(slot.log.as_ref(), || {
                service.on_installation(id, installation);
            });
        }
        None => return Err(SLOTS.unknown(handle.addr())),
    }
    if slot.is_closed() {
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
    log::require_outside()?;
    let slot = find(handle)?;
    if slot.is_closed.swap(true, Ordering::AcqRel) {
        return Err(SLOTS.unknown(handle.addr()));
    }
    Log::during(slot.log.as_ref(), || {
        if let Some(service) = &*slot.read() {
            service.cancel_awaiting_jobs();
        }
        slot.drop_if_unused(handle);
    });
    slot.log.iter().for_each(Log::handle_closes);
    Ok(())
}
