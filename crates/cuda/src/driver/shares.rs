//! Device memory of a process by its users: tasks, and views.
//!
//! ```text
//!   free memory of the device
//!     - what loads of views have reserved and not taken yet
//!     - what a load waits for
//!     = what tasks may take
//! ```
//!
//! Every allocation is counted here. Memory of tasks is freed when they end; memory of a view when the view is dropped.
//! So before a view is loaded, [`MemoryShares::reserve`] reserves its maximum memory, and waits until tasks have freed
//! the memory that they hold beyond the rest. An eighth of the memory is left to tasks. A running load waits for no
//! memory, so all loads end.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, PoisonError, Weak};
use std::time::{Duration, Instant};

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, Lock, Result};

use super::device::Device;

/// Interval at which a thread that waits for memory checks whether its job was cancelled.
pub const CANCEL_POLL: Duration = Duration::from_millis(20);

/// Reservations leave 1/`TASKS_SHARE` of the memory of this process to tasks.
const TASKS_SHARE: u64 = 8;

/// How long the first load in the queue waits for tasks and running loads. One whose call hangs gives nothing back.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Users of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUser {
    /// Tasks, which free their memory when they end.
    Tasks,
    /// Views, and their further buffers.
    Views,
}

/// The memory of one device by its users. Clones of a [`Device`] have the same.
#[derive(Debug, Default)]
pub struct MemoryShares {
    state: Lock<State>,
    changed: Condvar,
    /// The owner of memory of tasks that have ended.
    idle: Lock<Option<Weak<dyn IdleMemory>>>,
}

/// Memory that is kept for later tasks.
pub trait IdleMemory: Debug + Send + Sync {
    /// Frees at least `bytes` bytes on the device, or all that no task uses.
    fn give_back(&self, bytes: u64);
}

#[derive(Debug, Default)]
struct State {
    /// Bytes by user.
    held: [u64; 2],
    /// Reservations, each until its load ends.
    granted: Vec<Granted>,
    /// Loads that wait for their reservation, in the order of their requests.
    waiting: VecDeque<Waiting>,
    next: u64,
    /// Bytes that are being given back. The device may count them as free already.
    releasing_bytes: u64,
    /// Counts what may give tasks more room.
    returned: u64,
}

#[derive(Debug)]
struct Granted {
    number: u64,
    left_bytes: u64,
    task_bytes: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    /// Bytes that tasks must leave to it; 0 while it waits for another load to end.
    bytes: u64,
    /// Time from which it was the first in the queue.
    first_since: Option<Instant>,
}

/// Memory that is reserved for a view until this is dropped. Allocations from it stay with the view.
#[derive(Debug)]
pub struct Reservation {
    shares: Arc<MemoryShares>,
    number: u64,
}

impl State {
    /// Free bytes without those that are being given back; `None` if the device does not say.
    fn free_bytes(&self, device: &Device) -> Result<Option<u64>> {
        let free = device.known_free_bytes()?;
        Ok(free.map(|free| free.saturating_sub(self.releasing_bytes)))
    }

    fn reserved_bytes(&self) -> u64 {
        self.granted.iter().map(|granted| granted.left_bytes).sum()
    }

    /// Bytes that tasks must leave free.
    fn promised_bytes(&self) -> u64 {
        let waiting = self.waiting.front().map_or(0, |waiting| waiting.bytes);
        self.reserved_bytes().saturating_add(waiting)
    }

    /// Bytes that a user may take of `free` bytes, from its reservation and beyond it. Views take little without one:
    /// buffers of a lookup, a set of changed keys.
    fn room(&self, user: MemoryUser, reservation: Option<u64>, free: u64) -> u64 {
        let of_others = match (user, reservation) {
            (MemoryUser::Tasks, _) => self.promised_bytes(),
            (MemoryUser::Views, None) => 0,
            (MemoryUser::Views, Some(own)) => {
                let others = self.granted.iter().filter(|granted| granted.number != own);
                others.map(|granted| granted.left_bytes).sum()
            }
        };
        free.saturating_sub(of_others)
    }

    /// Bytes that can be reserved if tasks keep only their share, which is enough for a task of `task_bytes` and of
    /// each running load.
    fn reachable_bytes(&self, free: u64, task_bytes: u64) -> u64 {
        let [tasks, views] = self.held;
        let share = free.saturating_add(tasks).saturating_add(views) / TASKS_SHARE;
        let tasks_of_loads = self.granted.iter().map(|granted| granted.task_bytes);
        let share = tasks_of_loads.fold(share.max(task_bytes), u64::max);
        let without_views = free.saturating_add(tasks);
        without_views.saturating_sub(self.reserved_bytes().saturating_add(share))
    }

    /// Whether a load is the first in the queue at `now`; if so, how long it has been.
    fn waited_as_first(&mut self, number: u64, now: Instant) -> Option<Duration> {
        let first = self.waiting.front_mut()?;
        (first.number == number).then(|| now - *first.first_since.get_or_insert(now))
    }

    fn take(&mut self, user: MemoryUser, reservation: Option<u64>, bytes: u64) {
        self.held[user as usize] += bytes;
        let mut granted = self.granted.iter_mut();
        if let Some(granted) = granted.find(|granted| Some(granted.number) == reservation) {
            granted.left_bytes = granted.left_bytes.saturating_sub(bytes);
        }
    }
}

impl MemoryShares {
    /// Bytes that a user holds.
    pub fn held_bytes(&self, user: MemoryUser) -> u64 {
        self.state.lock().held[user as usize]
    }

    /// Sets the owner of memory of tasks that have ended.
    pub(crate) fn keeps_idle(&self, idle: Weak<dyn IdleMemory>) {
        *self.idle.lock() = Some(idle);
    }

    /// Frees unused memory of tasks on the device, at least `bytes` if there is as much.
    pub fn take_idle(&self, bytes: u64) {
        let idle = self.idle.lock().clone();
        if let Some(idle) = idle.and_then(|idle| idle.upgrade()) {
            idle.give_back(bytes);
        }
    }

    /// Allocates memory with `allocate`, unless others have reserved the free memory.
    ///
    /// # Errors
    /// Declined for tasks and Device for views if they have; those of `allocate`.
    pub(super) fn allocate<T>(
        &self,
        device: &Device,
        user: MemoryUser,
        reservation: Option<&Reservation>,
        bytes: u64,
        allocate: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let number = reservation.map(|reservation| reservation.number);
        let mut state = self.state.lock();
        // Without reservations, the device decides.
        if state.promised_bytes() > 0
            && let Some(free) = device.known_free_bytes()?
        {
            let room = state.room(user, number, free);
            if bytes > room {
                let what = format!(
                    "cannot get {bytes} bytes of device memory: {free} are free, of which views that are loaded now have \
                     reserved {}",
                    free - room
                );
                return Err(match user {
                    // The CPU can do the task.
                    MemoryUser::Tasks => Error::declined(DeclineReason::MemoryBudget, what),
                    MemoryUser::Views => Error::new(ErrorKind::Device, what),
                });
            }
        }
        let memory = allocate()?;
        state.take(user, number, bytes);
        Ok(memory)
    }

    /// Counts memory that is being given back to the device, until [`MemoryShares::returned`].
    pub(super) fn releasing(&self, bytes: u64) {
        self.state.lock().releasing_bytes += bytes;
    }

    /// Counts memory that was given back to the device.
    pub(super) fn returned(&self, user: MemoryUser, bytes: u64) {
        let mut state = self.state.lock();
        state.held[user as usize] -= bytes;
        state.releasing_bytes -= bytes;
        state.returned += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Whether memory is being given back to the device, so that it will soon have more.
    pub(crate) fn is_releasing(&self) -> bool {
        self.state.lock().releasing_bytes > 0
    }

    /// Number of times that memory was freed, or a reservation has ended. If it has changed, tasks may find more room.
    pub(crate) fn times_returned(&self) -> u64 {
        self.state.lock().returned
    }

    /// Bytes that tasks hold and must free for a waiting load.
    ///
    /// # Errors
    /// Device.
    pub(crate) fn excess_bytes(&self, device: &Device) -> Result<u64> {
        let state = self.state.lock();
        if state
            .waiting
            .front()
            .is_none_or(|waiting| waiting.bytes == 0)
        {
            return Ok(0);
        }
        let free = device.known_free_bytes()?;
        Ok(free.map_or(0, |free| state.promised_bytes().saturating_sub(free)))
    }

    /// Bytes that tasks may take in addition. `None` if nothing is reserved, or the device does not report its free
    /// memory.
    ///
    /// # Errors
    /// Device.
    pub(crate) fn room_for_tasks(&self, device: &Device) -> Result<Option<u64>> {
        let state = self.state.lock();
        if state.promised_bytes() == 0 {
            return Ok(None);
        }
        let free = state.free_bytes(device)?;
        Ok(free.map(|free| state.room(MemoryUser::Tasks, None, free)))
    }

    /// Bytes that the cache of files may take in addition, so that `left_free` bytes stay free.
    ///
    /// # Errors
    /// Device.
    pub(crate) fn room_for_cache(&self, device: &Device, left_free: u64) -> Result<u64> {
        let state = self.state.lock();
        let free = state.free_bytes(device)?;
        let room = |free| state.room(MemoryUser::Tasks, None, free);
        Ok(free.map_or(u64::MAX, |free| room(free).saturating_sub(left_free)))
    }

    /// Bytes that a view may take if it is the only one that is loaded: free memory, and memory that tasks can free.
    /// `None` if the device does not report its free memory.
    ///
    /// # Errors
    /// Device.
    pub fn for_views(&self, device: &Device) -> Result<Option<u64>> {
        let tasks = self.held_bytes(MemoryUser::Tasks);
        let free = device.known_free_bytes()?;
        Ok(free.map(|free| free.saturating_add(tasks)))
    }

    /// Reserves `bytes` for a view, and waits until tasks have freed them. If there is less, reserves all of it. The
    /// tasks that load the view take up to `task_bytes` each. The caller must hold no memory of a task.
    ///
    /// # Errors
    /// Device, Cancelled.
    pub fn reserve(
        self: &Arc<Self>,
        device: &Device,
        bytes: u64,
        task_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<Reservation> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting {
            number,
            bytes: 0,
            first_since: None,
        });
        let reserved = loop {
            if cancel.is_cancelled() {
                break Err(Error::cancelled());
            }
            if let Some(waited) = state.waited_as_first(number, Instant::now()) {
                let free = match state.free_bytes(device) {
                    Ok(Some(free)) => free,
                    Ok(None) => break Ok(0),
                    Err(error) => break Err(error),
                };
                let target = state.reachable_bytes(free, task_bytes).min(bytes);
                let room = free.saturating_sub(state.reserved_bytes());
                let waits_for_loads = target < bytes && !state.granted.is_empty();
                if !waits_for_loads && target <= room || waited > MAX_WAIT {
                    break Ok(target.min(room));
                }
                let target = if waits_for_loads { 0 } else { target };
                if let Some(first) = state.waiting.front_mut() {
                    first.bytes = target;
                }
                let missing = state.promised_bytes().saturating_sub(free);
                drop(state);
                self.take_idle(missing);
                state = self.state.lock();
            }
            let waited = self.changed.wait_timeout(state, CANCEL_POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting.retain(|waiting| waiting.number != number);
        if let Ok(left_bytes) = reserved {
            state.granted.push(Granted {
                number,
                left_bytes,
                task_bytes,
            });
        }
        state.returned += 1;
        drop(state);
        self.changed.notify_all();
        reserved.map(|_| Reservation {
            shares: Arc::clone(self),
            number,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        state
            .granted
            .retain(|granted| granted.number != self.number);
        state.returned += 1;
        drop(state);
        self.shares.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_of_a_load_counts_from_when_it_is_the_first_in_the_queue() {
        let mut state = State::default();
        for number in 0..2 {
            state.waiting.push_back(Waiting {
                number,
                bytes: 0,
                first_since: None,
            });
        }
        let start = Instant::now();
        assert_eq!(state.waited_as_first(0, start), Some(Duration::ZERO));
        let later = start + 2 * MAX_WAIT;
        assert_eq!(state.waited_as_first(1, later), None);
        assert_eq!(state.waited_as_first(0, later), Some(2 * MAX_WAIT));
        state.waiting.pop_front();
        assert_eq!(state.waited_as_first(1, later), Some(Duration::ZERO));
        let end = later + MAX_WAIT;
        assert_eq!(state.waited_as_first(1, end), Some(MAX_WAIT));
    }
}
