//! A progress bar over the bytes that Rockmill's subcompactions have processed.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rockmill::Service;

/// Interval between two readings of the counters.
const POLL: Duration = Duration::from_millis(100);

/// Runs `work` with a progress bar on standard error, which is hidden if that is no terminal. The bar starts at
/// `expected_bytes`; where RocksDB compacts level by level, the total grows.
pub fn watch<T>(service: &Service, expected_bytes: u64, work: impl FnOnce() -> T) -> T {
    let bar = bar(expected_bytes);
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let shown = bar.clone();
        scope.spawn(move || {
            while is_done.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                let stats = service.stats();
                shown.set_length(expected_bytes.max(stats.bytes_begun));
                shown.set_position(stats.bytes_passed);
                let returned = stats.jobs_declined + stats.jobs_failed;
                if returned > 0 {
                    shown.set_message(format!("RocksDB does {returned} itself"));
                }
            }
        });
        let result = work();
        drop(done);
        bar.finish_and_clear();
        result
    })
}

fn bar(bytes: u64) -> ProgressBar {
    const TEMPLATE: &str = "{bar:30} {decimal_bytes}/{decimal_total_bytes} \
                            {decimal_bytes_per_sec} {eta} {msg}";
    let style = ProgressStyle::with_template(TEMPLATE);
    let bar = ProgressBar::new(bytes);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
