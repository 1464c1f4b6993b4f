//! Progress indicators on standard error, which are hidden if that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar over the entries to write.
pub fn bar(entries: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("writing {wide_bar} {human_pos}/{human_len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(entries).with_style(style)
}

/// Returns a bar over bytes with a message behind it, which is cut at the width of the terminal.
pub fn bytes(total: u64) -> ProgressBar {
    const TEMPLATE: &str = "{bar:16} {decimal_bytes}/{decimal_total_bytes} {eta} {wide_msg}";
    let style = ProgressStyle::with_template(TEMPLATE);
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Returns an indicator for work of unknown duration.
pub fn spinner(what: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
