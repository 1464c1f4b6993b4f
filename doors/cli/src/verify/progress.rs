//! A progress bar over the bytes read.

use indicatif::ProgressBar;
use rockmill_side_by_side::progress;

/// A progress bar on standard error, if that is a terminal. Dropping it removes it.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar over `bytes` bytes.
    pub fn over(bytes: u64) -> Self {
        Self {
            bar: progress::bytes(bytes),
        }
    }

    /// Returns the bar.
    pub fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Sets the bar to the end of a file, regardless of how much of the file was read.
    pub fn reached(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
