//! A progress bar over the bytes read.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, if that is a terminal; it goes away when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over so many bytes.
    pub fn over(bytes: u64) -> Self {
        const TEMPLATE: &str = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        let bar = ProgressBar::new(bytes);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// The bar itself.
    pub fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Puts the bar where it belongs behind a file, however much of that was read.
    pub fn reached(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
