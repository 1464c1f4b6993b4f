//! Properties of the machine, and resources of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Number of all cores.
pub fn usual_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Returns the name of the processor, or the architecture if it has none.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim())
        .to_owned()
}

/// CPU time of all threads of this process.
pub fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}
