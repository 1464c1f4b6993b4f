//! A file system in which another process writes while files are listed, opened and read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rockmill_storage::{LocalStorage, Storage};
use rockmill_testkit::hooked::{Step, hooked};

/// The system's storage. It calls a function before steps in which files are listed, opened and read.
#[derive(Debug)]
pub struct Busy {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    steps_left: Arc<AtomicUsize>,
}

impl Busy {
    /// Calls `write` once, after `steps` steps.
    #[must_use]
    pub fn after(steps: usize, write: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(steps, usize::MAX, write)
    }

    /// Calls `write` after every `interval` steps.
    #[must_use]
    pub fn every(interval: usize, write: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(interval, interval, write)
    }

    fn new(steps: usize, interval: usize, write: impl Fn() + Send + Sync + 'static) -> Self {
        let steps_left = Arc::new(AtomicUsize::new(steps));
        let left = Arc::clone(&steps_left);
        let storage = hooked(LocalStorage, move |_, step| {
            if matches!(step, Step::Read) && left.fetch_sub(1, Ordering::Relaxed) == 0 {
                left.store(interval, Ordering::Relaxed);
                write();
            }
            Ok(())
        });
        Self {
            storage,
            steps_left,
        }
    }

    /// Whether the function was called.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.steps_left.load(Ordering::Relaxed) > usize::MAX / 2
    }
}
