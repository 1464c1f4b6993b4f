//! Device memory for tasks, of all jobs, within a budget.
//!
//! A task requests all the memory that it needs at once, before it reads anything, and waits for it. So tasks that hold
//! memory never wait for one another. Waiting tasks are served in order. Memory is allocated on the device in regions
//! of some tasks each, which are kept: once there are enough for the tasks that run at a time, nothing is allocated any
//! more. Regions are freed for a task that fits into none of them, and for a view that is loaded: until the view has
//! its memory, tasks begin only in the remaining regions.
//!
//! The cache of files has regions of its own within the budget. It grows only while no task waits. A task for which there is
//! no room takes memory from the cache before it waits.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rockmill_core::{CancelToken, DeclineReason, Error, Result};

use super::regions::{ALIGNMENT, Region};
use crate::cache::FileCache;
use crate::driver::{CANCEL_POLL, Device, DeviceMemory, IdleMemory, MemoryUser};

/// Number of tasks for which a region has room, each as large as the one that it was allocated for.
const TASKS_PER_REGION: u64 = 4;

/// Number of chunks of the cache for which a region has room.
const CHUNKS_PER_REGION: u64 = 32;

/// Maximum share of the device's free memory, unless the user sets a limit.
const USUAL_SHARE: (u64, u64) = (4, 5);

/// Device memory that tasks share.
#[derive(Debug)]
pub struct DeviceArena {
    device: Device,
    state: Mutex<State>,
    changed: Condvar,
    /// The cache that gives memory back to tasks.
    cache: OnceLock<Weak<FileCache>>,
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
    regions: Vec<OwnedRegion>,
    /// Those of the cache, and their maximum bytes.
    cache_regions: Vec<OwnedRegion>,
    max_cache_bytes: u64,
    /// Tickets of the waiting tasks.
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

#[derive(Debug)]
struct OwnedRegion {
    memory: DeviceMemory,
    region: Region,
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
        let mut state = self.device_arena.state();
        let start = self.memory.addr();
        let State {
            regions,
            cache_regions,
            ..
        } = &mut *state;
        for lent in regions.iter_mut().chain(cache_regions) {
            let from = start.wrapping_sub(lent.memory.as_ptr().addr()) as u64;
            if from < lent.region.len() {
                lent.region.give_back(from..from + self.len);
            }
        }
        // After an error, the next allocation reports it.
        let excess = self
            .device_arena
            .device
            .shares()
            .excess_bytes(&self.device_arena.device);
        let mut given_back = state.give_back(excess.unwrap_or(0));
        given_back.append(&mut state.excess_of_cache());
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
        let usual_bytes = device.known_free_bytes()?.map_or(u64::MAX, usual);
        let max_bytes = max_bytes.unwrap_or(usual_bytes);
        let device_arena = Arc::new(Self {
            device: device.clone(),
            state: Mutex::new(State {
                max_bytes,
                usual_bytes,
                limit_bytes: u64::MAX,
                limit_of: 0,
                regions: Vec::new(),
                cache_regions: Vec::new(),
                max_cache_bytes: u64::MAX,
                waiting: VecDeque::new(),
                next_ticket: 0,
            }),
            changed: Condvar::new(),
            cache: OnceLock::new(),
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
        let given_back = self.state().give_back(bytes);
        let given = given_back.iter().map(|lent| lent.region.len()).sum();
        self.release(given_back);
        given
    }

    /// Gives regions back to the device, which waits for all kernels that run. So nothing is locked meanwhile.
    fn release(&self, regions: Vec<OwnedRegion>) {
        if !regions.is_empty() {
            let _current = self.device.make_current();
            drop(regions);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maximum bytes of all tasks.
    pub fn max_bytes(&self) -> u64 {
        self.state().max_bytes
    }

    /// Sets the budget to `bytes`; `None`: to the usual share of the device's memory. Tasks that hold more continue.
    pub fn limit(&self, bytes: Option<u64>) {
        let mut state = self.state();
        state.max_bytes = bytes.unwrap_or(state.usual_bytes);
        drop(state);
        self.changed.notify_all();
    }

    /// Bytes allocated on the device.
    pub fn bytes(&self) -> u64 {
        self.state().bytes()
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
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        let taken = loop {
            if cancel.is_cancelled() {
                break Err(Error::cancelled());
            }
            if state.waiting.front() == Some(&ticket) {
                if let Some(answer) = self.place(&mut state, user, bytes).transpose() {
                    break answer;
                }
                if !state.cache_regions.is_empty() {
                    drop(state);
                    let given = self.take_from_cache(bytes);
                    state = self.state();
                    if given > 0 {
                        continue;
                    }
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
            let placed = self.place_beside(&mut self.state(), user, bytes, 0)?;
            if let Some(allocation) = placed {
                return Ok(allocation);
            }
            if self.take_from_cache(bytes) == 0 {
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

    /// Memory for a chunk of the cache, if no task waits for memory and the budget has it.
    pub fn take_for_cache(self: &Arc<Self>, bytes: u64) -> Option<Allocation> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let mut state = self.state();
        if !state.waiting.is_empty() {
            return None;
        }
        let memory = match find_in(&mut state.cache_regions, bytes) {
            Some(memory) => memory,
            None => {
                state.grow_cache(&self.device, bytes)?;
                find_in(&mut state.cache_regions, bytes)?
            }
        };
        Some(Allocation {
            device_arena: Arc::clone(self),
            memory,
            len: bytes,
        })
    }

    /// Limits the regions of the cache. Those that exceed it are freed once they are idle.
    pub fn limit_cache(&self, bytes: u64) {
        self.state().max_cache_bytes = bytes;
    }

    /// Addresses of the regions of the cache, ascending.
    pub fn cache_regions(&self) -> Vec<Range<usize>> {
        let state = self.state();
        let ranges = state.cache_regions.iter().map(|lent| {
            let start = lent.memory.as_ptr().addr();
            start..start + lent.region.len() as usize
        });
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }

    /// Gives regions in which the cache has nothing back to the device. Returns their bytes.
    pub fn release_cache_regions(&self) -> u64 {
        let idle: Vec<_> = {
            let mut state = self.state();
            let regions = state
                .cache_regions
                .extract_if(.., |lent| lent.region.is_idle());
            regions.collect()
        };
        let bytes = idle.iter().map(|lent| lent.region.len()).sum();
        self.release(idle);
        bytes
    }

    /// An allocation, if there is room for it now.
    fn place(
        self: &Arc<Self>,
        state: &mut State,
        user: MemoryUser,
        bytes: u64,
    ) -> Result<Option<Allocation>> {
        let excess = self.device.shares().excess_bytes(&self.device)?;
        self.place_beside(state, user, bytes, excess)
    }

    fn place_beside(
        self: &Arc<Self>,
        state: &mut State,
        user: MemoryUser,
        bytes: u64,
        excess: u64,
    ) -> Result<Option<Allocation>> {
        let bytes = bytes.max(1).saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        let found = match state.find(bytes, excess) {
            None if state.grow(&self.device, user, bytes)? => state.find(bytes, excess),
            found => found,
        };
        Ok(found.map(|memory| {
            self.device.forbid(memory, bytes);
            Allocation {
                device_arena: Arc::clone(self),
                memory,
                len: bytes,
            }
        }))
    }
}

/// An allocation in the first region with room for it.
fn find_in(regions: &mut [OwnedRegion], bytes: u64) -> Option<*mut u8> {
    regions.iter_mut().find_map(|lent| {
        let start = lent.region.take(bytes)?;
        Some(lent.memory.as_ptr().wrapping_add(start as usize))
    })
}

/// The CPU does the task then, and the device is not to blame.
fn no_memory(what: String) -> Error {
    Error::declined(DeclineReason::MemoryBudget, what)
}

impl State {
    /// Bytes of all regions.
    fn bytes(&self) -> u64 {
        let regions = self.regions.iter().chain(&self.cache_regions);
        regions.map(|lent| lent.region.len()).sum()
    }

    /// Bytes of the regions of the cache.
    fn cache_bytes(&self) -> u64 {
        self.cache_regions
            .iter()
            .map(|lent| lent.region.len())
            .sum()
    }

    /// Takes out idle regions of the cache, until the others are within its limit.
    fn excess_of_cache(&mut self) -> Vec<OwnedRegion> {
        let mut regions = Vec::new();
        while self.cache_bytes() > self.max_cache_bytes {
            let idle = (self.cache_regions.iter()).position(|lent| lent.region.is_idle());
            let Some(idle) = idle else { break };
            regions.push(self.cache_regions.remove(idle));
        }
        regions
    }

    /// Gets a region for chunks of `bytes` of the cache. `None` if the budget or the device has no room for one chunk.
    fn grow_cache(&mut self, device: &Device, bytes: u64) -> Option<()> {
        let returned = device.shares().times_returned();
        if self.limit_of != returned {
            // Others may have left the device by now.
            (self.limit_bytes, self.limit_of) = (u64::MAX, returned);
        }
        let room = device.shares().room_for_tasks(device).ok()?;
        let limit = room.map_or(u64::MAX, |room| self.bytes().saturating_add(room));
        let limit = limit.min(self.limit_bytes).min(self.max_bytes);
        let free = limit.saturating_sub(self.bytes());
        let of_cache = self.max_cache_bytes.saturating_sub(self.cache_bytes());
        let chunks = (free.min(of_cache) / bytes).min(CHUNKS_PER_REGION);
        if chunks == 0 {
            return None;
        }
        let _current = device.make_current().ok()?;
        match DeviceMemory::new(device, MemoryUser::Tasks, chunks * bytes) {
            Ok(memory) => {
                let region = Region::new(memory.len());
                self.cache_regions.push(OwnedRegion { memory, region });
                Some(())
            }
            Err(_) => {
                // Another process has the memory.
                (self.limit_bytes, self.limit_of) = (self.bytes(), returned);
                None
            }
        }
    }

    /// An allocation in a region. While `excess` bytes have to be freed, nothing is allocated in the last regions, so
    /// that they become idle.
    fn find(&mut self, bytes: u64, excess: u64) -> Option<*mut u8> {
        let bytes_of_tasks: u64 = self.regions.iter().map(|lent| lent.region.len()).sum();
        let keeps = bytes_of_tasks.saturating_sub(excess);
        let mut before = 0u64;
        self.regions.iter_mut().find_map(|lent| {
            before += lent.region.len();
            let start = (before <= keeps).then(|| lent.region.take(bytes))??;
            Some(lent.memory.as_ptr().wrapping_add(start as usize))
        })
    }

    /// Takes out idle regions, the last ones first, until they have `bytes` bytes.
    fn give_back(&mut self, bytes: u64) -> Vec<OwnedRegion> {
        let (mut given, mut regions) = (0, Vec::new());
        for at in (0..self.regions.len()).rev() {
            if given >= bytes {
                break;
            }
            if self.regions[at].region.is_idle() {
                given += self.regions[at].region.len();
                regions.push(self.regions.remove(at));
            }
        }
        regions
    }

    /// Gets a region with room for `bytes`, if the budget has so much; false if one has to wait for what is
    /// lent.
    fn grow(&mut self, device: &Device, user: MemoryUser, bytes: u64) -> Result<bool> {
        let returned = device.shares().times_returned();
        if self.limit_of != returned || self.regions.iter().all(|lent| lent.region.is_idle()) {
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
            return Ok(false);
        }
        check(limit, max_bytes, bytes)?;
        let fits_one = self.regions.iter().any(|lent| lent.region.len() >= bytes);
        if limit.saturating_sub(self.bytes()) < bytes && !fits_one {
            self.regions.retain(|lent| !lent.region.is_idle());
        }
        let free = limit.saturating_sub(self.bytes());
        if free < bytes {
            return Ok(false);
        }
        let wished = bytes.saturating_mul(TASKS_PER_REGION).min(free);
        let _current = device.make_current()?;
        let get = |bytes| DeviceMemory::new(device, MemoryUser::Tasks, bytes);
        let mut got = get(wished).or_else(|_| get(bytes));
        if got.is_err() && self.regions.iter().any(|lent| lent.region.is_idle()) {
            // Each of these is too small, but together they may suffice.
            self.regions.retain(|lent| !lent.region.is_idle());
            got = get(bytes);
        }
        match got {
            Ok(memory) => {
                let region = Region::new(memory.len());
                self.regions.push(OwnedRegion { memory, region });
                Ok(true)
            }
            // The cache gives back what it has.
            Err(_) if !self.cache_regions.is_empty() => Ok(false),
            Err(error) if self.regions.is_empty() => Err(error),
            Err(error) => {
                // Another process has the memory. (A broken device would report the same, and must not be mistaken for
                // that.) The available memory is used in turn.
                self.limit_bytes = self.bytes();
                self.limit_of = device.shares().times_returned();
                let checked =
                    check(self.limit_bytes.min(max_bytes), max_bytes, bytes).map(|()| false);
                checked.map_err(|refused| Error {
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
mod tests {
    use rockmill_core::ErrorKind;

    use super::*;
    use crate::driver::faults::Faults;
    use crate::driver::{Target, test_target};

    fn device_arena(max_bytes: u64) -> Arc<DeviceArena> {
        let device = Device::open(test_target()).expect("the device opens");
        DeviceArena::new(&device, Some(max_bytes)).expect("a budget")
    }

    fn take(device_arena: &Arc<DeviceArena>, bytes: u64) -> Allocation {
        let taken = device_arena.take(bytes, &CancelToken::new());
        taken.expect("there is room")
    }

    fn waits(device_arena: &Arc<DeviceArena>, bytes: u64) -> bool {
        let state = &mut device_arena.state();
        matches!(
            device_arena.place(state, MemoryUser::Tasks, bytes),
            Ok(None)
        )
    }

    #[test]
    fn the_device_is_asked_once_for_several_tasks() {
        let device_arena = device_arena(1 << 20);
        for round in 0..5 {
            let allocations: Vec<_> = (0..4).map(|_| take(&device_arena, 10_000)).collect();
            let mut starts: Vec<_> = allocations
                .iter()
                .map(|allocation| allocation.as_ptr().addr())
                .collect();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 10_000));
            assert_eq!(device_arena.device.allocations(), 1, "round {round}");
        }
    }

    #[test]
    fn no_more_is_taken_than_the_budget_and_what_never_fits_is_refused() {
        let device_arena = device_arena(64 << 10);
        let first = take(&device_arena, 40 << 10);
        assert!(waits(&device_arena, 32 << 10));
        assert!(device_arena.bytes() <= 64 << 10);
        let error = device_arena
            .take_now(MemoryUser::Tasks, 32 << 10)
            .expect_err("others hold it");
        assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
        let refused = device_arena.take(65 << 10, &CancelToken::new());
        let error = refused.expect_err("it never fits");
        assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
        assert!(error.what.contains("may have 65536"), "{error}");
        drop(first);
        take(&device_arena, 64 << 10);
    }

    #[test]
    fn what_others_have_is_named_and_asked_for_again_once_they_may_have_left() {
        let faults = Faults::none();
        let device = Device::open(Target::Faulty).expect("the host");
        let device_arena = DeviceArena::new(&device, Some(256 << 10)).expect("a budget");
        let small = take(&device_arena, 8 << 10);
        faults.limit_memory(40 << 10);
        let large = || device_arena.take(64 << 10, &CancelToken::new());
        for is_asked in [true, false] {
            let error = large().expect_err("others have it");
            let kind = match is_asked {
                true => ErrorKind::Device,
                false => ErrorKind::Declined(DeclineReason::MemoryBudget),
            };
            assert_eq!(error.kind, kind);
            let named = "may have 32768, since the device gives no more";
            assert!(error.what.contains(named), "{error}");
            let cause = error.what.contains("(cannot get 65536 bytes");
            assert_eq!(cause, is_asked, "{error}");
        }
        faults.end();
        drop(small);
        large().expect("they have left");
    }

    #[test]
    fn a_region_that_is_too_small_makes_room_for_a_larger_one_once_it_is_idle() {
        let device_arena = device_arena(64 << 10);
        let small = take(&device_arena, 8 << 10);
        assert!(waits(&device_arena, 48 << 10));
        drop(small);
        let large = take(&device_arena, 48 << 10);
        drop(large);
        let asked = device_arena.device.allocations();
        for _ in 0..10 {
            take(&device_arena, 8 << 10);
            take(&device_arena, 48 << 10);
        }
        assert_eq!(device_arena.device.allocations(), asked);
    }

    #[test]
    fn who_waits_is_served_in_order_and_small_wishes_do_not_pass_by_large_ones() {
        let device_arena = device_arena(64 << 10);
        let held = take(&device_arena, 32 << 10);
        let order = Mutex::new(Vec::new());
        let queue_of = |len| {
            while device_arena.state().waiting.len() != len {
                std::thread::yield_now();
            }
        };
        let wish = |bytes| {
            let allocation = take(&device_arena, bytes);
            order.lock().expect("no panic").push(bytes);
            drop(allocation);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| wish(64 << 10));
            queue_of(1);
            scope.spawn(|| wish(1 << 10));
            queue_of(2);
            drop(held);
        });
        assert_eq!(*order.lock().expect("no panic"), [64 << 10, 1 << 10]);
    }

    /// A device with 1 MiB, which it reports like a GPU.
    fn small_device(faults: &Faults) -> (Device, Arc<DeviceArena>) {
        faults.simulate_memory(1 << 20);
        let device = Device::open(Target::Faulty).expect("the host");
        let device_arena = DeviceArena::new(&device, None).expect("a budget");
        (device, device_arena)
    }

    #[test]
    fn a_view_gets_what_tasks_hold_once_they_have_ended_and_tasks_keep_an_eighth() {
        let faults = Faults::none();
        let (device, device_arena) = small_device(&faults);
        assert_eq!(device_arena.max_bytes(), (1 << 20) / 5 * 4);
        let held = take(&device_arena, 150 << 10);
        assert_eq!(device_arena.bytes(), 600 << 10, "for the next ones");
        let cancel = CancelToken::new();
        let reserve_all = || device.shares().reserve(&device, 1 << 20, 1, &cancel);
        let reservation = std::thread::scope(|scope| {
            let waiting = scope.spawn(reserve_all);
            while device.shares().excess_bytes(&device) == Ok(0) {
                std::thread::yield_now();
            }
            assert!(
                waits(&device_arena, 150 << 10),
                "the region is to become idle"
            );
            drop(held);
            waiting
                .join()
                .expect("no panic")
                .expect("the task has ended")
        });
        assert_eq!(device_arena.bytes(), 0);
        let get = |bytes| DeviceMemory::of(&device, MemoryUser::Views, Some(&reservation), bytes);
        let table = get((1 << 20) / 8 * 7).expect("it is reserved");
        drop(take(&device_arena, 100 << 10));
        device_arena
            .take(200 << 10, &cancel)
            .expect_err("the view has it");
        drop((table, reservation));
        drop(take(&device_arena, 200 << 10));
        assert!(faults.peak_bytes() <= 1 << 20);
    }

    #[test]
    fn a_limit_of_tasks_does_not_hold_for_loads_of_views_also_if_these_take_more() {
        let faults = Faults::none();
        let (_, device_arena) = small_device(&faults);
        device_arena.limit(Some(64 << 10));
        let cancel = CancelToken::new();
        let take = |user| device_arena.take_for(user, 100 << 10, &cancel);
        take(MemoryUser::Tasks).expect_err("it is above the limit");
        let first = take(MemoryUser::Views).expect("there is memory");
        let more = |user| device_arena.take_now(user, 350 << 10);
        more(MemoryUser::Tasks).expect_err("it is above the limit");
        drop(more(MemoryUser::Views).expect("there is memory"));
        drop(first);
        device_arena.limit(None);
        drop(take(MemoryUser::Tasks).expect("the limit has ended"));
    }

    #[test]
    fn loads_reserve_one_after_another_and_each_takes_what_it_has_reserved() {
        let faults = Faults::none();
        let (device, _reserve) = small_device(&faults);
        let cancel = CancelToken::new();
        let device_arena = |bytes| device.shares().reserve(&device, bytes, 1, &cancel);
        let first = device_arena(500 << 10).expect("it is free");
        let second = device_arena(300 << 10).expect("it is free");
        let get = |of, bytes| DeviceMemory::of(&device, MemoryUser::Views, Some(of), bytes);
        get(&second, 600 << 10).expect_err("500 KiB are reserved for another");
        let of_first = get(&first, 500 << 10).expect("it is reserved");
        std::thread::scope(|scope| {
            let third = scope.spawn(|| device_arena(300 << 10));
            // It takes more than the rest, until the second one ends.
            drop(second);
            third
                .join()
                .expect("no panic")
                .expect("the second has ended");
        });
        let cancelled = CancelToken::new();
        cancelled.cancel();
        let refused = device.shares().reserve(&device, 1, 1, &cancelled);
        assert_eq!(refused.expect_err("cancelled").kind, ErrorKind::Cancelled);
        drop((of_first, first));
        assert_eq!(device.shares().held_bytes(MemoryUser::Views), 0);
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let device_arena = device_arena(64 << 10);
        let _held = take(&device_arena, 64 << 10);
        let cancel = CancelToken::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| device_arena.take(1, &cancel).map(drop));
            while device_arena.state().waiting.is_empty() {
                std::thread::yield_now();
            }
            cancel.cancel();
            let error = waiting.join().expect("no panic").expect_err("cancelled");
            assert_eq!(error.kind, ErrorKind::Cancelled);
        });
        assert!(device_arena.state().waiting.is_empty());
    }
}
