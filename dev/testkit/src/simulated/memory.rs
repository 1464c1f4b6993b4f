//! The amount of a device's memory that tasks use.

use std::collections::VecDeque;
use std::sync::Arc;

use rockmill_core::{CancelToken, Error, ErrorKind, Lock, Result};

use rockmill_storage::clock::CANCEL_POLL;
use rockmill_storage::clock::{Clock, Signal};

/// Memory of all tasks.
#[derive(Debug)]
pub struct Memory {
    bytes: u64,
    state: Lock<State>,
    changed: Signal,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    /// Waiting tasks in order, so that small tasks cannot overtake a large one forever.
    line: VecDeque<u64>,
    next: u64,
}

/// Memory of a task; released when dropped.
#[derive(Debug)]
pub struct ReservedMemory<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    /// Creates unused memory of `bytes` bytes.
    pub fn new(bytes: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            bytes,
            state: Lock::default(),
            changed: Signal::default(),
            clock,
        }
    }

    /// Waits until `bytes` are free.
    ///
    /// # Errors
    /// Device if the device never has that many, Cancelled.
    pub fn take(&self, bytes: u64, cancel: &CancelToken) -> Result<ReservedMemory<'_>> {
        if bytes > self.bytes {
            let most = self.bytes;
            let what = format!("a task needs {bytes} bytes of device memory; there are {most}");
            return Err(Error::new(ErrorKind::Device, what));
        }
        let place = self.queue();
        loop {
            cancel.check()?;
            let seen = self.changed.seen();
            let mut state = self.state.lock();
            if state.line.front() == Some(&place.ticket) && state.used <= self.bytes - bytes {
                state.used += bytes;
                let memory = self;
                return Ok(ReservedMemory { memory, bytes });
            }
            drop(state);
            self.clock.wait(&self.changed, seen, CANCEL_POLL);
        }
    }

    fn queue(&self) -> QueuePosition<'_> {
        let mut state = self.state.lock();
        let ticket = state.next;
        state.next += 1;
        state.line.push_back(ticket);
        QueuePosition {
            memory: self,
            ticket,
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.clock.notify(&self.changed);
    }
}

/// A place in the queue, until it is dropped.
struct QueuePosition<'a> {
    memory: &'a Memory,
    ticket: u64,
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let is_other = |other: &u64| *other != self.ticket;
        self.memory.change(|state| state.line.retain(is_other));
    }
}

impl Drop for ReservedMemory<'_> {
    fn drop(&mut self) {
        self.memory.change(|state| state.used -= self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::VirtualClock;
    use rockmill_storage::clock::Worker;

    #[test]
    fn who_needs_more_than_is_free_waits_and_who_needs_more_than_there_is_is_refused() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let (memory, cancel) = (Memory::new(100, Arc::clone(&clock)), CancelToken::new());
        let refused = memory.take(101, &cancel).expect_err("more than there is");
        assert!(refused.kind == ErrorKind::Device && refused.what.contains("101 bytes"));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let worker = Worker::new(&clock);
                scope.spawn(|| {
                    worker.run(|| {
                        let held = memory.take(60, &cancel).expect("not cancelled");
                        clock.pause(Duration::from_secs(1));
                        drop(held);
                    });
                });
            }
        });
        assert_eq!(clock.now(), Duration::from_secs(3), "one after the other");
        let _all = memory.take(100, &cancel).expect("all was given back");
        cancel.cancel();
        let ended = memory.take(1, &cancel).expect_err("cancelled");
        assert_eq!(ended.kind, ErrorKind::Cancelled);
    }

    #[test]
    fn small_ones_do_not_pass_a_large_one_that_came_before() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let (memory, never) = (Memory::new(100, Arc::clone(&clock)), CancelToken::new());
        let order = Lock::new(Vec::new());
        std::thread::scope(|scope| {
            for (begins, bytes) in [(0, 60), (1, 90), (2, 30), (3, 10)] {
                let worker = Worker::new(&clock);
                let (memory, clock, never, order) = (&memory, &clock, &never, &order);
                scope.spawn(move || {
                    worker.run(|| {
                        clock.pause(Duration::from_secs(begins));
                        let held = memory.take(bytes, never).expect("not cancelled");
                        order.lock().push(bytes);
                        clock.pause(Duration::from_secs(10));
                        drop(held);
                    });
                });
            }
        });
        let order = order.into_inner();
        assert_eq!(order[..2], [60, 90], "{order:?}");
        assert!(memory.state.lock().line.is_empty() && memory.state.lock().used == 0);
    }
}
