//! Threads that keep CPUs busy for a share of their time, like other programs on a machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A thread works for its share of this period, then sleeps for the rest.
const PERIOD: Duration = Duration::from_millis(10);
const PERCENT: u32 = 100;

/// One thread per core. The threads end when this is dropped.
#[derive(Debug)]
pub struct CpuLoad {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// CPU time of all threads so far.
    cpu_nanos: AtomicU64,
}

impl CpuLoad {
    /// Starts threads that use `percent` of the time of `cores` cores; none at 0.
    pub fn start(cores: u32, percent: u32) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = if percent == 0 { 0 } else { cores };
        let start = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || burn(&shared, PERIOD * percent / PERCENT))
        };
        Self {
            threads: (0..threads).map(start).collect(),
            shared,
        }
    }

    /// CPU time that they have used; up to one period per thread is not counted yet.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.shared.cpu_nanos.load(Ordering::Relaxed))
    }
}

impl Drop for CpuLoad {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn burn(shared: &Shared, busy: Duration) {
    let mut told = Duration::ZERO;
    while !shared.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        while began.elapsed() < busy {
            std::hint::spin_loop();
        }
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32);
        let more = cpu.saturating_sub(told).as_nanos() as u64;
        shared.cpu_nanos.fetch_add(more, Ordering::Relaxed);
        told = cpu;
        thread::sleep(PERIOD.saturating_sub(began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burners_take_time_if_they_are_told_to() {
        let idle = CpuLoad::start(2, 0);
        let busy = CpuLoad::start(2, 50);
        while busy.cpu() == Duration::ZERO {
            thread::yield_now();
        }
        assert_eq!(idle.cpu(), Duration::ZERO);
    }
}
