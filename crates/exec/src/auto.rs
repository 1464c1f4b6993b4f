//! The choice of a device for a job under [`Device::Auto`](crate::device::Device::Auto).

use rockmill_format::compression::{CompressionType, Implementation};

use crate::throughput::{self, CPU, JobSize, TaskSize, Throughputs};

/// Minimum CPU time of a task for a GPU: a constant part and a part for each task in flight. Copies, launches and waits
/// take a GPU the same time for small tasks, and tasks take turns there. An H200 wins if a single task takes a CPU
/// thread at least 2 to 6 ms, or with 16 tasks in flight, 20 to 75 ms (docs/decisions/cost-model.md). Larger values
/// raise this limit, because the CPU processes them quickly.
const MIN_CPU_SECONDS: f64 = 4e-3;
const MIN_CPU_SECONDS_IN_FLIGHT: f64 = 4.5e-3;

/// CPU time of a task whose output a library compresses, relative to one without compression; less than was measured
/// (docs/decisions/small-jobs.md). A GPU takes about the same time for all of these.
fn cpu_times(kind: CompressionType) -> f64 {
    match kind {
        CompressionType::None => 1.0,
        CompressionType::Snappy | CompressionType::Lz4 => 1.3,
        CompressionType::Zstd | CompressionType::Zlib | CompressionType::Lz4hc => 2.0,
    }
}

/// How many times as fast as the CPU a device must be if a library compresses for it on the host. That takes the CPU as
/// long as without the device, so a small gain is not worth it.
const MIN_GAIN_WITH_LIBRARY: f64 = 1.2;

/// Work that is queued when a job begins.
#[derive(Debug, Clone, Copy)]
pub struct Queues {
    /// Input bytes of tasks that run on the device or wait for it.
    pub device_bytes: u64,
    /// The same for the CPU.
    pub cpu_bytes: u64,
    /// Maximum number of parallel tasks on each device.
    pub slots: usize,
}

/// Whether a job goes to a device rather than to the CPU. Its tasks must exceed the minimum CPU time. In
/// addition, either no task of this compression has run there, or the device's queue and the job take less time there
/// than on the CPU. The gain must be `MIN_GAIN_WITH_LIBRARY` if a library compresses. `compressed_by` would compress
/// the output on the device; the size of the job names the compressor on the CPU.
pub fn takes(
    throughputs: &Throughputs,
    device: &str,
    job: &JobSize,
    compressed_by: Implementation,
    queues: Queues,
) -> bool {
    let mean = job.mean();
    let mean_there = TaskSize {
        compression: mean.compression.map(|(kind, _)| (kind, compressed_by)),
        ..mean
    };
    // Number of tasks of this job's size.
    let queued = |bytes: u64| (bytes as f64 + job.bytes() as f64) / mean.bytes.max(1) as f64;
    let in_flight = queued(queues.device_bytes).clamp(1.0, queues.slots.max(1) as f64);
    let kind = (mean.compression).map_or(CompressionType::None, |(kind, _)| kind);
    let on_cpu = throughput::on_cpu(&mean) * cpu_times(kind);
    if on_cpu < MIN_CPU_SECONDS + MIN_CPU_SECONDS_IN_FLIGHT * in_flight {
        return false;
    }
    let Some(seconds) = throughputs.known(device, &mean_there) else {
        return true;
    };
    let is_by_library = compressed_by == Implementation::Library && kind != CompressionType::None;
    let least_gain = match is_by_library {
        true => MIN_GAIN_WITH_LIBRARY,
        false => 1.0,
    };
    let there = queued(queues.device_bytes) * seconds * least_gain;
    let is_sooner = there < queued(queues.cpu_bytes) * throughputs.expected(CPU, &mean);
    if !is_sooner {
        throughputs.lost(device, &mean_there);
    }
    is_sooner
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "cuda:0";

    const BY: Implementation = Implementation::Library;

    const IDLE: Queues = Queues {
        device_bytes: 0,
        cpu_bytes: 0,
        slots: 16,
    };

    const TASK_BYTES: u64 = 128 << 20;

    /// A job with entries of 100 bytes.
    fn job(tasks: usize, task_bytes: u64) -> JobSize {
        let bytes = tasks as u64 * task_bytes;
        let all = TaskSize {
            bytes,
            entries: bytes / 100,
            compression: Some((CompressionType::None, BY)),
        };
        JobSize::new(all, &vec![task_bytes; tasks])
    }

    /// Throughputs under which a task takes that many seconds on the GPU and on the CPU.
    fn throughputs(gpu: f64, cpu: f64) -> Throughputs {
        let (throughputs, size) = (Throughputs::default(), job(1, TASK_BYTES).mean());
        throughputs.observed(GPU, &size, gpu);
        throughputs.observed(CPU, &size, cpu);
        throughputs
    }

    #[test]
    fn a_job_goes_where_what_is_queued_and_the_job_take_less_time() {
        let job = job(16, TASK_BYTES);
        let takes = |gpu, cpu, queues| takes(&throughputs(gpu, cpu), GPU, &job, BY, queues);
        assert!(takes(0.1, 0.2, IDLE) && !takes(0.2, 0.1, IDLE));
        assert!(!takes(0.1, 0.1, IDLE), "ties are the CPU's");
        let busy = |device_bytes, cpu_bytes| Queues {
            device_bytes,
            cpu_bytes,
            ..IDLE
        };
        let one_job = 16 * TASK_BYTES;
        assert!(takes(0.1, 0.2, busy(one_job / 2, 0)));
        assert!(
            !takes(0.1, 0.2, busy(2 * one_job, 0)),
            "it is queued behind two"
        );
        assert!(takes(0.1, 0.2, busy(2 * one_job, one_job)));
        assert!(takes(0.2, 0.1, busy(0, 2 * one_job)));
    }

    #[test]
    fn a_device_of_which_nothing_is_known_has_what_is_above_the_floor() {
        let throughputs = Throughputs::default();
        throughputs.observed(CPU, &job(1, TASK_BYTES).mean(), 1e-9);
        assert!(takes(&throughputs, GPU, &job(16, TASK_BYTES), BY, IDLE));
        assert!(!takes(&throughputs, GPU, &job(16, 1 << 20), BY, IDLE));
    }

    #[test]
    fn a_quick_device_has_nothing_below_the_floor() {
        assert!(takes(
            &throughputs(1e-9, 1.0),
            GPU,
            &job(16, TASK_BYTES),
            BY,
            IDLE
        ));
        assert!(!takes(
            &throughputs(1e-9, 1.0),
            GPU,
            &job(16, 1 << 20),
            BY,
            IDLE
        ));
    }

    #[test]
    fn a_device_that_loses_is_tried_again_some_day() {
        const MANY: usize = 200;
        let throughputs = throughputs(0.3, 0.2);
        let job = job(16, TASK_BYTES);
        let tried = (0..MANY).find(|_| takes(&throughputs, GPU, &job, BY, IDLE));
        assert!(tried.is_some_and(|times| times > 10), "{tried:?}");
    }

    #[test]
    fn what_the_cpu_did_with_a_devices_compressor_says_nothing_of_its_own() {
        let own = Implementation::Rockmill1;
        let sized = |by| {
            let bytes = 16 * TASK_BYTES;
            let all = TaskSize {
                bytes,
                entries: bytes / 100,
                compression: Some((CompressionType::Lz4, by)),
            };
            JobSize::new(all, &[TASK_BYTES; 16])
        };
        let (throughputs, job) = (Throughputs::default(), sized(BY));
        throughputs.observed(CPU, &job.mean(), 0.1);
        throughputs.observed(GPU, &sized(own).mean(), 0.2);
        // Subcompactions that the CPU does again, after a device.
        for _ in 0..100 {
            throughputs.observed(CPU, &sized(own).mean(), 0.9);
        }
        assert!(!takes(&throughputs, GPU, &job, own, IDLE));
        throughputs.observed(CPU, &job.mean(), 0.9);
        assert!(takes(&throughputs, GPU, &job, own, IDLE));
    }

    #[test]
    fn a_device_beside_which_a_library_compresses_must_gain_more() {
        let takes = |kind, by, gpu, cpu| {
            let bytes = 16 * TASK_BYTES;
            let all = TaskSize {
                bytes,
                entries: bytes / 100,
                compression: Some((kind, by)),
            };
            let (throughputs, job) = (Throughputs::default(), JobSize::new(all, &[TASK_BYTES; 16]));
            throughputs.observed(GPU, &job.mean(), gpu);
            throughputs.observed(CPU, &job.mean(), cpu);
            takes(&throughputs, GPU, &job, by, IDLE)
        };
        let (zstd, none) = (CompressionType::Zstd, CompressionType::None);
        assert!(!takes(zstd, BY, 0.1, 0.119) && takes(zstd, BY, 0.1, 0.121));
        assert!(takes(zstd, Implementation::Rockmill1, 0.1, 0.101));
        assert!(takes(none, BY, 0.1, 0.101));
    }

    #[test]
    fn compressed_jobs_are_worth_it_from_a_smaller_size() {
        let takes_entries = |entries: u64, kind| {
            let all = TaskSize {
                bytes: 100 * entries,
                entries,
                compression: Some((kind, BY)),
            };
            let job = JobSize::new(all, &[all.bytes]);
            takes(&Throughputs::default(), GPU, &job, BY, IDLE)
        };
        let least = |kind| (0..).step_by(500).find(|&n| takes_entries(n, kind));
        let [none, lz4, zstd] = [
            CompressionType::None,
            CompressionType::Lz4,
            CompressionType::Zstd,
        ]
        .map(least);
        assert!(zstd < lz4 && lz4 < none, "{zstd:?}, {lz4:?}, {none:?}");
        // An H200 wins at 15,000 entries of 16 B/256 B already, and loses at 4,000 with LZ4.
        assert!(zstd > Some(4000) && zstd < Some(17_500), "{zstd:?}");
    }

    /// Bytes of keys and of values; input bytes above which a task takes less time on an H200, measured for one task
    /// and for 16 in parallel. For the largest values, no task of a usual size takes less time.
    const WINS_FROM: [(u64, u64, u64, u64); 8] = [
        (8, 32, 794_620, 7_614_434),
        (8, 64, 1_724_409, 15_757_251),
        (16, 128, 2_727_925, 30_678_922),
        (16, 256, 2_588_662, 26_169_244),
        (16, 1024, 4_059_120, 36_790_131),
        (16, 2000, 5_230_572, 159_493_535),
        (16, 3000, 4_374_511, 74_407_652),
        (16, 4096, 5_402_603, 128 << 20),
    ];

    #[test]
    fn the_floor_is_about_where_a_gpu_was_measured_to_win() {
        let throughputs = Throughputs::default();
        for (key, value, alone, at_once) in WINS_FROM {
            let is_worth = |task_bytes: u64, tasks: usize| {
                let bytes = tasks as u64 * task_bytes;
                let all = TaskSize {
                    bytes,
                    entries: bytes / (key + 8 + value),
                    compression: Some((CompressionType::None, BY)),
                };
                let job = JobSize::new(all, &vec![task_bytes; tasks]);
                takes(&throughputs, GPU, &job, BY, IDLE)
            };
            assert!(!is_worth(alone, 1) && is_worth(5 * alone, 1), "{value}");
            assert!(
                !is_worth(at_once, 16) && is_worth(5 * at_once, 16),
                "{value}"
            );
        }
    }
}
