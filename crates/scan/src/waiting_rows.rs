//! Rows that pieces have passed on and that no query has taken yet.
//!
//! A task returns its memory when it ends, but its rows stay until a query takes them. A query may take them late: a join
//! reads one side first. So nothing may wait for this memory. Pieces are cut smaller instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows of pieces that are smaller than this are not worth a cut.
const MIN_BYTES: u64 = 1 << 20;

/// The waiting rows of an engine.
#[derive(Debug)]
pub struct WaitingRows {
    /// Maximum bytes of the rows.
    bytes: u64,
    taken: Arc<AtomicU64>,
}

impl WaitingRows {
    /// The share 1/`SHARE` of an engine's memory is for these rows.
    pub const SHARE: u64 = 4;

    /// Creates room for `bytes` bytes of rows.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            taken: Arc::default(),
        }
    }

    /// Maximum bytes of rows of the next piece while `threads` pieces run at the same time.
    pub fn most_bytes(&self, threads: usize) -> u64 {
        /// A query takes one piece while the thread runs the next one.
        const PIECES_OF_A_THREAD: u64 = 2;
        let share = self.bytes / (PIECES_OF_A_THREAD * threads.max(1) as u64);
        let free = self
            .bytes
            .saturating_sub(self.taken.load(Ordering::Relaxed));
        share.min(free).max(MIN_BYTES)
    }

    /// Takes `bytes` bytes.
    pub fn take(&self, bytes: u64) -> RowsRoom {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        RowsRoom {
            of: Arc::clone(&self.taken),
            bytes,
        }
    }
}

/// Memory of rows, until it is dropped.
#[derive(Debug)]
pub struct RowsRoom {
    of: Arc<AtomicU64>,
    bytes: u64,
}

impl RowsRoom {
    /// Sets the bytes to the size of the rows.
    pub fn set(&mut self, bytes: u64) {
        self.of.fetch_add(bytes, Ordering::Relaxed);
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for RowsRoom {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_share_until_too_few_bytes_are_free() {
        let rows = WaitingRows::new(80 << 20);
        assert_eq!(rows.most_bytes(2), 20 << 20);
        let mut first = rows.take(50 << 20);
        let second = rows.take(15 << 20);
        assert_eq!(rows.most_bytes(2), 15 << 20);
        first.set(70 << 20);
        assert_eq!(rows.most_bytes(2), MIN_BYTES);
        drop(second);
        assert_eq!(rows.most_bytes(2), 10 << 20);
        drop(first);
        assert_eq!(rows.most_bytes(1), 40 << 20);
        assert_eq!(rows.most_bytes(1000), MIN_BYTES);
    }
}
