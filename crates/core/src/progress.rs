//! How far a task is.

use std::sync::atomic::{AtomicU64, Ordering};

/// What of a task's input lies behind, in stored bytes. Once it is dropped, all of it does.
#[derive(Debug)]
pub struct Progress<'a> {
    left: AtomicU64,
    /// Of all tasks.
    passed: &'a AtomicU64,
}

impl<'a> Progress<'a> {
    /// A task over so many bytes of input, of which none lies behind; `passed` counts for all tasks.
    pub fn new(bytes: u64, passed: &'a AtomicU64) -> Self {
        Self {
            left: AtomicU64::new(bytes),
            passed,
        }
    }

    /// So many more bytes lie behind, as far as there are so many. Backends that read in portions say so
    /// for each, of 16 KiB at least, since all threads share the count.
    pub fn advance(&self, bytes: u64) {
        let take = |left: u64| Some(left.saturating_sub(bytes));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let left = self.left.fetch_update(set, fetch, take).unwrap_or(0);
        self.passed.fetch_add(left.min(bytes), Ordering::Relaxed);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.advance(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_passes_its_bytes_and_no_more() {
        let passed = AtomicU64::new(5);
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
