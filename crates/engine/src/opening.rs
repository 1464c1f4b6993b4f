//! Opening a GPU while others go on: a context takes some tenths of a second, pinned memory some more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_cuda::CudaBackend;

/// A GPU that a thread of its own opens.
#[derive(Debug)]
pub struct Opening {
    opened: Arc<OnceLock<Result<CudaBackend>>>,
    thread: Option<JoinHandle<()>>,
}

impl Opening {
    /// Begins with `open`, and makes what a first slice would wait for.
    pub fn start(open: impl FnOnce() -> Result<CudaBackend> + Send + 'static) -> Self {
        let opened = Arc::new(OnceLock::new());
        let place = Arc::clone(&opened);
        let work = move || {
            let backend = catch_unwind(AssertUnwindSafe(|| warm(open())));
            let panicked = |_| Err(Error::internal("the thread that opens the GPU panicked"));
            // Nobody else sets it.
            let _ = place.set(backend.unwrap_or_else(panicked));
        };
        let builder = std::thread::Builder::new().name("rockmill-open".to_owned());
        let thread = match builder.spawn(work) {
            Ok(thread) => Some(thread),
            Err(error) => {
                let what = format!("no thread to open the GPU: {error}");
                let _ = opened.set(Err(Error::new(ErrorKind::Device, what)));
                None
            }
        };
        Self { opened, thread }
    }

    /// What came of it, if that is known.
    pub fn get(&self) -> Option<&Result<CudaBackend>> {
        self.opened.get()
    }

    /// Waits until that is known.
    pub fn wait(&self) -> &Result<CudaBackend> {
        self.opened.wait()
    }
}

fn warm(opened: Result<CudaBackend>) -> Result<CudaBackend> {
    let backend = opened?;
    if let Err(error) = backend.warm_up() {
        // The first slice will say so too, if it needs as much.
        tracing::warn!(%error, "the GPU was opened, but has not all that a slice usually needs");
    }
    Ok(backend)
}

impl Drop for Opening {
    /// No thread of ours is left in the driver when the program ends.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic was caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn nobody_waits_for_a_gpu_but_who_wants_to_and_the_end() {
        let (go, gate) = mpsc::channel::<()>();
        let opening = Opening::start(move || {
            // Until the other end is dropped.
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
            Err(Error::cancelled())
        }));
        assert_eq!(ended.try_recv(), Ok(()));
    }

    #[test]
    fn a_panic_is_an_error() {
        let opening = Opening::start(|| panic!("in the driver"));
        let error = opening.wait().as_ref().map(drop).expect_err("it failed");
        assert_eq!(error.kind, ErrorKind::Internal);
    }
}
