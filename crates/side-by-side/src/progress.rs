//! Progress indicators on standard error, which are hidden if that is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar over the entries to write.
pub fn bar(entries: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("writing {wide_bar} {human_pos}/{human_len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(entries).with_style(style)
}

/// Returns an indicator for work of unknown duration.
pub fn spinner(what: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
