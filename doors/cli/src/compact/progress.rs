//! A progress bar over the bytes that Rockmill's subcompactions have processed.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rockmill::Service;
use rockmill_core::Lock;
use rockmill_side_by_side::progress::bytes;
use rockmill_terminal::output;

/// Interval between two readings of the counters.
const POLL: Duration = Duration::from_millis(100);

/// Runs `work` with a progress bar on standard error, which is hidden if that is not a terminal. The bar starts at
/// `expected_bytes`; if RocksDB compacts level by level, the total grows. `work` gets a function that names the current
/// compaction. `poll` is called repeatedly meanwhile.
pub fn watch<T>(
    service: &Service,
    expected_bytes: u64,
    mut poll: impl FnMut() + Send,
    work: impl FnOnce(&dyn Fn(String)) -> T,
) -> T {
    let bar = bytes(expected_bytes);
    let now = Lock::new(String::new());
    let now = &now;
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let shown = bar.clone();
        scope.spawn(move || {
            while is_done.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                poll();
                let stats = service.stats();
                shown.set_length(expected_bytes.max(stats.bytes_begun));
                shown.set_position(stats.bytes_passed);
                let mut what = now.lock().clone();
                let returned = stats.jobs_declined + stats.jobs_failed;
                if returned > 0 {
                    let jobs = output::count(returned as usize, "job", "jobs");
                    what.push_str(&format!("; RocksDB does {jobs} itself"));
                }
                shown.set_message(what);
            }
        });
        let result = work(&|what| *now.lock() = what);
        drop(done);
        bar.finish_and_clear();
        result
    })
}
