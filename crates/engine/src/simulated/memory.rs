//! A device's memory, as far as slices fill it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rockmill_core::{CancelToken, Error, ErrorKind, Result};

use crate::budget::CANCEL_POLL;
use crate::clock::{Clock, Signal};

/// So many bytes for all slices.
#[derive(Debug)]
pub struct Memory {
    bytes: u64,
    used: Mutex<u64>,
    freed: Signal,
    clock: Arc<dyn Clock>,
}

/// What a slice has; given back when dropped.
#[derive(Debug)]
pub struct Held<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    /// So many bytes, none of them used.
    pub fn new(bytes: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            bytes,
            used: Mutex::default(),
            freed: Signal::default(),
            clock,
        }
    }

    fn used(&self) -> MutexGuard<'_, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `bytes` are free.
    ///
    /// # Errors
    /// Device if there never will be so many, Cancelled.
    pub fn take(&self, bytes: u64, cancel: &CancelToken) -> Result<Held<'_>> {
        if bytes > self.bytes {
            let most = self.bytes;
            let what = format!("a slice needs {bytes} bytes of device memory; there are {most}");
            return Err(Error::new(ErrorKind::Device, what));
        }
        loop {
            cancel.check()?;
            let seen = self.freed.seen();
            let mut used = self.used();
            if *used <= self.bytes - bytes {
                *used += bytes;
                let memory = self;
                return Ok(Held { memory, bytes });
            }
            drop(used);
            self.clock.wait(&self.freed, seen, CANCEL_POLL);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.memory.used() -= self.bytes;
        self.memory.clock.notify(&self.memory.freed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{VirtualClock, Worker};

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
}
