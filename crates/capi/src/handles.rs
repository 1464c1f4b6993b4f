//! Handles that callers hold.
//!
//! A handle is a number that is never used again, written as a pointer. It is looked up and never dereferenced, so a
//! stale handle is as harmless as a null one.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rockmill_compaction::ServiceJobs;

use crate::refusal::Refusal;

/// What C programs call `rm_service`.
#[derive(Debug)]
#[repr(C)]
pub struct Handle {
    _opaque: [u8; 0],
}

/// Calls hold it for reading. It is empty once it is closed.
type Slot = Arc<RwLock<Option<ServiceJobs>>>;

static SLOTS: RwLock<BTreeMap<usize, Slot>> = RwLock::new(BTreeMap::new());

static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The process that opened a service first; 0 before that.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Refuses a child of the process that opened the service. It has none of the service's threads, and a lock that one of
/// them held at the fork is never released.
fn require_own_process() -> Result<(), Refusal> {
    let own = process::id();
    match OWNER.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
        Err(owner) if owner != own => Err(Refusal::invalid(
            "this process was forked from one that had opened a service; it cannot use Rockmill before exec",
        )),
        _ => Ok(()),
    }
}

/// Makes a service and returns its handle.
pub fn open(make: impl FnOnce() -> Result<ServiceJobs, Refusal>) -> Result<*mut Handle, Refusal> {
    require_own_process()?;
    let slot = Arc::new(RwLock::new(Some(make()?)));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut slots = SLOTS.write().unwrap_or_else(PoisonError::into_inner);
    slots.insert(number, slot);
    Ok(std::ptr::without_provenance_mut(number))
}

fn unknown(handle: *mut Handle) -> Refusal {
    Refusal::invalid(match handle.is_null() {
        true => "the service's handle is null",
        false => "the service's handle is closed, or it never was one",
    })
}

/// Does `work` with the service of a handle, which stays open meanwhile.
pub fn with<T>(
    handle: *mut Handle,
    work: impl FnOnce(&ServiceJobs) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    require_own_process()?;
    let slot = {
        let slots = SLOTS.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(&handle.addr()).map(Arc::clone)
    };
    let slot = slot.ok_or_else(|| unknown(handle))?;
    let service = slot.read().unwrap_or_else(PoisonError::into_inner);
    work(service.as_ref().ok_or_else(|| unknown(handle))?)
}

/// Closes a handle: no call finds it any more, its jobs are cancelled, and the calls that found it before end.
///
/// None of these calls begins a whole job after the cancellation: it would need an id that a call returned to its caller
/// while the handle could still be found.
pub fn close(handle: *mut Handle) -> Result<(), Refusal> {
    require_own_process()?;
    let slot = {
        let mut slots = SLOTS.write().unwrap_or_else(PoisonError::into_inner);
        slots.remove(&handle.addr())
    };
    let slot = slot.ok_or_else(|| unknown(handle))?;
    if let Some(service) = &*slot.read().unwrap_or_else(PoisonError::into_inner) {
        service.cancel_awaiting_jobs();
    }
    let service = slot.write().unwrap_or_else(PoisonError::into_inner).take();
    drop(service);
    Ok(())
}
