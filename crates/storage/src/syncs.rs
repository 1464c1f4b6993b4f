//! Waits for syncs until the database closes.
//!
//! The operating system cannot end a sync early, and a sync may take seconds. So each one runs on its own thread. When
//! the database closes, its job stops waiting. The synced file has been unlinked by the time that the sync returns.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rockmill_core::{CancelToken, Error, Lock, Result, thread_cpu};

use crate::clock::CANCEL_POLL;

/// State that the syncs of a job share.
#[derive(Debug, Default)]
pub struct Syncs {
    cancel: CancelToken,
    cpu: Lock<Duration>,
}

impl Syncs {
    /// Creates the syncs of a job that ends early when `cancel` is set.
    pub fn new(cancel: CancelToken) -> Self {
        Self {
            cancel,
            cpu: Lock::default(),
        }
    }

    /// CPU time of the sync threads so far. The callers' own CPU time does not include it.
    pub fn cpu(&self) -> Duration {
        *self.cpu.lock()
    }

    /// Runs `sync` on a thread and waits for it until the job is cancelled. If no thread can be started, the caller
    /// runs `sync` itself, to its end.
    ///
    /// # Errors
    /// Cancelled; Internal if `sync` panics.
    pub fn wait<T: Send + 'static>(&self, sync: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.cancel.check()?;
        let (sender, receiver) = channel();
        // If the thread cannot be started, `spawn` drops its closure, so the sync itself stays in a shared slot.
        let slot = Arc::new(Lock::new(Some(sync)));
        let taken = Arc::clone(&slot);
        let spawned = std::thread::Builder::new()
            .name("rockmill-sync".to_owned())
            .spawn(move || {
                let sync = take(&taken);
                // The caller may have stopped waiting.
                let _ = sync.map(|sync| sender.send((sync(), thread_cpu())));
            });
        if spawned.is_err() {
            return take(&slot)
                .map(|sync| sync())
                .ok_or_else(|| Error::internal("a sync was lost"));
        }
        loop {
            match receiver.recv_timeout(CANCEL_POLL) {
                Ok((done, cpu)) => {
                    *self.cpu.lock() += cpu;
                    return Ok(done);
                }
                Err(RecvTimeoutError::Timeout) => self.cancel.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::internal("a sync panicked"));
                }
            }
        }
    }
}

fn take<T>(slot: &Lock<Option<T>>) -> Option<T> {
    slot.lock().take()
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;

    use super::*;

    #[test]
    fn a_sync_gives_its_result() {
        assert_eq!(Syncs::default().wait(|| 7), Ok(7));
    }

    #[test]
    fn nobody_waits_for_a_sync_once_the_job_is_cancelled() {
        let cancel = CancelToken::new();
        let syncs = Syncs::new(cancel.clone());
        let (release, held) = channel::<()>();
        let (begun, begins) = channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                syncs.wait(move || {
                    begun.send(()).expect("heard");
                    // Returns at the end of the test.
                    let _ = held.recv();
                })
            });
            begins.recv().expect("begun");
            cancel.cancel();
            let error = waiting.join().expect("no panic").expect_err("cancelled");
            assert_eq!(error.kind, ErrorKind::Cancelled);
        });
        drop(release);
        assert!(syncs.wait(|| ()).is_err(), "none is begun afterwards");
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = Syncs::default().wait(|| -> () { panic!("on purpose") });
        assert_eq!(error.expect_err("a panic").kind, ErrorKind::Internal);
    }
}
