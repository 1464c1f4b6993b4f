//! Memory in use, checked at every file operation.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use rockmill_compaction::Engine;

use crate::storage::Observer;

/// Observes an engine's memory.
#[derive(Debug)]
pub struct Watch {
    engine: OnceLock<Weak<Engine>>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    budget_bytes: u64,
    /// The budget; after it has shrunk, the memory in use at that time, until enough is released.
    ceiling_bytes: u64,
    max_beyond: u64,
}

impl Watch {
    /// Creates a watch for an engine with that budget.
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            engine: OnceLock::new(),
            seen: Mutex::new(Seen {
                budget_bytes,
                ceiling_bytes: budget_bytes,
                max_beyond: 0,
            }),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic")
    }

    pub fn observe(&self, engine: &Arc<Engine>) {
        self.engine.get_or_init(|| Arc::downgrade(engine));
    }

    /// Does `change`, which changes the budget.
    pub fn resize(&self, budget_bytes: u64, change: impl FnOnce()) {
        // Meanwhile, either limit may apply.
        let shrinks = budget_bytes < self.seen().budget_bytes;
        if !shrinks {
            self.seen().budget_bytes = budget_bytes;
        }
        change();
        self.seen().budget_bytes = budget_bytes;
    }

    /// Returns the maximum of bytes in use beyond the budget.
    pub fn max_beyond(&self) -> u64 {
        self.seen().max_beyond
    }
}

impl Observer for Watch {
    fn look(&self) {
        let Some(engine) = self.engine.get().and_then(Weak::upgrade) else {
            return;
        };
        // Held so that no other thread checks in between.
        let mut seen = self.seen();
        let taken = engine.memory_taken_bytes();
        seen.ceiling_bytes = seen.ceiling_bytes.min(taken).max(seen.budget_bytes);
        seen.max_beyond = seen.max_beyond.max(taken - seen.ceiling_bytes.min(taken));
    }
}
