//! How far a task is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the stored bytes of a task's input that have been read. Once it is dropped, all of them count.
#[derive(Debug)]
pub struct Progress {
    left: AtomicU64,
    passed: Arc<AtomicU64>,
}

impl Progress {
    /// A task over `bytes` bytes of input, none of which has been read. `passed` is the sum over all tasks.
    pub fn new(bytes: u64, passed: &Arc<AtomicU64>) -> Self {
        Self {
            left: AtomicU64::new(bytes),
            passed: Arc::clone(passed),
        }
    }

    /// Counts `bytes` more, at most those that are left. Backends call it for portions of 16 KiB at least, since all
    /// threads share the sum.
    pub fn advance(&self, bytes: u64) {
        let take = |left: u64| Some(left.saturating_sub(bytes));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let left = self.left.fetch_update(set, fetch, take).unwrap_or(0);
        self.passed.fetch_add(left.min(bytes), Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.advance(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_passes_its_bytes_and_no_more() {
        let passed = Arc::new(AtomicU64::new(5));
        let now = || passed.load(Ordering::Relaxed);
        let progress = Progress::new(100, &passed);
        progress.advance(30);
        assert_eq!(now(), 35);
        progress.advance(90);
        assert_eq!(now(), 105);
        drop(progress);
        drop(Progress::new(7, &passed));
        assert_eq!(now(), 112);
    }
}
