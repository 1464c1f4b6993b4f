//! Storage whose jobs stop at a step until the gate is opened.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rockmill_storage::{LocalStorage, Storage};
use rockmill_testkit::hooked::{self, hooked};

/// Step at which jobs stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Before a file's bytes are written.
    Write,
    /// Before a file is synced.
    Sync,
}

#[derive(Debug)]
struct State {
    step: Step,
    is_open: bool,
    waiting: usize,
}

/// A gate, which is closed at first. Clones share it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

impl Gate {
    /// Creates a gate at `step`.
    #[must_use]
    pub fn new(step: Step) -> Self {
        let state = State {
            step,
            is_open: false,
            waiting: 0,
        };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// The system's storage behind the gate.
    #[must_use]
    pub fn storage(&self) -> Arc<dyn Storage> {
        let gate = self.clone();
        hooked(LocalStorage, move |_, step| {
            match step {
                hooked::Step::Write { .. } => gate.pass(Step::Write),
                hooked::Step::Sync => gate.pass(Step::Sync),
                _ => {}
            }
            Ok(())
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, condition: impl FnMut(&mut State) -> bool) {
        let waited = self.0.1.wait_while(self.state(), condition);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until `count` threads have reached the gate.
    pub fn await_threads(&self, count: usize) {
        self.wait_while(|state| state.waiting < count);
    }

    /// Opens the gate permanently.
    pub fn open(&self) {
        self.state().is_open = true;
        self.0.1.notify_all();
    }

    fn pass(&self, step: Step) {
        if self.state().step != step {
            return;
        }
        self.state().waiting += 1;
        self.0.1.notify_all();
        self.wait_while(|state| !state.is_open);
    }
}
