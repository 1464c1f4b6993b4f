//! Device memory for tasks, of all jobs, within a budget.
//!
//! A task requests all the memory that it needs at once, before it reads anything, and waits for it. So tasks that hold
//! memory never wait for one another. Waiting tasks are served in order. Memory is allocated on the device in regions
//! of some tasks each, which are kept: once there are enough for the tasks that run at a time, nothing is allocated any
//! more. Regions are freed for a task that fits into none of them, and for a view that is loaded: until the view has
//! its memory, tasks begin only in the remaining regions.
//!
//! The cache of files has regions of its own within the budget. It grows only while no task waits, and leaves some of the
//! device's memory free. A task takes memory from the cache before it waits, if that makes room for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, OnceLock, PoisonError, Weak};

use rockmill_core::{CancelToken, DeclineReason, Error, Lock, Result};

use super::owned_regions::OwnedRegions;
use super::regions::ALIGNMENT;
use crate::cache::FileCache;
use crate::driver::{CANCEL_POLL, Device, DeviceMemory, IdleMemory, MemoryUser};

/// Number of tasks for which a region has room, each as large as the one that it was allocated for.
const TASKS_PER_REGION: u64 = 4;

/// Number of chunks of the cache for which a region has room.
const CHUNKS_PER_REGION: u64 = 32;

/// Maximum share of the device's free memory, unless the user sets a limit.
const USUAL_SHARE: (u64, u64) = (4, 5);

/// The cache leaves 1/`LEFT_BY_CACHE` of the device's free memory to others, such as lookups in views, which take memory for
/// each batch.
const LEFT_BY_CACHE: u64 = 8;

/// Device memory that tasks share.
#[derive(Debug)]
pub struct DeviceArena {
    device: Device,
    state: Lock<State>,
    changed: Condvar,
    /// The cache that gives memory back to tasks.
    cache: OnceLock<Weak<FileCache>>,
    /// Maximum bytes of its regions. It is read and changed without the lock, under which memory may be freed.
    max_cache_bytes: AtomicU64,
    /// Bytes of the device that it leaves free.
    left_by_cache_bytes: u64,
}

#[derive(Debug)]
struct State {
    /// The budget.
    max_bytes: u64,
    /// The budget where none is stated.
    usual_bytes: u64,
    /// Bytes that the device had when it refused memory.
    limit_bytes: u64,
    /// Value of `MemoryShares::times_returned` when the limit was found.
    limit_of: u64,
    regions: OwnedRegions,
    cache_regions: OwnedRegions,
    /// Value of `MemoryShares::times_returned` when the device had no more memory for the cache.
    no_room_for_cache_of: Option<u64>,
    /// Tickets of the waiting tasks.
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

/// The answer to a request for memory.
#[derive(Debug)]
pub enum Placed {
    Here(Allocation),
    /// There is room once the cache has given these bytes back.
    IfCacheGives(u64),
    /// There is room once tasks have ended.
    Later,
}

/// Memory of a task; freed when dropped, with no copy to or from it in progress.
#[derive(Debug)]
pub struct Allocation {
    device_arena: Arc<DeviceArena>,
    memory: *mut u8,
    len: u64,
}

// SAFETY: only the allocation owns the memory, and the device may be used from any thread.
unsafe impl Send for Allocation {}
// SAFETY: shared references give only its address.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Where it begins.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device_arena.device.allow(self.memory, self.len);
        let mut state = self.device_arena.state.lock();
        let mut given_back = Vec::new();
        if state.regions.put_back(self.memory.addr(), self.len) {
            // After an error, the next allocation reports it.
            let device = &self.device_arena.device;
            let excess = device.shares().excess_bytes(device);
            given_back = state.regions.take_idle(excess.unwrap_or(0));
        } else {
            state.cache_regions.put_back(self.memory.addr(), self.len);
        }
        drop(state);
        self.device_arena.release(given_back);
        self.device_arena.changed.notify_all();
    }
}

impl IdleMemory for DeviceArena {
    fn give_back(&self, bytes: u64) {
        let given = self.give_back_regions(bytes);
        if given < bytes {
            self.take_from_cache(bytes - given);
        }
    }
}

impl DeviceArena {
    /// An arena of `max_bytes`, or of four fifths of the device's current free memory.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device, max_bytes: Option<u64>) -> Result<Arc<Self>> {
        let usual = |free: u64| free / USUAL_SHARE.1 * USUAL_SHARE.0;
        let free_bytes = device.known_free_bytes()?;
        let usual_bytes = free_bytes.map_or(u64::MAX, usual);
        let max_bytes = max_bytes.unwrap_or(usual_bytes);
        let device_arena = Arc::new(Self {
            device: device.clone(),
            state: Lock::new(State {
                max_bytes,
                usual_bytes,
                limit_bytes: u64::MAX,
                limit_of: 0,
                regions: OwnedRegions::default(),
                cache_regions: OwnedRegions::default(),
                no_room_for_cache_of: None,
                waiting: VecDeque::new(),
                next_ticket: 0,
            }),
            changed: Condvar::new(),
            cache: OnceLock::new(),
            max_cache_bytes: AtomicU64::new(0),
            left_by_cache_bytes: free_bytes.unwrap_or(0) / LEFT_BY_CACHE,
        });
        let weak = Arc::downgrade(&device_arena);
        device.shares().keeps_idle(weak);
        Ok(device_arena)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Frees at least `bytes` bytes of regions without tasks, or all of these. Returns how many.
    pub fn give_back_regions(&self, bytes: u64) -> u64 {
        let given_back = self.state.lock().regions.take_idle(bytes);
        self.release(given_back)
    }

    /// Gives regions back to the device, which waits for all kernels that run. So nothing is locked meanwhile. Returns their
    /// bytes.
    fn release(&self, regions: Vec<DeviceMemory>) -> u64 {
        let bytes = regions.iter().map(DeviceMemory::len).sum();
        if !regions.is_empty() {
            let _current = self.device.make_current();
            drop(regions);
        }
        bytes
    }

    /// Maximum bytes of all tasks.
    pub fn max_bytes(&self) -> u64 {
        self.state.lock().max_bytes
    }

    /// Sets the budget to `bytes`; `None`: to the usual share of the device's memory. Tasks that hold more continue.
    /// [`DeviceArena::trim`] frees what the cache has beyond it.
    pub fn limit(&self, bytes: Option<u64>) {
        let mut state = self.state.lock();
        state.max_bytes = bytes.unwrap_or(state.usual_bytes);
        drop(state);
        self.changed.notify_all();
    }

    /// Bytes allocated on the device.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes()
    }

    /// Waits for `bytes` contiguous bytes.
    ///
    /// # Errors
    /// Device if there can never be that much, or other processes have it; Cancelled.
    pub fn take(self: &Arc<Self>, bytes: u64, cancel: &CancelToken) -> Result<Allocation> {
        self.take_for(MemoryUser::Tasks, bytes, cancel)
    }

    /// Waits for `bytes` in one allocation. The budget that was stated is one of scans and compactions; a task that loads a view
    /// may have more.
    ///
    /// # Errors
    /// The errors of [`DeviceArena::take`].
    pub fn take_for(
        self: &Arc<Self>,
        user: MemoryUser,
        bytes: u64,
        cancel: &CancelToken,
    ) -> Result<Allocation> {
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        let taken = loop {
            if cancel.is_cancelled() {
                break Err(Error::cancelled());
            }
            if state.waiting.front() == Some(&ticket) {
                match self.place(&mut state, user, bytes) {
                    Ok(Placed::Here(allocation)) => break Ok(allocation),
                    Ok(Placed::IfCacheGives(missing)) => {
                        drop(state);
                        let given = self.take_from_cache(missing);
                        state = self.state.lock();
                        if given > 0 {
                            continue;
                        }
                    }
                    Ok(Placed::Later) => {}
                    Err(error) => break Err(error),
                }
            }
            state = self
                .changed
                .wait_timeout(state, CANCEL_POLL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        };
        state.waiting.retain(|&waiting| waiting != ticket);
        drop(state);
        self.changed.notify_all();
        taken
    }

    /// Allocates `bytes` more for a task that holds memory and must not wait. `user` is that of [`DeviceArena::take_for`].
    ///
    /// # Errors
    /// Device if there is too little at present.
    pub fn take_now(self: &Arc<Self>, user: MemoryUser, bytes: u64) -> Result<Allocation> {
        // While a load waits for memory, tasks that run still get what they need.
        loop {
            let placed = self.place_beside(&mut self.state.lock(), user, bytes, 0)?;
            let given = match placed {
                Placed::Here(allocation) => return Ok(allocation),
                Placed::IfCacheGives(missing) => self.take_from_cache(missing),
                Placed::Later => 0,
            };
            if given == 0 {
                return Err(no_memory(format!(
                    "a task needs {bytes} more bytes of device memory than estimated, and other tasks hold them"
                )));
            }
        }
    }

    /// Lets `cache` give memory back to tasks.
    pub fn set_cache(&self, cache: &Arc<FileCache>) {
        // An arena has one cache.
        let _ = self.cache.set(Arc::downgrade(cache));
    }

    /// Frees at least `bytes` of the cache on the device, or all that it can free now. Returns how many.
    fn take_from_cache(&self, bytes: u64) -> u64 {
        let cache = self.cache.get().and_then(Weak::upgrade);
        cache.map_or(0, |cache| cache.give_back(bytes))
    }

    /// Memory for `bytes` of the cache, which usually takes `chunk_bytes`.
    pub fn take_for_cache(self: &Arc<Self>, bytes: u64, chunk_bytes: u64) -> Placed {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let max_bytes = self.max_cache_bytes();
        let mut state = self.state.lock();
        if !state.waiting.is_empty() || state.excess_of_cache(max_bytes) > 0 {
            // The cache must shrink, or tasks need the memory.
            return Placed::Later;
        }
        let found = match state.cache_regions.take(bytes, u64::MAX) {
            None if state.grow_cache(self, bytes, chunk_bytes, max_bytes) => {
                state.cache_regions.take(bytes, u64::MAX)
            }
            found => found,
        };
        match found {
            Some(memory) => Placed::Here(Allocation {
                device_arena: Arc::clone(self),
                memory,
                len: bytes,
            }),
            None if state.cache_regions.have_one_of(bytes) => Placed::IfCacheGives(bytes),
            // Nothing makes room for what fits into no region.
            None => Placed::Later,
        }
    }

    /// Limits the regions of the cache. [`DeviceArena::trim`] frees those that exceed it.
    pub fn limit_cache(&self, bytes: u64) {
        self.max_cache_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Maximum bytes of the cache.
    pub fn max_cache_bytes(&self) -> u64 {
        self.max_cache_bytes.load(Ordering::Relaxed)
    }

    /// Frees what the cache has beyond its limit, and beyond the budget beside what tasks hold. The device may wait for all
    /// kernels that run.
    pub fn trim(&self) {
        let state = self.state.lock();
        let mut excess = state.excess_of_cache(self.max_cache_bytes());
        let of_budget = state.bytes().saturating_sub(state.max_bytes);
        drop(state);
        if excess > 0 && of_budget > 0 {
            self.give_back_regions(of_budget);
            excess = self.state.lock().excess_of_cache(self.max_cache_bytes());
        }
        // Several threads may do this at a time, and each frees what is too much then.
        while excess > 0 && self.take_from_cache(1) > 0 {
            excess = self.state.lock().excess_of_cache(self.max_cache_bytes());
        }
    }

    /// Addresses of the regions of the cache, ascending, each with the bytes that are allocated there.
    pub fn cache_regions(&self) -> Vec<(Range<usize>, u64)> {
        self.state.lock().cache_regions.addresses()
    }

    /// Gives regions in which the cache has nothing back to the device. Returns their bytes.
    pub fn release_cache_regions(&self) -> u64 {
        let idle = self.state.lock().cache_regions.take_idle(u64::MAX);
        self.release(idle)
    }

    /// Leaves the region of a chunk to a device that has failed: it may still write there.
    pub fn leak(&self, chunk: &Allocation) {
        let lost = self.state.lock().cache_regions.remove(chunk.memory.addr());
        std::mem::forget(lost);
    }

    /// An allocation, if there is room for it now.
    fn place(self: &Arc<Self>, state: &mut State, user: MemoryUser, bytes: u64) -> Result<Placed> {
        let excess = self.device.shares().excess_bytes(&self.device)?;
        self.place_beside(state, user, bytes, excess)
    }

    fn place_beside(
        self: &Arc<Self>,
        state: &mut State,
        user: MemoryUser,
        bytes: u64,
        excess: u64,
    ) -> Result<Placed> {
        let bytes = bytes.max(1).saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        let mut found = state.find(bytes, excess);
        if found.is_none() {
            match state.grow(&self.device, user, bytes)? {
                Growth::Done => found = state.find(bytes, excess),
                Growth::IfCacheGives(missing) => return Ok(Placed::IfCacheGives(missing)),
                Growth::Later => {}
            }
        }
        Ok(found.map_or(Placed::Later, |memory| {
            self.device.forbid(memory, bytes);
            Placed::Here(Allocation {
                device_arena: Arc::clone(self),
                memory,
                len: bytes,
            })
        }))
    }
}

/// The CPU does the task then, and the device is not to blame.
fn no_memory(what: String) -> Error {
    Error::declined(DeclineReason::MemoryBudget, what)
}

/// Whether the tasks got another region, as in [`Placed`].
enum Growth {
    Done,
    IfCacheGives(u64),
    Later,
}

impl State {
    /// Bytes of all regions.
    fn bytes(&self) -> u64 {
        self.regions.bytes() + self.cache_regions.bytes()
    }

    /// Bytes of the cache beyond its limit, or beyond the budget.
    fn excess_of_cache(&self, max_cache_bytes: u64) -> u64 {
        let bytes = self.cache_regions.bytes();
        let of_budget = self.bytes().saturating_sub(self.max_bytes);
        let of_limit = bytes.saturating_sub(max_cache_bytes);
        of_limit.max(of_budget.min(bytes))
    }

    /// Gets a region of the cache for some parts of `bytes`. False if the budget or the device has no room for one.
    fn grow_cache(
        &mut self,
        device_arena: &DeviceArena,
        bytes: u64,
        chunk_bytes: u64,
        max_cache_bytes: u64,
    ) -> bool {
        let of_cache = max_cache_bytes.saturating_sub(self.cache_regions.bytes());
        let free = self.max_bytes.saturating_sub(self.bytes()).min(of_cache);
        let device = &device_arena.device;
        let returned = device.shares().times_returned();
        if free < bytes || self.no_room_for_cache_of == Some(returned) {
            return false;
        }
        let left_free = device_arena.left_by_cache_bytes;
        let room = device.shares().room_for_cache(device, left_free);
        let usual = chunk_bytes.saturating_mul(CHUNKS_PER_REGION).max(bytes);
        let parts = free.min(room.unwrap_or(0)).min(usual) / bytes;
        let _current = device.make_current();
        let got = (parts > 0).then(|| DeviceMemory::new(device, MemoryUser::Tasks, parts * bytes));
        match got {
            Some(Ok(memory)) => {
                self.cache_regions.add(memory);
                true
            }
            // Others have the memory. There may be less than for a group, and enough for a chunk.
            Some(Err(_)) | None => {
                if bytes <= chunk_bytes {
                    self.no_room_for_cache_of = Some(returned);
                }
                false
            }
        }
    }

    /// An allocation in a region. While `excess` bytes have to be freed, nothing is allocated in the last regions, so
    /// that they become idle.
    fn find(&mut self, bytes: u64, excess: u64) -> Option<*mut u8> {
        let keeps = self.regions.bytes().saturating_sub(excess);
        self.regions.take(bytes, keeps)
    }

    /// Gets a region with room for `bytes`, if the budget has so much.
    fn grow(&mut self, device: &Device, user: MemoryUser, bytes: u64) -> Result<Growth> {
        let returned = device.shares().times_returned();
        if self.limit_of != returned || self.regions.busy_bytes() == 0 {
            // Others may have left the device by now.
            (self.limit_bytes, self.limit_of) = (u64::MAX, returned);
        }
        // While views are loaded, the device has less memory for tasks.
        let room = device.shares().room_for_tasks(device)?;
        let limit = room.map_or(u64::MAX, |room| self.bytes().saturating_add(room));
        let max_bytes = match user {
            MemoryUser::Tasks => self.max_bytes,
            MemoryUser::Views => self.max_bytes.max(self.usual_bytes),
        };
        let limit = limit.min(self.limit_bytes).min(max_bytes);
        if bytes > limit && bytes <= max_bytes && device.shares().is_releasing() {
            return Ok(Growth::Later);
        }
        check(limit, max_bytes, bytes)?;
        // The cache gives memory back only if that makes enough room beside what tasks use.
        let has_cache = self.cache_regions.bytes() > 0;
        let cache_helps = has_cache && limit.saturating_sub(self.regions.busy_bytes()) >= bytes;
        let missing = bytes.saturating_sub(limit.saturating_sub(self.bytes()));
        if cache_helps || !self.regions.have_one_of(bytes) {
            drop(self.regions.take_idle(missing));
        }
        let free = limit.saturating_sub(self.bytes());
        if free < bytes {
            return Ok(match cache_helps {
                true => Growth::IfCacheGives(bytes - free),
                false => Growth::Later,
            });
        }
        let wished = bytes.saturating_mul(TASKS_PER_REGION).min(free);
        let _current = device.make_current()?;
        let get = |bytes| DeviceMemory::new(device, MemoryUser::Tasks, bytes);
        let mut got = get(wished).or_else(|_| get(bytes));
        if got.is_err() && self.regions.busy_bytes() < self.regions.bytes() {
            // Each of these is too small, but together they may suffice.
            drop(self.regions.take_idle(u64::MAX));
            got = get(bytes);
        }
        match got {
            Ok(memory) => {
                self.regions.add(memory);
                Ok(Growth::Done)
            }
            Err(error) if has_cache && error.kind.is_out_of_memory() => {
                Ok(Growth::IfCacheGives(bytes))
            }
            Err(error) if self.regions.bytes() == 0 => Err(error),
            Err(error) => {
                // Another process has the memory. (A broken device would report the same, and must not be mistaken for
                // that.) The available memory is used in turn.
                self.limit_bytes = self.bytes();
                self.limit_of = device.shares().times_returned();
                let checked = check(self.limit_bytes.min(max_bytes), max_bytes, bytes);
                checked.map(|()| Growth::Later).map_err(|refused| Error {
                    what: format!("{} ({})", refused.what, error.what),
                    ..error
                })
            }
        }
    }
}

/// Whether a task can ever have `bytes` with this limit, or can while others hold the rest.
fn check(limit: u64, max_bytes: u64, bytes: u64) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    let advice = match limit < max_bytes {
        true => ", since the device gives no more: stop what else uses it",
        false => ": give it more",
    };
    Err(no_memory(format!(
        "a task needs {bytes} bytes of device memory and may have {limit}{advice}, \
         or set a smaller target_file_size"
    )))
}

#[cfg(test)]
mod tests;
