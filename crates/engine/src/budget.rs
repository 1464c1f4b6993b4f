//! How much may run at once: slices and their memory, over all jobs of an engine.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_core::{CancelToken, Result};

/// How often whoever waits looks whether the job was cancelled.
pub const CANCEL_POLL: Duration = Duration::from_millis(20);

/// Slots and bytes that slices hold while they run.
#[derive(Debug)]
pub struct Budget {
    slots: usize,
    bytes: u64,
    used: Mutex<Used>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Used {
    slots: usize,
    bytes: u64,
}

/// What a running slice holds; given back when dropped.
#[derive(Debug)]
pub struct Grant<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of `slots` slices and `bytes` bytes.
    pub fn new(slots: usize, bytes: u64) -> Self {
        Self {
            slots: slots.max(1),
            bytes,
            used: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Slices at once.
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot and `bytes` bytes, which must not be more than there are.
    ///
    /// # Errors
    /// Cancelled.
    pub fn acquire(&self, bytes: u64, cancel: &CancelToken) -> Result<Grant<'_>> {
        let bytes = bytes.min(self.bytes);
        let mut used = self.used();
        while used.slots >= self.slots || used.bytes + bytes > self.bytes {
            cancel.check()?;
            used = self
                .freed
                .wait_timeout(used, CANCEL_POLL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        used.slots += 1;
        used.bytes += bytes;
        Ok(Grant {
            budget: self,
            bytes,
        })
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        used.slots -= 1;
        used.bytes -= self.bytes;
        drop(used);
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_waits_until_memory_is_given_back() {
        let budget = Budget::new(4, 100);
        let cancel = CancelToken::new();
        let first = budget.acquire(80, &cancel).expect("free");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.acquire(30, &cancel).map(|_| ()));
            drop(first);
            waiting.join().expect("no panic").expect("given");
        });
        assert_eq!(budget.used().bytes, 0);
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let budget = Budget::new(1, 100);
        let cancel = CancelToken::new();
        let _held = budget.acquire(1, &cancel).expect("free");
        cancel.cancel();
        assert!(budget.acquire(1, &cancel).is_err());
    }
}
