//! The machine, and what this process takes of it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// All cores.
pub fn usual_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// The processor's name, or its architecture if it tells none.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim())
        .to_owned()
}

/// Processor time of all threads of this process.
pub fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}
