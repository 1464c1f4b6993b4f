//! Opens devices in the background: a GPU's context takes some tenths of a second, and pinned memory adds to that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rockmill_core::{Error, ErrorKind, Result};

use crate::dispatch::carried;

/// A value that a separate thread opens.
#[derive(Debug)]
pub struct Opening<T> {
    opened: Arc<OnceLock<Result<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + Sync + 'static> Opening<T> {
    /// Calls `open` on a new thread.
    pub fn start(open: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        let opened = Arc::new(OnceLock::new());
        let place = Arc::clone(&opened);
        let work = move || {
            let result = catch_unwind(AssertUnwindSafe(open));
            let panicked = |_| Err(Error::internal("the thread that opens it panicked"));
            // Only this thread sets it.
            let _ = place.set(result.unwrap_or_else(panicked));
        };
        let builder = std::thread::Builder::new().name("rockmill-open".to_owned());
        let thread = match builder.spawn(carried(work)) {
            Ok(thread) => Some(thread),
            Err(error) => {
                let what = format!("cannot start a thread to open it: {error}");
                let _ = opened.set(Err(Error::new(ErrorKind::Device, what)));
                None
            }
        };
        Self { opened, thread }
    }

    /// Returns the result, once it is known.
    pub fn get(&self) -> Option<&Result<T>> {
        self.opened.get()
    }

    /// Waits for the result.
    pub fn wait(&self) -> &Result<T> {
        self.opened.wait()
    }
}

impl<T> Drop for Opening<T> {
    /// Waits for the thread, so that none is inside the driver when the program ends.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The panic was caught in the thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn nobody_waits_for_a_device_but_who_wants_to_and_the_end() {
        let (go, gate) = mpsc::channel::<()>();
        let opening: Opening<()> = Opening::start(move || {
            // Until the sender is dropped.
            let _ = gate.recv();
            Err(Error::new(ErrorKind::Device, "no driver"))
        });
        assert!(opening.get().is_none());
        drop(go);
        let error = opening.wait().as_ref().map(drop).expect_err("it failed");
        assert_eq!(error.what, "no driver");
        let (end, ended) = mpsc::channel();
        drop(Opening::start(move || {
            end.send(()).expect("it is waited for");
            Ok(())
        }));
        assert_eq!(ended.try_recv(), Ok(()));
    }

    #[test]
    fn a_panic_is_an_error() {
        let opening: Opening<()> = Opening::start(|| panic!("in the driver"));
        let error = opening.wait().as_ref().map(drop).expect_err("it failed");
        assert_eq!(error.kind, ErrorKind::Internal);
    }
}
