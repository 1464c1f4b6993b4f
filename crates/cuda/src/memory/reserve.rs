//! Device memory for tasks, of all jobs, within a budget.
//!
//! A task asks for all the memory that it needs at once, before it reads anything, and waits for it. So tasks that hold
//! memory never wait for one another. Waiting tasks are served in order. Memory is got from the device in regions of
//! some tasks each, which stay: once there are as many as tasks run at a time, nothing is asked of the device any more.
//! Regions are given up only for a task that none of them is large enough for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_core::{CancelToken, Error, ErrorKind, Result};

use super::regions::{ALIGNMENT, Region};
use crate::driver::{Device, DeviceMemory};

/// Interval at which a waiting task checks whether its job was cancelled.
pub const CANCEL_POLL: Duration = Duration::from_millis(20);

/// A region has room for so many tasks like the one that it was made for.
const TASKS_PER_REGION: u64 = 4;

/// Maximum share of the device's free memory, unless the user sets a limit.
const USUAL_SHARE: (u64, u64) = (4, 5);

/// Device memory that tasks share.
#[derive(Debug)]
pub struct Reserve {
    device: Device,
    max_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The budget; less while the device does not have so much.
    limit_bytes: u64,
    regions: Vec<Lent>,
    /// Tickets of those who wait.
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Lent {
    memory: DeviceMemory,
    region: Region,
}

/// Memory that a task holds; given back when dropped, with nothing on its way to or from it.
#[derive(Debug)]
pub struct Piece {
    reserve: Arc<Reserve>,
    memory: *mut u8,
    len: u64,
}

// SAFETY: the memory belongs to the piece alone, and the device may be used from any thread.
unsafe impl Send for Piece {}

impl Piece {
    /// Where it begins.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.reserve.device.allow(self.memory, self.len);
        let mut state = self.reserve.state();
        let start = self.memory.addr();
        for lent in &mut state.regions {
            let from = start.wrapping_sub(lent.memory.as_ptr().addr()) as u64;
            if from < lent.region.len() {
                lent.region.give_back(from..from + self.len);
            }
        }
        drop(state);
        self.reserve.changed.notify_all();
    }
}

impl Reserve {
    /// A reserve of `max_bytes`, or of four fifths of what the device has free now.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device, max_bytes: Option<u64>) -> Result<Arc<Self>> {
        let usual = || match device.memory_bytes() {
            // The host tells nothing.
            0 => Ok(u64::MAX),
            _ => Ok(device.free_bytes()? / USUAL_SHARE.1 * USUAL_SHARE.0),
        };
        let max_bytes = max_bytes.map_or_else(usual, Ok)?;
        Ok(Arc::new(Self {
            device: device.clone(),
            max_bytes,
            state: Mutex::new(State {
                limit_bytes: max_bytes,
                regions: Vec::new(),
                waiting: VecDeque::new(),
                next_ticket: 0,
            }),
            changed: Condvar::new(),
        }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that tasks may hold at most.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Bytes that were got from the device.
    pub fn bytes(&self) -> u64 {
        self.state().bytes()
    }

    /// Waits for `bytes` in one piece.
    ///
    /// # Errors
    /// Device if there will never be so much, or others have it; Cancelled.
    pub fn take(self: &Arc<Self>, bytes: u64, cancel: &CancelToken) -> Result<Piece> {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        let taken = loop {
            if cancel.is_cancelled() {
                break Err(Error::cancelled());
            }
            if state.waiting.front() == Some(&ticket)
                && let Some(answer) = self.place(&mut state, bytes).transpose()
            {
                break answer;
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

    /// `bytes` more for somebody who holds memory and must not wait.
    ///
    /// # Errors
    /// Device if there is not so much now.
    pub fn take_now(self: &Arc<Self>, bytes: u64) -> Result<Piece> {
        self.place(&mut self.state(), bytes)?.ok_or_else(|| {
            no_memory(format!(
                "a task needs {bytes} bytes of device memory more than was foreseen, and others hold them"
            ))
        })
    }

    /// A piece, if there is room for it now.
    fn place(self: &Arc<Self>, state: &mut State, bytes: u64) -> Result<Option<Piece>> {
        let bytes = bytes.max(1).saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        let found = match state.find(bytes) {
            None if state.grow(&self.device, self.max_bytes, bytes)? => state.find(bytes),
            found => found,
        };
        Ok(found.map(|memory| {
            self.device.forbid(memory, bytes);
            Piece {
                reserve: Arc::clone(self),
                memory,
                len: bytes,
            }
        }))
    }
}

fn no_memory(what: String) -> Error {
    Error::new(ErrorKind::Device, what)
}

impl State {
    fn bytes(&self) -> u64 {
        self.regions.iter().map(|lent| lent.region.len()).sum()
    }

    fn find(&mut self, bytes: u64) -> Option<*mut u8> {
        self.regions.iter_mut().find_map(|lent| {
            let start = lent.region.take(bytes)?;
            Some(lent.memory.as_ptr().wrapping_add(start as usize))
        })
    }

    /// Gets a region with room for `bytes`, if the budget has so much; false if one has to wait for what is
    /// lent.
    fn grow(&mut self, device: &Device, max_bytes: u64, bytes: u64) -> Result<bool> {
        if self.regions.iter().all(|lent| lent.region.is_idle()) {
            // Others may have left the device by now.
            self.limit_bytes = max_bytes;
        }
        self.check(max_bytes, bytes)?;
        let fits_one = self.regions.iter().any(|lent| lent.region.len() >= bytes);
        if self.limit_bytes.saturating_sub(self.bytes()) < bytes && !fits_one {
            self.regions.retain(|lent| !lent.region.is_idle());
        }
        let free = self.limit_bytes.saturating_sub(self.bytes());
        if free < bytes {
            return Ok(false);
        }
        let wished = bytes.saturating_mul(TASKS_PER_REGION).min(free);
        let _current = device.make_current()?;
        let memory = DeviceMemory::new(device, wished);
        match memory.or_else(|_| DeviceMemory::new(device, bytes)) {
            Ok(memory) => {
                let region = Region::new(memory.len());
                self.regions.push(Lent { memory, region });
                Ok(true)
            }
            Err(error) if self.regions.is_empty() => Err(error),
            Err(error) => {
                // Another process has it, or the device is broken, which must not be mistaken for that. The memory at
                // hand is used in turn.
                self.limit_bytes = self.bytes();
                let checked = self.check(max_bytes, bytes).map(|()| false);
                checked.map_err(|refused| no_memory(format!("{} ({})", refused.what, error.what)))
            }
        }
    }

    /// Whether a budget of `max_bytes` can ever have `bytes`, or can while others hold the rest.
    fn check(&self, max_bytes: u64, bytes: u64) -> Result<()> {
        let limit = self.limit_bytes;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::faults::Faults;
    use crate::driver::{Target, test_target};

    fn reserve(max_bytes: u64) -> Arc<Reserve> {
        let device = Device::open(test_target()).expect("the device opens");
        Reserve::new(&device, Some(max_bytes)).expect("a budget")
    }

    fn take(reserve: &Arc<Reserve>, bytes: u64) -> Piece {
        let taken = reserve.take(bytes, &CancelToken::new());
        taken.expect("there is room")
    }

    fn waits(reserve: &Arc<Reserve>, bytes: u64) -> bool {
        let state = &mut reserve.state();
        matches!(reserve.place(state, bytes), Ok(None))
    }

    #[test]
    fn the_device_is_asked_once_for_several_tasks() {
        let reserve = reserve(1 << 20);
        for round in 0..5 {
            let pieces: Vec<_> = (0..4).map(|_| take(&reserve, 10_000)).collect();
            let mut starts: Vec<_> = pieces.iter().map(|piece| piece.as_ptr().addr()).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 10_000));
            assert_eq!(reserve.device.allocations(), 1, "round {round}");
        }
    }

    #[test]
    fn no_more_is_taken_than_the_budget_and_what_never_fits_is_refused() {
        let reserve = reserve(64 << 10);
        let first = take(&reserve, 40 << 10);
        assert!(waits(&reserve, 32 << 10));
        assert!(reserve.bytes() <= 64 << 10);
        let error = reserve.take_now(32 << 10).expect_err("others hold it");
        assert_eq!(error.kind, ErrorKind::Device);
        let refused = reserve.take(65 << 10, &CancelToken::new());
        let error = refused.expect_err("it never fits");
        assert_eq!(error.kind, ErrorKind::Device);
        assert!(error.what.contains("may have 65536"), "{error}");
        drop(first);
        take(&reserve, 64 << 10);
    }

    #[test]
    fn what_others_have_is_named_and_asked_for_again_once_they_may_have_left() {
        let faults = Faults::none();
        let device = Device::open(Target::Faulty).expect("the host");
        let reserve = Reserve::new(&device, Some(256 << 10)).expect("a budget");
        let small = take(&reserve, 8 << 10);
        faults.limit_memory(40 << 10);
        let large = || reserve.take(64 << 10, &CancelToken::new());
        for is_asked in [true, false] {
            let error = large().expect_err("others have it");
            assert_eq!(error.kind, ErrorKind::Device);
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
        let reserve = reserve(64 << 10);
        let small = take(&reserve, 8 << 10);
        assert!(waits(&reserve, 48 << 10));
        drop(small);
        let large = take(&reserve, 48 << 10);
        drop(large);
        let asked = reserve.device.allocations();
        for _ in 0..10 {
            take(&reserve, 8 << 10);
            take(&reserve, 48 << 10);
        }
        assert_eq!(reserve.device.allocations(), asked);
    }

    #[test]
    fn who_waits_is_served_in_order_and_small_wishes_do_not_pass_by_large_ones() {
        let reserve = reserve(64 << 10);
        let held = take(&reserve, 32 << 10);
        let order = Mutex::new(Vec::new());
        let queue_of = |len| {
            while reserve.state().waiting.len() != len {
                std::thread::yield_now();
            }
        };
        let wish = |bytes| {
            let piece = take(&reserve, bytes);
            order.lock().expect("no panic").push(bytes);
            drop(piece);
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

    #[test]
    fn waiting_ends_when_cancelled() {
        let reserve = reserve(64 << 10);
        let _held = take(&reserve, 64 << 10);
        let cancel = CancelToken::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| reserve.take(1, &cancel).map(drop));
            while reserve.state().waiting.is_empty() {
                std::thread::yield_now();
            }
            cancel.cancel();
            let error = waiting.join().expect("no panic").expect_err("cancelled");
            assert_eq!(error.kind, ErrorKind::Cancelled);
        });
        assert!(reserve.state().waiting.is_empty());
    }
}
