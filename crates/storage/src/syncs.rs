//! Waiting until something is durable, no longer than the database is open.
//!
//! The system does not end a sync early, and one may take seconds. So each is done by a thread of its own;
//! when the database closes, nobody waits for it any more, and what it synced has lost its name before it
//! comes back.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rockmill_core::{CancelToken, Error, Result, thread_cpu};

use crate::clock::CANCEL_POLL;

/// What the syncs of a job share.
#[derive(Debug, Default)]
pub struct Syncs {
    cancel: CancelToken,
    cpu: Mutex<Duration>,
}

impl Syncs {
    /// For a job that ends early when `cancel` is set.
    pub fn new(cancel: CancelToken) -> Self {
        Self {
            cancel,
            cpu: Mutex::default(),
        }
    }

    /// Processor time of the syncs so far, none of it the callers'.
    pub fn cpu(&self) -> Duration {
        *self.cpu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `sync` and waits for it, at most until the job is cancelled. Where the system has no more
    /// threads, the caller does it, to its end.
    ///
    /// # Errors
    /// Cancelled; Internal if `sync` panics.
    pub fn wait<T: Send + 'static>(&self, sync: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.cancel.check()?;
        let (sender, receiver) = channel();
        // A thread that could not be started does not give back what it was to do.
        let slot = Arc::new(Mutex::new(Some(sync)));
        let taken = Arc::clone(&slot);
        let spawned = std::thread::Builder::new()
            .name("rockmill-sync".to_owned())
            .spawn(move || {
                let sync = take(&taken);
                // Nobody may be there any more.
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
                    *self.cpu.lock().unwrap_or_else(PoisonError::into_inner) += cpu;
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

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
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
                    // Ends when the test does.
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
