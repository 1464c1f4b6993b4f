//! Learned times of tasks on each device.

use std::collections::BTreeMap;

use rockmill_core::Lock;
use rockmill_format::compression::{CompressionType, Implementation};

/// Name of the CPU among devices.
pub const CPU: &str = "cpu";

/// Properties that determine a task's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskSize {
    /// Stored bytes of its input.
    pub bytes: u64,
    /// Entries of its input.
    pub entries: u64,
    /// Compression of the output's blocks, and who runs it. On the CPU, Rockmill's own code takes several times as long
    /// as a library. `None` for a task of a scan, which writes no blocks.
    pub compression: Option<(CompressionType, Implementation)>,
}

/// Known sizes of a job's tasks before they run.
#[derive(Debug)]
pub struct JobSize {
    /// Size of all inputs.
    all: TaskSize,
    tasks: u64,
    /// Stored bytes of all tasks' inputs. A block that two tasks share counts for both.
    bytes: u64,
}

impl JobSize {
    /// Creates the size of a job with inputs of the size `all` together, and with those stored bytes of each task.
    pub fn new(all: TaskSize, task_bytes: &[u64]) -> Self {
        Self {
            all,
            tasks: (task_bytes.len() as u64).max(1),
            bytes: task_bytes.iter().fold(0, |a, b| a.saturating_add(*b)),
        }
    }

    /// Returns the size of a task with that many stored bytes.
    pub fn of(&self, bytes: u64) -> TaskSize {
        let share = bytes as f64 / self.all.bytes.max(1) as f64;
        TaskSize {
            bytes,
            entries: (self.all.entries as f64 * share) as u64,
            ..self.all
        }
    }

    /// Returns the size of a mean task.
    pub fn mean(&self) -> TaskSize {
        self.of(self.bytes / self.tasks)
    }

    /// Stored bytes of all tasks' inputs.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Throughput of a device: seconds for a byte and for an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Throughput {
    byte: f64,
    entry: f64,
}

/// Measured on the CPU: 0.34 ns per byte and 245 ns per entry.
const CPU_THROUGHPUT: Throughput = Throughput {
    byte: 0.34e-9,
    entry: 245e-9,
};

/// Speed of a device relative to the CPU that is assumed before its first task.
const FIRST_SPEEDUP: f64 = 3.0;

/// A task of fewer bytes counts as one of these: its time is that of opening files and calling the device, which tells
/// little about larger tasks.
const LEAST_BYTES: u64 = 1 << 20;

/// Weight of the latest task against all earlier ones.
const WEIGHT: f64 = 0.25;

impl Throughput {
    fn seconds(self, size: &TaskSize) -> f64 {
        let bytes = size.bytes.max(LEAST_BYTES) as f64;
        let seconds = self.byte * bytes + self.entry * size.entries as f64;
        seconds.max(f64::MIN_POSITIVE)
    }

    fn times(self, factor: f64) -> Self {
        Self {
            byte: self.byte * factor,
            entry: self.entry * factor,
        }
    }

    /// Adjusts both rates towards a measured time, by the smallest change. An entry counts as the number of bytes that
    /// take the CPU the same time.
    fn learn(&mut self, size: &TaskSize, seconds: f64) {
        const BYTES_PER_ENTRY: f64 = CPU_THROUGHPUT.entry / CPU_THROUGHPUT.byte;
        let bytes = size.bytes.max(LEAST_BYTES) as f64;
        let entries = size.entries as f64 * BYTES_PER_ENTRY;
        let step = WEIGHT * (seconds - self.seconds(size)) / (bytes * bytes + entries * entries);
        self.byte = (self.byte + step * bytes).max(0.0);
        self.entry = (self.entry + step * entries * BYTES_PER_ENTRY).max(0.0);
    }
}

/// A device and [`TaskSize::compression`].
type Key = (String, Option<(CompressionType, Implementation)>);

/// Throughputs of all devices, by compression, and of scans.
#[derive(Debug, Default)]
pub struct Throughputs(Lock<BTreeMap<Key, Throughput>>);

impl Throughputs {
    /// Returns the expected seconds of a task on a device; `None` if none of its compression has run there.
    pub fn known(&self, device: &str, size: &TaskSize) -> Option<f64> {
        let throughputs = self.0.lock();
        let throughput = throughputs.get(&(device.to_owned(), size.compression));
        throughput.map(|throughput| throughput.seconds(size))
    }

    /// Returns the expected seconds of a task on a device, or a guess if none has run there; more than 0.
    pub fn expected(&self, device: &str, size: &TaskSize) -> f64 {
        let guess = || match device {
            CPU => on_cpu(size),
            _ => on_cpu(size) / FIRST_SPEEDUP,
        };
        self.known(device, size).unwrap_or_else(guess)
    }

    /// Learns from a task that took that many seconds.
    pub fn observed(&self, device: &str, size: &TaskSize, seconds: f64) {
        if size.bytes == 0 && size.entries == 0 {
            return;
        }
        let mut throughputs = self.0.lock();
        let first = || CPU_THROUGHPUT.times(seconds / CPU_THROUGHPUT.seconds(size));
        let throughput = throughputs.entry((device.to_owned(), size.compression));
        throughput.or_insert_with(first).learn(size, seconds);
    }

    /// Assumes a slightly higher speed of a device that lost a job because of its throughput. The cause of its slowness may
    /// be gone, so it gets work again after some more lost jobs.
    pub fn lost(&self, device: &str, size: &TaskSize) {
        const TIMES: f64 = 0.98;
        let key = (device.to_owned(), size.compression);
        if let Some(throughput) = self.0.lock().get_mut(&key) {
            *throughput = throughput.times(TIMES);
        }
    }
}

/// Returns the seconds of a task on the CPU at the built-in rates.
pub fn on_cpu(size: &TaskSize) -> f64 {
    CPU_THROUGHPUT.seconds(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64, entries: u64) -> TaskSize {
        TaskSize {
            bytes,
            entries,
            compression: Some((CompressionType::None, Implementation::Library)),
        }
    }

    fn is_near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found / expected - 1.0).abs() < 1e-3)
    }

    #[test]
    fn what_was_seen_is_expected_again_on_that_device_with_that_compression() {
        let (throughputs, task) = (Throughputs::default(), size(100_000_000, 1_000_000));
        assert_eq!(throughputs.known("cuda:0", &task), None);
        assert!(throughputs.expected("cuda:0", &task) < throughputs.expected(CPU, &task));
        throughputs.observed("cuda:0", &task, 2.0);
        assert!(is_near(throughputs.known("cuda:0", &task), 2.0));
        assert_eq!(throughputs.known("cuda:1", &task), None);
        let compressed = |by| TaskSize {
            compression: Some((CompressionType::Zstd, by)),
            ..task
        };
        let by_library = compressed(Implementation::Library);
        assert_eq!(throughputs.known("cuda:0", &by_library), None);
        throughputs.observed("cuda:0", &by_library, 3.0);
        let by_rockmill = compressed(Implementation::Rockmill1);
        assert_eq!(throughputs.known("cuda:0", &by_rockmill), None);
        let of_scan = TaskSize {
            compression: None,
            ..task
        };
        assert_eq!(throughputs.known("cuda:0", &of_scan), None);
        throughputs.observed("cuda:0", &of_scan, 0.5);
        assert!(is_near(throughputs.known("cuda:0", &task), 2.0));
        throughputs.observed("cuda:0", &task, 4.0);
        assert!(
            is_near(throughputs.known("cuda:0", &task), 2.5),
            "by a quarter"
        );
        for _ in 0..100 {
            throughputs.observed("cuda:0", &task, 4.0);
        }
        assert!(is_near(throughputs.known("cuda:0", &task), 4.0));
        assert!(is_near(
            throughputs.known("cuda:0", &size(50_000_000, 500_000)),
            2.0
        ));
    }

    #[test]
    fn bytes_and_entries_have_rates_of_their_own() {
        let throughputs = Throughputs::default();
        let (byte, entry) = (2e-9, 30e-9);
        let tasks = [
            size(10_000_000, 1000),
            size(10_000_000, 300_000),
            size(3_000_000, 90_000),
        ];
        let took = |size: &TaskSize| byte * size.bytes as f64 + entry * size.entries as f64;
        for task in tasks.iter().cycle().take(3000) {
            throughputs.observed("cuda:0", task, took(task));
        }
        for task in [size(10_000_000, 1), size(2_000_000, 100_000)] {
            assert!(
                is_near(throughputs.known("cuda:0", &task), took(&task)),
                "{task:?}"
            );
        }
    }

    #[test]
    fn a_tiny_task_tells_little_about_a_large_one() {
        let throughputs = Throughputs::default();
        // A subcompaction may have no more than a range tombstone.
        throughputs.observed("cuda:0", &size(2000, 0), 1.0);
        assert!(is_near(throughputs.known("cuda:0", &size(500_000, 0)), 1.0));
        let large = size(100 << 20, 0);
        assert!(is_near(throughputs.known("cuda:0", &large), 100.0));
    }

    #[test]
    fn nothing_takes_no_time_and_teaches_nothing() {
        let (throughputs, nothing) = (Throughputs::default(), size(0, 0));
        assert!(throughputs.expected(CPU, &nothing) > 0.0);
        throughputs.observed(CPU, &nothing, 1.0);
        assert_eq!(throughputs.known(CPU, &size(10, 1)), None);
        throughputs.observed("cuda:0", &size(10, 1), 0.0);
        let seconds = throughputs.expected("cuda:0", &size(10, 1));
        assert!(seconds > 0.0 && seconds < 1e-100, "{seconds}");
    }

    #[test]
    fn a_task_has_its_share_of_a_jobs_entries() {
        let job = JobSize::new(size(1000, 50), &[400, 200, 600]);
        assert_eq!(job.bytes(), 1200);
        assert_eq!(job.mean(), size(400, 20));
        assert_eq!(job.of(100), size(100, 5));
        let empty = JobSize::new(size(0, 0), &[]);
        assert_eq!(empty.mean(), size(0, 0));
    }
}
